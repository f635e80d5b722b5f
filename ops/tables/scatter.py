"""Adding by index, and classes as zeros and a one. Every axis may be split; over what is added, partial sums."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ops.building import (
    check_dim,
    check_integers,
    check_number,
    check_positive,
    check_region,
    checked,
    distinct,
    launch_first,
    no_gradient,
    term,
    terms,
)
from ops.cuda import tables as gpu_tables
from ops.elementwise.arithmetic import add, multiply
from ops.tables.gather import check_shapes, scatter
from ops.tiles import check_classes, take_along
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def one_hot(
    t: LogicalRegion, num_classes: int, name: str | None = None, *, dtype: str = "int64"
) -> LogicalRegion:
    """1 at the class of each element and 0 at the others, as torch.nn.functional.one_hot.

    Args:
        t: any shape, integers in 0..num_classes - 1; another one is a ValueError when the step runs, and makes its row
            NaN on a GPU; where there is no NaN, the least number, of unsigned ones the greatest.
        num_classes: extent of the new last dimension, which may be split.
        name: of the operator.
        dtype: of the result.

    Returns:
        (..., num_classes), without gradient.

    Raises:
        ValueError: `t` is not of integers, or `num_classes` is not positive.
    """
    where = checked("one_hot", name, t, "t", floating=False)
    check_integers(where, t, "t")
    check_positive(where, num_classes=num_classes)
    axes = distinct((*t.axes, "c"))
    return launch_first(
        name or "one_hot",
        f"{term(axes[:-1])} -> {term(axes)}",
        [t],
        kernel=_one_hot.bind(classes=num_classes),
        sizes={axes[-1]: num_classes},
        backward=no_gradient,
        dtype=dtype,
        flops=1,
    )


def scatter_add(
    x: LogicalRegion, dim: int, index: LogicalRegion, src: LogicalRegion, name: str | None = None
) -> LogicalRegion:
    """y = x, and y[..., index[..., p, ...], ...] += src[..., p, ...], the place of `dim`, as torch.scatter_add.

    Args:
        x: any shape with at least one dimension, floating point.
        dim: the dimension in which `index` points.
        index: integers in 0..extent of `dim` - 1, the shape of `x` but for `dim`; another one is a ValueError when the
            step runs, and makes the result NaN on a GPU.
        src: of the shape of `index`, floating point.
        name: of the operator that adds up `src`; `<name>.sum` adds `x`.

    Returns:
        The shape and dtype of `x`. `x` and `src` get gradients.

    Raises:
        ValueError: the shapes do not agree, `dim` is out of range, or a dtype is wrong.
    """
    where = checked("scatter_add", name, x)
    check_integers(where, index, "index")
    check_region(where, src, "src")
    dim = check_dim(where, dim, x.ndim)
    check_shapes(where, x, index, dim)
    if src.shape != index.shape:
        raise ValueError(
            f"{where}: '{index.name}' is {index.shape} and '{src.name}' is {src.shape}"
        )
    axes = distinct(x.axes, ("p",))
    picked = term((*axes[:dim], "p", *axes[dim + 1 :]))
    return _added(
        x,
        src,
        index,
        f"{picked}, {picked} -> {term(axes)}",
        dim,
        name or "scatter_add",
        1.0,
    )


def index_add(
    x: LogicalRegion,
    dim: int,
    index: LogicalRegion,
    source: LogicalRegion,
    alpha: float = 1.0,
    name: str | None = None,
) -> LogicalRegion:
    """y = x, and y[..., index[p], ...] += alpha source[..., p, ...], the place of `dim`, as torch.index_add.

    Args:
        x: any shape with at least one dimension, floating point.
        dim: the dimension in which `index` points.
        index: (picks,), integers in 0..extent of `dim` - 1; another one is a ValueError when the step runs, and
            makes the result NaN on a GPU.
        source: the shape of `x`, but `picks` in `dim`; floating point.
        alpha: a number.
        name: of the operator that adds up `source`; `<name>.sum` adds `x`.

    Returns:
        The shape and dtype of `x`. `x` and `source` get gradients.

    Raises:
        ValueError: the shapes do not agree, `dim` is out of range, or a dtype is wrong.
    """
    where = checked("index_add", name, x)
    check_integers(where, index, "index")
    check_region(where, source, "source")
    alpha = check_number(where, "alpha", alpha, "a finite number")
    dim = check_dim(where, dim, x.ndim)
    if index.ndim != 1 or source.shape != (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]):
        raise ValueError(
            f"{where}: '{x.name}' is {x.shape}, '{index.name}' is {index.shape} and '{source.name}' is {source.shape}"
        )
    axes = distinct(x.axes, ("p",))
    picked = term((*axes[:dim], "p", *axes[dim + 1 :]))
    return _added(x, source, index, f"{picked}, p -> {term(axes)}", dim, name or "index_add", alpha)


def _added(
    x: LogicalRegion,
    src: LogicalRegion,
    index: LogicalRegion,
    pattern: str,
    dim: int,
    name: str,
    alpha: float,
) -> LogicalRegion:
    name = x.graph.unique_name(name)
    if alpha != 1:
        with x.graph.following(name):
            src = multiply(src, alpha, f"{name}.scaled")
    axes = pattern.rpartition("->")[2].split()
    total = launch_first(
        name,
        pattern,
        [src, index],
        kernel=_scatter.bind(dim=dim, count=x.shape[dim]),
        sizes={axes[dim]: x.shape[dim]},
        backward=partial(_backward, dim=dim),
        flops=1 / x.shape[dim],
        dtype=x.dtype,
    )
    with x.graph.following(name):
        return add(x, total, f"{name}.sum")


def _backward(op: Operator, g: LogicalRegion, *, dim: int) -> tuple[LogicalRegion, None]:
    """What `index` points at."""
    (picked, index), (full,) = terms(op)
    gsrc = launch_first(
        f"{op.name}.dsrc",
        f"{full}, {index} -> {picked}",
        [g, op.inputs[1]],
        kernel=_gather.bind(dim=dim, count=op.outputs[0].shape[dim]),
        flops=1,
    )
    return gsrc, None


# -- kernels -----------------------------------------------------------------------------------------------------------


@Kernel
def _one_hot(ctx: Context, t: Array, y: Array, *, classes: int) -> None:
    if not ctx.is_cuda:
        check_classes("one_hot: the class", t, classes)
    lo = ctx.rect(1).lo[-1]
    hi = ctx.rect(1).hi[-1]
    numbers = ctx.scratch("numbers", (hi - lo,), "int64")
    ctx.xp.copyto(numbers[:1], lo)
    made = 1
    while made < hi - lo:  # in a few calls that need no memory
        more = min(made, hi - lo - made)
        ctx.xp.add(numbers[:more], made, out=numbers[made : made + more])
        made += more
    ctx.xp.equal(t[..., None], numbers, out=y)
    if ctx.is_cuda:
        _mark_wrong(ctx, t, y, classes)


def _mark_wrong(ctx: Context, t: Array, y: Array, classes: int) -> None:
    """Rows of what is no class."""
    is_wrong = ctx.scratch("wrong", t.shape, "bool")
    is_behind = ctx.scratch("behind", t.shape, "bool")
    ctx.xp.less(t, 0, out=is_wrong)
    ctx.xp.greater_equal(t, classes, out=is_behind)
    ctx.xp.logical_or(is_wrong, is_behind, out=is_wrong)
    ctx.xp.copyto(y, _no_number(y.dtype), where=is_wrong[..., None])


def _no_number(dtype: Any) -> Any:
    """NaN, or what stands out among integers."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return True
    return np.iinfo(dtype).min if kind == "i" else np.iinfo(dtype).max if kind == "u" else np.nan


