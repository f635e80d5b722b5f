"""Seconds of kernels that were timed, and the cost file that keeps them from run to run.

A file may be another machine's, or of a busy hour. So what is read from it is looked at when it is first used: a time
that is far from what the rates of the device give is taken, and a warning says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, ItemsView
from pathlib import Path

from taskflow.backend.choices import Choices
from taskflow.cost.costfile import ByWay, Costs, read_costs, write_costs

_log = logging.getLogger(__name__)
_MOST_TIMES = 100.0  # a roofline is 1 to 30 times off for the kernels of a CPU
_LEAST_SECONDS = 1e-3  # below, the clock is


class KeptTimes:
    """Key of a kernel -> seconds.

    Args:
        path: of the cost file, which is read now if it exists; None: there is none.

    Raises:
        ValueError: the file is malformed.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._is_new = False
        kept = read_costs(path) if path and path.exists() else Costs()
        self._seconds = kept.kernels
        self._choices = kept.choices
        self._unseen = set(self._seconds)

    def __len__(self) -> int:
        return len(self._seconds)

    def items(self) -> ItemsView[str, float]:
        """Key of a kernel, seconds."""
        return self._seconds.items()

    def find(self, key: str, measure: Callable[[], float], expect: Callable[[], float]) -> float:
        """Seconds of a kernel: those that are kept, or what is measured now; `expect` gives those of a roofline."""
        if key not in self._seconds:
            self._seconds[key], self._is_new = measure(), True
        elif key in self._unseen:
            self._unseen.remove(key)
            self._look_at(key, expect())
        return self._seconds[key]

    def choices(self, gpu: str) -> Choices | None:
        """What was measured on a kind of GPU, for the file; None where there is no file, or nothing of it."""
        return Choices(self._choices[gpu]) if self._path and gpu in self._choices else None

    def choose(self, gpu: str, by_way: ByWay) -> None:
        """Keep the seconds of ways that were measured on a kind of GPU."""
        self._choices.setdefault(gpu, {}).update(by_way)

    def _look_at(self, key: str, expected: float) -> None:
        kept = self._seconds[key]
        low, high = sorted((kept, expected))
        if high > _MOST_TIMES * low and high > _LEAST_SECONDS:
            says = "cost file '%s': kernel '%s' takes %.3g s, its device's rates give %.3g s; is it of this machine?"
            _log.warning(says, self._path, key, kept, expected)

    def write(self) -> None:
        """Write what was measured since, and what another process has written."""
        if self._path and self._is_new:
            kept = read_costs(self._path) if self._path.is_file() else Costs()
            costs = Costs(self._seconds, self._choices).beside(kept)
            self._seconds = costs.kernels
            self._choices = costs.choices
            write_costs(self._path, costs)
            self._is_new = False
