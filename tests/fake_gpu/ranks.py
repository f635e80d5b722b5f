"""What stands in for the meeting of GPUs of different ranks: flags and a library's calls in shared memory.

Nothing here holds up the process: what a stream cannot do yet stays at the head of its queue, as a `Gate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskflow.backend.context import Array
from taskflow.backend.ranks import SUMS, Communicator, GroupCall
from taskflow.core.errors import InternalError

_COUNTERS = 4  # of a pair of ranks: calls given, calls taken, where the bytes of the last one begin, how many they are


@dataclass(eq=False)
class Gate:
    """What a stream passes when it is open; then it does `pass_through`."""

    is_open: Callable[[], bool]
    pass_through: Callable[[], object]

    @property
    def is_over(self) -> bool:
        """Whether it is open."""
        return self.is_open()

    def __call__(self) -> None:
        self.pass_through()


def flag_signal(there: Array, sent: Array) -> Callable[[], object]:
    """See `StreamBackend.signal`."""

    def call() -> None:
        sent[0] += 1
        there[0] = sent[0]

    return call


def flag_gate(here: Array, awaited: Array) -> Gate:
    """See `StreamBackend.awaits`."""

    def count() -> None:
        awaited[0] += 1

    return Gate(lambda: bool(here[0] > awaited[0]), count)


def mailbox_bytes(ranks: int, most_bytes: int) -> int:
    """What one rank needs for one communicator: counters for every other rank, and what it gives to all."""
    return 8 * _COUNTERS * ranks + -(-most_bytes * ranks // 8) * 8


class FakeCommunicator(Communicator):
    """Mailboxes: a rank puts what it gives into its own, the others take it from there."""

    def __init__(self, group: tuple[int, ...], rank: int, mailboxes: Sequence[Array]) -> None:
        self.group, self._rank = group, rank
        self._place = group.index(rank)
        size = 8 * _COUNTERS * len(mailboxes)
        self._counters = {
            r: m[:size].view(np.int64).reshape(_COUNTERS, -1) for r, m in enumerate(mailboxes)
        }
        self._boxes = {r: mailboxes[r][size:] for r in range(len(mailboxes))}

    def calls(self, parts: Sequence[GroupCall]) -> Sequence[Callable[[], object]]:
        """See `Communicator.calls`."""
        others = [r for r in self.group if r != self._rank]
        out = {
            r: arrays
            for r in others
            if (arrays := [a for p in parts for a in self._outgoing(p, r)])
        }
        sizes = {r: total for r in others if (total := sum(self._incoming(p, r) for p in parts))}
        mine = self._counters[self._rank]

        def have_given() -> bool:
            return all(self._counters[r][0, self._rank] > mine[1, r] for r in sizes)

        def have_taken() -> bool:
            return all(self._counters[r][1, self._rank] >= mine[0, r] for r in out)

        return [
            lambda: self._give(out),
            Gate(have_given, lambda: self._take(parts, sizes)),
            Gate(have_taken, lambda: None),
            lambda: None,  # whoever adds something to a call adds it here
        ]

    def _outgoing(self, part: GroupCall, to: int) -> list[Array]:
        """What a part gives to another rank."""
        source = part.source
        goes = part.kind in ("all_reduce", "all_gather", "reduce_scatter") or (
            self._rank == part.peer
            if part.kind == "broadcast"
            else part.kind != "receive" and to == part.peer
        )
        if source is None or not goes:
            return []
        if part.kind == "reduce_scatter":
            return [source.reshape(len(self.group), -1)[self.group.index(to)]]
        return [source]

    def _incoming(self, part: GroupCall, source: int) -> int:
        """Bytes that a part takes from another rank."""
        if part.kind in ("all_reduce", "all_gather") and part.source is not None:
            return part.source.nbytes
        if part.kind == "reduce":
            return part.source.nbytes if part.source is not None and part.peer == self._rank else 0
        if part.target is None or (part.kind in ("broadcast", "receive") and source != part.peer):
            return 0
        return part.target.nbytes

    def _give(self, out: Mapping[int, Sequence[Array]]) -> None:
        counters, box, end = self._counters[self._rank], self._boxes[self._rank], 0
        for to, arrays in out.items():
            counters[2, to] = end
            for array in arrays:
                box[end : end + array.nbytes] = array.reshape(-1).view(np.uint8)
                end += array.nbytes
            counters[3, to] = end - counters[2, to]
            counters[0, to] += 1

    def _take(self, parts: Sequence[GroupCall], sizes: Mapping[int, int]) -> None:
        begin = {}
        for r, size in sizes.items():
            counters = self._counters[r]
            if counters[3, self._rank] != size:
                given = counters[3, self._rank]
                raise InternalError(
                    f"rank {r} gives {given} bytes in a call in which rank {self._rank} takes {size}"
                )
            begin[r] = int(counters[2, self._rank])
        for part in parts:
            self._take_part(part, begin)
        for r in sizes:
            self._counters[self._rank][1, r] += 1

    def _take_part(self, part: GroupCall, begin: dict[int, int]) -> None:
        taken: dict[int, Array] = {}
        for r in self.group:
            size = self._incoming(part, r) if r != self._rank else 0
            if size:
                taken[r] = self._boxes[r][begin[r] : begin[r] + size]
                begin[r] += size
        if part.target is None:
            return
        found = self._result(part, taken)
        part.target.reshape(-1)[...] = found.view(part.target.dtype).reshape(-1)

    def _result(self, part: GroupCall, taken: dict[int, Array]) -> Array:
        if part.source is not None:
            own = part.source.reshape(-1)
            if part.kind == "reduce_scatter":
                own = own.reshape(len(self.group), -1)[self._place]
            taken[self._rank] = own.copy().view(np.uint8)
        values = [taken[r] for r in self.group if r in taken]
        if part.kind in SUMS:
            assert part.target is not None
            combine: Any = np.maximum if part.combine == "max" else np.add
            total = values[0].view(part.target.dtype)
            for value in values[1:]:
                total = combine(total, value.view(part.target.dtype))
            return np.ascontiguousarray(total)
        return np.concatenate(values) if part.kind == "all_gather" else taken[part.peer]
