"""Search: walk over strategies, judged by the simulator.

Metropolis-Hastings as in FlexFlow (Jia, Zaharia, Aiken, "Beyond data and model parallelism for deep neural networks",
MLSys 2019): propose another configuration for one random operator, accept with a probability that depends on the gain
(`walk`; what is proposed is in `space` and `proposal`). The gain is relative to the best
start, so that beta has no unit.

Three quarters of the budget go to walks from the best starts and from a random one, the rest to a descent from the best
strategy found, until no change of one operator helps; what is left then goes to further walks from there and descents.
A walk takes links for queues, and leaves out that rows wait for memory which they take over; the last ones it kept are
judged by `simulate`, whose seconds are those of a result.
Under mpirun every rank walks with random numbers of its own, and all return the best result of any. Needs no GPU.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from taskflow.comm.ending import phase
from taskflow.comm.interrupt import noted_interrupt
from taskflow.comm.transport import Transport, connect
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.searching import chain
from taskflow.searching.bound import lower_bound
from taskflow.searching.budget import Budget, collect_rarely
from taskflow.searching.judge import Judge
from taskflow.searching.proposal import Proposals
from taskflow.searching.space import Space, count_strategies
from taskflow.searching.walk import LocalDescent, Walk
from taskflow.strategy.rules import RULES
from taskflow.strategy.strategy import Strategy, check_strategy, completed

_log = logging.getLogger(__name__)

PROPOSALS = 10_000  # LeNet on 4 devices: 20 of 20 seeds find the optimum; of 2000, 1 of 8
BETA = 100.0  # a strategy slower by a part d of the best start's time is accepted with probability exp(-BETA * d)
WALKS = 3  # from starts; of each rank
WALKING = 0.75  # of the budget, before the first descent
AGAIN = 0.05  # of the budget: one more walk from the best strategy
FINALISTS = 8  # strategies that `simulate` judges when a walk is over: those kept last
HALVED = "data parallel", "model parallel", "one weird trick"  # rules that ask a machine only how many devices it has
RANDOM_STARTS = 20  # tried when no rule gives a strategy that fits into memory


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        strategy: the best strategy.
        seconds: its predicted time of one step.
        baseline_seconds: start name -> predicted seconds (inf: does not fit into memory); of an interrupted search
            perhaps not of all.
        history: (proposal number, seconds) of each improvement, on the rank that found the best strategy.
        proposals: number of strategies judged, on all ranks together.
        lower_bound_seconds: no strategy of the space is faster (see `bound`); 0 where the costs prove nothing.
        is_locally_optimal: whether every change of one operator was tried and none is faster, without waits for memory.
        left_out: the starts that are not in the space that was given.
    """

    strategy: Strategy
    seconds: float
    baseline_seconds: Mapping[str, float]
    history: tuple[tuple[int, float], ...]
    proposals: int
    lower_bound_seconds: float = 0.0
    is_locally_optimal: bool = False
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        best = min(self.baseline_seconds, key=lambda n: self.baseline_seconds[n])
        gain = self.baseline_seconds[best] / self.seconds
        text = (
            f"{self.seconds * 1e3:.3f} ms a step after {self.proposals} proposals, "
            f"{gain:.2f}x as fast as the best start ({best}, {self.baseline_seconds[best] * 1e3:.3f} ms)"
        )
        if self.lower_bound_seconds > 0:
            text += f", at most {self.seconds / self.lower_bound_seconds:.2f}x the time of the optimum"
        text += ", no change of one operator is faster without waits for memory" if self.is_locally_optimal else ""
        return text + (f"; not in the space: {', '.join(self.left_out)}" if self.left_out else "")


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a search; `result` is the best that it had found until then, on all ranks."""

    def __init__(self, result: SearchResult) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        return f"search: interrupted; {self.result}"


@phase("search")
def search(
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    proposals: int | None = None,
    seed: int = 0,
    starts: Mapping[str, Strategy] | None = None,
    progress: Callable[[int, float], None] | None = None,
    *,
    seconds: float | None = None,
    space: Space | None = None,
    dynamic_programming: bool = False,
    until_local: bool = False,
    transport: Transport | None = None,
) -> SearchResult:
    """Find a strategy that the simulator predicts to be fast.

    Args:
        graph: with its backward and update operators, so that all of a step is judged.
        machine: the devices and links to use; need not be at hand.
        costs: seconds of every task.
        proposals: budget of every rank, in strategies judged; default 10,000 if `seconds` are not given.
        seed: equal seeds give equal results, if the budget is in proposals alone.
        starts: name -> strategy, besides single device, operator placement, placed tables, and data parallel, model
            parallel and one weird trick on all devices, a half, a quarter and so on.
        progress: called with (proposals done, best seconds), both of this rank.
        seconds: budget in seconds; with `proposals`, whichever is spent sooner ends the search.
        space: what to search, and nothing else: starts that are not in it are left out (`left_out`; where none is
            left, a random strategy is the start). Default: `Space(graph, machine)` and what the starts use.
        dynamic_programming: start from what dynamic programming over added costs finds, too (`chain`), which
            takes seconds, once for equal layers.
        until_local: go on beyond the budget until no change of one operator is faster.
        transport: whose ranks share the search; default: all ranks of this job. All of them call.

    Returns:
        The result, the same on every rank; its strategy is never slower than the best start.

    Raises:
        ValueError: the budget is empty, a start does not fit the graph or the machine, or no start fits into the
            devices' memory (with the numbers).
        SearchInterrupted: Ctrl-C, once a start was judged; a second one ends at once with KeyboardInterrupt. On all
            ranks, if it came to any.
    """
    if proposals is None and seconds is None:
        proposals = PROPOSALS
    budget = Budget(proposals, seconds)
    judge = Judge(graph, machine, costs)
    named = {**_rules(graph, machine), **_checked(judge, starts or {})}
    if dynamic_programming:
        named["dynamic programming"] = chain.dynamic_programming(graph, machine, costs).strategy
    left_out: tuple[str, ...] = ()
    if space is None:
        space = Space(graph, machine)
        named = {name: space.include(completed(graph, strategy)) for name, strategy in named.items()}
    else:
        named, left_out = _inside(space, named)
    transport = transport or connect()
    run = _Search(space, judge, budget, progress, (seed, transport.rank))
    with collect_rarely(), noted_interrupt(budget.interrupt):
        without_waits = _judge_starts(judge, named, space, seed, budget)
        baseline = {name: judge.predict(named[name]) if s < math.inf else s for name, s in without_waits.items()}
        run.search(named, without_waits, until_local)
        run.settle(named, baseline)
        own = SearchResult(
            run.strategy,
            run.seconds,
            baseline,
            tuple(run.history),
            budget.done,
            lower_bound(space, costs) if costs.is_shared_out and not budget.is_interrupted else 0.0,
            run.is_local,
            left_out,
        )
        results, are_interrupted = zip(*transport.gather((own, budget.is_interrupted)), strict=True)
    best = _best_of(results)
    if any(are_interrupted):
        raise SearchInterrupted(best)
    return best


def _rules(graph: Graph, machine: MachineModel) -> dict[str, Strategy]:
    """Strategies by rule, also on fewer devices: a small model is slower on all of them."""
    rules = {name.replace("_", " "): rule for name, rule in RULES.items()}
    named: dict[str, Strategy] = {}
    for name, rule in rules.items():
        found = rule(graph, machine)
        if name in HALVED or found not in named.values():  # as a placement of one operator is, or one without tables
            named[name] = found
    count = len(machine.devices) // 2
    while count > 1:
        some = MachineModel.uniform(count)
        named |= {f"{name} on {count} devices": rules[name](graph, some) for name in HALVED}
        count //= 2
    return named


def _best_of(results: Sequence[SearchResult]) -> SearchResult:
    """The best, the first of them in the order of ranks."""
    best = min(results, key=lambda r: r.seconds)
    _log.info("search: %d proposals, %.6f s", sum(r.proposals for r in results), best.seconds)
    return replace(best, proposals=sum(r.proposals for r in results))


def _checked(judge: Judge, starts: Mapping[str, Strategy]) -> Mapping[str, Strategy]:
    for name, strategy in starts.items():
        try:
            check_strategy(judge.graph, strategy, len(judge.machine.devices))
            judge.lowering.numbers(strategy)
        except ValueError as error:
            raise ValueError(f"search: the start '{name}': {error}") from error
    return starts


def _inside(space: Space, named: Mapping[str, Strategy]) -> tuple[dict[str, Strategy], tuple[str, ...]]:
    """The starts that are in a space, and the names of those that are not."""
    own = {name: space.own(strategy) for name, strategy in named.items()}
    left_out = tuple(name for name, strategy in own.items() if strategy is None)
    if left_out:
        _log.info("search: starts that are not in the space are left out: %s", ", ".join(left_out))
    return {name: strategy for name, strategy in own.items() if strategy is not None}, left_out


def _judge_starts(
    judge: Judge, named: dict[str, Strategy], space: Space, seed: int, budget: Budget
) -> dict[str, float]:
    """Seconds of every start; random ones are added to `named` until one fits, if none of them does.

    When the budget is spent by an interrupt, one that fits is enough.
    """
    refusals: list[str] = []
    baseline: dict[str, float] = {}
    for name, strategy in named.items():
        if budget.is_interrupted and len(refusals) < len(baseline):
            break
        baseline[name] = judge.seconds(strategy)
        if not math.isfinite(baseline[name]):
            refusals.append(f"{name}: {judge.last_refusal}")
    if len(refusals) < len(named):
        return baseline
    generator = np.random.default_rng([seed, RANDOM_STARTS])
    for k in range(RANDOM_STARTS):
        strategy = space.draw_strategy(generator)
        if math.isfinite(found := judge.seconds(strategy)):
            named[f"random {k}"], baseline[f"random {k}"] = strategy, found
            return baseline
    why = "; ".join(refusals) or f"random strategy of the space: {judge.last_refusal}"
    raise ValueError(f"search: no start fits into memory ({why})")


class _Search:
    """One rank's search: the best strategy so far, and what is left of the budget."""

    def __init__(
        self,
        space: Space,
        judge: Judge,
        budget: Budget,
        progress: Callable[[int, float], None] | None,
        seed: tuple[int, int],
    ) -> None:
        self.space, self.judge, self.budget, self.seed = space, judge, budget, seed
        self.progress = progress or (lambda done, best: None)
        self.proposals, self.beta = Proposals(space), 0.0
        self.strategy, self.seconds = Strategy({}), math.inf
        self.history: list[tuple[int, float]] = []
        self._kept: list[tuple[Strategy, float]] = []
        self.is_local = False
        self._walks = 0

    def search(self, named: Mapping[str, Strategy], baseline: Mapping[str, float], until_local: bool) -> None:
        """Spend the budget."""
        order = sorted((s, name) for name, s in baseline.items() if math.isfinite(s))
        self._keep(named[order[0][1]], order[0][0])
        self.beta = BETA / self.seconds
        if count_strategies(self.space) > 1:
            starts = list(self._starts([named[name] for _, name in order]))
            for k, start in enumerate(starts, 1):
                self._walk(start, WALKING * k / len(starts))
            end = math.inf if until_local else 1.0
            while not self.is_local and self.budget.used < end:
                self._descend(end)
                while self.is_local and self.budget.used < 1:
                    self._walk(self.strategy, min(self.budget.used + AGAIN, 1.0))
        else:
            self.is_local = True

    def _starts(self, best_first: list[Strategy]) -> Iterator[Strategy]:
        """Different starts, the best first, and last a random one."""
        different: list[Strategy] = []
        for strategy in best_first:
            if not any(dict(strategy) == dict(other) for other in different):
                different.append(strategy)
        yield from different[: WALKS - 1]
        yield self.space.draw_strategy(self._generator())

    def _generator(self) -> np.random.Generator:
        """Random numbers of the next walk."""
        self._walks += 1
        return np.random.default_rng([*self.seed, self._walks])

    def _walk(self, start: Strategy, until: float) -> None:
        """Walk until that part of the budget is used."""
        walk = Walk(self.judge, self.proposals, start, self.beta, self._generator())
        if not math.isfinite(walk.seconds):
            return
        while self.budget.used < until:
            self._step(walk)

    def _descend(self, until: float) -> None:
        descent = LocalDescent(self.judge, self.space, self.strategy)
        while not descent.is_done and self.budget.used < until:
            self._step(descent)
        self.is_local = descent.is_done

    def _step(self, walk: Walk | LocalDescent) -> None:
        if not walk.step():
            return
        self.budget.done += 1
        if walk.seconds < self.seconds:
            self._keep(walk.strategy, walk.seconds)
        self.progress(self.budget.done, self.seconds)

    def _keep(self, strategy: Strategy, seconds: float) -> None:
        self.strategy, self.seconds, self.is_local = strategy.copy(), seconds, False
        self.history.append((self.budget.done, seconds))
        self._kept.append((self.strategy, seconds))

    def settle(self, named: Mapping[str, Strategy], baseline: Mapping[str, float]) -> None:
        """Choose the strategy that `simulate` says is fastest, memory planned: of the last ones kept, or a start."""
        self.seconds, tried = math.inf, 0
        for number, (strategy, _) in reversed(list(enumerate(self._kept))):
            if tried == FINALISTS:
                break
            found = self.judge.predict(strategy)
            tried += math.isfinite(found)
            if found < self.seconds:
                self.strategy, self.seconds, last = strategy, found, number
        start = min(baseline, key=lambda name: baseline[name])
        if baseline[start] < self.seconds:
            self.strategy, self.seconds, last = named[start], baseline[start], 0
        if not math.isfinite(self.seconds):
            raise ValueError(f"search: no strategy that fits into memory was found; {self.judge.last_refusal}")
        self.is_local &= self.strategy is self._kept[-1][0]
        self.history = [*self.history[:last], (self.history[last][0], self.seconds)]
