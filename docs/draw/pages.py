"""Timelines of pages: each is drawn from what the program of its page leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs.draw.blocks import DOCS, run
from docs.draw.timeline import draw_timeline

# Name of the picture: the page, the variable of its program that holds a Timeline, and the title.
TIMELINES = {
    "data": ("parallel/data.md", "timeline", "Data parallel: four layers on four P100"),
    "tensor": (
        "parallel/tensor.md",
        "timeline",
        "Tensor parallel: two pairs of products on four P100",
    ),
    "sequence": ("parallel/sequence.md", "timeline", "Layers by positions, attention by heads"),
    "pipeline_gpipe": ("parallel/pipeline.md", "gpipe", "GPipe"),
    "pipeline_1f1b": ("parallel/pipeline.md", "one_f_one_b", "1F1B"),
    "pipeline_zero_bubble": ("parallel/pipeline.md", "zero_bubble", "ZB-H1"),
    "zero": ("parallel/zero.md", "zero", "ZeRO-2: state and gradients in quarters"),
    "fsdp": ("parallel/zero.md", "fsdp", "FSDP: weights in quarters, too"),
    "experts": ("parallel/experts.md", "timeline", "An expert on each device"),
    "hybrid": (
        "parallel/hybrid.md",
        "timeline",
        "Two stages of data times tensor parallelism, sharded state",
    ),
}


def timelines_of(page: Path, scope: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Name and text of every picture that belongs to a page, from what its program left behind."""
    for name, (path, variable, title) in TIMELINES.items():
        if DOCS / path == page:
            yield name, draw_timeline(scope[variable], title).svg()


def draw_pages() -> Iterator[tuple[str, str]]:
    """Name and text of all of them."""
    for page in dict.fromkeys(DOCS / path for path, _, _ in TIMELINES.values()):
        yield from timelines_of(page, run(page)[0])