def _expanded(ctx: Context, index: Array, shape: tuple[int, ...], dim: int) -> Array:
    """An index of `dim` alone, for every element of what is picked."""
    if index.shape == shape:
        return index
    full = ctx.scratch("index", shape, index.dtype)
    ctx.xp.copyto(full, index.reshape(*(n if k == dim else 1 for k, n in enumerate(shape))))
    return full


@Kernel
def _scatter_on_gpu(
    ctx: Context,
    src: Array,
    index: Array,
    y: Array,
    *,
    dim: int,
    count: int,
) -> None:
    gpu_tables.add_along(ctx, src, _expanded(ctx, index, src.shape, dim), y, dim, count)


@partial(Kernel, is_compiled=True, cuda=_scatter_on_gpu)
def _scatter(ctx: Context, src: Array, index: Array, y: Array, *, dim: int, count: int) -> None:
    check_classes("scatter_add: the index", index, count)
    scatter(ctx, src, _expanded(ctx, index, src.shape, dim), y, dim=dim)


@Kernel
def _gather_on_gpu(
    ctx: Context,
    g: Array,
    index: Array,
    gsrc: Array,
    *,
    dim: int,
    count: int,
) -> None:
    gpu_tables.gather_along(ctx, g, _expanded(ctx, index, gsrc.shape, dim), gsrc, dim, count)


@partial(Kernel, cuda=_gather_on_gpu)
def _gather(ctx: Context, g: Array, index: Array, gsrc: Array, *, dim: int, count: int) -> None:
    take_along(
        ctx,
        "scatter_add: the index",
        g,
        _expanded(ctx, index, gsrc.shape, dim),
        gsrc,
        dim,
        count,
    )
