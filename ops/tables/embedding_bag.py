"""Look-ups beside `embedding`: bags of rows that are summed, rows of a batch by index, and learned positions.

Splits are those of `embedding`: over the table's rows too, where a task adds zero for indices outside of its rows.
"""

from __future__ import annotations

from functools import partial

from ops.building import (
    check_integers,
    check_ndim,
    check_positive,
    check_region,
    distinct,
    first,
    launch_first,
    term,
    terms,
)
from ops.cuda import tables as gpu_tables
from ops.elementwise.arithmetic import add, multiply
from ops.initializers import Init, normal
from ops.loss.softmax import check_classes
from ops.tiles import deliver, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def embedding_bag(
    indices: LogicalRegion,
    num_embeddings: int,
    embedding_dim: int,
    name: str | None = None,
    *,
    mode: str = "sum",
    dtype: str = "float32",
    weight_init: Init | None = None,
) -> LogicalRegion:
    """y[..., e] = sum, or mean, over l of weight[indices[..., l], e], as torch.nn.functional.embedding_bag.

    Args:
        indices: (..., bag), integers in 0..num_embeddings - 1; another one is a ValueError when the step runs.
        num_embeddings, embedding_dim: shape of the parameter `<name>.weight`.
        name: of the operator.
        mode: "sum" or "mean"; a mean is the operator `<name>`, a sum, and `<name>.mean`, which divides it.
        dtype: of the weight and the result.
        weight_init: first values; default normal, as torch's.

    Returns:
        (..., embedding_dim).

    Raises:
        ValueError: the indices are not integers or a scalar, an extent is not positive, or there is no such mode.
    """
    where = f"embedding_bag '{name or 'embedding_bag'}'"
    if mode not in ("sum", "mean"):
        raise ValueError(f"{where}: mode is 'sum' or 'mean', not {mode!r}")
    check_integers(where, indices, "indices")
    if indices.ndim == 0:
        raise ValueError(f"{where}: '{indices.name}' is a scalar, at least one dimension is needed")
    check_positive(where, num_embeddings=num_embeddings, embedding_dim=embedding_dim)
    graph = indices.graph
    name = graph.unique_name(name or "embedding_bag")
    init = normal() if weight_init is None else weight_init
    weight = graph.parameter(f"{name}.weight", (num_embeddings, embedding_dim), init, dtype)
    lead = distinct(indices.axes[:-1], ("l", "v", "e"))
    total = launch_first(
        name,
        f"{term((*lead, 'l'))}, v e -> {term((*lead, 'e'))}",
        [indices, weight],
        kernel=_sum_rows.bind(count=num_embeddings),
        backward=_bag_backward,
        flops=1 / num_embeddings,
    )
    return total if mode == "sum" else multiply(total, 1 / indices.shape[-1], f"{name}.mean")


@partial(Kernel, float32_outputs=(), cuda=gpu_tables.sum_bags)
def _sum_rows(ctx: Context, indices: Array, weight: Array, y: Array, *, count: int) -> None:
    check_classes("embedding_bag: the index", indices, count)
    lo, hi = ctx.interval("v")
    local = ctx.scratch("local", indices.shape[:-1], ctx.xp.intp)
    row = y if indices.shape[-1] == 1 else ctx.scratch("row", y.shape, y.dtype)
    for k in range(indices.shape[-1]):
        ctx.xp.subtract(indices[..., k], lo, out=local)
        ctx.xp.take(weight, local, axis=0, out=row, mode="clip")
        if hi - lo < count:
            row[(local < 0) | (local >= hi - lo)] = 0
        if k == 0:
            ctx.xp.copyto(y, row)
        else:
            ctx.xp.add(y, row, out=y)


def _bag_backward(op: Operator, gy: LogicalRegion) -> tuple[None, LogicalRegion]:
    (index_term, weight_term), (y_term,) = terms(op)
    gweight = gy.graph.launch(
        f"{op.name}.dweight",
        f"{index_term}, {y_term} -> {weight_term}",
        [op.inputs[0], gy],
        kernel=_bag_gradient,
        sizes={"v": op.extents["v"]},
        flops=op.flops,
        dtype=op.inputs[1].dtype,
    )
    return None, first(gweight)


