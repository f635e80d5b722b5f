"""Stopping on a signal: all ranks after the same step.

A signal may reach one rank or all, at any time. A handler only takes note of it. Every few steps the ranks exchange
their notes, at a step that all of them count to: the number of steps to the next exchange is part of the exchange,
chosen so that it is near 0.2 s and never over 64 steps. So a step pays for it less than 1 us of an exchange of 20 to
60 us, and between exchanges for one subtraction. (Rejected: a flag in every step's messages, which the replayed program
would carry for something that happens once.)
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from taskflow.comm.transport import Transport
from taskflow.core.system import STOPPING, outlives_terminal, world_size

_log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.2
MOST_STEPS = 64


@contextmanager
def noted_interrupt(note: Callable[[], None]) -> Iterator[None]:
    """Meanwhile a first Ctrl-C calls `note`, and a second one acts as it did before.

    To a rank it comes as SIGUSR1 from `taskflow run`, and from mpirun as SIGTERM, 0.25 s before the end. Where somebody
    else handles a signal, or outside of the main thread, which gets them, nothing changes.
    """
    defaults: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
    if world_size(0):
        defaults |= {signal.SIGTERM: signal.SIG_DFL, signal.SIGUSR1: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread():
        defaults = {}
    ours = {
        number: default
        for number, default in defaults.items()
        if signal.getsignal(number) == default
    }

    def restore() -> None:
        for number, default in ours.items():
            signal.signal(number, default)

    def act(number: int, frame: FrameType | None) -> None:
        restore()
        note()

    for number in ours:
        signal.signal(number, act)
    try:
        yield
    finally:
        restore()


class Interrupted(Exception):
    """All ranks stop here, because a rank was sent the signal of this number."""

    def __init__(self, number: int, rank: int) -> None:
        super().__init__(f"{signal.Signals(number).name} to rank {rank}")
        self.number = number


class Interrupts:
    """Takes note of signals while it is entered; a second signal acts as it did before, but for a second SIGHUP: who
    loses a terminal is told by it and by the shell.

    Signals belong to the main thread: elsewhere none is noted.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._noted = 0
        self._previous: dict[int, Any] = {}
        self._left = self._steps = 1
        self._since = time.monotonic()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._note)
                for number in STOPPING
                if not outlives_terminal(number)
            }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number
        self._restore()
        if signal.SIGHUP in self._previous:
            signal.signal(signal.SIGHUP, self._note)

    def check(self) -> None:
        """Call it between steps, on all ranks alike.

        Raises:
            Interrupted: a rank was sent a signal; raised on all ranks at the same call.
        """
        self._left -= 1
        if self._left <= 0:
            self.exchange()

    def exchange(self) -> None:
        """`check` now, whatever the number of steps since the last exchange."""
        now = time.monotonic()
        step_seconds = max((now - self._since) / self._steps, 1e-9)
        wanted = (
            min(max(int(PERIOD_SECONDS / step_seconds), 1), MOST_STEPS)
            if self.transport.size > 1
            else 1
        )
        gathered = self.transport.gather((self._noted, wanted))
        self._left = self._steps = min(steps for _, steps in gathered)
        self._since = now
        number, rank = max((noted, rank) for rank, (noted, _) in enumerate(gathered))
        if number:
            raise Interrupted(number, rank)
