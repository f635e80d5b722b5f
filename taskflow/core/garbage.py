"""How often Python looks for garbage in cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = 1_000_000  # look for garbage: containers that were made and not freed


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Meanwhile, look for garbage in cycles rarely.

    What makes very many containers that stay, and hardly any cycles, has the collector walk through them again and
    again: up to a twentieth of the time of a search, and a third of that of an executor of 100,000 rows.
    """
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, RARELY) if first else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
