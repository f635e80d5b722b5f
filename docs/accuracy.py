"""The table and the plot of accuracy.md: `python docs/accuracy.py` makes them of what was predicted last.

`python docs/accuracy.py --run` predicts every published row anew (`taskflow machine --validate --all --json`) into
`benchmarks/results/accuracy.json`, in a minute. A test holds page and picture to that file, and the file to the rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import log2
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.draw.svg import Picture  # noqa: E402
from taskflow.cli.published import PublishedSet, read_published  # noqa: E402

# Rows, and what fitted constants do to sets that they were not fitted to, as `--json` prints them.
RESULT = ROOT / "benchmarks" / "results" / "accuracy.json"
PAGE, PICTURE = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "pictures" / "accuracy.svg"
BEGIN, END = "<!-- made by docs/accuracy.py -->\n", "<!-- end -->\n"

Row = Mapping[str, Any]
LEFT, RIGHT, LANE, TOP = 230, 720, 26, 46  # of the plot, in pixels
WIDEST = 1.5  # the factor at its edges


def rows_of(name: str, rows: Sequence[Row]) -> list[Row]:
    """Those of a set that were predicted."""
    return [row for row in rows if row["set"] == name and row["model"] is not None]


def factor(row: Row) -> float:
    """By which the model is off, from 1."""
    ratio = row["model"] / row["published"]
    return max(ratio, 1 / ratio)


def is_time(row: Row) -> bool:
    """Whether less is faster; or of memory, less."""
    return row["unit"] in ("s", "ms", "us", "GB")


def slower(row: Row) -> float:
    """Predicted over published seconds, or bytes: above 1 the model is too slow."""
    ratio = row["model"] / row["published"]
    return float(ratio if is_time(row) else 1 / ratio)


def draw(sets: Sequence[PublishedSet], rows: Sequence[Row]) -> Picture:
    """A lane for each set, a mark for each row where its ratio of times is; those in a fit are outlines."""
    height = TOP + LANE * len(sets) + 34
    said = "predicted over published time of every row, by set; most lie within a tenth of 1"
    picture = Picture(760, height, "Predictions beside published measurements", said)
    middle = (LEFT + RIGHT) / 2

    def at(ratio: float) -> float:
        share = log2(ratio) / log2(WIDEST)
        return middle + max(-1.0, min(1.0, share)) * (RIGHT - LEFT) / 2

    for ratio in (1 / 1.3, 1 / 1.1, 1.0, 1.1, 1.3):
        x = at(ratio)
        picture.line([(x, TOP - 12), (x, height - 30)], "line")
        picture.text((x, TOP - 18), f"{ratio:.2f}", 12, anchor="middle", colour="soft")
    for k, each in enumerate(sets):
        y = TOP + LANE * k + 8
        picture.text((LEFT - 14, y + 5), each.name, 13, anchor="end")
        for row in rows_of(each.name, rows):
            x, fill = at(slower(row)), "" if row["fit"] else "weight"
            tip = f"{row['name']}: {slower(row):.2f}"
            picture.rect((x - 4, y - 4, 8, 8), fill, stroke="soft", round_by=4, tip=tip)
    picture.text((middle, height - 10), "predicted / published time", 12, anchor="middle")
    return picture


def fitted(constants: Sequence[Row]) -> Iterator[str]:
    """A line for each fitted constant and each set that it was not fitted to."""
    yield "| constant | fitted to | value | without | set that was not fitted | off without | off with it |"
    yield "|---|---|---|---|---|---|---|"
    for c in constants:
        head = f"| {c['what']} of {c['machine']} | {c['set']} | {c['value']:g} | {c['without']:g} |"
        for effect in c["effects"]:
            factors = f"×{effect['without']:.3f} | ×{effect['median']:.3f}"
            yield f"{head} {effect['name']}, rows: {effect['rows']} | {factors} |"


def table(
    sets: Sequence[PublishedSet], rows: Sequence[Row], constants: Sequence[Row]
) -> Iterator[str]:
    """A line for each set, one for what each fitted constant does to each, then one for each row."""
    yield "| set | rows | median | worst | constant fitted |"
    yield "|---|---|---|---|---|"
    for each in sets:
        factors = [factor(row) for row in rows_of(each.name, rows)]
        middle = f"×{median(factors):.3f} | ×{max(factors):.2f}" if factors else "– | –"
        constant = f"{c.what} of {c.machine}" if (c := each.constant) else "none"
        yield f"| {each.name} | {len(factors)} of {len(each.row)} | {middle} | {constant} |"
    yield from ("", *fitted(constants))
    for each in sets:
        yield from ("", f"### {each.name}", "")
        yield from (f"* {key}: {text}" for key, text in each.sources.items())
        yield from ("", "| row | model | published | unit | ratio | |", "|---|---|---|---|---|---|")
        known = {row["name"]: row for row in rows_of(each.name, rows)}
        for row in each.row:
            source = "" if row.source in each.sources else row.source
            notes = "; ".join(filter(None, ("in the fit" if row.fit else "", source)))
            found = known.get(row.name)
            figure = "–", "–"
            if found:
                figure = f"{found['model']:.4g}", f"{found['model'] / found['published']:.2f}"
            yield f"| {row.name} | {figure[0]} | {row.published:g} | {row.unit} | {figure[1]} | {notes} |"


def page(text: str, result: Mapping[str, Any]) -> str:
    """The page with its tables made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n".join(table(read_published(), result["rows"], result["constants"]))
    return f"{before}{BEGIN}{made}\n{END}{after}"


def main() -> None:
    """Write page and picture; with `--run` predict first."""
    if "--run" in sys.argv[1:]:
        command = [sys.executable, "-m", "taskflow", "machine", "--validate", "--all", "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        RESULT.write_text(as_lines(json.loads(done.stdout)), encoding="utf-8")
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
    PICTURE.write_text(draw(read_published(), result["rows"]).svg(), encoding="utf-8")


def as_lines(data: Mapping[str, Any]) -> str:
    """Rows and constants as JSON, a line each."""
    parts = []
    for name in ("rows", "constants"):
        lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in data[name])
        parts.append(f'"{name}": [\n{lines}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
