"""Checked execution: poisoned memory, red zones, and privileges verified around every task.

An instance is filled with a byte pattern when it is born. A kernel runs on copies of its arrays, of the same strides
and alignment, in memory of their own that holds the pattern everywhere else: before, behind and between their elements.
So it shows what a kernel writes outside of its tiles. Scratch memory lies between such red zones, too. None of what a
kernel reads may hold the pattern. Every kernel is called twice, over two patterns: what holds them both times was not
written, and what differs depends on what was there before. What a kernel may only read is read-only, and has the
same bytes afterwards. Elements of one byte are not checked when they are read: any pattern is legal there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.array_utils import byte_bounds

from taskflow.backend import Workspace
from taskflow.tasks.task_graph import Array, Privilege

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_BYTE = 0xFB
_OTHER_BYTE = 0xFF  # a number and, of floating point, none
_ZONE_BYTES = 128  # on either side of an array
_ALIGNMENT = 64


def poison(array: Array, byte: int = _BYTE) -> None:
    """Fill with the pattern."""
    array[..., None].view(np.uint8)[...] = byte


def poisoned_elements(array: Array) -> int:
    """Number of elements that hold the pattern."""
    return 0 if array.itemsize == 1 else int(np.count_nonzero(_is_poison(array, _BYTE)))


def _is_poison(array: Array, byte: int) -> Array:
    bits = (
        np.ascontiguousarray(array)
        .reshape(-1, 1)
        .view(np.uint8)
        .reshape(array.size, array.itemsize)
    )
    is_poison: Array = (bits == byte).all(axis=1)
    return is_poison


class _Guarded:
    """An array with the shape, strides and alignment of another one, in memory that holds the pattern elsewhere."""

    def __init__(self, array: Array, byte: int) -> None:
        low, high = byte_bounds(array) if array.size else (0, 0)
        self.memory = np.empty(high - low + 2 * _ZONE_BYTES + _ALIGNMENT, np.uint8)
        self.byte = byte
        self.memory.fill(byte)
        begin = _ZONE_BYTES + (low - self.memory.ctypes.data - _ZONE_BYTES) % _ALIGNMENT
        offset = begin + (array.__array_interface__["data"][0] - low if array.size else 0)
        self.array = np.ndarray(array.shape, array.dtype, self.memory, offset, array.strides)

    def is_overrun(self) -> bool:
        """Whether a byte outside of the array holds another value; the array is poisoned."""
        self.array.flags.writeable = True
        poison(self.array, self.byte)
        return bool((self.memory != self.byte).any())


class GuardedWorkspace(Workspace):
    """Scratch memory of which every array lies between red zones; new for every call of a kernel.

    Attributes:
        byte: of the pattern that it holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.byte = _BYTE
        self._arrays: list[_Guarded] = []

    def view(self, offset: int, shape: Sequence[int], dtype: DTypeLike) -> tuple[Array, int]:
        """See `Workspace.view`."""
        self._arrays.append(_Guarded(np.empty(tuple(shape), dtype), self.byte))
        return self._arrays[-1].array, offset

    def is_overrun(self) -> bool:
        """Whether a byte outside of the arrays holds another value; contexts forget them."""
        self.growths += 1
        is_any = any(array.is_overrun() for array in self._arrays)
        self._arrays.clear()
        return is_any


def checked(
    task: str,
    arrays: Sequence[Array],
    privileges: Sequence[Privilege],
    call: Callable[..., object],
    workspace: GuardedWorkspace,
) -> Callable[[], None]:
    """`call(*arrays)` with its privileges verified; `task` names it in errors, `workspace` is that of its context.

    Raises (when called):
        PermissionError: the kernel reads memory that nobody wrote, writes outside of its arrays or into what it may
            only read, leaves a part of its output unwritten, or depends on what its output or its scratch memory held.
    """
    outputs = outputs_of(privileges)

    def attempt(byte: int) -> list[Array]:
        """What the kernel leaves in its arrays when its outputs and its scratch memory hold that byte before."""
        guarded = [_Guarded(array, byte) for array in arrays]
        workspace.byte = byte
        for k, buffer in enumerate(guarded):
            if k not in outputs:
                np.copyto(buffer.array, arrays[k])
            buffer.array.flags.writeable = arrays[k].flags.writeable
        call(*(buffer.array for buffer in guarded))
        left = [buffer.array.copy() for buffer in guarded]
        for k, buffer in enumerate(guarded):
            if buffer.is_overrun():
                raise PermissionError(
                    f"task {task}: {_name(k, outputs)}: the kernel writes outside of the array"
                )
        if workspace.is_overrun():
            raise PermissionError(f"task {task}: the kernel writes outside of its scratch memory")
        return left

    def run() -> None:
        for k, array in enumerate(arrays):
            if k not in outputs and (count := poisoned_elements(array)):
                raise PermissionError(
                    f"task {task}: argument {k}: reads {count} elements that no task wrote"
                )
        left = attempt(_BYTE)
        again = attempt(_OTHER_BYTE)
        for k, (array, value, other) in enumerate(zip(arrays, left, again, strict=True)):
            if privileges[k] == Privilege.READ and value.tobytes() != array.tobytes():
                raise PermissionError(
                    f"task {task}: argument {k}: is only read, and has been written"
                )
            if value.tobytes() != other.tobytes():
                where = f"task {task}: {_name(k, outputs)}"
                missed = _is_poison(value, _BYTE) & _is_poison(other, _OTHER_BYTE)
                if k in outputs and (count := int(np.count_nonzero(missed))):
                    raise PermissionError(
                        f"{where}: leaves {count} of {array.size} elements unwritten"
                    )
                raise PermissionError(
                    f"{where}: depends on what the output or scratch memory held before"
                )
        for array, value, privilege in zip(arrays, left, privileges, strict=True):
            if privilege != Privilege.READ:
                np.copyto(array, value)

    return run


def outputs_of(privileges: Sequence[Privilege]) -> list[int]:
    """The arguments of which nothing is read."""
    return [k for k, p in enumerate(privileges) if p in (Privilege.WRITE, Privilege.REDUCE)]


def _name(k: int, made: Sequence[int]) -> str:
    return f"output {made.index(k)}" if k in made else f"argument {k}"
