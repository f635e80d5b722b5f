"""The watchdog: a thread that looks at a running step and says who waits for whom when nothing moves.

It only looks, so the replayed step pays nothing: what it sees is how many calls the step's iterator has left. It calls
no MPI, except to end all ranks when it was asked to. What it cannot see is a kernel that never lets go of Python's
lock; the other ranks, which wait for it, then speak.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Protocol

_log = logging.getLogger(__name__)

CHECKS = 10  # looks per period: a stop is noticed after 1 to 1.1 periods


class Watched(Protocol):
    """What a watchdog looks at, from its own thread."""

    def standing(self) -> tuple[object, int] | None:
        """The run under way and how many of its calls are left; None between runs."""

    def describe_standing(self, left: int) -> str:
        """Where a run with so many calls left stands, and for whom it waits."""

    def give_up(self) -> None:
        """End all ranks."""


def watch(watched: Watched, seconds: float, gives_up: bool) -> None:
    """Watch until `watched` is dropped: warn when it stands still for `seconds`, and end all ranks if `gives_up`."""
    dropped = threading.Event()
    weakref.finalize(watched, dropped.set)
    arguments = (weakref.ref(watched), dropped, seconds, gives_up)
    threading.Thread(target=_watch, args=arguments, name="taskflow-watchdog", daemon=True).start()


def _watch(reference: weakref.ReferenceType[Watched], dropped: threading.Event, seconds: float, gives_up: bool) -> None:
    last, since, is_told = None, time.monotonic(), False
    while not dropped.wait(seconds / CHECKS):
        watched = reference()
        if watched is None:
            return
        now, found = time.monotonic(), watched.standing()
        if found is None or last is None or found[0] is not last[0] or found[1] != last[1]:
            last, since, is_told = found, now, False
        elif not is_told and now - since >= seconds:
            is_told = True
            _log.error("nothing has moved for %.0f s: %s", now - since, watched.describe_standing(found[1]))
            if gives_up:
                dropped.wait(seconds / CHECKS)  # the other ranks still want to speak
                watched.give_up()
        del watched
