"""The life of one region under given configurations: instances, copies, folds and all dependences.

Takes the events of a region in program order (who makes it, reads it, updates it in place, and how each is split);
gives a `Fragment`: the instances every device needs, the rows that move data after each version, and the dependence
edges among all of them. Since every dependence is through some region, the fragments of all regions together hold all
dependences of a task graph. A fragment depends on nothing but its events, so it is cached by them.

The rules:

* An instance holds a box that somebody on the device needs, reads or writes; a box inside another uses its memory.
  So a halo arrives beside the rows that the producer wrote, with no copy of those.
* Partial results are combined where they are needed: a box needed by one device is summed there (reduce-scatter); one
  needed by several is cut among them, summed in parts and gathered (all-reduce). Bytes are the minimum for both.
* A persistent region lives, between steps, in the instances from which the first readers of a step read.
* A task waits for those who wrote what it reads, and for those who read or wrote what it writes, per instance.

The rules are compiled (`moving`), since a search applies them some ten thousand times a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from taskflow.errors import InternalError
from taskflow.operator import Operator
from taskflow.partition import Points
from taskflow.region import LogicalRegion

Array = np.ndarray[Any, np.dtype[Any]]

READS, UPDATES, WRITES = range(3)


@dataclass(frozen=True, eq=False)
class Life:
    """The events of a region in program order, whatever the configurations.

    Attributes:
        region: whose life it is.
        ops: the operators that touch it, by number; an operator's place here is its slot.
        slot, arg, role: per event the operator's slot, the argument, and READS, UPDATES or WRITES.
        reads: per event the version that it reads, or -1.
        producer: per version the event that makes it, or -1: fed, or kept from the step before.
    """

    region: LogicalRegion
    ops: tuple[int, ...]
    slot: Array
    arg: Array
    role: Array
    reads: Array
    producer: Array

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """What a fragment depends on besides the points of the operators."""
        columns = (self.slot, self.arg, self.role)
        return self.region.shape, self.region.itemsize, self.region.is_persistent, *(c.tobytes() for c in columns)


def lives(operators: Sequence[Operator], regions: Sequence[LogicalRegion]) -> list[Life]:
    """The life of every region."""
    number = {r.name: k for k, r in enumerate(regions)}
    events: list[list[tuple[int, int, int]]] = [[] for _ in regions]
    for k, op in enumerate(operators):
        for arg, region in enumerate(op.args):
            role = WRITES if arg >= len(op.inputs) else UPDATES if arg in op.writes else READS
            events[number[region.name]].append((k, arg, role))
    return [_life(region, touched) for region, touched in zip(regions, events, strict=True)]


def _life(region: LogicalRegion, events: Sequence[tuple[int, int, int]]) -> Life:
    slots: dict[int, int] = {}
    reads, producer = [], []
    for number, (op, _, role) in enumerate(events):
        slots.setdefault(op, len(slots))
        if role != WRITES and not producer:
            producer.append(-1)
        reads.append(-1 if role == WRITES else len(producer) - 1)
        if role != READS:
            producer.append(number)
    columns = ([slots[op] for op, _, _ in events], [a for _, a, _ in events], [r for _, _, r in events], reads)
    return Life(region, tuple(slots), *(np.array(c, np.int64) for c in (*columns, producer or [-1])))


@dataclass(frozen=True, eq=False)
class Fragment:
    """What one region adds to a task graph. Slots are those of `Life`; version v is slot `len(ops) + v`.

    Attributes:
        instance_device, instance_box, instance_partial: of every instance; boxes are (n, dimensions, 2).
        kind, source, device, volume, arg_count: of every row that moves data, `volume` in elements read or written.
        arg_instance, arg_privilege, arg_box: their arguments.
        version_row: first row of every version, and their number.
        collective: per row, a place in `task.COLLECTIVES`.
        event_instance: instance of every point of every event in turn, -1 where its box is empty.
        event_ptr: first point of every event, and their number.
        edges: (n, 4) waiting slot and index, awaited slot and index; sorted, each once.
        homes: (n,) instances that hold a persistent region between steps, and home_box what of it.
        fetches: (n, 2) device that fetches the region, and its instance.
    """

    instance_device: Array
    instance_box: Array
    instance_partial: Array
    kind: Array
    source: Array
    device: Array
    volume: Array
    arg_count: Array
    arg_instance: Array
    arg_privilege: Array
    arg_box: Array
    version_row: Array
    collective: Array
    event_instance: Array
    event_ptr: Array
    edges: Array
    homes: Array
    home_box: Array
    fetches: Array


def move_region(life: Life, points: Sequence[Points], fetch_devices: Sequence[int], hosts: Array) -> Fragment:
    """The fragment of a region.

    Args:
        life: its events.
        points: of every operator in `life.ops`.
        fetch_devices: who needs all of its last version.
        hosts: host of every device, used to prefer near sources.
    """
    from taskflow import moving  # numba: imported on first use

    region, dims = life.region, max(life.region.ndim, 1)
    whole = np.array([[0, e] for e in region.shape] or [[0, 1]], np.int64).reshape(1, dims, 2)
    touching = [points[k] for k in life.slot.tolist()]
    args = life.arg.tolist()
    event_ptr = np.concatenate([[0], np.cumsum([len(p) for p in touching])]).astype(np.int64)
    place = _joined([p.place for p in touching], (0,))
    colour = _joined([_colours(p, a) for p, a in zip(touching, args, strict=True)], (0,))
    box = whole[np.zeros(len(place), np.int64)]
    if region.ndim:
        box = _joined([p.box(a) for p, a in zip(touching, args, strict=True)], (0, dims, 2))
    partial = np.array([p.is_partial(a) for p, a in zip(touching, args, strict=True)], np.bool_)
    fetch = np.array(fetch_devices, np.int64)
    size = 64 + 4 * len(place) + 4 * len(fetch)
    while True:
        state = _state(size, dims, len(hosts), len(life.producer))
        built = moving.build(
            state,
            whole,
            not region.ndim,
            region.is_persistent,
            fetch,
            hosts,
            len(life.ops),
            life.slot,
            event_ptr,
            life.role,
            life.reads,
            life.producer,
            place,
            box,
            colour,
            partial,
        )
        if not state.n[moving.FULL]:
            break
        size *= 4
    if lost := state.n[moving.LOST]:
        raise InternalError(f"region '{region.name}': nobody holds what device {state.need[lost - 1, 0]} needs of it")
    return _fragment(state, built, event_ptr, fetch, whole, region.ndim)


def _joined(parts: Sequence[Array], shape: tuple[int, ...]) -> Array:
    return np.concatenate([np.zeros(shape, np.int64), *parts])


def _colours(points: Points, arg: int) -> Array:
    """Colours of an output's points; inputs have none."""
    output = arg - len(points.operator.inputs)
    return points.colours[:, output] if output >= 0 else np.zeros(len(points), np.int64)


