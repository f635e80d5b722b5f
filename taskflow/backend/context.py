"""What a kernel sees of its device: the array module, where its tiles lie, and scratch memory.

Here for NumPy; `cuda` has the variant for CuPy.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from taskflow.backend.sources import CudaSource, index_map
from taskflow.core.columns import Array as Array
from taskflow.core.geometry import Rect
from taskflow.core.random import random_key, uniform

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_MAP_NORESERVE = 0x4000  # of Linux; the module has it from Python 3.13 on
_ON_GPU = (2, 13)  # kinds of devices of DLPack: CUDA's own memory, and managed memory
_RESERVED_BYTES = 1 << 36  # of addresses for scratch memory


def origin(array: Array) -> Array:
    """The first element of a view, as an array: a kernel that is told the steps of an array gets where it begins."""
    index: tuple[Any, ...] = (
        ...,
        *[slice(0, 1)] * array.ndim,
    )  # the dots keep an array of no dimensions an array
    first: Array = array[index]
    return first


def pointer(array: Array) -> int:
    """Where an array begins in the memory of its device."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def is_resident(value: object) -> bool:
    """Whether a value lies on a GPU, by its own account (DLPack)."""
    ask = getattr(value, "__dlpack_device__", None)
    return ask is not None and int(ask()[0]) in _ON_GPU


class Workspace:
    """Scratch memory of one device, shared by its tasks: they run one after the other.

    On a CPU it has addresses for more than there will ever be, and takes the memory of those that are used: it never
    moves, so that views of it may be kept.
    """

    def __init__(self, make: Callable[[int], Array] | None = None) -> None:
        self._make: Callable[[int], Array] = make or _reserve
        self._memory = self._make(0)
        self._outgrown: list[Array] = []  # what is on its way to a GPU may use it still
        self.growths = 0
        self.size_bytes = 0  # held

    def settle(self) -> None:
        """Forget the memories that were outgrown, once nobody uses them."""
        self._outgrown.clear()

    def view(self, offset: int, shape: Sequence[int], dtype: DTypeLike) -> tuple[Array, int]:
        """An array at `offset` bytes and the offset behind it; the memory grows on the first use of a larger size."""
        size = prod(shape) * np.dtype(dtype).itemsize
        end = offset + -(-size // 64) * 64
        if end > self._memory.size:
            self._outgrown.append(self._memory)
            self._memory = self._make(end)
            self.growths += 1
        self.size_bytes = max(self.size_bytes, end)
        return self._memory[offset : offset + size].view(dtype).reshape(tuple(shape)), end


def _reserve(size_bytes: int) -> Array:
    """Bytes of memory, with addresses for many more where the system gives them."""
    if not size_bytes or sys.platform != "linux":
        return np.empty(size_bytes, np.uint8)
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        memory = mmap.mmap(-1, max(size_bytes, _RESERVED_BYTES), flags)
    except OSError:  # a limit on addresses
        return np.empty(size_bytes, np.uint8)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)  # as NumPy does
    return np.frombuffer(memory, np.uint8)


@dataclass(slots=True)
class Run:
    """What all tasks of a run share: the seed, the number of finished steps and of changes of persistent regions."""

    seed: int = 0
    step: int = 0
    changes: int = 0

    def ahead(self, steps: int, pace: int = 1) -> Run:
        """The run as it is for a task of a later step, of `pace` in one."""
        return Run(self.seed, self.step * pace + steps, self.changes)


Boxes = tuple[tuple[Rect, ...], Mapping[str, tuple[int, int]]]
FindBoxes = Callable[[], Boxes]


