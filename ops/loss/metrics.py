"""Metrics: what is fetched beside the loss and never differentiated. Every axis may be split.

The cross entropy as a metric is that of `softmax` or `cross_entropy`; the mean errors are those of `loss`.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ops.building import check_positive, checked, distinct, launch_first, term
from ops.cuda import rows as gpu_rows
from ops.cuda import tables as gpu_tables
from ops.elementwise.activation import exp
from ops.elementwise.broadcast import elementwise, launch
from ops.elementwise.formula import formula
from ops.loss.by_class import count_rows, known_targets
from ops.loss.elementwise import mse_loss
from ops.loss.softmax import check_columns, check_ignored, check_targets
from ops.shape.sections import slice
from ops.tiles import take_along
from taskflow import Array, Context, Kernel, LogicalRegion

_ROOT = elementwise("sqrt(x)", 4, x="where(z == 0, 0, 0.5 * g / (z + (z == 0)))")


def accuracy(
    y: LogicalRegion,
    t: LogicalRegion,
    name: str | None = None,
    *,
    classes: int | None = None,
    ignore_index: int | None = None,
) -> LogicalRegion:
    """The fraction of rows whose largest score (the first, if several) is that of the right class.

    Args:
        y: (..., columns), floating point; they may be split.
        t: (...), integers; a class out of range is a ValueError when the step runs.
        name: of the operator; the scores of the right classes are `<name>.right`, the fraction `<name>.mean`.
        classes: the columns behind so many are padding. None: all columns are classes.
        ignore_index: rows with this target do not count; None: every row counts.

    Returns:
        A scalar of the dtype of `y`, without gradient; NaN where no row counts.

    Raises:
        ValueError: the shapes do not agree, there are fewer columns than classes, or a dtype is wrong.
    """
    return _share_of_right("accuracy", y, t, 1, name, classes, ignore_index)


def top_k_accuracy(
    y: LogicalRegion,
    t: LogicalRegion,
    k: int = 5,
    name: str | None = None,
    *,
    classes: int | None = None,
    ignore_index: int | None = None,
) -> LogicalRegion:
    """The fraction of rows in which fewer than `k` scores stand before that of the right class.

    A score stands before another if it is larger, or equal and of an earlier class.

    Args, returns and raises as `accuracy`; `k` is positive.
    """
    check_positive(f"top_k_accuracy '{name or 'top_k_accuracy'}'", k=k)
    return _share_of_right("top_k_accuracy", y, t, k, name, classes, ignore_index)


def _share_of_right(
    kind: str,
    y: LogicalRegion,
    t: LogicalRegion,
    k: int,
    name: str | None,
    classes: int | None,
    ignored: int | None,
) -> LogicalRegion:
    where = check_targets(kind, name, y, t)
    columns = check_columns(where, y, classes)
    ignored = check_ignored(where, ignored)
    name = y.graph.unique_name(name or kind)
    axes = distinct(y.axes)
    full = term(axes)
    row = term(axes[:-1])
    with y.graph.following(name):
        y = slice(y, y.ndim - 1, 0, columns, f"{name}.classes")
        targets = known_targets(name, t, ignored)
        right = launch_first(
            f"{name}.right",
            f"{full}, {row} -> {row}",
            [y, targets],
            kernel=_right_scores.bind(what=f"{kind}: the target", classes=columns),
            flops=1,
        )
    before = launch_first(
        name,
        f"{full}, {row}, {row} -> {row}",
        [y, targets, right],
        kernel=_before,
        flops=3,
    )
    with y.graph.following(name):
        if ignored is None:
            kernel = _share_below.bind(k=k, count=prod(t.shape))
            return launch_first(
                f"{name}.mean",
                f"{row} -> .",
                [before],
                kernel=kernel,
                flops=1,
            )
        count = count_rows(name, t, row, ignored, before.dtype)
        return formula(
            f"{name}.mean",
            "(t != ignored) * (x < k) / count",
            {"x": (before, row), "t": (t, row), "count": (count, ".")},
            ".",
            numbers={"k": float(k), "ignored": float(ignored)},
        )


@partial(Kernel, cuda=gpu_tables.right_scores)
def _right_scores(
    ctx: Context,
    y: Array,
    t: Array,
    right: Array,
    *,
    what: str,
    classes: int,
) -> None:
    """Zero where the right class is not in this tile."""
    take_along(ctx, what, y, t[..., None], right[..., None], y.ndim - 1, classes)


@partial(Kernel, cuda=gpu_rows.count_before)
def _before(ctx: Context, y: Array, t: Array, right: Array, before: Array) -> None:
    """A row with NaN at its right class is as wrong as can be."""
    is_before, is_equal, is_earlier = (
        ctx.scratch(slot, y.shape, bool) for slot in ("before", "equal", "earlier")
    )
    ctx.xp.less_equal(y, right[..., None], out=is_before)
    ctx.xp.logical_not(is_before, out=is_before)
    ctx.xp.equal(y, right[..., None], out=is_equal)
    ctx.xp.less(ctx.xp.arange(ctx.rect(0).lo[-1], ctx.rect(0).hi[-1]), t[..., None], out=is_earlier)
    ctx.xp.logical_and(is_equal, is_earlier, out=is_equal)
    ctx.xp.logical_or(is_before, is_equal, out=is_before)
    ctx.xp.sum(is_before, axis=-1, out=before)


@partial(Kernel, cuda=gpu_rows.share_below)
def _share_below(ctx: Context, before: Array, share: Array, *, k: int, count: int) -> None:
    share[...] = ctx.xp.count_nonzero(before < k) / count


def root_mean_squared_error(
    x: LogicalRegion, y: LogicalRegion, name: str | None = None
) -> LogicalRegion:
    """The square root of the mean over all elements of (x - y)²; the gradient is 0 where it is 0, as of torch's norm.

    Args:
        x, y: equal shapes, floating point.
        name: of the mean, which strategies split; the root is `<name>.root`.

    Returns:
        A scalar.

    Raises:
        ValueError: the shapes differ, or a dtype is wrong.
    """
    square = mse_loss(x, y, name or "root_mean_squared_error")
    with x.graph.following(square.name):
        return launch("sqrt", _ROOT, {"x": square}, f"{square.name}.root")


def perplexity(loss: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """exp(loss): the perplexity of a language model whose mean cross entropy, in nats, is `loss`.

    Args:
        loss: a scalar, floating point.
        name: of the operator.

    Returns:
        A scalar.

    Raises:
        ValueError: `loss` is not a scalar, or of another dtype.
    """
    where = checked("perplexity", name, loss, "loss")
    if loss.shape != ():
        raise ValueError(f"{where}: '{loss.name}' has shape {loss.shape}, it is a scalar")
    return exp(loss, name or "perplexity")
