"""Kernels on arrays of half size: what is written for float32 computes in it, and its results are rounded once.

NumPy has no fast arithmetic of float16 and bfloat16, numba none at all. So a kernel gets float32 copies of such arrays
in scratch memory, laid out as the arrays are, and what it writes is rounded to them. That is what tensor cores do too:
products of half operands, summed in float32. A kernel that only moves elements, or that has its own ways with half
arrays, says so by `takes_half` and gets them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from taskflow.core.dtypes import HALF

_TAKES = "takes_half"
_Kernel = TypeVar("_Kernel", bound=Callable[..., None])


def takes_half(kernel: _Kernel) -> _Kernel:
    """Declare that a kernel, or a variant for GPUs, runs on arrays of float16 and bfloat16 as they are."""
    setattr(kernel, _TAKES, True)
    return kernel


def for_dtypes(
    kernel: Callable[..., None], arrays: Sequence[Any], is_read: Sequence[bool], is_written: Sequence[bool]
) -> Callable[..., None]:
    """What runs for `kernel` on these arrays: itself, or itself between casts of those of half size."""
    halves = [k for k, a in enumerate(arrays) if a.dtype.itemsize == 2 and a.dtype.name in HALF]
    if not halves or getattr(getattr(kernel, "func", kernel), _TAKES, False):
        return kernel
    places = tuple(_Place(k, _memory_order(arrays[k].strides), is_read[k], is_written[k]) for k in halves)
    return partial(_in_float32, kernel=kernel, places=places)


@dataclass(frozen=True)
class _Place:
    """An argument of half size: its number, its dimensions as they lie in memory, and what the kernel does with it."""

    number: int
    order: tuple[int, ...]
    is_read: bool
    is_written: bool


def _memory_order(strides: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))


def _in_float32(ctx: Any, *arrays: Any, kernel: Callable[..., None], places: Sequence[_Place]) -> None:
    wide = list(arrays)
    for place in places:
        wide[place.number] = _widened(ctx, arrays[place.number], place)
    kernel(ctx, *wide)
    for place in places:
        if place.is_written:
            ctx.xp.copyto(arrays[place.number], wide[place.number], casting="unsafe")


def _widened(ctx: Any, array: Any, place: _Place) -> Any:
    shape = [array.shape[d] for d in place.order]
    work = ctx.scratch((_TAKES, place.number), shape, np.float32)
    work = work.transpose(np.argsort(place.order).tolist())
    if place.is_read:
        ctx.xp.copyto(work, array)
    if not place.is_written and isinstance(work, np.ndarray):
        work = work.view()
        work.flags.writeable = False  # compiled kernels know the difference
    return work
