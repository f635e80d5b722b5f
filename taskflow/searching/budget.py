"""Budgets: how long a search goes on, by proposals, seconds, or both."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Budget:
    """`used` grows from 0 to 1, by whichever of the two is spent sooner; with proposals alone it ignores the clock.

    Raises:
        ValueError: there is nothing to spend.
    """

    proposals: int | None
    seconds: float | None
    done: int = 0
    _begin: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if self.proposals is not None and self.proposals < 1:
            raise ValueError(f"search: the budget is at least one proposal, not {self.proposals}")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"search: the budget is a positive number of seconds, not {self.seconds}")

    @property
    def used(self) -> float:
        """The part that is spent; 1 or more: stop."""
        by_count = self.done / self.proposals if self.proposals is not None else 0.0
        if self.seconds is None:
            return by_count
        return max(by_count, (time.perf_counter() - self._begin) / self.seconds)
