"""Cross entropy composed of operators, so that the classes may be split: a vocabulary on several devices.

Three operators read the scores: their maximum; the sum of exponentials with the scores of the right classes; and the
gradient. Each combines the partial results of its tiles, two numbers per row, never the scores. The loss in one
operator, which keeps the classes whole, is `softmax_cross_entropy`.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ops.building import distinct, launch_all, launch_first, term, terms
from ops.cuda import rows as gpu_rows
from ops.elementwise.formula import formula
from ops.loss.elementwise import check_reduction
from ops.loss.softmax import check_targets
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
) -> LogicalRegion:
    """-log softmax(y)[t] of every row, reduced, as torch.nn.functional.cross_entropy with the classes last.

    With smoothing ε the target of a row is 1 - ε at its class plus ε / classes everywhere (Szegedy et al., CVPR 2016).

    Args:
        y: (..., classes), floating point: one row of scores per prediction. Every axis may be split.
        t: (...), integers: the right class of each row. A class out of range is a ValueError when the step runs.
        ignore_index: rows with this target have no loss, no gradient and no part in the mean; None: every row counts.
        label_smoothing: ε in [0, 1].
        name: of the operator that strategies split; the loss is made by `<name>.loss`.
        reduction: "mean" of the rows that count (of none: NaN), "sum", or "none" for the loss of each row.

    Returns:
        A scalar of the dtype of `y`, or with "none" (...).

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, there is no such reduction, or ε is out of range.
    """
    where = check_targets("cross_entropy", name, y, t)
    check_reduction(where, reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{where}: label_smoothing is {label_smoothing}, it is in [0, 1]")
    graph, name = y.graph, y.graph.unique_name(name or "cross_entropy")
    axes = distinct(y.axes)
    full, row = term(axes), term(axes[:-1])
    with graph.following(name):
        largest = formula(f"{name}.max", "x", {"x": (y, full)}, row, "max")
    kernel = _sums.bind(classes=y.shape[-1], smoothing=label_smoothing, ignored=ignore_index)
    backward = partial(_backward, classes=y.shape[-1], smoothing=label_smoothing)
    pattern = f"{full}, {row}, {row} -> {row}, {row}"
    sums = launch_all(name, pattern, [y, largest, t], kernel=kernel, backward=backward, flops=12)
    with graph.following(name):
        return _reduce(name, t, sums, row, ignore_index, reduction)


def _reduce(
    name: str, t: LogicalRegion, sums: tuple[LogicalRegion, ...], row: str, ignored: int | None, reduction: str
) -> LogicalRegion:
    rows, is_mean = {"total": (sums[0], row), "right": (sums[1], row)}, reduction == "mean"
    numbers = {"count": float(prod(t.shape)) if is_mean else 1.0, "ignored": float(ignored or 0)}
    text, counted = "log(total) - right", "count"
    if ignored is not None:
        rows["t"] = t, row
        text = f"({text}) * (t != ignored)"
        if is_mean:
            kernel = _count.bind(ignored=ignored)
            count = launch_first(f"{name}.count", f"{row} -> .", [t], kernel=kernel, dtype=sums[0].dtype)
            rows["rows"], counted = (count, "."), "rows"
    out = row if reduction == "none" else "."
    backward = partial(_reduce_backward, numbers=numbers, names=tuple(rows), counted=counted)
    return formula(f"{name}.loss", f"({text}) / {counted}", rows, out, backward=backward, numbers=numbers, flops=10)


def _reduce_backward(
    op: Operator, g: LogicalRegion, *, numbers: dict[str, float], names: tuple[str, ...], counted: str
) -> tuple[LogicalRegion | None, ...]:
    """1 / total and -1 of the share of each row."""
    read, (out,) = terms(op)
    known = {name: (r, t) for name, r, t in zip(names, op.inputs, read, strict=True)}
    share = "g * (t != ignored)" if "t" in names else "g"
    row = read[0]

    def gradient(of: str, text: str, unread: str) -> LogicalRegion:
        inputs = {k: v for k, v in known.items() if k != unread} | {"g": (g, out)}
        return formula(f"{op.name}.d{of}", text, inputs, row, numbers=numbers)

    gtotal = gradient("total", f"{share} / ({counted} * total)", unread="right")
    gright = gradient("right", f"-{share} / {counted}", unread="total")
    return gtotal, gright, *[None] * (len(names) - 2)


@partial(Kernel, cuda=gpu_rows.count_rows)
def _count(ctx: Context, t: Array, count: Array, *, ignored: int) -> None:
    count[...] = ctx.xp.count_nonzero(t != ignored)


def _backward(
    op: Operator, gtotal: LogicalRegion | None, gright: LogicalRegion | None, **options: float
) -> tuple[LogicalRegion, None, None]:
    """A maximum that all scores are taken from cancels, so it has no gradient."""
    assert gtotal is not None and gright is not None, "only the loss is public"
    (full, row, _), _ = terms(op)
    y, largest, t = op.inputs
    pattern = f"{row}, {row}, {full}, {row}, {row} -> {full}"
    kernel = _gradient.bind(**options)
    gx = launch_first(f"{op.name}.dx", pattern, [gtotal, gright, y, largest, t], kernel=kernel, flops=10)
    return gx, None, None


# -- kernels -----------------------------------------------------------------------------------------------------------


def _check(ctx: Context, t: Array, classes: int, ignored: int | None) -> None:
    """ValueError for a class out of range, unless rows of it have no loss."""
    if ignored is not None:
        known, is_ignored = ctx.scratch("known", t.shape, t.dtype), ctx.scratch("ignored", t.shape, bool)
        ctx.xp.copyto(known, t)
        ctx.xp.copyto(known, 0, where=ctx.xp.equal(t, ignored, out=is_ignored))
        t = known
    check_classes("cross_entropy: the target", t, classes)


@partial(Kernel, is_compiled=True, cuda=gpu_rows.entropy_sums)
def _sums(ctx: Context, *arrays: Array, classes: int, smoothing: float, ignored: int | None) -> None:
    y, largest, t, total, right = arrays
    from ops.cpu import rows as cpu_rows

    _check(ctx, t, classes, ignored)
    read = rows(ctx, "y", y), contiguous(ctx, "largest", largest).reshape(-1), contiguous(ctx, "t", t).reshape(-1)
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

    flat = [contiguous(ctx, slot, a).reshape(-1) for slot, a in enumerate((gtotal, gright, largest, t))]
    work, first_class = work_array(ctx, "gy", gy), ctx.rect(2).lo[-1]
    shares = y.dtype.type(1 - smoothing), y.dtype.type(smoothing / classes)
    matrix = work.reshape(-1, y.shape[-1])
    cpu_rows.entropy_gradient(flat[0], flat[1], rows(ctx, "y", y), flat[2], flat[3], first_class, *shares, matrix)
    deliver(ctx, work, gy)
