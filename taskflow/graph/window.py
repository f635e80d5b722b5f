"""Windows: how a dimension of an input follows an axis, with halo, stride and offset, or by a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from taskflow.core.columns import Array, pointers

Interval = tuple[int, int]
BY_RULE = 1
BY_TABLE = 2  # of a row of `PatternTable.window`: 0 for no window


def image(
    lo: int,
    hi: int,
    extent: int,
    size: int,
    stride: int,
    padding: int,
    dilation: int,
    is_transposed: bool,
) -> Interval:
    """See `Window.image`; `partition` compiles it."""
    reach = (size - 1) * dilation
    if is_transposed:
        first = -((reach - lo - padding) // stride)
        last = (hi - 1 + padding) // stride
    else:
        first = lo * stride - padding
        last = (hi - 1) * stride - padding + reach
    first = max(first, 0)
    last = min(last + 1, extent)
    return (first, last) if lo < hi and first < last else (0, 0)


def table_image(lo: int, hi: int, table: Any, first: int, points: int, levels: int) -> Interval:
    """See `Image.image`; `partition` compiles it. `first`: where in `table` the columns of the image begin."""
    if lo >= hi or table[first + hi] == table[first + lo]:
        return 0, 0
    low = first + points + 1
    high = low + levels * points
    if levels == 1:
        return table[low + lo], table[high + hi - 1]
    level = 0
    while 2 << level <= hi - lo:
        level += 1
    one = level * points + lo
    other = level * points + hi - (1 << level)
    return min(table[low + one], table[low + other]), max(table[high + one], table[high + other])


def within(low: int, high: int, extent: int, first: int, end: int) -> tuple[int, int, bool]:
    """The interval of a group of axes and one more axis to their right, of this extent; `partition` compiles it.

    Args:
        low, high: the interval of the group so far; (0, 1) of a group without axes.
        extent: of the axis, whose interval is `first` to `end`.

    Returns:
        the interval, (0, 0) if there is no point, and whether the points lie beside each other in memory.
    """
    if end <= first or high <= low:
        return 0, 0, True
    if high - low > 1:
        return low * extent, high * extent, end - first == extent
    return low * extent + first, low * extent + end, True


@dataclass(frozen=True, slots=True)
class Window:
    """How a dimension of an input follows an axis.

    Point `j` of `axis` reads the points `j * stride - padding + k * dilation` for `0 <= k < size`. A concatenation,
    a slice or a padding is a window of size 1 whose (possibly negative) `padding` is the offset. With
    `transposed=True` the relation is turned around (the gradient of a convolution with respect to its input): point
    `j` of `axis` reads every `q` with `q * stride - padding + k * dilation == j`.
    Points outside of the input are not read.
    """

    axis: str
    size: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    transposed: bool = False
    is_whole: ClassVar[bool] = False  # see `Image`

    def __post_init__(self) -> None:
        if not isinstance(self.axis, str):
            raise TypeError(f"window: axis is {self.axis!r}, the name of an axis is needed")
        for name in ("size", "stride", "padding", "dilation"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool):
                raise TypeError(
                    f"window of axis '{self.axis}': {name} is {value!r}, a whole number is needed"
                )
            object.__setattr__(self, name, int(value))
        if self.size < 1 or self.stride < 1 or self.dilation < 1:
            raise ValueError(
                f"window of axis '{self.axis}': size, stride and dilation are positive, "
                f"not {self.size}, {self.stride}, {self.dilation}"
            )

    def image(self, interval: Interval, extent: int) -> Interval:
        """The points of an input dimension of `extent` that `interval` of the axis reads."""
        return image(
            *interval, extent, self.size, self.stride, self.padding, self.dilation, self.transposed
        )

    def axis_extent(self, extent: int) -> int | None:
        """Extent of the axis where an input dimension of `extent` says it."""
        return None if self.transposed else self.output_extent(extent)

    def scale(self, points: int, extent: int) -> int:
        """How many points of a dimension of `extent` one of the axis is; 0: tiles overlap, or leave some out."""
        is_plain = not self.padding and not self.transposed and self.size == self.stride
        is_whole = self.dilation == 1 and self.stride * points == extent
        return self.stride if is_plain and is_whole else 0

    def output_extent(self, extent: int) -> int:
        """Extent of the axis when the padding is the same on both ends of an input dimension of `extent`."""
        return (extent + 2 * self.padding - self.dilation * (self.size - 1) - 1) // self.stride + 1


@dataclass(frozen=True)
class Image:
    """How a dimension of an input follows an axis by a table: point `j` of `axis` reads `low[j] <= q < high[j]`.

    An interval of the axis reads the smallest interval that holds what its points read; where `low[j] == high[j]` a
    point reads nothing. An image that `is_whole` says by its table what work points are alone: an interval reads all
    that any point does, so that all parts of the axis read the same, which one all-gather brings. Images are equal
    where their tables are, which are compared by a digest.

    Source: Treichler et al., "Dependent partitioning", OOPSLA 2016: the image of a partition under a range field.

    Raises:
        TypeError: `axis` is no name, or the tables are not of whole numbers.
        ValueError: the tables are of different lengths, or a point reads what is outside or less than nothing.
    """

    axis: str
    low: Array = field(repr=False, compare=False)
    high: Array = field(repr=False, compare=False)
    is_whole: bool = False
    digest: str = field(default="", init=False)

    def __init__(
        self,
        axis: str,
        low: Sequence[int] | Array,
        high: Sequence[int] | Array,
        is_whole: bool = False,
    ) -> None:
        if not isinstance(axis, str):
            raise TypeError(f"image: axis is {axis!r}, the name of an axis is needed")
        low, high = _checked_tables(f"image of axis '{axis}'", low, high)
        digest = hashlib.sha256(low.tobytes() + high.tobytes()).hexdigest()[:16]
        fields = {"axis": axis, "low": low, "high": high, "is_whole": is_whole, "digest": digest}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @cached_property
    def table(self) -> Array:
        """Flat: how much all points before each read, and the largest of the last ones; then `levels` of the first that
        some points read; then as many of the last.

        Level k has the range of the 2**k points from each on (a sparse table). Where both ends ascend there is one
        level, in which points that read nothing have the first that is read behind them, and the last before.
        """
        is_read = self.high > self.low
        low = np.where(is_read, self.low, np.iinfo(np.int64).max)
        high = np.where(is_read, self.high, 0)
        if self.is_whole:
            low[:] = low.min()
            high[:] = high.max()
        before = pointers(self.high - self.low)
        after = np.minimum.accumulate(low[::-1])[::-1]
        until = np.maximum.accumulate(high)
        if (after[is_read] == low[is_read]).all() and (until[is_read] == high[is_read]).all():
            return np.concatenate([before, after, until])
        return np.concatenate([before, *_levels(low, np.minimum), *_levels(high, np.maximum)])

    @property
    def levels(self) -> int:
        """See `table`."""
        return (len(self.table) - 1) // len(self.low) // 2

    def image(self, interval: Interval, extent: int) -> Interval:
        """The points of an input dimension of `extent` that `interval` of the axis reads."""
        low, high = table_image(*interval, self.table, 0, len(self.low), self.levels)
        return int(low), int(high)

    def work(self, interval: Interval) -> int:
        """How much the points of an interval read in all, what several of them read as often."""
        before = self.table
        return int(before[interval[1]] - before[interval[0]])

    def axis_extent(self, extent: int) -> int:
        """Extent of the axis."""
        return len(self.low)

    def scale(self, points: int, extent: int) -> int:
        """0: see `Window.scale`."""
        return 0


AnyWindow = Window | Image
Windows = Mapping[str, AnyWindow]  # by the name of a dimension


def _checked_tables(
    where: str, low: Sequence[int] | Array, high: Sequence[int] | Array
) -> tuple[Array, Array]:
    """Both as arrays; TypeError or ValueError where they are none of an image."""
    tables = [np.asarray(table) for table in (low, high)]
    if any(table.ndim != 1 or table.dtype.kind not in "iu" for table in tables):
        raise TypeError(f"{where}: low and high are tables of whole numbers, one a point")
    low, high = (np.ascontiguousarray(table, np.int64) for table in tables)
    if len(low) != len(high) or not len(low):
        raise ValueError(f"{where}: low has {len(low)} points and high {len(high)}")
    wrong = np.flatnonzero((low < 0) | (low > high))
    if len(wrong):
        k = int(wrong[0])
        raise ValueError(f"{where}: point {k} reads {low[k]} to {high[k]}")
    return low, high


def _levels(column: Array, choose: np.ufunc) -> list[Array]:
    """What `choose`, a minimum or a maximum, takes of 1, 2, 4, ... points from each on, as far as there are so many."""
    levels = [column]
    step = 1
    while 2 * step <= len(column):
        level = levels[-1].copy()
        choose(level[:-step], level[step:], out=level[:-step])
        levels.append(level)
        step *= 2
    return levels


def window_row(window: AnyWindow | None, first: int) -> tuple[int, ...]:
    """A row of `PatternTable.window`; `first`: where the table of an image begins."""
    if window is None:
        return (0,) * 6
    if isinstance(window, Image):
        return BY_TABLE, first, len(window.low), window.levels, 0, 0
    return (
        BY_RULE,
        window.size,
        window.stride,
        window.padding,
        window.dilation,
        int(window.transposed),
    )
