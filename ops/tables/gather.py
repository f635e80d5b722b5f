"""Elements by index along one dimension. Every axis may be split; over the one that is searched, partial sums."""

from __future__ import annotations

from functools import partial

from ops.building import check_dim, check_integers, check_region, distinct, gradient_of_first, launch_first, term
from ops.cuda import tables as gpu_tables
from ops.tiles import contiguous, deliver, take_along, work_array
from taskflow import Array, Context, Kernel, LogicalRegion


def gather(x: LogicalRegion, dim: int, index: LogicalRegion, name: str | None = None) -> LogicalRegion:
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
    where = f"gather '{name or 'gather'}'"
    check_region(where, x)
    check_integers(where, index, "index")
    dim = check_dim(where, dim, x.ndim)
    if x.ndim != index.ndim or any(a != b for k, (a, b) in enumerate(zip(x.shape, index.shape)) if k != dim):
        raise ValueError(
            f"{where}: '{x.name}' is {x.shape} and '{index.name}' is {index.shape}; only dim {dim} may differ"
        )
    axes = distinct(x.axes, ("p",))
    picked = term((*axes[:dim], "p", *axes[dim + 1 :]))
    return launch_first(
        name or "gather",
        f"{term(axes)}, {picked} -> {picked}",
        [x, index],
        kernel=_gather.bind(dim=dim, count=x.shape[dim]),
        backward=partial(gradient_of_first, kernel=_scatter.bind(dim=dim)),
        flops=1 / x.shape[dim],
    )


@partial(Kernel, float32_outputs=(), cuda=gpu_tables.gather)
def _gather(ctx: Context, x: Array, index: Array, y: Array, *, dim: int, count: int) -> None:
    take_along(ctx, "gather: the index", x, index, y, dim, count)


@partial(Kernel, is_compiled=True, cuda=gpu_tables.gather_gradient)
def _scatter(ctx: Context, gy: Array, index: Array, gx: Array, *, dim: int) -> None:
    """With the dimension put last, row by row."""
    from ops.cpu import kernels as cpu

    table = work_array(ctx, "table", gx.swapaxes(dim, -1))
    table.fill(0)
    flat = table.reshape(-1, 1)
    local = index.swapaxes(dim, -1).astype(ctx.xp.intp) - ctx.rect(2).lo[dim]
    elsewhere = (local < 0) | (local >= table.shape[-1])
    lines = ctx.xp.arange(flat.size // table.shape[-1]).reshape(*table.shape[:-1], 1)
    local += lines * table.shape[-1]
    local[elsewhere] = -1
    gradients = contiguous(ctx, "gy", gy.swapaxes(dim, -1)).reshape(-1, 1)
    cpu.scatter_add(gradients, local.reshape(-1), 0, flat)
    deliver(ctx, table, gx.swapaxes(dim, -1))
