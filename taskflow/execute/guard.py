"""The guard of a step: where the loss or a gradient is not finite, the step is given up and changes nothing.

Takes the rows that run; gives the row before which all ranks agree whether they go on, and what is undone if they do
not. Before that row every gradient is there, behind it no point runs in a step that is given up: copies and folds do,
since ranks count on each other's messages, and carry what is there already. What is updated before gets the values back
that it had: the running statistics of a batch norm; parameters, too, where a plan updates some before all gradients are
there; and all that earlier ones of repeated steps update.

A value is looked at as soon as it is made: later its memory may be another's, or hold what is on its way to this rank.
Rejected: a flag in the graph that every update reads, as loss scaling has it. It needs another pass over the states
that are updated early, knows no operators of users, and lets no GPU replay fewer rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import isfinite

import numpy as np

from taskflow.comm.transport import Transport
from taskflow.core.dtypes import is_finite
from taskflow.core.random import Constant, Distribution, Values
from taskflow.core.text import is_loss, is_norm
from taskflow.execute.memory import Memory
from taskflow.execute.program import GUARD, REPLAY, RankProgram
from taskflow.graph.graph import LogicalRegion
from taskflow.graph.phases import Phase
from taskflow.machine.hostmemory import BACK
from taskflow.tasks.everywhere import fetched
from taskflow.tasks.task_graph import Array, Kind, Privilege, TaskGraph


class GivenUp(Exception):
    """A step ends here, on all ranks."""


@dataclass(frozen=True)
class Guarded:
    """What a guard looks at and keeps; equal on all ranks.

    Attributes:
        row: the one before which all ranks agree, at one place among the rows of all; every gradient is made before.
        names: what is looked at, for messages, in the order in which it is made.
        numbers: by which row of all rows each is made first.
        checked: row that makes some of it -> instances, and the number of the name of each.
        early: persistent regions that are updated before `row`, or that copies behind it bring home from elsewhere.
        late: the rows behind that are left out: points, and folds into persistent regions.
        updates: those of them that update persistent regions.
    """

    row: int
    names: Sequence[str]
    numbers: Sequence[int]
    checked: Mapping[int, Mapping[int, int]]
    early: Sequence[str]
    late: frozenset[int]
    updates: frozenset[int]

    def arrays(
        self, graph: TaskGraph, memory: Memory, is_apart: bool = False
    ) -> dict[int, list[tuple[Array, int]]]:
        """Row -> what it makes on this rank, and the number of the name of each.

        A collective of several ranks makes something on each where memory `is_apart`; else one of them looks at all.
        """
        arrays: dict[int, list[tuple[Array, int]]] = {}
        for row, numbers in self.checked.items():
            made = [(i, rect) for i, rect, p in graph.args(row) if p != Privilege.READ]
            made = [(i, rect) for i, rect in made if i in numbers]
            if is_apart:
                made = [
                    (i, rect) for i, rect in made if int(graph.instance_device[i]) in memory.devices
                ]
            if made if is_apart else int(graph.device[row]) in memory.devices:
                arrays[row] = [(memory.view(i, rect), numbers[i]) for i, rect in made]
        return arrays

    def kept(self, graph: TaskGraph, memory: Memory) -> list[int]:
        """The instances on this rank of what is updated early."""
        homes = [i for name in self.early for i, _ in graph.homes[name]]
        return list(
            dict.fromkeys(i for i in homes if int(graph.instance_device[i]) in memory.devices)
        )


class StepGuard(ABC):
    """A call of a program that goes on, or raises GivenUp as all other ranks do."""

    is_kept = has_agreed = False

    @property
    def can_undo(self) -> bool:
        """Whether all that the step has changed is kept."""
        return self.is_kept and not self.has_agreed

    def __init__(self, guarded: Guarded, is_any: Callable[[bool], bool]) -> None:
        self.guarded = guarded
        self._is_any = is_any

    @property
    @abstractmethod
    def bad(self) -> list[int]:
        """The numbers of what this rank has seen that is not finite."""

    def keep(self) -> None:  # noqa: B027 (the program of a GPU does so)
        """Before a step: what it updates early is kept."""

    def give_up(self, program: RankProgram) -> None:  # noqa: B027 (the program of a GPU has done it)
        """What is left of a step that is given up."""

    def undo(self, program: RankProgram, position: int) -> None:  # noqa: B027 (what a GPU was told to do it does)
        """After an error in call `position` of a step: what it has changed is undone, while it can be."""

    def __call__(self) -> None:
        """In a step: go on, or not."""
        self.has_agreed = True
        if self._is_any(bool(self.bad)):
            raise GivenUp


class UpdateGuard(StepGuard):
    """That of devices whose memory is the host's; `is_any` says of a flag whether it is true on any rank."""

    @staticmethod
    def of(graph: TaskGraph, memory: Memory, transport: Transport) -> UpdateGuard | None:
        """None where a step changes nothing; all ranks call it together."""
        guarded = find_guarded(graph, lambda last: max(transport.gather(last)))
        return None if guarded is None else UpdateGuard(guarded, graph, memory, transport.is_any)

    def __init__(
        self, guarded: Guarded, graph: TaskGraph, memory: Memory, is_any: Callable[[bool], bool]
    ) -> None:
        super().__init__(guarded, is_any)
        self.row = guarded.row
        made = guarded.arrays(graph, memory)
        self.notes = {
            row: partial(self._note, arrays) for row, arrays in made.items()
        }  # behind these rows
        arrays = (memory.array(i) for i in guarded.kept(graph, memory))
        self._kept = [(array, np.empty_like(array)) for array in arrays]
        self._bad = set[int]()

    def _note(self, arrays: Sequence[tuple[Array, int]]) -> None:
        for array, number in arrays:
            if not is_finite(array):
                self._bad.add(number)

    def keep(self) -> None:
        """See `StepGuard.keep`."""
        self.is_kept = self.has_agreed = False
        self._bad.clear()
        for array, kept in self._kept:
            kept[...] = array
        self.is_kept = True

    def undo(self, program: RankProgram, position: int) -> None:
        """See `StepGuard.undo`."""
        calls = zip(program.rows[: max(position, 0)], program.roles, strict=False)
        done = [row for row, role in calls if role == "run"]
        if self.is_kept and self.guarded.updates.isdisjoint(done):
            for array, kept in self._kept:
                array[...] = kept

    @property
    def bad(self) -> list[int]:
        """See `StepGuard.bad`."""
        return sorted(self._bad)

    def give_up(self, program: RankProgram) -> None:
        """Waits, messages, copies and folds; then what was kept."""
        first = program.roles.index(GUARD) + 1
        late = self.guarded.late
        for call, row, role in zip(
            program.calls[first:], program.rows[first:], program.roles[first:], strict=True
        ):
            if role != REPLAY and (role != "run" or row not in late):
                call()
        for array, kept in self._kept:
            array[...] = kept


