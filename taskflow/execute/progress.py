"""Progress: which rows wait for which rows of other ranks, where ranks of a host share memory.

Takes a task graph with the waits for memory among its dependences, and which rank drives which device on which host;
gives, the same on every rank, the rows of other ranks of its host that must be over before a row runs on its own:

* those that it depends on: they made what it reads, or used what it overwrites;
* for a transfer, at least the beginning of its source's step, so that the source's last step is over.

A rank publishes the number of a row once that row, and all its rows before it, are over. Only rows that another rank
waits for are published. A rank does not wait for what an earlier wait has told it. Its step ends when no other rank
reads its memory any more, so between steps memory may be used freely.

A transfer between hosts is a message. It has two ends, a row of either rank, each of which waits for rows of its own
host, the receiver before it posts the message. It is over at an end when that rank has awaited it; it does so at that
row if a row of another rank of its host depends on it.

A fold does the copies around it for which no row has to wait separately: it reads partial results where they are, and
writes its result to the devices that gave them and want it. So an all-reduce is one pass over memory.

A transfer of what a rank has just written of a parameter is made by that rank, which still has it in its cache, and not
by the target's (`handed_on`).

No deadlock: every rank issues its rows in the one global order and waits only for lower rows, so the lowest unfinished
row can always go on. A fold that reads in place completes its copies later than their own rows; where another row waits
for such a copy meanwhile, the copy is made instead. Copies of its result are completed earlier than their own rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from taskflow.core.errors import InternalError
from taskflow.tasks.reuse import folded
from taskflow.tasks.task_graph import Array, Kind, Privilege, TaskGraph

Awaited = tuple[tuple[int, int], ...]  # (rank, row)

BEGIN = -1  # the "row" that a rank publishes when it begins a step


@dataclass(frozen=True)
class Order:
    """What keeps the rows of different ranks in order.

    Attributes:
        before: (row, rank) -> rows of other ranks that must be published before that rank runs it, or its end of it.
        at_end: rank -> rows of others that must be published before its step ends.
        published: (row, rank) where somebody waits for it.
        posts: message -> row before which its receiver posts it.
        awaited: (message, rank): ends that are awaited at their row.
    """

    before: dict[tuple[int, int], Awaited] = field(default_factory=dict)
    at_end: dict[int, Awaited] = field(default_factory=dict)
    published: set[tuple[int, int]] = field(default_factory=set)
    posts: dict[int, int] = field(default_factory=dict)
    awaited: set[tuple[int, int]] = field(default_factory=set)


class Runners:
    """Which ranks run the rows of a task graph.

    Args:
        ranks: of every device, the rank that drives it.
        hosts: of every rank; default: one.
        folds: copy -> fold that does it, before or after its own row.
        handed: transfers that the rank of their source makes.

    Attributes:
        runs: of every row, the rank that runs it, unless it is a message.
        crossing: of every row, whether it is a transfer between ranks of one host.
        messages: of every row, whether it is one between hosts.
    """

    def __init__(
        self,
        graph: TaskGraph,
        ranks: Array,
        hosts: Sequence[int] | None = None,
        folds: Mapping[int, int] = {},
        handed: Collection[int] = (),
    ) -> None:
        self.hosts = list(hosts or [0] * (int(ranks.max()) + 1))
        self.source: list[int] = ranks[graph.source].tolist()
        self.device: list[int] = ranks[graph.device].tolist()
        self.runs = [
            self.source[row] if row in handed else rank for row, rank in enumerate(self.device)
        ]
        host = np.array(self.hosts)[ranks]
        is_message = graph.is_transfer & (host[graph.source] != host[graph.device])
        self.messages: list[bool] = is_message.tolist()
        self.crossing: list[bool] = (
            graph.is_transfer & (ranks[graph.source] != ranks[graph.device]) & ~is_message
        ).tolist()
        self.when = [folds.get(row, row) for row in range(len(graph))]
        self._runner = [self.runs[row] for row in self.when]

    def runner(self, row: int, host: int) -> int | None:
        """The rank of a host that runs a row, or its end of a message; None: the row is none of this host's."""
        if not self.messages[row]:
            rank = self._runner[row]
            return rank if self.hosts[rank] == host else None
        return next(
            (rank for rank in (self.device[row], self.source[row]) if self.hosts[rank] == host),
            None,
        )


