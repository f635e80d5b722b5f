"""The points of a dimension in order. The dimension stays whole: the order of all points decides."""

from __future__ import annotations

from functools import partial

from ops.building import check_dim, checked, distinct, launch_all, term
from ops.cuda import rows as gpu_rows
from ops.reduce.extremes import put_backward
from ops.tiles import deliver, last, work_array
from taskflow import Array, Context, Kernel, LogicalRegion


def sort(
    x: LogicalRegion, dim: int = -1, descending: bool = False, name: str | None = None
) -> tuple[LogicalRegion, LogicalRegion]:
    """The points along `dim` in their order and where they stood, as torch.sort: of equal values the first one first.

    Args:
        x: any shape with at least one dimension, floating point. NaN stands last.
        dim: the dimension that is put in order; it is never split.
        descending: whether the largest comes first.
        name: of the operator.

    Returns:
        (values, indices), both of the shape of `x`; the indices are int64. Values have gradients.

    Raises:
        ValueError: `dim` is out of range, or `x` is of another dtype.
    """
    dim = check_dim(checked("sort", name, x), dim, x.ndim)
    whole = term([f"^{a}" if k == dim else a for k, a in enumerate(distinct(x.axes))])
    values, indices = launch_all(
        name or "sort",
        f"{whole} -> {whole}, {whole}",
        [x],
        kernel=_in_order.bind(dim=dim, largest=bool(descending)),
        backward=partial(put_backward, dim=dim),
        flops=10,
        dtype=[x.dtype, "int64"],
    )
    return values, indices


def argsort(
    x: LogicalRegion, dim: int = -1, descending: bool = False, name: str | None = None
) -> LogicalRegion:
    """Where the points along `dim` stand in their order, as torch.argsort; args and errors as `sort`."""
    return sort(x, dim, descending, name or "argsort")[1]


@partial(Kernel, cuda=gpu_rows.in_order)
def _in_order(
    ctx: Context,
    x: Array,
    values: Array,
    indices: Array,
    *,
    dim: int,
    largest: bool,
) -> None:
    """NumPy puts NaN last, so the largest first are the smallest of -x."""
    x, values, indices = (last(a, dim) for a in (x, values, indices))
    key = x
    order = work_array(ctx, "indices", indices)
    if largest:
        key = ctx.scratch("key", x.shape, x.dtype)
        ctx.xp.negative(x, out=key)
    ctx.xp.copyto(order, ctx.xp.argsort(key, axis=-1, kind="stable"))
    ctx.xp.copyto(values, ctx.xp.take_along_axis(x, order, axis=-1))
    deliver(ctx, order, indices)
