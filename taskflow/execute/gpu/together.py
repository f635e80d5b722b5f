"""Rows that are calls of the library (NCCL): collectives with a plan, and transfers between ranks that it carries.

Every rank makes the calls that it takes part in on one stream, in row order, which all ranks share: so no two wait for
each other. Transfers that follow each other and do not depend on each other are one call, and so are collectives of one
bucket. What is not contiguous in
its instance is packed before and unpacked after, into memory that all calls share, since they follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from taskflow.backend import Communicator, GroupCall
from taskflow.core.geometry import Rect
from taskflow.execute.gpu.issue import ItemOrder, StreamKind
from taskflow.execute.gpu.ledger import LIBRARY
from taskflow.execute.gpu.library import LibraryCall, LibraryPlan, send
from taskflow.execute.program import Call
from taskflow.tasks.calls import calls_of
from taskflow.tasks.memory import ALIGNMENT
from taskflow.tasks.task_graph import Array, TaskGraph


class LibraryRows:
    """The rows of a program that are calls of the library.

    Args:
        plans: collective row -> its calls.
        transfers: the transfers that the library carries.
    """

    def __init__(
        self, issue: ItemOrder, plans: Mapping[int, LibraryPlan], transfers: Sequence[int]
    ) -> None:
        self._issue = issue
        self._plans = plans
        self._rank = issue.transport.rank
        graph = issue.graph
        self._transfers = group_transfers(graph, transfers)
        self._calls = group_collectives(graph, plans)
        self._world = tuple(range(issue.transport.size))
        groups = [self._world, *(g for plan in plans.values() for g in plan.groups if g)]
        self._communicators = self._connect(list(dict.fromkeys(groups))) if self.rows else {}

    @property
    def rows(self) -> set[int]:
        """The rows that are handled here."""
        return {*self._plans, *(row for rows in self._transfers.values() for row in rows)}

    def add(self, row: int) -> None:
        """What this rank does for a row; all rows of a call are done at the first of them."""
        if row in self._calls:
            self._add_collectives(self._calls[row])
        elif row in self._transfers:
            self._add_transfers(self._transfers[row])

    def _connect(self, groups: list[tuple[int, ...]]) -> dict[tuple[int, ...], Communicator]:
        """Make the communicators; what they are expected to take is in the ledger before."""
        backend = self._issue.backend
        ledger = self._issue.ledger
        rank = self._rank
        expected = sum(
            backend.communicator_bytes(self._peers(group)) for group in groups if rank in group
        )
        ledger.expected[rank][LIBRARY] += expected
        with ledger.room(rank, LIBRARY, expected):
            return backend.communicators(rank, groups, self._issue.transport, self._most_bytes())

    def _peers(self, group: tuple[int, ...]) -> int:
        """With how many others of a group this rank exchanges data: two in rings, and each one that it sends to."""
        graph = self._issue.graph
        others = set[int]()
        calls = [call for plan in self._plans.values() for calls in plan.rounds for call in calls]
        if len(group) == self._issue.transport.size:
            ends = [
                (int(graph.source[r]), int(graph.device[r]))
                for rows in self._transfers.values()
                for r in rows
            ]
            ends += [(call.root, d) for call in calls if call.kind == "send" for d in call.targets]
            others = {a + b - self._rank for a, b in ends if self._rank in (a, b)}
        in_rings = min(len(group) - 1, 2) if any(call.group == group for call in calls) else 0
        return max(len(others), in_rings)

    def _most_bytes(self) -> int:
        """The most that one call moves."""
        graph = self._issue.graph
        sizes = [int(graph.bytes[rows].sum()) for rows in self._transfers.values()]
        sizes += [int(graph.bytes[rows].sum()) for rows in self._calls.values()]
        return max(sizes, default=0)

    # -- transfers -------------------------------------------------------------------------------------------------

    def _add_transfers(self, rows: Sequence[int]) -> None:
        graph = self._issue.graph
        round_ = _Round(self._issue, self._rank)
        mine = [row for row in rows if self._rank in (graph.source[row], graph.device[row])]
        for row in mine:
            box = graph.args(row)[0][1]
            self._add_call(
                row, send(int(graph.source[row]), int(graph.device[row]), 0, 1, box), round_
            )
        if mine:
            self._emit(mine, round_, self._communicators[self._world])

    # -- collectives -----------------------------------------------------------------------------------------------

    def _add_collectives(self, rows: Sequence[int]) -> None:
        """Rows of one call, of one round each; or one row, round by round."""
        for rounds in zip(*(self._plans[row].rounds for row in rows), strict=True):
            mine = [
                (row, call)
                for row, calls in zip(rows, rounds, strict=True)
                for call in calls
                if self._rank in {*call.group, *call.sources, *call.targets}
            ]
            if mine:
                round_ = _Round(self._issue, self._rank)
                for row, call in mine:
                    self._add_call(row, call, round_)
                self._emit(rows, round_, self._communicators[mine[0][1].group or self._world])

    def _add_call(self, row: int, call: LibraryCall, round_: _Round) -> None:
        args = self._issue.graph.args(row)
        rank = self._rank
        graph = self._issue.graph
        source = (
            (args[call.sources[rank]][0], call.source_box[rank]) if rank in call.sources else None
        )
        target = (
            (args[call.targets[rank]][0], call.target_box[rank]) if rank in call.targets else None
        )
        if call.kind == "copy":
            assert source is not None and target is not None
            round_.copy(source, target)
            return
        given = source and round_.give(*source)
        got = target and round_.get(*target)
        kind = call.kind
        peer = call.root
        if kind == "send":
            kind, peer = ("send", next(iter(call.targets))) if source else ("receive", call.root)
        round_.parts.append(
            GroupCall(kind, given, got, peer, graph.combine.get(int(graph.region[row]), "sum"))
        )

    # -- items -----------------------------------------------------------------------------------------------------

    def _emit(self, rows: Sequence[int], round_: _Round, communicator: Communicator) -> None:
        """Pack, call, unpack: items of the library's stream."""
        issue = self._issue
        for row in rows:
            issue.before(row)
        calls = communicator.calls(round_.parts) if round_.parts else ()
        for call in (*round_.before, *calls, *round_.after):
            issue.add(
                call,
                rows[0],
                "together",
                round_.stream,
                round_.uses,
                of=rows,
                signals=True,
                awaits=True,
            )


