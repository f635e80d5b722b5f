"""Put off: what a step could do at once and should not, since its result would lie in memory until it is read.

That is what `recompute` and `homes` made: weights that are gathered, and values that are computed again. They wait for
nothing but parameters and what the forward pass kept, so an order by readiness would begin with all of them. Takes
rows; gives for each of these the row that it should not be issued before.

```
 gather 1 . gather 2 . gather 3 ...        by readiness: all weights are in memory at once
 layer 1 -> gather 2, layer 2 -> gather 3  one layer ahead: those of two layers are
```
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, distinct
from taskflow.core.compiling import tiered
from taskflow.graph.phases import Phase
from taskflow.machine.hostmemory import BACK
from taskflow.tasks.task_graph import Kind, Launch, TaskGraph

NOWHERE = 1 << 62  # the position of a row that stands in no order


class PutOff(NamedTuple):
    """Rows that are put off, and for each the first row that reads what comes of it."""

    row: Array
    reader: Array

    def only(self, kept: Array) -> PutOff:
        """Those that are marked."""
        return PutOff(self.row[kept], self.reader[kept])


def gathers(task_graph: TaskGraph, position: Array) -> PutOff:
    """Rows that bring parameters to their readers, from other devices, beside these or hosts, and casts before them.

    Args:
        task_graph: the rows.
        position: of every row in the order that says which reader is the first.
    """
    points = task_graph.kind == Kind.POINT
    may = task_graph.kind != Kind.FEED
    may[points] = of_parameters(task_graph)[task_graph.launch[points]]
    moves = task_graph.is_communication | (task_graph.kind == Kind.COPY)
    moves |= task_graph.crossing == BACK
    is_of, leads, reader = _follow(task_graph.dep_ptr, task_graph.dep_row, may, moves, position)
    row = np.flatnonzero(is_of & leads & (reader >= 0))
    return PutOff(row, reader[row])


def computed_again(task_graph: TaskGraph) -> Array:
    """Per launch whether it belongs to the backward pass and reads no gradient; but who brings keys for rounds."""
    is_again = np.zeros(len(task_graph.launches), np.bool_)
    present = _made_forward(task_graph)
    passed = {launch.args[k] for launch in task_graph.launches for k in launch.passes}
    for number, launch in enumerate(task_graph.launches):
        inputs, outputs = _arguments(launch)
        if launch.phase in (Phase.BACKWARD, Phase.WEIGHT) and inputs and present.issuperset(inputs):
            is_again[number] = passed.isdisjoint(outputs)
            present.update(outputs)
    return is_again


def layers_ahead(task_graph: TaskGraph, put_off: PutOff, layers: int, position: Array) -> Array:
    """Per row that is put off the first reader of what its layer follows by so many layers; -1: it may go at once.

    A layer is a run of readers, on the same devices, that are in one part of the model. Its name is that of the
    innermost numbered part: `layer3` of `layer3.attention.q`; what is in no such part is a layer of its own. Where
    vectors alone are gathered, as for a norm, the layer goes on with the next.
    """
    launch = task_graph.launch[put_off.reader]
    part = task_graph.ordinal[put_off.reader]
    devices = _devices(task_graph)[launch]
    names = {name: k for k, name in enumerate(dict.fromkeys(map(layer_of, task_graph.launches)))}
    number = np.array([names[layer_of(launch)] for launch in task_graph.launches])
    phase = np.array([launch.phase > Phase.FORWARD for launch in task_graph.launches])
    order = np.lexsort((position[put_off.reader], devices))
    keys = np.stack([devices, number[launch], phase[launch], part], axis=1)[order]
    begins = _begins(keys, _dimensions(task_graph, put_off.row[order]) > 1)
    visit = np.cumsum(begins) - 1
    first = order[begins]
    ahead = np.maximum(visit - layers, 0)
    is_there = (visit >= layers) & (devices[first[ahead]] == devices[order])
    anchor = np.full(len(order), -1)
    anchor[order] = np.where(is_there, put_off.reader[first[ahead]], -1)
    return anchor


def _begins(keys: Array, is_matrix: Array) -> Array:
    """Per reader whether a layer begins: keys, devices first, differ, and not all before in the layer are vectors."""
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    run = np.cumsum(begins) - 1
    has_matrix = np.zeros(run[-1] + 1 if len(run) else 0, np.bool_)
    has_matrix[run[is_matrix]] = True
    begins[1:] &= has_matrix[run[:-1]] | (keys[1:, 0] != keys[:-1, 0])
    return begins


def layer_of(launch: Launch) -> str:
    """The layer that an operator belongs to, see `layers_ahead`."""
    parts = launch.leader.split(".")[:-1]
    numbered = [k for k, part in enumerate(parts) if re.search(r"\d$", part)]
    return ".".join(parts[: numbered[-1] + 1] if numbered else parts) or launch.leader


def a_layer_ahead(task_graph: TaskGraph, position: Array) -> tuple[Array, Array]:
    """Rows that gather, and for each one that is to be issued before: the first reader of the layer before.

    Args:
        task_graph: the rows.
        position: of every row in the order that says who is first; NOWHERE: it stands in none.
    """
    put_off = gathers(task_graph, position)
    put_off = put_off.only(position[put_off.reader] < NOWHERE)
    anchor = layers_ahead(task_graph, put_off, 1, position)
    return put_off.row[anchor >= 0], anchor[anchor >= 0]


def a_layer_ahead_in_lists(task_graph: TaskGraph, position: Array) -> tuple[Array, Array]:
    """As `a_layer_ahead`, but for what is read on several sets of devices, as a weight of two stages is.

    Which of its readers is the first, positions in the lists of different devices do not say.
    """
    row, anchor = a_layer_ahead(task_graph, position)
    if not len(row):
        return row, anchor
    devices = _devices(task_graph)[task_graph.launch]
    lowest = gathers(task_graph, devices)
    highest = gathers(task_graph, -devices)
    shared = lowest.row[devices[lowest.reader] != devices[highest.reader]]
    is_of_one = ~np.isin(row, shared)
    return row[is_of_one], anchor[is_of_one]


def held_back(task_graph: TaskGraph, position: Array) -> tuple[Array, Array]:
    """Rows, and for each one that is to be issued before: gathers wait for a layer, backward passes keep their order.

    So do points that pass on what they read: who waits for it goes through the same rounds.

    Args:
        task_graph: the rows.
        position: of every row in the order that says who is first.
    """
    points = _passing_points(task_graph)
    if len(points):  # parts of an operator are no micro-batches
        position = np.arange(len(task_graph))
    pairs = [
        a_layer_ahead(task_graph, position),
        _in_turn(task_graph, position),
        _one_by_one(task_graph, points, position),
    ]
    late, before = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return late, before


def _passing_points(task_graph: TaskGraph) -> Array:
    """The points that pass on what they read, and those that are split as they are."""
    around = {launch.leader for launch in task_graph.launches if launch.passes}
    passes = np.array([launch.leader in around for launch in task_graph.launches], np.bool_)
    points = np.flatnonzero(task_graph.kind == Kind.POINT)
    return points[passes[task_graph.launch[points]]]


def _in_turn(task_graph: TaskGraph, position: Array) -> tuple[Array, Array]:
    """Points of the backward pass, each with the one before it, on devices that compute something again.

    So what is computed again, and what is made of it, is read before the next is. Those that gather are left out.
    """
    points = np.setdiff1d(
        np.flatnonzero(task_graph.kind == Kind.POINT), gathers(task_graph, position).row
    )
    launch = task_graph.launch[points]
    device = task_graph.device[points]
    phase = np.array([launch.phase for launch in task_graph.launches])[launch]
    is_concerned = np.isin(device, device[computed_again(task_graph)[launch]])
    points = points[is_concerned & np.isin(phase, (Phase.BACKWARD, Phase.WEIGHT))]
    return _one_by_one(task_graph, points, position)


def _one_by_one(task_graph: TaskGraph, points: Array, position: Array) -> tuple[Array, Array]:
    """Points, each with the one before it on its device."""
    points = points[np.lexsort((position[points], task_graph.device[points]))]
    is_same = task_graph.device[points[1:]] == task_graph.device[points[:-1]]
    return points[1:][is_same], points[:-1][is_same]


def _dimensions(task_graph: TaskGraph, rows: Array) -> Array:
    """Of the region that each row makes, or moves."""
    made = task_graph.instance_region[task_graph.arg_instance[task_graph.arg_ptr[rows + 1] - 1]]
    dimensions: Array = np.array([region.ndim for region in task_graph.regions], np.int64)[made]
    return dimensions


def _devices(task_graph: TaskGraph) -> Array:
    """Per launch a number that those on the same devices share."""
    points = np.flatnonzero(task_graph.kind == Kind.POINT)
    devices = len(task_graph.machine.devices)
    launch, device = divmod(
        distinct(task_graph.launch[points] * devices + task_graph.device[points]), devices
    )
    ends = np.searchsorted(launch, np.arange(len(task_graph.launches) + 1)).tolist()
    sets = [device[a:b].tobytes() for a, b in pairwise(ends)]
    number = {devices: k for k, devices in enumerate(dict.fromkeys(sets))}
    return np.array([number[devices] for devices in sets], np.int64)


# -- what is made of what --------------------------------------------------------------------------------------------


def _arguments(launch: Launch) -> tuple[Sequence[int], Sequence[int]]:
    """The regions that it reads, and those that it makes."""
    count = len(launch.bound.pattern.inputs)
    return launch.args[:count], launch.args[count:]


def _made_forward(task_graph: TaskGraph) -> set[int]:
    """The regions that are there before the backward pass."""
    given = {
        number
        for number, region in enumerate(task_graph.regions)
        if region.is_persistent or region.role == "input"
    }
    made = (
        _arguments(launch)[1] for launch in task_graph.launches if launch.phase == Phase.FORWARD
    )
    return given.union(*made)


def of_parameters(task_graph: TaskGraph) -> Array:
    """Per launch whether all that it reads is persistent or made of that alone, and it changes none of it."""
    persistent = {k for k, region in enumerate(task_graph.regions) if region.is_persistent}
    is_constant = np.zeros(len(task_graph.launches), np.bool_)
    for number, launch in enumerate(task_graph.launches):
        inputs, outputs = _arguments(launch)
        if inputs and persistent.issuperset(inputs) and not launch.writes:
            is_constant[number] = True
            persistent.update(outputs)
    return is_constant


@tiered
def no_later(ptr: Array, awaited: Array, place: Array) -> None:
    """Move what stands behind a row that waits for it to where this one stands."""
    for row in range(len(place) - 1, -1, -1):
        for before in awaited[ptr[row] : ptr[row + 1]]:
            place[before] = min(place[before], place[row])


@tiered
def no_earlier(ptr: Array, awaited: Array, place: Array) -> None:
    """Move what stands before a row for which it waits to where this one stands."""
    for row in range(len(place)):
        for before in awaited[ptr[row] : ptr[row + 1]]:
            place[row] = max(place[row], place[before])


@tiered
def _follow(
    ptr: Array, awaited: Array, may: Array, moves: Array, position: Array
) -> tuple[Array, Array, Array]:
    """Per row whether it and all that it waits for `may` be of parameters; whether it `moves` such, or somebody does
    who waits for it; and the first other row that waits for what comes of it, or -1.
    """
    rows = len(may)
    is_of = may.copy()
    leads = moves.copy()
    reader = np.full(rows, -1)
    for row in range(rows):
        for before in awaited[ptr[row] : ptr[row + 1]]:
            is_of[row] = is_of[row] and is_of[before]
    for row in range(rows - 1, -1, -1):
        first = reader[row] if is_of[row] else row
        for before in awaited[ptr[row] : ptr[row + 1]]:
            leads[before] = leads[before] or (is_of[row] and leads[row])
            if first >= 0 and (reader[before] < 0 or position[first] < position[reader[before]]):
                reader[before] = first
    return is_of, leads, reader
