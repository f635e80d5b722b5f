"""The population of a search: of every kind of plan the best ones, from which moves go on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.machine import MachineModel
from taskflow.searching.outcome import Outcome

KEPT = 3  # of a kind


@dataclass(frozen=True)
class Leader:
    """A plan that moves may go on from.

    Attributes:
        kind: what it has in common with others, of which only the best are kept.
        score: less is better: its seconds, and more where it does not fit into memory.
    """

    outcome: Outcome
    kind: object
    score: float


class Population:
    """The best outcomes of every kind.

    Attributes:
        outcomes: all that were judged.
        best: the fastest that fits; of equal ones that which moves fewer bytes, then that which needs less memory.
    """

    def __init__(self, machine: MachineModel) -> None:
        self._room = min(device.free_bytes for device in machine.devices)
        self.leaders: list[Leader] = []  # the best first
        self.outcomes: list[Outcome] = []
        self.best: Outcome | None = None

    def add(self, outcome: Outcome, kind: object) -> None:
        """Note an outcome; if it is one of the best of its kind, moves will go on from it."""
        self.outcomes.append(outcome)
        if outcome.fits and (self.best is None or outcome.figures < self.best.figures):
            self.best = outcome
        leader = Leader(outcome, kind, self.score(outcome))
        if math.isfinite(leader.score):
            self.leaders = sorted([*self.leaders, leader], key=lambda other: other.score)
            alike = kind, bool(outcome.plan.offloaded)
            same = [x for x in self.leaders if (x.kind, bool(x.outcome.plan.offloaded)) == alike]
            if len(same) > KEPT:
                self.leaders.remove(same[-1])

    def score(self, outcome: Outcome) -> float:
        """See `Leader`."""
        over = max(outcome.peak_bytes / self._room, outcome.host_share, 1.0) ** (not outcome.fits)
        return outcome.with_room * over**2

    def draw(self, generator: np.random.Generator, leaders: Sequence[Leader]) -> Iterator[Leader]:
        """Some leaders, in a random order: the better one is, the likelier it comes first."""
        left = list(leaders)
        while left:
            place = int(-math.log2(1.0 - generator.random()))
            yield left.pop(min(place, len(left) - 1))
