"""Kernels that compute one expression in every element, with broadcasting; how they run, and how two become one.

What has a compiled loop is decided by the expression alone, never by how operators are fused: so a chain gives the
bits of its operators one by one. Functions without a fast compiled form (`BY_PASSES`) are never fused; additions,
products and the like give the same bits either way, so an expression of those alone runs by passes of NumPy, which
need no compilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ops.expressions.assign import BY_PASSES, DTYPES, run_loop
from ops.expressions.expression import Expression
from ops.expressions.passes import evaluate
from ops.expressions.program import OUT, result_of
from taskflow import Array, Context, Kernel, Operator, Pointwise

_COMPILED = {"maximum", "minimum", "exp", "tanh", "erf", "where"}


def pointwise(expression: Expression, names: Sequence[str], numbers: Mapping[str, float]) -> Kernel:
    """The kernel whose last array = the value of `expression` of the others, called `names`, and of `numbers`."""
    is_compiled = expression.functions & _COMPILED and not expression.functions & BY_PASSES
    return _kernel(
        _compiled_loop if is_compiled else _by_passes, expression, tuple(names), dict(numbers)
    )


def _kernel(
    kernel: Kernel, expression: Expression, names: tuple[str, ...], numbers: Mapping[str, float]
) -> Kernel:
    numbers = {name: float(number) for name, number in numbers.items()}
    bound = kernel.bind(expression=expression, names=names, numbers=numbers)
    return replace(bound, expression=Pointwise(expression.text, names, numbers), join=_join)


def _join(op: Operator, k: int, other: Operator, is_kept: bool) -> Kernel | None:
    """See `taskflow.Kernel`. Inputs are called `x0`, `x1`, ... and numbers `n0`, `n1`, ... in the kernel of both."""
    outer = op.kernel.expression
    inner = other.kernel.expression
    if outer is None or inner is None or is_kept:
        return None
    around = Expression.parse(outer.text)
    within = Expression.parse(inner.text)
    if (around.functions | within.functions) & BY_PASSES:
        return None
    count = len(inner.names)
    behind = len(outer.names) - k - 1
    inner_names = {name: f"x{k + i}" for i, name in enumerate(inner.names)}
    outer_names = {
        name: f"x{i if i < k else i + count - 1}" for i, name in enumerate(outer.names) if i != k
    }
    numbers: dict[str, float] = {}
    for part, names in ((inner, inner_names), (outer, outer_names)):
        for name, value in part.numbers.items():
            names[name] = f"n{len(numbers)}"
            numbers[names[name]] = value
    outer_names[outer.names[k]] = within.renamed(inner_names).text
    return _kernel(
        _compiled_loop,
        around.renamed(outer_names),
        tuple(f"x{i}" for i in range(k + count + behind)),
        numbers,
    )


def computes(op: Operator, value: Expression) -> bool:
    """Whether an operator computes this expression of `x` of its one input."""
    expression = op.kernel.expression
    if expression is None or len(expression.names) != 1:
        return False
    names = {expression.names[0]: "x"} | {
        name: repr(float(number)) for name, number in expression.numbers.items()
    }
    return Expression.parse(expression.text).renamed(names).steps == value.steps


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True)
def _by_passes(
    ctx: Context,
    *arrays: Array,
    expression: Expression,
    names: Sequence[str],
    numbers: Mapping[str, float],
) -> None:
    """On a GPU one kernel that is made of the expression (`ops.expressions.cuda_source`)."""
    evaluate(ctx, expression, {**numbers, **dict(zip(names, arrays))}, arrays[-1])


@partial(Kernel, is_compiled=True, is_captured=True, takes_mixed_on_cuda=True)
def _compiled_loop(
    ctx: Context,
    *arrays: Array,
    expression: Expression,
    names: Sequence[str],
    numbers: Mapping[str, float],
) -> None:
    if (
        ctx.is_cuda
        or any(a.dtype != arrays[-1].dtype for a in arrays)
        or arrays[-1].dtype.name not in DTYPES
    ):
        _by_passes(ctx, *arrays, expression=expression, names=names, numbers=numbers)
        return
    run_loop(ctx, result_of(expression), dict(zip((*names, OUT), arrays, strict=True)), numbers)
