"""Elements or rows by index along one dimension. Every axis may be split; over the searched one, partial sums."""

from __future__ import annotations

from functools import partial
from math import prod

from ops.building import (
    check_dim,
    check_integers,
    checked,
    distinct,
    gradient_of_first,
    launch_first,
    term,
)
from ops.cuda import tables as gpu_tables
from ops.tables.embedding import scatter_add
from ops.tiles import deliver, read_only, rows, take_along, work_array
from taskflow import Array, Context, Kernel, LogicalRegion


def gather(
    x: LogicalRegion, dim: int, index: LogicalRegion, name: str | None = None
) -> LogicalRegion:
    """y[..., p, ...] = x[..., index[..., p, ...], ...], the place of `dim`, as torch.gather.

    Args:
        x: any shape with at least one dimension, floating point.
        dim: the dimension that is searched; a task that holds some of its points adds zero for the others.
        index: integers in 0..extent of `dim` - 1, the shape of `x` but for `dim`; another one is a ValueError when
            the step runs.
        name: of the operator.

    Returns:
        The shape of `index`, the dtype of `x`.

    Raises:
        ValueError: the shapes do not agree, `dim` is out of range, or a dtype is wrong.
    """
    where = checked("gather", name, x)
    check_integers(where, index, "index")
    dim = check_dim(where, dim, x.ndim)
    check_shapes(where, x, index, dim)
    axes = distinct(x.axes, ("p",))
    picked = term((*axes[:dim], "p", *axes[dim + 1 :]))
    return launch_first(
        name or "gather",
        f"{term(axes)}, {picked} -> {picked}",
        [x, index],
        kernel=_gather.bind(dim=dim, count=x.shape[dim]),
        backward=partial(gradient_of_first, kernel=scatter.bind(dim=dim)),
        flops=1 / x.shape[dim],
    )


def check_shapes(where: str, x: LogicalRegion, index: LogicalRegion, dim: int) -> None:
    """ValueError unless an index has the shape of `x` but for `dim`."""
    if x.ndim != index.ndim or any(
        a != b for k, (a, b) in enumerate(zip(x.shape, index.shape)) if k != dim
    ):
        raise ValueError(
            f"{where}: '{x.name}' is {x.shape} and '{index.name}' is {index.shape}; only dim {dim} may differ"
        )


def gather_rows(x: LogicalRegion, indices: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """y[b, p, e] = x[b, indices[b, p], e]: rows of each sample, as torch.take_along_dim along dimension 1.

    Args:
        x: (batch, rows, features), floating point.
        indices: (batch, picks), integers below the number of rows; another one is a ValueError when the step runs.
        name: of the operator.

    Returns:
        (batch, picks, features). Split over the rows of `x`, a task adds zero for the rows that it lacks.

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong.
    """
    where = checked("gather_rows", name, x, ndim=(3,))
    check_integers(where, indices, "indices")
    if indices.ndim != 2 or indices.shape[0] != x.shape[0]:
        raise ValueError(
            f"{where}: '{x.name}' is {x.shape} and '{indices.name}' is {indices.shape}, not (batch, picks)"
        )
    b, s, e = distinct(x.axes, ("p",))
    return launch_first(
        name or "gather_rows",
        f"{b} {s} {e}, {b} p -> {b} p {e}",
        [x, indices],
        kernel=_gather.bind(count=x.shape[1]),
        backward=partial(gradient_of_first, kernel=scatter),
        flops=1 / x.shape[1],
    )


@partial(Kernel, float32_outputs=(), cuda=gpu_tables.gather)
def _gather(ctx: Context, x: Array, index: Array, y: Array, *, count: int, dim: int = 1) -> None:
    """For rows of `x` the index lacks the last dimension."""
    is_of_rows = index.ndim < x.ndim
    what = f"{'gather_rows' if is_of_rows else 'gather'}: the index"
    take_along(ctx, what, x, index[..., None] if is_of_rows else index, y, dim, count)


@partial(Kernel, is_compiled=True, cuda=gpu_tables.gather_gradient)
def scatter(ctx: Context, gy: Array, index: Array, gx: Array, *, dim: int = 1) -> None:
    """Seen as (..., points of `dim`, what is picked with a point): one number, or a row."""
    if index.ndim == gx.ndim:
        gy = gy.swapaxes(dim, -1)[..., None]
        index = index.swapaxes(dim, -1)
        gx = gx.swapaxes(dim, -1)[..., None]
    table = work_array(ctx, "table", gx)
    extent = gx.shape[-2]
    table.fill(0)
    local = index.astype(ctx.xp.intp) - ctx.rect(2).lo[dim]
    elsewhere = (local < 0) | (local >= extent)
    local += extent * ctx.xp.arange(prod(gx.shape[:-2])).reshape(*gx.shape[:-2], 1)
    local[elsewhere] = -1
    scatter_add(
        rows(ctx, "gy", gy),
        read_only(local.reshape(-1)),
        0,
        table.reshape(-1, gx.shape[-1]),
    )
    deliver(ctx, table, gx)
