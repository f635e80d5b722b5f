"""Exhaustive search: the optimum of a small space, with a proof.

Branch and bound: the operators that a strategy names are decided one after the other, in program order. A set of
strategies that agree on what is decided is left out when a lower bound of all of them is not below the best strategy
known. The bound (`boundpass`) is a simulation of less than what will run: decided points on their devices in
issue order, the movement between decided operators, and for undecided ones the least that any configuration takes.
Since streams are in-order queues, leaving out rows or making them shorter makes nothing end later, and links that are
not shared make nothing start later than shared ones. So the bound holds for `simulate`, which judges what is left.

Where devices are equal, strategies that differ only in the names of devices come in orbits. Of each orbit one strategy
is followed; where it is to be judged, all of its orbit is, since the order of rows may depend on the names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.numbers import whole
from taskflow.core.text import in_ms
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.boundpass import bound_children
from taskflow.searching.judge import Judge
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.resimulate import SLACK
from taskflow.searching.space import Space, count_strategies
from taskflow.searching.tables import bound_tables
from taskflow.strategy.strategy import ParallelConfig, Strategy

MOST_RENAMED = 5  # devices; of more, no names are exchanged (their permutations are too many)


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
            f"{in_ms(self.seconds)} a step, {what} among {self.strategies:.4g} strategies: "
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
        raise ValueError(
            "exhaustive search: its proof needs costs of which a part r of a task takes at least r"
        )
    if most_visits is not None:
        most_visits = whole("exhaustive search", "most_visits", most_visits)
    run = _Exhaustive(
        space or Space(graph, machine),
        Judge(graph, machine, costs),
        most_visits,
        progress or (lambda visited, best: None),
    )
    for strategy in known:
        run.judge_known(strategy)
    run.visit(0, run.symmetries)
    if not math.isfinite(run.seconds):
        if not run.refusal:
            raise ValueError(f"exhaustive search: no strategy was judged in {most_visits} visits")
        raise ValueError(f"exhaustive search: no strategy fits into memory; {run.refusal}")
    return Optimum(
        Strategy.of_graph(graph, run.best),
        run.seconds,
        count_strategies(run.space),
        run.judged,
        run.visited,
        run.pruned,
        not run.is_stopped,
    )


class _Exhaustive:
    """Depth first, the most promising configuration first."""

    def __init__(
        self,
        space: Space,
        judge: Judge,
        most_visits: int | None,
        progress: Callable[[int, float], None],
    ) -> None:
        self.space = space
        self.judge = judge
        self.progress = progress
        self.most_visits = math.inf if most_visits is None else most_visits
        self.bounds = Bounds(space, PackedJudge(judge.graph, judge.machine, judge.costs))
        self.configs = [list(space.configs(name)) for name in space.names]
        self.symmetries = list(_symmetries(space, self.configs))
        self.chosen = np.full(len(space.names), -1, np.int64)
        self.best: Mapping[str, ParallelConfig] = {}
        self.seconds = math.inf
        self.judged = 0
        self.visited = 0
        self.pruned = 0
        self.refusal = ""  # what the last strategy that does not fit was short of

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
            if bounds[c] * (1 - SLACK) >= self.seconds:
                self.pruned += 1
                continue
            self.chosen[leader] = c
            self.visit(leader + 1, [s for s in symmetries if s[leader][c] == c])
        self.chosen[leader] = -1

    def _judge_orbit(self) -> None:
        orbit = {
            tuple(s[k][c] for k, c in enumerate(self.chosen.tolist())) for s in self.symmetries
        }
        for numbers in sorted(orbit):
            self.judge_one({n: self.configs[k][numbers[k]] for k, n in enumerate(self.space.names)})

    def judge_known(self, strategy: Strategy) -> None:
        """Simulate a strategy that is given: ValueError if it is not in the space."""
        for name in self.space.names:
            if self.space.find(name, strategy[name]) is None:
                raise ValueError(
                    f"exhaustive search: '{name}' is {strategy[name]}, which is not in the space"
                )
        self.judge_one({name: strategy[name] for name in self.space.names})

    def judge_one(self, configs: Mapping[str, ParallelConfig]) -> None:
        """Simulate one strategy."""
        self.judged += 1
        outcome = self.judge.judge(Plan(Strategy(configs)))
        self.refusal = outcome.shortage or self.refusal
        if outcome.seconds < self.seconds:
            self.best = configs
            self.seconds = outcome.seconds


class Bounds:
    """Lower bounds of partly decided strategies; -1 stands for undecided."""

    def __init__(self, space: Space, judge: PackedJudge) -> None:
        self._sizes = [space.size(name) for name in space.names]
        self._pool = judge.pool
        span = judge.current.timed.span.copy()
        streams = judge.pool.sets.count
        self._given = tuple(bound_tables(space, judge)), span, streams, tuple(judge.layout)

    def of_children(self, chosen: Array, leader: int) -> Array:
        """For every configuration of `leader`, a bound of the strategies that agree with `chosen` and it."""
        out = np.empty(self._sizes[leader])
        pool = self._pool
        set_ptr, stream, hop_ptr, hop = pool.sets.columns
        rows = pool.op_rows.data, set_ptr, stream, np.zeros_like(hop_ptr), hop  # no link is shared
        bound_children(chosen, leader, *self._given, tuple(pool.packed), rows, out)
        return out


Symmetry = Sequence[Sequence[int]]  # per leader, per configuration: the number of the renamed one


def _symmetries(space: Space, configs: Sequence[Sequence[ParallelConfig]]) -> Iterator[Symmetry]:
    """The ways to rename devices that change neither the machine nor the space."""
    count = len(space.machine.devices)
    names = permutations(range(count)) if count <= MOST_RENAMED else [range(count)]
    for name in names:
        if _is_same_machine(space.machine, name):
            symmetry = [_renamed_numbers(options, name) for options in configs]
            if all(symmetry):
                yield symmetry


def _renamed_numbers(configs: Sequence[ParallelConfig], name: Sequence[int]) -> list[int]:
    """The numbers of configurations that have other names of devices; empty: there are no such ones."""
    number_of = {config: k for k, config in enumerate(configs)}
    renamed = [_renamed(config, name) for config in configs]
    if not all(config in number_of for config in renamed):
        return []
    return [number_of[config] for config in renamed]


def _renamed(config: ParallelConfig, name: Sequence[int]) -> ParallelConfig:
    return ParallelConfig(dict(config.degrees), [name[d] for d in config.devices])


def _is_same_machine(machine: MachineModel, name: Sequence[int]) -> bool:
    """Whether renamed devices have the same rates, and the same latency and bandwidth between them."""
    matrices = (machine.latency_seconds, machine.bandwidth)
    order = np.ix_(name, name)
    is_same = all(machine.devices[a] == machine.devices[b] for a, b in enumerate(name))
    return is_same and all(np.array_equal(matrix, matrix[order]) for matrix in matrices)
