"""Search: one loop over a population of plans, a tuple of moves, and the judge, while there is time.

Plans by rule and those of the user are starts (`starts`). A turn draws a move (`moves`), by what it gained for what it
took so far in this search, and a plan to go on from. What a move changes decides who judges it: configurations of
operators alone are a step of a walk (`walk`), as in FlexFlow (Jia, Zaharia, Aiken, "Beyond data and model parallelism
for deep neural networks", MLSys 2019), judged by what differs; all else, and the best of every walk, is judged by
`simulate` as a whole plan, and its seconds are those of a result.

Counts, not clocks, steer: a plan that is judged as a whole counts as many changes as it takes as long as. So with a
budget of proposals equal seeds give equal results.
Under mpirun every rank searches with random numbers of its own, and all return the best result of any. Needs no GPU.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from taskflow.comm.ending import phase
from taskflow.comm.interrupt import noted_interrupt
from taskflow.comm.transport import Transport, connect
from taskflow.core.errors import NoRoomError
from taskflow.core.garbage import collect_rarely
from taskflow.core.numbers import whole
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.bound import lower_bound
from taskflow.searching.budget import Budget
from taskflow.searching.moves import CHANGES, MOVES, SWEEPS, Move
from taskflow.searching.moves.away import change_offload
from taskflow.searching.moves.buckets import change_buckets
from taskflow.searching.moves.context import next_context, next_ring
from taskflow.searching.moves.neighbour import count_neighbours, next_neighbour
from taskflow.searching.moves.order import ORDERS, orders_of
from taskflow.searching.moves.shape import fitted, plan_of, samples_of
from taskflow.searching.outcome import FOUND, Outcome, non_dominated
from taskflow.searching.population import Leader, Population
from taskflow.searching.problem import PlanSpace, SearchProblem
from taskflow.searching.result import SearchInterrupted, SearchResult, idle_devices
from taskflow.searching.shapes import PlanShape
from taskflow.searching.space import Space, count_strategies
from taskflow.searching.starts import LIKELY, checked_starts, starts
from taskflow.searching.walk import Walk
from taskflow.strategy.strategy import Strategy

_log = logging.getLogger(__name__)

PROPOSALS = 10_000  # LeNet on 4 devices: all seeds find the optimum
WHOLE = 32  # changes that take as long as a plan that is judged as a whole, about
SHAPING = 0.4  # of the budget: until then shapes alone are judged
STARTING = SHAPING / 2 / 2  # and until then starts
LONGEST = 1 / 4  # of the time that is left, for a plan
# Changes without a gain, before a walk ends; half of what a move gained and took is forgotten after as many. And draws
# of moves that have nothing to try, one after the other: then there is nothing.
PATIENCE = 128
FREE = 2 * PATIENCE  # changes: the first whole plans do not count
EXPECTED = 0.003  # that a move gains with a whole plan, before it was tried
FAR = 1.2  # times the best plan that a move can change: from slower ones it does not go on


@phase("search")
def search(
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    proposals: int | None = None,
    seed: int = 0,
    starts: Mapping[str, Strategy] | Mapping[str, Plan] | None = None,
    progress: Callable[[int, float], None] | None = None,
    *,
    seconds: float | None = None,
    space: Space | PlanSpace | None = None,
    until_local: bool = False,
    moves: Sequence[Move] = MOVES,
    repeat: int = 1,
) -> SearchResult:
    """Find a plan that the simulator predicts to be fast.

    Args:
        graph: with its backward and update operators, so that all of a step is judged.
        machine: the devices and links to use; need not be at hand.
        costs: seconds of every task.
        proposals: budget of every rank, in changes of a plan judged; a whole plan counts 32, the first eight nothing.
            Default 10,000 if `seconds` are not given.
        seed: equal seeds give equal results, if the budget is in proposals alone.
        starts: name -> strategy or plan, besides those by rule.
        progress: called with (plans judged, best seconds), both of this rank.
        seconds: budget in seconds; with `proposals`, whichever is spent sooner ends the search. Half as many more are
            for the first search ever, while its functions are not compiled.
        space: what to search, and nothing else: starts that are not in it are left out (`left_out`; where none is
            left, a random strategy is the start). Of a space of plans those of `starts` are the only ones, and `moves`
            are its own. Default: all.
        until_local: go on beyond the budget until no change of one operator is faster.
        moves: what is done to plans; `(*MOVES, mine)` adds one, see `taskflow.searching.moves`.
        repeat: 1: plans are judged by the seconds of one step alone, the latency of an inference. Else by those of a
            step in steady state, of so many in a row without a barrier (`lower(..., repeat=)`), which are in flight at
            once where none needs what another one updates: the throughput.

    Returns:
        The result, the same on every rank; its plan is never slower than the best start.

    Raises:
        ValueError: the budget is empty, a start does not fit the graph or the machine, a space of plans has none of
            them, or nothing fits into the devices' memory (with the numbers).
        SearchInterrupted: Ctrl-C, once a start was judged; a second one ends at once with KeyboardInterrupt. On all
            ranks, if it came to any.
    """
    budget = Budget(PROPOSALS if proposals is None and seconds is None else proposals, seconds)
    problem = SearchProblem(graph, machine, costs, space, whole("search", "repeat", repeat, 1))
    return search_on(connect(), problem, budget, seed, starts, progress, until_local, moves)


def search_on(
    transport: Transport,
    problem: SearchProblem,
    budget: Budget,
    seed: int,
    starts: Mapping[str, Strategy] | Mapping[str, Plan] | None,
    progress: Callable[[int, float], None] | None = None,
    until_local: bool = False,
    moves: Sequence[Move] = MOVES,
) -> SearchResult:
    """See `search`; all ranks of the transport call."""
    given = checked_starts(problem, starts or {})
    if not problem.machine.memories:
        moves = [move for move in moves if move is not change_offload]
    run = _Search(
        problem, budget, moves, progress, (whole("search", "seed", seed, 0), transport.rank)
    )
    with collect_rarely(), noted_interrupt(budget.interrupt):
        run.begin(given)
        run.go_on(until_local)
        results = transport.gather((run.result(), budget.is_interrupted))
    best = _best_of([result for result, _ in results])
    if any(is_interrupted for _, is_interrupted in results):
        raise SearchInterrupted(best)
    is_bounded = problem.costs.is_shared_out and problem.has_strategies
    return replace(best, bound=run.bound if is_bounded else None)


def _best_of(results: Sequence[SearchResult]) -> SearchResult:
    """The best, the first of them in the order of ranks."""
    best = min(results, key=lambda r: r.seconds)
    _log.info("search: %d proposals, %.6f s", sum(r.proposals for r in results), best.seconds)
    pareto = non_dominated(outcome for r in results for outcome in r.pareto)
    return replace(best, proposals=sum(r.proposals for r in results), pareto=pareto)


class _Arms:
    """Moves, drawn by what they gained for what they took."""

    def __init__(self, moves: Sequence[Move], can_walk: bool) -> None:
        self.moves = moves
        self.spent = np.full(len(moves), float(WHOLE))
        self.nothing = set[tuple[int, int]]()  # arms, and plans of which they make nothing
        self.reach = np.full(len(moves), math.inf)  # the least score of what they could change
        # Of one proposal. A user's move is a whole plan's until it has changed a few operators alone.
        self.price = np.array([1.0 if can_walk and move in CHANGES else WHOLE for move in moves])
        # What all moves that make whole plans promise is what one change of a few operators does.
        self.expected = np.where(self.price > 1, EXPECTED / (self.price > 1).sum(), EXPECTED)
        self.gained = self.expected.copy()

    def draw(self, generator: np.random.Generator, may_walk: bool) -> int:
        """The number of a move: such that moves take time in proportion to what they promise."""
        share = np.cumsum(self.gained / self.spent / self.price * (may_walk | (self.price > 1)))
        return int(np.searchsorted(share, generator.random() * share[-1], side="right"))

    def note(self, number: int, gain: float, price: float) -> None:
        """What a proposal gained, as a logarithm, and what it took."""
        kept = 2 ** -(price / PATIENCE)
        expected = self.expected[number]
        self.gained[number] = expected + kept * (self.gained[number] - expected) + gain
        self.spent[number] = WHOLE + kept * (self.spent[number] - WHOLE) + price


class _Search:
    """One rank's search."""

    def __init__(
        self,
        problem: SearchProblem,
        budget: Budget,
        moves: Sequence[Move],
        progress: Callable[[int, float], None] | None,
        seed: tuple[int, int],
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.seed = seed
        self.progress = progress or (lambda done, best: None)
        self.generator = np.random.default_rng(seed)
        self.arms = _Arms(moves, problem.can_walk)
        self.population = Population(problem.machine)
        budget.spent = -FREE
        self.history: list[tuple[int, float]] = []
        self.baseline: dict[str, float] = {}
        self.left_out: list[str] = []
        self.is_local = False
        self._walk: Walk | None = None
        self._kind: object = None  # of the plan from which the walk began
        self._idle = 0

    # -- turns ---------------------------------------------------------------------------------------------------------

    def begin(self, given: Mapping[str, Plan]) -> None:
        """Judge starts, while there is time, until one fits."""
        for name, plan in starts(self.problem, given, self.left_out, self.seed[0]):
            fits = self.population.best is not None
            is_needed = not (fits or (self.population.outcomes and self.problem.space is None))
            if name.startswith("random") and not is_needed:
                break
            is_likely = name in (*given, *LIKELY)
            if fits and not is_likely and not self._has_time():
                break
            self.judge(plan, name, name, math.inf if is_likely else self._far)
            if self.budget.is_interrupted:
                break
            if self.population.best and self.budget.used > STARTING:
                break
        if not self.population.outcomes:
            raise ValueError(f"search: the space has none of {', '.join(self.left_out)}")
        if self.problem.space is None and self.budget.used < 1:
            self._climb()

    def _climb(self) -> None:
        """Shapes alone: what they gain, changes would take long for."""
        count = len(self.problem.machine.devices)
        shapes = [PlanShape()]
        arms = [0]
        if plan_of(shapes[0], self.problem) is None:  # there are fewer samples than devices
            context = max(count // samples_of(self.problem), 1)
            shapes = [PlanShape(context=context), PlanShape(tensor=count)]
            arms += [
                k for k, move in enumerate(self.arms.moves) if move in (next_context, next_ring)
            ]
        if self.problem.repeat > 1:
            shapes.append(fitted(PlanShape(groups=count), self.problem))
        for shape in shapes:
            plan = plan_of(shape, self.problem)
            if plan is not None and self.budget.used < 1:
                self.judge(plan, shape.name, _kind_of(shape))
        while self.budget.used < SHAPING and self._idle < len(arms):
            self._turn(arms[(self.budget.done + self._idle) % len(arms)])
        leader = next((x for x in self.population.leaders if x.outcome.plan.parts == 1), None)
        if leader is not None and self.problem.has_orders:
            self._order(leader)

    def _order(self, leader: Leader) -> None:
        """A plan of one micro-batch in buckets, then the better of both in all orders, while there is time."""
        shape = self.problem.shapes.get(id(leader.outcome.plan))
        best = leader.outcome
        bucketed = change_buckets(best.plan, self.problem, self.generator)
        orders = (replace(best.plan, schedule=order) for order in orders_of(self.problem.graph))
        for plan in chain([bucketed] if bucketed else [], orders):
            if self.budget.used < SHAPING * 2 and not self.budget.is_interrupted:
                plan = self.problem.shaped(plan, shape)
                outcome = self.judge(plan, shape.name if shape else FOUND, leader.kind)
                best = min(best, outcome, key=lambda of: of.seconds)

    def go_on(self, until_local: bool) -> None:
        """Turn after turn, until the budget is spent."""
        while not self._is_over():
            leaders = self.population.leaders if self.problem.can_walk else ()
            may_walk = any(_can_walk(leader.outcome) for leader in leaders)
            self._turn(self.arms.draw(self.generator, may_walk))
        self._end_walk()
        if self.population.best is None:
            self._refuse()
        if self.problem.has_strategies:
            space = self.problem.variant(self.best.plan).space
            if until_local or count_strategies(space) < 2:
                self._settle()

    def _is_over(self) -> bool:
        is_stuck = self._idle > PATIENCE or self.budget.is_interrupted
        has_tried = self.population.best or len(self.population.outcomes) > 2 * WHOLE
        return is_stuck or bool(has_tried and self.budget.used >= 1)

    def _turn(self, arm: int) -> None:
        """One plan judged, or the note that a move has none."""
        move = self.arms.moves[arm]
        is_change = self.arms.price[arm] == 1
        if is_change and (walk := self._walking()) is not None:
            plan = move(walk.plan, self.problem, self.generator)
            if plan is not None and _is_change(walk.plan, plan):
                return self._step(walk, arm, plan)
        for leader in self._leaders(arm) if not is_change else ():
            before = leader.outcome.plan
            plan = move(before, self.problem, self.generator)
            if plan is None or not self.problem.is_new(plan):
                self.arms.nothing.add((arm, id(before)))
                continue
            self.arms.reach[arm] = min(self.arms.reach[arm], leader.score)
            may_walk = self.problem.can_walk and _can_walk(leader.outcome)
            if move not in MOVES and may_walk and _is_change(before, plan):
                self.arms.price[arm] = 1.0  # next time it is a step of the walk
            return self._jump(arm, plan, leader)
        self.arms.note(arm, 0.0, 1.0 if is_change else WHOLE)
        self._idle += 1
        return None

    def _leaders(self, arm: int) -> Iterator[Leader]:
        """From which a move may go on, in random order."""
        far = FAR * self.arms.reach[arm]
        nothing = self.arms.nothing
        if self.population.best is None:
            far = math.inf
        leaders = [
            leader
            for leader in self.population.leaders
            if leader.score <= far and (arm, id(leader.outcome.plan)) not in nothing
        ]
        return self.population.draw(self.generator, leaders)

    def _jump(self, arm: int, plan: Plan, leader: Leader) -> None:
        """Judge a plan that is no change of another one."""
        before = self.population.best
        shape = self.problem.shapes.get(id(plan))
        if not self._has_time(plan):
            self.problem.judge.refuse(plan, "there is no time")
            return
        name = shape.name if shape else FOUND
        outcome = self.judge(plan, name, _kind_of(shape) or leader.kind, self._far)
        best = min(leader.score, self.population.score(before) if before else math.inf)
        better = best / self.population.score(outcome)
        self.problem.learn(leader.outcome.plan, plan, math.log(max(better, 1.0)))
        gain = math.log(before.seconds / outcome.seconds) if before and outcome.fits else 0.0
        self.arms.note(arm, max(gain, 0.0), WHOLE)

    def _step(self, walk: Walk, arm: int, plan: Plan) -> None:
        """Judge a change of the walk's plan."""
        move = self.arms.moves[arm]
        limit = walk.limit(-1.0 if move in SWEEPS else self.generator.random())
        self.arms.note(arm, walk.propose(plan, limit), 1.0)
        self._count(1.0)

    def _count(self, price: float) -> None:
        self._idle = 0
        self.budget.done += 1
        self.budget.spent += price
        best = self.population.best
        self.progress(self.budget.done, best.seconds if best else math.inf)

    # -- walks ---------------------------------------------------------------------------------------------------------

    def _walking(self) -> Walk | None:
        """The walk that goes on, or another one from a leader."""
        walk = self._walk
        if walk and walk.tried - walk.gained < PATIENCE:
            return walk
        self._end_walk()
        for leader in self.population.draw(self.generator, self.population.leaders):
            if self.problem.can_walk and _can_walk(leader.outcome):
                self._walk = self._walk_from(leader.outcome.plan)
                self._kind = leader.kind
                self.budget.spent += WHOLE
                return self._walk
        return None

    def _walk_from(self, plan: Plan) -> Walk | None:
        """None: there is no memory here for all rows."""
        try:
            return Walk(self.problem, plan)
        except MemoryError as error:
            _log.info("search: every change is judged as a whole: %s", error)
            self.problem.can_walk = False
            return None

    def _end_walk(self) -> None:
        """What a walk found is judged as a whole plan, in its order of rows and in that of the best plan."""
        walk = self._walk
        self._walk = None
        if walk and walk.least < walk.begin:
            orders = dict.fromkeys([walk.best.schedule, self.best.plan.schedule])
            for plan in (replace(walk.best, schedule=order) for order in orders if order in ORDERS):
                if self._has_time(plan):
                    self.judge(plan, FOUND, self._kind)

    def _settle(self) -> None:
        """Try all changes of one operator of the best plan, until a round of them finds nothing faster."""
        plan = self.best.plan
        if not (self.problem.can_walk and _can_walk(self.best)):
            return
        walk = self._walk_from(plan)
        if walk is None:
            return
        variant = self.problem.variant(plan)
        left = count_neighbours(variant)
        while left > 0 and not self.budget.is_interrupted:
            plan_next = next_neighbour(walk.plan, self.problem, self.generator)
            if plan_next is None:
                break
            left = (
                count_neighbours(variant) if walk.propose(plan_next, walk.limit(-1.0)) else left - 1
            )
            self._count(1.0)
        self._walk = walk
        self._kind = FOUND
        self._end_walk()
        is_best = walk.least == walk.begin or self.best.plan.strategy is walk.best.strategy
        self.is_local = is_best and not self.budget.is_interrupted

    # -- plans ---------------------------------------------------------------------------------------------------------

    @property
    def best(self) -> Outcome:
        """The best so far."""
        assert self.population.best is not None
        return self.population.best

    @property
    def _far(self) -> float:
        """The seconds, of rows in program order, above which no move would go on from a plan."""
        ordered = (o for o in self.population.outcomes if o.plan.parts == 1 and not o.plan.schedule)
        return FAR * min((o.seconds for o in ordered), default=math.inf)

    def judge(self, plan: Plan, name: str, kind: object, limit: float = math.inf) -> Outcome:
        """The outcome of a whole plan, which may lead others then; above the limit only that it is."""
        before = self.population.best
        is_new = self.problem.is_new(plan)
        outcome = replace(self.problem.outcome(plan, limit), name=name, plan=plan)
        self.population.add(outcome, kind)
        if name != FOUND and not (limit < math.inf == outcome.with_room):
            self.baseline.setdefault(name, outcome.seconds)
        if is_new:
            self._count(WHOLE)
        if self.population.best is not before:
            self.problem.order = self.best.plan.schedule if plan.parts == 1 else None
            self.history.append((self.budget.done, self.best.seconds))
        return outcome

    def _has_time(self, plan: Plan | None = None) -> bool:
        """Whether a plan takes little of what is left; None: even one in which no device does what another does."""
        seconds = self.budget.seconds
        if seconds is None or self.population.best is None:
            return True
        most = (LONGEST if plan else 1.0) * (seconds - self.budget.elapsed)
        return self.problem.judge.seconds_of_judging(plan) < most

    def _refuse(self) -> None:
        """Say which plan that has a name needs least memory, how much, and for what.

        Raises:
            NoRoomError: or KeyboardInterrupt; always.
        """
        if self.budget.is_interrupted:
            raise KeyboardInterrupt
        named = [outcome for outcome in self.population.outcomes if outcome.name != FOUND]
        least = min(named, key=lambda outcome: outcome.peak_bytes)
        raise NoRoomError(
            f"search: no start fits into memory; the one that takes least is '{least.name}': {least.shortage}"
        )

    def bound(self) -> float:
        """Seconds that no strategy of the space can beat: the best that is known after some of the budget."""
        space = self.problem.variant(Plan(Strategy({}))).space
        return lower_bound(space, self.problem.costs, self.budget.behind())

    def result(self) -> SearchResult:
        """What this rank found."""
        fitting = sorted((o for o in self.population.outcomes if o.fits), key=lambda o: o.figures)
        names = [o.name if o.name != FOUND else f"found {k}" for k, o in enumerate(fitting)]
        devices = len(self.problem.machine.devices)
        return SearchResult(
            plan=self.best.plan,
            seconds=self.best.seconds,
            first_seconds=self.best.first_seconds,
            repeat=self.problem.repeat,
            baseline_seconds=self.baseline,
            history=tuple(self.history),
            proposals=self.budget.done,
            is_locally_optimal=self.is_local,
            left_out=tuple(self.left_out),
            idle=idle_devices(self.best.plan.strategy, devices),
            pareto=non_dominated(fitting),
            plans={name: o.plan for name, o in reversed(list(zip(names, fitting, strict=True)))},
        )


def _is_change(before: Plan, after: Plan) -> bool:
    """Whether two plans differ in the configurations of operators alone."""
    is_same = replace(after, strategy=before.strategy) == before
    return is_same and after.strategy.data.keys() == before.strategy.data.keys()


def _can_walk(outcome: Outcome) -> bool:
    """Whether changes can be judged by what differs: of one micro-batch that fits, in an order that is no schedule."""
    return outcome.fits and outcome.plan.parts == 1 and outcome.plan.schedule in ORDERS


def _kind_of(shape: PlanShape | None) -> object:
    """Of which plans the best are kept."""
    return shape and (shape.tensor, shape.context, shape.groups, shape.is_again, shape.state)
