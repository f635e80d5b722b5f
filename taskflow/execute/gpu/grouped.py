"""Points that run as one call on a GPU: which ones, and the items that they become (see `grouping`)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from taskflow.execute.gpu.grouping import group_rows
from taskflow.tasks.task_graph import Kind

if TYPE_CHECKING:
    from taskflow.execute.gpu.streamed import StreamCompiler


class GroupedRows:
    """The points of a program that run together; none where every item is timed or checked.

    Attributes:
        rows: all of them.
    """

    def __init__(self, compiler: StreamCompiler) -> None:
        self._compiler = compiler
        can_be = compiler.backend.uses_variants and not compiler.times and not compiler.check
        self._groups = group_rows(compiler.graph, compiler.plan, self._keys()) if can_be else {}
        self.rows = {row for groups in self._groups.values() for rows in groups for row in rows}

    def reach(self, row: int) -> None:
        """Append the items that are issued before a row, or before the end."""
        c = self._compiler
        for rows in self._groups.get(row, ()):
            uses = sorted({i for r in rows for i, _, _ in c.graph.args(r) if i >= 0})
            c.before(rows, uses)
            item = c.add(c.together(rows), rows[0], "run", int(c.graph.streams[rows[0], 0]), uses, of=rows)
            for r in rows:
                c.ends_with(r, item)

    def _keys(self) -> dict[int, Hashable]:
        """What points have in common: a device, a kernel, dtypes and scalars."""
        c, keys = self._compiler, dict[int, Hashable]()
        for row in np.flatnonzero(c.graph.kind == Kind.POINT).tolist():
            launch, device = c.graph.launches[int(c.graph.launch[row])], int(c.graph.device[row])
            if c.transport.drives(device) and launch.kernel.for_points is not None and self._is_dense(row):
                regions = [c.graph.regions[number] for number in launch.args]
                scalars = [i for (i, _, _), r in zip(c.graph.args(row), regions, strict=True) if not r.shape]
                keys[row] = device, launch.kernel.name, *(r.dtype for r in regions), *scalars
        return keys

    def _is_dense(self, row: int) -> bool:
        """Whether the arrays of a point lie without gaps, all alike."""
        memory = self._compiler.memory
        views = [memory.view(i, rect) for i, rect, _ in self._compiler.graph.args(row) if i >= 0 and rect.shape]
        order = np.argsort([-s for s in views[0].strides], kind="stable").tolist()
        return all(v.transpose(order).flags.c_contiguous for v in views)
