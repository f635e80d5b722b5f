"""Starts of a search: strategies by rule, those of the user, and the grids of experts; what is too large is repaired.

A start is a strategy of a variant of the graph. The rules and the grids with and without sharded state come first.
Of the grids that do not fit into memory, and would be faster than all that do if they did, those of leaner variants
follow, which compute again or gather again: they take longer than the grid itself would.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from taskflow.core.errors import NoRoomError
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.budget import Budget
from taskflow.searching.grids import RESTS
from taskflow.searching.judge import Judge
from taskflow.searching.outcome import Outcome
from taskflow.searching.placement import divisors
from taskflow.searching.variants import Variant, leaner_variants
from taskflow.strategy.rules import RULES, even_work
from taskflow.strategy.sharded import shard_state
from taskflow.strategy.strategy import Strategy, check_strategy, completed

HALVED = (
    "data parallel",
    "model parallel",
    "one weird trick",
)  # rules that ask a machine only how many devices it has
RANDOM_STARTS = 20  # tried when no start fits into memory
RULING = 0.15  # of the seconds of a budget: then no other strategy is made by a rule
STARTING, FITTING = (
    0.3,
    0.6,
)  # of the seconds of a budget: where a start fits, and where none of the named does


@dataclass
class Start:
    """A strategy, where a search may begin.

    Attributes:
        name, variant, strategy: what it is.
        tensor, rest: of a grid, the degree of tensor parallelism (0: it is none) and what is split otherwise.
        outcome: what comes of it.
    """

    name: str
    variant: Variant
    strategy: Strategy
    tensor: int = 0
    rest: str = ""
    outcome: Outcome = field(
        default_factory=lambda: Outcome.refused(Plan(Strategy({})), "not judged")
    )

    @property
    def fits(self) -> bool:
        """Into memory."""
        return self.outcome.fits

    @property
    def seconds(self) -> float:
        """Of a step; infinite: it does not fit."""
        return self.outcome.seconds


def judged_starts(
    first: Variant, named: Mapping[str, Strategy], budget: Budget, is_given: bool
) -> list[Start]:
    """The starts that were judged before time ran out: the named ones first; behind the grids, if judging takes long.

    Args:
        first: the graph as it is.
        named: starts by rule and of the user.
        budget: of whose seconds these take a part.
        is_given: whether the space is given: then there are no other starts than the named ones.
    """
    found: list[Start] = []
    for start in _all_starts(first, named, found, is_given):
        enough = STARTING if any(s.fits for s in found) else 1.0 if start.name in named else FITTING
        if found and (
            budget.used_seconds > enough or (budget.is_interrupted and enough == STARTING)
        ):
            break
        twin = None if start.name in named else _twin(start, found)
        if twin:
            start.outcome = twin.outcome
            continue
        start.outcome = start.variant.judge.judge(start.strategy)
        found.append(start)
    return found


def _twin(start: Start, found: Sequence[Start]) -> Start | None:
    """The same strategy of the same graph, under another name."""
    return next(
        (s for s in found if s.variant is start.variant and s.strategy == start.strategy), None
    )


def _all_starts(
    first: Variant, named: Mapping[str, Strategy], found: Sequence[Start], is_given: bool
) -> Iterator[Start]:
    yield from (Start(name, first, strategy) for name, strategy in named.items())
    if is_given:
        return
    made = list[Start]()
    for start in grid_starts(first):
        yield start  # it is judged meanwhile
        made.append(start)
    if all(start.fits for start in found):
        return
    for name in named:
        yield from _repaired(first, name, named[name], found)
    fitting = {(start.tensor, start.rest) for start in made if start.fits}
    faster = {(start.tensor, start.rest) for start in made if _would_win(start, found)} - fitting
    for variant in leaner_variants(first) if faster else ():
        yield from grid_starts(variant, faster)


def is_short(found: Sequence[Start]) -> bool:
    """Whether a grid that does not fit would be the fastest."""
    return any(_would_win(start, found) for start in found)


def _would_win(start: Start, found: Sequence[Start]) -> bool:
    """Whether a grid does not fit, and would be faster with room for it than any other that does."""
    best = min((start.seconds for start in found), default=math.inf)
    return bool(start.tensor) and not start.fits and start.outcome.with_room < best


def grid_starts(
    variant: Variant, shapes: Collection[tuple[int, str]] | None = None
) -> Iterator[Start]:
    """Tensor parallelism of every degree, and what is split otherwise, with sharded state and without.

    Args:
        shapes: degrees and splits that are wanted; default: all.
    """
    also = ", computed again" * bool(variant.plan.recomputed) + ", sharded parameters" * bool(
        variant.plan.homes
    )
    devices = range(len(variant.machine.devices))
    for tensor, rest in (
        (t, rest) for t in divisors(len(devices)) for rest in (RESTS if t > 1 else RESTS[:1])
    ):
        if shapes is not None and (tensor, rest) not in shapes:
            continue
        strategy = variant.grids.strategy(devices, tensor, rest)
        if strategy is None:
            continue
        name = f"tensor {tensor}, {rest}{also}" if tensor > 1 else f"data{also}"
        if not variant.plan.homes:
            yield Start(name, variant, strategy, tensor, rest)
            even = even_work(variant.graph, variant.machine, strategy)
            if even is not strategy:
                yield Start(f"{name}, even work", variant, even, tensor, rest)
        if (sharded := variant.sharded.of(strategy)) != strategy:
            yield Start(
                name if variant.plan.homes else f"{name}, sharded state",
                variant,
                sharded,
                tensor,
                rest,
            )


def _repaired(
    first: Variant, name: str, strategy: Strategy, found: Sequence[Start]
) -> Iterator[Start]:
    """A start that does not fit with sharded state."""
    if any(start.name == name and not start.fits for start in found):
        yield Start(f"{name}, sharded state", first, first.sharded.of(strategy))


def random_start(first: Variant, found: list[Start], seed: int, budget: Budget) -> bool:
    """Add a random strategy of the space that fits, if one is drawn before time runs out."""
    generator = np.random.default_rng([seed, RANDOM_STARTS])
    for k in range(RANDOM_STARTS):
        if (k or found) and (budget.used_seconds > FITTING or budget.is_interrupted):
            break
        strategy = first.space.draw_strategy(generator)
        start = Start(f"random {k}", first, strategy, outcome=first.judge.judge(strategy))
        if start.fits:
            found.append(start)
            return True
    return False


def refuse(found: Sequence[Start], first: Variant, named: int, budget: Budget) -> None:
    """Say which start needs least memory, how much, and for what.

    Args:
        found: the starts that were judged.
        first: the graph as it is.
        named: number of starts by rule and of the user; fewer may have been judged.
        budget: where it was spent by Ctrl-C, that is why nothing was found.

    Raises:
        NoRoomError: or KeyboardInterrupt; always.
    """
    if budget.is_interrupted:
        raise KeyboardInterrupt
    if not found:
        raise NoRoomError("search: no start fits into memory, nor does a random strategy")
    least = min(found, key=lambda start: start.outcome.peak_bytes)
    few = f" of the {len(found)} for which there was time" * (len(found) < named)
    raise NoRoomError(
        f"search: no start{few} fits into memory; the one that takes least is '{least.name}': {least.outcome.shortage}"
    )


def rule_starts(
    graph: Graph, machine: MachineModel, budget: Budget | None = None
) -> dict[str, Strategy]:
    """Strategies by rule, also on fewer devices: a small model is slower on all of them.

    Where rules take long they stop when RULING of the seconds is over: behind data parallelism, the second one.
    """
    named: dict[str, Strategy] = {}
    for name, strategy in _by_rule(graph, machine, named):
        if (
            name.partition(" on ")[0] in HALVED or strategy not in named.values()
        ):  # as one without tables is
            named[name] = strategy
        if budget and len(named) > 1 and budget.used_seconds > RULING:
            break
    return named


def _by_rule(
    graph: Graph, machine: MachineModel, named: Mapping[str, Strategy]
) -> Iterator[tuple[str, Strategy]]:
    """Names and strategies; `named` are those that are taken."""
    rules = {name.replace("_", " "): rule for name, rule in RULES.items()}
    for name, rule in rules.items():
        yield name, rule(graph, machine)
    if "proportional" in named:
        yield "proportional, sharded state", shard_state(graph, named["proportional"])
    count = len(machine.devices) // 2
    while count > 1:
        some = MachineModel.uniform(count)
        for name in HALVED:
            yield f"{name} on {count} devices", rules[name](graph, some)
        count //= 2


def check_starts(
    judge: Judge, starts: Mapping[str, Strategy], taken: Collection[str] = ()
) -> dict[str, Strategy]:
    """The starts of the user, complete.

    Raises:
        ValueError: one does not fit the graph or the machine, or has a name that is `taken`.
    """
    for name, strategy in starts.items():
        if name in taken:
            raise ValueError(f"search: the start '{name}': it has the name of a start by a rule")
        try:
            check_strategy(judge.graph, strategy, len(judge.machine.devices))
            judge.lowering.numbers(strategy)
        except ValueError as error:
            raise ValueError(f"search: the start '{name}': {error}") from error
    return {name: completed(judge.graph, strategy) for name, strategy in starts.items()}
