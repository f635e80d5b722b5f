"""Programs over shared memory: ranks of one host read each other's instances in place.

Takes what `program` takes, with memory that every rank maps; gives a program without messages. The source of a transfer
raises a flag when its data is ready; the target copies (or folds, without any copy) straight out of the source's memory and raises
a second flag, for which the source waits before it overwrites that memory. A flag is an 8-byte cell that holds the number
of the last step it was raised in, so it is never lowered.

No deadlock: every rank issues its rows in the one global order, and the lowest unfinished row can always go on. A fold
that reads in place completes its copies later than their own rows; where another row waits for such a copy
meanwhile, the copy is made instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from taskflow.memory import folded_copies
from taskflow.program import Compiler, Program
from taskflow.task import Array, TaskGraph

_STRIDE = 8  # a cache line has eight cells; one flag each, so that polling one does not disturb its neighbours


class SharedCompiler(Compiler):
    """Compiles rows in order; transfers become flags and reads in place."""

    def compile(self) -> Program:
        """See `Compiler.compile`."""
        graph = self.graph
        self._ready, self._raised_after = ready_groups(graph)
        self._in_place = foldable_in_place(graph)
        self._copy_of = {(f, k): r for r, (f, k) in self._in_place.items()}
        transfers = np.flatnonzero(graph.is_transfer).tolist()
        groups = max(self._ready.values(), default=-1) + 1
        self._read = {row: groups + k for k, row in enumerate(transfers)}
        size = (groups + len(transfers)) * _STRIDE * 8
        shared = self.transport.shared_arrays(size if self.transport.rank == 0 else 0)
        if shared is None:
            return Program()
        self._cells = memoryview(shared[0].data)[:size].cast("q") if size else None
        self._epoch = [0]
        self.program.add(partial(_next_epoch, self._epoch), 0, "begin")
        return super().compile()

    def _receive_at(self, row: int) -> int:
        return row

    def _row(self, row: int, is_transfer: bool) -> None:
        super()._row(row, is_transfer)
        for device in self.memory.own:
            group = self._raised_after.get((device, row))
            if group is not None:
                self.program.add(partial(_raise, self._cells, group * _STRIDE, self._epoch), row, "send")

    def _send(self, row: int) -> None:
        source, _, _ = self.graph.args(row)[0]
        self._before(row, [source])
        wait = partial(_await, self._cells, self._read[row] * _STRIDE, self._epoch)
        self.pending[row] = (wait, source)

    def _receive(self, row: int) -> None:
        if row in self._in_place:
            return
        (source, rect, _), (target, _, _) = self.graph.args(row)
        self._before(row, [target])
        move = partial(np.copyto, self.memory.view(target, rect), self.memory.view(source, rect))
        self.program.add(self._when_ready([row], move), row, "run")

    def _fold(self, row: int, combine: np.ufunc, views: list[Array]) -> Callable[[], object]:
        args = self.graph.args(row)
        copies = []
        for k in range(1, len(args)):
            copy = self._copy_of.get((row, k))
            if copy is not None:
                copies.append(copy)
                views[k] = self.memory.view(self.graph.args(copy)[0][0], args[k][1])
        call = super()._fold(row, combine, views)
        return self._when_ready(copies, call) if copies else call

    def _when_ready(self, copies: Sequence[int], call: Callable[[], object]) -> Callable[[], object]:
        """`call` after the sources of `copies` are ready; then tell them that they have been read."""
        ready = tuple(self._ready[c] * _STRIDE for c in copies)
        read = tuple(self._read[c] * _STRIDE for c in copies)
        return partial(_read_in_place, self._cells, self._epoch, ready, read, call)


def _next_epoch(epoch: list[int]) -> None:
    epoch[0] += 1


def _raise(cells: Any, index: int, epoch: list[int]) -> None:
    cells[index] = epoch[0]


def _await(cells: Any, index: int, epoch: list[int], give_way: Callable[[], object] = os.sched_yield) -> None:
    number = epoch[0]
    while cells[index] < number:
        give_way()


def _read_in_place(
    cells: Any,
    epoch: list[int],
    ready: Sequence[int],
    read: Sequence[int],
    call: Callable[[], object],
    give_way: Callable[[], object] = os.sched_yield,
) -> None:
    number = epoch[0]
    for index in ready:
        while cells[index] < number:
            give_way()
    call()
    for index in read:
        cells[index] = number


def ready_groups(graph: TaskGraph) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    """Flags that say "ready": transfer row -> flag, and (device, row after which it raises the flag) -> flag.

    A transfer is ready once the last row on its source device that it waits for is done, however late it is issued;
    transfers that become ready together share a flag.
    """
    flags: dict[int, int] = {}
    raised_after: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(graph.is_transfer).tolist():
        source = int(graph.source[row])
        last = max((d for d in graph.deps(row) if graph.device[d] == source), default=0)
        flags[row] = raised_after.setdefault((source, last), len(raised_after))
    return flags, raised_after


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
