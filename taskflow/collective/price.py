"""What collectives cost, and which algorithm carries one out: one pass over its messages on the links of its group.

The pass sees the rows that `execute.expand` makes of the messages. Each is a copy, which occupies the streams between
its two members; one that is added arrives in scratch memory, and a fold adds it. All follow the start rule.

An algorithm is left out without a pass where its busiest stream alone takes longer than another one takes in all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.collective.algorithms import ALGORITHMS, serving
from taskflow.collective.group import Group, group_of
from taskflow.core.columns import Array
from taskflow.core.compiling import inlined, njit
from taskflow.core.start_rule import occupy, start_of
from taskflow.machine import MachineModel
from taskflow.tasks import exchange
from taskflow.tasks.steps import Messages, messages_of
from taskflow.tasks.streams import StreamTable
from taskflow.tasks.task_graph import COLLECTIVES, TaskGraph

MOST = 1 << 12  # groups that are remembered, and models of groups


class CollectiveCosts:
    """Seconds and algorithms of collectives on one machine, each found once."""

    def __init__(self, machine: MachineModel) -> None:
        self.machine = machine
        self._table = StreamTable(machine)
        self._known: dict[tuple[str, tuple[int, ...], int, str | None], tuple[float, str]] = {}
        self._models: dict[tuple[int, ...], GroupPrices] = {}
        self._alike: dict[tuple[bytes, ...], GroupPrices] = {}

    def seconds(self, task_graph: TaskGraph, rows: Array) -> Array:
        """Seconds of collective rows."""
        names = [task_graph.ways[k].algorithm if k >= 0 else None for k in task_graph.algorithm[rows].tolist()]
        found = zip(collectives_of(task_graph, rows), names, strict=True)
        return np.array([self.choose(*each, algorithm)[0] for each, algorithm in found])

    def choose(
        self, name: str, group: tuple[int, ...], moved_bytes: int, algorithm: str | None = None
    ) -> tuple[float, str]:
        """The seconds of the collective `name` in `group` (by host and number), and its algorithm.

        Args:
            name: of `COLLECTIVES`.
            group: its devices.
            moved_bytes: what it moves in all.
            algorithm: the one that it has; else the machine's, or the fastest.
        """
        key = (name, group, moved_bytes, algorithm)
        if key not in self._known:
            named = algorithm or self.machine.collectives.get(name)
            self._known[key] = self.prices(group).choose(name, each_bytes(name, group, moved_bytes), named)
        return self._known[key]

    def messages(self, name: str, group: tuple[int, ...], moved_bytes: int, algorithm: str) -> Messages:
        """What an algorithm sends for it."""
        return self.prices(group).messages(name, algorithm, each_bytes(name, group, moved_bytes))

    def prices(self, group: tuple[int, ...]) -> GroupPrices:
        """The prices of a group, which it shares with those that look alike."""
        if group not in self._models:
            if len(self._models) >= MOST:
                self._known, self._models, self._alike = {}, {}, {}
            model = group_of(self.machine, self._table, group)
            self._models[group] = self._alike.setdefault(model.key, GroupPrices(model))
        return self._models[group]


def each_bytes(name: str, group: tuple[int, ...], moved_bytes: int) -> float:
    """Bytes of what all get or have, of a collective that moves so many in all."""
    return moved_bytes / ((2 if name == "all-reduce" else 1) * (len(group) - 1))


def collectives_of(task_graph: TaskGraph, rows: Array) -> list[tuple[str, tuple[int, ...], int]]:
    """Name, group and bytes in all of collective rows."""
    groups = [task_graph.groups.devices_of(g) for g in range(len(task_graph.groups))]
    number = -2 - task_graph.streams[rows, 0]
    columns = (c.tolist() for c in (task_graph.collective[rows], number, task_graph.bytes[rows]))
    return [(COLLECTIVES[name], groups[g], size) for name, g, size in zip(*columns, strict=True)]


class GroupPrices:
    """What every algorithm takes in a group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._known: dict[tuple[str, str, int], _Work] = {}
        self._choices: dict[tuple[str, float, str | None], tuple[float, str]] = {}

    def choose(self, name: str, size: float, algorithm: str | None = None) -> tuple[float, str]:
        """Seconds of a collective of `size` bytes, and the best algorithm; or the one given, if it serves."""
        if (name, size, algorithm) not in self._choices:
            able = serving(name)
            able = (algorithm,) if algorithm in able else able
            bounds = sorted((self.bound(name, each, size), k, each) for k, each in enumerate(able))
            best = (np.inf, able[0])
            for bound, _, each in bounds:
                if bound < best[0]:
                    best = min(best, (self.seconds(name, each, size), each), key=lambda found: found[0])
            self._choices[name, size, algorithm] = best
        return self._choices[name, size, algorithm]

    def seconds(self, name: str, algorithm: str, size: float) -> float:
        """Seconds of one algorithm, on links that nothing else occupies."""
        work, g = self._work(name, algorithm, size), self.group
        pieces = len(work.messages.owner)
        rates = g.streams, g.latency, g.byte_seconds, g.doors, g.folding, g.fold_seconds, g.fold_byte_seconds
        return float(_pass(tuple(work.messages[1:]), rates, pieces, size / pieces, len(work.fixed)))

    def bound(self, name: str, algorithm: str, size: float) -> float:
        """What its busiest stream takes, at least."""
        work = self._work(name, algorithm, size)
        return float((work.fixed + work.per_byte * size).max(initial=0.0)) * (1 - 1e-9)

    def messages(self, name: str, algorithm: str, size: float) -> Messages:
        """The messages of one algorithm; of few bytes, any number can arrive at once."""
        return self._work(name, algorithm, size).messages

    def _work(self, name: str, algorithm: str, size: float) -> _Work:
        parts = self.group.count if name == "reduce-scatter" or size > exchange.SMALL_BYTES else 1
        key = (name, algorithm, parts)
        if key not in self._known:
            steps = ALGORITHMS[algorithm].steps(name, self.group)
            self._known[key] = _work_of(messages_of(name, steps, parts), self.group)
        return self._known[key]