class Context:
    """What a kernel is told about its point; the first argument of every kernel.

    Attributes:
        xp: the array module: numpy, or cupy on a GPU.
        uses_tf32: whether products of float32 may round their operands to TensorFloat-32.
        is_cuda: whether the kernel can `launch` CUDA kernels; only then may it call what stands below it.
        point: the number of the point in its operator, row-major over the split axes.
        ahead: so many steps that have not finished yet are finished for it: where several steps run as one.
        pace: so many steps of its own are one of the run.
        added: numbers of the outputs that hold a part of a sum already; only where the kernel `accumulates`.
    """

    # small, since a step visits them all
    __slots__ = (
        *("_end", "_growths", "_offsets", "_run", "_scratch", "_workspace"),
        *("_boxes", "_claims", "_round", "added", "ahead", "pace", "point"),
    )
    xp: Any = np
    uses_tf32 = False
    is_cuda = False

    def __init__(
        self,
        rects: Sequence[Rect] | FindBoxes,
        intervals: Mapping[str, tuple[int, int]] | None = None,
        run: Run | None = None,
        workspace: Workspace | None = None,
        point: int = 0,
        ahead: int = 0,
        added: Collection[int] = (),
        pace: int = 1,
    ) -> None:
        """`rects` are boxes of all arguments; or a function that gives these and the intervals when a kernel asks."""
        self.point = point
        self.ahead = ahead
        self.added = added
        self.pace = pace
        self._boxes: Boxes | FindBoxes = (
            rects if callable(rects) else (tuple(rects), dict(intervals or {}))
        )
        self._run = run or Run()
        self._workspace = workspace or Workspace()
        self._scratch: dict[object, Array] = {}
        self._offsets: dict[object, int] = {}
        self._end = 0
        self._growths = 0
        self._claims: Callable[[int, int], int] | None = None
        self._round = 0

    @property
    def step(self) -> int:
        """Number of finished steps."""
        return self._run.step * self.pace + self.ahead

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self._run.seed

    def boxes(self) -> Boxes:
        """The boxes of all arguments, and the interval of every axis."""
        if callable(self._boxes):
            self._boxes = self._boxes()
        return self._boxes

    def rect(self, k: int) -> Rect:
        """The box of argument `k` (inputs, then outputs) in global coordinates."""
        return self.boxes()[0][k]

    def interval(self, axis: str) -> tuple[int, int]:
        """`(lo, hi)` of an axis of the operator's pattern."""
        return self.boxes()[1][axis]

    def part(
        self,
        rects: Sequence[Rect],
        intervals: Mapping[str, tuple[int, int]],
        is_alike: bool = True,
    ) -> Context:
        """What a kernel is told that is called for a part of the point, with the same scratch memory.

        Parts that are not alike, of other shapes, have other arrays in it.
        """
        part = copy(self)
        part._boxes = tuple(rects), dict(intervals)
        if not is_alike:
            part._scratch = {}
            part._offsets = {}
        return part

    def adds_to(self, output: int) -> bool:
        """Whether the kernel adds to this output, which holds a part of a sum already, instead of writing it."""
        return output in self.added

    def scratch(self, slot: object, shape: Sequence[int], dtype: DTypeLike) -> Array:
        """Uninitialised memory for this call, one array per `slot`; shape and dtype are the same at every call.

        It is lost when the kernel returns: other tasks of the device use the same memory.
        """
        workspace = self._workspace
        if (
            self._growths != workspace.growths
        ):  # the memory has moved: forget the views of the old one
            self._scratch.clear()
            self._growths = workspace.growths
        array = self._scratch.get(slot)
        if array is None:
            offset = self._offsets.setdefault(slot, self._end)
            array, end = workspace.view(offset, shape, dtype)
            self._end = max(self._end, end)
            self._scratch[slot] = array
        return array

    def claims_from(self, claim: Callable[[int, int], int]) -> Context:
        """The context, whose points claim items by `claim(round, count)`, -1 where all are gone."""
        self._claims = claim
        return self

    def claim(self, count: int) -> Iterator[int]:
        """Numbers below `count`, each of which exactly one point of the operator gets in a step: who is free takes one.

        Every point calls it once in a step. Which numbers a point gets depends on how fast it is; so a kernel writes
        what is of its numbers, and zeros elsewhere, into outputs that are summed over points (`Kernel(claims=)`).
        """
        if self.is_cuda:
            raise NotImplementedError("ctx.claim: claims are for CPUs, the device is a GPU")
        if self._claims is None:
            yield from range(count)  # a kernel that is timed, or tried, alone
            return
        self._round += 1
        while (item := self._claims(self._round, count)) >= 0:
            yield item

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function that writes into arrays, a compiled one say; a captured kernel calls it through this."""
        function(*args)

    def each_step(self, function: Callable[..., object], *args: object) -> None:
        """Call `function(ctx, *args)`; a captured kernel has done in every step what depends on the step's number."""
        function(self, *args)

    def uniform(self, out: Array, name: str, shape: Sequence[int], rect: Rect) -> None:
        """Uniform numbers in [0, 1) for `rect` of a region of `shape`: fixed by (seed, name, step, global index)."""
        uniform(out, random_key(self.seed, name, self.step), shape, rect)

    # -- on a GPU, where `is_cuda` ---------------------------------------------------------------------------------

    def launch(
        self, source: CudaSource, name: str, threads: int, *args: object, block: int = 256
    ) -> None:
        """Launch a kernel with at least so many threads; arrays are passed as pointers, integers as 64-bit."""
        raise NotImplementedError(f"CUDA kernel '{name}': the device is no GPU")

    def library(
        self, operation: str, inputs: Sequence[Array], outputs: Sequence[Array], **options: object
    ) -> bool:
        """Have cuDNN do an operation of `taskflow.backend.cuda.cudnn`, with scratch memory as its workspace.

        False: it is not there or cannot do it, and nothing was done.
        """
        raise NotImplementedError(f"cuDNN's '{operation}': the device is no GPU")

    def cell(self, slot: object, dtype: DTypeLike, value: Callable[[Run], float]) -> Array:
        """An array of shape (1,) on the device that holds `value(run)` of every step; its dtype has 8 bytes."""
        raise NotImplementedError("a cell: the device is no GPU")

    def constant(self, value: Array) -> Array:
        """A copy on the device of an array of the host; only before the first step (`Kernel.together`)."""
        raise NotImplementedError("a constant: the device is no GPU")

    def key(self, name: str) -> Array:
        """The cell with the key of this step's random numbers called `name`."""
        return self.cell(("key", name), np.uint64, partial(_key, name))

    @staticmethod
    def address(array: Array) -> int:
        """Where an array begins in the memory of its device."""
        return pointer(array)

    @staticmethod
    def index_map(shape: Sequence[int], rect: Rect) -> tuple[int, ...]:
        """See `taskflow.backend.sources.index_map`."""
        return index_map(shape, rect)


def _key(name: str, run: Run) -> int:
    return random_key(run.seed, name, run.step)
