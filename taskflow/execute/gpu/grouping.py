"""Grouping: rows of one device whose kernels can run as one, such as the updates of all parameters.

Takes rows with keys; gives groups of rows with equal keys, and the row before which each group is issued. A row waits
for others of its group as long as nothing in between needs it: no row that depends on it, and none that uses memory
which the memory plan hands on after it. So the result is the order of the rows with some of them later: by law 2 the
same numbers. `GroupedRows` makes items of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from taskflow.execute.gpu.issue import ItemOrder
from taskflow.execute.program import Call
from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.task_graph import Array, Kind, Launch, TaskGraph

Groups = dict[int, list[list[int]]]


def group_rows(
    graph: TaskGraph, plan: MemoryPlan, keys: Mapping[int, Hashable], border: int = -1
) -> Groups:
    """Groups of two rows or more, by the row before which they are issued; `len(graph)` is the end.

    Args:
        graph: without collectives.
        plan: where its instances lie.
        keys: per row that may be part of a group, what the others of the group have in common with it.
        border: a row before which all groups are issued.
    """
    groups: Groups = {}
    waiting: dict[
        Hashable, tuple[list[int], Array]
    ] = {}  # the rows of a group so far, and the instances that they use

    def must_follow(row: int, needed: Array, rows: list[int], used: Array) -> bool:
        """Whether a row that uses the instances `needed`, or the end, has to come after the rows of a group."""
        if row in (border, len(graph)) or not set(rows).isdisjoint(graph.deps(row)):
            return True
        return bool(plan.share_bytes(graph, np.setdiff1d(needed, used)[:, None], used).any())

    for row in range(len(graph) + 1):
        needed = (
            _used_by(graph, row)
            if row < len(graph) and (waiting or row in keys)
            else np.zeros(0, np.int64)
        )
        for key in [key for key, group in waiting.items() if must_follow(row, needed, *group)]:
            rows, _ = waiting.pop(key)
            if len(rows) > 1:
                groups.setdefault(row, []).append(rows)
        if row in keys:
            rows, used = waiting.get(keys[row], ([], needed))
            waiting[keys[row]] = [*rows, row], np.union1d(used, needed)
    return groups


def _used_by(graph: TaskGraph, row: int) -> Array:
    """The instances of a row."""
    instances: Array = graph.arg_instance[graph.arg_ptr[row] : graph.arg_ptr[row + 1]]
    return np.unique(instances[instances >= 0])


class GroupedRows:
    """The points of a program that run together.

    Args:
        make: the one call of such rows; None: none run together.
        border: see `group_rows`.

    Attributes:
        rows: all of them.
    """

    def __init__(
        self, issue: ItemOrder, make: Callable[[Sequence[int]], Call] | None, border: int = -1
    ) -> None:
        self._issue = issue
        self._make = make
        self._groups = group_rows(issue.graph, issue.plan, self._keys(), border) if make else {}
        self.rows = {row for groups in self._groups.values() for rows in groups for row in rows}

    def reach(self, row: int) -> None:
        """Append the items that are issued before a row, or before the end."""
        issue = self._issue
        for rows in self._groups.get(row, ()):
            uses = sorted({i for r in rows for i, _, _ in issue.graph.args(r) if i >= 0})
            for member in rows:
                issue.before(member)
            assert self._make is not None, "else there are no groups"
            issue.add(
                self._make(rows),
                rows[0],
                "run",
                int(issue.graph.streams[rows[0], 0]),
                uses,
                of=rows,
            )

    def _keys(self) -> dict[int, Hashable]:
        """What points have in common: a device, a kernel, a step, dtypes and scalars."""
        graph = self._issue.graph
        keys = dict[int, Hashable]()
        for row in np.flatnonzero(graph.kind == Kind.POINT).tolist():
            launch = graph.launches[int(graph.launch[row])]
            device = int(graph.device[row])
            if self._issue.transport.drives(device) and _can_join(launch) and self._is_dense(row):
                regions = [graph.regions[number] for number in launch.args]
                args = zip(graph.args(row), regions, strict=True)
                keys[row] = (
                    device,
                    *(launch.kernel.name, launch.kernel.digest),
                    *(launch.step, launch.pace),
                    *(region.dtype for region in regions),
                    *(arg[0] for arg, region in args if not region.shape),
                )
        return keys

    def _is_dense(self, row: int) -> bool:
        """Whether the arrays of a point lie without gaps: those of as many dimensions as the first one all alike."""
        memory = self._issue.memory
        views = [
            memory.view(i, rect)
            for i, rect, _ in self._issue.graph.args(row)
            if i >= 0 and rect.shape
        ]
        order = np.argsort([-s for s in views[0].strides], kind="stable").tolist()
        return all(
            (v.transpose(order) if v.ndim == len(order) else v).flags.c_contiguous for v in views
        )


def _can_join(launch: Launch) -> bool:
    """Whether points of an operator can be issued together: where each adds, it knows itself to what."""
    adds = launch.kernel.accumulates or bool(launch.bound.pattern.adds)
    return launch.kernel.for_points is not None and not adds and launch.crossing < 0
