"""`taskflow machine --validate`: what the model predicts beside what was published, by set (`cli.published`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from taskflow.cli.data import show_data
from taskflow.cli.published import PublishedRow, PublishedSet, predict, read_published
from taskflow.report.console import make_console, print_table

HEAD = ("", "model", "published", "unit", "ratio", "verdict", "source")


class Prediction(NamedTuple):
    """What the model makes of a row: a figure, or why there is none.

    `is_missing`: an optional package is not installed.
    """

    row: PublishedRow
    figure: float | None
    reason: str = ""
    is_missing: bool = False

    @property
    def ratio(self) -> float:
        """Model over published."""
        assert self.figure is not None
        return self.figure / self.row.published

    @property
    def factor(self) -> float:
        """By which the model is off, from 1."""
        return max(self.ratio, 1 / self.ratio)


def validate(every: bool = False, as_json: bool = False) -> bool:
    """Print model against published, row by row; whether all that can be predicted holds.

    Args:
        every: all sets, and not that of the presets alone.
        as_json: print data.
    """
    sets = read_published()
    done = [
        (published, [attempt(row) for row in published.row])
        for published in (sets if every else sets[:1])
    ]
    wrong = [text for published, found in done for text in find_wrong(published, found)]
    if as_json:
        rows = [
            {
                "set": published.name,
                "name": p.row.name,
                "model": p.figure,
                "published": p.row.published,
                "unit": p.row.unit,
                "fit": p.row.fit,
                **({"reason": p.reason} if p.reason else {}),
            }
            for published, found in done
            for p in found
        ]
        show_data("validation", {"holds": not wrong, "rows": rows, "wrong": wrong})
        return not wrong
    for published, found in done:
        _print_set(published, found)
    all_of_them = [p for _, found in done for p in found]
    sys.stdout.write("\n".join(["", *wrong, _verdict(len(wrong), all_of_them), ""]))
    return not wrong


def attempt(row: PublishedRow) -> Prediction:
    """The prediction of a row; what keeps it from being made is said, and stops no other."""
    try:
        return Prediction(row, predict(row))
    except Exception as error:
        missing = _missing(error)
        reason = str(missing) if missing else f"{type(error).__name__}: {error}"
        return Prediction(row, None, reason, bool(missing))


def _missing(error: BaseException | None) -> ModuleNotFoundError | None:
    """The package that is not installed, if that is why."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    return error


def median_factor(found: Sequence[Prediction]) -> float | None:
    """The median of the factors by which rows are off; None: no row was predicted."""
    factors = [p.factor for p in found if p.figure is not None]
    return median(factors) if factors else None


def find_wrong(published: PublishedSet, found: Sequence[Prediction]) -> Iterator[str]:
    """What does not hold: rows that failed, too many rows outside, a median that is off, rows out of order."""
    yield from (f"{p.row.name}: {p.reason}" for p in found if p.reason and not p.is_missing)
    outside = [p for p in found if not _holds(published, p)]
    if len(outside) > published.outside:
        for p in outside:
            figures = f"{p.figure:.4g}, published {p.row.published:.4g} {p.row.unit}"
            yield f"{published.name}: {p.row.name}: {figures}"
    middle = median_factor(found)
    if published.median and middle and middle > published.median:
        yield f"{published.name}: the median row is off by {middle:.3f}, at most {published.median:g}"
    figures_of = {p.row.name: p.figure for p in found if p.figure is not None}
    yield from _out_of_order(published, figures_of)


def _out_of_order(published: PublishedSet, figures: Mapping[str, float]) -> Iterator[str]:
    for order in published.order:
        for low, high in pairwise(name for name in order.rows if name in figures):
            if figures[low] >= figures[high]:
                yield f"order: {low} has {figures[low]:.4g}, {high} {figures[high]:.4g}"


def _holds(published: PublishedSet, prediction: Prediction) -> bool:
    return prediction.figure is None or prediction.factor <= published.tolerance


def _print_set(published: PublishedSet, found: Sequence[Prediction]) -> None:
    sys.stdout.write(f"\n{published.name}\n")
    print_table(make_console(), [HEAD, *_lines(published, found)])
    notes = [f"{key}: {source}" for key, source in published.sources.items()]
    sys.stdout.write("\n".join([*notes, *_fitted(published), _summary(published, found), ""]))


def _lines(published: PublishedSet, found: Sequence[Prediction]) -> Iterator[tuple[str, ...]]:
    for p in found:
        if p.figure is None:
            figure, ratio, verdict = "", "", f"not predicted: {p.reason}"
        else:
            figure, ratio = f"{p.figure:.4g}", f"{p.ratio:.2f}"
            verdict = "holds" if _holds(published, p) else "DOES NOT HOLD"
            verdict += ", in the fit" if p.row.fit else ""
        row = p.row
        yield row.name, figure, f"{row.published:.4g}", row.unit, ratio, verdict, row.source


def _fitted(published: PublishedSet) -> Iterator[str]:
    for constant in published.constant:
        rows = ", ".join(row.name for row in published.rows_of(constant))
        yield f"fitted: {constant.what} of {constant.machine} = {constant.value:g} ({constant.unit}), to {rows}"


def _summary(published: PublishedSet, found: Sequence[Prediction]) -> str:
    factors = [p.factor for p in found if p.figure is not None]
    if not factors:
        return "no row was predicted"
    fitted = sum(row.fit for row in published.row)
    return (
        f"{len(factors)} of {len(found)} rows predicted: off by {median(factors):.3f} in the median, "
        f"{max(factors):.2f} at most; {len(published.constant)} constants fitted to {fitted} rows"
    )


def _verdict(wrong: int, found: Sequence[Prediction]) -> str:
    missing = sorted({p.reason for p in found if p.is_missing})
    also = "".join(f"; rows left out: {reason}" for reason in missing)
    return (f"{wrong} do not hold" if wrong else "all hold, and in order") + also
