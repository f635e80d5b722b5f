"""Transfers between GPUs whose memory is mapped: the receiver copies, and flags say when (see `backend.ranks`).

A transfer from s to t is: s signals that the data is ready; t awaits that, copies out of s's memory, and signals that
it has; s awaits this only before it writes that memory again, or at the end of the step.

A fold reads partial results where their owners left them: it awaits all of them, reads, and signals afterwards. Where
another row waits for such a transfer meanwhile, it is copied instead (`progress.foldable_in_place`); the memory plan
keeps its source until the fold.

A step is one graph, and CUDA may run what a graph leaves open in any order, one after the other even. So whoever
awaits something does so after all signals that this rank gives before, by row: then the first of all that are awaited
is always on its way.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from taskflow.backend.ranks import COUNTERS, FLAG_BYTES
from taskflow.core.errors import InternalError
from taskflow.execute.gpu.issue import ItemOrder, StreamKind
from taskflow.execute.program import Call
from taskflow.execute.progress import foldable_in_place

_ARRIVED, _AWAITED, _SENT = range(COUNTERS)


class PeerRows:
    """The transfers `rows` of a program, of which this rank's part is appended to `issue`."""

    def __init__(self, issue: ItemOrder, rows: list[int]) -> None:
        self._issue = issue
        self._flag_of = {row: k for k, row in enumerate(rows)}
        self._rank = issue.transport.rank
        self._lent: dict[int, int] = {}  # rows whose data may still be read -> its instance
        self._folds: dict[
            int, dict[int, int]
        ] = {}  # fold -> argument -> the transfer whose source it reads
        self._merged = set[int]()
        for copy, (fold, k) in foldable_in_place(issue.graph).items():
            if copy in self._flag_of:
                self._folds.setdefault(fold, {})[k] = copy
                self._merged.add(copy)
        size = COUNTERS * len(rows) * FLAG_BYTES
        if not rows:
            return
        shared = issue.backend.shared_zeros(self._rank, size, issue.transport)
        if shared is None:
            raise InternalError("the ranks share memory, but not that of their flags")
        self._flags = [a[:size].view(np.uint64).reshape(COUNTERS, len(rows)) for a in shared]

    def add(self, row: int) -> None:
        """What this rank does for a row, if it is at either end."""
        graph = self._issue.graph
        source = int(graph.source[row])
        device = int(graph.device[row])
        if source == self._rank:
            self._lend(row, device)
        if device == self._rank and row not in self._merged:
            self._take(row, source)

    def parts_of(self, fold: int) -> dict[int, int]:
        """Argument of a fold -> the instance of another rank that it reads."""
        graph = self._issue.graph
        return {k: graph.args(copy)[0][0] for k, copy in self._folds.get(fold, {}).items()}

    def await_parts(self, fold: int, stream: int) -> None:
        """Before a fold on a stream: what it reads of others is ready."""
        for copy in self._folds.get(fold, {}).values():
            self._issue.before(copy)
            self._issue.add(self._await(copy), copy, "await", stream, [], awaits=True)

    def give_back(self, fold: int, stream: int) -> None:
        """After a fold: what it has read of others is theirs again."""
        issue = self._issue
        for copy in self._folds.get(fold, {}).values():
            call = self._signal(copy, int(issue.graph.source[copy]))
            issue.add(call, copy, "signal", stream, [], signals=True)

    def _lend(self, row: int, device: int) -> None:
        issue = self._issue
        self._lent[row] = instance = issue.graph.args(row)[0][0]
        issue.before(row)
        stream = issue.number(StreamKind.SENDING, self._rank)
        issue.add(self._signal(row, device), row, "signal", stream, [instance], signals=True)

    def _take(self, row: int, source: int) -> None:
        issue = self._issue
        (there, box, _), (here, _, _) = issue.graph.args(row)
        stream = issue.number(StreamKind.RECEIVING, self._rank)
        issue.before(row)
        issue.add(self._await(row), row, "await", stream, [], awaits=True)
        copy = partial(
            issue.backend.xp.copyto, issue.memory.view(here, box), issue.memory.view(there, box)
        )
        item = issue.add(copy, row, "receive", stream, [here])
        issue.add(self._signal(row, source), row, "signal", stream, [], signals=True)
        issue.ends_with(row, item)

    def take_back(self, row: int) -> None:
        """Before `row`: await that what it waits for has been read."""
        for other in self._issue.graph.deps(row):
            self._take_back(other)

    def take_all_back(self) -> None:
        """At the end of the step."""
        for row in list(self._lent):
            self._take_back(row)

    def _take_back(self, row: int) -> None:
        if row in self._lent:
            issue = self._issue
            instance = self._lent.pop(row)
            stream = issue.number(StreamKind.SENDING, self._rank)
            issue.add(self._await(row), row, "await", stream, [instance], awaits=True)

    def _signal(self, row: int, to: int) -> Call:
        flag = slice(self._flag_of[row], self._flag_of[row] + 1)
        return self._issue.backend.signal(
            self._flags[to][_ARRIVED, flag], self._flags[self._rank][_SENT, flag]
        )

    def _await(self, row: int) -> Call:
        own_flags = self._flags[self._rank]
        flag = slice(self._flag_of[row], self._flag_of[row] + 1)
        return self._issue.backend.awaits(own_flags[_ARRIVED, flag], own_flags[_AWAITED, flag])
