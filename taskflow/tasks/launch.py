"""Launches: what the rows of one operator share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.core.columns import Array
from taskflow.graph.kernel import Kernel
from taskflow.graph.pattern import BoundPattern
from taskflow.graph.phases import Phase
from taskflow.strategy.strategy import ParallelConfig


@dataclass(frozen=True, eq=False)
class Launch:
    """What the rows of one operator share: the kernel and `spans`, the interval of every axis: (points, axes, 2).

    `config` is for people and hashes alone: points and boxes follow from it.
    `identity` names kernel, pattern and dtypes for cost caches; `combine` is how partial results of each output add up.
    `bound`, its pattern, is for threads that divide a point. `members` are the operators that were fused into it.
    `step`, `pace`, `job`: of several steps and graphs; `phase`: see `graph.phases`. `writes`: what is updated.
    `crossing`, `passes`: see `Operator`.
    """

    name: str
    kernel: Kernel
    axes: tuple[str, ...]
    spans: Array
    args: tuple[int, ...]
    identity: str
    leader: str
    config: ParallelConfig
    bound: BoundPattern
    members: tuple[str, ...] = ()
    step: int = 0
    job: str = ""
    phase: Phase = Phase.FORWARD
    writes: tuple[int, ...] = ()
    pace: int = 1
    crossing: int = -1
    passes: tuple[int, ...] = ()

    @property
    def split(self) -> str:
        """The configuration as text."""
        return str(self.config)

    def intervals(self, point: int) -> dict[str, tuple[int, int]]:
        """Axis -> interval of one point."""
        return {
            a: (lo, hi) for a, (lo, hi) in zip(self.axes, self.spans[point].tolist(), strict=True)
        }


def crossing_of(launches: Sequence[Launch], launch: Array) -> Array:
    """See `TaskGraph.crossing`, of rows of these launches; -1: of none."""
    return np.array([*(each.crossing for each in launches), -1])[launch]
