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
* Of partial results with replicas the k-th of all sum together: on the same hosts each of these teams a piece; where
  each device needs a tile, every team those of its own devices; where others need the sum, for as many of these.
* What more than a few devices sum or gather together is one row, a collective; an all-to-all, where it is named.
* Of those that hold a piece the nearest gives it, and of these each in turn (see `tasks.turns`). Devices that then
  gather nothing from each other are in different rows.
* Of equal devices none is chosen by its number: they stand as the points name them (see `machine.equal`). So a
  strategy on other equal devices has the same rows, with other names.
* A persistent region lives, between steps, in the instances from which the first readers of a step read.
* A task waits for those who wrote what it reads, and for those who read or wrote what it writes, per instance.

The rules are compiled (`moving`), since a search applies them some ten thousand times a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.core.errors import InternalError
from taskflow.core.system import free_bytes
from taskflow.lowering.life import Life, Lives
from taskflow.lowering.pointstore import PointStore
from taskflow.machine.equal import Equals
from taskflow.tasks import moves

if TYPE_CHECKING:
    from taskflow.lowering.state import State

_MORE = 4  # times the room, where a region needs more


@dataclass(frozen=True, eq=False)
class Fragment:
    """What one region adds to a task graph. Operator k of `Life.ops` is issuer k; version v is issuer `len(ops) + v`.

    Boxes are (n, dimensions, 2). Records are those of `state.State`.

    Attributes:
        instance_device, instance_box, instance_partial: of every instance.
        row: records of all rows that move data.
        arg, arg_box: records of their arguments, and boxes.
        version_row: first row of every version, and their number.
        event_instance: instance of every point of every event in turn, -1 where its box is empty.
        edges: records; sorted, each once.
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
    event_instance: Array
    edges: Array
    homes: Array
    home_box: Array
    fetches: Array


class Mover:
    """Plays the lives of the regions of a graph on one machine; holds the memory that this takes.

    Args:
        equals: see `MachineModel.equals`.
        few: so many sum, gather, and exchange, row by row; and `State.has_relays`.
        doors: how many messages can arrive at a device at once.
        streams: see `streams.StreamTable.of_device`.
        lives, table: of all regions, one by one and together.
        piece_bytes: see `State`.
    """

    def __init__(
        self,
        equals: Equals,
        few: tuple[int, int, int, int],
        doors: int,
        streams: Array,
        lives: Sequence[Life],
        table: Lives,
        piece_bytes: int = 0,
    ) -> None:
        self.equals = equals
        self.few = few
        self.doors = doors
        self.lives = lives
        self.table = table
        self.piece_bytes = piece_bytes
        _, receiving, _, _, within = streams
        self.is_queued = bool((receiving == within).all())
        self.memory = np.empty(0, np.int64)
        self.room = 1
        self.asking = -1

    def world(self, points_of: Array, used: Sequence[Array], store: PointStore) -> tuple[Any, ...]:
        """`moving.World`; as plain tuples, since of a named one numba takes six times as long to find out the type.

        Args:
            points_of: number of the points of every operator.
            used: the devices in use, of every job.
            store: of the points.
        """
        tables = tuple(self.table), tuple(store.table)
        arriving = self.doors, int(self.is_queued)
        return (
            *tables,
            points_of,
            pointers([len(of_job) for of_job in used]),
            np.concatenate(used),
            tuple(self.equals),
            *self.few,
            *arriving,
            moves.ROOM_BYTES,
            self.piece_bytes,
        )

    def move(
        self, number: int, world: tuple[Any, ...], used: Sequence[Array], store: PointStore
    ) -> Fragment:
        """The fragment of one region.

        Args:
            number: of the region.
            world: of the points of every operator, see `world`.
            used: the devices in use, of every job.
            store: of the points.
        """
        from taskflow.lowering import moving  # numba: imported on first use
        from taskflow.lowering.state import State

        end = -1
        while end != moving.DONE:
            end, more, *columns = moving.move(number, world, self.memory, self.room)
            self.make_room(number, end, more)
        ndim = self.lives[number].region.ndim
        fetch = used[self.table.region["job"][number]]
        return _fragment(State(self.memory), ndim, store.box_dtype, fetch, *columns)

    def forget(self) -> None:
        """Give the memory back in which regions were played."""
        self.memory = self.memory[:0].copy()

    def make_room(self, number: int, end: int, more: int) -> None:
        """Make room for playing a region that ended so, if it lacked some; see `moving.Played`.

        Where memory would have to grow for the room that another region asked for, this one begins with little again.

        Raises:
            InternalError: there is another fault.
            MemoryError: there is no room.
        """
        from taskflow.lowering import moving  # numba: imported on first use

        if end == moving.NO_MEMORY and self.room > 1 and number != self.asking:
            self.room = 1
        elif end == moving.NO_MEMORY:
            self.asking = -1  # it may have no memory
            self.memory = np.empty(more, np.int64)
        elif end == moving.NO_STATE and _MORE * self.memory.nbytes > free_bytes():
            raise MemoryError(
                f"lower: what moves region '{self.lives[number].region.name}' does not fit into memory"
            )
        elif end == moving.NO_STATE:
            self.room = _MORE * self.room
            self.asking = number
        elif end == moving.NOBODY:
            where = f"region '{self.lives[number].region.name}'"
            raise InternalError(f"{where}: nobody holds what is needed of it ({more})")


def _fragment(
    s: State,
    ndim: int,
    box_dtype: type[np.signedinteger[Any]],
    fetch: Array,
    version_row: Array,
    event_instance: Array,
    homes: Array,
    instances: Array,
) -> Fragment:
    """Read a fragment out of a state; `instances` of the homes, then of the devices that fetch."""

    def boxes(table: Array, rows: Any) -> Array:
        """In a state a scalar has one dimension."""
        corners: Array = table[rows].reshape(-1, s.width // 2, 2)[:, :ndim].astype(box_dtype)
        return corners

    instance, rows, args = s.instance[: s.instances], s.row[: s.rows], s.arg[: s.args]
    fetching = instances[len(homes) :]
    return Fragment(
        instance["device"].astype(np.int32),
        boxes(s.instance_box, slice(s.instances)),
        instance["is_partial"].astype(np.bool_),
        rows.copy(),
        _narrow(args),
        boxes(s.arg_box, slice(s.args)),
        version_row,
        event_instance.astype(np.int32),
        _narrow(_sorted(s.edge[: s.edges])),
        instances[: len(homes)],
        boxes(s.need_box, homes),
        np.array([fetch[: len(fetching)], fetching], np.int64).T,
    )


def _narrow(records: Array) -> Array:
    """A copy with fields of half the width, of which a graph keeps many."""
    return records.view(np.int64).astype(np.int32).view(_half(records.dtype.names))


@cache
def _half(names: tuple[str, ...]) -> np.dtype[np.void]:
    return np.dtype([(name, np.int32) for name in names])


def _sorted(edges: Array) -> Array:
    """The edges in order, each once."""
    if not len(edges):
        return edges
    columns = edges.view(np.int64).reshape(len(edges), -1)
    key = columns[:, 0]
    for column, most in zip(columns.T[1:], columns.max(axis=0).tolist()[1:], strict=True):
        key = key * (most + 1) + column
    if (key[1:] > key[:-1]).all():
        return edges
    return edges[np.unique(key, return_index=True)[1]]
