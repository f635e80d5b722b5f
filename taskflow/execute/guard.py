"""The guard of a step: where the loss or a gradient is not finite, the step is given up before it updates anything.

Takes the rows that run; gives the row before which all ranks agree whether they go on, and what is undone if they do
not. Before that row every gradient is there, behind it no point runs in a step that is given up: copies and folds do,
since ranks count on each other's messages, and carry what is there already. States that are updated before, as the
running statistics of a batch norm are, get the values back that they had. A plan that updates a parameter before all
gradients are there is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskflow.core.dtypes import is_finite
from taskflow.execute.program import GUARD, REPLAY, Memory, RankProgram
from taskflow.tasks.task_graph import Kind, Privilege, TaskGraph


class GivenUp(Exception):
    """A step ends here, on all ranks."""


class UpdateGuard:
    """A call of a program; `is_any` says of a flag whether it is true on any rank.

    Raises:
        ValueError: a parameter is updated before all gradients are there.
    """

    def __init__(self, graph: TaskGraph, memory: Memory, is_any: Callable[[bool], bool]) -> None:
        self._graph, self._is_any = graph, is_any
        self.row, checked, early = find_guarded(graph, memory)
        self._checked = [memory.array(i) for i in checked]
        self._kept = [(memory.array(i), np.empty_like(memory.array(i))) for i in early]

    def keep(self) -> None:
        """Before a step: what it updates early is kept."""
        for array, kept in self._kept:
            kept[...] = array

    def __call__(self) -> None:
        """Go on, or raise GivenUp, as all other ranks do."""
        if self._is_any(not all(map(is_finite, self._checked))):
            raise GivenUp

    def give_up(self, program: RankProgram) -> None:
        """What is left of a step that is given up: waits, messages, copies and folds; then what was kept."""
        first = program.roles.index(GUARD) + 1
        for call, row, role in zip(program.calls[first:], program.rows[first:], program.roles[first:], strict=True):
            if role != REPLAY and (role != "run" or self._graph.kind[row] != Kind.POINT):
                call()
        for array, kept in self._kept:
            array[...] = kept


def find_guarded(graph: TaskGraph, memory: Memory) -> tuple[int, list[int], list[int]]:
    """The row before which all ranks agree; of this rank, the instances that are looked at, and those that are kept.

    Raises:
        ValueError: a parameter is updated before all gradients are there.
    """
    row, checked, early = _first_update(graph)
    here = [i for i in checked if int(graph.instance_device[i]) in memory.own]
    floating = [i for i in here if graph.regions[int(graph.instance_region[i])].is_floating]
    homes = [i for name in early for i, _ in graph.homes[name] if int(graph.instance_device[i]) in memory.own]
    return row, floating, list(dict.fromkeys(homes))


def _first_update(graph: TaskGraph) -> tuple[int, list[int], list[str]]:
    """The row behind all gradients; the instances where they and the loss are made; regions updated before it."""
    row = np.repeat(np.arange(len(graph)), np.diff(graph.arg_ptr))
    instance, privilege = graph.arg_instance, graph.arg_privilege
    lasts = np.zeros(len(graph.instance_region) + 1, np.bool_)
    lasts[[i for homes in graph.homes.values() for i, _ in homes]] = True
    updates = (graph.kind[row] == Kind.POINT) & lasts[instance] & (privilege == Privilege.READ_WRITE)
    read = (instance >= 0) & ~lasts[instance] & (privilege == Privilege.READ) & np.isin(row, row[updates])
    is_behind = np.isin(np.arange(len(graph)), row[read])  # or waits for an update by what the step made
    for k in np.flatnonzero(np.diff(graph.dep_ptr)).tolist():
        is_behind[k] |= is_behind[graph.deps(k)].any()
    needed = {*instance[read].tolist(), *(i for _, i, _ in graph.fetches.get("loss", ()))}
    for copy in np.flatnonzero(graph.kind == Kind.COPY)[::-1].tolist():  # what is on its way is known where it is made
        (source, _, _), (target, _, _) = graph.args(copy)
        if target in needed and not lasts[source]:
            needed.add(source)
    is_made = (privilege != Privilege.READ) & (graph.kind[row] != Kind.COPY)
    made = np.isin(instance, sorted(needed)) & is_made & ~is_behind[row]
    last = int(row[made].max(initial=-1))
    early = np.flatnonzero(updates & (row <= last))
    for k in early.tolist():
        if (region := graph.regions[int(graph.instance_region[instance[k]])]).role == "parameter":
            raise ValueError(
                f"on_nan='skip': the plan updates '{region.name}' before all gradients are there: row {row[k]}, "
                f"'{graph.name(int(row[k]))}', comes before row {last}, '{graph.name(last)}'"
            )
    names = {graph.regions[k].name for k in graph.instance_region[instance[early]].tolist()}
    return last + 1, sorted(set(instance[made].tolist())), sorted(names)
