"""Look-up tables: one row of the weight for every index.

Splits over the axes of the indices, over `e` (columns of the table) and over `v` (rows: a task adds zero for the
indices outside of its rows).
"""

from __future__ import annotations

from functools import partial

from ops.building import check_integers, check_positive, distinct, launch_first, term, terms
from ops.cuda import tables as gpu_tables
from ops.initializers import Init, normal
from ops.loss.softmax import check_classes
from ops.tiles import deliver, rows, work_array
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
    graph = indices.graph
    name = graph.unique_name(name or "embedding")
    init = normal() if weight_init is None else weight_init
    weight = graph.parameter(f"{name}.weight", (num_embeddings, embedding_dim), init, dtype)
    lead = distinct(indices.axes, ("v", "e"))
    return launch_first(
        name,
        f"{term(lead)}, v e -> {term((*lead, 'e'))}",
        [indices, weight],
        kernel=_look_up.bind(count=num_embeddings),
        backward=_backward,
        flops=1 / num_embeddings,
    )


@partial(Kernel, float32_outputs=(), cuda=gpu_tables.look_up)
def _look_up(ctx: Context, indices: Array, weight: Array, y: Array, *, count: int) -> None:
    check_classes("embedding: the index", indices, count)
    lo, hi = ctx.interval("v")
    local = ctx.scratch("local", indices.shape, ctx.xp.intp)
    ctx.xp.subtract(indices, lo, out=local)
    ctx.xp.take(weight, local, axis=0, out=y, mode="clip")  # checked above; "raise" would buffer the result
    if hi - lo < count:
        is_elsewhere, is_behind = (ctx.scratch(slot, indices.shape, bool) for slot in ("elsewhere", "behind"))
        ctx.xp.less(local, 0, out=is_elsewhere)
        ctx.xp.greater_equal(local, hi - lo, out=is_behind)
        ctx.xp.logical_or(is_elsewhere, is_behind, out=is_elsewhere)
        ctx.xp.copyto(y, 0, where=is_elsewhere[..., None])


def _backward(op: Operator, gy: LogicalRegion) -> tuple[None, LogicalRegion]:
    (index_term, weight_term), (y_term,) = terms(op)
    return None, launch_first(
        f"{op.name}.dweight",
        f"{index_term}, {y_term} -> {weight_term}",
        [op.inputs[0], gy],
        kernel=_gradient,
        sizes={"v": op.extents["v"]},
        flops=op.flops,
        dtype=op.inputs[1].dtype,
    )


@partial(Kernel, is_compiled=True, cuda=gpu_tables.look_up_gradient)
def _gradient(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    from ops.cpu import kernels as cpu

    table = work_array(ctx, "table", gweight)
    table.fill(0)
    index = rows(ctx, "index", indices[..., None])[:, 0]
    cpu.scatter_add(rows(ctx, "gy", gy), index, ctx.interval("v")[0], table)
    deliver(ctx, table, gweight)