def check_finite(
    where: str, values: Mapping[str, Array], guard: StepGuard | None, transport: Transport
) -> None:
    """Refuse outputs of which a loss is not finite, or a step that `guard` gave up; all ranks call it.

    Raises:
        FloatingPointError: what is not finite.
    """
    undone = "; nothing has changed" if guard else ""
    for name in filter(is_loss, values):
        if not np.all(np.isfinite(values[name])):
            raise FloatingPointError(f"{where}: the {name} is {values[name]}{undone}")
    if guard is not None:
        guarded = guard.guarded
        bad = [(guarded.numbers[number], guarded.names[number]) for number in guard.bad]
        _, name = min(chain.from_iterable(transport.gather(bad)))
        raise FloatingPointError(f"{where}: {name} is not finite{undone}")


def find_guarded(graph: TaskGraph, most: Callable[[int], int] = int) -> Guarded | None:
    """Of the rows that run; None where no step has anything to guard.

    Args:
        graph: the rows of all devices, or of this host's.
        most: the largest of a number that every rank gives.
    """
    if not any(graph.regions[n.args[k]].is_persistent for n in graph.launches for k in n.writes):
        return None
    table = _Arguments.of(graph)
    updaters = _updaters(graph, table)
    names = _wanted(graph, table, updaters)
    made = (
        table.is_made & np.isin(table.instance, list(names)) & ~_behind(graph, updaters)[table.row]
    )
    latest = int(table.row[made].max(initial=-1))
    latest = most(int(graph.numbers[latest]) if latest >= 0 else -1)
    last = int(np.searchsorted(graph.numbers, latest, side="right")) - 1
    early = sorted(
        {*table.region[table.updates & (table.row <= last)].tolist(), *_carried(graph, last)}
    )
    looked_at = [*np.flatnonzero(made).tolist(), *_early_states(graph, table, early, last)]
    named = [(_name(graph, table, names, k), k) for k in sorted(looked_at)]
    order = list(dict(named))
    number = {name: k for k, name in enumerate(order)}
    checked: dict[int, dict[int, int]] = {}
    for k in looked_at:
        if graph.regions[int(table.region[k])].is_floating:
            of_row = checked.setdefault(int(table.row[k]), {})
            of_row[int(table.instance[k])] = number[_name(graph, table, names, k)]
    is_late = (table.row > last) & (table.updates | (graph.kind[table.row] == Kind.POINT))
    late, updates = (
        frozenset(table.row[which].tolist()) for which in (is_late, is_late & table.updates)
    )
    first = {name: graph.numbers[table.row[k]] for name, k in reversed(named)}
    numbers = [int(first[name]) for name in order]
    return Guarded(
        last + 1,
        order,
        numbers,
        checked,
        sorted(graph.regions[k].name for k in early),
        late,
        updates,
    )


