"""Random numbers by global index: the same under every partition.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is a bijection from a counter to
random bits. The counter is the row-major index of an element in its *whole* region and the key is made from (seed,
name), so any tile of a region can be filled on its own, on any rank, and two partitions of it agree to the bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.geometry import Rect


@dataclass(frozen=True, slots=True)
class Constant:
    """Every element is `value`."""

    value: float


@dataclass(frozen=True, slots=True)
class Uniform:
    """Independent uniform numbers in `[low, high)`."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Normal:
    """Independent normal numbers of the given mean and standard deviation."""

    mean: float
    std: float


Distribution = Constant | Uniform | Normal


def random_key(seed: int, *names: str | int) -> int:
    """A 64-bit key made from a seed and names; equal on every machine and run."""
    text = "\0".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def fill(out: Array, distribution: Distribution, key: int, shape: Sequence[int], rect: Rect) -> None:
    """Write the values of `rect`, a tile of a region of `shape`, into `out` (of the tile's shape, any dtype)."""
    if isinstance(distribution, Constant):
        out[...] = distribution.value
    elif isinstance(distribution, Uniform):
        uniform(out, key, shape, rect)
        out *= distribution.high - distribution.low
        out += distribution.low
    else:
        _by_index(_kernels()["normal"], out, key, shape, rect)
        out *= distribution.std
        out += distribution.mean


def uniform(out: Array, key: int, shape: Sequence[int], rect: Rect) -> None:
    """Uniform numbers in `[0, 1)` for the tile `rect` of a region of `shape`, into `out` of the tile's shape."""
    _by_index(_kernels()["uniform"], out, key, shape, rect)


def _by_index(kernel: Callable[..., None], out: Array, key: int, shape: Sequence[int], rect: Rect) -> None:
    """Run `kernel` over the tile as rows: the last dimension is contiguous in the region, the others are offsets."""
    if out.size == 0:
        return
    rows, width, offsets = _row_offsets(tuple(shape), rect)
    target = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    kernel(target.reshape(rows, width), offsets, np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32))
    if target is not out:
        out[...] = target


def _row_offsets(shape: tuple[int, ...], rect: Rect) -> tuple[int, int, Array]:
    if not shape:
        return 1, 1, np.zeros(1, np.int64)
    strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
    offsets = np.full(1, rect.lo[-1], np.int64)
    for k in range(len(shape) - 1):
        along = np.arange(rect.lo[k], rect.hi[k], dtype=np.int64) * strides[k]
        offsets = (offsets.reshape(-1, 1) + along.reshape(1, -1)).reshape(-1)
    return len(offsets), rect.hi[-1] - rect.lo[-1], offsets


@cache
def _kernels() -> dict[str, Callable[..., None]]:
    """The compiled kernels; numba is imported on first use, since importing it costs 0.3 s."""
    from taskflow.core import philox

    return {"uniform": philox.uniform, "normal": philox.normal}