def order_between_ranks(
    graph: TaskGraph,
    folds: Mapping[int, int],
    ranks: Array,
    hosts: Sequence[int] | None = None,
    receive: Sequence[int] | Array = (),
    handed: Collection[int] = (),
) -> Order:
    """Who waits for whom, the same on every rank.

    Args:
        folds: copy -> fold that does it, before or after its own row.
        ranks: of every device, the rank that drives it.
        hosts: of every rank; default: one.
        receive: of every message, the row before which it may be posted as far as its own rank is concerned.
        handed: transfers that the rank of their source makes, see `handed_on`.
    """
    return _Orderer(graph, folds, Runners(graph, ranks, hosts, folds, handed)).order(receive)


class _Orderer:
    """Passes the rows in their order, and notes what every rank knows of the others by then."""

    def __init__(self, graph: TaskGraph, folds: Mapping[int, int], ends: Runners) -> None:
        self.graph = graph
        self.folds = folds
        self.ends = ends
        self.waits = Order()
        self._first = graph.dep_ptr.tolist()
        self._deps = graph.dep_row.tolist()
        self.seen: dict[tuple[int, int], int] = {}  # what one rank knows of another
        # Of a rank's memory: the last row of each other rank that uses it.
        self.users: dict[int, dict[int, int]] = {}
        self.merged: dict[int, list[int]] = {}
        for copy, fold in folds.items():
            self.merged.setdefault(fold, []).append(copy)

    def order(self, receive: Sequence[int] | Array) -> Order:
        """See `order_between_ranks`."""
        ends = self.ends
        posted = dict[int, list[int]]()
        for row in np.flatnonzero(ends.messages).tolist():
            last = max(self._wanted(row, ends.device[row]).values(), default=BEGIN)
            self.waits.posts[row] = max(int(receive[row]), last + 1)
            posted.setdefault(self.waits.posts[row], []).append(row)
        for row in range(len(self.graph)):
            for message in posted.get(row, ()):
                self._wait(message, ends.device[message], row)
            if ends.messages[row]:
                self._wait(row, ends.source[row], row)
                continue
            here = ends.runs[ends.when[row]]
            if ends.crossing[row]:
                used = self.users.setdefault(self._other_end(row), {})
                used[here] = max(used.get(here, BEGIN), ends.when[row])
            if row not in self.folds:
                self._wait(row, here, row)
        for here, used in sorted(self.users.items()):
            self.waits.at_end[here] = self._learn(here, dict(sorted(used.items())))
        return self.waits

    def _wait(self, row: int, here: int, position: int) -> None:
        """A rank runs a row, or its end of it, at a position among the rows."""
        wanted = self._wanted(row, here)
        if max(wanted.values(), default=BEGIN) >= position:
            raise InternalError(f"row {row} waits for a later row: {wanted}")
        if news := self._learn(here, wanted):
            self.waits.before[row, here] = news

    def _wanted(self, row: int, here: int) -> dict[int, int]:
        """The last row of every other rank that this rank awaits before it runs a row, or its end of it."""
        ends = self.ends
        wanted = dict[int, int]()
        for task in (row, *self.merged.get(row, ())):
            if ends.crossing[task]:
                wanted.setdefault(self._other_end(task), BEGIN)
            for other in self._deps[self._first[task] : self._first[task + 1]]:
                rank = ends.runner(other, ends.hosts[here])
                if rank is not None and rank != here:
                    wanted[rank] = max(wanted.get(rank, BEGIN), ends.when[other])
                    if ends.messages[other]:
                        self.waits.awaited.add((other, rank))
        return wanted

    def _learn(self, here: int, wanted: dict[int, int]) -> Awaited:
        """What of `wanted` rank `here` does not know yet; from now on it does."""
        seen = self.seen
        news = tuple((d, r) for d, r in wanted.items() if r > seen.get((here, d), BEGIN - 1))
        for d, r in news:
            seen[here, d] = r
            self.waits.published.add((r, d))
        return news

    def _other_end(self, copy: int) -> int:
        """The rank of a transfer within a host that does not run it."""
        ends = self.ends
        runs = ends.runs[ends.when[copy]]
        return ends.source[copy] if runs == ends.device[copy] else ends.device[copy]


