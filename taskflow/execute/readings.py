"""Readings after a step: its outputs on every rank, regions where they lie, and what calls took, as times of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from taskflow.comm.transport import Transport
from taskflow.core.geometry import Rect
from taskflow.execute.memory import Memory
from taskflow.execute.program import GUARD, NOTE, RankProgram
from taskflow.graph.graph import LogicalRegion
from taskflow.graph.repeat import in_step
from taskflow.tasks.everywhere import fetched, homes_of
from taskflow.tasks.task_graph import Array, TaskGraph


class Output(NamedTuple):
    """An output: the instance that holds it on this rank, -1: none; who sends it to all, -1: all have it."""

    region: LogicalRegion
    instance: int
    root: int


def find_outputs(graph: TaskGraph, transport: Transport) -> dict[str, Output]:
    """Output name -> where this rank has it from."""
    return {name: _output(graph, transport, name) for name in graph.fetches}


def _output(graph: TaskGraph, transport: Transport, name: str) -> Output:
    region, devices = fetched(graph, name)
    here = (i for device, i, _ in graph.fetches[name] if transport.drives(device))
    ranks = [*map(transport.rank_of, devices)]
    root = ranks[0] if transport.size > len(set(ranks)) else -1
    return Output(graph.regions[region], next(here, -1), root)


def fetch(
    outputs: Mapping[str, Output], transport: Transport, hold: Callable[[int, Rect], Array]
) -> dict[str, Array]:
    """Output name -> copy of its value; `hold` gives the box of an instance that this rank has."""
    values = {}
    for name, (region, instance, root) in outputs.items():
        if instance >= 0:
            value = hold(instance, region.rect).copy()
        else:
            value = np.empty(region.shape, region.dtype)
        if root >= 0:
            transport.broadcast(value, root)
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
    if name not in graph.homes and name not in graph.fetches:
        names = ", ".join(sorted({*graph.homes, *graph.fetches}))
        raise ValueError(
            f"on_device: '{name}' is no persistent region and no output; there are {names}"
        )
    whole = _whole(graph, name)
    for device, instance, rect in homes:
        if device in memory.devices and rect.covers(whole):
            return memory.view(instance, whole)
    having = ", ".join(f"device {device} has {rect}" for device, rect in _places(graph, name))
    raise ValueError(f"on_device: no device of this rank has all of '{name}', {whole}: {having}")


def _whole(graph: TaskGraph, name: str) -> Rect:
    """The box of a persistent region or an output."""
    number = fetched(graph, name)[0] if name in graph.fetches else -1
    return next(r for k, r in enumerate(graph.regions) if k == number or r.name == name).rect


def _places(graph: TaskGraph, name: str) -> list[tuple[int, Rect]]:
    """Every device that has a part of it, on whichever rank, and which."""
    homes = list(homes_of(graph, name)) if name in graph.homes else []
    devices = fetched(graph, name)[1] if name in graph.fetches else ()
    return homes + [(device, _whole(graph, name)) for device in devices]


def together(values: Mapping[str, Array], repeat: int) -> dict[str, Array]:
    """The outputs of so many steps in a row, those of one name along a leading axis."""
    steps = range(repeat)
    return {
        name: np.stack([values[in_step(name, k)] for k in steps])
        for name in list(values)[: len(values) // repeat]
    }


def times_of_rows(program: RankProgram, times: Sequence[float], count: int) -> tuple[Array, Array]:
    """Start and end of `count` rows in seconds, NaN for those of other ranks; `times`: before and after every call."""
    start = np.full(count, np.nan)
    end = np.full(count, np.nan)
    for k, row in enumerate(program.rows):
        begun = times[k] - times[0]
        done = times[k + 1] - times[0]
        if program.roles[k] in ("run", "send") or (
            np.isnan(start[row]) and program.roles[k] == "wait"
        ):
            start[row] = begun
        if program.roles[k] not in ("post", GUARD, NOTE):
            end[row] = done
    return start, end
