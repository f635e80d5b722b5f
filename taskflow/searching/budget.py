"""What a search may spend: proposals, seconds, or both; and how rarely it looks for garbage meanwhile."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

RARELY = 1_000_000  # containers that were made and not freed


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


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Meanwhile, look for garbage in cycles rarely.

    A search keeps very many containers, which the collector would walk through again and again (up to a twentieth of
    the time), and makes hardly any cycles.
    """
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, RARELY) if first else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
