"""Looking at arrays of a GPU for checked execution: launches of the kernels of `check.cu`."""

from __future__ import annotations

from pathlib import Path

from taskflow.backend.context import Array, origin
from taskflow.backend.sources import MOST_DIMENSIONS, CudaSource

CHECK = CudaSource(Path(__file__).with_name("check.cu"))
_THREADS = 256  # one block
Launch = tuple[CudaSource, str, int, tuple[Array | int, ...]]


def poison_kernel(array: Array) -> Launch:
    """What `StreamBackend.launch` gets for a `StreamBackend.poison`."""
    return CHECK, f"poison_{array.itemsize * 8}", array.size, (origin(array), *_layout(array))


def inspect_kernel(array: Array, out: Array) -> Launch:
    """What `StreamBackend.launch` gets for a `StreamBackend.inspect`."""
    return CHECK, f"inspect_{array.itemsize * 8}", _THREADS, (origin(array), out, *_layout(array))


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
