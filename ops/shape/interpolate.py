"""Images made larger or smaller: columns first, then rows, each the sum of few points, times their shares.

A product with a matrix of shares runs on fast units, but spreads what is infinite: zero times it is NaN. Gradients are
such products: a step on one that is not finite changes nothing.

Every axis may be split: over the points that are made, tiles; over those that are read, partial sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ops.building import check_positive, checked, launch_first, pair
from ops.tiles import spatial
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

TAPS = {
    "nearest": 1,
    "bilinear": 2,
    "bicubic": 4,
}  # mode -> points that a result reads along each dimension
_CUBIC = -0.75  # of Keys' kernel, as torch's
Axis = tuple[
    int, int, float
]  # points that are read, that are made, and of the first per one of the second


def interpolate(
    x: LogicalRegion,
    size: int | Sequence[int],
    mode: str = "nearest",
    align_corners: bool = False,
    name: str | None = None,
    *,
    scales: tuple[float, float] | None = None,
) -> LogicalRegion:
    """Images of another size, as torch.nn.functional.interpolate.

    Args:
        x: (batch, channels, height, width), floating point.
        size: extents of the result, a number for both or one each.
        mode: "nearest", "bilinear" or "bicubic".
        align_corners: whether the corners' centres keep their values, else the edges are aligned; not for "nearest".
        name: of the operator.
        scales: how much larger the result is meant to be, if that is not the ratio of the extents; with
            `align_corners` the ratio is that of the corners, as torch has it.

    Returns:
        (batch, channels, *size), of the dtype of `x`.

    Raises:
        ValueError: `x` has not four dimensions, an extent is not positive, or there is no such mode.
    """
    where = checked("interpolate", name, x, ndim=(4,))
    made = pair(where, "size", size)
    check_positive(where, size=made[0])
    check_positive(where, size=made[1])
    _check(where, mode, align_corners, scales)
    options: dict[str, Any] = {
        "mode": mode,
        "align_corners": align_corners,
        "axes": _axes(x, made, align_corners, scales),
    }
    return launch_first(
        name or "interpolate",
        "n c y x -> n c h w",
        [x],
        kernel=_resize.bind(**options),
        sizes={"h": made[0], "w": made[1]},
        backward=partial(_backward, **options),
        flops=2 * TAPS[mode] * (1 / made[0] + 1 / x.shape[2]) / x.shape[3],
    )


def _check(where: str, mode: str, align_corners: bool, scales: tuple[float, float] | None) -> None:
    if mode not in TAPS:
        raise ValueError(f"{where}: mode is '{mode}', it is {', '.join(map(repr, TAPS))}")
    if align_corners and mode == "nearest":
        raise ValueError(f"{where}: align_corners is for 'bilinear' and 'bicubic'")
    if scales is not None and not all(scale > 0 for scale in scales):
        raise ValueError(f"{where}: scales are {scales}, they are positive")


def _axes(
    x: LogicalRegion,
    made: Sequence[int],
    align_corners: bool,
    scales: tuple[float, float] | None,
) -> tuple[Axis, ...]:
    """Of height and width."""
    dims = zip(x.shape[2:], made, scales or (None, None), strict=True)
    return tuple((n, m, _ratio(n, m, scale, align_corners)) for n, m, scale in dims)


def _ratio(extent: int, made: int, scale: float | None, align_corners: bool) -> float:
    """How far apart neighbours of the result lie in the image."""
    if align_corners:
        return (extent - 1) / (made - 1) if made > 1 else 0.0
    return extent / made if scale is None else 1 / scale


def _backward(
    op: Operator,
    gy: LogicalRegion,
    *,
    mode: str,
    align_corners: bool,
    axes: tuple[Axis, Axis],
) -> LogicalRegion:
    kernel = _gradient.bind(mode=mode, align_corners=align_corners, axes=axes)
    sizes = {axis: op.extents[axis] for axis in "yx"}
    flops = 2 / op.extents["h"] + 2 / op.extents["x"]  # two products
    return launch_first(
        f"{op.name}.dx",
        "n c h w -> n c y x",
        [gy],
        kernel=kernel,
        sizes=sizes,
        flops=flops,
    )


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel)
def _resize(
    ctx: Context,
    x: Array,
    y: Array,
    *,
    mode: str,
    align_corners: bool,
    axes: tuple[Axis, Axis],
) -> None:
    made = spatial(ctx.rect(1))
    read = spatial(ctx.rect(0))
    lines = ctx.scratch("lines", (*x.shape[:3], y.shape[3]), x.dtype)
    _sum_of_taps(ctx, x, lines, 3, taps(mode, align_corners, np.arange(*made[1]), axes[1]), read[1])
    _sum_of_taps(ctx, lines, y, 2, taps(mode, align_corners, np.arange(*made[0]), axes[0]), read[0])


def _sum_of_taps(
    ctx: Context,
    x: Array,
    y: Array,
    dim: int,
    pairs: list[tuple[Array, Array]],
    read: tuple[int, int],
) -> None:
    """y = the points that each tap reads along `dim`, times its shares, as far as they are here."""
    ctx.xp.copyto(y, 0)
    add = _add_slices if ctx.is_cuda else _add_picked
    for k, (points, shares) in enumerate(pairs):
        (here,) = np.nonzero(
            (read[0] <= points) & (points < read[1])
        )  # neighbours: points do not fall
        if len(here):
            part = y[(slice(None),) * dim + (slice(here[0], here[-1] + 1),)]
            add(ctx, (dim, k), x, part, points[here] - read[0], shares[here])


def _add_picked(
    ctx: Context,
    slot: tuple[int, int],
    x: Array,
    y: Array,
    points: Array,
    shares: Array,
) -> None:
    dim, _ = slot
    picked = ctx.scratch(slot, y.shape, x.dtype)
    ctx.xp.take(x, points, axis=dim, out=picked, mode="clip")  # "raise" would buffer the result
    if not (shares == 1).all():
        ctx.xp.multiply(picked, shares.astype(x.dtype).reshape(-1, *(1,) * (3 - dim)), out=picked)
    ctx.xp.add(y, picked, out=y)


def _add_slices(
    ctx: Context,
    slot: tuple[int, int],
    x: Array,
    y: Array,
    points: Array,
    shares: Array,
) -> None:
    """On a GPU one by one: an array of indices would be copied from the host."""
    read = x.swapaxes(0, slot[0])
    made = y.swapaxes(0, slot[0])
    line = ctx.scratch(slot, made.shape[1:], x.dtype)
    for k, (point, share) in enumerate(zip(points.tolist(), shares.tolist(), strict=True)):
        ctx.xp.multiply(read[point], share, out=line)
        ctx.xp.add(made[k], line, out=made[k])


@partial(Kernel)
def _gradient(
    ctx: Context,
    gy: Array,
    gx: Array,
    *,
    mode: str,
    align_corners: bool,
    axes: tuple[Axis, Axis],
) -> None:
    rows, columns = _matrices(ctx, 0, 1, gy, mode, align_corners, axes)
    lines = ctx.scratch("lines", (*gy.shape[:3], gx.shape[3]), gy.dtype)
    ctx.xp.matmul(gy, columns, out=lines)
    ctx.xp.matmul(rows.T, lines, out=gx)


def _matrices(
    ctx: Context,
    made: int,
    read: int,
    like: Array,
    mode: str,
    align_corners: bool,
    axes: tuple[Axis, Axis],
) -> list[Array]:
    """Of rows and of columns: points that are made by points that are read, of the tiles of these arguments."""
    matrices = []
    both = zip(spatial(ctx.rect(made)), spatial(ctx.rect(read)), axes, strict=True)
    for k, ((first, end), (lo, hi), axis) in enumerate(both):
        matrix = ctx.scratch(("matrix", k), (end - first, hi - lo), like.dtype)
        ctx.xp.copyto(matrix, 0)
        for points, shares in taps(mode, align_corners, np.arange(first, end), axis):
            (rows,) = np.nonzero((shares != 0) & (lo <= points) & (points < hi))
            if ctx.xp is np:  # a tap reads one point for each row
                matrix[rows, points[rows] - lo] += shares[rows]
                continue
            for (
                row
            ) in rows.tolist():  # on a GPU number by number: an array would be copied from the host
                point = int(points[row]) - lo
                matrix[row, point : point + 1] += float(shares[row])
        matrices.append(matrix)
    return matrices


def taps(mode: str, align_corners: bool, at: Array, axis: Axis) -> list[tuple[Array, Array]]:
    """The points that the results `at` read along one dimension, and their shares; each pair is of one tap."""
    extent, count, ratio = axis
    last = extent - 1
    if mode == "nearest":
        ratio = 1.0 if extent == count else ratio  # torch's, whatever the scales
        return [(np.minimum((at * ratio).astype(np.intp), last), np.ones(len(at)))]
    centre = at * ratio if align_corners else (at + 0.5) * ratio - 0.5
    if mode == "bilinear" and extent == count:
        return [(at, np.ones(len(at))), (at, np.zeros(len(at)))]
    return (_linear if mode == "bilinear" else _cubic)(centre, last)


def _linear(centre: Array, last: int) -> list[tuple[Array, Array]]:
    """`taps` of the two points around a place."""
    centre = np.maximum(centre, 0)
    low = np.minimum(centre.astype(np.intp), last)
    share = np.minimum(centre - low, 1.0)
    return [(low, 1 - share), (np.minimum(low + 1, last), share)]


def _cubic(centre: Array, last: int) -> list[tuple[Array, Array]]:
    """`taps` of the four points around a place."""
    low = np.floor(centre).astype(np.intp)
    t = centre - low
    shares = (_far(t + 1), _near(t), _near(1 - t), _far(2 - t))
    return [(np.clip(low + k - 1, 0, last), share) for k, share in enumerate(shares)]


def _near(t: Array) -> Array:
    """Keys' cubic kernel within one point (1981)."""
    near: Array = ((_CUBIC + 2) * t - (_CUBIC + 3)) * t * t + 1
    return near


def _far(t: Array) -> Array:
    """Keys' cubic kernel from one point to two."""
    far: Array = ((_CUBIC * t - 5 * _CUBIC) * t + 8 * _CUBIC) * t - 4 * _CUBIC
    return far
