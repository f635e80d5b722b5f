"""What other processes take of the cores while something is measured: its wall-clock time is worth that much less.

Counts of the kernel (`/proc/stat`) against those of the ranks, in ticks of 10 ms, so a few hundredths are rounding.
What the kernel does in interrupts is no process's: mostly it carries the messages of the ranks.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from taskflow.comm.transport import Transport

_STAT = Path("/proc/stat")


class Others:
    """The share of all cores that went to processes other than the ranks since the last `share`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._begin = self._now()

    def share(self) -> float:
        """Part of the cores' time, the same on all ranks, which all call it; 0 where the system does not count."""
        begin, end = self._begin, self._now()
        wall, busy, own = (y - x for x, y in zip(begin, end, strict=True))
        own = sum(self._transport.gather(own))
        part = max(0.0, busy - own) / max(wall * (os.cpu_count() or 1), 1e-9)
        self._begin = self._now()
        return float(max(self._transport.gather(part)))

    def _now(self) -> tuple[float, float, float]:
        """Seconds: of the clock, of all cores at work (stolen ones included), of this process at work."""
        return time.perf_counter(), _busy_seconds(), time.process_time()


def _busy_seconds() -> float:
    if not _STAT.exists():
        return 0.0
    user, nice, system, _idle, _waiting, _irq, _soft_irq, steal = map(
        int, _STAT.read_text().split()[1:9]
    )
    return (user + nice + system + steal) / os.sysconf("SC_CLK_TCK")
