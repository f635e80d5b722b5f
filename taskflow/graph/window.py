"""Windows: how a dimension of an input follows an axis, with halo, stride and offset."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

Interval = tuple[int, int]


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
        first, last = -((reach - lo - padding) // stride), (hi - 1 + padding) // stride
    else:
        first, last = lo * stride - padding, (hi - 1) * stride - padding + reach
    first, last = max(first, 0), min(last + 1, extent)
    return (first, last) if lo < hi and first < last else (0, 0)


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

    def output_extent(self, extent: int) -> int:
        """Extent of the axis when the padding is the same on both ends of an input dimension of `extent`."""
        return (extent + 2 * self.padding - self.dilation * (self.size - 1) - 1) // self.stride + 1
