"""What losses of classes share: the weights of classes, rows that do not count, and the reduction of rows to a loss.

A row that does not count is left out by a choice, never by a product: what its scores are, NaN too, is without effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from ops.building import check_region, distinct, launch_first, term, terms
from ops.cuda import rows as gpu_rows
from ops.cuda import tables as gpu_tables
from ops.elementwise.formula import Term, formula
from ops.expressions.expression import Expression
from ops.tiles import check_classes
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def check_weight(where: str, weight: LogicalRegion | None, classes: int) -> None:
    """ValueError unless `weight` has one number of floating point for each class."""
    if weight is not None:
        check_region(where, weight, "weight")
        if weight.shape != (classes,):
            raise ValueError(
                f"{where}: weight '{weight.name}' is {weight.shape}, there are {classes} classes"
            )


def known_targets(name: str, t: LogicalRegion, ignored: int | None) -> LogicalRegion:
    """`t` with 0 in the place of `ignored`, which need not be a class."""
    if ignored is None:
        return t
    row = term(distinct(t.axes))
    return launch_first(
        f"{name}.known",
        f"{row} -> {row}",
        [t],
        kernel=_without_ignored.bind(ignored=ignored),
        flops=1,
    )


def weights_of_rows(name: str, weight: LogicalRegion, t: LogicalRegion) -> LogicalRegion:
    """weight[t], of targets that are classes."""
    *lead, v = distinct((*t.axes, "v"))
    return launch_first(
        f"{name}.weights",
        f"^{v}, {term(lead)} -> {term(lead)}",
        [weight, t],
        kernel=_weights_of_rows.bind(what=f"{name.partition('.')[0]}: the target"),
        dtype=weight.dtype,
        flops=1,
    )


def count_rows(
    name: str, t: LogicalRegion, row: str, ignored: int | None, dtype: str
) -> LogicalRegion:
    """`<name>.count`: how many rows have another target than `ignored`."""
    kernel = _count_rows.bind(ignored=ignored)
    return launch_first(
        f"{name}.count",
        f"{row} -> .",
        [t],
        kernel=kernel,
        dtype=dtype,
    )


def reduce_rows(
    name: str,
    values: Mapping[str, Term],
    text: str,
    slopes: Mapping[str, str],
    t: LogicalRegion,
    row: str,
    ignored: int | None,
    weights: LogicalRegion | None,
    reduction: str,
) -> LogicalRegion:
    """`<name>.loss`: the losses of rows, the expression `text` of `values`, reduced.

    Args:
        name: of the main operator.
        values: name in the expression -> region and term.
        text: of the loss of a row.
        slopes: name of a value -> the expression of its slope, of the same names.
        t: the targets.
        row: their term.
        ignored: rows of this target do not count.
        weights: of the rows; they are in `text` already. A mean is divided by their sum.
        reduction: "mean", "sum" or "none".
    """
    inputs = dict(values)
    is_mean = reduction == "mean"
    numbers = {"count": float(prod(t.shape)) if is_mean else 1.0, "ignored": float(ignored or 0)}
    chosen = "({})"
    counted = "count"
    if ignored is not None:
        inputs["t"] = (t, row)
        chosen = "where(t != ignored, {}, 0)"
    if is_mean and (ignored is not None or weights is not None):
        inputs["rows"] = (_count(name, t, row, ignored, weights, inputs, numbers), ".")
        counted = "rows"
    out = row if reduction == "none" else "."
    gradients = {
        value: chosen.format(f"g * ({slope}) / {counted}") for value, slope in slopes.items()
    }
    backward = partial(_backward, numbers=numbers, names=tuple(inputs), slopes=gradients)
    text = f"{chosen.format(text)} / {counted}"
    return formula(
        f"{name}.loss",
        text,
        inputs,
        out,
        backward=backward,
        numbers=numbers,
        flops=10,
    )


def _count(
    name: str,
    t: LogicalRegion,
    row: str,
    ignored: int | None,
    weights: LogicalRegion | None,
    values: Mapping[str, Term],
    numbers: Mapping[str, float],
) -> LogicalRegion:
    """How many rows count, or the sum of their weights."""
    if weights is None:
        return count_rows(name, t, row, ignored, next(iter(values.values()))[0].dtype)
    inputs: dict[str, Term] = {"weight": (weights, row)}
    text = "weight"
    if "t" in values:
        inputs["t"] = values["t"]
        text = "where(t != ignored, weight, 0)"
    return formula(
        f"{name}.count",
        text,
        inputs,
        ".",
        numbers=numbers,
    )


def _backward(
    op: Operator,
    g: LogicalRegion,
    *,
    numbers: Mapping[str, float],
    names: tuple[str, ...],
    slopes: Mapping[str, str],
) -> tuple[LogicalRegion | None, ...]:
    values = dict(zip(names, zip(op.inputs, terms(op)[0], strict=True), strict=True))
    flowing = values | {"g": (g, terms(op)[1][0])}

    def gradient(name: str, text: str) -> LogicalRegion:
        """The value itself comes first, which gives the extents."""
        used = {k: v for k, v in flowing.items() if k in Expression.parse(text).names}
        return formula(
            f"{op.name}.d{name}",
            text,
            {name: values[name], **used},
            values[name][1],
            numbers=numbers,
        )

    return tuple(gradient(name, slopes[name]) if name in slopes else None for name in names)


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, cuda=gpu_rows.count_rows)
def _count_rows(ctx: Context, t: Array, count: Array, *, ignored: int) -> None:
    count[...] = ctx.xp.count_nonzero(t != ignored)


@Kernel
def _without_ignored(ctx: Context, t: Array, targets: Array, *, ignored: int) -> None:
    is_ignored = ctx.scratch("ignored", t.shape, bool)
    ctx.xp.equal(t, ignored, out=is_ignored)
    ctx.xp.copyto(targets, t)
    ctx.xp.copyto(targets, 0, where=is_ignored)


@Kernel
def _weights_on_gpu(ctx: Context, weight: Array, t: Array, of_rows: Array, *, what: str) -> None:
    """NaN for what is no class."""
    gpu_tables.gather_along(ctx, weight, t, of_rows, 0, len(weight))


@partial(Kernel, cuda=_weights_on_gpu)
def _weights_of_rows(ctx: Context, weight: Array, t: Array, of_rows: Array, *, what: str) -> None:
    check_classes(what, t, len(weight))
    ctx.xp.take(
        weight, t, axis=0, out=of_rows, mode="clip"
    )  # checked above; "raise" would buffer the result
