"""The kinds of regions that strategies of a graph have had, each found once, and the rows of representatives.

Regions with one fragment on the same devices are of a kind. A graph of many layers has few kinds, and another strategy
of the graph has most of them, too: what is known of a kind (`alike.RegionKind`) is kept. Stages of a pipeline have the
kinds of one another on other devices: where ways among these are the same, a kind is placed there (`PlacedKind`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from taskflow.core.columns import Array, gather, pointers
from taskflow.lowering.alike import (
    MOST,
    KindsTable,
    PlacedKind,
    RegionKind,
    ports_of_links,
    refined,
)
from taskflow.lowering.fragments import Found
from taskflow.lowering.life import Lives
from taskflow.lowering.rows import ChosenPoints
from taskflow.lowering.sample import kinds_of, sample_of
from taskflow.machine import MachineModel
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.peers import Peers, RegionRows
from taskflow.tasks.task_graph import TaskGraph

TABLE_ITEMS = 1 << 17  # instances and arguments of a table of kinds: more take more memory


class RegionKinds:
    """Finds the kinds of a graph's regions on a machine and keeps them.

    Args:
        lives: of all regions.
        machine: the machine.
        rows_of: makes the rows of some regions, given their fragments and numbers, with algorithms.

    Attributes:
        size_bytes: memory that they take, without what is known of them under orbits.
    """

    def __init__(
        self, lives: Lives, machine: MachineModel, rows_of: Callable[[Found, Array], TaskGraph]
    ) -> None:
        self._lives = lives
        self._rows_of = rows_of
        self._machine = machine
        self._placed_kinds: dict[tuple[int, int], PlacedKind] = {}
        self._first: dict[int, tuple[RegionKind, int]] = {}  # of a fragment, and its shift
        self._touched: dict[bytes, Array] = {}
        self._moved: dict[tuple[bytes, int], Array | None] = {}
        self._refined: dict[tuple[tuple[int, ...], bytes], Orbits] = {}
        self.size_bytes = 0
        self._weights = np.random.default_rng(0)

    def of(self, by_region: Found, chosen: ChosenPoints) -> tuple[list[PlacedKind], Array]:
        """The kinds of all regions, each once, and of every region its kind among these.

        Args:
            by_region: fragments of all regions, which somebody holds.
            chosen: points of all operators.
        """
        first, which = kinds_of(by_region, np.arange(len(by_region.which)))
        shift = by_region.shift[first].tolist()
        fragments = by_region.which[first].tolist()
        keys = [(id(by_region.fragments[f]), s) for f, s in zip(fragments, shift, strict=True)]
        new = [k for k, key in enumerate(keys) if key not in self._placed_kinds]
        firsts = {keys[k][0]: k for k in reversed(new) if keys[k][0] not in self._first}
        self._add_all(by_region, chosen, first, keys, list(firsts.values()))
        others = [k for k in new if keys[k] not in self._placed_kinds and not self._place(keys[k])]
        self._add_all(by_region, chosen, first, keys, others)
        return [self._placed_kinds[key] for key in keys], which

    def _place(self, key: tuple[int, int]) -> bool:
        """Place the known kind of a fragment on other devices; False: these are not alike."""
        kind, shift = self._first[key[0]]
        by = key[1] - shift
        touched = kind.table.touched
        rates = self._machine.rate_kinds
        if (where := (touched.tobytes(), by)) not in self._moved:
            links = self._machine.ways.moved(touched, by)
            if links is not None:
                some = np.flatnonzero(links >= 0)
                is_same = (self._port[links[some]] == self._port[some]).all()
                is_same &= (rates[touched] == rates[touched + by]).all()
                links = links if is_same else None
            self._moved[where] = links
        if (links := self._moved[where]) is None:
            return False
        self._placed_kinds[key] = PlacedKind(kind, self._weight(), by, links)
        return True

    def _weight(self) -> int:
        return int(self._weights.integers(1 << 62))

    def _add_all(
        self,
        by_region: Found,
        chosen: ChosenPoints,
        first: Array,
        keys: Sequence[tuple[int, int]],
        new: Sequence[int],
    ) -> None:
        """Tables of kinds that touch the same devices, none too large; `first`: a region of every kind."""
        by_devices: dict[bytes, list[int]] = {}
        for k in new:
            touched = self._devices_of(int(first[k]), by_region, chosen)
            by_devices.setdefault(touched, []).append(k)
        for touched, some in by_devices.items():
            parts = [by_region.fragments[by_region.which[first[k]]] for k in some]
            items = np.cumsum([len(f.arg) + len(f.instance_device) for f in parts])
            cuts = np.flatnonzero(np.diff(items // TABLE_ITEMS)) + 1
            for those in np.split(np.array(some, np.int64), cuts):
                self._add(
                    by_region,
                    chosen,
                    first[those],
                    [keys[k] for k in those.tolist()],
                    self._touched[touched],
                )

    def _devices_of(self, region: int, by_region: Found, chosen: ChosenPoints) -> bytes:
        """The key in `_touched` of all devices that touch a region: of points, and of instances."""
        lives = self._lives
        ops = lives.op[lives.op_ptr[region] : lives.op_ptr[region + 1]]
        points = [chosen.devices(n) for n in np.unique(chosen.which[ops]).tolist()]
        instances = (
            by_region.fragments[by_region.which[region]].instance_device + by_region.shift[region]
        )
        is_there = np.zeros(len(self._machine.devices), np.bool_)
        for devices in (*points, instances):
            is_there[devices] = True
        key = is_there.tobytes()
        self._touched.setdefault(key, np.flatnonzero(is_there))
        return key

    def refined(self, kinds: Sequence[PlacedKind], seeds: Sequence[Orbits]) -> Orbits:
        """Orbits for which rows of these kinds can be made, as fine as the last one of some seeds at least.

        Whoever asks again has found them too coarse (links that are loaded unalike). So the last answer is that for the
        first seed from now on.
        """
        key = tuple(kind.weight for kind in kinds), seeds[0].key
        if len(self._refined) >= MOST:
            self._refined.clear()
        if len(seeds) > 1 or key not in self._refined:
            self._refined[key] = refined(kinds, seeds[-1].refine(self._machine.rate_kinds))
        return self._refined[key]

    @cached_property
    def _port(self) -> Array:
        return ports_of_links(self._machine)

    def _add(
        self,
        by_region: Found,
        chosen: ChosenPoints,
        regions: Array,
        keys: list[tuple[int, int]],
        touched: Array,
    ) -> None:
        """A table of more kinds; `regions`: one of each."""
        lives = self._lives
        is_kept = np.zeros(len(by_region.which), np.bool_)
        is_kept[regions] = True
        touching = np.repeat(is_kept, np.diff(lives.op_ptr))
        is_chosen = np.zeros(int(chosen.which.max(initial=0)) + 1, np.bool_)
        is_chosen[chosen.which[lives.op[touching]]] = True
        points = chosen.some(is_chosen)
        sample = sample_of(by_region, points, lives, is_kept)
        rows = self._rows_of(sample.by_region, sample.regions)
        table = KindsTable(sample, points, rows, self._port, touched)
        self.size_bytes += table.size_bytes
        of_region = dict(zip(regions.tolist(), keys, strict=True))
        for k, region in enumerate(sample.regions.tolist()):
            key = of_region[region]
            kind = RegionKind(table, k)
            self._first.setdefault(key[0], (kind, key[1]))
            self._placed_kinds[key] = PlacedKind(kind, self._weight())


def alike_of(kinds: Sequence[PlacedKind], orbits: Orbits) -> list[tuple[Array, Array]]:
    """Of every kind its rows that touch representatives, and of all its rows those that they are like."""
    return [(kind.numbers(orbits), kind.like(orbits)) for kind in kinds]


def with_peers(
    rows: TaskGraph,
    row: Array,
    kinds: Sequence[PlacedKind],
    which: Array,
    alike: Sequence[tuple[Array, Array]],
    orbits: Orbits,
    lower: Callable[[Orbits], TaskGraph],
) -> TaskGraph:
    """The rows of representatives, with algorithms and `TaskGraph.peers`.

    Args:
        rows: without algorithms, points and all that moves regions.
        row: which of them everything is as it is found: points, then what moves each region in turn.
        kinds: of regions.
        which: of every region, its kind.
        alike: see `alike_of`.
        orbits: under which these are alike.
        lower: see `Peers`.
    """
    numbers, like = zip(*alike, strict=True)
    tables = {id(k.table): k.table for k in kinds}
    first_way = dict(zip(tables, pointers([len(table.rows.ways) for table in tables.values()])))
    number, count = gather(numbers, which)
    moved = row[len(row) - len(number) :]

    def column(read: Callable[[PlacedKind, Array], Array], others: Array) -> Array:
        """Of all rows; what is read of the rows of a kind, and what other rows have."""
        filled = others.copy()
        filled[moved] = gather([read(*pair) for pair in zip(kinds, numbers, strict=True)], which)[0]
        return filled

    def algorithms(kind: PlacedKind, at: Array) -> Array:
        algorithm = kind.table.rows.algorithm[at]
        return np.where(algorithm >= 0, algorithm + first_way[id(kind.table)], algorithm)

    counts, none = _counts(kinds, like), np.full(len(rows), -1, np.int32)
    kind = none.copy()
    kind[moved] = np.repeat(which, count)
    peers = Peers(
        orbits,
        column(
            lambda k, at: counts[id(k)][at - k.rows.start],
            orbits.size.astype(np.int32)[orbits.of[rows.device]],
        ),
        _region_rows(kinds, like, which),
        kind,
        column(lambda k, at: at, none),
        lower,
    )
    return replace(
        rows,
        point=column(lambda k, at: k.table.place[at], rows.point),
        algorithm=column(algorithms, none),
        ways=tuple(way for table in tables.values() for way in table.rows.ways),
        peers=peers,
    )


def _counts(kinds: Sequence[PlacedKind], like: Sequence[Array]) -> dict[int, Array]:
    """Of every kind, by its identity, how many rows are like each of its rows."""
    return {
        id(kind): np.bincount(row - kind.rows.start, minlength=len(row))
        for kind, row in zip(kinds, like, strict=True)
    }


def _region_rows(
    kinds: Sequence[PlacedKind], like: Sequence[Array], which: Array
) -> list[RegionRows[TaskGraph]]:
    """See `Peers.kinds`."""
    regions = np.bincount(which, minlength=len(kinds)).tolist()
    return [
        RegionRows(kind.table.peers, kind.rows.start, row, count, kind.by, kind.links)
        for kind, row, count in zip(kinds, like, regions, strict=True)
    ]
