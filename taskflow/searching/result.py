"""What a search returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from taskflow.core.text import in_ms, list_numbers
from taskflow.schedule.plan import Plan
from taskflow.searching.outcome import Outcome
from taskflow.strategy.strategy import Strategy


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        plan: the best plan.
        seconds: its predicted time of one step; of several in a row, of one in steady state.
        first_seconds: until the first of several steps in a row is done; else `seconds`.
        repeat: so many steps in a row.
        baseline_seconds: start name -> predicted seconds (inf: does not fit into memory). Starts that were known to be
            far slower than the best before they were lowered are not in it, nor those for which there was no time;
            those of the user, data parallelism and one device are.
        history: (proposal number, seconds) of each improvement, on the rank that found the best strategy.
        proposals: number of strategies judged, on all ranks together.
        is_locally_optimal: whether every change of one operator was tried and none is faster, without waits for memory.
        left_out: the starts that are not in the space that was given.
        idle: devices that compute nothing.
        pareto: of the starts and the plans found last those that no other beats in seconds, bytes moved and peak bytes
            at once, the fastest first.
        plans: name -> plan, the fastest first by predicted seconds: the starts, and what was found last.
        rehearsed: number of plans that were rehearsed (see `search_at_home`).
        bound: computes `lower_bound_seconds`; None where the costs prove nothing. It stays in its process.
    """

    plan: Plan
    seconds: float
    baseline_seconds: Mapping[str, float]
    history: tuple[tuple[int, float], ...]
    proposals: int
    is_locally_optimal: bool = False
    left_out: tuple[str, ...] = ()
    idle: tuple[int, ...] = ()
    pareto: tuple[Outcome, ...] = ()
    plans: Mapping[str, Plan] = field(default_factory=dict, repr=False)
    rehearsed: int = 0
    first_seconds: float = math.inf
    repeat: int = 1
    bound: Callable[[], float] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"bound": None}

    @cached_property
    def lower_bound_seconds(self) -> float:
        """No strategy of the space is faster (see `taskflow.searching.bound`); 0: nothing is proven.

        It takes its time when it is first asked for.
        """
        return self.bound() if self.bound else 0.0

    @property
    def strategy(self) -> Strategy:
        """That of the plan: for the graph as the plan transforms it."""
        return self.plan.strategy

    @property
    def best_start(self) -> str:
        """Name of the fastest start."""
        return min(self.baseline_seconds, key=lambda n: self.baseline_seconds[n])

    def __str__(self) -> str:
        text = f"{in_ms(self.seconds)} a step after {self.proposals} proposals, "
        if self.repeat > 1:
            text += f"of {self.repeat} in a row, the first done after {in_ms(self.first_seconds)}, "
        best = self.baseline_seconds[self.best_start]
        if math.isfinite(best):
            text += f"{best / self.seconds:.2f}x as fast as the best start ({self.best_start}, {in_ms(best)})"
        else:
            text += "where no start fits into memory"
        if self.lower_bound_seconds > 0:
            text += (
                f", at most {self.seconds / self.lower_bound_seconds:.2f}x the time of the optimum"
            )
        text += f", the fastest of {self.rehearsed} plans in rehearsal" if self.rehearsed else ""
        if self.is_locally_optimal:
            text += ", no change of one operator is faster without waits for memory"
        if self.plan.recomputed:
            text += f"; computed again: {len(self.plan.recomputed)} operators"
        if self.plan.offloaded:
            text += f"; in the memory of hosts: {len(self.plan.offloaded)} regions"
        text += f"; {self.plan.parts} micro-batches" if self.plan.parts > 1 else ""
        text += f"; sharded: {len(self.plan.homes)} parameters" if self.plan.homes else ""
        text += f"; devices that compute nothing: {list_numbers(self.idle)}" if self.idle else ""
        if self.idle and len(_used(self.strategy)) == 1:
            text += "; one device alone is the fastest"
        return text + (f"; not in the space: {', '.join(self.left_out)}" if self.left_out else "")


def idle_devices(strategy: Strategy, devices: int) -> tuple[int, ...]:
    """Of so many devices, those that compute nothing."""
    return tuple(sorted(set(range(devices)) - _used(strategy)))


def _used(strategy: Strategy) -> set[int]:
    return {device for config in strategy.values() for device in config.devices}


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a search; `result` is the best that it had found until then, on all ranks."""

    def __init__(self, result: SearchResult) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        return f"search: interrupted; {self.result}"