class _Work(NamedTuple):
    """Messages, and what they take of every stream: a fixed part, and for each byte of the collective."""

    messages: Messages
    fixed: Array
    per_byte: Array


def _work_of(messages: Messages, g: Group) -> _Work:
    owner, source, target, first, last, adds = messages
    share, count = (last - first) / len(owner), int(max(g.streams.max(), g.folding.max())) + 1
    fixed, per_byte = np.zeros(count + 1), np.zeros(count + 1)  # the last one for none
    streams = g.streams[source, target]
    np.add.at(fixed, streams, g.latency[source, target][:, None])
    np.add.at(per_byte, streams, (g.byte_seconds[source, target] * share)[:, None])
    np.add.at(fixed, g.folding[target], np.where(adds, g.fold_seconds[target], 0.0))
    np.add.at(per_byte, g.folding[target], np.where(adds, g.fold_byte_seconds[target] * share, 0.0))
    return _Work(messages, fixed[:-1], per_byte[:-1])


@njit
def _pass(columns: tuple[Array, ...], rates: tuple[Array, ...], pieces: int, piece_bytes: float, streams: int) -> float:
    """The end of the last row.

    Args:
        columns: of `Messages`, from `source` on.
        rates: the columns of `Group` that say what messages and folds take.
        pieces, piece_bytes: how many, and of one.
        streams: how many there are.
    """
    source, target, first, last, adds = columns
    streams_of, latency, byte_seconds, doors, folding, fold_seconds, fold_byte_seconds = rates
    members, end = len(latency), 0.0
    ready, read = np.zeros((members, pieces)), np.zeros((members, pieces))
    is_empty, free = np.zeros((members, doors.max() + 1)), np.zeros(streams)
    for k in range(len(source)):
        s, t, size = source[k], target[k], (last[k] - first[k]) * piece_bytes
        done = _latest(0.0, ready[s, first[k] : last[k]])
        written = _latest(_latest(0.0, ready[t, first[k] : last[k]]), read[t, first[k] : last[k]])
        begin = start_of(max(done, is_empty[t, doors[s, t]] if adds[k] else written), free, streams_of[s, t])
        arrived = begin + latency[s, t] + size * byte_seconds[s, t]
        occupy(free, streams_of[s, t], arrived)
        end = arrived
        if adds[k]:
            begin = max(arrived, written, free[folding[t]])
            end = begin + fold_seconds[t] + size * fold_byte_seconds[t]
            is_empty[t, doors[s, t]] = free[folding[t]] = end
        for piece in range(first[k], last[k]):
            read[s, piece] = max(read[s, piece], arrived)
            ready[t, piece] = end
    total = 0.0
    for member in range(members):
        total = max(total, _latest(0.0, ready[member]))
    return total


@inlined
def _latest(moment: float, times: Array) -> float:
    for time in times:
        moment = max(moment, time)
    return moment
