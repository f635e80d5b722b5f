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
    gradient_of_first,
    launch_first,
)
from ops.cuda import tables as gpu_tables
from ops.elementwise.arithmetic import add, multiply
from ops.initializers import Init, normal
from ops.tables.embedding import add_to_rows, launch_look_up, sum_rows
from ops.tiles import deliver, rows, take_along, work_array
from taskflow import Array, Context, Kernel, LogicalRegion


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
    lead = distinct(indices.axes[:-1], ("l", "v", "e"))
    shape, name = (num_embeddings, embedding_dim), indices.graph.unique_name(name or "embedding_bag")
    total = launch_look_up(name, indices, lead, ("l",), shape, dtype, weight_init, _sum_rows, _bag_gradient)
    return total if mode == "sum" else multiply(total, 1 / indices.shape[-1], f"{name}.mean")


@partial(Kernel, float32_outputs=(), cuda=gpu_tables.sum_bags)
def _sum_rows(ctx: Context, indices: Array, weight: Array, y: Array, *, count: int) -> None:
    sum_rows(ctx, "embedding_bag", indices, weight, y, count)


@partial(Kernel, is_compiled=True, cuda=gpu_tables.bag_gradient)
def _bag_gradient(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    add_to_rows(ctx, indices, gy, gweight)


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
        backward=partial(gradient_of_first, kernel=_scatter),
        flops=1 / x.shape[1],
    )


@partial(Kernel, float32_outputs=(), cuda=gpu_tables.gather_rows)
def _gather(ctx: Context, x: Array, indices: Array, y: Array, *, count: int) -> None:
    take_along(ctx, "gather_rows: the index", x, indices[..., None], y, 1, count)


@partial(Kernel, is_compiled=True, cuda=gpu_tables.gather_rows_gradient)
def _scatter(ctx: Context, gy: Array, indices: Array, gx: Array) -> None:
    from ops.cpu import kernels as cpu

    table, extent = work_array(ctx, "table", gx), gx.shape[1]
    table.fill(0)
    local = indices.astype(ctx.xp.intp) - ctx.rect(2).lo[1]
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
