"""Kernels on arrays of half size: what is written for float32 computes in it, and its results are rounded once.

NumPy has no fast arithmetic of float16 and bfloat16, numba none at all. So a kernel gets float32 copies of such arrays
in scratch memory, laid out as the arrays are, and what it writes is rounded to them. That is what tensor cores do too:
products of half operands, summed in float32. A kernel that only moves elements, or that has its own ways with half
arrays, says so (`taskflow.Kernel`) and gets them as they are; beside wider ones only if it says that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from taskflow.backend.context import Array, Context
from taskflow.core.dtypes import HALF

Function = Callable[..., None]


def is_uniform(arrays: Sequence[Array]) -> bool:
    """Whether all floating arrays are of one dtype."""
    return len({a.dtype.name for a in arrays if "float" in a.dtype.name}) < 2


def in_float32(
    function: Function, arrays: Sequence[Array], is_read: Sequence[bool], is_written: Sequence[bool]
) -> Function:
    """What runs for a kernel's function on these arrays: itself, or itself between casts of those of half size."""
    halves = [k for k, a in enumerate(arrays) if a.dtype.itemsize == 2 and a.dtype.name in HALF]
    if not halves:
        return function
    arguments = tuple(
        _HalfArgument(k, _memory_order(arrays[k]), is_read[k], is_written[k]) for k in halves
    )
    return partial(_between_casts, function=function, arguments=arguments)


def _memory_order(array: Array) -> tuple[int, ...]:
    return tuple(np.argsort([-s for s in array.strides], kind="stable").tolist())


@dataclass(frozen=True)
class _HalfArgument:
    """An argument of half size: its number, its dimensions as they lie in memory, and what the kernel does with it."""

    number: int
    order: tuple[int, ...]
    is_read: bool
    is_written: bool


def _between_casts(
    ctx: Context,
    *arrays: Array,
    function: Function,
    arguments: Sequence[_HalfArgument],
    **options: object,
) -> None:
    wide = list(arrays)
    for argument in arguments:
        wide[argument.number] = _widened(ctx, arrays[argument.number], argument)
    function(ctx, *wide, **options)
    for argument in arguments:
        if argument.is_written:
            ctx.xp.copyto(arrays[argument.number], wide[argument.number], casting="unsafe")


def _widened(ctx: Context, array: Array, argument: _HalfArgument) -> Array:
    shape = [array.shape[d] for d in argument.order]
    work = ctx.scratch(("half", argument.number), shape, np.float32)
    work = work.transpose(np.argsort(argument.order).tolist())
    if argument.is_read:
        ctx.xp.copyto(work, array)
    if not argument.is_written and isinstance(work, np.ndarray):
        work = work.view()
        work.flags.writeable = False  # compiled kernels know the difference
    return work
