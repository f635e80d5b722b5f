"""CUDA C: files of sources, and how kernels count the elements of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from taskflow.core.geometry import Rect

MOST_DIMENSIONS = 6
_CUDA = Path(__file__).with_name("cuda")  # the sources that all kernels share


@dataclass(frozen=True)
class CudaSource:
    """A file of CUDA C: `extern "C"` kernels, named `<name>_<dtype>`; and more of it that was made by a program."""

    path: Path
    generated: str = ""

    @cached_property  # one string, whose hash Python keeps: kernels are found by it at every launch
    def text(self) -> str:
        """The source, with the files that it includes in place of their `#include "name"` lines.

        They are of the same folder, or `taskflow/types.cu`: float16 and bfloat16, stored as such.
        """
        return _read(self.path) + "\n" + self.generated


@cache
def _read(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    for k, line in enumerate(lines):
        if line.startswith('#include "'):
            folder, _, file = line.split('"')[1].rpartition("/")
            lines[k] = _read((_CUDA if folder == "taskflow" else path.parent / folder) / file)
    return "\n".join(lines)


RANDOM, CASTS = (CudaSource(_CUDA / f"{name}.cu") for name in ("random", "casts"))


def index_map(shape: Sequence[int], rect: Rect) -> tuple[int, ...]:
    """How kernels find the row-major index in a region of `shape` of the k-th element of its tile `rect`.

    The extents of the tile, the strides of the region (both of MOST_DIMENSIONS dimensions) and the index of the first.
    """
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"a region of {len(shape)} dimensions: kernels on a GPU count in at most {MOST_DIMENSIONS}")
    strides, step = [0] * len(shape), 1
    for k in reversed(range(len(shape))):
        strides[k], step = step, step * shape[k]
    first = sum(lo * s for lo, s in zip(rect.lo, strides))
    missing = MOST_DIMENSIONS - len(shape)
    return (*[1] * missing, *rect.shape, *[0] * missing, *strides, first)
