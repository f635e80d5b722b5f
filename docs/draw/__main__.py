"""`python -m docs.draw [NAME ...]`: draw the pictures of docs/pictures anew, all of them or those named."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from docs.draw import ideas, ideas_of_time
from docs.draw.blocks import DOCS, run
from docs.draw.pages import TIMELINES, timelines_of

IDEAS = (
    *(
        ideas.idea_graph,
        ideas.idea_pattern,
        ideas.idea_split,
        ideas.idea_strategy,
        ideas.idea_lower,
    ),
    *(ideas_of_time.idea_collective, ideas_of_time.idea_schedule, ideas_of_time.idea_start),
    *(ideas_of_time.idea_one_graph, ideas_of_time.idea_search),
)


def drawn(names: list[str]) -> Iterator[tuple[str, str]]:
    """Name and text of each picture, or of those named."""
    for idea in IDEAS:
        if not names or idea.__name__ in names:
            yield idea.__name__, idea().svg()
    for page in dict.fromkeys(
        path for name, (path, _, _) in TIMELINES.items() if not names or name in names
    ):
        yield from timelines_of(DOCS / page, run(DOCS / page)[0])


if __name__ == "__main__":
    for name, text in drawn(sys.argv[1:]):
        (DOCS / "pictures" / f"{name}.svg").write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name}\n")
