"""Rehearsal: the rows of a task graph timed as they run in a step, before there is one.

A kernel that is timed alone, again and again, finds its data and its code in the cache and the memory to itself. In a
step it does not: on two cores that share both, steps took up to 40 % longer than the sum of such times. So here every
rank runs the calls of its rows one after the other in their order, all ranks at the same time, on arrays of their own.
What a rehearsal leaves out is what the simulation is for: dependences, waiting and whatever overlaps.

All ranks call it and learn the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from taskflow.comm import connect
from taskflow.cost import MeasuredCosts, merges, rehearsal_key, sample_box, sample_call
from taskflow.execute.fold import fold_call
from taskflow.task import Kind, TaskGraph

Call = Callable[[], object]

_log = logging.getLogger(__name__)


def rehearse(costs: MeasuredCosts, task_graph: TaskGraph, rounds: int = 7) -> None:
    """Let `costs` learn the seconds of the rows of `task_graph`.

    They are means over the rounds that as a whole are neither quick nor slow. Medians row by row would leave out what
    disturbs now one row, now another, which is 5 % of a step here. Takes memory for a sample of every kind of row;
    where that is more than half of a device's, nothing is rehearsed and the kernels are timed alone.
    """
    transport = connect()
    alone = np.flatnonzero(task_graph.kind != Kind.COLLECTIVE).tolist()  # what many do together has a formula
    mine = [r for r in alone if transport.drives(int(task_graph.device[r]))]
    keys = [rehearsal_key(task_graph, r) for r in mine]
    first = dict(zip(reversed(keys), reversed(mine), strict=True))
    size_bytes = max(transport.gather(sum(int(task_graph.bytes[row]) for row in first.values())))
    if size_bytes > min(d.memory_bytes for d in task_graph.machine.devices) / 2:
        _log.info("no rehearsal: its samples would take %d bytes", size_bytes)
        return
    samples = {key: _sample(task_graph, row) for key, row in first.items()}
    _time_all(list(samples.values()))  # compiled, and their memory touched
    found = []
    for _ in range(rounds):
        transport.barrier()
        found.append(_time_all([samples[key] for key in keys]))
    for learnt in transport.gather(_summarise(keys, found)):
        costs.learn(learnt)


def _summarise(keys: list[str], rounds: list[list[float]]) -> dict[str, list[float]]:
    """Mean seconds of the rows of every key, over the middle half of the rounds."""
    ordinary = sorted(rounds, key=sum)[len(rounds) // 4 : len(rounds) - len(rounds) // 4]
    seconds: dict[str, list[float]] = {}
    for key, mean in zip(keys, np.mean(ordinary, axis=0).tolist(), strict=True):
        seconds.setdefault(key, []).append(mean)
    return {key: [float(np.mean(means))] for key, means in seconds.items()}


def _time_all(calls: list[Call]) -> list[float]:
    """Seconds of every call, made one after the other."""
    clock, times = time.perf_counter, [time.perf_counter()]
    with np.errstate(all="ignore"):  # what is summed again and again may overflow
        for call in calls:
            call()
            times.append(clock())
    seconds: list[float] = np.diff(times).tolist()
    return seconds


def _sample(task_graph: TaskGraph, row: int) -> Call:
    """The call of a row on arrays of its own."""
    kind = task_graph.kind[row]
    if kind == Kind.POINT:
        return sample_call(task_graph, task_graph.launches[int(task_graph.launch[row])], row)
    if merges(task_graph, row):
        return _nothing
    args = task_graph.args(row)
    boxes = [sample_box(task_graph, row, k) for k in range(len(args))]
    if kind == Kind.COPY:
        return partial(np.copyto, boxes[1], boxes[0])
    if kind == Kind.FEED:
        fed = np.zeros(task_graph.regions[int(task_graph.region[row])].shape, boxes[0].dtype)
        return partial(np.copyto, boxes[0], fed[args[0][1].slices()])
    parts = boxes[1:]
    if args[0][:2] == args[1][:2]:
        parts[0] = boxes[0]
    return fold_call(np.add, boxes[0], parts, parts[1:] if _hands_on(task_graph, row) else ())


def _hands_on(task_graph: TaskGraph, row: int) -> bool:
    """Whether others want the result of a fold."""
    target = task_graph.args(row)[0][0]
    sources = task_graph.arg_instance[task_graph.arg_ptr[np.flatnonzero(task_graph.is_transfer)]]
    return bool(np.any(sources == target))


def _nothing() -> None:
    """What a fold does in its own pass."""
