"""Outcomes: what a step of a strategy takes in seconds, traffic and memory, and which of several none other beats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from taskflow.strategy.strategy import Strategy
from taskflow.tasks.timeline import Timeline

FOUND = "found"


@dataclass(frozen=True)
class Outcome:
    """A strategy and its predicted step.

    Attributes:
        strategy: what was simulated.
        seconds: of a step.
        bytes_moved: between devices.
        peak_bytes: of the device that needs most.
        name: of the start that it is, else `found`.
    """

    strategy: Strategy
    seconds: float
    bytes_moved: int
    peak_bytes: int
    name: str = FOUND

    @staticmethod
    def of(strategy: Strategy, timeline: Timeline) -> Outcome:
        """What a timeline says of a strategy."""
        return Outcome(strategy, timeline.seconds, timeline.bytes_moved, int(timeline.peak_bytes.max()))

    @property
    def figures(self) -> tuple[float, int, int]:
        """Seconds, bytes moved, peak bytes: less is better."""
        return self.seconds, self.bytes_moved, self.peak_bytes


def named_outcomes(outcomes: Iterable[Outcome], starts: Mapping[str, Strategy]) -> Iterator[Outcome]:
    """The outcomes, those of starts with their names."""
    for each in outcomes:
        yield replace(each, name=next((n for n, s in starts.items() if s == each.strategy), FOUND))


def non_dominated(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Those than which no other is as good in everything, the fastest first; of equal ones the first."""
    kept: list[Outcome] = []
    for each in sorted(outcomes, key=lambda o: o.figures):
        if not any(all(a <= b for a, b in zip(k.figures, each.figures, strict=True)) for k in kept):
            kept.append(each)
    return tuple(kept)
