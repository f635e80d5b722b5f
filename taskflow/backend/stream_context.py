"""What a kernel is told about its point on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from taskflow.backend.context import Array, Context, FindBoxes, Run, Workspace
from taskflow.backend.sources import RANDOM, CudaSource, index_map
from taskflow.backend.streams import NotCapturable, StreamBackend
from taskflow.core.geometry import Rect

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

MakeCell = Callable[[Any, Callable[[Run], float]], Array]


class StreamContext(Context):
    """What a kernel on a GPU is told about its point."""

    __slots__ = ("_allocate", "_backend", "_cells", "_make_cell", "is_cuda", "xp")

    def __init__(
        self,
        backend: StreamBackend,
        make_cell: MakeCell,
        allocate: Callable[[int], Array],
        boxes: FindBoxes,
        run: Run,
        workspace: Workspace,
        point: int = 0,
        ahead: int = 0,
        added: Collection[int] = (),
        pace: int = 1,
    ) -> None:
        super().__init__(boxes, None, run, workspace, point, ahead, added, pace)
        self._allocate = allocate
        self.xp = backend.xp
        self.is_cuda = backend.uses_variants
        self._backend = backend
        self._make_cell = make_cell
        self._cells: dict[object, Array] = {}

    @property
    def uses_tf32(self) -> bool:  # type: ignore[override]
        """See `Context`."""
        return self._backend.uses_tf32

    @property
    def step(self) -> int:
        """Number of finished steps. Kernels that read it run item by item: a graph would repeat the number."""
        if self._backend.is_capturing:
            raise NotCapturable("a kernel reads ctx.step")
        return self._run.step * self.pace + self.ahead

    def cell(self, slot: object, dtype: DTypeLike, value: Callable[[Run], float]) -> Array:
        """See `Context.cell`."""
        if slot not in self._cells:
            at = self.ahead, self.pace
            later = value if at == (0, 1) else lambda run: value(run.ahead(*at))
            self._cells[slot] = self._make_cell(dtype, later)
        return self._cells[slot]

    def launch(
        self, source: CudaSource, name: str, threads: int, *args: object, block: int = 256
    ) -> None:
        """See `Context.launch`."""
        self._backend.launch(source, name, threads, args, block)

    def library(
        self, operation: str, inputs: Sequence[Array], outputs: Sequence[Array], **options: object
    ) -> bool:
        """See `Context.library`."""
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
        work = (
            out if out.flags.c_contiguous else self.scratch(("uniform", name), out.shape, out.dtype)
        )
        self.launch(
            RANDOM,
            f"uniform_{out.dtype}",
            out.size,
            work,
            self.key(name),
            *index_map(shape, rect),
            out.size,
        )
        if work is not out:
            self.xp.copyto(out, work)

    def constant(self, value: Array) -> Array:
        """See `Context.constant`."""
        copy = self._allocate(value.nbytes).view(value.dtype).reshape(value.shape)
        self._backend.write(copy, value)
        return copy
