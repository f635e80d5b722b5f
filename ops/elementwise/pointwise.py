"""Kernels that compute one expression in every element, with broadcasting; how they run, and how two become one.

What has a compiled loop is decided by the expression alone, never by how operators are fused: so a chain gives the
bits of its operators one by one. Functions without a fast compiled form (`_BY_NUMPY`) are never fused; additions,
products and the like give the same bits either way, so an expression of those alone runs by passes of NumPy, which
need no compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

from ops.cpu.tiles import Array, Context, contiguous, deliver, in_memory_order, work_array
from ops.elementwise.expressions import Expression
from taskflow import captured, compiled, fusible, on_cuda, takes_half

Kernel = Callable[..., None]
_BY_NUMPY = {"power", "expm1", "log", "log1p", "sin", "cos", "sign"}
_COMPILED = {"maximum", "minimum", "exp", "tanh", "erf", "where"}
_DECLARED = "pointwise"  # (text, names) on a kernel
_DTYPES = ("float32", "float64")


class _Parts(NamedTuple):
    """What a kernel computes; the bits of `expression` under other names are the same."""

    expression: Expression
    names: tuple[str, ...]
    numbers: Mapping[str, float]


def pointwise(expression: Expression, names: Sequence[str], numbers: Mapping[str, float]) -> Kernel:
    """The kernel whose last array = the value of `expression` of the others, called `names`, and of `numbers`."""
    is_compiled = expression.functions & _COMPILED and not expression.functions & _BY_NUMPY
    return partial(
        _compiled_loop if is_compiled else _by_passes, expression=expression, names=tuple(names), numbers=dict(numbers)
    )


def stands_for(text: str, *names: str) -> Callable[[Kernel], Kernel]:
    """Declare that a kernel written by hand computes an expression, bit for bit: as a member of a chain it is that."""

    def declare(kernel: Kernel) -> Kernel:
        setattr(kernel, _DECLARED, (text, names))
        return fusible(_join)(kernel)

    return declare


def _parts(kernel: Any) -> _Parts | None:
    if isinstance(kernel, partial) and kernel.func in (_by_passes, _compiled_loop):
        return _Parts(**kernel.keywords)
    text, names = getattr(kernel, _DECLARED, ("", ()))
    return _Parts(Expression.parse(text), names, {}) if text else None


def _join(kernel: Kernel, k: int, other: Kernel) -> Kernel | None:
    """See `taskflow.fusible`. Inputs are called `x0`, `x1`, ... and numbers `n0`, `n1`, ... in the kernel of both."""
    outer, inner = _parts(kernel), _parts(other)
    if outer is None or inner is None or (outer.expression.functions | inner.expression.functions) & _BY_NUMPY:
        return None
    count, behind = len(inner.names), len(outer.names) - k - 1
    within = {name: f"x{k + i}" for i, name in enumerate(inner.names)}
    around = {name: f"x{i if i < k else i + count - 1}" for i, name in enumerate(outer.names) if i != k}
    numbers: dict[str, float] = {}
    for parts, names in ((inner, within), (outer, around)):
        for name, value in parts.numbers.items():
            names[name] = f"n{len(numbers)}"
            numbers[names[name]] = value
    around[outer.names[k]] = inner.expression.renamed(within).text
    both = outer.expression.renamed(around)
    return partial(
        _compiled_loop, expression=both, names=tuple(f"x{i}" for i in range(k + count + behind)), numbers=numbers
    )


# -- kernels -----------------------------------------------------------------------------------------------------------


@takes_half
def _on_gpu(
    ctx: Context, *arrays: Array, expression: Expression, names: Sequence[str], numbers: Mapping[str, float]
) -> None:
    """One kernel that is made of the expression (`ops.elementwise.generated`)."""
    expression.evaluate(ctx, {**numbers, **dict(zip(names, arrays))}, arrays[-1])


@fusible(_join)
@on_cuda(_on_gpu)
@captured
def _by_passes(
    ctx: Context, *arrays: Array, expression: Expression, names: Sequence[str], numbers: Mapping[str, float]
) -> None:
    expression.evaluate(ctx, {**numbers, **dict(zip(names, arrays))}, arrays[-1])


@fusible(_join)
@compiled
@on_cuda(_on_gpu)
@captured
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
