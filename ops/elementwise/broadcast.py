"""Elementwise operators with broadcasting: an expression and one for each gradient make an operator.

Every axis may be split. The gradient of a repeated operand sums over the dimensions that it lacks: partial sums where
they are split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from ops.building import as_float, check_region, distinct, is_number, launch_first, term, terms
from ops.elementwise.pointwise import pointwise
from ops.expressions.expression import Expression
from ops.expressions.passes import reduce
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

Operand = LogicalRegion | float
AnyOperator = TypeVar("AnyOperator", bound=Callable[..., LogicalRegion])


@dataclass(frozen=True)
class Elementwise:
    """What an elementwise operator computes.

    Attributes:
        value: of the operands, by name.
        gradients: operand -> its gradient, of the operands, `z` (the value) and `g` (the gradient of the value).
            It is linear in `g`. An operand that is missing here has no gradient.
        flops: of one element.
    """

    value: Expression
    gradients: Mapping[str, Expression]
    flops: float = 1.0


def elementwise(value: str, flops: float = 1.0, **gradients: str) -> Elementwise:
    """`elementwise("x * y", x="g * y", y="g * x")`."""
    parsed = {name: Expression.parse(text) for name, text in gradients.items()}
    return Elementwise(Expression.parse(value), parsed, flops)


def launch(
    kind: str,
    rule: Elementwise,
    operands: Mapping[str, Operand],
    name: str | None = None,
    dtype: str | None = None,
    any_dtype: Sequence[str] = (),
) -> LogicalRegion:
    """Launch `rule` on its operands, regions or numbers by name.

    Raises:
        TypeError: no operand is a region, or one is neither region nor number.
        ValueError: the shapes do not broadcast, or an operand outside of `any_dtype` is not of floating point.
    """
    where = f"{kind} '{name or kind}'"
    numbers = {k: as_float(n) for k, n in operands.items() if is_number(n)}
    regions: dict[str, Any] = {k: r for k, r in operands.items() if k not in numbers}
    if not regions:
        raise TypeError(f"{where}: all operands are numbers, at least one region is needed")
    for role, region in regions.items():
        check_region(where, region, role, floating=role not in any_dtype)
    kernel = pointwise(rule.value, tuple(regions), numbers)
    inputs = list(regions.values())
    return launch_first(
        name or kind,
        broadcast_pattern(where, inputs),
        inputs,
        kernel=kernel,
        backward=partial(_backward, rule=rule, names=tuple(regions), numbers=numbers)
        if rule.gradients
        else None,
        flops=rule.flops,
        dtype=dtype,
    )


class OfOne(Protocol):
    """An elementwise operator of one region."""

    __name__: str

    def __call__(self, x: LogicalRegion, name: str | None = None) -> LogicalRegion: ...


class OfTwo(Protocol):
    """An elementwise operator of two operands, of which one may be a number."""

    def __call__(self, x: Operand, y: Operand, name: str | None = None) -> LogicalRegion: ...


def of_one(kind: str, doc: str, rule: Elementwise) -> OfOne:
    """The public function `kind` of one region; every axis may be split."""

    def operator(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
        return launch(kind, rule, {"x": x}, name)

    return _public(
        operator, kind, f"{doc} `x`: any shape, floating point; ValueError for another dtype."
    )


def of_two(
    kind: str, doc: str, rule: Elementwise, dtype: str | None = None, any_dtype: Sequence[str] = ()
) -> OfTwo:
    """The public function `kind` of two operands; `dtype` and `any_dtype` as for `launch`."""

    def operator(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
        return launch(
            kind,
            rule,
            {"x": x, "y": y},
            name,
            dtype,
            any_dtype,
        )

    return _public(operator, kind, doc)


def _public(operator: AnyOperator, kind: str, doc: str) -> AnyOperator:
    """The function as if it were written with this name and docstring in `ops`."""
    operator.__name__ = operator.__qualname__ = kind
    operator.__module__ = "ops"
    operator.__doc__ = doc
    return operator


def broadcast_pattern(where: str, regions: Sequence[LogicalRegion]) -> str:
    """Shapes are aligned at the right; an axis is named by the first operand that has most points there."""
    names = []
    extents = []
    for k in range(-max(r.ndim for r in regions), 0):
        owner = _owner(where, regions, k)
        names.append(owner.axes[k])
        extents.append(owner.shape[k])
    axes = distinct(names)
    read = [_term_of(r, axes, extents) for r in regions]
    return f"{', '.join(read)} -> {term(axes)}"


def _owner(where: str, regions: Sequence[LogicalRegion], k: int) -> LogicalRegion:
    """The first operand that has most points in dimension `k`, counted from the right."""
    having = [r for r in regions if -k <= r.ndim]
    differing = dict.fromkeys(r.shape[k] for r in having if r.shape[k] > 1)
    if len(differing) > 1:
        raise ValueError(_disagreement(where, regions, list(differing)))
    return max(having, key=lambda r: r.shape[k])


def _term_of(region: LogicalRegion, axes: Sequence[str], extents: Sequence[int]) -> str:
    """The last axes; "1" where the region has one point for all."""
    first = len(axes) - region.ndim
    dims = zip(axes[first:], extents[first:], region.shape, strict=True)
    return term([axis if n == extent else "1" for axis, extent, n in dims])


def _disagreement(where: str, regions: Sequence[LogicalRegion], extents: Sequence[int]) -> str:
    shapes = [f"'{r.name}' is {r.shape}" for r in regions]
    differing = " and ".join(map(str, extents))
    return f"{where}: {', '.join(shapes[:-1])} and {shapes[-1]}; aligned at the right, {differing} do not agree"


def _backward(
    op: Operator,
    g: LogicalRegion,
    *,
    rule: Elementwise,
    names: Sequence[str],
    numbers: Mapping[str, float],
) -> tuple[LogicalRegion | None, ...]:
    """The gradients of the operands, each summed over the dimensions along which it was repeated."""
    read, (out,) = terms(op)
    args = {"g": (g, out), "z": (op.outputs[0], out)}
    args |= {
        name: (region, dims) for name, region, dims in zip(names, op.inputs, read, strict=True)
    }
    gradients: list[LogicalRegion | None] = []
    for name, dims in zip(names, read, strict=True):
        expression = rule.gradients.get(name)
        if expression is None or (expression.text == "g" and dims == out):
            gradients.append(g if expression else None)
            continue
        needed = [n for n in ("g", "z", *names) if n in expression.names]
        axes = summed_axes(out, dims)
        summed = _evaluate_summed.bind(
            expression=expression, names=tuple(needed), numbers=numbers, axes=axes
        )
        kernel = summed if axes else pointwise(expression, needed, numbers)
        pattern = f"{', '.join(args[n][1] for n in needed)} -> {dims}"
        inputs = [args[n][0] for n in needed]
        gradients.append(
            launch_first(
                f"{op.name}.d{name}",
                pattern,
                inputs,
                kernel=kernel,
                flops=rule.flops,
            )
        )
    return tuple(gradients)


def summed_axes(out: str, dims: str) -> tuple[int, ...]:
    """The dimensions of `out` that `dims` lacks or has one point of."""
    full = out.split()
    kept = [] if dims == "." else dims.split()
    return tuple(k for k, axis in enumerate(full) if axis not in kept and axis != ".")


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True)
def _evaluate_summed(
    ctx: Context,
    *arrays: Array,
    expression: Expression,
    names: Sequence[str],
    numbers: Mapping[str, float],
    axes: tuple[int, ...],
) -> None:
    """The last array = the sum over `axes` of `expression` of the others, called `names`, and of `numbers`."""
    shape = ctx.xp.broadcast_shapes(*(a.shape for a in arrays[:-1]))
    reduce(
        ctx,
        expression,
        {**numbers, **dict(zip(names, arrays))},
        shape,
        arrays[-1],
        axes,
    )


@partial(Kernel, is_captured=True)
def sum_over(ctx: Context, x: Array, y: Array, *, axes: tuple[int, ...]) -> None:
    """`y` = the sum of `x` over `axes`, of which `y` has one point or lacks leading ones."""
    lead = (None,) * (x.ndim - y.ndim)
    ctx.xp.sum(x, axis=axes, keepdims=True, out=y[(*lead, ...)])
