"""Exhaustive search: the optimum of a small space, with a proof.

Branch and bound: the operators that a strategy names are decided one after the other, in program order. A set of
strategies that agree on what is decided is left out when a lower bound of all of them is not below the best strategy
known. The bound (`boundpass`) is a simulation of less than what will run: decided points on their devices in
issue order, the movement between decided operators, and for undecided ones the least that any configuration takes.
Since streams are in-order queues, leaving out rows or making them shorter makes nothing end later, so the bound holds
for the simulator as it is; what cannot be left out is judged by it.

Where devices are equal, strategies that differ only in the names of devices come in orbits. Of each orbit one strategy
is followed; where it is to be judged, all of its orbit is, since the order of rows may depend on the names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.searching.arrivals import movements
from taskflow.searching.bound import Splits, least_seconds, whole_seconds
from taskflow.searching.judge import Judge
from taskflow.searching.space import Space, count_strategies
from taskflow.searching.tables import Tables
from taskflow.strategy.strategy import ParallelConfig, Strategy
from taskflow.tasks.streams import StreamTable
from taskflow.tasks.task_graph import Array

MOST_RENAMED = 5  # devices; of more, no names are exchanged (their permutations are too many)
ROUNDING = 1e-9  # relative: sums of the same seconds in another order


@dataclass(frozen=True)
class Optimum:
    """What an exhaustive search proved.

    Attributes:
        strategy, seconds: a fastest strategy of the space and its predicted time of one step.
        strategies: number of strategies in the space.
        judged: number of them that were simulated; the others are in sets that were left out.
        visited: number of partly decided strategies that were bounded.
        pruned: number of sets of strategies that were left out.
        is_proven: False if the search was stopped before it was through.
    """

    strategy: Strategy
    seconds: float
    strategies: int
    judged: int
    visited: int
    pruned: int
    is_proven: bool

    def __str__(self) -> str:
        what = "proven optimal" if self.is_proven else "best of those seen"
        return (
            f"{self.seconds * 1e3:.3f} ms a step, {what} among {self.strategies:.4g} strategies: "
            f"{self.judged} judged, {self.visited} sets bounded, {self.pruned} left out"
        )


def search_exhaustively(
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    space: Space | None = None,
    known: Sequence[Strategy] = (),
    most_visits: int | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Optimum:
    """The fastest strategy of a space that is small enough.

    Args:
        graph, machine, costs: as for `taskflow.search`.
        space: default: `Space(graph, machine)`.
        known: strategies of the space that are good already, so that more is left out.
        most_visits: bound no more sets than this; what is returned is then not proven.
        progress: called with (sets bounded, best seconds).

    Raises:
        ValueError: a known strategy is not in the space, no strategy fits into memory, or the costs prove nothing:
            measured ones, where half a task may take less than half of its time.
    """
    if not costs.is_shared_out:
        raise ValueError("exhaustive search: its proof needs costs of which a part r of a task takes at least r")
    space = space or Space(graph, machine)
    run = _Exhaustive(space, Judge(graph, machine, costs), costs, most_visits, progress or (lambda visited, best: None))
    for strategy in known:
        for name in space.names:
            if space.find(name, strategy[name]) is None:
                raise ValueError(f"exhaustive search: '{name}' is {strategy[name]}, which is not in the space")
        run.judge_one({name: strategy[name] for name in space.names})
    run.visit(0, run.symmetries)
    if not math.isfinite(run.seconds):
        raise ValueError(f"exhaustive search: no strategy fits into memory; {run.judge.last_refusal}")
    best = Strategy.of_graph(graph, run.best)
    count = count_strategies(space)
    return Optimum(best, run.seconds, count, run.judged, run.visited, run.pruned, not run.is_stopped)


class _Exhaustive:
    """Depth first, the most promising configuration first."""

    def __init__(
        self,
        space: Space,
        judge: Judge,
        costs: CostModel,
        most_visits: int | None,
        progress: Callable[[int, float], None],
    ) -> None:
        self.space, self.judge, self.progress = space, judge, progress
        self.most_visits = math.inf if most_visits is None else most_visits
        self.bounds = Bounds(Tables(space, costs))
        self.configs = self.bounds.tables.configs
        self.symmetries = list(_symmetries(space, self.configs))
        self.chosen = np.full(len(space.names), -1, np.int64)
        self.best: Mapping[str, ParallelConfig] = {}
        self.seconds, self.judged, self.visited, self.pruned = math.inf, 0, 0, 0

    @property
    def is_stopped(self) -> bool:
        return self.visited >= self.most_visits

    def visit(self, leader: int, symmetries: Sequence[Symmetry]) -> None:
        """Go through all strategies that agree with what is chosen for the leaders before this one."""
        if leader == len(self.chosen):
            self._judge_orbit()
            return
        bounds = self.bounds.of_children(self.chosen, leader)
        distinct = [c for c in range(len(bounds)) if all(c <= s[leader][c] for s in symmetries)]
        self.visited += len(distinct)
        self.progress(self.visited, self.seconds)
        for c in sorted(distinct, key=lambda c: (bounds[c], c)):
            if self.is_stopped:
                return
            if bounds[c] * (1 - ROUNDING) >= self.seconds:
                self.pruned += 1
                continue
            self.chosen[leader] = c
            self.visit(leader + 1, [s for s in symmetries if s[leader][c] == c])
        self.chosen[leader] = -1

    def _judge_orbit(self) -> None:
        orbit = {tuple(s[k][c] for k, c in enumerate(self.chosen.tolist())) for s in self.symmetries}
        for numbers in sorted(orbit):
            self.judge_one({n: self.configs[k][numbers[k]] for k, n in enumerate(self.space.names)})

    def judge_one(self, configs: Mapping[str, ParallelConfig]) -> None:
        """Simulate one strategy."""
        self.judged += 1
        seconds = self.judge.seconds(Strategy(configs), self.seconds)
        if seconds < self.seconds:
            self.best, self.seconds = configs, seconds


class Bounds:
    """Lower bounds of partly decided strategies; -1 stands for undecided."""

    def __init__(self, tables: Tables) -> None:
        self.tables, space = tables, tables.space
        self._counts = [len(configs) for configs in tables.configs]
        splits = [Splits(op, space) for op in tables.operators]
        whole = whole_seconds(space.graph, space.machine, tables.costs)
        whole *= np.array([split.work for split in splits])[:, None]
        self._arguments: tuple[Any, ...] = (
            np.array(tables.family, np.int64),
            _starts([len(each) for each in tables.points])[:-1],
            np.concatenate(tables.seconds),
            np.concatenate(tables.device),
            StreamTable(space.machine).one_thread,
            *self._edges(splits),
            *self._movements(),
            least_seconds(splits, whole, space.machine, tables.costs),
            whole.min(axis=1),
            np.array([float(split.most) for split in splits]),
            self._floor(),
        )

    def _edges(self, splits: Sequence[Splits]) -> tuple[Array, ...]:
        edges, operators = self.tables.edges, len(self.tables.operators)
        delays = [self.tables.delays(edge) for edge in edges]
        return (
            np.array([e.writer for e in edges], np.int64),
            np.searchsorted([e.reader for e in edges], np.arange(operators + 1)),
            np.array([splits[e.reader].reads[e.argument] > 0 for e in edges], np.bool_),
            _starts([d.size for d in delays])[:-1],
            np.array([d.shape[1] for d in delays], np.int64),
            np.concatenate([np.zeros(0), *(d.reshape(-1) for d in delays)]),
        )

    def _movements(self) -> tuple[Array, ...]:
        edges, operators = self.tables.edges, len(self.tables.operators)
        found = movements(self.tables)
        move_of = {edge: k for k, movement in enumerate(found) for edge in movement.waits}
        waits = [found[move_of[e]].waits[e] if e in move_of else np.zeros(0) for e in edges]
        return (
            np.searchsorted([m.writer for m in found], np.arange(operators + 1)),
            np.array([m.other for m in found], np.int64),
            np.array([m.seconds.shape[1] for m in found], np.int64),
            _starts([m.seconds.size for m in found])[:-1],
            np.concatenate([np.zeros(0), *(m.seconds.reshape(-1) for m in found)]),
            np.array([move_of.get(e, -1) for e in edges], np.int64),
            _starts([w.size for w in waits])[:-1],
            np.concatenate([np.zeros(0), *(w.reshape(-1) for w in waits)]),
        )

    def _floor(self) -> Array:
        """(operators, devices): the least seconds of a device that an operator takes, whatever its configuration."""
        count = len(self.tables.machine.devices)
        rows = zip(self.tables.device, self.tables.seconds, strict=True)
        busy = [[np.bincount(d + 1, s, count + 1)[1:] for d, s in zip(*each, strict=True)] for each in rows]
        return np.array([np.min(each, axis=0) for each in busy])

    def of_children(self, chosen: Array, leader: int) -> Array:
        """For every configuration of `leader`, a bound of the strategies that agree with `chosen` and it."""
        from taskflow.searching import boundpass  # numba: imported on first use

        bound_children: Callable[..., None] = boundpass.bound_children
        out = np.empty(self._counts[leader])
        bound_children(chosen, leader, *self._arguments, out)
        return out


def _starts(lengths: Sequence[int]) -> Array:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


Symmetry = Sequence[Sequence[int]]  # per leader, per configuration: the number of the renamed one


def _symmetries(space: Space, configs: Sequence[Sequence[ParallelConfig]]) -> Iterator[Symmetry]:
    """The ways to rename devices that change neither the machine nor the space."""
    numbers = [{config: k for k, config in enumerate(each)} for each in configs]
    count = len(space.machine.devices)
    names = permutations(range(count)) if count <= MOST_RENAMED else iter([tuple(range(count))])
    for name in names:
        if not _is_same_machine(space.machine, name):
            continue
        renamed = [[_renamed(config, name) for config in each] for each in configs]
        if all(config in known for each, known in zip(renamed, numbers, strict=True) for config in each):
            yield [[known[config] for config in each] for each, known in zip(renamed, numbers, strict=True)]


def _renamed(config: ParallelConfig, name: Sequence[int]) -> ParallelConfig:
    return ParallelConfig(dict(config.degrees), [name[d] for d in config.devices])


def _is_same_machine(machine: MachineModel, name: Sequence[int]) -> bool:
    """Whether renamed devices have the same rates, and the same latency and bandwidth between them."""
    pairs = [(a, b) for a in range(len(name)) for b in range(len(name))]
    return all(machine.devices[a] == machine.devices[b] for a, b in enumerate(name)) and all(
        machine.transfer_seconds(a, b, size) == machine.transfer_seconds(name[a], name[b], size)
        for a, b in pairs
        for size in (0, 1 << 30)
    )
