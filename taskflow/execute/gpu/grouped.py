"""Points that run as one call on a GPU: which ones, and the items that they become (see `grouping`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from taskflow.execute.gpu.grouping import group_rows
from taskflow.execute.gpu.issue import ItemOrder
from taskflow.execute.program import Call
from taskflow.tasks.task_graph import Kind


class GroupedRows:
    """The points of a program that run together.

    Args:
        make: the one call of such rows; None: none run together.

    Attributes:
        rows: all of them.
    """

    def __init__(self, issue: ItemOrder, make: Callable[[Sequence[int]], Call] | None) -> None:
        self._issue, self._make = issue, make
        self._groups = group_rows(issue.graph, issue.plan, self._keys()) if make else {}
        self.rows = {row for groups in self._groups.values() for rows in groups for row in rows}

    def reach(self, row: int) -> None:
        """Append the items that are issued before a row, or before the end."""
        issue = self._issue
        for rows in self._groups.get(row, ()):
            uses = sorted({i for r in rows for i, _, _ in issue.graph.args(r) if i >= 0})
            issue.before(rows, uses)
            assert self._make is not None, "else there are no groups"
            item = issue.add(self._make(rows), rows[0], "run", int(issue.graph.streams[rows[0], 0]), uses, of=rows)
            for r in rows:
                issue.ends_with(r, item)

    def _keys(self) -> dict[int, Hashable]:
        """What points have in common: a device, a kernel, dtypes and scalars."""
        issue, keys = self._issue, dict[int, Hashable]()
        for row in np.flatnonzero(issue.graph.kind == Kind.POINT).tolist():
            launch, device = issue.graph.launches[int(issue.graph.launch[row])], int(issue.graph.device[row])
            if issue.transport.drives(device) and launch.kernel.for_points is not None and self._is_dense(row):
                regions = [issue.graph.regions[number] for number in launch.args]
                scalars = [i for (i, _, _), r in zip(issue.graph.args(row), regions, strict=True) if not r.shape]
                keys[row] = device, launch.kernel.name, *(r.dtype for r in regions), *scalars
        return keys

    def _is_dense(self, row: int) -> bool:
        """Whether the arrays of a point lie without gaps, all alike."""
        memory = self._issue.memory
        views = [memory.view(i, rect) for i, rect, _ in self._issue.graph.args(row) if i >= 0 and rect.shape]
        order = np.argsort([-s for s in views[0].strides], kind="stable").tolist()
        return all(v.transpose(order).flags.c_contiguous for v in views)
