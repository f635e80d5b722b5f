"""What is known from feeds alone, and so before the first layer: it may be computed for all micro-batches at once.

A count of the targets of a whole batch, by which a loss of each micro-batch is divided, is such a value. Takes the rows
of a task graph and which of them belong to stages; gives the launches that need not wait for their turn. They are those
on the way from feeds to a point that awaits a later micro-batch of theirs. All others stay where they are: what every
micro-batch makes for itself costs memory when it is made too early.
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.core.compiling import tiered
from taskflow.graph.phases import Phase
from taskflow.tasks.task_graph import Kind, Privilege, TaskGraph


def early_launches(task_graph: TaskGraph, is_staged: Array) -> Array:
    """Per launch whether it is made of feeds alone and some staged row awaits a later micro-batch of it."""
    is_early = np.zeros(len(task_graph.launches), np.bool_)
    of_feeds = _of_feeds(task_graph)
    points = task_graph.kind == Kind.POINT
    launch = np.where(points, task_graph.launch, 0)
    is_of_feeds = points & is_staged & of_feeds[launch]
    if not is_of_feeds.any():
        return is_early
    passes = np.where(points, ~is_staged | is_of_feeds, True)
    passes &= ~(
        points
        & (np.array([launch.phase for launch in task_graph.launches])[launch] == Phase.UPDATE)
    )
    is_needed = _needed_late(
        task_graph.dep_ptr, task_graph.dep_row, task_graph.ordinal, is_of_feeds, passes
    )
    is_early[launch[is_of_feeds & is_needed]] = True
    return is_early


def _of_feeds(task_graph: TaskGraph) -> Array:
    """Per launch whether it is made of feeds alone, and of states that no launch updates."""
    updated = _updated(task_graph)
    fed = {
        k
        for k, region in enumerate(task_graph.regions)
        if region.role == "input" or (region.is_persistent and k not in updated)
    }
    is_of_feeds = np.zeros(len(task_graph.launches), np.bool_)
    for number, launch in enumerate(task_graph.launches):
        count = len(launch.bound.pattern.inputs)
        if (
            launch.phase == Phase.FORWARD
            and fed.issuperset(launch.args[:count])
            and updated.isdisjoint(launch.args)
        ):
            is_of_feeds[number] = True
            fed.update(launch.args[count:])
    return is_of_feeds


def _updated(task_graph: TaskGraph) -> set[int]:
    """The regions that launches update in place."""
    ptr = task_graph.arg_ptr
    changed = np.flatnonzero(task_graph.arg_privilege == Privilege.READ_WRITE)
    row = np.searchsorted(ptr, changed, side="right") - 1
    of_points = task_graph.kind[row] == Kind.POINT
    row = row[of_points]
    args = pointers([len(launch.args) for launch in task_graph.launches])
    is_changed = np.zeros(args[-1], np.bool_)
    is_changed[args[task_graph.launch[row]] + changed[of_points] - ptr[row]] = True
    numbers = [number for launch in task_graph.launches for number in launch.args]
    return {numbers[k] for k in np.flatnonzero(is_changed).tolist()}


@tiered
def last_ordinals(
    ptr: Array, awaited: Array, ordinal: Array, counts: Array, passes: Array
) -> Array:
    """Per row the last ordinal of those that count: its own, and where it `passes` those that it waits for; or -1."""
    last = np.full(len(ordinal), -1)
    for row in range(len(ordinal)):
        if counts[row]:
            last[row] = ordinal[row]
        if passes[row]:
            for before in awaited[ptr[row] : ptr[row + 1]]:
                last[row] = max(last[row], last[before])
    return last


@tiered
def _needed_late(
    ptr: Array, awaited: Array, ordinal: Array, is_of_feeds: Array, passes: Array
) -> Array:
    """Per row whether a staged row awaits, through rows that `passes`, points of feeds of a later ordinal than its own,
    and this row is on the way.
    """
    last = last_ordinals(ptr, awaited, ordinal, is_of_feeds, passes)
    needed = np.zeros(len(ordinal), np.bool_)
    for row in range(len(ordinal) - 1, -1, -1):
        for before in awaited[ptr[row] : ptr[row + 1]]:
            is_late = not passes[row] and last[before] > ordinal[row]
            if passes[before] and last[before] >= 0 and (is_late or (passes[row] and needed[row])):
                needed[before] = True
    return needed