class _Round:
    """The calls that go together, with the copies before and after them and the instances that they use."""

    def __init__(self, issue: ItemOrder, rank: int) -> None:
        self._issue = issue
        self.stream = issue.number(StreamKind.LIBRARY, rank)
        self.parts: list[GroupCall] = []
        self.before: list[Call] = []
        self.after: list[Call] = []
        self.uses: list[int] = []
        self._packed_bytes = 0

    def give(self, instance: int, box: Rect) -> Array:
        """A box as the library reads it: its memory, or where it is packed before."""
        view, packed = self._operand(instance, box)
        if packed is not view:
            self.before.append(partial(self._issue.backend.xp.copyto, packed, view))
        return packed

    def get(self, instance: int, box: Rect) -> Array:
        """A box as the library writes it: its memory, or from where it is unpacked after."""
        view, packed = self._operand(instance, box)
        if packed is not view:
            self.after.append(partial(self._issue.backend.xp.copyto, view, packed))
        return packed

    def copy(self, source: tuple[int, Rect], target: tuple[int, Rect]) -> None:
        """A copy within this rank."""
        views = (self._issue.memory.view(*end) for end in (target, source))
        self.uses += [source[0], target[0]]
        self.before.append(partial(self._issue.backend.xp.copyto, *views))

    def _operand(self, instance: int, box: Rect) -> tuple[Array, Array]:
        """A box in memory order, and without gaps."""
        memory = self._issue.memory
        self.uses.append(instance)
        view = memory.array(instance)[memory.local_box(instance, box).slices()]
        if view.flags.c_contiguous:
            return view, view
        begin = self._packed_bytes
        self._packed_bytes += -(-view.nbytes // ALIGNMENT) * ALIGNMENT
        return view, self._issue.pack(self.stream, begin, view)


def group_transfers(graph: TaskGraph, rows: Sequence[int]) -> dict[int, list[int]]:
    """First transfer of a call -> all of it: transfers that follow each other and do not depend on each other."""
    by_first: dict[int, list[int]] = {}
    group: list[int] = []
    for row in rows:
        if not group or row != group[-1] + 1 or set(graph.deps(row)) & set(group):
            group = by_first[row] = []
        group.append(row)
    return by_first


def group_collectives(graph: TaskGraph, rows: Iterable[int]) -> dict[int, list[int]]:
    """First row of a call -> all of it, of collectives that are calls of the library; see `tasks.calls`."""
    first = calls_of(graph)[0].tolist()
    by_first = dict[int, list[int]]()
    for row in sorted(rows):
        by_first.setdefault(first[row], []).append(row)
    return by_first