@partial(Kernel, is_compiled=True, cuda=gpu_tables.bag_gradient)
def _bag_gradient(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    from ops.cpu import kernels as cpu

    table = work_array(ctx, "table", gweight)
    table.fill(0)
    gradient = rows(ctx, "gy", gy)
    for k in range(indices.shape[-1]):
        index = rows(ctx, "index", indices[..., k : k + 1])[:, 0]
        cpu.scatter_add(gradient, index, ctx.interval("v")[0], table)
    deliver(ctx, table, gweight)


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
    where = f"gather_rows '{name or 'gather_rows'}'"
    check_region(where, x)
    check_integers(where, indices, "indices")
    check_ndim(where, x, (3,))
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
        backward=_gather_backward,
        flops=1 / x.shape[1],
    )


@partial(Kernel, float32_outputs=(), cuda=gpu_tables.gather_rows)
def _gather(ctx: Context, x: Array, indices: Array, y: Array, *, count: int) -> None:
    check_classes("gather_rows: the index", indices, count)
    local = _local_rows(ctx, indices, ctx.rect(0).lo[1])
    ctx.xp.copyto(y, ctx.xp.take_along_axis(x, local.clip(0, x.shape[1] - 1)[..., None], axis=1))
    if x.shape[1] < count:
        y[(local < 0) | (local >= x.shape[1])] = 0


def _local_rows(ctx: Context, indices: Array, start: int) -> Array:
    local = ctx.scratch("local", indices.shape, ctx.xp.intp)
    ctx.xp.subtract(indices, start, out=local)
    return local


def _gather_backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, None]:
    (x_term, index_term), (y_term,) = terms(op)
    gx = gy.graph.launch(
        f"{op.name}.dx",
        f"{y_term}, {index_term} -> {x_term}",
        [gy, op.inputs[1]],
        kernel=_scatter,
        sizes=op.extents,
        flops=op.flops,
    )
    return first(gx), None


@partial(Kernel, is_compiled=True, cuda=gpu_tables.gather_rows_gradient)
def _scatter(ctx: Context, gy: Array, indices: Array, gx: Array) -> None:
    from ops.cpu import kernels as cpu

    table, extent = work_array(ctx, "table", gx), gx.shape[1]
    table.fill(0)
    local = _local_rows(ctx, indices, ctx.rect(2).lo[1])
    elsewhere = (local < 0) | (local >= extent)
    local += extent * ctx.xp.arange(gx.shape[0])[:, None]
    local[elsewhere] = -1
    cpu.scatter_add(rows(ctx, "gy", gy), local.reshape(-1), 0, table.reshape(-1, gx.shape[2]))
    deliver(ctx, table, gx)


def position_embedding(x: LogicalRegion, name: str | None = None, *, weight_init: Init | None = None) -> LogicalRegion:
    """x[..., s, e] + weight[s, e]: a learned vector for every position (Gehring et al., ICML 2017; GPT, BERT).

    Args:
        x: (..., positions, features), floating point, at least two dimensions.
        name: of the operator; its parameter is `<name>.weight` of shape (positions, features).
        weight_init: first values; default normal with a standard deviation of 0.02, as GPT-2's.

    Raises:
        ValueError: `x` has fewer dimensions, or is of another dtype.
    """
    where = f"position_embedding '{name or 'position_embedding'}'"
    check_region(where, x)
    if x.ndim < 2:
        raise ValueError(f"{where}: '{x.name}' has shape {x.shape}, at least two dimensions are needed")
    name = x.graph.unique_name(name or "position_embedding")
    init = normal(0.0, 0.02) if weight_init is None else weight_init
    return add(x, x.graph.parameter(f"{name}.weight", x.shape[-2:], init, x.dtype), name)
