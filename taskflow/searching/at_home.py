"""Search at home: on a machine that is at hand, choose by what was measured with all ranks at work.

A search judges by kernels timed alone, and steps take 1.2 to 2.4 times as long as it says, some plans more and some
less. So what it found and its starts are rehearsed (`rehearsal`), one device among them. The rehearsals say how many
times longer kernels, copies and messages take than alone. The next search is by costs that are corrected so, and is
rehearsed again, until what it finds best was rehearsed before. What was fastest in rehearsal is returned, with the
seconds of its rehearsal: `simulate` and `explain` give the same by the same costs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from taskflow.comm.ending import phase
from taskflow.comm.interrupt import noted_interrupt
from taskflow.comm.transport import LocalTransport, Transport, connect
from taskflow.cost.model import CostModel, MeasuredCosts
from taskflow.execute.rehearsal import FEWEST, rehearse
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.budget import Budget
from taskflow.searching.problem import SearchProblem
from taskflow.searching.result import SearchInterrupted, SearchResult, idle_devices
from taskflow.searching.searching import PROPOSALS, search_on
from taskflow.simulation.simulate import simulate
from taskflow.strategy.rules import RULES
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.task_graph import TaskGraph

HALF = 1 / 2  # of the seconds of a share: for searching
SHARES = HALF, HALF**2, HALF**2  # of the budget: that of each search and the rehearsals after it
MOST = 4  # plans that are rehearsed: of those found last, and as many of starts that are no rule
SLOWER = 3.0  # a rehearsal than predicted, at most
ALONE = "single device"
BEFORE = "rehearsed before"  # a start of the second search and the third


@dataclass
class _Rehearsed:
    """A plan with its rows, and what was predicted by their rehearsal: seconds, bytes moved, and the highest peak."""

    plan: Plan
    rows: TaskGraph
    prediction: tuple[float, float, int] = (math.inf, 0.0, 0)

    @cached_property
    def digest(self) -> str:
        """Of the rows."""
        return self.rows.digest()


@phase("search")
def search_at_home(
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    proposals: int | None = None,
    seed: int = 0,
    starts: Mapping[str, Strategy] | None = None,
    progress: Callable[[int, float], None] | None = None,
    *,
    seconds: float | None = None,
) -> SearchResult:
    """Find the plan that is fastest in rehearsal, on the ranks of this job; all of them call.

    Rank 0 searches, all rehearse. By costs that are not measured, on GPUs, and where nothing can be rehearsed beside an
    executor, it is the `search` of rank 0.

    Args:
        graph, machine, seed, starts: as for `search`.
        costs: from `CostModel.measured`; they learn from the rehearsals.
        proposals: budget in strategies judged; default 10,000 if `seconds` are not given.
        progress: called on rank 0 with (proposals done, best seconds).
        seconds: budget of searches and rehearsals, of which the best plan found has one in any case.

    Returns:
        The result, the same on every rank. `seconds` and those of `baseline_seconds` that were rehearsed are
        predictions by rehearsed rows; `history` has an entry for each time that the fastest changed.

    Raises:
        ValueError, SearchInterrupted: as `search` does. An interrupted one has the best in rehearsal so far, too.
    """
    if proposals is None and seconds is None:
        proposals = PROPOSALS
    return _Home(
        graph,
        machine,
        costs,
        Budget(proposals, seconds),
        seed,
        starts or {},
        progress or (lambda done, best: None),
    ).find()


@dataclass
class _Home:
    """What is known of one call, the same on every rank.

    Attributes:
        rehearsed: by the digest of the rows.
        _digests: name of a start -> that of its rows.
        _until: the part of the budget when the present share ends.
    """

    graph: Graph
    machine: MachineModel
    costs: CostModel
    budget: Budget
    seed: int
    starts: Mapping[str, Strategy]
    progress: Callable[[int, float], None]
    transport: Transport = field(default_factory=connect)
    rehearsed: dict[str, _Rehearsed] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _until: float = 0.0
    _history: list[tuple[int, float]] = field(default_factory=list)

    @property
    def best(self) -> _Rehearsed:
        """The fastest in rehearsal; of equal ones that which moves fewer bytes, then that which needs less memory."""
        return min(self.rehearsed.values(), key=lambda plan: plan.prediction)

    def find(self) -> SearchResult:
        """Searches and rehearsals in turn; where nothing can be rehearsed one search."""
        is_on_gpus = any(device.kind == "cuda" for device in self.machine.devices)
        if not isinstance(self.costs, MeasuredCosts) or is_on_gpus:
            return self.search(1.0, searching=1.0)
        for share in SHARES:
            result = self.search(share)
            if not self.rehearse(self.costs, result):
                break
        return self.settle(result)

    def search(self, share: float, searching: float = HALF) -> SearchResult:
        """A search of rank 0, whose Ctrl-C ends it, by what is known."""
        self._until += share
        waiting = noted_interrupt(lambda: None) if self.transport.rank else nullcontext()
        try:
            with waiting:
                result = self.transport.on_rank_0(lambda: self._search(share, searching))
        except SearchInterrupted as stop:
            self.budget.done += stop.result.proposals
            raise SearchInterrupted(self.settle(stop.result)) from None
        self.budget.done += result.proposals
        return result

    def _search(self, share: float, searching: float) -> SearchResult:
        starts = dict(self.starts)
        fastest = math.inf
        proposals = self.budget.proposals
        seconds = self.budget.seconds
        if self.rehearsed and isinstance(self.costs, MeasuredCosts):
            self.costs.correct([plan.rows for plan in self.rehearsed.values()])
            fastest = self.best.prediction[0]
            if replace(self.best.plan, schedule=None) == Plan(self.best.plan.strategy):
                starts[BEFORE] = self.best.plan.strategy
        if seconds is not None:
            seconds = searching * max(self._left(self._until), sys.float_info.epsilon)
        return search_on(
            LocalTransport(),
            SearchProblem(self.graph, self.machine, self.costs),
            Budget(proposals and max(1, round(share * proposals)), seconds),
            self.seed,
            starts,
            progress=lambda done, best: self.progress(self.budget.done + done, min(best, fastest)),
        )

    def _left(self, until: float) -> float:
        """Seconds until that part of the budget is spent."""
        return (
            math.inf
            if self.budget.seconds is None
            else until * self.budget.seconds - self.budget.elapsed
        )

    def _affordable(self, names: Sequence[str], result: SearchResult) -> int:
        """For how many of the plans there is time: one at least."""
        seconds = [
            SLOWER * (FEWEST + 1) * result.baseline_seconds.get(name, result.seconds)
            for name in names
        ]
        return max(1, int(np.searchsorted(np.cumsum(seconds), self._left(self._until))))

    def rehearse(self, costs: MeasuredCosts, result: SearchResult) -> bool:
        """Rehearse the best plans of a search and its starts; whether another search may find a better one."""
        names = _chosen(result, self.starts)
        names = names[: self.transport.on_rank_0(lambda: self._affordable(names, result))]
        plans = [
            _Rehearsed(plan, plan.apply(self.graph, self.machine, costs)[1])
            for plan in (result.plans[name] for name in names)
        ]
        self._digests.update(zip(names, (plan.digest for plan in plans), strict=True))
        # the best, and one device alone
        if all(plan.digest in self.rehearsed for plan in plans[:2]):
            return False
        before = [self.best] if self.rehearsed else []
        new = [plan for plan in plans if plan.digest not in self.rehearsed]
        self._take_turns(costs, {plan.digest: plan for plan in [*before, *new]})
        if not self.rehearsed:
            return False
        self._history.append((self.budget.done, self.best.prediction[0]))
        return self.transport.on_rank_0(lambda: self._left(1.0) > 0)

    def _take_turns(self, costs: MeasuredCosts, plans: Mapping[str, _Rehearsed]) -> None:
        """Rehearse plans, by the digests of their rows, as many as there is time for, and predict by that."""
        rehearsed = rehearse(
            costs,
            *(plan.rows for plan in plans.values()),
            is_late=lambda: self._left(self._until) < 0,
        )
        timed = [plans[rows.digest()] for rows in rehearsed]
        predictions = self.transport.on_rank_0(
            lambda: [_predict(plan.rows, costs) for plan in timed]
        )
        for plan, prediction in zip(timed, predictions, strict=True):
            plan.prediction = prediction
            self.rehearsed[plan.digest] = plan

    def settle(self, result: SearchResult) -> SearchResult:
        """The result of the last search, with the plan that is fastest in rehearsal and what rehearsals say."""
        if not self.rehearsed:
            return result
        baseline = {**result.baseline_seconds}
        for name in baseline:
            plan = self.rehearsed.get(self._digests.get(name, ""))
            baseline[name] = plan.prediction[0] if plan else baseline[name]
        baseline.pop(BEFORE, None)
        best = self.best
        return replace(
            result,
            plan=best.plan,
            seconds=best.prediction[0],
            baseline_seconds=baseline,
            history=tuple(self._history),
            proposals=self.budget.done,
            is_locally_optimal=result.is_locally_optimal and best.plan == result.plan,
            idle=idle_devices(best.plan.strategy, len(self.machine.devices)),
            rehearsed=len(self.rehearsed),
        )


def _chosen(result: SearchResult, starts: Mapping[str, Strategy]) -> list[str]:
    """The plans of a search that are rehearsed: the best, one device alone, then as they are predicted."""
    rules = {ALONE, *starts, *(name.replace("_", " ") for name in RULES)}
    names = list(result.plans)
    unnamed = [name for name in names if name not in result.baseline_seconds][:MOST]
    others = [name for name in names if name in result.baseline_seconds.keys() - rules][:MOST]
    taken = rules.union(unnamed, others, names[:1]).intersection(names)
    return sorted(taken, key=lambda name: (name != names[0], name != ALONE, names.index(name)))


def _predict(rows: TaskGraph, costs: CostModel) -> tuple[float, float, int]:
    """Seconds, bytes moved, and the highest peak."""
    timeline = simulate(rows, costs)
    return timeline.seconds, float(timeline.bytes_moved), int(timeline.peak_bytes.max())
