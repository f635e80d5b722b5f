"""Cross entropy in one operator, which reads the scores once and keeps one number a row. The classes stay whole."""

from __future__ import annotations

from functools import partial
from math import prod

from ops.building import distinct, launch_first, term, terms
from ops.cuda import rows as gpu_rows
from ops.loss.cross_entropy import cross_entropy
from ops.loss.softmax import check_columns, check_targets
from ops.tiles import check_classes, contiguous, deliver, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def softmax_cross_entropy(
    y: LogicalRegion,
    t: LogicalRegion,
    name: str | None = None,
    *,
    classes: int | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    weight: LogicalRegion | None = None,
) -> LogicalRegion:
    """The mean over all rows of -log softmax(y)[t], as torch.nn.functional.cross_entropy with integer targets.

    Of the softmax it keeps one number of each row, the logarithm of the sum of exponentials; the gradient makes the
    probabilities anew. `taskflow.fuse` makes loss and gradient one operator, which reads the scores once.

    Args:
        y: (..., columns), floating point: one row of scores per prediction.
        t: (...), integers: the right class of each row. A class out of range is a ValueError when the step runs.
        name: of the operator.
        classes: the columns behind so many are padding, with no part in the loss and no gradient: a vocabulary whose
            size is a multiple of 64 makes for faster products. None: all columns are classes.
        ignore_index, label_smoothing, reduction, weight: as of `cross_entropy`, which makes the loss if one is given.

    Returns:
        A scalar of the dtype of `y`. Split over rows, each task holds the share of its rows in the mean of all.

    Raises:
        ValueError: the shapes do not agree, there are fewer columns than classes, a dtype is wrong, or as
            `cross_entropy`.
    """
    where = check_targets("softmax_cross_entropy", name, y, t)
    count = check_columns(where, y, classes)
    if ignore_index is not None or label_smoothing or reduction != "mean" or weight is not None:
        return cross_entropy(
            y,
            t,
            ignore_index,
            label_smoothing,
            name or "softmax_cross_entropy",
            reduction=reduction,
            weight=weight,
            classes=classes,
        )
    *lead, columns = distinct(y.axes)
    return launch_first(
        name or "softmax_cross_entropy",
        f"{term((*lead, f'^{columns}'))}, {term(lead)} -> ., {term(lead)}",
        [y, t],
        kernel=_cross_entropy.bind(classes=count, count=prod(t.shape)),
        backward=partial(_cross_entropy_backward, classes=count, count=prod(t.shape)),
        flops=12,
    )


@partial(Kernel, is_compiled=True, float32_outputs=(0, 1), cuda=gpu_rows.cross_entropy)
def _cross_entropy(
    ctx: Context,
    y: Array,
    t: Array,
    loss: Array,
    levels: Array,
    *,
    classes: int,
    count: int,
) -> None:
    from ops.cpu import rows as cpu_rows

    check_classes("softmax_cross_entropy: the target", t, classes)
    work = work_array(ctx, "levels", levels)
    total = cpu_rows.cross_entropy(
        rows(ctx, "y", y),
        contiguous(ctx, "t", t).reshape(-1),
        ctx.scratch("row", (classes,), y.dtype),
        work.reshape(-1),
    )
    loss[...] = total / count
    deliver(ctx, work, levels)


def _cross_entropy_backward(
    op: Operator, gloss: LogicalRegion | None, glevels: LogicalRegion | None, **options: int
) -> tuple[LogicalRegion, None]:
    if gloss is None or glevels is not None:
        raise ValueError(f"softmax_cross_entropy '{op.name}': only the loss can be differentiated")
    y, t = op.inputs
    (y_term, t_term), _ = terms(op)
    gradient = launch_first(
        f"{op.name}.dx",
        f"., {y_term}, {t_term}, {t_term} -> {y_term}",
        [gloss, y, op.outputs[1], t],
        kernel=_cross_entropy_gradient.bind(**options),
        flops=10,
        dtype=y.dtype,
    )
    return gradient, None


@partial(
    Kernel,
    is_compiled=True,
    float32_outputs=(0,),
    cuda=gpu_rows.cross_entropy_and_gradient,
)
def _both(ctx: Context, *arrays: Array, **options: int) -> None:
    y, t, gloss, loss, gy = arrays
    levels = ctx.scratch("levels of rows", t.shape, loss.dtype)
    _cross_entropy(ctx, y, t, loss, levels, **options)
    _cross_entropy_gradient(ctx, gloss, y, levels, t, gy, **options)


def _absorb(op: Operator, loss: Operator) -> Kernel | None:
    """See `taskflow.Kernel`."""
    is_ours = loss.kernel.function is _cross_entropy.function
    return _both.bind(**op.kernel.options) if is_ours else None


@partial(Kernel, is_compiled=True, cuda=gpu_rows.cross_entropy_gradient, absorb=_absorb)
def _cross_entropy_gradient(
    ctx: Context,
    gloss: Array,
    y: Array,
    levels: Array,
    t: Array,
    gy: Array,
    *,
    classes: int,
    count: int,
) -> None:
    from ops.cpu import rows as cpu_rows

    work = work_array(ctx, "gy", gy)
    cpu_rows.cross_entropy_gradient(
        gy.dtype.type(gloss / count),
        rows(ctx, "y", y),
        contiguous(ctx, "levels", levels).reshape(-1),
        contiguous(ctx, "t", t).reshape(-1),
        classes,
        work.reshape(-1, gy.shape[-1]),
    )
    deliver(ctx, work, gy)
