"""Random numbers by global index: the same under every partition.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is a bijection from a counter to
random bits. The counter is the row-major index of an element in its *whole* region and the key is made from (seed,
name), so any tile of a region can be filled on its own, on any rank, and two partitions of it agree to the bit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real

import numpy as np

from taskflow.core.arrays import cast_array
from taskflow.core.columns import Array
from taskflow.core.compiling import njit
from taskflow.core.dtypes import HALF
from taskflow.core.geometry import Rect
from taskflow.core.numbers import real

_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint32(0x9E3779B9)
_W1 = np.uint32(0xBB67AE85)
_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_UNIT = 1.0 / 9007199254740992.0  # 2**-53


@dataclass(frozen=True, slots=True)
class Constant:
    """Every element is `value`, which may be infinite."""

    value: float

    def __post_init__(self) -> None:
        if not isinstance(self.value, Real) or math.isnan(self.value):
            raise ValueError(f"constant: value is {self.value!r}, a number is needed")


@dataclass(frozen=True, slots=True)
class Uniform:
    """Independent uniform numbers in `[low, high)`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        real("uniform", "low", self.low)
        real("uniform", "high", self.high, self.low)


@dataclass(frozen=True, slots=True)
class Normal:
    """Independent normal numbers of the given mean and standard deviation."""

    mean: float
    std: float

    def __post_init__(self) -> None:
        real("normal", "mean", self.mean)
        real("normal", "std", self.std, 0)


@dataclass(frozen=True)
class Values:
    """Every element is that of an array of the region's shape; equal where dtypes, shapes and elements are."""

    array: Array = field(repr=False, compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        whole = np.ascontiguousarray(self.array)
        head = f"{whole.dtype} {whole.shape} ".encode()
        digest = hashlib.sha256(head + whole.tobytes()).hexdigest()[:32]
        object.__setattr__(self, "digest", digest)


Distribution = Constant | Uniform | Normal | Values


def as_distribution(where: str, init: object, dtype: str) -> Distribution:
    """A number as a distribution; TypeError for what is neither, ValueError for a number that the dtype cannot hold."""
    if isinstance(init, Real) and math.isnan(init):
        raise ValueError(f"{where}: init is {init!r}, a number is needed")
    distribution = Constant(float(init)) if isinstance(init, Real) else init
    if not isinstance(distribution, Distribution):
        raise TypeError(f"{where}: init is {init!r}, a number or a distribution is needed")
    if isinstance(distribution, Constant):
        cast_array(f"{where}: init", np.array([distribution.value]), dtype)
    return distribution


def random_key(seed: int, *names: str | int) -> int:
    """A 64-bit key made from a seed and names; equal on every machine and run."""
    text = "\0".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def fill(
    out: Array, distribution: Distribution, key: int, shape: Sequence[int], rect: Rect
) -> None:
    """Write the values of `rect`, a tile of a region of `shape`, into `out` (of the tile's shape, any dtype)."""
    if isinstance(distribution, Constant):
        out[...] = distribution.value
    elif isinstance(distribution, Values):
        out[...] = distribution.array[rect.slices()]
    elif out.dtype.name in HALF:
        fill(wide := np.empty(out.shape, np.float32), distribution, key, shape, rect)
        out[...] = wide
    elif isinstance(distribution, Uniform):
        number = out.dtype.type
        low = distribution.low
        _by_index(_uniform, out, key, shape, rect, number(distribution.high - low), number(low))
    else:
        _by_index(_normal, out, key, shape, rect)
        out *= distribution.std
        out += distribution.mean


def uniform(out: Array, key: int, shape: Sequence[int], rect: Rect) -> None:
    """Uniform numbers in `[0, 1)` for the tile `rect` of a region of `shape`, into `out` of the tile's shape."""
    _by_index(_uniform, out, key, shape, rect, out.dtype.type(1), out.dtype.type(0))


def _by_index(
    kernel: Callable[..., None],
    out: Array,
    key: int,
    shape: Sequence[int],
    rect: Rect,
    *numbers: object,
) -> None:
    """Run `kernel` over the tile as it lies in memory, in rows of elements whose numbers are evenly apart."""
    if out.size == 0:
        return
    order = sorted(range(out.ndim), key=lambda d: -abs(out.strides[d]))
    target = out.transpose(order)
    if not target.flags.c_contiguous:
        target = np.empty(target.shape, out.dtype)
    offsets, step, width = _numbers(tuple(shape), rect, order)
    rows = target.reshape(len(offsets), width)
    kernel(rows, offsets, step, np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32), *numbers)
    if not np.may_share_memory(target, out):
        out.transpose(order)[...] = target


