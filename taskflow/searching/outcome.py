"""Outcomes: what a step of a plan takes in seconds, traffic and memory, and which of several none other beats."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.tasks.timeline import Timeline

FOUND = "found"


@dataclass(frozen=True)
class Outcome:
    """A plan and its predicted step.

    Attributes:
        plan: what was simulated.
        seconds: of a step; infinite: it does not fit into memory.
        bytes_moved: between devices.
        peak_bytes: of the device that needs most.
        shortage: what does not fit, see `taskflow.tasks.memory.shortage`, or why it cannot be; empty where all does.
        name: of the start that it is, else `found`; of a pipeline what it is.
        with_room: its seconds if memory were no limit.
        first_seconds: until the first of several steps in a row is done.
        host_share: see `Timeline`.
    """

    plan: Plan
    seconds: float
    bytes_moved: int
    peak_bytes: int
    shortage: str = ""
    name: str = FOUND
    with_room: float = math.inf
    first_seconds: float = math.inf
    host_share: float = 0.0

    @classmethod
    def of(cls, plan: Plan, timeline: Timeline, name: str = FOUND) -> Outcome:
        """What `simulate` says of a plan."""
        return cls(
            plan,
            math.inf if timeline.shortage else timeline.seconds,
            timeline.bytes_moved,
            int(timeline.peak_bytes.max()),
            timeline.shortage,
            name,
            timeline.seconds,
            timeline.seconds,
            timeline.host_share,
        )

    @classmethod
    def refused(cls, plan: Plan, why: str) -> Outcome:
        """What comes of a plan that is illegal, or has too many rows for the memory here."""
        return cls(plan, math.inf, 0, sys.maxsize, why)

    @property
    def fits(self) -> bool:
        """Into memory."""
        return not self.shortage

    @property
    def figures(self) -> tuple[float, int, int]:
        """Seconds, bytes moved, peak bytes: less is better."""
        return self.seconds, self.bytes_moved, self.peak_bytes


def non_dominated(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Those with room than which no other is as good in everything, the fastest first; of equal ones the first."""
    kept: list[Outcome] = []
    for outcome in sorted((o for o in outcomes if o.fits), key=lambda o: o.figures):
        if not any(
            all(a <= b for a, b in zip(k.figures, outcome.figures, strict=True)) for k in kept
        ):
            kept.append(outcome)
    return tuple(kept)


def judged(
    graph: Graph, machine: MachineModel, costs: CostModel, plan: Plan, name: str = FOUND
) -> Outcome:
    """What `simulate` says of a plan."""
    return Outcome.of(plan, plan.predict(graph, machine, costs), name)
