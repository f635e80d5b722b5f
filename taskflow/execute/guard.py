"""The guard of a step: where the loss or a gradient is not finite, the step is given up before it updates anything.

Takes the rows that run; gives the row before which all ranks agree whether they go on, and what is undone if they do
not. Before that row every gradient is there, behind it no point runs in a step that is given up: copies and folds do,
since ranks count on each other's messages, and carry what is there already. States that are updated before, as the
running statistics of a batch norm are, get the values back that they had. A plan that updates a parameter before all
gradients are there is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from taskflow.core.dtypes import is_finite
from taskflow.execute.memory import Memory
from taskflow.execute.program import GUARD, REPLAY, RankProgram
from taskflow.tasks.task_graph import Array, Kind, Privilege, TaskGraph


class GivenUp(Exception):
    """A step ends here, on all ranks."""


class UpdateGuard:
    """A call of a program; `is_any` says of a flag whether it is true on any rank.

    Raises:
        ValueError: a parameter is updated before all gradients are there.
    """

    def __init__(self, graph: TaskGraph, memory: Memory, is_any: Callable[[bool], bool]) -> None:
        self._graph, self._is_any = graph, is_any
        self.row, made, early = find_guarded(graph, memory)
        self.notes = {row: partial(self._note, arrays) for row, arrays in made.items()}  # behind these rows
        self._kept = [(memory.array(i), np.empty_like(memory.array(i))) for i in early]
        self._is_finite = True

    def _note(self, arrays: Sequence[Array]) -> None:
        self._is_finite = self._is_finite and all(map(is_finite, arrays))

    def keep(self) -> None:
        """Before a step: what it updates early is kept."""
        self._is_finite = True
        for array, kept in self._kept:
            kept[...] = array

    def __call__(self) -> None:
        """Go on, or raise GivenUp, as all other ranks do."""
        if self._is_any(not self._is_finite):
            raise GivenUp

    def give_up(self, program: RankProgram) -> None:
        """What is left of a step that is given up: waits, messages, copies and folds; then what was kept."""
        first = program.roles.index(GUARD) + 1
        for call, row, role in zip(program.calls[first:], program.rows[first:], program.roles[first:], strict=True):
            if role != REPLAY and (role != "run" or self._graph.kind[row] != Kind.POINT):
                call()
        for array, kept in self._kept:
            array[...] = kept


def find_guarded(graph: TaskGraph, memory: Memory) -> tuple[int, dict[int, list[Array]], list[int]]:
    """The row before which all ranks agree; of this rank, what rows make of loss and gradients, and instances to keep.

    It is looked at as soon as it is made: later its memory may be another's, or hold what is on its way to this rank.

    Raises:
        ValueError: a parameter is updated before all gradients are there.
    """
    first, makers, checked, early = _first_update(graph)
    found: dict[int, list[Array]] = {}
    for row in makers:
        made = [(i, rect) for i, rect, privilege in graph.args(row) if i in checked and privilege != Privilege.READ]
        floating = [(i, rect) for i, rect in made if graph.regions[int(graph.instance_region[i])].is_floating]
        if floating and int(graph.device[row]) in memory.own:
            found[row] = [memory.view(i, rect) for i, rect in floating]
    homes = [i for name in early for i, _ in graph.homes[name] if int(graph.instance_device[i]) in memory.own]
    return first, found, list(dict.fromkeys(homes))


def _first_update(graph: TaskGraph) -> tuple[int, list[int], set[int], list[str]]:
    """The row behind all gradients; rows that make them or the loss, and in which instances; regions updated before."""
    row = np.repeat(np.arange(len(graph)), np.diff(graph.arg_ptr))
    instance, privilege = graph.arg_instance, graph.arg_privilege
    lasts = np.zeros(len(graph.instance_region) + 1, np.bool_)
    lasts[[i for homes in graph.homes.values() for i, _ in homes]] = True
    changes = np.isin(privilege, (Privilege.READ_WRITE, Privilege.REDUCE))
    updates = (graph.kind[row] == Kind.POINT) & lasts[instance] & changes
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
    return last + 1, sorted(set(row[made].tolist())), needed, sorted(names)
