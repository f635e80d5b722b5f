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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from taskflow.core.errors import InternalError
from taskflow.lowering.life import Life, Lives
from taskflow.lowering.pointstore import PointStore

if TYPE_CHECKING:
    from taskflow.cost.model import Rates
    from taskflow.lowering.packing import Packed
    from taskflow.lowering.state import State

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Fragment:
    """What one region adds to a task graph. Slots are those of `Life`; version v is slot `len(ops) + v`.

    Boxes are (n, dimensions, 2).

    Attributes:
        instance_device, instance_box, instance_partial: of every instance.
        row: (n, 6) of every row that moves data: kind, source, device, end of its arguments, elements read or written,
            and a place in `task.COLLECTIVES`.
        arg, arg_box: their arguments: (n, 2) instance and privilege, and box.
        version_row: first row of every version, and their number.
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
    event_instance: Array
    edges: Array
    homes: Array
    home_box: Array
    fetches: Array


# A sum of less goes up a tree: 2 log2(p) messages of n bytes instead of 2 (p - 1) of n / p. With 2 us a message and
# 5 GB/s, 8 devices break even at 19 kB, more devices later.
SMALL_BYTES = 16384


class Mover:
    """Plays the lives of the regions of a graph on one machine; holds the memory that this takes.

    Args:
        hosts: of every device.
        direct_devices: so many exchange row by row.
        streams: see `thinning.Lanes`.
        lives, table: of all regions, one by one and together.
    """

    def __init__(self, hosts: Array, direct_devices: int, streams: Array, lives: Sequence[Life], table: Lives) -> None:
        from taskflow.lowering.packing import no_pool, no_rates  # numba: imported on first use

        self.hosts, self.direct_devices, self.streams = hosts, direct_devices, streams
        self.lives, self.table = lives, table
        self._memory, self._room = np.empty(0, np.int64), 1
        self._no_pool, self._no_rates = no_pool(), no_rates()

    def move(self, number: int, points_of: Array, used: Array, store: PointStore) -> Fragment:
        """The fragment of one region; arguments as for `pack`."""
        from taskflow.lowering.state import place_tables

        numbers = np.array([number], np.int64)
        found = self._run(numbers, points_of, used, store, False, lambda: self._no_pool, None, self._no_rates)
        size, version_row, arg_of, homes, instances = found
        life = self.lives[number]
        ndim = life.region.ndim
        s = place_tables(self._memory, size, 2 * max(ndim, 1), len(self.hosts), len(life.producer))
        return _fragment(s, ndim, version_row, arg_of, homes, instances, used)

    def pack(
        self,
        numbers: Array,
        points_of: Array,
        used: Array,
        store: PointStore,
        pool: Callable[[], Packed],
        grow: Callable[[int], None],
        rates: Rates,
    ) -> None:
        """Pack what happens to some regions.

        Args:
            numbers: of the regions.
            points_of: number of the points of every operator.
            used: the devices in use.
            store: of the points.
            pool, grow: its columns; makes one of them larger.
            rates: of what moves.
        """
        self._run(numbers, points_of, used, store, True, pool, grow, rates)

    def _run(
        self,
        numbers: Array,
        points_of: Array,
        used: Array,
        store: PointStore,
        packs: bool,
        pool: Callable[[], Packed],
        grow: Callable[[int], None] | None,
        rates: Rates,
    ) -> tuple[int, Array, Array, Array, Array]:
        """Call `moving.move` until there is room for all.

        With plain tuples: of a named one numba takes six times as long to find out the type, 5 us each.
        """
        from taskflow.lowering import moving  # numba: imported on first use

        done = 0
        while True:
            end, at, more, *found = moving.move(
                numbers[done:],
                points_of,
                used,
                tuple(self.table),
                tuple(store.table),
                self.hosts,
                self.streams,
                self.direct_devices,
                SMALL_BYTES,
                self._memory,
                self._room,
                packs,
                tuple(pool()),
                tuple(rates),
            )
            done += at
            if end == moving.DONE:
                return more, *found
            if end == moving.NO_MEMORY:
                self._memory = np.empty(more, np.int64)
            elif end == moving.NO_STATE:
                self._room *= 4
            elif end == moving.NO_POOL and grow:
                grow(more)
            else:
                self._complain(int(numbers[done]), more)

    def _complain(self, number: int, need: int) -> None:
        where = f"region '{self.lives[number].region.name}'"
        if need < 0:
            raise InternalError(f"{where}: points of one operator wait for each other")
        raise InternalError(f"{where}: nobody holds what is needed of it ({need})")


def _fragment(
    s: State, ndim: int, version_row: Array, arg_of: Array, homes: Array, instances: Array, used: Array
) -> Fragment:
    """Read a fragment out of a state; `instances` of the homes, then of the devices that fetch.

    In a state a scalar has one dimension.
    """
    from taskflow.lowering.state import ARGS, AT, EDGES, INSTANCES, ROWS

    m, w = s.m, s.w
    count, rows, args = int(m[INSTANCES]), int(m[ROWS]), int(m[ARGS])

    def read(first: int, length: int, *shape: int) -> Array:
        found: Array = m[first : first + length].reshape(-1, *shape).copy()
        return found

    home_box = m[s.m[AT.need_box] + homes[:, None] * w + np.arange(w)]
    fetching = instances[len(homes) :]
    return Fragment(
        read(s.m[AT.inst_device], count).reshape(-1),
        read(s.m[AT.inst_box], count * w, w // 2, 2)[:, :ndim],
        read(s.m[AT.inst_partial], count).reshape(-1),
        read(s.m[AT.row], 6 * rows, 6),
        read(s.m[AT.arg], 2 * args, 2),
        read(s.m[AT.arg_box], args * w, w // 2, 2)[:, :ndim],
        version_row,
        arg_of,
        _sorted(read(s.m[AT.edge], 4 * int(m[EDGES]), 4)),
        instances[: len(homes)],
        home_box.reshape(-1, w // 2, 2)[:, :ndim],
        np.stack([used[: len(fetching)], fetching], axis=1),
    )


def _sorted(edges: Array) -> Array:
    """The edges in order, each once."""
    if not len(edges):
        return edges
    waiting_slot, waiting, slot, row = edges.T
    spans = edges.max(axis=0) + 1
    key = ((waiting_slot * spans[1] + waiting) * spans[2] + slot) * spans[3] + row
    return edges[np.unique(key, return_index=True)[1]]
