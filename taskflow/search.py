"""Search: walk over strategies, judged by the simulator.

Metropolis-Hastings as in FlexFlow (Jia, Zaharia, Aiken, "Beyond data and model parallelism for deep neural networks",
MLSys 2019): propose another configuration for one random operator, accept with probability min(1, exp(beta * gain)).
The gain is relative to the best starting strategy, so that beta has no unit. Proposals are structured: devices are
contiguous, strided or a neighbour's. Needs no GPU and no MPI.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from taskflow.cost import CostModel
from taskflow.graph import Graph
from taskflow.judge import Judge
from taskflow.machine import MachineModel
from taskflow.operator import Operator
from taskflow.rules import data_parallel, leaders, model_parallel, one_weird_trick, random_config, single_device
from taskflow.strategy import ParallelConfig, Strategy, check_config

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        strategy: the best strategy.
        seconds: its predicted time of one step.
        baseline_seconds: start name -> predicted seconds (inf: does not fit into memory).
        history: (proposal number, seconds) of each improvement.
        proposals: number of strategies judged.
    """

    strategy: Strategy
    seconds: float
    baseline_seconds: Mapping[str, float]
    history: tuple[tuple[int, float], ...]
    proposals: int

    def __str__(self) -> str:
        best = min(self.baseline_seconds, key=lambda n: self.baseline_seconds[n])
        gain = self.baseline_seconds[best] / self.seconds
        return (
            f"{self.seconds * 1e3:.3f} ms a step after {self.proposals} proposals, "
            f"{gain:.2f}x as fast as the best start ({best}, {self.baseline_seconds[best] * 1e3:.3f} ms)"
        )


def search(
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    proposals: int = 2000,
    seed: int = 0,
    beta: float = 50.0,
    starts: Mapping[str, Strategy] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> SearchResult:
    """Find a strategy that the simulator predicts to be fast.

    Args:
        graph: with its backward and update operators, so that all of a step is judged.
        machine: the devices and links to use; need not be at hand.
        costs: seconds of every task.
        proposals: budget, shared by the starts.
        seed: equal seeds give equal results.
        beta: how unlikely a slower strategy is accepted: one slower by a part d of the best start's time is accepted
            with probability exp(-beta * d).
        starts: name -> strategy; default: single device, data parallel, model parallel, one weird trick.
        progress: called with (proposals done, best seconds).

    Returns:
        The result; its strategy is never slower than the best start.

    Raises:
        ValueError: the budget is negative, or no start fits into the devices' memory (with the numbers).
    """
    if proposals < 0:
        raise ValueError(f"search: the budget is not negative, not {proposals}")
    judge = Judge(graph, machine, costs)
    starts = starts or {
        "single device": single_device(graph, machine),
        "data parallel": data_parallel(graph, machine),
        "model parallel": model_parallel(graph, machine),
        "one weird trick": one_weird_trick(graph, machine),
    }
    baseline = {name: judge.seconds(s) for name, s in starts.items()}
    finite = sorted((seconds, name) for name, seconds in baseline.items() if math.isfinite(seconds))
    if not finite:
        raise ValueError(f"search: no starting strategy fits into memory; {judge.last_refusal}")
    best_seconds, best = finite[0][0], starts[finite[0][1]]
    history = [(0, best_seconds)]
    chains = [name for _, name in finite if len(finite) < 2 or len(machine.devices) > 1]
    done = 0
    for number, name in enumerate(chains):
        budget = proposals // len(chains)
        chain = _Chain(graph, machine, judge, starts[name], baseline[name], np.random.default_rng([seed, number]))
        for _ in range(budget):
            done += 1
            chain.step(beta / finite[0][0])
            if chain.seconds < best_seconds:
                best_seconds, best = chain.seconds, chain.strategy.copy()
                history.append((done, best_seconds))
            if progress is not None:
                progress(done, best_seconds)
    _log.info("search: %d proposals, %.6f s", done, best_seconds)
    return SearchResult(best, best_seconds, baseline, tuple(history), done)


class _Chain:
    """One Markov chain."""

    def __init__(
        self,
        graph: Graph,
        machine: MachineModel,
        judge: Judge,
        start: Strategy,
        seconds: float,
        generator: np.random.Generator,
    ) -> None:
        self.machine, self.judge, self.generator = machine, judge, generator
        self.operators = leaders(graph)
        self.neighbours = _neighbours(self.operators)
        self.strategy, self.seconds = start.copy(), seconds
        judge.start(start)

    def step(self, beta: float) -> None:
        """Propose and accept or reject: the random number is drawn first, so that the threshold is known."""
        op = self.operators[self.generator.integers(len(self.operators))]
        old, new = self.strategy[op.name], self._propose(op)
        threshold = self.seconds - math.log(1.0 - self.generator.random()) / beta
        if new == old:
            return
        seconds = self.judge.propose(op.name, new, threshold)
        if seconds <= threshold:
            self.judge.accept()
            self.strategy[op.name], self.seconds = new, seconds

    def _propose(self, op: Operator) -> ParallelConfig:
        """A neighbour's configuration where it fits, else a random one."""
        near = self.neighbours[op.name]
        if near and self.generator.random() < 0.5:
            config = self.strategy[near[self.generator.integers(len(near))]]
            try:
                check_config(op, config, len(self.machine.devices))
            except ValueError:  # the neighbour is split along an axis that this operator lacks
                pass
            else:
                return config
        return random_config(op, self.machine, self.generator)


def _neighbours(operators: list[Operator]) -> dict[str, list[str]]:
    """Operator -> the operators that make what it reads or read what it makes."""
    maker = {r.name: op.name for op in operators for r in op.outputs}
    near: dict[str, dict[str, None]] = {op.name: {} for op in operators}
    for op in operators:
        for region in op.inputs:
            other = maker.get(region.name)
            if other is not None and other != op.name:
                near[op.name][other] = None
                near[other][op.name] = None
    return {name: list(others) for name, others in near.items()}
