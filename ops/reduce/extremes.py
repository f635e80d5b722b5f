"""Maximum and minimum over dimensions, where they stand, and the k largest.

Maximum, minimum and argmax may be split along every axis: partial maxima are combined. For the k largest of a row the
whole row is needed.
"""

from __future__ import annotations

from functools import partial

from ops.building import (
    check_dim,
    check_positive,
    checked,
    distinct,
    launch_all,
    launch_first,
    term,
    terms,
)
from ops.cuda import rows as gpu_rows
from ops.cuda import tables as gpu_tables
from ops.elementwise.arithmetic import multiply
from ops.elementwise.formula import formula
from ops.reduce.reductions import Dims, kept_term, reduced_dims
from ops.tiles import deliver, last, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def max(
    x: LogicalRegion, dim: Dims = None, keepdim: bool = False, name: str | None = None
) -> LogicalRegion:
    """The maximum over one dimension, several, or all, as torch.amax: equal maxima share the gradient evenly.

    Args:
        x: any shape, floating point.
        dim: the dimensions that are reduced; all when None.
        keepdim: whether they stay with an extent of 1.
        name: of the operator.

    Raises:
        ValueError: a dimension is out of range or named twice, or `x` is of another dtype.
    """
    return _extreme("max", "x", x, dim, keepdim, name)


def min(
    x: LogicalRegion, dim: Dims = None, keepdim: bool = False, name: str | None = None
) -> LogicalRegion:
    """The minimum over one dimension, several, or all, as torch.amin; args and errors as `max`.

    It is `<name>.value`, minus the maximum of -x, which carries the name.
    """
    largest = _extreme("min", "-x", x, dim, keepdim, name)
    with x.graph.following(largest.name):
        return multiply(largest, -1.0, f"{largest.name}.value")


amax = max
amin = min


