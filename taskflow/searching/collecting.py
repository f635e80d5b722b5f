"""Python's garbage collector during a search."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = 1_000_000  # containers that were made and not freed


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
