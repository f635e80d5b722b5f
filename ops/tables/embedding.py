"""Look-up tables: one row of the weight for every index, or the sum of a bag of rows; and learned positions.

Splits over the axes of the indices, over `e` (columns of the table) and over `v` (rows: a task adds zero for the
indices outside of its rows).
"""

from __future__ import annotations

from functools import partial
from math import inf

from ops.building import (
    check_integers,
    check_positive,
    checked,
    distinct,
    is_integer,
    launch_first,
    term,
    terms,
)
from ops.cuda import tables as gpu_tables
from ops.elementwise.arithmetic import add, divide, greater, maximum, multiply, not_equal, where
from ops.initializers import Init, normal
from ops.reduce.extremes import max
from ops.reduce.reductions import sum
from ops.shape.expand import cast, unsqueeze
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
    padding_idx: int | None = None,
) -> LogicalRegion:
    """y[..., e] = weight[indices[...], e], as torch.nn.functional.embedding.

    Args:
        indices: any shape, integers in 0..num_embeddings - 1; another one is a ValueError when the step runs.
        num_embeddings, embedding_dim: shape of the parameter `<name>.weight`.
        name: of the operator.
        dtype: of the weight and the result.
        weight_init: first values; default normal, as torch's.
        padding_idx: a row without a gradient, counted from the end if it is negative; its first values are like those
            of the others.

    Returns:
        (..., embedding_dim).

    Raises:
        ValueError: the indices are not integers, an extent is not positive, `dtype` is not of floating point, or there
            is no row `padding_idx`.
    """
    shape = num_embeddings, embedding_dim
    return _look_up_rows(
        "embedding",
        "embedding",
        indices,
        shape,
        name,
        dtype,
        weight_init,
        padding_idx,
    )