def _state(size: int, dims: int, devices: int, versions: int) -> Any:
    """Empty state with room for about `size` of everything."""
    from taskflow.moves import State

    def empty(*shape: int) -> Array:
        return np.empty(shape, np.int64)

    def none(*shape: int) -> Array:
        return np.full(shape, -1, np.int64)

    many = 4 * size
    return State(
        n=np.zeros(9, np.int64),
        inst_device=empty(size),
        inst_box=empty(size, dims, 2),
        inst_partial=np.empty(size, np.bool_),
        inst_next=empty(size),
        value_first=none(devices),
        value_last=none(devices),
        access_box=empty(many, dims, 2),
        access_task=empty(many, 2),
        access_next=empty(many),
        writers=empty(size),
        readers=empty(size),
        edge=empty(many, 4),
        row=empty(size, 7),
        arg=empty(many, 2),
        arg_box=empty(many, dims, 2),
        held=empty(size, 2),
        held_box=empty(size, dims, 2),
        held_next=empty(size),
        held_first=empty(size),
        held_last=empty(size),
        need=empty(size, 3),
        need_box=empty(size, dims, 2),
        need_first=none(versions),
        need_last=none(versions),
        need_at=none(versions, devices),
        work=empty(size, dims, 2),
        spare=empty(size, dims, 2),
    )


def _fragment(
    s: Any, built: tuple[Array, Array, Array, Array], event_ptr: Array, fetch: Array, whole: Array, ndim: int
) -> Fragment:
    """Copy what was built out of the state's arrays."""
    from taskflow import moves, moving

    event_instance, version_row, homes, collective = built
    instances, rows, args = (int(s.n[k]) for k in (moves.INSTANCES, moves.ROWS, moves.ARGS))
    row, arg = s.row[:rows].copy(), s.arg[:args].copy()
    return Fragment(
        s.inst_device[:instances].copy(),
        s.inst_box[:instances, :ndim].copy(),
        s.inst_partial[:instances].copy(),
        row[:, 0],
        row[:, 1],
        row[:, 2],
        row[:, 4],
        np.diff(row[:, 3], prepend=0),
        arg[:, 0],
        arg[:, 1],
        s.arg_box[:args, :ndim].copy(),
        version_row,
        np.where(row[:, 1] != row[:, 2], np.repeat(collective, np.diff(version_row)), 0),
        event_instance,
        event_ptr,
        moving.sorted_edges(s.edge[: s.n[moves.EDGES]]),
        moving.instances_of(s, s.need[homes, 0], s.need_box[homes]),
        s.need_box[homes, :ndim],
        np.stack([fetch, moving.instances_of(s, fetch, np.repeat(whole, len(fetch), axis=0))], axis=1),
    )
