"""Looking at arrays of a GPU for checked execution: launches of the kernels of `check.cu`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from taskflow.backend.context import Array, origin
from taskflow.backend.sources import MOST_DIMENSIONS, CudaSource
from taskflow.backend.streams import StreamBackend

CHECK = CudaSource(Path(__file__).with_name("check.cu"))
_BLOCK = 256


def poison_launch(backend: StreamBackend, array: Array) -> Callable[[], object]:
    """A call that launches: fill an array with the pattern."""
    return partial(_launch, backend, f"poison_{array.itemsize * 8}", array.size, (origin(array), *_layout(array)))


def inspect_launch(backend: StreamBackend, array: Array, out: Array) -> Callable[[], object]:
    """A call that launches: out[0] = how many elements hold the pattern, out[1] = a sum over all bits; both 64-bit."""
    return partial(_launch, backend, f"inspect_{array.itemsize * 8}", _BLOCK, (origin(array), out, *_layout(array)))


def _launch(backend: StreamBackend, name: str, threads: int, args: tuple[Any, ...]) -> None:
    if threads:
        backend.kernel(CHECK.text, name)(threads, _BLOCK, args)


def _layout(array: Array) -> tuple[int, ...]:
    """Extents and steps in elements, filled up to six dimensions, and the number of elements."""
    shape, strides = array.shape, array.strides
    if array.flags.c_contiguous:
        shape, strides = (array.size,), (array.itemsize,)
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"an array of {len(shape)} dimensions with gaps: a check looks at most at {MOST_DIMENSIONS}")
    missing = MOST_DIMENSIONS - len(shape)
    steps = [s // array.itemsize for s in strides]
    return (*[1] * missing, *shape, *[0] * missing, *steps, array.size)
