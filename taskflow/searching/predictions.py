"""What `simulate` says of strategies, in several orders of their rows.

What overlaps depends on the order of rows. The best start is predicted in all ORDERS, other strategies as lowered and
in that which was best for the start.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from taskflow.searching.budget import Budget
from taskflow.searching.outcome import Outcome
from taskflow.searching.starts import Start, tight_starts
from taskflow.searching.variants import Variant
from taskflow.strategy.strategy import Strategy

_log = logging.getLogger(__name__)

AS_LOWERED = (None,)
ORDERS: tuple[str | None, ...] = None, "critical_path", "forward_first", "first_ready"
NEXT, NEXT_UNTIL = (
    4,
    0.4,
)  # starts, the best included, that are predicted before a walk, and until when
TIGHT = 0.75  # of the seconds of a budget: then no other start is asked for whether its rows fit
ORDERING = 0.25  # of the seconds of a budget: then no other order is tried
ORDERED_ROWS = 2_000_000  # of more, no other order: where no devices are alike, rows take 3.5 kB


class Predictions:
    """Predictions, each made once.

    Attributes:
        orders: in which a strategy is predicted.
        each_seconds: that this takes, about.
        row_seconds: that one order takes for every row, at most.
    """

    def __init__(self, budget: Budget) -> None:
        self.orders: tuple[str | None, ...] = AS_LOWERED
        self.each_seconds = self.row_seconds = 0.0
        self._budget = budget
        self._known: dict[
            int, dict[str | None, Outcome]
        ] = {}  # by the identity of a strategy, and its order
        self._left_out = dict[int, Strategy]()

    def begin(self, starts: Sequence[Start], orders: tuple[str | None, ...]) -> Start:
        """Predict the likeliest starts as lowered, the best of them in all `orders`, the others in the best one.

        A walk, which takes links for queues, may judge the best of them a tenth too slow. One that is too large to be
        lowered counts as one that does not fit.

        Raises:
            MemoryError: so are all that fit.
        """
        until, begin, likely = (
            ORDERING * (self._budget.seconds or math.inf),
            self._budget.elapsed,
            list[Start](),
        )
        for start in sorted(
            (start for start in starts if start.fits), key=lambda start: start.seconds
        ):
            if likely and (
                self._is_enough(likely)
                or not self.has_time(start.variant, start.strategy, ORDERING)
            ):
                break
            if self.of(start.variant, start.strategy, AS_LOWERED):
                likely.append(start)
            else:
                start.seconds = math.inf
        if not likely:
            raise MemoryError(
                "search: of no start that fits the devices is there memory here for all rows"
            )
        likely.sort(key=lambda start: self.of(start.variant, start.strategy, AS_LOWERED)[0].figures)
        best = likely[0]
        may_order = self._budget.elapsed < until and not self._budget.is_interrupted
        found = self.of(best.variant, best.strategy, orders if may_order else AS_LOWERED, until)
        fastest = min(zip(found, orders, strict=False), key=lambda each: each[0].figures)
        self.orders = tuple(dict.fromkeys([None, fastest[1]]))
        made = len(likely) - 1 + len(found)
        self.each_seconds = (self._budget.elapsed - begin) * len(self.orders) / made
        for start in likely[1:]:
            if not self._budget.is_interrupted and self.has_time(
                start.variant, start.strategy, NEXT_UNTIL
            ):
                self.of(start.variant, start.strategy, self.orders)
        return best

    def of(
        self,
        variant: Variant,
        strategy: Strategy,
        orders: Sequence[str | None],
        until: float = math.inf,
    ) -> list[Outcome]:
        """What comes of a strategy in these orders.

        Of those after the first only what is begun before `until`; none where there is too little memory for all rows.
        """
        known, begin = self._known.setdefault(id(strategy), {}), self._budget.elapsed
        new = [
            order for order in orders if order not in known and id(strategy) not in self._left_out
        ]
        try:
            rows = variant.judge.count_rows(strategy) if new else 0
            new = [order for order in new if order is None or rows <= ORDERED_ROWS]
            timelines = variant.judge.timelines(strategy, new) if new else ()
            for number, (order, said) in enumerate(zip(new, timelines, strict=True), 1):
                known[order] = Outcome.of(variant.plan_of(strategy, order), said)
                self.row_seconds = max(
                    self.row_seconds, (self._budget.elapsed - begin) / number / max(rows, 1)
                )
                if self._budget.elapsed > until or self._budget.is_interrupted:
                    break
        except MemoryError as error:
            self._left_out[id(strategy)] = strategy
            _log.info(
                "search: a strategy is left out, since its rows do not fit into memory here: %s",
                error,
            )
        return [known[order] for order in orders if order in known]

    def ask_tight(self, starts: Sequence[Start]) -> None:
        """Where no start fits, predict those that may: the fastest first, until one does."""
        for start in tight_starts(starts):
            found = self.of(start.variant, start.strategy, AS_LOWERED)
            if self._budget.used_seconds > TIGHT or any(each.fits for each in found):
                return

    def _is_enough(self, likely: Sequence[Start]) -> bool:
        return len(likely) == NEXT or self._budget.is_interrupted

    def is_known(self, strategy: Strategy) -> bool:
        """Whether a strategy was predicted."""
        return id(strategy) in self._known

    @property
    def all(self) -> tuple[Outcome, ...]:
        """Of all strategies so far."""
        return tuple(each for found in self._known.values() for each in found.values())

    def has_time(self, variant: Variant, strategy: Strategy, part: float = 1.0) -> bool:
        """Whether a strategy was predicted, or can be before this part of the seconds of the budget is over."""
        if self._budget.seconds is None or id(strategy) in self._known:
            return True
        left = part * self._budget.seconds - self._budget.elapsed
        if left < self.each_seconds:
            return False
        return self.row_seconds * variant.judge.count_rows(strategy) * len(self.orders) < left

    @property
    def is_late(self) -> bool:
        """Whether there is no time for one more."""
        return (
            self._budget.seconds is not None
            and self._budget.elapsed + self.each_seconds > self._budget.seconds
        )
