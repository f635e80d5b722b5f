"""Progress: which rows wait for which rows of other ranks, where ranks share memory.

Takes a task graph with the waits for memory among its dependences, and which rank drives which device; gives, the same
on every rank, the rows of other ranks that must be over before a row runs on its own:

* those that it depends on: they made what it reads, or used what it overwrites;
* for a transfer, at least the beginning of its source's step, so that the source's last step is over.

A rank publishes the number of a row once that row, and all its rows before it, are over. Only rows that another rank
waits for are published. A rank does not wait for what an earlier wait has told it. Its step ends when no other rank
reads its memory any more, so between steps memory may be used freely.

A fold does the copies around it for which no row has to wait separately: it reads partial results where they are, and
writes its result to the devices that gave them and want it. So an all-reduce is one pass over memory.

No deadlock: every rank issues its rows in the one global order and waits only for lower rows, so the lowest unfinished
row can always go on. A fold that reads in place completes its copies later than their own rows; where another row waits
for such a copy meanwhile, the copy is made instead. Copies of its result are completed earlier than their own rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskflow.core.errors import InternalError
from taskflow.tasks.reuse import folded
from taskflow.tasks.task_graph import Array, Kind, TaskGraph

Awaited = tuple[tuple[int, int], ...]  # (rank, row)

BEGIN = -1  # the "row" that a rank publishes when it begins a step


@dataclass(frozen=True)
class Order:
    """What keeps the rows of different ranks in order.

    Attributes:
        before: row -> rows of other ranks that must be published before it runs.
        at_end: rank -> rows of others that must be published before its step ends.
        published: rows that somebody waits for.
    """

    before: dict[int, Awaited]
    at_end: dict[int, Awaited]
    published: set[int]


def order_between_ranks(graph: TaskGraph, folds: dict[int, int], ranks: Array) -> Order:
    """Who waits for whom, the same on every rank.

    Args:
        folds: copy -> fold that does it, before or after its own row.
        ranks: of every device, the rank that drives it.
    """
    device, source = ranks[graph.device].tolist(), ranks[graph.source].tolist()
    transfer = (graph.is_transfer & (ranks[graph.device] != ranks[graph.source])).tolist()
    when = [folds.get(row, row) for row in range(len(graph))]
    runner = [device[row] for row in when]
    count = int(ranks.max()) + 1
    seen = [[BEGIN - 1] * count for _ in range(count)]  # what each rank knows of each other one
    users = [[BEGIN - 1] * count for _ in range(count)]  # of its memory: the last row of each other rank
    merged: dict[int, list[int]] = {}
    for copy, fold in folds.items():
        merged.setdefault(fold, []).append(copy)
    before: dict[int, Awaited] = {}

    def learn(here: int, wanted: dict[int, int]) -> Awaited:
        """What of `wanted` rank `here` does not know yet; from now on it does."""
        news = tuple((d, r) for d, r in wanted.items() if r > seen[here][d])
        for d, r in news:
            seen[here][d] = r
        return news

    def other_end(copy: int) -> int:
        """The rank of a transfer that does not run it."""
        other: int = source[copy] if runner[copy] == device[copy] else device[copy]
        return other

    for row in range(len(graph)):
        here = runner[row]
        if transfer[row]:
            used = users[other_end(row)]
            used[here] = max(used[here], when[row])
        if row in folds:
            continue
        wanted: dict[int, int] = {}
        for task in (row, *merged.get(row, ())):
            if transfer[task]:
                wanted.setdefault(other_end(task), BEGIN)
            for other in graph.deps(task):
                if runner[other] != here:
                    wanted[runner[other]] = max(wanted.get(runner[other], BEGIN), when[other])
        if max(wanted.values(), default=BEGIN) >= row:
            raise InternalError(f"row {row} waits for a later row: {wanted}")
        if news := learn(here, wanted):
            before[row] = news
    at_end = {here: learn(here, dict(enumerate(users[here]))) for here in range(count)}
    published = {r for awaited in (*before.values(), *at_end.values()) for _, r in awaited}
    return Order(before, at_end, published)


def foldable_in_place(graph: TaskGraph) -> dict[int, tuple[int, int]]:
    """Transfer row -> (fold row, argument) where the fold may read the source itself.

    Not where a row between the two waits for the transfer: its rank would wait for the fold, which comes later.
    """
    fold, argument = folded(graph)
    waiting = np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr))
    order = np.argsort(graph.dep_row, kind="stable")
    awaited, waiting = graph.dep_row[order], waiting[order]
    first = np.searchsorted(awaited, np.arange(len(graph) + 1))
    return {
        copy: (row, int(argument[copy]))
        for copy, row in enumerate(fold.tolist())
        if row >= 0 and not any(copy < w < row for w in waiting[first[copy] : first[copy + 1]].tolist())
    }


def copied_by_folds(graph: TaskGraph, in_place: dict[int, int]) -> dict[int, int]:
    """Transfer row -> fold that copies its result there itself; `in_place`: copy -> fold that reads its source.

    A transfer is done by the fold if the fold waits anyway for all that the transfer waits for. That includes a row
    that used the target before: so the target's memory is in use already, and free to be overwritten.
    """
    reading: dict[int, list[int]] = {}
    for copy, fold in in_place.items():
        reading.setdefault(fold, []).append(copy)
    found: dict[int, int] = {}
    for copy in np.flatnonzero(graph.is_transfer).tolist():
        (source, rect, _), (target, _, _) = graph.args(copy)
        deps = graph.deps(copy)
        makers = [d for d in deps if graph.kind[d] == Kind.FOLD and graph.args(d)[0][:2] == (source, rect)]
        if copy in in_place or not makers:
            continue
        fold = makers[-1]
        before = {d for row in (fold, *reading.get(fold, ())) for d in (row, *graph.deps(row))}
        is_alive = any(target == k for d in deps if d != fold for k, _, _ in graph.args(d))
        if is_alive and before.issuperset(deps):
            found[copy] = fold
    return found
