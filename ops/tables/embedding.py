"""Look-up tables: one row of the weight for every index, or the sum of a bag of rows; and learned positions.

Splits over the axes of the indices, over `e` (columns of the table) and over `v` (rows: a task adds zero for the
indices outside of its rows).
"""

from __future__ import annotations

from functools import partial

from ops.building import check_integers, check_positive, checked, distinct, launch_first, term, terms
from ops.cuda import tables as gpu_tables
from ops.elementwise.arithmetic import add, multiply
from ops.initializers import Init, normal
from ops.tiles import check_classes, deliver, rows, sum_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator, njit


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
    return _look_up_rows("embedding", indices, (num_embeddings, embedding_dim), name, dtype, weight_init)


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
    if mode not in ("sum", "mean"):
        raise ValueError(f"embedding_bag '{name or 'embedding_bag'}': mode is 'sum' or 'mean', not {mode!r}")
    total = _look_up_rows("embedding_bag", indices, (num_embeddings, embedding_dim), name, dtype, weight_init)
    return total if mode == "sum" else multiply(total, 1 / indices.shape[-1], f"{total.name}.mean")


def _look_up_rows(
    kind: str, indices: LogicalRegion, shape: tuple[int, int], name: str | None, dtype: str, weight_init: Init | None
) -> LogicalRegion:
    """Rows of `<name>.weight` of `shape`; of a bag, the last dimension of the indices, their sum."""
    is_bag = kind == "embedding_bag"
    where = checked(kind, name, indices, "indices", least=int(is_bag), floating=False)
    check_integers(where, indices, "indices")
    check_positive(where, num_embeddings=shape[0], embedding_dim=shape[1])
    lead = distinct(indices.axes[: indices.ndim - is_bag], ("l", "v", "e") if is_bag else ("v", "e"))
    name, init = indices.graph.unique_name(name or kind), normal() if weight_init is None else weight_init
    weight = indices.graph.parameter(f"{name}.weight", shape, init, dtype)
    pattern = f"{term((*lead, 'l') if is_bag else lead)}, v e -> {term((*lead, 'e'))}"
    kernel, gradient = (_sum_rows, _bag_gradient) if is_bag else (_look_up, _gradient)
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


def position_embedding(x: LogicalRegion, name: str | None = None, *, weight_init: Init | None = None) -> LogicalRegion:
    """x[..., s, e] + weight[s, e]: a learned vector for every position (Gehring et al., ICML 2017; GPT, BERT).

    Args:
        x: (..., positions, features), floating point, at least two dimensions.
        name: of the operator; its parameter is `<name>.weight` of shape (positions, features).
        weight_init: first values; default normal with a standard deviation of 0.02, as GPT-2's.

    Raises:
        ValueError: `x` has fewer dimensions, or is of another dtype.
    """
    checked("position_embedding", name, x, least=2)
    name = x.graph.unique_name(name or "position_embedding")
    init = normal(0.0, 0.02) if weight_init is None else weight_init
    return add(x, x.graph.parameter(f"{name}.weight", x.shape[-2:], init, x.dtype), name)


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, float32_outputs=(), picks={1: (0,)}, cuda=gpu_tables.look_up)
def _look_up(ctx: Context, indices: Array, weight: Array, y: Array, *, count: int) -> None:
    add_rows(ctx, "embedding", indices[..., None], weight, y, count)


@partial(Kernel, is_compiled=True, accumulates=True, cuda=gpu_tables.look_up_gradient)
def _gradient(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    add_to_rows(ctx, indices[..., None], gy, gweight)


@partial(Kernel, float32_outputs=(), picks={1: (0,)}, cuda=gpu_tables.look_up)
def _sum_rows(ctx: Context, indices: Array, weight: Array, y: Array, *, count: int) -> None:
    add_rows(ctx, "embedding_bag", indices, weight, y, count)


@partial(Kernel, is_compiled=True, accumulates=True, cuda=gpu_tables.look_up_gradient)
def _bag_gradient(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    add_to_rows(ctx, indices, gy, gweight)


def is_look_up(op: Operator) -> bool:
    """Whether `op` is an `embedding` or `embedding_bag`: its second input is the table."""
    return op.kernel.function in (_look_up.function, _sum_rows.function)


def is_look_up_gradient(op: Operator) -> bool:
    """Whether `op` makes the gradient of a table of indices and of the gradient of what they looked up."""
    return op.kernel in (_gradient, _bag_gradient)


def add_rows(ctx: Context, kind: str, indices: Array, weight: Array, y: Array, count: int) -> None:
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
    """The gradient of `add_rows` with respect to the weight."""
    table = sum_array(ctx, "table", gweight)
    gradient = rows(ctx, "gy", gy)
    for k in range(indices.shape[-1]):
        index = rows(ctx, "index", indices[..., k : k + 1])[:, 0]
        scatter_add(gradient, index, ctx.interval("v")[0], table)
    deliver(ctx, table, gweight)


@njit(nogil=True)
def scatter_add(rows: Array, index: Array, lo: int, table: Array) -> None:
    """table[index[k] - lo] += rows[k] for every index that lies in the table."""
    for k in range(index.shape[0]):
        at = index[k] - lo
        if 0 <= at < table.shape[0]:
            for e in range(table.shape[1]):
                table[at, e] += rows[k, e]
