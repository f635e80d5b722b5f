"""The product with a vocabulary and cross entropy in one operator, which makes the scores a part of the rows at a time.

Of the scores, (rows, classes), which for a language model are larger than all activations of a layer, it keeps one
number a row; the gradient makes them anew, which takes a third of the operations more. The classes stay whole: where a
vocabulary is on several devices, `linear` or `einsum` and `cross_entropy` have tiles of it.

Source: Hsu et al., "Liger kernel: efficient Triton kernels for LLM training", arXiv 2410.10989, 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ops.building import check_integers, checked, distinct, launch_all, term, terms
from ops.cuda import rows as gpu_rows
from ops.loss.by_class import known_targets, reduce_rows
from ops.loss.pairwise import check_reduction
from ops.loss.softmax import check_ignored
from ops.tiles import add_product, check_classes, contiguous, deliver, read_only, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

PART_BYTES = 1 << 26  # of scores that there are at once


def linear_cross_entropy(
    x: LogicalRegion,
    weight: LogicalRegion,
    t: LogicalRegion,
    ignore_index: int | None = None,
    name: str | None = None,
    *,
    reduction: str = "mean",
) -> LogicalRegion:
    """`cross_entropy(x weightᵀ, t)` without the scores.

    Args:
        x: (..., features), floating point.
        weight: (classes, features), of the same dtype: the table of an embedding, say.
        t: (...), integers: the right class of each row. A class out of range is a ValueError when the step runs.
        ignore_index: rows with this target have no loss, no gradient and no part in the mean; None: every row counts.
        name: of the operator; the loss is made by `<name>.loss`.
        reduction: "mean" of the rows that count (of none: NaN), "sum", or "none" for the loss of each row.

    Returns:
        A scalar, or with "none" (...). Every axis of the rows may be split; features and classes may not.

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, or there is no such reduction.
    """
    where = checked("linear_cross_entropy", name, x, least=1)
    checked("linear_cross_entropy", name, weight, "weight", ndim=(2,))
    check_integers(where, t, "t")
    check_reduction(where, reduction)
    if weight.shape[1] != x.shape[-1] or t.shape != x.shape[:-1] or weight.dtype != x.dtype:
        shapes = ", ".join(f"'{r.name}' is {r.shape} of {r.dtype}" for r in (x, weight, t))
        raise ValueError(f"{where}: {shapes}")
    ignored = check_ignored(where, ignore_index)
    name = x.graph.unique_name(name or "linear_cross_entropy")
    *lead, e = distinct(x.axes, ("v",))
    row = term(lead)
    with x.graph.following(name):
        targets = known_targets(name, t, ignored)
    losses, _ = launch_all(
        name,
        f"{term((*lead, f'^{e}'))}, ^v ^{e}, {row} -> {row}, {row}",
        [x, weight, targets],
        kernel=_forward,
        backward=_backward,
        flops=2,
    )
    with x.graph.following(name):
        return reduce_rows(
            name,
            {"rows_loss": (losses, row)},
            "rows_loss",
            {"rows_loss": "1"},
            t,
            row,
            ignored,
            None,
            reduction,
        )


def _backward(
    op: Operator, glosses: LogicalRegion | None, glevels: LogicalRegion | None
) -> tuple[LogicalRegion, LogicalRegion, None]:
    assert glosses is not None and glevels is None, "the levels are not public"
    (x_term, weight_term, row), _ = terms(op)
    gx, gweight = launch_all(
        f"{op.name}.dx",
        f"{x_term}, {weight_term}, {row}, {row}, {row} -> {x_term}, {weight_term}",
        [*op.inputs, op.outputs[1], glosses],
        kernel=_gradients,
        flops=6,
        dtype=[r.dtype for r in op.inputs[:2]],
    )
    return gx, gweight, None


def _parts(count: int, classes: int, itemsize: int) -> Iterator[slice]:
    """Rows whose scores take PART_BYTES."""
    step = max(PART_BYTES // max(classes * itemsize, 1), 1)
    for begin in range(0, count, step):
        yield slice(begin, min(begin + step, count))


def _scores(ctx: Context, x: Array, weight: Array, part: slice) -> Array:
    """Of a part of the rows, in scratch memory."""
    size = next(_parts(len(x), len(weight), x.dtype.itemsize)).stop, len(weight)
    scores = ctx.scratch("scores", size, x.dtype)[: part.stop - part.start]
    ctx.xp.matmul(x[part], weight.T, out=scores)
    return scores


@partial(Kernel, takes_mixed=True)
def _forward_on_gpu(
    ctx: Context,
    x: Array,
    weight: Array,
    t: Array,
    losses: Array,
    levels: Array,
) -> None:
    _write_losses(ctx, gpu_rows.losses_of_rows, x, weight, t, losses, levels)


@partial(Kernel, is_compiled=True, float32_outputs=(0, 1), narrows=True, cuda=_forward_on_gpu)
def _forward(ctx: Context, x: Array, weight: Array, t: Array, losses: Array, levels: Array) -> None:
    from ops.cpu import rows as cpu_rows

    def of_scores(ctx: Context, scores: Array, t: Array, loss: Array, level: Array) -> None:
        row = ctx.scratch("row", scores.shape[1:], scores.dtype)
        cpu_rows.cross_entropy(read_only(scores), t, row, level)
        right = ctx.xp.take_along_axis(scores, t[:, None], axis=1)[:, 0]
        ctx.xp.subtract(level, right, out=loss)

    check_classes("linear_cross_entropy: the target", t, len(weight))
    _write_losses(ctx, of_scores, x, weight, t, losses, levels)


def _write_losses(
    ctx: Context,
    of_scores: Callable[..., None],
    x: Array,
    weight: Array,
    t: Array,
    losses: Array,
    levels: Array,
) -> None:
    """`of_scores` makes losses and levels of a part of the rows."""
    x = rows(ctx, "x", x)
    t = contiguous(ctx, "t", t).reshape(-1)
    loss = work_array(ctx, "losses", losses)
    level = work_array(ctx, "levels", levels)
    for part in _parts(len(x), len(weight), x.dtype.itemsize):
        scores = _scores(ctx, x, weight, part)
        of_scores(ctx, scores, t[part], loss.reshape(-1)[part], level.reshape(-1)[part])
    deliver(ctx, loss, losses)
    deliver(ctx, level, levels)


@partial(Kernel, takes_mixed=True)
def _gradients_on_gpu(ctx: Context, *arrays: Array) -> None:
    _write_gradients(ctx, arrays, gpu_rows.score_gradients)


@partial(Kernel, is_compiled=True, cuda=_gradients_on_gpu)
def _gradients(ctx: Context, *arrays: Array) -> None:
    from ops.cpu import rows as cpu_rows

    def on_scores(
        ctx: Context,
        g: Array,
        minus: Array,
        scores: Array,
        level: Array,
        t: Array,
    ) -> None:
        one = scores.dtype.type(1)
        none = scores.dtype.type(0)
        read = g, read_only(minus), read_only(scores), level, t
        cpu_rows.entropy_gradient(*read, 0, one, none, scores)

    _write_gradients(ctx, arrays, on_scores)


def _write_gradients(
    ctx: Context, arrays: tuple[Array, ...], on_scores: Callable[..., None]
) -> None:
    """Both gradients; `on_scores` makes the gradient of scores in their place."""
    x, weight, t, levels, glosses, gx, gweight = arrays
    x = rows(ctx, "x", x)
    t, level, g = (
        contiguous(ctx, slot, a).reshape(-1)
        for slot, a in (("t", t), ("level", levels), ("g", glosses))
    )
    minus = ctx.scratch("minus", g.shape, g.dtype)
    ctx.xp.negative(g, out=minus)
    made = work_array(ctx, "gx", gx)
    summed = work_array(ctx, "gweight", gweight)
    flat = made.reshape(-1, x.shape[1])
    ctx.xp.copyto(summed, 0)
    for part in _parts(len(x), len(weight), x.dtype.itemsize):
        scores = _scores(ctx, x, weight, part)
        on_scores(ctx, g[part], minus[part], scores, level[part], t[part])
        ctx.xp.matmul(scores, weight, out=flat[part])
        add_product(ctx, scores.T, x[part], summed)
    deliver(ctx, made, gx)
    deliver(ctx, summed, gweight)
