"""Readings after a step: its outputs on every rank, regions where they lie, and what calls took, as times of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from taskflow.comm.transport import Transport
from taskflow.core.geometry import Rect
from taskflow.execute.memory import Memory
from taskflow.execute.program import GUARD, NOTE, RankProgram
from taskflow.graph.repeat import in_step
from taskflow.tasks.task_graph import Array, TaskGraph


def fetch(
    graph: TaskGraph, transport: Transport, hold: Callable[[int, Rect], Array]
) -> dict[str, Array]:
    """Output name -> copy of its value; `hold` gives the box of an instance that this rank has."""
    values = {}
    for name, homes in graph.fetches.items():
        (first, instance, rect), ranks = (
            homes[0],
            [transport.rank_of(device) for device, _, _ in homes],
        )
        if transport.rank in ranks:
            value = hold(homes[ranks.index(transport.rank)][1], rect).copy()
        else:
            region = graph.regions[int(graph.instance_region[instance])]
            value = np.empty(region.shape, region.dtype)
        if transport.size > len(set(ranks)):
            transport.broadcast(value, transport.rank_of(first))
        values[name] = value
    return values


def on_device(graph: TaskGraph, memory: Memory, name: str) -> Array:
    """A persistent region, or an output of the last step, in the memory of the first device here that has all of it.

    An array of NumPy, or of CuPy on a GPU, that other libraries take without a copy (DLPack): `torch.from_dlpack(...)`.
    A step has ended on all streams when it returns, so nobody has to wait; the next one writes there, and who writes
    there changes the region.

    Raises:
        ValueError: there is no such region, or no device of this rank has all of it.
    """
    homes = [(int(graph.instance_device[i]), i, rect) for i, rect in graph.homes.get(name, ())]
    homes += graph.fetches.get(name, ())
    if not homes:
        known = ", ".join(sorted({*graph.homes, *graph.fetches}))
        raise ValueError(
            f"on_device: '{name}' is no persistent region and no output; there are {known}"
        )
    whole = graph.regions[int(graph.instance_region[homes[0][1]])].rect
    for device, instance, rect in homes:
        if device in memory.own and rect.covers(whole):
            return memory.view(instance, whole)
    having = ", ".join(f"device {device} has {rect}" for device, _, rect in homes)
    raise ValueError(f"on_device: no device of this rank has all of '{name}', {whole}: {having}")


def together(values: Mapping[str, Array], repeat: int) -> dict[str, Array]:
    """The outputs of so many steps in a row, those of one name along a leading axis."""
    steps = range(repeat)
    return {
        name: np.stack([values[in_step(name, k)] for k in steps])
        for name in list(values)[: len(values) // repeat]
    }


def times_of_rows(program: RankProgram, times: Sequence[float], count: int) -> tuple[Array, Array]:
    """Start and end of `count` rows in seconds, NaN for those of other ranks; `times`: before and after every call."""
    start, end = np.full(count, np.nan), np.full(count, np.nan)
    for k, row in enumerate(program.rows):
        begun, done = times[k] - times[0], times[k + 1] - times[0]
        if program.roles[k] in ("run", "send") or (
            np.isnan(start[row]) and program.roles[k] == "wait"
        ):
            start[row] = begun
        if program.roles[k] not in ("post", GUARD, NOTE):
            end[row] = done
    return start, end
