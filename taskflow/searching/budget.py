"""The budget of a search, which Ctrl-C spends, and what goes on while it is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from time import perf_counter as clock

from taskflow.core.numbers import is_whole
from taskflow.core.tiers import Cold

BEHIND = 0.1  # of the seconds, and half a second at most: for what is said of a result
HALF = 1 / 2  # of the seconds: more of them, in which nothing is compiled yet


@dataclass
class Budget:
    """`used` grows from 0 to 1, by whichever of the two is spent sooner; with proposals alone it ignores the clock.

    Of the proposals, what is `done` was judged, and what is `spent` takes as long as so many changes of one plan.

    An interrupt spends all of it. The first search ever runs as Python until its functions are compiled: that is not
    counted, up to half as many seconds more.

    Raises:
        ValueError: there is nothing to spend.
    """

    proposals: int | None
    seconds: float | None
    done: int = 0
    spent: float = 0.0
    is_interrupted: bool = False
    _cold: float = field(default_factory=lambda: Cold.seconds)

    def __post_init__(self) -> None:
        self._begin = clock()
        if self.proposals is not None and not is_whole(self.proposals):
            raise ValueError(f"search: the budget is at least one proposal, not {self.proposals}")
        is_number = isinstance(self.seconds, Real) and not isinstance(self.seconds, bool)
        if self.seconds is not None and not (is_number and self.seconds > 0):
            raise ValueError(
                f"search: the budget is a positive number of seconds, not {self.seconds}"
            )

    @property
    def used(self) -> float:
        """The part that is spent; 1 or more: stop."""
        if self.is_interrupted:
            return math.inf
        by_count = self.spent / (self.proposals or math.inf)
        return max(by_count, self.elapsed / (self.seconds or math.inf))

    @property
    def elapsed(self) -> float:
        """Seconds since it was made that count."""
        cold = min(Cold.seconds - self._cold, HALF * (self.seconds or 0.0))
        return clock() - self._begin - cold

    def behind(self) -> Callable[[], bool]:
        """Whether what is done now, when all is spent, has taken its time."""
        seconds = self.seconds or math.inf
        until = max(self.elapsed, seconds) + min(BEHIND * seconds, HALF)
        return lambda: self.is_interrupted or self.elapsed > until

    def interrupt(self) -> None:
        """Spend it, so that no proposal ends half way."""
        self.is_interrupted = True
