"""The collectives of a library (NCCL) as one more algorithm: their seconds are measured, how it sends is its affair.

Where links are asked for, it loads those of a ring, along which NCCL sends what is large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.machine.library import LIBRARY, LibraryTimes
from taskflow.tasks.moves import Outline
from taskflow.tasks.steps import SUMS
from taskflow.tasks.task_graph import Kind, TaskGraph


def times_of(group: Group, library: Sequence[LibraryTimes]) -> Mapping[str, LibraryTimes]:
    """What was measured in groups of so many members on so many hosts: collective -> times."""
    on_host = np.diff(group.host_begin)
    is_even = len(on_host) > 0 and int(on_host.min()) == int(on_host.max())
    size = len(on_host), group.count
    return {
        times.collective: times
        for times in library
        if is_even and (times.hosts, times.devices) == size
    }


def is_one_call(outline: Outline) -> bool:
    """Whether a library has one call for it: all members take part, with equal slices of the slowest dimension."""
    members = len(outline.hosts)
    if not outline.is_even or (outline.name in SUMS and len(outline.sources) < members):
        return False
    if outline.is_whole:
        return True
    boxes = outline.tiles
    low, high = boxes[:, 0], boxes[:, 1]
    follows = (low[1:, 0] == high[:-1, 0]).all() and len(set((high - low)[:, 0].tolist())) == 1
    is_wide = (low[:, 1:] == low[0, 1:]).all() and (high[:, 1:] == high[0, 1:]).all()
    return bool(follows and is_wide) and outline.owners == tuple(range(members))


def is_by_library(task_graph: TaskGraph) -> Array:
    """Which rows are collectives that a library carries out by itself: they cannot be spelled out."""
    ways = np.array([*(way.algorithm == LIBRARY for way in task_graph.ways), False])
    found: Array = (task_graph.kind == Kind.COLLECTIVE) & ways[task_graph.algorithm.clip(-1)]
    return found
