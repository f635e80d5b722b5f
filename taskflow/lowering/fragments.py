"""The fragments of all regions under given points: each is found once and stands for all that are like it.

A fragment depends on the life of its region and on the points of the operators that touch it: which of them are alike,
how far their devices and hosts are from one another, and which of these are equal (see `machine.equal`). So equal
layers have one fragment wherever they lie, in which only the numbers of devices differ, all by the same amount; and
where a search changes one operator, only the fragments of its neighbours are found anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, Selected, differences, gather, select
from taskflow.lowering.movement import Fragment, Mover
from taskflow.lowering.pointstore import PointStore


class Found(NamedTuple):
    """The fragments of some regions.

    Attributes:
        fragments: each once.
        which: per region, its fragment among these.
        shift: per region, what is added to the devices of its fragment.
    """

    fragments: Sequence[Fragment]
    which: Array
    shift: Array

    def gather(self, read: Callable[[Fragment], Array]) -> tuple[Array, Array]:
        """What is read of every region's fragment, one after the other; and the lengths."""
        return gather([read(fragment) for fragment in self.fragments], self.which)

    def version_rows(self) -> tuple[Array, Array]:
        """Rows of every version of every region, and per region how many versions there are."""
        begin, count = self.gather(lambda f: f.version_row)
        first = np.cumsum(count) - count
        return np.delete(differences(begin, count), first), count - 1

    def select(self, read: Callable[[Fragment], Array]) -> Selected:
        """The same, which is not made yet."""
        return select([read(fragment) for fragment in self.fragments], self.which)[0]


class Fragments:
    """Finds the fragments of a graph's regions and keeps them.

    Args:
        mover: makes them.
        store: of the points.
        kind: per region, a number; those with the same life have the same.

    Attributes:
        size_bytes: memory that they take.
    """

    def __init__(self, mover: Mover, store: PointStore, kind: Sequence[int]) -> None:
        self.mover = mover
        self.store = store
        self.kind = kind
        self.size_bytes = 0
        self._fragments: list[Fragment] = []
        self._base: list[int] = []  # the first device of those that each was made for
        self._numbers: dict[tuple[object, ...], int] = {}
        self._alike: dict[tuple[int, bytes], int] = {}
        self._described: dict[int, tuple[int, int]] = {}
        self._spans: dict[tuple[int, int], tuple[bytes, int]] = {}

    def find(self, numbers: Array, used: Sequence[Array]) -> Found:
        """The fragments of all regions.

        Args:
            numbers: of the points of every operator.
            used: the devices in use, of every job.
        """
        keys, base = self._keys(numbers, used)
        world = self.mover.world(numbers, used, self.store)
        for region, key in enumerate(keys):
            if key not in self._numbers:
                # it may raise, then nothing is known
                fragment = self.mover.move(region, world, used, self.store)
                self._fragments.append(fragment)
                self.size_bytes += sum(column.nbytes for column in vars(fragment).values())
                self._base.append(base[region])
                self._numbers[key] = len(self._base) - 1
        self.mover.forget()
        fragments, which = np.unique([self._numbers[key] for key in keys], return_inverse=True)
        shift = base - np.array(self._base, np.int64)[fragments][which]
        return Found([self._fragments[k] for k in fragments], which, shift)

    def _keys(
        self, numbers: Array, used: Sequence[Array]
    ) -> tuple[list[tuple[object, ...]], Array]:
        """Per region what its fragment depends on but for its first device, and that device."""
        table = self.mover.table
        hosts = self.mover.equals.host
        alike, device = np.array([self._describe(n) for n in numbers.tolist()], np.int64)[
            table.op
        ].T
        count = np.diff(table.op_ptr)
        first = np.minimum(table.op_ptr[:-1], len(table.op) - 1)
        base = np.where(count > 0, device[first], used[0][0])
        apart = device - np.repeat(base, count), hosts[device] - np.repeat(hosts[base], count)
        text, ends = np.stack([alike, *apart], axis=1).tobytes(), (24 * table.op_ptr).tolist()
        is_fetched = table.region["is_fetched"] > 0
        where = np.where(is_fetched, base, -1).tolist()
        texts = [of_job.tobytes() for of_job in used]
        jobs = table.region["job"].tolist()
        fetching = [
            texts[job] if f else b"" for f, job in zip(is_fetched.tolist(), jobs, strict=True)
        ]
        spans = pairwise(ends)
        return [
            (*key, text[a:b])
            for *key, (a, b) in zip(self.kind, where, fetching, spans, strict=True)
        ], base

    def _describe(self, number: int) -> tuple[int, int]:
        """A number that points alike share, and their first device."""
        description = self._described.get(number)
        if description is None:
            span = self.store.span(number)
            apart, base = self._apart(span.start, span.stop)
            alike = self._alike.setdefault((self.store.model(number), apart), len(self._alike))
            description = self._described[number] = alike, base
        return description

    def _apart(self, begin: int, end: int) -> tuple[bytes, int]:
        """A hash of how far devices of points are from the first one and how they are unlike, and the first one."""
        if (begin, end) not in self._spans:
            devices = self.store.table.device[begin:end]
            base, (host, *kinds) = int(devices[0]), (of[devices] for of in self.mover.equals)
            columns = np.stack([devices - base, host - host[0], *kinds])
            self._spans[begin, end] = (
                hashlib.blake2b(columns.tobytes(), digest_size=16).digest(),
                base,
            )
        return self._spans[begin, end]
