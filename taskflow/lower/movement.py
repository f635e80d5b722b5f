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
* What more than a few devices sum or gather together is one row, a collective.
* A persistent region lives, between steps, in the instances from which the first readers of a step read.
* A task waits for those who wrote what it reads, and for those who read or wrote what it writes, per instance.

The rules are compiled (`moving`), since a search applies them some ten thousand times a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
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
        events: (n, 4) the operator's slot, the argument, READS, UPDATES or WRITES, and the version read, or -1.
        producer: per version the event that makes it, or -1: fed, or kept from the step before.
    """

    region: LogicalRegion
    ops: tuple[int, ...]
    events: Array
    producer: Array

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """What a fragment depends on besides the points of the operators."""
        return self.region.shape, self.region.itemsize, self.region.is_persistent, self.events.tobytes()

    @cached_property
    def touches(self) -> list[tuple[int, int]]:
        """Slot and argument of every event."""
        return [(slot, arg) for slot, arg, _, _ in self.events.tolist()]

    @cached_property
    def whole(self) -> Array:
        """The box of all points: 0 and the extent of every dimension in turn; a scalar has one dimension."""
        return np.array([n for e in self.region.shape or (1,) for n in (0, e)], np.int64)


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
    producer: list[int] = []
    rows = []
    for number, (op, arg, role) in enumerate(events):
        if role != WRITES and not producer:
            producer.append(-1)
        slot = slots.setdefault(op, len(slots))
        rows.append((slot, arg, role, -1 if role == WRITES else len(producer) - 1))
        if role != READS:
            producer.append(number)
    columns = np.array(rows, np.int64).reshape(-1, 4), np.array(producer or [-1], np.int64)
    return Life(region, tuple(slots), *columns)


@dataclass(frozen=True, eq=False)
class Fragment:
    """What one region adds to a task graph. Slots are those of `Life`; version v is slot `len(ops) + v`.

    Boxes are (n, dimensions, 2); a scalar has one dimension.

    Attributes:
        instance_device, instance_box, instance_partial: of every instance.
        row: (n, 6) of every row that moves data: kind, source, device, end of its arguments, elements read or written,
            and a place in `task.COLLECTIVES`.
        arg, arg_box: their arguments: (n, 2) instance and privilege, and box.
        version_row: first row of every version, and their number.
        event_ptr: first point of every event, and their number.
        event_instance: instance of every point of every event in turn, -1 where its box is empty.
        edges: (n, 4) waiting slot and index, awaited slot and index; sorted, each once.
        homes, home_box: instances that hold a persistent region between steps, and what of it.
        fetches: (n, 2) device that fetches the region, and its instance.
    """

    instance_device: Array
    instance_box: Array
    instance_partial: Array
    row: Array
    arg: Array
    arg_box: Array
    version_row: Array
    event_ptr: Array
    event_instance: Array
    edges: Array
    homes: Array
    home_box: Array
    fetches: Array


FEW = 4  # so many devices exchange row by row, which orders can then overlap; p devices need 2 p (p - 1) rows for a sum

# A sum of less goes up a tree: 2 log2(p) messages of n bytes instead of 2 (p - 1) of n / p. With 2 us a message and
# 5 GB/s, 8 devices break even at 19 kB, more devices later.
SMALL_BYTES = 16384


class Mover:
    """Makes fragments for one machine; holds the memory that making them takes."""

    def __init__(self, hosts: Array) -> None:
        self.hosts = hosts
        self._memory = np.empty(0, np.int64)

    def move(self, life: Life, points: Sequence[Points], fetch: Array) -> Fragment:
        """The fragment of a region.

        Args:
            life: its events.
            points: of every operator in `life.ops`.
            fetch: the devices that need all of its last version.
        """
        from taskflow.lower.moving import build  # numba: imported on first use

        region = life.region
        touching = [points[slot] for slot, _ in life.touches]
        event_ptr = np.array([0, *accumulate(map(len, touching))], np.int64)
        place = _joined([p.place for p in touching])
        boxes, colours, partial = (
            zip(*(points[slot].flat(arg) for slot, arg in life.touches)) if touching else ((),) * 3
        )
        box = _joined(boxes) if region.ndim else np.tile(life.whole, len(place))
        size = 64 + 4 * (len(place) + len(fetch))
        while True:
            built = build(
                self._room(size, len(life.whole), len(life.producer)),
                size,
                life.whole,
                not region.ndim,
                region.is_persistent,
                region.itemsize,
                FEW,
                SMALL_BYTES,
                fetch,
                self.hosts,
                len(life.ops),
                life.events,
                life.producer,
                event_ptr,
                np.array(partial, np.bool_),
                place,
                box,
                _joined(colours),
            )
            if not built[0]:
                break
            size *= 4
        if built[1]:
            raise InternalError(f"region '{region.name}': nobody holds what is needed of it ({built[1] - 1})")
        return _fragment(built[2:], event_ptr, len(life.whole) // 2)

    def _room(self, size: int, w: int, versions: int) -> Array:
        from taskflow.lower.moves import words

        if len(self._memory) < (need := words(size, w, len(self.hosts), versions)):
            self._memory = np.empty(need, np.int64)
        return self._memory


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _fragment(columns: Sequence[Array], event_ptr: Array, dims: int) -> Fragment:
    device, box, partial, row, arg, arg_box, version_row, event_instance, edges, homes, home_box, fetches = columns
    return Fragment(
        device,
        box.reshape(-1, dims, 2),
        partial,
        row.reshape(-1, 6),
        arg.reshape(-1, 2),
        arg_box.reshape(-1, dims, 2),
        version_row,
        event_ptr,
        event_instance,
        edges.reshape(-1, 4),
        homes,
        home_box.reshape(-1, dims, 2),
        fetches.reshape(-1, 2),
    )
