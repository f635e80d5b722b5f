"""Random numbers by global index: the same under every partition.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is a bijection from a counter to
random bits. The counter is the row-major index of an element in its *whole* region and the key is made from (seed,
name), so any tile of a region can be filled on its own, on any rank, and two partitions of it agree to the bit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import njit
from taskflow.core.dtypes import HALF
from taskflow.core.geometry import Rect

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_MASK, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_CHUNK_BYTES = 1 << 18  # of a tile that does not lie as it is numbered
_UNIT = 1.0 / 9007199254740992.0  # 2**-53


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


def as_distribution(where: str, init: object) -> Distribution:
    """A number as a distribution; TypeError for what is neither."""
    distribution = Constant(float(init)) if isinstance(init, int | float) else init
    if not isinstance(distribution, Distribution):
        raise TypeError(f"{where}: init is {init!r}, a number or a distribution is needed")
    return distribution


def random_key(seed: int, *names: str | int) -> int:
    """A 64-bit key made from a seed and names; equal on every machine and run."""
    text = "\0".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def fill(out: Array, distribution: Distribution, key: int, shape: Sequence[int], rect: Rect) -> None:
    """Write the values of `rect`, a tile of a region of `shape`, into `out` (of the tile's shape, any dtype)."""
    if isinstance(distribution, Constant):
        out[...] = distribution.value
    elif out.dtype.name in HALF:
        fill(wide := np.empty(out.shape, np.float32), distribution, key, shape, rect)
        out[...] = wide
    elif isinstance(distribution, Uniform):
        number, low = out.dtype.type, distribution.low
        _by_index(_uniform, out, key, shape, rect, number(distribution.high - low), number(low))
    else:
        _by_index(_normal, out, key, shape, rect)
        out *= distribution.std
        out += distribution.mean


def uniform(out: Array, key: int, shape: Sequence[int], rect: Rect) -> None:
    """Uniform numbers in `[0, 1)` for the tile `rect` of a region of `shape`, into `out` of the tile's shape."""
    _by_index(_uniform, out, key, shape, rect, out.dtype.type(1), out.dtype.type(0))


def _by_index(
    kernel: Callable[..., None], out: Array, key: int, shape: Sequence[int], rect: Rect, *numbers: object
) -> None:
    """Run `kernel` over the tile as rows that are contiguous in the region, each from its offset."""
    if out.size == 0:
        return
    each = max(1, _CHUNK_BYTES * len(out) // out.nbytes) if out.ndim and not out.flags.c_contiguous else 0
    if 0 < each < len(out):  # through memory that stays in the cache
        for first in range(0, len(out), each):
            some = out[first : first + each]
            lo, hi = rect.lo[0] + first, rect.lo[0] + first + len(some)
            _by_index(kernel, some, key, shape, Rect((lo, *rect.lo[1:]), (hi, *rect.hi[1:])), *numbers)
        return
    rows, width, offsets = _row_offsets(tuple(shape), rect)
    target = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    kernel(target.reshape(rows, width), offsets, np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32), *numbers)
    if target is not out:
        out[...] = target


def _row_offsets(shape: tuple[int, ...], rect: Rect) -> tuple[int, int, Array]:
    """Rows, their width, and the offset of each: a row has all dimensions behind the last one that the tile cuts."""
    if not shape:
        return 1, 1, np.zeros(1, np.int64)
    last = max((k for k, n in enumerate(shape) if (rect.lo[k], rect.hi[k]) != (0, n)), default=0)
    strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
    offsets = np.full(1, rect.lo[last] * strides[last], np.int64)
    for k in range(last):
        along = np.arange(rect.lo[k], rect.hi[k], dtype=np.int64) * strides[k]
        offsets = (offsets.reshape(-1, 1) + along.reshape(1, -1)).reshape(-1)
    return len(offsets), (rect.hi[last] - rect.lo[last]) * strides[last], offsets


@njit(inline="always")
def _philox(counter: np.uint64, k0: np.uint32, k1: np.uint32) -> tuple[np.uint64, np.uint64]:
    """Two 64-bit words for one counter."""
    c0, c1 = np.uint32(counter & _MASK), np.uint32(counter >> _SHIFT)
    c2, c3 = np.uint32(0), np.uint32(0)
    for _ in range(10):
        p0, p1 = _M0 * np.uint64(c0), _M1 * np.uint64(c2)
        h0, l0 = np.uint32(p0 >> _SHIFT), np.uint32(p0 & _MASK)
        h1, l1 = np.uint32(p1 >> _SHIFT), np.uint32(p1 & _MASK)
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = np.uint32(k0 + _W0), np.uint32(k1 + _W1)
    return (np.uint64(c0) << _SHIFT) | np.uint64(c1), (np.uint64(c2) << _SHIFT) | np.uint64(c3)


@njit
def _uniform(out: Array, offsets: Array, k0: np.uint32, k1: np.uint32, scale: float, low: float) -> None:
    """`out[r, j]` = low + scale times a uniform number in [0, 1) of the element with global index `offsets[r] + j`."""
    number = out.dtype.type
    largest = np.nextafter(number(1), number(0))  # what is nearer to 1 would be rounded to it
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            a, _ = _philox(np.uint64(offsets[r] + j), k0, k1)
            out[r, j] = min(number(np.float64(a >> np.uint64(11)) * _UNIT), largest) * scale + low


@njit
def _normal(out: Array, offsets: Array, k0: np.uint32, k1: np.uint32) -> None:
    """`out[r, j]` = standard normal (Box-Muller) of the element with global index `offsets[r] + j`."""
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            a, b = _philox(np.uint64(offsets[r] + j), k0, k1)
            u = (np.float64(a >> np.uint64(11)) + 1.0) * _UNIT
            v = np.float64(b >> np.uint64(11)) * _UNIT
            out[r, j] = math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)