def _numbers(shape: tuple[int, ...], rect: Rect, order: Sequence[int]) -> tuple[Array, int, int]:
    """The number of the first element of each row, the step from one to the next, and the width of all.

    `order`: the dimensions, slowest first.
    """
    extents = rect.shape
    first = 0
    step = 1
    steps = [0] * len(shape)
    for k in reversed(range(len(shape))):
        steps[k], first, step = step, first + rect.lo[k] * step, step * shape[k]
    merged = [(1, 0)]  # extents and steps of dimensions that are evenly apart together
    for k in order:
        extent = extents[k]
        step = steps[k]
        if extent == 1:
            continue
        wide, apart = merged[-1]
        if apart == extent * step:
            merged[-1] = wide * extent, step
        else:
            merged.append((extent, step))
    offsets = np.array([first])
    for extent, step in merged[:-1]:
        offsets = (offsets[:, None] + np.arange(extent) * step).reshape(-1)
    return offsets, merged[-1][1], merged[-1][0]


@njit(inline="always")
def _philox(counter: np.uint64, k0: np.uint32, k1: np.uint32) -> tuple[np.uint64, np.uint64]:
    """Two 64-bit words for one counter."""
    c0 = np.uint32(counter & _MASK)
    c1 = np.uint32(counter >> _SHIFT)
    c2 = np.uint32(0)
    c3 = np.uint32(0)
    for _ in range(10):
        p0 = _M0 * np.uint64(c0)
        p1 = _M1 * np.uint64(c2)
        h0 = np.uint32(p0 >> _SHIFT)
        l0 = np.uint32(p0 & _MASK)
        h1 = np.uint32(p1 >> _SHIFT)
        l1 = np.uint32(p1 & _MASK)
        c0 = h1 ^ c1 ^ k0
        c1 = l1
        c2 = h0 ^ c3 ^ k1
        c3 = l0
        k0 = np.uint32(k0 + _W0)
        k1 = np.uint32(k1 + _W1)
    return (np.uint64(c0) << _SHIFT) | np.uint64(c1), (np.uint64(c2) << _SHIFT) | np.uint64(c3)


@njit
def _uniform(
    out: Array, offsets: Array, step: int, k0: np.uint32, k1: np.uint32, scale: float, low: float
) -> None:
    """`out[r, j]` = low + scale times a uniform number in [0, 1) of the element number `offsets[r] + j * step`."""
    number = out.dtype.type
    largest = np.nextafter(number(1), number(0))  # what is nearer to 1 would be rounded to it
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            bits, _ = _philox(np.uint64(offsets[r] + j * step), k0, k1)
            out[r, j] = (
                min(number(np.float64(bits >> np.uint64(11)) * _UNIT), largest) * scale + low
            )


@njit
def _normal(out: Array, offsets: Array, step: int, k0: np.uint32, k1: np.uint32) -> None:
    """`out[r, j]` = standard normal (Box-Muller) of the element number `offsets[r] + j * step`."""
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            a, b = _philox(np.uint64(offsets[r] + j * step), k0, k1)
            u = (np.float64(a >> np.uint64(11)) + 1.0) * _UNIT
            v = np.float64(b >> np.uint64(11)) * _UNIT
            out[r, j] = math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)