def handed_on(graph: TaskGraph, ranks: Array, is_sent: Array | None = None) -> set[int]:
    """Transfers of persistent regions that the rank of their source makes, instead of that of their target.

    The last row that the rank itself ran, apart from other such transfers, is the point that wrote what is read.

    Args:
        ranks: of every device, the rank that drives it.
        is_sent: of every row, whether it is a message, which none is; default: none.
    """
    latest: dict[int, int] = {}  # rank -> its own last row
    handed = set[int]()
    sources = ranks[graph.source]
    targets = ranks[graph.device]
    is_persistent = np.array([region.is_persistent for region in graph.regions], np.bool_)
    may_be = graph.is_transfer & (sources != targets) & is_persistent[graph.region]
    if is_sent is not None:
        may_be &= ~is_sent
    columns = (column.tolist() for column in (sources, targets, may_be))
    for row, (source, target, is_candidate) in enumerate(zip(*columns, strict=True)):
        if is_candidate and source in latest and _writes_parameter(graph, latest[source], row):
            handed.add(row)
        else:
            latest[target] = row
    return handed


def _writes_parameter(graph: TaskGraph, row: int, transfer: int) -> bool:
    """Whether a row is a point that writes all that a transfer reads."""
    if graph.kind[row] != Kind.POINT:
        return False
    (source, rect, _), _ = graph.args(transfer)
    written = [
        box for i, box, privilege in graph.args(row) if i == source and privilege != Privilege.READ
    ]
    return any(box.covers(rect) for box in written)


def foldable_in_place(graph: TaskGraph) -> dict[int, tuple[int, int]]:
    """Transfer row -> (fold row, argument) where the fold may read the source itself.

    Not where a row between the two waits for the transfer: its rank would wait for the fold, which comes later.
    """
    fold, argument = folded(graph)
    order = np.argsort(graph.dep_row, kind="stable")
    waiting = graph.waiting_row[order]
    first = np.searchsorted(graph.dep_row[order], np.arange(len(graph) + 1))
    return {
        copy: (row, int(argument[copy]))
        for copy, row in enumerate(fold.tolist())
        if row >= 0
        and not any(copy < w < row for w in waiting[first[copy] : first[copy + 1]].tolist())
    }


def copied_by_folds(graph: TaskGraph, in_place: dict[int, int]) -> dict[int, int]:
    """Transfer row -> fold that copies its result there itself; `in_place`: copy -> fold that reads its source.

    A transfer is done by the fold if the fold waits anyway for all that the transfer waits for. That includes a row
    that used the target before: so the target's memory is in use already, and free to be overwritten.
    """
    reading: dict[int, list[int]] = {}
    for copy, fold in in_place.items():
        reading.setdefault(fold, []).append(copy)
    folds: dict[int, int] = {}
    for copy, fold in _made_by_folds(graph).items():
        if copy in in_place:
            continue
        deps = graph.deps(copy)
        target = graph.arg_instance[graph.arg_ptr[copy] + 1]
        before = {d for row in (fold, *reading.get(fold, ())) for d in (row, *graph.deps(row))}
        used = (
            graph.arg_instance[graph.arg_ptr[d] : graph.arg_ptr[d + 1]] for d in deps if d != fold
        )
        if before.issuperset(deps) and any(target in instances for instances in used):
            folds[copy] = fold
    return folds


def _made_by_folds(graph: TaskGraph) -> dict[int, int]:
    """Transfer row -> the last fold that it waits for and that makes just the box that it reads."""
    row = graph.waiting_row
    is_asked = graph.is_transfer[row] & (graph.kind == Kind.FOLD)[graph.dep_row]
    row = row[is_asked]
    fold = graph.dep_row[is_asked]
    read = graph.arg_ptr[row]
    made = graph.arg_ptr[fold]
    is_same = graph.arg_instance[read] == graph.arg_instance[made]
    is_same &= (graph.arg_box[read] == graph.arg_box[made]).all(axis=(1, 2))
    return dict(zip(row[is_same].tolist(), fold[is_same].tolist(), strict=True))
