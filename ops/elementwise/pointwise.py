"""Kernels that compute one expression in every element, with broadcasting; how they run, and how two become one.

What has a compiled loop is decided by the expression alone, never by how operators are fused: so a chain gives the
bits of its operators one by one. Functions without a fast compiled form (`_BY_NUMPY`) are never fused; additions,
products and the like give the same bits either way, so an expression of those alone runs by passes of NumPy, which
need no compilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod

from ops.cpu.tiles import Array, Context, contiguous, deliver, in_memory_order, work_array
from ops.elementwise.expressions import Expression
from taskflow import Kernel, Pointwise

_BY_NUMPY = {"power", "expm1", "log", "log1p", "sin", "cos", "sign"}
_COMPILED = {"maximum", "minimum", "exp", "tanh", "erf", "where"}
_DTYPES = ("float32", "float64")


def pointwise(expression: Expression, names: Sequence[str], numbers: Mapping[str, float]) -> Kernel:
    """The kernel whose last array = the value of `expression` of the others, called `names`, and of `numbers`."""
    is_compiled = expression.functions & _COMPILED and not expression.functions & _BY_NUMPY
    return _kernel(_compiled_loop if is_compiled else _by_passes, expression, tuple(names), dict(numbers))


def stands_for(text: str, *names: str) -> Pointwise:
    """The `expression` of a kernel written by hand, bit for bit: as a member of a chain it is that."""
    return Pointwise(text, names, join=_join)


def _kernel(kernel: Kernel, expression: Expression, names: tuple[str, ...], numbers: Mapping[str, float]) -> Kernel:
    bound = kernel.bind(expression=expression, names=names, numbers=numbers)
    return replace(bound, expression=Pointwise(expression.text, names, numbers, _join))


def _join(outer: Pointwise, k: int, inner: Pointwise) -> Kernel | None:
    """See `taskflow.Pointwise`. Inputs are called `x0`, `x1`, ... and numbers `n0`, `n1`, ... in the kernel of both."""
    around, within = Expression.parse(outer.text), Expression.parse(inner.text)
    if (around.functions | within.functions) & _BY_NUMPY:
        return None
    count, behind = len(inner.names), len(outer.names) - k - 1
    inner_names = {name: f"x{k + i}" for i, name in enumerate(inner.names)}
    outer_names = {name: f"x{i if i < k else i + count - 1}" for i, name in enumerate(outer.names) if i != k}
    numbers: dict[str, float] = {}
    for part, names in ((inner, inner_names), (outer, outer_names)):
        for name, value in part.numbers.items():
            names[name] = f"n{len(numbers)}"
            numbers[names[name]] = value
    outer_names[outer.names[k]] = within.renamed(inner_names).text
    return _kernel(
        _compiled_loop, around.renamed(outer_names), tuple(f"x{i}" for i in range(k + count + behind)), numbers
    )


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, takes_half=True)
def _on_gpu(
    ctx: Context, *arrays: Array, expression: Expression, names: Sequence[str], numbers: Mapping[str, float]
) -> None:
    """One kernel that is made of the expression (`ops.elementwise.generated`)."""
    expression.evaluate(ctx, {**numbers, **dict(zip(names, arrays))}, arrays[-1])


@partial(Kernel, is_captured=True, cuda=_on_gpu)
def _by_passes(
    ctx: Context, *arrays: Array, expression: Expression, names: Sequence[str], numbers: Mapping[str, float]
) -> None:
    expression.evaluate(ctx, {**numbers, **dict(zip(names, arrays))}, arrays[-1])


@partial(Kernel, is_compiled=True, is_captured=True, cuda=_on_gpu)
def _compiled_loop(
    ctx: Context, *arrays: Array, expression: Expression, names: Sequence[str], numbers: Mapping[str, float]
) -> None:
    from ops.elementwise.generate import compiled_loop

    if any(a.dtype != arrays[-1].dtype for a in arrays) or arrays[-1].dtype.name not in _DTYPES:
        _by_passes(ctx, *arrays, expression=expression, names=names, numbers=numbers)
        return
    out, *inputs = in_memory_order(arrays[-1], *(_padded(a, arrays[-1].ndim) for a in arrays[:-1]))
    work = work_array(ctx, "work", out)
    columns, layouts = _layouts(out.shape, tuple(a.shape for a in inputs))
    seen = [_seen(ctx, slot, a, out.shape, layouts[slot], columns) for slot, a in enumerate(inputs)]
    loop = compiled_loop(expression, names, tuple(numbers), layouts)
    ctx.call(loop, *seen, *map(out.dtype.type, numbers.values()), work.reshape(-1, columns))
    deliver(ctx, work, out)


def _padded(a: Array, ndim: int) -> Array:
    return a[(*(None,) * (ndim - a.ndim), ...)]


@cache
def _layouts(shape: Sequence[int], inputs: tuple[Sequence[int], ...]) -> tuple[int, tuple[str, ...]]:
    """How many columns a tile is seen with, and how each input lies: as a matrix, a row, a column or one number.

    The tile is cut into rows and columns where most inputs need no copy.
    """
    found = [[_layout(shape, own, cut) for own in inputs] for cut in range(len(shape) + 1)]
    best = min(range(len(found)), key=lambda cut: found[cut].count(None))
    return prod(shape[best:]), tuple(layout or "matrix" for layout in found[best])


def _layout(shape: Sequence[int], own: Sequence[int], cut: int) -> str | None:
    """None: a copy with all elements is needed."""
    lacks = [n != m for n, m in zip(shape, own, strict=True)]
    has = [n == m != 1 for n, m in zip(shape, own, strict=True)]
    if not any(lacks):
        return "matrix"
    if not any(has):
        return "number"
    if not any(has[:cut]) and not any(lacks[cut:]):
        return "row"
    return "column" if not any(has[cut:]) and not any(lacks[:cut]) else None


def _seen(ctx: Context, slot: int, a: Array, shape: Sequence[int], layout: str, columns: int) -> Array:
    if layout != "matrix":
        return contiguous(ctx, slot, a).reshape(-1)
    if a.shape != shape:
        whole = ctx.scratch(slot, shape, a.dtype)
        ctx.xp.copyto(whole, a)
        a = whole
    return contiguous(ctx, slot, a).reshape(-1, columns)
