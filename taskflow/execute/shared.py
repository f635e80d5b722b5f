"""Programs over shared memory: ranks of one host read each other's instances in place.

Takes what `program` takes, with memory that every rank of a host maps; gives a program without messages but for those
between hosts. Each other row runs on one rank, a transfer on its target's, which copies straight out of the source's
memory, on its source's, or on that of a fold beside it. Ranks tell each other how far they are: a rank has one 8-byte
cell with a count that only grows, in which it publishes the number of a row that it has finished, and with it all of
its rows before. Which rows wait for which, which rank makes a copy, and why nothing deadlocks, is decided in
`progress`.

A cell is written after the data and read before it; this relies on x86, which keeps stores, and loads, in order. Copies
past the cache (`past_cache`), whose stores it does not keep in order, end with a fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from taskflow.core.errors import InternalError
from taskflow.execute.program import Call, Compiler, RankProgram
from taskflow.execute.progress import (
    Awaited,
    copied_by_folds,
    foldable_in_place,
    handed_on,
    order_between_ranks,
)
from taskflow.tasks.task_graph import Array, Kind

_COPY = int(Kind.COPY)  # a member of an enumeration takes 0.3 us to be looked up
_STRIDE = 8  # cells from one rank's to the next: 64 bytes, so that no two ranks write to the same cache line
_LOOKS = 30  # at a cell before a rank gives way to others: a call of the system takes longer than most waits
_SMALL_BYTES = 4096  # a copy of less is faster through memoryviews: 90 ns instead of 250 ns


class SharedCompiler(Compiler):
    """Compiles rows in order; transfers within a host become reads in place between waiting and publishing."""

    merges = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._buffers: dict[int, memoryview] = {}
        self._ranks = self.transport.ranks_of(len(self.graph.machine.devices))

    def compile(self) -> RankProgram:
        """See `Compiler.compile`."""
        graph = self.graph
        rank = self.transport.rank
        hosts = list(self.transport.hosts)
        self._folded = self._merge_copies()
        self._handed = self._handed_on()
        self._order = order_between_ranks(
            graph, self._folded, self._ranks, hosts, self.plan.receive, self._handed
        )
        size = self.transport.size * _STRIDE * 8
        first = hosts.index(hosts[rank])
        shared = self.transport.shared_arrays(size if rank == first else 0)
        cells = shared[first] if shared else None
        if cells is None:
            raise InternalError("the ranks share memory, but not that of their cells")
        self._cells = memoryview(cells.data)[:size].cast("q")
        self._base = [0]
        begin = partial(_begin, self._cells, self._base, rank * _STRIDE, len(graph) + 1)
        self.program.add(begin, 0, "publish")
        super().compile()
        self._wait(self._order.at_end.get(rank, ()), max(len(graph) - 1, 0))
        return fused(self.program) if self.fuses else self.program

    def _merge_copies(self) -> dict[int, int]:
        """Copy -> fold that does it in its own pass."""
        is_sent = self._sent_rows()
        in_place = {
            copy: fold for copy, fold in foldable_in_place(self.graph).items() if not is_sent[copy]
        }
        self._copy_of = {(fold, k): copy for copy, (fold, k) in in_place.items()}
        read = {copy: fold for copy, (fold, _) in in_place.items()}
        written = {
            copy: fold
            for copy, fold in copied_by_folds(self.graph, read).items()
            if not is_sent[copy]
        }
        self._copies_by: dict[int, list[int]] = {}
        for copy, fold in written.items():
            self._copies_by.setdefault(fold, []).append(copy)
        self._merged: dict[int, list[int]] = {}
        for copy, fold in (read | written).items():
            self._merged.setdefault(fold, []).append(copy)
        return read | written

    def _sent_rows(self) -> Array:
        graph = self.graph
        host = np.array(self.transport.hosts)[self._ranks]
        between: Array = graph.is_transfer & (host[graph.source] != host[graph.device])
        return between

    def _handed_on(self) -> set[int]:
        """Transfers that the rank of their source makes."""
        is_sent = self._sent_rows()
        return {
            row for row in handed_on(self.graph, self._ranks, is_sent) if row not in self._folded
        }

    def _is_own(self, row: int) -> bool:
        """Whether this rank runs a row that is no message."""
        devices = self.graph.source if row in self._handed else self.graph.device
        return self.transport.drives(int(devices[row]))

    def _post_row(self, rows: list[int]) -> int:
        return max(self._order.posts[row] for row in rows)

    def _unsent(self, row: int) -> None:
        if row not in self._folded and self._is_own(row):
            self._local(row)
            self._publish(row)

    def _end_of(self, row: int) -> None:
        if (row, self.transport.rank) in self._order.awaited:
            self._await(row)
            self._publish(row)

    def _before(self, row: int, instances: Sequence[int] = ()) -> None:
        self._wait(self._order.before.get((row, self.transport.rank), ()), row)
        for copy in self._merged.get(row, ()):
            super()._before(copy)
        super()._before(row, instances)

    def _publish(self, row: int) -> None:
        if (row, self.transport.rank) in self._order.published:
            cell = self.transport.rank * _STRIDE
            self.program.add(
                partial(_publish, self._cells, self._base, cell, row + 1), row, "publish"
            )

    def _wait(self, awaited: Awaited, row: int) -> None:
        if awaited:
            cells = tuple((rank * _STRIDE, other + 1) for rank, other in awaited)
            self.program.add(
                partial(_wait, self._cells, self._base, self.transport.give_way, cells), row, "wait"
            )

    def _call(self, row: int) -> Call:
        call: Any = super()._call(row)
        if int(self.graph.kind[row]) == _COPY:
            into, out_of = call.args
            if (
                into.flags.c_contiguous
                and out_of.flags.c_contiguous
                and 0 < into.nbytes <= _SMALL_BYTES
            ):
                return partial(_put, self._bytes(into), self._bytes(out_of))
            if row in self._handed:
                from taskflow.execute.past_cache import copy_call  # imports numba

                return copy_call(into, out_of) or call
        return call  # type: ignore[no-any-return]

    def _bytes(self, array: Array) -> memoryview:
        return self._buffers.setdefault(
            id(array), array.reshape(-1).view(np.uint8).data
        )  # `_one` keeps it alive

    def _fold(self, row: int, views: list[Array], copies: Sequence[Array] = ()) -> Call:
        for k in range(1, len(views)):
            if (copy := self._copy_of.get((row, k))) is not None:
                views[k] = self._arrays(copy)[0]
        return super()._fold(
            row, views, [self._arrays(copy)[1] for copy in self._copies_by.get(row, ())]
        )


class UnawaitedCompiler(SharedCompiler):
    """Compiles the calls of this rank's rows and nothing between them, for a rehearsal in memory of its own."""

    def compile(self) -> RankProgram:
        """See `Compiler.compile`."""
        self._folded = self._merge_copies()
        is_sent = self._sent_rows()
        self._handed = self._handed_on()
        for row in range(len(self.graph)):
            if row not in self._folded and not is_sent[row] and self._is_own(row):
                self.program.add(self._call(row), row, "run")
        return self.program


