"""What the operating system says of the host, and what Linux does for a process that asks (`prctl`)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SET_DEATH_SIGNAL, _SET_TIMER_SLACK = 1, 29  # <linux/prctl.h>


def end_with_parent() -> None:
    """From now on this process is sent SIGTERM when its parent ends."""
    _prctl(_SET_DEATH_SIGNAL, int(signal.SIGTERM))


def wake_on_time() -> None:
    """From now on a sleep of this thread ends 10 to 45 us late instead of 75 to 95: Linux adds 50 to be lazy."""
    _prctl(_SET_TIMER_SLACK, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def host_name() -> str:
    """The name of this host and its latest start, which no other host has."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return os.uname().nodename + file.read()
    except OSError:
        return os.uname().nodename
