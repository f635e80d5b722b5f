"""Look-up tables: one row of the weight for every index.

Splits over the axes of the indices, over `e` (columns of the table) and over `v` (rows: a task adds zero for the
indices outside of its rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.building import check_integers, check_positive, distinct, launch_first, term, terms
from ops.cuda import tables as gpu_tables
from ops.initializers import Init, normal
from ops.tiles import check_classes, deliver, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def embedding(
    indices: LogicalRegion,
    num_embeddings: int,
    embedding_dim: int,
    name: str | None = None,
    *,
    dtype: str = "float32",
    weight_init: Init | None = None,
) -> LogicalRegion:
    """y[..., e] = weight[indices[...], e], as torch.nn.functional.embedding.

    Args:
        indices: any shape, integers in 0..num_embeddings - 1; another one is a ValueError when the step runs.
        num_embeddings, embedding_dim: shape of the parameter `<name>.weight`.
        name: of the operator.
        dtype: of the weight and the result.
        weight_init: first values; default normal, as torch's.

    Returns:
        (..., embedding_dim).

    Raises:
        ValueError: the indices are not integers, or an extent is not positive.
    """
    where = f"embedding '{name or 'embedding'}'"
    check_integers(where, indices, "indices")
    check_positive(where, num_embeddings=num_embeddings, embedding_dim=embedding_dim)
    lead = distinct(indices.axes, ("v", "e"))
    shape, name = (num_embeddings, embedding_dim), indices.graph.unique_name(name or "embedding")
    return launch_look_up(name, indices, lead, (), shape, dtype, weight_init, _look_up, _gradient)


def launch_look_up(
    name: str,
    indices: LogicalRegion,
    lead: Sequence[str],
    bag: Sequence[str],
    shape: tuple[int, int],
    dtype: str,
    weight_init: Init | None,
    kernel: Kernel,
    gradient: Kernel,
) -> LogicalRegion:
    """Rows of `<name>.weight` of `shape` by indices (lead..., bag...); the kernel gives (lead..., features)."""
    init = normal() if weight_init is None else weight_init
    weight = indices.graph.parameter(f"{name}.weight", shape, init, dtype)
    pattern = f"{term((*lead, *bag))}, v e -> {term((*lead, 'e'))}"
    bound, backward = kernel.bind(count=shape[0]), partial(_backward, gradient=gradient)
    return launch_first(name, pattern, [indices, weight], kernel=bound, backward=backward, flops=1 / shape[0])


def _backward(op: Operator, gy: LogicalRegion, *, gradient: Kernel) -> tuple[None, LogicalRegion]:
    (index_term, weight_term), (y_term,) = terms(op)
    gweight = launch_first(
        f"{op.name}.dweight",
        f"{index_term}, {y_term} -> {weight_term}",
        [op.inputs[0], gy],
        kernel=gradient,
        sizes={"v": op.extents["v"]},
        flops=op.flops,
        dtype=op.inputs[1].dtype,
    )
    return None, gweight


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, float32_outputs=(), cuda=gpu_tables.look_up)
def _look_up(ctx: Context, indices: Array, weight: Array, y: Array, *, count: int) -> None:
    sum_rows(ctx, "embedding", indices[..., None], weight, y, count)


@partial(Kernel, is_compiled=True, cuda=gpu_tables.look_up_gradient)
def _gradient(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    add_to_rows(ctx, indices[..., None], gy, gweight)


def sum_rows(ctx: Context, kind: str, indices: Array, weight: Array, y: Array, count: int) -> None:
    """y[..., e] = sum over l of weight[indices[..., l], e], zero for the rows of all `count` that are not here."""
    check_classes(f"{kind}: the index", indices, count)
    lo, hi = ctx.interval("v")
    shape = indices.shape[:-1]
    local = ctx.scratch("local", shape, ctx.xp.intp)
    for k in range(indices.shape[-1]):
        row = ctx.scratch("row", y.shape, y.dtype) if k else y
        ctx.xp.subtract(indices[..., k], lo, out=local)
        ctx.xp.take(weight, local, axis=0, out=row, mode="clip")  # checked above; "raise" would buffer the result
        if hi - lo < count:
            is_elsewhere, is_behind = (ctx.scratch(slot, shape, bool) for slot in ("elsewhere", "behind"))
            ctx.xp.less(local, 0, out=is_elsewhere)
            ctx.xp.greater_equal(local, hi - lo, out=is_behind)
            ctx.xp.logical_or(is_elsewhere, is_behind, out=is_elsewhere)
            ctx.xp.copyto(row, 0, where=is_elsewhere[..., None])
        if k:
            ctx.xp.add(y, row, out=y)


def add_to_rows(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    """The gradient of `sum_rows` with respect to the weight."""
    from ops.cpu import kernels as cpu

    table = work_array(ctx, "table", gweight)
    table.fill(0)
    gradient = rows(ctx, "gy", gy)
    for k in range(indices.shape[-1]):
        index = rows(ctx, "index", indices[..., k : k + 1])[:, 0]
        cpu.scatter_add(gradient, index, ctx.interval("v")[0], table)
    deliver(ctx, table, gweight)
