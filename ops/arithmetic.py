"""Arithmetic with broadcasting, and its gradient, `sum_to`; every axis may be split.

The gradient of a broadcast operand sums over the dimensions that it lacks: partial sums where they are split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ops.build import check_region, distinct, first, term, terms
from ops.tiles import Array, Context
from taskflow import LogicalRegion, Operator


def add(x: LogicalRegion, y: LogicalRegion | float, name: str | None = None) -> LogicalRegion:
    """x + y; `y` may be a number. Shapes are aligned at the right, an extent of 1 is repeated.

    Raises:
        ValueError: the shapes do not agree, or an operand is not of floating point.
    """
    return _arithmetic("add", x, y, name, _add_backward)


def subtract(x: LogicalRegion, y: LogicalRegion | float, name: str | None = None) -> LogicalRegion:
    """x - y; broadcasting and errors as `add`."""
    return _arithmetic("subtract", x, y, name, _subtract_backward)


def multiply(x: LogicalRegion, y: LogicalRegion | float, name: str | None = None) -> LogicalRegion:
    """x y; broadcasting and errors as `add`."""
    return _arithmetic("multiply", x, y, name, _multiply_backward)


def _arithmetic(
    kind: str, x: LogicalRegion, y: LogicalRegion | float, name: str | None, backward: Callable[..., object]
) -> LogicalRegion:
    where = f"{kind} '{name or kind}'"
    check_region(where, x)
    if isinstance(y, int | float):
        axes = term(distinct(x.axes))
        kernel = partial(_with_number, kind=kind, number=float(y))
        backward = partial(_number_backward, factor=float(y) if kind == "multiply" else 1.0)
        pattern, inputs = f"{axes} -> {axes}", [x]
    else:
        check_region(where, y, "y")
        pattern, inputs, kernel = _broadcast_pattern(where, x, y), [x, y], partial(_combine, kind=kind)
    return first(x.graph.launch(name or kind, pattern, inputs, kernel=kernel, backward=backward, flops=1))


def _broadcast_pattern(where: str, x: LogicalRegion, y: LogicalRegion) -> str:
    """An axis is named by the first operand that has more than one point there."""
    ndim = max(x.ndim, y.ndim)
    names = []
    for k in range(-ndim, 0):
        extents = [r.shape[k] if -k <= r.ndim else 1 for r in (x, y)]
        if 1 not in extents and extents[0] != extents[1]:
            raise ValueError(
                f"{where}: '{x.name}' is {x.shape} and '{y.name}' is {y.shape}; aligned at the right, "
                f"{extents[0]} and {extents[1]} do not agree"
            )
        owner = x if -k <= x.ndim and (extents[0] > 1 or -k > y.ndim or extents[1] == 1) else y
        names.append(owner.axes[k])
    axes = distinct(names)
    extents = [max(r.shape[k] if -k <= r.ndim else 1 for r in (x, y)) for k in range(-ndim, 0)]
    read = [
        term([a if r.shape[k] == extents[k] else "1" for k, a in zip(range(-r.ndim, 0), axes[ndim - r.ndim :])])
        for r in (x, y)
    ]
    return f"{read[0]}, {read[1]} -> {term(axes)}"


def _combine(ctx: Context, x: Array, y: Array, out: Array, *, kind: str) -> None:
    getattr(ctx.xp, kind)(x, y, out=out)


def _with_number(ctx: Context, x: Array, out: Array, *, kind: str, number: float) -> None:
    getattr(ctx.xp, kind)(x, number, out=out)


def _number_backward(op: Operator, gy: LogicalRegion, *, factor: float) -> LogicalRegion:
    if factor == 1:
        return gy
    kernel = partial(_with_number, kind="multiply", number=factor)
    axes = terms(op)[1][0]
    return first(gy.graph.launch(f"{op.name}.dx", f"{axes} -> {axes}", [gy], kernel=kernel))


def _add_backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    return _summed(op, gy, 0), _summed(op, gy, 1)


def _subtract_backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    return _summed(op, gy, 0), _summed(op, gy, 1, -1.0)


def _multiply_backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    read, (out,) = terms(op)
    x, y = op.inputs

    def launch(what: str, other: LogicalRegion, other_term: str, own_term: str) -> LogicalRegion:
        axes = _summed_axes(out, own_term)
        kernel = partial(_product_summed, axes=axes)
        pattern = f"{out}, {other_term} -> {own_term}"
        return first(gy.graph.launch(f"{op.name}.{what}", pattern, [gy, other], kernel=kernel))

    return launch("dx", y, read[1], read[0]), launch("dy", x, read[0], read[1])


def _summed(op: Operator, gy: LogicalRegion, k: int, factor: float = 1.0) -> LogicalRegion:
    """The gradient of operand `k`: `factor` times the sum over the dimensions along which it was repeated."""
    own_term, out = terms(op)[0][k], terms(op)[1][0]
    if own_term == out and factor == 1:
        return gy
    kernel = partial(_sum, axes=_summed_axes(out, own_term), factor=factor)
    name = f"{op.name}.{'dx' if k == 0 else 'dy'}"
    return first(gy.graph.launch(name, f"{out} -> {own_term}", [gy], kernel=kernel, flops=1))


def _summed_axes(out: str, own: str) -> tuple[int, ...]:
    """The dimensions of `out` that `own` lacks or has one point of."""
    full, kept = out.split(), [] if own == "." else own.split()
    return tuple(k for k, axis in enumerate(full) if axis not in kept and axis != ".")


def _product_summed(ctx: Context, gy: Array, other: Array, out: Array, *, axes: tuple[int, ...]) -> None:
    if not axes:
        ctx.xp.multiply(gy, other, out=out)
        return
    product = ctx.scratch("product", gy.shape, gy.dtype)
    ctx.xp.multiply(gy, other, out=product)
    _sum(ctx, product, out, axes=axes)


def sum_to(x: LogicalRegion, shape: LogicalRegion | Sequence[int], name: str | None = None) -> LogicalRegion:
    """The sum over the dimensions along which `shape`, aligned at the right, would be repeated to that of `x`.

    It is the gradient of a broadcast. `x` itself when the shapes are equal.

    Args:
        x: floating point.
        shape: extents, or a region that has them; dimensions that it lacks are summed away, extents of 1 are kept.
        name: of the operator.

    Raises:
        ValueError: `shape` does not broadcast to the shape of `x`.
    """
    where = f"sum_to '{name or 'sum_to'}'"
    check_region(where, x)
    target = shape.shape if isinstance(shape, LogicalRegion) else tuple(shape)
    if len(target) > x.ndim or any(b not in (1, a) for a, b in zip(x.shape[x.ndim - len(target) :], target)):
        raise ValueError(f"{where}: the shape {target} does not broadcast to that of '{x.name}', {x.shape}")
    if target == x.shape:
        return x
    axes = distinct(x.axes)
    lead = x.ndim - len(target)
    kept = [a if x.shape[lead + k] == target[k] else "1" for k, a in enumerate(axes[lead:])]
    summed = tuple(k for k in range(x.ndim) if k < lead or kept[k - lead] == "1")
    return first(
        x.graph.launch(
            name or "sum_to",
            f"{term(axes)} -> {term(kept)}",
            [x],
            kernel=partial(_sum, axes=summed),
            backward=_sum_to_backward,
            flops=1,
        )
    )


def _sum(ctx: Context, x: Array, y: Array, *, axes: tuple[int, ...], factor: float = 1.0) -> None:
    lead = (None,) * (x.ndim - y.ndim)
    ctx.xp.sum(x, axis=axes, keepdims=True, out=y[(*lead, ...)])
    if factor != 1:
        ctx.xp.multiply(y, factor, out=y)


def _sum_to_backward(op: Operator, gy: LogicalRegion) -> LogicalRegion:
    (x_term,), (y_term,) = terms(op)
    pattern = f"{y_term} -> {x_term}"
    return first(gy.graph.launch(f"{op.name}.dx", pattern, [gy], kernel=_repeat, sizes=op.extents, flops=1))


def _repeat(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.copyto(y, x)
