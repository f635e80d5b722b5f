"""Peers: the rows for which those of representatives stand.

A task graph on many devices has rows that differ in their device alone. Where devices are in one orbit, each row is
like one that touches a representative: of equal seconds, behind rows that are like those that this one waits for. So it
begins and ends when that one does, and the rows of representatives say all that a simulation of all rows would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.strategy.orbits import Orbits

Rows = TypeVar("Rows", bound=Sized)  # the task graph, whose rows have peers


@dataclass(frozen=True, eq=False)
class RowTable(Generic[Rows]):
    """Rows that move regions of some kinds, on all devices.

    Attributes:
        rows: a task graph without dependences, and without regions and boxes of instances.
        known: what others have found out about these rows, by who asked (costs).
    """

    rows: Rows
    known: WeakKeyDictionary[Any, Any] = field(default_factory=WeakKeyDictionary)


@dataclass(frozen=True, eq=False)
class RegionRows(Generic[Rows]):
    """The rows that move the regions of one kind: these have one fragment on the same devices.

    Attributes:
        table: has them.
        begin: the first of them in the table.
        like: of each of them, the row of the table that stands for it: that of a representative.
        regions: so many regions of the task graph are of the kind.
        by: so many more are the numbers of devices here than in the table.
        links: of every link of the table's devices the one that takes its place here; None: by is 0.
    """

    table: RowTable[Rows]
    begin: int
    like: Array
    regions: int
    by: int = 0
    links: Array | None = None

    def links_here(self, links: Array) -> Array:
        """Which links take the place of links of the table."""
        return links if self.links is None else self.links[links]

    @property
    def ends(self) -> tuple[int, int]:
        """The first of these rows in the table, and the first one behind them."""
        return self.begin, self.begin + len(self.like)

    @property
    def span(self) -> slice:
        """These rows in the table."""
        return slice(*self.ends)


@dataclass(frozen=True, eq=False)
class Peers(Generic[Rows]):
    """See above.

    Attributes:
        orbits: of the devices; those of one have equal rates.
        count: of every row, how many rows it stands for, itself included.
        kinds: of regions.
        kind: of every row, the kind of its region; -1: it is a point.
        number: of every row, which row of its kind's table it is; -1: it is a point.
        lower: makes the rows of finer orbits.
    """

    orbits: Orbits
    count: Array
    kinds: Sequence[RegionRows[Rows]]
    kind: Array
    number: Array
    lower: Callable[[Orbits], Rows]

    @cached_property
    def tables(self) -> list[RowTable[Rows]]:
        """Each table of the kinds once."""
        return list({id(kind.table): kind.table for kind in self.kinds}.values())

    @cached_property
    def in_turn(self) -> Array:
        """Of every row, which row of all tables in turn it is; -1: it is a point."""
        first = dict(zip(map(id, self.tables), pointers([len(t.rows) for t in self.tables])))
        begin = np.array([first[id(kind.table)] for kind in self.kinds], np.int64)
        return np.where(self.kind < 0, -1, self.number + begin[self.kind])

    def spans(self, read: Callable[[Rows], Any]) -> list[tuple[RegionRows[Rows], Any]]:
        """Every kind and what is read of its table, which is read once."""
        by_table = {id(table): read(table.rows) for table in self.tables}
        return [(kind, by_table[id(kind.table)]) for kind in self.kinds]

    def only(self, rows: Array) -> Peers[Rows]:
        """Of some rows, in this order."""
        return replace(self, count=self.count[rows], kind=self.kind[rows], number=self.number[rows])

    def place(self, row: int) -> tuple[Rows, int, int]:
        """The rows among which a row that moves data has all its arguments, which it is there, and see `by`."""
        kind = self.kinds[int(self.kind[row])]
        return kind.table.rows, int(self.number[row]), kind.by