# -- calls -------------------------------------------------------------------------------------------------------------


def _begin(cells: memoryview[int], base: list[int], cell: int, rows: int) -> None:
    base[0] += rows
    cells[cell] = base[0]


def _publish(cells: memoryview[int], base: list[int], cell: int, number: int) -> None:
    cells[cell] = base[0] + number


def _wait(cells: memoryview[int], base: list[int], give_way: Call, awaited: Awaited) -> None:
    for cell, number in awaited:
        number += base[0]
        looks = 0
        while cells[cell] < number:
            looks += 1
            if looks > _LOOKS:
                give_way()


def _put(target: memoryview, source: memoryview) -> None:
    target[:] = source


def _exchange(
    cells: memoryview[int],
    base: list[int],
    give_way: Call,
    published: Awaited,
    awaited: Awaited,
    moves: Sequence[tuple[memoryview, memoryview]],
) -> None:
    for cell, number in published:
        cells[cell] = base[0] + number
    if awaited:
        _wait(cells, base, give_way, awaited)
    for target, source in moves:
        target[:] = source


def fused(program: RankProgram) -> RankProgram:
    """The program with every run of a publishing (or none), waits and small copies as one call: 60 ns less for each.

    All waits come first in it. So a copy may be made later than on its own, but nobody waits for it: else it would be
    published, and that ends the run.
    """
    out = RankProgram()
    run = list[int]()
    for k, call in enumerate(program.calls):
        kind = getattr(call, "func", None)
        if run and (kind is _publish or kind not in _FUSED):
            _fuse(program, run, out)
            run = []
        if kind in _FUSED:
            run.append(k)
        else:
            out.add(call, program.rows[k], program.roles[k])
    if run:
        _fuse(program, run, out)
    return out


_FUSED = (_publish, _wait, _put)


def _fuse(program: RankProgram, run: Sequence[int], out: RankProgram) -> None:
    calls: list[Any] = [program.calls[k] for k in run]
    row = program.rows[run[-1]]
    role = program.roles[run[-1]]
    if len(calls) == 1:
        out.add(calls[0], row, role)
        return
    args = {kind: [c.args for c in calls if c.func is kind] for kind in _FUSED}
    cells, base = next((c.args[:2] for c in calls if c.func is not _put), (memoryview(b""), []))
    published = tuple((cell, number) for _, _, cell, number in args[_publish])
    awaited: dict[int, int] = {}
    for *_, wanted in args[_wait]:
        for cell, number in wanted:
            awaited[cell] = max(awaited.get(cell, 0), number)
    role = "wait" if awaited else role
    give_way = next((c[2] for c in args[_wait]), int)
    moved = published, tuple(awaited.items()), tuple(args[_put])
    out.add(partial(_exchange, cells, base, give_way, *moved), row, role)
