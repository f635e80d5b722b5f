"""Kernels on a GPU: their sources in CUDA C, and what a kernel is told there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from taskflow.backend.context import Array, Context, Run, Workspace
from taskflow.backend.streams import NotCapturable, StreamBackend
from taskflow.core.geometry import Rect
from taskflow.core.random import random_key

MakeCell = Callable[[Any, Callable[[Run], float]], Array]


@dataclass(frozen=True)
class CudaSource:
    """A file of CUDA C: `extern "C"` kernels, named `<name>_<dtype>`; and more of it that was made by a program."""

    path: Path
    generated: str = ""

    @cached_property  # one string, whose hash Python keeps: kernels are found by it at every launch
    def text(self) -> str:
        """The source, with the files that it includes in place of their `#include "name"` lines.

        They are of the same folder, or `taskflow/types.cu`: float16 and bfloat16, stored as such.
        """
        return _read(self.path) + "\n" + self.generated


_CUDA = Path(__file__).with_name("cuda")  # the sources that all kernels share


@cache
def _read(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(_read(_included(path, line.split('"')[1])) if _is_include(line) else line for line in lines)


def _included(path: Path, name: str) -> Path:
    folder, _, file = name.rpartition("/")
    return _CUDA / file if folder == "taskflow" else path.parent / name


def _is_include(line: str) -> bool:
    return line.startswith('#include "')


RANDOM = CudaSource(_CUDA / "random.cu")


class StreamContext(Context):
    """What a kernel on a GPU is told about its point."""

    __slots__ = ("_allocate", "_backend", "_cells", "_make_cell", "is_cuda", "xp")

    def __init__(
        self,
        backend: StreamBackend,
        make_cell: MakeCell,
        allocate: Callable[[int], Array],
        rects: Sequence[Rect],
        intervals: Mapping[str, tuple[int, int]],
        run: Run,
        workspace: Workspace,
        point: int = 0,
    ) -> None:
        super().__init__(rects, intervals, run, workspace, point)
        self._allocate = allocate
        self.xp, self.is_cuda = backend.xp, backend.uses_variants
        self._backend, self._make_cell = backend, make_cell
        self._cells: dict[object, Array] = {}

    @property
    def step(self) -> int:
        """Number of finished steps. Kernels that read it run item by item: a graph would repeat the number."""
        if self._backend.is_capturing:
            raise NotCapturable("a kernel reads ctx.step")
        return self._run.step

    def cell(self, slot: object, dtype: Any, value: Callable[[Run], float]) -> Array:
        """An array of shape (1,) on the device that holds `value(run)` of every step; its dtype has 8 bytes."""
        if slot not in self._cells:
            self._cells[slot] = self._make_cell(dtype, value)
        return self._cells[slot]

    def launch(self, source: CudaSource, name: str, threads: int, *args: Any, block: int = 256) -> None:
        """Launch a kernel with at least so many threads; arrays are passed as pointers, integers as 64-bit."""
        if threads:
            self._backend.kernel(source.text, name)(threads, block, args)

    def library(self, operation: str, inputs: Sequence[Array], outputs: Sequence[Array], **options: Any) -> bool:
        """Have cuDNN do an operation of `taskflow.backend.cuda.cudnn`, with scratch memory as its workspace.

        False: it is not there or cannot do it, and nothing was done.
        """
        plan = self._backend.library_plan(operation, inputs, outputs, options)
        if plan is None:
            return False
        work = self.scratch(plan.request, (plan.workspace_bytes,), np.uint8)
        plan.launch(self.address(work))
        return True

    def uniform(self, out: Array, name: str, shape: Sequence[int], rect: Rect) -> None:
        """See `Context.uniform`."""
        if not self._backend.uses_variants:
            super().uniform(out, name, shape, rect)
            return
        work = out if out.flags.c_contiguous else self.scratch(("uniform", name), out.shape, out.dtype)
        self.launch(RANDOM, f"uniform_{out.dtype}", out.size, work, self.key(name), *index_map(shape, rect), out.size)
        if work is not out:
            self.xp.copyto(out, work)

    def constant(self, value: Array) -> Array:
        """A copy on the device of an array of the host; only before the first step (`Kernel.together`)."""
        found = self._allocate(value.nbytes).view(value.dtype).reshape(value.shape)
        self._backend.write(found, value)
        return found

    @staticmethod
    def address(array: Array) -> int:
        """Where an array begins in the memory of its device."""
        return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)

    def key(self, name: str) -> Array:
        """The cell with the key of this step's random numbers called `name`."""
        return self.cell(("key", name), np.uint64, partial(_key, name))

    @staticmethod
    def index_map(shape: Sequence[int], rect: Rect) -> tuple[int, ...]:
        """See `taskflow.backend.variant.index_map`."""
        return index_map(shape, rect)


def _key(name: str, run: Run) -> int:
    return random_key(run.seed, name, run.step)


MOST_DIMENSIONS = 6


def index_map(shape: Sequence[int], rect: Rect) -> tuple[int, ...]:
    """How kernels find the row-major index in a region of `shape` of the k-th element of its tile `rect`.

    The extents of the tile, the strides of the region (both of MOST_DIMENSIONS dimensions) and the index of the first.
    """
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"a region of {len(shape)} dimensions: kernels on a GPU count in at most {MOST_DIMENSIONS}")
    strides, step = [0] * len(shape), 1
    for k in reversed(range(len(shape))):
        strides[k], step = step, step * shape[k]
    first = sum(lo * s for lo, s in zip(rect.lo, strides))
    missing = MOST_DIMENSIONS - len(shape)
    return (*[1] * missing, *rect.shape, *[0] * missing, *strides, first)