@dataclass(frozen=True)
class _Arguments:
    """The arguments of all rows as columns: row, instance, region; and which are persistent, updated, or made."""

    row: Array
    instance: Array
    region: Array
    is_persistent: Array
    updates: Array
    is_made: Array

    @staticmethod
    def of(graph: TaskGraph) -> _Arguments:
        row = graph.arg_row
        persistent = np.array([region.is_persistent for region in graph.regions], np.bool_)
        region = graph.instance_region[graph.arg_instance]
        is_there = graph.arg_instance >= 0
        is_read = graph.arg_privilege == Privilege.READ
        is_persistent = persistent[region] & is_there
        is_copy = graph.kind[row] == Kind.COPY
        updates = is_persistent & ~is_read & ~is_copy
        return _Arguments(
            row, graph.arg_instance, region, is_persistent, updates, is_there & ~is_read & ~is_copy
        )


def _updaters(graph: TaskGraph, table: _Arguments) -> dict[int, str]:
    """The points that update a parameter, or another state by what the backward pass made -> what they update it by.

    What lies in the memory of a host is updated where it was brought; the point that takes it back is no update.
    """
    updaters: dict[int, str] = {}
    brought = _brought(graph)
    is_update = table.updates | (np.isin(table.region, list(brought)) & table.is_made)
    is_update &= (graph.kind == Kind.POINT)[table.row] & (graph.crossing < 0)[table.row]
    for k in np.flatnonzero(is_update).tolist():
        row = int(table.row[k])
        number = int(table.region[k])
        region = brought.get(number, graph.regions[number])
        if region.role == "parameter":
            updaters[row] = f"the gradient of '{region.name}'"
        elif graph.launches[int(graph.launch[row])].phase != Phase.FORWARD:
            updaters.setdefault(row, f"what updates '{region.name}'")
    return updaters


def _brought(graph: TaskGraph) -> dict[int, LogicalRegion]:
    """What brings persistent regions out of the memory of hosts makes -> the region."""
    return {
        launch.args[-1]: graph.regions[launch.args[0]]
        for launch in graph.launches
        if launch.crossing == BACK and graph.regions[launch.args[0]].is_persistent
    }


def _wanted(graph: TaskGraph, table: _Arguments, updaters: Mapping[int, str]) -> dict[int, str]:
    """The instances of the loss, and of what `updaters` read -> their names."""
    names: dict[int, str] = {}
    is_read = (graph.arg_privilege == Privilege.READ) & (table.instance >= 0) & ~table.is_persistent
    for k in np.flatnonzero(is_read & np.isin(table.row, list(updaters))).tolist():
        names.setdefault(int(table.instance[k]), updaters[int(table.row[k])])
    is_scaled = any(
        region.name == "loss_scale" for region in graph.regions
    )  # then a norm may overflow
    for name, parts in graph.fetches.items():
        if is_loss(name) or (is_norm(name) and not is_scaled):
            names |= {i: f"the {name}" for _, i, _ in parts}
    if not graph.is_complete:
        names |= _wanted_elsewhere(graph, is_scaled)
    for copy in np.flatnonzero(graph.kind == Kind.COPY)[
        ::-1
    ].tolist():  # what moves is known where it is made
        (source, _, _), (target, _, _) = graph.args(copy)
        if target in names and not graph.regions[int(graph.instance_region[source])].is_persistent:
            names.setdefault(source, names[target])
    return names


