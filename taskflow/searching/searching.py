"""Search: walk over strategies, judged by the simulator.

Strategies by rule, grids of experts and those of the user are starts (`starts`). Where layers repeat, operators that
are equal across them are changed together first (`tied`), from the best starts. Then each operator is changed alone, by
Metropolis-Hastings as in FlexFlow (Jia, Zaharia, Aiken, "Beyond data and model parallelism for deep neural networks",
MLSys 2019): propose another configuration for one random operator, accept with a probability that depends on the gain
(`walk`; what is proposed is in `space` and `proposal`). The gain is relative to the best start: beta has no unit.

Three quarters of the budget go to what is tied and to walks from the best strategies and, on few devices, from a random
one, the rest to a descent from the best found, until no change of one operator helps; what is left then goes to further
walks from there and descents. A walk takes links for queues, rows as they are lowered, and leaves out that rows wait
for memory which they take over; the last ones it kept and the best starts are judged by `simulate`, in other orders of
their rows as well (`taskflow.schedule`), and its seconds are those of a result. Of equal ones that which moves fewer
bytes, then that which needs less memory, is returned.
Under mpirun every rank walks with random numbers of its own, and all return the best result of any. Needs no GPU.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from taskflow.comm.ending import phase
from taskflow.comm.interrupt import noted_interrupt
from taskflow.comm.transport import Transport, connect
from taskflow.core.garbage import collect_rarely
from taskflow.core.numbers import whole
from taskflow.cost.model import CostModel, MeasuredCosts
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.bound import lower_bound
from taskflow.searching.budget import Budget
from taskflow.searching.fold import fold
from taskflow.searching.joint import search_stages
from taskflow.searching.outcome import Outcome, non_dominated
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.pipelines import PART, Pipelines
from taskflow.searching.predictions import AS_LOWERED, ORDERS, Predictions
from taskflow.searching.result import SearchInterrupted, SearchResult, idle_devices
from taskflow.searching.space import Space, count_strategies
from taskflow.searching.starts import (
    Start,
    check_starts,
    is_short,
    judged_starts,
    random_start,
    refuse,
    rule_starts,
)
from taskflow.searching.tied import TiedDescent
from taskflow.searching.variants import Variant
from taskflow.searching.walk import LocalDescent, Walk
from taskflow.strategy.strategy import Strategy, completed

_log = logging.getLogger(__name__)

PROPOSALS = 10_000  # LeNet on 4 devices: 20 of 20 seeds find the optimum; of 2000, 1 of 8
# A strategy slower by a part d of the best start's time is accepted with probability exp(-BETA * d) for every operator
# that a strategy names: of many any single one matters little, and a walk that accepts all of those goes astray.
BETA = 30.0
TIED_STARTS = 3  # of tied descents
TIED = 0.5  # of what starts leave of the budget, at most
WALKS = 3  # from starts; of each rank
WALKING = 0.6  # of what is left then, before the first descent
AGAIN = 0.05  # of the budget: one more walk from the best strategy
FINALISTS = 8  # strategies that `simulate` judges when all is over: LAST of those kept last, ends of tied descents
LAST = 4
# Of the seconds of a budget for plans of stages: where memory is short, where the best start is leaner, at least.
STAGED, STAGED_LEAN, LEAST = 0.15, 0.5, 0.05
STAGED_PLANS = (
    40  # that are judged, about; with time for fewer they are searched only where nothing fits
)
STAGED_PROPOSALS, STAGED_SECONDS = 30, 5.0  # of a budget without seconds, where no start fits
PREDICTED = 0.3  # of the seconds of a budget, at most, are kept back for `simulate`
RANDOM = (
    20.0  # times the best start: from a random strategy that takes longer a walk comes to nothing
)


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
    until_local: bool = False,
    transport: Transport | None = None,
) -> SearchResult:
    """Find a plan that the simulator predicts to be fast.

    Args:
        graph: with its backward and update operators, so that all of a step is judged.
        machine: the devices and links to use; need not be at hand.
        costs: seconds of every task.
        proposals: budget of every rank, in strategies judged; default 10,000 if `seconds` are not given.
        seed: equal seeds give equal results, if the budget is in proposals alone.
        starts: name -> strategy, besides single device, operator placement, placed tables, data parallel, model
            parallel and one weird trick on all devices, a half, a quarter and so on, the grids of experts and, with a
            budget in seconds, pipelines.
        progress: called with (proposals done, best seconds), both of this rank.
        seconds: budget in seconds; with `proposals`, whichever is spent sooner ends the search. Half as many more are
            for the first search ever, while its functions are not compiled.
        space: what to search, and nothing else: starts that are not in it are left out (`left_out`; where none is
            left, a random strategy is the start). Default: `Space(graph, machine)` and what the starts use.
        until_local: go on beyond the budget until no change of one operator is faster.
        transport: whose ranks share the search; default: all ranks of this job. All of them call.

    Returns:
        The result, the same on every rank; its plan is never slower than the best start.

    Raises:
        ValueError: the budget is empty, a start does not fit the graph or the machine, or no start fits into the
            devices' memory (with the numbers).
        SearchInterrupted: Ctrl-C, once a start was judged; a second one ends at once with KeyboardInterrupt. On all
            ranks, if it came to any.
    """
    budget = Budget(PROPOSALS if proposals is None and seconds is None else proposals, seconds)
    first = Variant(graph, machine, costs, Plan(Strategy({})), space)
    named = rule_starts(graph, machine, budget)
    named |= check_starts(first.judge, starts or {}, named)
    left_out: tuple[str, ...] = ()
    if space is None:
        named = {
            name: first.space.include(completed(graph, strategy))
            for name, strategy in named.items()
        }
    else:
        named, left_out = _inside(space, named)
    transport = transport or connect()
    run = _Search(budget, progress, (whole("search", "seed", seed, 0), transport.rank))
    with collect_rarely(), noted_interrupt(budget.interrupt):
        found = judged_starts(first, named, budget, is_given=space is not None)
        has_room = any(start.fits for start in found) or random_start(first, found, seed, budget)
        if has_room:
            run.prepare(found, may_stage=space is None)
            pipes = Pipelines(first, found, budget)
            with pipes.around(lambda: run.seconds):
                run.search(found)
            run.go_on(until_local)
            run.piped = pipes.found
        if space is None and (not has_room or run.staging > 0) and not budget.is_interrupted:
            run.search_stages(first)
        if not has_room and not run.staged:
            pipes = Pipelines(first, found, budget)
            pipes.search(2 * PART)
            run.piped = pipes.found
            if not any(each.fits for each in run.piped):
                refuse(found, first, len(named), budget)
        baseline = run.settle(found)
        own = run.result(found, baseline, left_out, first), budget.is_interrupted
        results, are_interrupted = zip(*transport.gather(own), strict=True)
    best = _best_of(results)
    if any(are_interrupted):
        raise SearchInterrupted(best)
    return best


def _best_of(results: Sequence[SearchResult]) -> SearchResult:
    """The best, the first of them in the order of ranks."""
    best = min(results, key=lambda r: r.seconds)
    _log.info("search: %d proposals, %.6f s", sum(r.proposals for r in results), best.seconds)
    pareto = non_dominated(each for r in results for each in r.pareto)
    return replace(best, proposals=sum(r.proposals for r in results), pareto=pareto)


def _inside(
    space: Space, named: Mapping[str, Strategy]
) -> tuple[dict[str, Strategy], tuple[str, ...]]:
    """The starts that are in a space, and the names of those that are not."""
    own = {name: space.own(strategy) for name, strategy in named.items()}
    left_out = tuple(name for name, strategy in own.items() if strategy is None)
    if left_out:
        _log.info("search: starts that are not in the space are left out: %s", ", ".join(left_out))
    return {name: strategy for name, strategy in own.items() if strategy is not None}, left_out


class _Search:
    """One rank's search: the best strategy so far, and what is left of the budget."""

    def __init__(
        self, budget: Budget, progress: Callable[[int, float], None] | None, seed: tuple[int, int]
    ) -> None:
        self.budget, self.seed = budget, seed
        self.progress = progress or (lambda done, best: None)
        self.beta = 0.0
        self.variant: Variant
        self.strategy, self.seconds = Strategy({}), math.inf
        self.history: list[tuple[int, float]] = []
        self._kept: list[
            tuple[int, Variant, Strategy]
        ] = []  # the first: number of the last entry of the history
        self._ends: list[
            tuple[float, int, Variant, Strategy]
        ] = []  # of tied descents, with their seconds
        self.predictions = Predictions(budget)
        self._predicting = self.staging = 0.0  # seconds of predictions, and of stages
        self.staged: list[Outcome] = []  # plans of stages, the best first
        self.piped: list[Outcome] = []  # pipelines of experts
        self.best: Outcome
        self.is_local = False
        self._walks, self._is_ranked = 0, False

    def prepare(self, starts: Sequence[Start], may_stage: bool) -> None:
        """Begin with the best start, and keep back what predictions take, and plans of stages where these may be."""
        # Rehearsals change measured costs, and by other costs an order is another one.
        is_fixed = not may_stage or isinstance(starts[0].variant.costs, MeasuredCosts)
        best = self.predictions.begin(starts, AS_LOWERED if is_fixed else ORDERS)
        self._keep(best.variant, best.strategy, best.seconds)
        if self.budget.seconds is not None:
            self._predicting = min(
                FINALISTS * self.predictions.each_seconds, PREDICTED * self.budget.seconds
            )
            part = STAGED_LEAN if best.variant.plan.recomputed else STAGED * is_short(starts)
            self.staging = may_stage * part * self.budget.seconds
            if self.staging < STAGED_PLANS * self.predictions.each_seconds:
                self.staging = 0.0
            self.budget.kept_back = self._predicting + self.staging

    def search(self, starts: Sequence[Start]) -> None:
        """Spend a part of the budget, from starts."""
        fitting = sorted((start for start in starts if start.fits), key=lambda start: start.seconds)
        if count_strategies(self.variant.space) < 2:
            self.is_local = True
            return
        is_quick = self._is_quick
        self._descend_tied(fitting, self._part(TIED if is_quick else 1.0))
        begin, walking, walked = (
            self.budget.used,
            self._part(WALKING),
            [*self._starts(fitting)] if is_quick else [],
        )
        for k, start in enumerate(walked, 1):
            self._walk(start, begin + walking * k / len(walked))

    def go_on(self, until_local: bool) -> None:
        """Spend the rest of it from the best found."""
        end = math.inf if until_local else 1.0
        while self._is_quick and not self.is_local and self.budget.used < end:
            self._descend(end)
            while self.is_local and self.budget.used < 1:
                self._walk(self.strategy, min(self.budget.used + AGAIN, 1.0))

    @property
    def _is_quick(self) -> bool:
        """Whether changes are judged fast enough for walks."""
        return isinstance(self.variant.changes, PackedJudge)

    @property
    def _quick(self) -> PackedJudge:
        changes = self.variant.changes
        assert isinstance(changes, PackedJudge)
        return changes

    def _rank(self) -> None:
        """Judge the best start as walks do, once; beta is relative to that."""
        if not self._is_ranked:
            self.seconds, self._is_ranked = self.variant.changes.start(self.strategy), True
            self.history = [(0, self.seconds)]
            self.beta = BETA * len(self.variant.space.names) / self.seconds

    def _part(self, part: float) -> float:
        """Of the budget that is left."""
        return part * max(1.0 - self.budget.used, 0.0)

    def _descend_tied(self, fitting: Sequence[Start], part: float) -> None:
        """From the best starts of different degrees of tensor parallelism, where layers repeat."""
        if self.budget.used >= 1 or not any(
            len(members) > 1 for members in fold(self.variant.graph)[0]
        ):
            return
        self._rank()
        different = {start.tensor: start for start in reversed(fitting) if start.tensor}
        chosen = sorted(different.values(), key=lambda start: start.seconds)[:TIED_STARTS]
        end, best = self.budget.used + part, None
        for k, start in enumerate(chosen, 1):
            until = end if k == len(chosen) else (self.budget.used + end) / 2
            variant = start.variant
            strategy = variant.space.include(start.strategy)
            descent = TiedDescent(variant.changes, variant.grids, variant.sharded, strategy)
            self._go_down(variant, descent, until)
            if best is None or descent.seconds < best[1].seconds:
                best = variant, descent
        generator = self._generator()
        while best and best[1].is_done and self.budget.used < end:
            self.budget.done += 1
            if other := best[1].kicked(generator):
                self._go_down(best[0], other, end)
                best = min(best, (best[0], other), key=lambda each: each[1].seconds)

    def _go_down(self, variant: Variant, descent: TiedDescent, until: float) -> None:
        """Until that part of the budget is used; what the descent finds is kept."""
        while not descent.is_done and self.budget.used < until:
            self._step(variant, descent)
        self._ends.append((descent.seconds, len(self.history) - 1, variant, descent.strategy))

    def _starts(self, fitting: Sequence[Start]) -> Iterator[Strategy]:
        """Different ones of the variant that is walked: the best, starts, and a random one that is not too slow."""
        different: list[Strategy] = []
        for strategy in (
            self.strategy,
            *(start.strategy for start in fitting if start.variant is self.variant),
        ):
            if not any(dict(strategy) == dict(other) for other in different):
                different.append(strategy)
        yield from different[: WALKS - 1]
        strategy = self.variant.space.draw_strategy(self._generator())
        self._quick.start(self.strategy)
        if math.isfinite(self._quick.propose_all(strategy, RANDOM * self.seconds)):
            yield strategy

    def _generator(self) -> np.random.Generator:
        """Random numbers of the next walk."""
        self._walks += 1
        return np.random.default_rng([*self.seed, self._walks])

    def _walk(self, start: Strategy, until: float) -> None:
        """Walk until that part of the budget is used."""
        if self.budget.used >= until:
            return
        self._rank()
        variant, generator = self.variant, self._generator()
        walk = Walk(self._quick, variant.proposals, start, self.beta, generator, variant.sharded)
        while self.budget.used < until:
            self._step(variant, walk)

    def _descend(self, until: float) -> None:
        self._rank()
        variant = self.variant
        descent = LocalDescent(self._quick, variant.space, self.strategy, variant.sharded)
        while not descent.is_done and self.budget.used < until:
            self._step(variant, descent)
        self.is_local = descent.is_done

    def _step(self, variant: Variant, walk: Walk | LocalDescent | TiedDescent) -> None:
        if not walk.step():
            return
        self.budget.done += 1
        if walk.seconds < self.seconds:
            self._keep(variant, walk.strategy.copy(), walk.seconds)
        self.progress(self.budget.done, self.seconds)

    def _keep(self, variant: Variant, strategy: Strategy, seconds: float) -> None:
        self.variant, self.strategy, self.seconds, self.is_local = variant, strategy, seconds, False
        self.history.append((self.budget.done, seconds))
        self._kept.append((len(self.history) - 1, variant, self.strategy))

    def search_stages(self, first: Variant) -> None:
        """Search plans of stages and micro-batches, which take less memory, in what was kept back for it."""
        budget = self.budget
        left = budget.seconds and max(
            self.staging, budget.left_seconds - self._predicting, LEAST * budget.seconds
        )
        own = Budget(None if left else STAGED_PROPOSALS, left or STAGED_SECONDS)
        with noted_interrupt(own.interrupt):
            try:
                found = search_stages(
                    first.graph, first.machine, first.costs, own, self.seed[0], first.grids.within
                )
            except (ValueError, MemoryError) as error:
                _log.info("search: %s", error)
            else:
                self.staged = found
        budget.done += own.done
        budget.is_interrupted |= own.is_interrupted

    # -- predictions ---------------------------------------------------------------------------------------------------

    def settle(self, starts: Sequence[Start]) -> dict[str, float]:
        """Choose what `simulate` says is fastest of what was kept last, of starts and stages; seconds of the starts.

        Of what was kept there may be no time for some.
        """
        fitting = [each for each in self._outcomes(starts) if each.fits]
        best = min(fitting, key=lambda each: each.figures)
        last, tried, latest = 0, 0, None
        for number, variant, strategy in self._finalists():
            has_time = self.predictions.has_time(variant, strategy)
            is_hurried = self.budget.is_interrupted and tried > 0
            if tried == FINALISTS or not has_time or is_hurried:
                continue
            outcomes = self.predictions.of(variant, strategy, self.predictions.orders)
            fastest = min(outcomes, key=lambda each: each.figures)
            tried += fastest.fits
            latest = latest or fastest
            if fastest.fits and fastest.figures < best.figures:
                best, last = fastest, number
        self.best, self.is_local = best, self.is_local and best is latest
        if self.history:
            self.history = [*self.history[:last], (self.history[last][0], best.seconds)]
        baseline = {start.name: start.seconds for start in starts}
        return baseline | {each.name: each.seconds for each in self.piped if each.name}

    def _finalists(self) -> Iterator[tuple[int, Variant, Strategy]]:
        """Number in the history, and the strategy: first what was kept last, then ends of tied descents."""
        yield from self._kept[: -LAST - 1 : -1]
        ends = {
            seconds: (k, variant, strategy)
            for seconds, k, variant, strategy in reversed(self._ends)
        }  # of equal ones the first
        yield from (ends[seconds] for seconds in sorted(ends))

    def _outcomes(self, starts: Sequence[Start]) -> Iterator[Outcome]:
        """Each once: of starts, which have their names then, of what was found, of stages and pipelines."""
        judged = {id(each): each for each in (start.outcome for start in starts)}
        judged |= {id(each): each for each in self.predictions.all}
        yield from (*judged.values(), *self.staged, *self.piped)

    def _named(self, starts: Sequence[Start]) -> Iterator[Outcome]:
        """All outcomes; what is a start has its name."""
        plans = {start.name: start.outcome.plan for start in starts}
        for each in self._outcomes(starts):
            name = next((name for name, plan in plans.items() if plan == each.plan), each.name)
            yield replace(each, name=name)

    def result(
        self,
        starts: Sequence[Start],
        baseline: Mapping[str, float],
        left_out: tuple[str, ...],
        first: Variant,
    ) -> SearchResult:
        """What this rank found."""
        is_bounded = (
            first.costs.is_shared_out
            and not self.budget.is_interrupted
            and not self.predictions.is_late
        )
        outcomes = sorted((o for o in self._named(starts) if o.fits), key=lambda o: o.figures)
        return SearchResult(
            plan=self.best.plan,
            seconds=self.best.seconds,
            baseline_seconds=baseline,
            history=tuple(self.history),
            proposals=self.budget.done,
            lower_bound_seconds=lower_bound(first.space, first.costs, self.budget.behind())
            if is_bounded
            else 0.0,
            is_locally_optimal=self.is_local,
            left_out=left_out,
            idle=idle_devices(self.best.plan.strategy, len(first.machine.devices)),
            pareto=non_dominated(outcomes),
            plans={
                each.name if each.name in baseline else f"found {k}": each.plan
                for k, each in enumerate(outcomes)
            },
        )
