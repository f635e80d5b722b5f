"""Ctrl-C in the middle of a step: parameters are those of before it or those of after it, never some of each.

Where nothing has been changed yet that cannot be undone, it is raised at once, else when the step is over. A second one
is raised at once in any case.

The functions of `signal` call those of `_signal` and look for names of numbers, too: 11 us a step instead of 0.5.
"""

from __future__ import annotations

from _signal import getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Callable
from signal import SIGINT, default_int_handler
from threading import current_thread, main_thread
from types import FrameType

_NUMBER = int(SIGINT)


class HeldInterrupt:
    """Entered for a step; outside of the main thread, or where somebody else handles Ctrl-C, it does nothing.

    Args:
        can_stop: whether the step, which has begun, may end where it is.
    """

    def __init__(self, can_stop: Callable[[], bool]) -> None:
        self._can_stop = can_stop
        self._is_noted = self._is_ours = self._has_begun = False

    def begin(self) -> None:
        """From now on the step changes what it cannot undo, unless `can_stop` says otherwise."""
        self._has_begun = True

    def __enter__(self) -> None:
        self._is_noted = self._has_begun = False
        self._is_ours = (
            current_thread() is main_thread() and getsignal(_NUMBER) is default_int_handler
        )
        if self._is_ours:
            signal(_NUMBER, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        signal(_NUMBER, default_int_handler)
        if not self._has_begun or self._can_stop():
            raise KeyboardInterrupt
        self._is_noted = True

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._is_ours:
            signal(_NUMBER, default_int_handler)
        if self._is_noted and kind is None:
            raise KeyboardInterrupt
