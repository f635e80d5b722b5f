"""Cross entropy composed of operators, so that the classes may be split: a vocabulary on several devices.

Three operators read the scores: their maximum; the sum of exponentials with the scores of the right classes; and the
gradient. Each combines the partial results of its tiles, two numbers per row, never the scores. The loss in one
operator, which keeps the classes whole, is `softmax_cross_entropy`.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ops.building import check_number, checked, distinct, launch_all, launch_first, term, terms
from ops.cuda import rows as gpu_rows
from ops.elementwise.formula import formula
from ops.loss.by_class import check_weight, known_targets, reduce_rows, weights_of_rows
from ops.loss.pairwise import check_reduction
from ops.loss.softmax import check_columns, check_ignored, check_targets, log_softmax
from ops.shape.sections import slice
from ops.tiles import check_classes, contiguous, deliver, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def cross_entropy(
    y: LogicalRegion,
    t: LogicalRegion,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    name: str | None = None,
    *,
    reduction: str = "mean",
    weight: LogicalRegion | None = None,
    classes: int | None = None,
) -> LogicalRegion:
    """-log softmax(y)[t] of every row, reduced, as torch.nn.functional.cross_entropy with the classes last.

    With smoothing ε the target of a row is 1 - ε at its class plus ε / classes everywhere (Szegedy et al., CVPR 2016).

    Args:
        y: (..., columns), floating point: one row of scores per prediction. Every axis may be split.
        t: (...), integers: the right class of each row. A class out of range is a ValueError when the step runs. Or
            (..., columns), floating point: the probability of each class; it gets a gradient, too.
        ignore_index: rows with this target have no loss, no gradient and no part in the mean; None: every row counts.
        label_smoothing: ε in [0, 1].
        name: of the operator that strategies split; the loss is made by `<name>.loss`.
        reduction: "mean" of the rows that count (of none: NaN, as torch), "sum", or "none" for the loss of each row.
        weight: (classes,), floating point: of each class. The mean of integer targets is divided by the weights of the
            rows that count, that of probabilities by the number of rows, as torch does.
        classes: the columns behind so many are padding, with no part in the loss and no gradient. None: there is none.

    Returns:
        A scalar of the dtype of `y`, or with "none" (...).

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, there is no such reduction, ε is out of range, there are
            fewer columns than classes, or probabilities have an `ignore_index`.
    """
    of_classes = isinstance(t, LogicalRegion) and t.is_floating
    where = (
        check_probabilities(name, y, t, ignore_index)
        if of_classes
        else check_targets("cross_entropy", name, y, t)
    )
    check_reduction(where, reduction)
    ignore_index = check_ignored(where, ignore_index)
    label_smoothing = check_number(where, "label_smoothing", label_smoothing, "a number in [0, 1]")
    columns = check_columns(where, y, classes)
    check_weight(where, weight, columns)
    graph = y.graph
    name = y.graph.unique_name(name or "cross_entropy")
    with graph.following(name):
        y = slice(y, y.ndim - 1, 0, columns, f"{name}.classes")
        if of_classes:
            t = slice(t, t.ndim - 1, 0, columns, f"{name}.targets")
    if of_classes:
        return _of_probabilities(name, y, t, label_smoothing, weight, reduction)
    return _of_integers(name, y, t, ignore_index, label_smoothing, weight, reduction)


def check_probabilities(
    name: str | None, y: LogicalRegion, t: LogicalRegion, ignored: int | None
) -> str:
    """As `check_targets`, of the probabilities of classes."""
    where = checked("cross_entropy", name, y, "y", least=1)
    if t.shape != y.shape:
        raise ValueError(f"{where}: '{y.name}' is {y.shape} and '{t.name}' is {t.shape}")
    if ignored is not None:
        raise ValueError(
            f"{where}: ignore_index is {ignored}, but '{t.name}' has probabilities, no classes"
        )
    return where


def _of_integers(
    name: str,
    y: LogicalRegion,
    t: LogicalRegion,
    ignored: int | None,
    smoothing: float,
    weight: LogicalRegion | None,
    reduction: str,
) -> LogicalRegion:
    axes = distinct(y.axes)
    full = term(axes)
    row = term(axes[:-1])
    with y.graph.following(name):
        largest = formula(
            f"{name}.max",
            "x",
            {"x": (y, full)},
            row,
            "max",
        )
    inner = 0.0 if weight else float(smoothing)  # a smoothing by weights is added below
    sums = launch_all(
        name,
        f"{full}, {row}, {row} -> {row}, {row}",
        [y, largest, t],
        kernel=_sums.bind(classes=y.shape[-1], smoothing=inner, ignored=ignored),
        backward=partial(_backward, classes=y.shape[-1], smoothing=inner),
        flops=12,
    )
    values = {"total": (sums[0], row), "right": (sums[1], row)}
    with y.graph.following(name):
        if weight is None:
            slopes = {"total": "1 / total", "right": "-1"}
            return reduce_rows(
                name,
                values,
                "log(total) - right",
                slopes,
                t,
                row,
                ignored,
                None,
                reduction,
            )
        weights = weights_of_rows(name, weight, known_targets(name, t, ignored))
        values["weight"] = weights, row
        text = "weight * (log(total) - right)"
        slopes = {"total": "weight / total", "right": "-weight"}
        if smoothing:
            keep = repr(1.0 - smoothing)
            spread = repr(smoothing / y.shape[-1])
            values["smooth"] = _weighted_scores(name, y, largest, weight, full, row), row
            values["every"] = formula(f"{name}.every", "w", {"w": (weight, axes[-1])}, "."), "."
            text = f"{keep} * {text} + {spread} * (every * log(total) - smooth)"
            slopes = {
                "total": f"({keep} * weight + {spread} * every) / total",
                "right": f"-{keep} * weight",
            }
            slopes["smooth"] = f"-{spread}"
        return reduce_rows(name, values, text, slopes, t, row, ignored, weights, reduction)


def _weighted_scores(
    name: str,
    y: LogicalRegion,
    largest: LogicalRegion,
    weight: LogicalRegion,
    full: str,
    row: str,
) -> LogicalRegion:
    """The sum over the classes of weight (y - largest)."""
    inputs = {"y": (y, full), "largest": (largest, row), "w": (weight, full.split()[-1])}
    return formula(
        f"{name}.smooth",
        "w * (y - largest)",
        inputs,
        row,
        backward=_weighted_backward,
    )


def _weighted_backward(op: Operator, g: LogicalRegion) -> tuple[LogicalRegion, None, None]:
    """A maximum that all scores are taken from cancels, so it has no gradient."""
    (full, row, c), _ = terms(op)
    inputs = {"y": (op.inputs[0], full), "g": (g, row), "w": (op.inputs[2], c)}
    return formula(f"{op.name}.dx", "g * w + 0 * (y == y)", inputs, full), None, None


def _of_probabilities(
    name: str,
    y: LogicalRegion,
    t: LogicalRegion,
    smoothing: float,
    weight: LogicalRegion | None,
    reduction: str,
) -> LogicalRegion:
    """The sum over classes and rows of -t weight log softmax(y), t smoothed."""
    axes = distinct(y.axes)
    with y.graph.following(name):
        inputs = {"x": (log_softmax(y, name=f"{name}.log_softmax"), term(axes))}
    inputs["t"] = t, term(axes)
    if weight is not None:
        inputs["w"] = weight, axes[-1]
    numbers = {
        "keep": 1.0 - smoothing,
        "spread": smoothing / y.shape[-1],
        "count": float(prod(y.shape[:-1])) if reduction == "mean" else 1.0,
    }
    return formula(
        name,
        "-(keep * t + spread) * x / count" + " * w" * (weight is not None),
        inputs,
        term(axes[:-1]) if reduction == "none" else ".",
        backward=partial(_probabilities_backward, numbers=numbers),
        numbers=numbers,
        flops=6,
    )


def _probabilities_backward(
    op: Operator, g: LogicalRegion, *, numbers: dict[str, float]
) -> tuple[LogicalRegion | None, ...]:
    (full, *others), (out,) = terms(op)
    flowing = {"g": (g, out)} | ({"w": (op.inputs[2], others[1])} if len(others) > 1 else {})
    times = " * w" * (len(others) > 1)
    gradient = partial(formula, out=full, numbers=numbers)
    return (
        gradient(
            f"{op.name}.dx",
            f"-g * (keep * t + spread) / count{times}",
            {"t": (op.inputs[1], full), **flowing},
        ),
        gradient(
            f"{op.name}.dt",
            f"-g * keep * x / count{times}",
            {"x": (op.inputs[0], full), **flowing},
        ),
        *[None] * (len(others) - 1),
    )


def _backward(
    op: Operator, gtotal: LogicalRegion | None, gright: LogicalRegion | None, **options: float
) -> tuple[LogicalRegion, None, None]:
    """A maximum that all scores are taken from cancels, so it has no gradient."""
    assert gtotal is not None and gright is not None, "only the loss is public"
    (full, row, _), _ = terms(op)
    gx = launch_first(
        f"{op.name}.dx",
        f"{row}, {row}, {full}, {row}, {row} -> {full}",
        [gtotal, gright, *op.inputs],
        kernel=_gradient.bind(**options),
        flops=10,
        dtype=op.inputs[0].dtype,
    )
    return gx, None, None


# -- kernels -----------------------------------------------------------------------------------------------------------


def _check(ctx: Context, t: Array, classes: int, ignored: int | None) -> None:
    """ValueError for a class out of range, unless rows of it have no loss."""
    if ignored is not None:
        targets = ctx.scratch("known", t.shape, t.dtype)
        is_ignored = ctx.scratch("ignored", t.shape, bool)
        ctx.xp.copyto(targets, t)
        ctx.xp.copyto(targets, 0, where=ctx.xp.equal(t, ignored, out=is_ignored))
        t = targets
    check_classes("cross_entropy: the target", t, classes)


@partial(Kernel, is_compiled=True, cuda=gpu_rows.entropy_sums)
def _sums(
    ctx: Context, *arrays: Array, classes: int, smoothing: float, ignored: int | None
) -> None:
    y, largest, t, total, right = arrays
    from ops.cpu import rows as cpu_rows

    _check(ctx, t, classes, ignored)
    read = (
        rows(ctx, "y", y),
        contiguous(ctx, "largest", largest).reshape(-1),
        contiguous(ctx, "t", t).reshape(-1),
    )
    made = work_array(ctx, "total", total), work_array(ctx, "right", right)
    shares = y.dtype.type(1 - smoothing), y.dtype.type(smoothing / classes)
    row = ctx.scratch("row", y.shape[-1:], y.dtype)
    cpu_rows.entropy_sums(*read, ctx.rect(0).lo[-1], *shares, row, *(a.reshape(-1) for a in made))
    deliver(ctx, made[0], total)
    deliver(ctx, made[1], right)


@partial(Kernel, is_compiled=True, cuda=gpu_rows.entropy_gradient)
def _gradient(ctx: Context, *arrays: Array, classes: int, smoothing: float) -> None:
    gtotal, gright, y, largest, t, gy = arrays
    from ops.cpu import rows as cpu_rows

    flat = [
        contiguous(ctx, slot, a).reshape(-1) for slot, a in enumerate((gtotal, gright, largest, t))
    ]
    work = work_array(ctx, "gy", gy)
    first_class = ctx.rect(2).lo[-1]
    shares = y.dtype.type(1 - smoothing), y.dtype.type(smoothing / classes)
    matrix = work.reshape(-1, y.shape[-1])
    cpu_rows.entropy_gradient(
        flat[0],
        flat[1],
        rows(ctx, "y", y),
        flat[2],
        flat[3],
        first_class,
        *shares,
        matrix,
    )
    deliver(ctx, work, gy)