def global_max_pool2d(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """The maximum of every channel of every image; args, returns and raises as `global_avg_pool2d`."""
    checked("global_max_pool2d", name, x, ndim=(4,))
    return max(x, (2, 3), name=name or "global_max_pool2d")


def _extreme(
    kind: str,
    text: str,
    x: LogicalRegion,
    dim: Dims,
    keepdim: bool,
    name: str | None,
) -> LogicalRegion:
    dims = reduced_dims(f"{kind} '{name or kind}'", x, dim)
    axes = distinct(x.axes)
    return formula(
        name or kind,
        text,
        {"x": (x, term(axes))},
        kept_term(axes, dims, keepdim),
        "max",
        partial(_extreme_backward, text=text),
    )


def _extreme_backward(op: Operator, g: LogicalRegion, *, text: str) -> LogicalRegion:
    (full,), (row,) = terms(op)
    row = row.removeprefix("max[").removesuffix("]")
    inputs = {"x": (op.inputs[0], full), "z": (op.outputs[0], row)}
    ties = formula(f"{op.name}.ties", f"{text} == z", inputs, row)
    inputs |= {"g": (g, row), "ties": (ties, row)}
    sign = "-" if text == "-x" else ""
    return formula(f"{op.name}.dx", f"where({text} == z, {sign}g / ties, 0)", inputs, full)


def argmax(
    x: LogicalRegion, dim: int = -1, keepdim: bool = False, name: str | None = None
) -> LogicalRegion:
    """Where the maximum over `dim` stands, the first one where several are equal, as torch.argmax.

    Args:
        x: any shape with at least one dimension, floating point.
        dim: the dimension that is reduced; it may be split.
        keepdim: whether it stays with an extent of 1.
        name: of the operator; the maximum is `<name>.max`.

    Returns:
        int64, without gradient.

    Raises:
        ValueError: `dim` is out of range, or `x` is of another dtype.
    """
    dim = check_dim(checked("argmax", name, x), dim, x.ndim)
    name = x.graph.unique_name(name or "argmax")
    axes = distinct(x.axes)
    row = kept_term(axes, (dim,), keepdim)
    with x.graph.following(name):
        largest = formula(
            f"{name}.max",
            "x",
            {"x": (x, term(axes))},
            row,
            "max",
        )
    behind = launch_first(
        name,
        f"{term(axes)}, {row} -> max[{row}]",
        [x, largest],
        kernel=_points_behind.bind(dim=dim, extent=x.shape[dim]),
        dtype="int64",
        flops=2,
    )
    kernel = _from_the_front.bind(extent=x.shape[dim])
    with x.graph.following(name):
        return launch_first(f"{name}.index", f"{row} -> {row}", [behind], kernel=kernel)


def argmin(
    x: LogicalRegion, dim: int = -1, keepdim: bool = False, name: str | None = None
) -> LogicalRegion:
    """Where the minimum over `dim` stands, the first one where several are equal, as torch.argmin.

    Args, returns and raises as `argmax`; what it reads, -x, is `<name>.negative`.
    """
    name = x.graph.unique_name(name or "argmin") if isinstance(x, LogicalRegion) else name
    checked("argmin", name, x)
    with x.graph.following(name or "argmin"):
        negative = multiply(x, -1.0, f"{name}.negative")
    return argmax(negative, dim, keepdim, name)


@partial(Kernel, cuda=gpu_rows.points_behind)
def _points_behind(
    ctx: Context,
    x: Array,
    largest: Array,
    behind: Array,
    *,
    dim: int,
    extent: int,
) -> None:
    """How many points of the whole dimension are behind the first maximum, so that parts combine by their maximum."""
    row = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    x, largest, out = (last(a, dim) for a in (x, largest.reshape(row), behind.reshape(row)))
    is_largest, is_nan = (ctx.scratch(slot, x.shape, bool) for slot in ("largest", "nan"))
    ctx.xp.equal(x, largest, out=is_largest)
    ctx.xp.logical_or(is_largest, ctx.xp.not_equal(x, x, out=is_nan), out=is_largest)
    place = ctx.scratch("place", out.shape, ctx.xp.intp)
    is_elsewhere = ctx.scratch("elsewhere", out.shape, bool)
    ctx.xp.argmax(is_largest, axis=-1, keepdims=True, out=place)
    ctx.xp.any(is_largest, axis=-1, keepdims=True, out=is_elsewhere)
    ctx.xp.logical_not(is_elsewhere, out=is_elsewhere)
    ctx.xp.subtract(extent - 1 - ctx.rect(0).lo[dim], place, out=out)
    ctx.xp.copyto(out, -1, where=is_elsewhere)


@Kernel
def _from_the_front(ctx: Context, behind: Array, index: Array, *, extent: int) -> None:
    ctx.xp.subtract(extent - 1, behind, out=index)


def topk(
    x: LogicalRegion, k: int, dim: int = -1, largest: bool = True, name: str | None = None
) -> tuple[LogicalRegion, LogicalRegion]:
    """The `k` largest (or smallest) along `dim` in their order and where they stand, as torch.topk.

    Args:
        x: any shape with at least one dimension, floating point.
        k: at most the extent of `dim`; of equal values the first ones count.
        dim: the dimension that is searched; it is never split.
        largest: False for the smallest.
        name: of the operator.

    Returns:
        (values, indices): `dim` has `k` points in both; the indices are int64. Values have gradients.

    Raises:
        ValueError: `dim` or `k` is out of range, or `x` is of another dtype.
    """
    where = checked("topk", name, x)
    dim = check_dim(where, dim, x.ndim)
    check_positive(where, k=k)
    if k > x.shape[dim]:
        raise ValueError(f"{where}: k is {k}, dim {dim} of '{x.name}' has {x.shape[dim]} points")
    values, indices = launch_all(
        name or "topk",
        _topk_pattern(x, dim),
        [x],
        kernel=largest_of_rows.bind(dim=dim, largest=largest),
        sizes={"k": k},
        backward=partial(put_backward, dim=dim),
        flops=10 / k,
        dtype=[x.dtype, "int64"],
    )
    return values, indices


def _topk_pattern(x: LogicalRegion, dim: int) -> str:
    axes = distinct(x.axes, ("k",))
    read, made = (term((*axes[:dim], axis, *axes[dim + 1 :])) for axis in (f"^{axes[dim]}", "^k"))
    return f"{read} -> {made}, {made}"


@partial(Kernel, is_compiled=True, cuda=gpu_rows.in_order)
def largest_of_rows(
    ctx: Context,
    x: Array,
    values: Array,
    indices: Array,
    *,
    dim: int,
    largest: bool,
) -> None:
    """The kernel of `topk`: as many as `values` has along `dim`."""
    from ops.cpu import rows as cpu_rows

    x, values, indices = (last(a, dim) for a in (x, values, indices))
    made = work_array(ctx, "values", values), work_array(ctx, "indices", indices)
    cpu_rows.top_k(rows(ctx, "x", x), largest, *(a.reshape(-1, values.shape[-1]) for a in made))
    deliver(ctx, made[0], values)
    deliver(ctx, made[1], indices)


def put_backward(
    op: Operator, g: LogicalRegion | None, gindices: LogicalRegion | None, *, dim: int
) -> LogicalRegion | None:
    """The backward function of what picks points along `dim`; its second output says where they stood."""
    if g is None:
        return None
    (x_term,), (z_term, _) = terms(op)
    return launch_first(
        f"{op.name}.dx",
        f"{z_term}, {z_term} -> {x_term}",
        [g, op.outputs[1]],
        kernel=_put.bind(dim=dim),
        sizes=dict(op.extents),
        flops=1 / op.outputs[0].shape[dim],
    )


@partial(Kernel, cuda=gpu_tables.gather_gradient)
def _put(ctx: Context, g: Array, indices: Array, gx: Array, *, dim: int) -> None:
    gx.fill(0)
    ctx.xp.put_along_axis(gx, indices, g, axis=dim)