def _wanted_elsewhere(graph: TaskGraph, is_scaled: bool) -> dict[int, str]:
    """The instances on other hosts of what any row there may want, by their regions -> names."""
    regions = dict[int, str]()
    for name in graph.fetches:
        if is_loss(name) or (is_norm(name) and not is_scaled):
            regions[fetched(graph, name)[0]] = f"the {name}"
    for launch in graph.launches:
        updated = [graph.regions[launch.args[k]] for k in launch.writes]
        name = next((r.name for r in updated if r.role == "parameter"), "")
        if name or (any(r.is_persistent for r in updated) and launch.phase != Phase.FORWARD):
            what = f"the gradient of '{name}'" if name else f"what updates '{updated[0].name}'"
            read = {*launch.args} - {launch.args[k] for k in launch.writes}
            regions |= dict.fromkeys((k for k in read if not graph.regions[k].is_persistent), what)
    used = np.unique(graph.arg_instance[graph.arg_instance >= 0])
    is_there = ~np.isin(graph.instance_device[used], graph.devices or ())
    used = used[is_there & ~graph.instance_partial[used]]
    numbers = zip(used.tolist(), graph.instance_region[used].tolist(), strict=True)
    return {i: regions[k] for i, k in numbers if k in regions}


def _behind(graph: TaskGraph, updaters: Mapping[int, str]) -> Array:
    """Which rows are `updaters`, or read what one of the same step has made."""
    steps = np.full(len(graph), -1)
    points = np.flatnonzero(graph.launch >= 0)  # -1: of any step
    steps[points] = np.array([launch.step for launch in graph.launches], np.int64)[
        graph.launch[points]
    ]
    behind = np.full(len(graph), -1)  # the step behind whose updates a row comes
    behind[list(updaters)] = steps[list(updaters)]
    made: dict[int, int] = {}  # instance -> that of the row that made it
    begins = graph.arg_ptr.tolist()
    instances = graph.arg_instance.tolist()
    privileges = graph.arg_privilege.tolist()
    for row in range(min(updaters, default=len(graph)), len(graph)):
        span = range(begins[row], begins[row + 1])
        read = max(
            (made.get(instances[k], -1) for k in span if privileges[k] != Privilege.WRITE),
            default=-1,
        )
        if read >= 0 and steps[row] in (-1, read):
            behind[row] = read
        if behind[row] >= 0:
            made.update(
                (instances[k], int(behind[row])) for k in span if privileges[k] != Privilege.READ
            )
    is_behind: Array = behind >= 0
    return is_behind


def _carried(graph: TaskGraph, last: int) -> set[int]:
    """The regions of which copies behind a row bring home what lay elsewhere, such as the sum of partial results."""
    homes = {i for i, _ in chain.from_iterable(graph.homes.values())}
    is_late = (graph.kind == Kind.COPY) & (np.arange(len(graph)) > last)
    pairs = (graph.args(row) for row in np.flatnonzero(is_late).tolist())
    return {
        int(graph.instance_region[target])
        for (source, _, _), (target, _, _) in pairs
        if target in homes and source not in homes
    }


def _early_states(
    graph: TaskGraph, table: _Arguments, early: Sequence[int], last: int
) -> list[int]:
    """The arguments by which forward operators update states, unless these begin as infinite numbers."""
    states = [k for k in early if graph.regions[k].role == "state" and graph.regions[k].is_floating]
    is_one = np.isin(table.region, [k for k in states if _begins_finite(graph.regions[k].init)])
    updating = np.flatnonzero(
        is_one & table.updates & (graph.kind[table.row] == Kind.POINT) & (table.row <= last)
    )
    launches = graph.launch[table.row]
    return [k for k in updating.tolist() if graph.launches[int(launches[k])].phase == Phase.FORWARD]


def _begins_finite(init: Distribution) -> bool:
    if isinstance(init, Values):
        return bool(np.isfinite(init.array).all())
    return not isinstance(init, Constant) or isfinite(init.value)


def _name(graph: TaskGraph, table: _Arguments, names: Mapping[int, str], k: int) -> str:
    """Of what argument `k` of all makes."""
    return names.get(int(table.instance[k]), f"'{graph.regions[int(table.region[k])].name}'")
