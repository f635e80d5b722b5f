"""Kernels of programs (`ops.expressions.program`): a pass is a compiled loop on a CPU, a CUDA kernel on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ops.expressions import cuda_source, passes
from ops.expressions.expression import Expression
from ops.expressions.program import OUT, Pass, Program
from ops.tiles import deliver, last, packed, read_only, work_array
from taskflow import Array, Context, Kernel, Operator, Pointwise

DTYPES = ("float32", "float64")
_DTYPES = frozenset(map(np.dtype, DTYPES))
BY_PASSES = {
    "power",
    "fmod",
    "expm1",
    "log",
    "log1p",
    "sin",
    "cos",
    "sign",
}  # have no fast compiled form

# -- kernels -----------------------------------------------------------------------------------------------------------


def _together(
    ctx: Context, points: Sequence[Sequence[Array]], *, program: Program
) -> Callable[[], object]:
    """One launch of `assign_together` for many points."""
    named = [_views(program.arguments, point) for point in points]
    return cuda_source.run_together(
        ctx, program.passes[0], named, dict(program.numbers), _cells(ctx, program)
    )


@partial(Kernel, takes_mixed=True, together=_together)
def run_on_gpu(ctx: Context, *arrays: Array, program: Program) -> None:
    """All passes on these arrays, in place."""
    views = _views(program.arguments, arrays, program.along)
    cells = _cells(ctx, program)
    for one in program.passes:
        cuda_source.run(ctx, one, views, dict(program.numbers), cells)


_SEVERAL = replace(run_on_gpu, together=None)


def _join_behind(op: Operator, k: int, other: Operator, is_kept: bool) -> Kernel | None:
    """An expression of the one result of a program, at the end of that; see `taskflow.Kernel`."""
    program = other.kernel.options.get("program")
    outer = op.kernel.expression
    if (
        not isinstance(program, Program)
        or outer is None
        or is_kept
        or {r.shape for r in op.args} != {op.args[0].shape}
    ):
        return None
    expression = Expression.parse(outer.text)
    result = program.arguments[-1]
    if len(program.passes) > 1 or result not in program.passes[0].maps - program.passes[0].reads:
        return None
    if expression.functions & BY_PASSES or (
        program.contracts and "multiply" in expression.functions
    ):
        return None  # a product and a sum that were apart would be rounded once
    names = {name: result if i == k else f"x{i}_{result}" for i, name in enumerate(outer.names)}
    more = [names[name] for name in outer.names]
    numbers = {f"{name}_{result}": v for name, v in outer.numbers.items()}
    value = expression.renamed(names | {name: f"{name}_{result}" for name in outer.numbers})
    return other.kernel.bind(
        program=replace(
            program,
            text=f"{program.text}; {OUT}_{result} = {value.text}",
            arguments=(*more[:k], *program.arguments[:-1], *more[k + 1 :], f"{OUT}_{result}"),
            numbers=(*program.numbers, *numbers.items()),
        )
    )


def _join_before(op: Operator, k: int, other: Operator, is_kept: bool) -> Kernel | None:
    """An expression in the place of an array that a program of one pass only reads; see `taskflow.Kernel`."""
    program = op.kernel.options.get("program")
    inner = other.kernel.expression or _as_expression(other.kernel)
    if not isinstance(program, Program) or inner is None or is_kept:
        return None
    name = program.arguments[k]
    if len(program.passes) > 1 or " " in name or name in program.passes[0].targets:
        return None
    if program.along is not None and any(
        r.ndim not in (0, op.inputs[k].ndim) for r in other.inputs
    ):
        return None
    expression = Expression.parse(inner.text)
    if expression.functions & BY_PASSES or (
        program.contracts and "multiply" in expression.functions
    ):
        return None
    if not expression.steps:
        return op.kernel  # of another dtype: loops convert what they read
    return op.kernel.bind(program=_computed_first(program, k, inner))


def _computed_first(program: Program, k: int, inner: Pointwise) -> Program:
    """The program with the operands of an expression in the place of argument `k`, which it computes first."""
    name = program.arguments[k]
    names = {operand: f"{name}_{operand}" for operand in (*inner.names, *inner.numbers)}
    value = Expression.parse(inner.text).renamed(names)
    return replace(
        program,
        text=f"{name} = {value.text}; {program.text}",
        arguments=(
            *program.arguments[:k],
            *(names[operand] for operand in inner.names),
            *program.arguments[k + 1 :],
        ),
        numbers=(
            *program.numbers,
            *((names[operand], number) for operand, number in inner.numbers.items()),
        ),
    )


def _as_expression(kernel: Kernel) -> Pointwise | None:
    """What a program is that sets its last array once in every element, and nothing else."""
    program = kernel.options.get("program")
    if (
        not isinstance(program, Program)
        or len(program.passes) > 1
        or program.each_step
        or program.contracts
    ):
        return None
    *read, result = program.arguments
    one = program.passes[0]
    if (
        one.targets != {result}
        or result in one.reads
        or result not in one.maps
        or len(one.assignments) > 1
    ):
        return None
    return Pointwise(one.assignments[0].value.text, tuple(read), dict(program.numbers))


def _join(op: Operator, k: int, other: Operator, is_kept: bool) -> Kernel | None:
    return _join_before(op, k, other, is_kept) or _join_behind(op, k, other, is_kept)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=_SEVERAL, join=_join)
def assign(ctx: Context, *arrays: Array, program: Program) -> None:
    """Run a program without numbers of its own in each step."""
    run_program(ctx, arrays, program)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=run_on_gpu, join=_join_before)
def assign_together(ctx: Context, *arrays: Array, program: Program) -> None:
    """Run a program of one pass without sums, on arrays of one shape and on scalars: on GPUs many of them at once."""
    run_program(ctx, arrays, program)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=_SEVERAL)
def assign_each_step(ctx: Context, *arrays: Array, program: Program) -> None:
    """Run a program with numbers of its own in each step."""
    run_program(ctx, arrays, program)


@partial(Kernel, takes_mixed=True)
def _to_each_on_gpu(ctx: Context, parts: Array, *arrays: Array, program: Program) -> None:
    for part in parts:
        _SEVERAL(ctx, part, *arrays, program=program)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=_to_each_on_gpu)
def assign_to_each(ctx: Context, parts: Array, *arrays: Array, program: Program) -> None:
    """Run a program on every part, along the first dimension of the first array, and the other arrays."""
    for part in parts:
        run_program(ctx, (part, *arrays), program)


def _cells(ctx: Context, program: Program) -> dict[str, Array]:
    """The numbers of each step, on the device."""
    targets = Pass.parse(program.each_step).targets
    return {
        name: ctx.cell(name, "float64", partial(_number, program, name)) for name in sorted(targets)
    }


def _number(program: Program, name: str, run: Any) -> float:
    """A number in the step of `run`."""
    return program.numbers_at(run.step)[name]


def _views(
    arguments: Sequence[str], arrays: Sequence[Array], along: int | None = None
) -> dict[str, Array]:
    """Arrays by name; those of one dimension lie along that of the others."""
    ndim = max(a.ndim for a in arrays)
    views = dict[str, Array]()
    for names, a in zip(arguments, arrays, strict=True):
        if " " in names:
            views |= {name: a[..., k, :] for k, name in enumerate(names.split())}
        else:
            views[names] = a if along is None else _along(a, ndim, along)
    return views


def _along(a: Array, ndim: int, along: int) -> Array:
    return (
        a[(None,) * along + (slice(None),) + (None,) * (ndim - along - 1)]
        if a.ndim == 1 < ndim
        else a
    )


# -- on a CPU ----------------------------------------------------------------------------------------------------------


def run_program(ctx: Context, arrays: Sequence[Array], program: Program) -> None:
    """Of a captured kernel: all passes on these arrays, in place."""
    dtypes = {a.dtype for a in arrays if a.ndim}
    is_simple = len(dtypes) <= 1 and dtypes <= _DTYPES
    for one in program.passes:
        used = {
            names: a
            for names, a in zip(program.arguments, arrays, strict=True)
            if one.names & set(names.split())
        }
        if ctx.is_cuda or not is_simple or one.functions & BY_PASSES:
            _by_passes(ctx, one, used, program)
        else:
            _by_loop(ctx, one, used, program)


def _numbers_of(ctx: Context, one: Pass, program: Program) -> dict[str, float]:
    """Those that a pass reads."""
    numbers = program.numbers_at(ctx.step)
    return {name: value for name, value in numbers.items() if name in one.reads}


def _by_passes(ctx: Context, one: Pass, arrays: Mapping[str, Array], program: Program) -> None:
    numbers = _numbers_of(ctx, one, program)
    views = _views(list(arrays), list(arrays.values()), program.along)
    if program.each_step:
        ctx.each_step(_pass_in_step, one, views, tuple(numbers), program)
    else:
        passes.run(ctx, one, views, numbers)


def _by_loop(ctx: Context, one: Pass, arrays: Mapping[str, Array], program: Program) -> None:
    numbers = _numbers_of(ctx, one, program)
    if any(" " in names for names in arrays):
        _in_parts(ctx, one, arrays, numbers, program.contracts)
        return
    along = program.along
    if along is not None:
        ndim = max(a.ndim for a in arrays.values())
        arrays = {names: _along(a, ndim, along) for names, a in arrays.items()}
        arrays = {names: last(a, along) if a.ndim > along else a for names, a in arrays.items()}
    run_loop(
        ctx,
        one,
        arrays,
        numbers,
        program.contracts,
        along is not None,
        program if program.each_step else None,
    )


def _pass_in_step(
    ctx: Context, one: Pass, views: Mapping[str, Array], names: Sequence[str], program: Program
) -> None:
    numbers = program.numbers_at(ctx.step)
    passes.run(ctx, one, views, {name: numbers[name] for name in names})


def _loop_in_step(
    ctx: Context,
    loop: Callable[..., None],
    arrays: Sequence[Array],
    number: Callable[[float], object],
    names: Sequence[str],
    program: Program,
) -> None:
    numbers = program.numbers_at(ctx.step)
    loop(*arrays, *(number(numbers[name]) for name in names))


def run_loop(
    ctx: Context,
    one: Pass,
    arrays: Mapping[str, Array],
    numbers: Mapping[str, float],
    contracts: bool = False,
    in_order: bool = False,
    program: Program | None = None,
) -> None:
    """Run a pass on arrays by name, aligned at the right: compiled, on rows and columns that need the fewest copies.

    Rows and columns follow the memory of what is set, or the dimensions as they are (`in_order`). The numbers have
    these values, or in each step those of a program.
    """
    from ops.expressions.loops import compiled_loop

    arrays = _aligned(one, arrays, in_order)
    operands = _operands(ctx, one, arrays)
    lying = tuple((name, operand.layout) for name, operand in operands.items())
    loop = compiled_loop(one, lying, tuple(numbers), contracts)
    seen = [operand.seen for operand in operands.values()]
    dtype = next(operand.work.dtype for operand in operands.values() if operand.layout == "matrix")
    if program:
        ctx.each_step(_loop_in_step, loop, seen, dtype.type, tuple(numbers), program)
    else:
        ctx.call(loop, *seen, *map(dtype.type, numbers.values()))
    for name, operand in operands.items():
        if name in one.targets:
            deliver(ctx, operand.work, arrays[name])


def _aligned(one: Pass, arrays: Mapping[str, Array], in_order: bool) -> dict[str, Array]:
    """With as many dimensions each; unless `in_order`, what is set has no gaps then, if it can be so."""
    ndim = max(a.ndim for a in arrays.values())
    padded = {name: a[(*(None,) * (ndim - a.ndim), ...)] for name, a in arrays.items()}
    if in_order:
        return padded
    first = padded[next((name for name in arrays if name in one.maps), next(iter(arrays)))]
    order = sorted(range(ndim), key=lambda d: -first.strides[d])
    return {name: a.transpose(order) for name, a in padded.items()}


class _Operand(NamedTuple):
    """How an array lies in a loop, contiguous memory for it, and that as the loop sees it."""

    layout: str
    work: Array
    seen: Array


def _operands(ctx: Context, one: Pass, arrays: Mapping[str, Array]) -> dict[str, _Operand]:
    shape, columns, layouts = _layouts(tuple(a.shape for a in arrays.values()))
    operands = {}
    for name, layout in zip(arrays, layouts, strict=True):
        if name in one.targets - one.maps and layout == "matrix":
            layout = "row"  # a sum of one row, which has all points
        if name in one.targets - one.reads:
            work = work_array(ctx, (name, layout), arrays[name])
        else:
            work = _seen(ctx, (name, layout), arrays[name], shape, layout)
        seen = work.reshape(-1, columns) if layout == "matrix" else work.reshape(-1)
        operands[name] = _Operand(layout, work, _as_compiled(seen, name in one.targets))
    return operands


def _as_compiled(a: Array, is_set: bool) -> Array:
    """What loops are compiled for: an array that is only read cannot be written, whoever else may."""
    return a if is_set else read_only(a)


@cache
def _layouts(inputs: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], int, tuple[str, ...]]:
    """Shape of a tile, number of its columns, and how each input lies: as a matrix, a row, a column or a number.

    The tile is cut into rows and columns where most inputs need no copy.
    """
    shape = np.broadcast_shapes(*inputs)
    by_cut = [[_layout(shape, extents, cut) for extents in inputs] for cut in range(len(shape) + 1)]
    best = min(range(len(by_cut)), key=lambda cut: by_cut[cut].count(None))
    return shape, prod(shape[best:]), tuple(layout or "matrix" for layout in by_cut[best])


def _layout(shape: Sequence[int], extents: Sequence[int], cut: int) -> str | None:
    """None: a copy with all elements is needed."""
    lacks = [n != m for n, m in zip(shape, extents, strict=True)]
    has = [n == m != 1 for n, m in zip(shape, extents, strict=True)]
    if not any(lacks):
        return "matrix"
    if not any(has):
        return "number"
    if not any(has[:cut]) and not any(lacks[cut:]):
        return "row"
    return "column" if not any(has[cut:]) and not any(lacks[:cut]) else None


def _seen(ctx: Context, slot: object, a: Array, shape: Sequence[int], layout: str) -> Array:
    if layout == "matrix" and a.shape != shape:
        whole = ctx.scratch(slot, shape, a.dtype)
        ctx.xp.copyto(whole, a)
        return whole
    return packed(ctx, slot, a)


def _in_parts(
    ctx: Context,
    one: Pass,
    arrays: Mapping[str, Array],
    numbers: Mapping[str, float],
    contracts: bool,
) -> None:
    """A pass on arrays (..., columns) and (..., parts, columns)."""
    works = {
        names: work_array(ctx, names, a)
        if one.reads.isdisjoint(names.split())
        else packed(ctx, names, a)
        for names, a in arrays.items()
    }
    seen = {
        names: (a.reshape(-1, len(names.split()), a.shape[-1]), 0) for names, a in works.items()
    }
    run_parts(ctx, one, seen, numbers, contracts)
    for names, a in arrays.items():
        if not one.targets.isdisjoint(names.split()):
            deliver(ctx, works[names], a)


def _parts_by_name(arrays: Mapping[str, tuple[Array, int]]) -> dict[str, Array]:
    return {
        name: a[:, first + k]
        for names, (a, first) in arrays.items()
        for k, name in enumerate(names.split())
    }


def run_parts(
    ctx: Context,
    one: Pass,
    arrays: Mapping[str, tuple[Array, int]],
    numbers: Mapping[str, float] | None = None,
    contracts: bool = True,
) -> None:
    """Run a pass on contiguous arrays (rows, parts, columns), whose parts bear the names from a first one on."""
    if ctx.is_cuda:
        cuda_source.run(ctx, one, _parts_by_name(arrays), numbers or {})
        return
    from ops.expressions.loops import compiled_loop

    numbers = numbers or {}
    seen = [
        _as_compiled(a, not one.targets.isdisjoint(names.split()))
        for names, (a, _) in arrays.items()
    ]
    ctx.call(
        compiled_loop(
            one,
            tuple((names, "parts") for names in arrays),
            tuple(numbers),
            contracts,
        ),
        *seen,
        *(first for _, first in arrays.values()),
        *map(seen[0].dtype.type, numbers.values()),
    )