def embedding_bag(
    indices: LogicalRegion,
    num_embeddings: int,
    embedding_dim: int,
    name: str | None = None,
    *,
    mode: str = "sum",
    dtype: str = "float32",
    weight_init: Init | None = None,
    padding_idx: int | None = None,
) -> LogicalRegion:
    """y[..., e] = sum, mean or maximum over l of weight[indices[..., l], e], as torch.nn.functional.embedding_bag.

    Args:
        indices: (..., bag), integers in 0..num_embeddings - 1; another one is a ValueError when the step runs.
        num_embeddings, embedding_dim: shape of the parameter `<name>.weight`.
        name: of the operator.
        mode: "sum", "mean" or "max"; a mean is the operator `<name>`, a sum, and `<name>.mean`, which divides it.
        dtype: of the weight and the result.
        weight_init: first values; default normal, as torch's.
        padding_idx: indices of this row are not in the bag: a bag of nothing else gives zeros without a gradient, as in
            torch. With it, and for "max", `<name>` makes a row for every index, which `<name>.bag` puts together.

    Returns:
        (..., embedding_dim).

    Raises:
        ValueError: the indices are not integers or a scalar, an extent is not positive, `dtype` is not of floating
            point, or there is no such mode or row `padding_idx`.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError(
            f"embedding_bag '{name or 'embedding_bag'}': mode is 'sum', 'mean' or 'max', not {mode!r}"
        )
    shape = num_embeddings, embedding_dim
    if mode == "max" or padding_idx is not None:
        checked("embedding_bag", name, indices, "indices", least=1, floating=False)
        words = _look_up_rows(
            "embedding_bag",
            "embedding",
            indices,
            shape,
            name,
            dtype,
            weight_init,
            padding_idx,
        )
        with indices.graph.following(words.name):
            return _bag_of_words(
                words, indices, None if padding_idx is None else int(padding_idx) % shape[0], mode
            )
    kind = "embedding_bag"
    total = _look_up_rows(kind, kind, indices, shape, name, dtype, weight_init)
    return total if mode == "sum" else multiply(total, 1 / indices.shape[-1], f"{total.name}.mean")


def _bag_of_words(
    words: LogicalRegion, indices: LogicalRegion, row: int | None, mode: str
) -> LogicalRegion:
    """Of the rows that were looked up, those that are in the bag."""
    name = words.name
    dim = words.ndim - 2
    if row is None:
        return max(words, dim, name=f"{name}.bag")
    is_word = unsqueeze(not_equal(indices, row, f"{name}.is_word"), indices.ndim, f"{name}.chosen")
    if mode == "max":
        words = where(is_word, words, -inf, f"{name}.words")
        words = max(words, dim, name=f"{name}.largest")
        return where(greater(words, -inf, f"{name}.has_words"), words, 0.0, f"{name}.bag")
    words = where(is_word, words, 0.0, f"{name}.words")
    if mode == "sum":
        return sum(words, dim, name=f"{name}.bag")
    total = sum(words, dim, name=f"{name}.sum")
    count = sum(cast(is_word, words.dtype, f"{name}.counted"), dim, name=f"{name}.count")
    return divide(total, maximum(count, 1.0, f"{name}.divisor"), f"{name}.bag")


def _look_up_rows(
    public: str,
    kind: str,
    indices: LogicalRegion,
    shape: tuple[int, int],
    name: str | None,
    dtype: str,
    weight_init: Init | None,
    padding: int | None = None,
) -> LogicalRegion:
    """Rows of `<name>.weight` of `shape`; of a bag, the last dimension of the indices, their sum.

    `public` is the function that messages name.
    """
    is_bag = kind == "embedding_bag"
    place = checked(public, name, indices, "indices", least=int(is_bag), floating=False)
    check_integers(place, indices, "indices")
    check_positive(place, num_embeddings=shape[0], embedding_dim=shape[1])
    if "float" not in dtype:
        raise ValueError(f"{place}: dtype is '{dtype}', a floating point dtype is needed")
    if padding is not None and not (is_integer(padding) and -shape[0] <= padding < shape[0]):
        raise ValueError(f"{place}: padding_idx is {padding!r}, the table has {shape[0]} rows")
    lead = distinct(
        indices.axes[: indices.ndim - is_bag], ("l", "v", "e") if is_bag else ("v", "e")
    )
    name = indices.graph.unique_name(name or public)
    init = normal() if weight_init is None else weight_init
    weight = indices.graph.parameter(f"{name}.weight", shape, init, dtype)
    kernel, gradient = (_sum_rows, _bag_gradient) if is_bag else (_look_up, _gradient)
    if padding is not None:
        gradient = _gradient_of_words.bind(padding=int(padding) % shape[0])
    return launch_first(
        name,
        f"{term((*lead, 'l') if is_bag else lead)}, v e -> {term((*lead, 'e'))}",
        [indices, weight],
        kernel=kernel.bind(count=shape[0]),
        backward=partial(_backward, gradient=gradient),
        flops=1 / shape[0],
    )


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


def position_embedding(
    x: LogicalRegion, name: str | None = None, *, weight_init: Init | None = None
) -> LogicalRegion:
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


@partial(Kernel, takes_half=True, float32_outputs=(), picks={1: (0,)}, cuda=gpu_tables.look_up)
def _look_up(ctx: Context, indices: Array, weight: Array, y: Array, *, count: int) -> None:
    add_rows(ctx, "embedding", indices[..., None], weight, y, count)


@partial(Kernel, is_compiled=True, accumulates=True, cuda=gpu_tables.look_up_gradient)
def _gradient(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    add_to_rows(ctx, indices[..., None], gy, gweight)


def _words(ctx: Context, indices: Array, padding: int) -> Array:
    """The indices with -1, which is in no tile, in the place of padding."""
    words = ctx.scratch("words", indices.shape, "int64")
    is_padding = ctx.scratch("padding", indices.shape, bool)
    ctx.xp.copyto(words, indices)
    ctx.xp.equal(indices, padding, out=is_padding)
    ctx.xp.copyto(words, -1, where=is_padding)
    return words


@partial(Kernel, takes_mixed=True, accumulates=True)
def _gradient_of_words_on_gpu(
    ctx: Context,
    indices: Array,
    gy: Array,
    gweight: Array,
    *,
    padding: int,
) -> None:
    gpu_tables.look_up_gradient(ctx, _words(ctx, indices, padding), gy, gweight)


@partial(Kernel, is_compiled=True, accumulates=True, cuda=_gradient_of_words_on_gpu)
def _gradient_of_words(
    ctx: Context,
    indices: Array,
    gy: Array,
    gweight: Array,
    *,
    padding: int,
) -> None:
    add_to_rows(ctx, _words(ctx, indices, padding)[..., None], gy, gweight)


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
        ctx.xp.take(
            weight, local, axis=0, out=row, mode="clip"
        )  # checked above; "raise" would buffer the result
        if hi - lo < count:
            is_elsewhere, is_behind = (
                ctx.scratch(slot, shape, bool) for slot in ("elsewhere", "behind")
            )
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
