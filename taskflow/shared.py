"""Programs over shared memory: ranks of one host read each other's instances in place.

Takes what `program` takes, with memory that every rank maps; gives a program without messages. Each row runs on one
rank, a transfer on its target's, which copies (or folds, without any copy) straight out of the source's memory. Ranks
tell each other how far they are: a rank has one 8-byte cell with a count that only grows, in which it publishes the
number of a row that it has finished, and with it all of its rows before. A row waits until these rows of other ranks
are published:

* those that it depends on: they made what it reads, or read what it overwrites;
* where an instance begins its life, the transfers out of the memory that it takes over;
* for a transfer, at least the beginning of its source's step, so that the source's last step is over.

What a rank has learnt in an earlier wait it does not wait for again, and only rows that somebody waits for are
published. A step ends when nobody reads this rank's memory any more, so whatever is done between steps needs no care.

No deadlock: every rank issues its rows in the one global order and waits only for lower rows, so the lowest unfinished
row can always go on. A fold that reads in place completes its copies later than their own rows; where another row waits
for such a copy meanwhile, the copy is made instead.

A cell is written after the data and read before it; this relies on x86, which keeps stores, and loads, in order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from taskflow.errors import InternalError
from taskflow.memory import MemoryPlan, folded_copies
from taskflow.program import Call, Compiler, Program
from taskflow.task import Array, Kind, TaskGraph

Awaited = tuple[tuple[int, int], ...]  # (device, row)

_STRIDE = 8  # a cache line has eight cells; ranks do not share one
_SPINS = 30  # looks at a cell (30 ns each) before the core is given away
_SMALL_BYTES = 4096  # a copy of less is faster through memoryviews: 90 ns instead of 250 ns
_BEGIN = -1  # the "row" that a rank publishes when it begins a step


class SharedCompiler(Compiler):
    """Compiles rows in order; transfers become reads in place between waiting and publishing.

    With `fuses`, publishing, waiting and small copies that follow each other are one call: 60 ns less for each, but a
    row has no time of its own then.
    """

    fuses = False

    def compile(self) -> Program:
        """See `Compiler.compile`."""
        graph, drives = self.graph, self.transport.drives
        in_place = foldable_in_place(graph)
        self._copy_of = {(fold, k): copy for copy, (fold, k) in in_place.items()}
        self._order = order_between_ranks(graph, self.plan, {copy: fold for copy, (fold, _) in in_place.items()})
        size = self.transport.size * _STRIDE * 8
        shared = self.transport.shared_arrays(size if self.transport.rank == 0 else 0)
        if shared is None:
            raise InternalError("the ranks share memory, but not that of their cells")
        self._cells = memoryview(shared[0].data)[:size].cast("q")
        self._base = [0]
        begin = partial(_begin, self._cells, self._base, self.transport.rank * _STRIDE, len(graph) + 1)
        self.program.add(begin, 0, "publish")
        for row in range(len(graph)):
            if row not in in_place and drives(int(graph.device[row])):
                self._run_row(row)
        self._wait(self._order.at_end.get(self.transport.rank, ()), max(len(graph) - 1, 0))
        return fused(self.program) if self.fuses else self.program

    def _run_row(self, row: int) -> None:
        self._wait(self._order.before.get(row, ()), row)
        for instance, _, _ in self.graph.args(row):
            if instance >= 0 and self.graph.instance_device[instance] == self.graph.device[row]:
                self._begin_life(row, instance)
        self.program.add(self._call(row), row, "run")
        if row in self._order.published:
            place = self.transport.rank * _STRIDE
            self.program.add(partial(_publish, self._cells, self._base, place, row + 1), row, "publish")

    def _wait(self, awaited: Awaited, row: int) -> None:
        if awaited:
            places = tuple((device * _STRIDE, other + 1) for device, other in awaited)
            self.program.add(partial(_wait, self._cells, self._base, places), row, "wait")

    def _call(self, row: int) -> Call:
        if self.graph.kind[row] != Kind.COPY:
            return super()._call(row)
        (source, rect, _), (target, _, _) = self.graph.args(row)
        return copying(self.memory.view(target, rect), self.memory.view(source, rect))

    def _fold(self, row: int, combine: np.ufunc, views: list[Array]) -> Call:
        args = self.graph.args(row)
        for k in range(1, len(args)):
            copy = self._copy_of.get((row, k))
            if copy is not None:
                views[k] = self.memory.view(self.graph.args(copy)[0][0], args[k][1])
        return super()._fold(row, combine, views)


# -- calls -------------------------------------------------------------------------------------------------------------


def _begin(cells: Any, base: list[int], place: int, rows: int) -> None:
    base[0] += rows
    cells[place] = base[0]


def _publish(cells: Any, base: list[int], place: int, number: int) -> None:
    cells[place] = base[0] + number


def _wait(cells: Any, base: list[int], places: Awaited, give_way: Callable[[], object] = os.sched_yield) -> None:
    for place, number in places:
        number += base[0]
        if cells[place] < number:
            for _ in repeat(None, _SPINS):
                if cells[place] >= number:
                    break
            else:
                while cells[place] < number:
                    give_way()


def _put(target: memoryview, source: memoryview) -> None:
    target[:] = source


def copying(target: Array, source: Array) -> Call:
    """A call that copies `source` to `target`, of the same shape and dtype."""
    if target.flags.c_contiguous and source.flags.c_contiguous and 0 < target.nbytes <= _SMALL_BYTES:
        return partial(_put, _bytes(target), _bytes(source))
    return partial(np.copyto, target, source)


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _exchange(
    cells: Any,
    base: list[int],
    published: Awaited,
    places: Awaited,
    moves: Sequence[tuple[memoryview, memoryview]],
) -> None:
    for place, number in published:
        cells[place] = base[0] + number
    if places:
        _wait(cells, base, places)
    for target, source in moves:
        target[:] = source


def fused(program: Program) -> Program:
    """The program with every run of a publishing (or none), waits and small copies as one call.

    All waits come first in it. So a copy may be made later than on its own, but nobody waits for it: else it would be
    published, and that ends the run.
    """
    out, run = Program(), list[int]()
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


def _fuse(program: Program, run: Sequence[int], out: Program) -> None:
    calls: list[Any] = [program.calls[k] for k in run]
    row, role = program.rows[run[-1]], program.roles[run[-1]]
    if len(calls) == 1:
        out.add(calls[0], row, role)
        return
    args = {kind: [c.args for c in calls if c.func is kind] for kind in _FUSED}
    cells, base = next((c.args[:2] for c in calls if c.func is not _put), (None, []))
    published = tuple((place, number) for _, _, place, number in args[_publish])
    places: dict[int, int] = {}
    for _, _, awaited in args[_wait]:
        for place, number in awaited:
            places[place] = max(places.get(place, 0), number)
    out.add(partial(_exchange, cells, base, published, tuple(places.items()), tuple(args[_put])), row, role)


# -- who waits for whom ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """What keeps the rows of different ranks in order.

    Attributes:
        before: row -> rows of other devices that must be published before it runs.
        at_end: device -> rows of others that must be published before its step ends.
        published: rows that somebody waits for.
    """

    before: dict[int, Awaited]
    at_end: dict[int, Awaited]
    published: set[int]


def order_between_ranks(graph: TaskGraph, plan: MemoryPlan, folds: dict[int, int]) -> Order:
    """Who waits for whom, the same on every rank; `folds`: copy -> fold that reads its source in place."""
    device, source, transfer = graph.device.tolist(), graph.source.tolist(), graph.is_transfer.tolist()
    arg_ptr, arg_instance = graph.arg_ptr.tolist(), graph.arg_instance.tolist()
    home, start = graph.instance_device.tolist(), plan.offset.tolist()
    end = (plan.offset + plan.size).tolist()
    count = len(graph.machine.devices)
    seen = [[_BEGIN - 1] * count for _ in range(count)]  # what each device knows of each other one
    reads: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]  # out of its memory: instance, device, row
    merged: dict[int, list[int]] = {}
    for copy, fold in folds.items():
        merged.setdefault(fold, []).append(copy)
    born: set[int] = set()
    before: dict[int, Awaited] = {}

    def learn(here: int, wanted: dict[int, int]) -> Awaited:
        """The part of `wanted` that is news to device `here`, which then knows it."""
        news = tuple((d, r) for d, r in wanted.items() if r > seen[here][d])
        for d, r in news:
            seen[here][d] = r
        if news:
            reads[here] = [read for read in reads[here] if read[2] > seen[here][read[1]]]
        return news

    for row in range(len(graph)):
        here = device[row]
        if transfer[row]:
            reads[source[row]].append((arg_instance[arg_ptr[row]], here, folds.get(row, row)))
        if row in folds:
            continue
        wanted: dict[int, int] = {}
        for task in (row, *merged.get(row, ())):
            if transfer[task]:
                wanted.setdefault(source[task], _BEGIN)
            for other in graph.deps(task):
                if device[other] != here:
                    wanted[device[other]] = max(wanted.get(device[other], _BEGIN), folds.get(other, other))
        for instance in arg_instance[arg_ptr[row] : arg_ptr[row + 1]]:
            if instance >= 0 and home[instance] == here and instance not in born:
                born.add(instance)
                for other, reader, done in reads[here]:
                    if other != instance and start[instance] < end[other] and start[other] < end[instance]:
                        wanted[reader] = max(wanted.get(reader, _BEGIN), done)
        if max(wanted.values(), default=_BEGIN) >= row:
            raise InternalError(f"row {row} waits for a later row: {wanted}")
        if news := learn(here, wanted):
            before[row] = news
    at_end = {}
    for here in range(count):
        wanted = {}
        for _, reader, done in reads[here]:
            wanted[reader] = max(wanted.get(reader, _BEGIN), done)
        at_end[here] = learn(here, wanted)
    published = {r for awaited in (*before.values(), *at_end.values()) for _, r in awaited}
    return Order(before, at_end, published)


def foldable_in_place(graph: TaskGraph) -> dict[int, tuple[int, int]]:
    """Transfer row -> (fold row, argument) where the fold may read the source itself.

    Not where a row between the two waits for the transfer: its rank would wait for the fold, which comes later.
    """
    found = folded_copies(graph)
    waiting = np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr))
    order = np.argsort(graph.dep_row, kind="stable")
    awaited, waiting = graph.dep_row[order], waiting[order]
    first = np.searchsorted(awaited, np.arange(len(graph) + 1))
    return {
        copy: (row, k)
        for copy, (row, k) in found.items()
        if not any(copy < w < row for w in waiting[first[copy] : first[copy + 1]].tolist())
    }
