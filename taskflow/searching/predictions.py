"""What `simulate` says of strategies in several orders of their rows.

What overlaps depends on the order of rows. The best start is judged in all ORDERS, other strategies as lowered and in
that which was best for the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from taskflow.searching.budget import Budget
from taskflow.searching.judge import Order
from taskflow.searching.outcome import Outcome
from taskflow.searching.starts import Start
from taskflow.searching.variants import Variant
from taskflow.strategy.strategy import Strategy

AS_LOWERED: tuple[Order, ...] = (None,)
ORDERS: tuple[Order, ...] = None, "critical_path", "forward_first", "first_ready"
NEXT, NEXT_UNTIL = (
    4,
    0.5,
)  # starts, the best included, in the best order; until when, of the seconds
ORDERING = 0.4  # of the seconds of a budget: then no other order is tried


class Predictions:
    """Outcomes of strategies in orders.

    Attributes:
        orders: in which a strategy is judged.
        each_seconds: that this takes, about.
        all: the outcomes so far.
    """

    def __init__(self, budget: Budget) -> None:
        self.orders, self.each_seconds, self._budget = AS_LOWERED, 0.0, budget
        self.all: list[Outcome] = []

    def begin(self, starts: Sequence[Start], orders: tuple[Order, ...]) -> Start:
        """The best start, which is judged in all `orders`; some others in the one that is best for it."""
        fitting = sorted((s for s in starts if s.fits), key=lambda start: start.outcome.figures)
        best, begin = fitting[0], self._budget.elapsed
        until = ORDERING * (self._budget.seconds or math.inf)
        may_order = begin < until and not self._budget.is_interrupted
        outcomes = self.of(best.variant, best.strategy, orders if may_order else AS_LOWERED, until)
        fastest = min(zip(outcomes, orders, strict=False), key=lambda each: each[0].figures)
        self.orders = tuple(dict.fromkeys([None, fastest[1]]))
        judged = best.variant.judge.seconds_of_judging(best.strategy)
        of_orders = (self._budget.elapsed - begin) / max(len(outcomes) - 1, 1)
        self.each_seconds = max(judged, of_orders) * len(self.orders)
        for start in fitting[1:NEXT]:
            has_time = self.has_time(start.variant, start.strategy, NEXT_UNTIL)
            if has_time and not self._budget.is_interrupted:
                self.of(start.variant, start.strategy, self.orders)
        return best

    def of(
        self,
        variant: Variant,
        strategy: Strategy,
        orders: Sequence[Order],
        until: float = math.inf,
    ) -> list[Outcome]:
        """What comes of a strategy in these orders; of those after the first only what is begun before `until`."""
        outcomes = list[Outcome]()
        for outcome in variant.judge.outcomes(strategy, orders):
            outcomes.append(outcome)
            if self._budget.elapsed > until or self._budget.is_interrupted:
                break
        self.all += outcomes
        return outcomes

    def has_time(self, variant: Variant, strategy: Strategy, part: float = 1.0) -> bool:
        """Whether a strategy was judged, or can be before this part of the seconds of the budget is over."""
        if self._budget.seconds is None or variant.judge.is_known(strategy):
            return True
        left = part * self._budget.seconds - self._budget.elapsed
        return variant.judge.seconds_of_judging(strategy) * len(self.orders) < left

    @property
    def is_late(self) -> bool:
        """Whether there is no time for one more."""
        return (
            self._budget.seconds is not None
            and self._budget.elapsed + self.each_seconds > self._budget.seconds
        )
