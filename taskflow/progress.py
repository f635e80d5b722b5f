"""Progress: which rows wait for which rows of other ranks, where ranks share memory.

Takes a task graph and its memory plan; gives, the same on every rank, the rows of other devices that must be over
before a row runs on its own:

* those that it depends on: they made what it reads, or read what it overwrites;
* where an instance begins its life, the transfers out of the memory that it takes over;
* for a transfer, at least the beginning of its source's step, so that the source's last step is over.

A row that is over says so for all rows of its device before it. What a device has learnt in an earlier wait it does not
wait for again, and only rows that somebody waits for are published. A step ends when nobody reads this device's memory
any more, so whatever is done between steps needs no care.

No deadlock: every rank issues its rows in the one global order and waits only for lower rows, so the lowest unfinished
row can always go on. A fold that reads in place completes its copies later than their own rows; where another row waits
for such a copy meanwhile, the copy is made instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskflow.errors import InternalError
from taskflow.memory import MemoryPlan, folded_copies
from taskflow.task import TaskGraph

Awaited = tuple[tuple[int, int], ...]  # (device, row)

BEGIN = -1  # the "row" that a device publishes when it begins a step


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
    seen = [[BEGIN - 1] * count for _ in range(count)]  # what each device knows of each other one
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
                wanted.setdefault(source[task], BEGIN)
            for other in graph.deps(task):
                if device[other] != here:
                    wanted[device[other]] = max(wanted.get(device[other], BEGIN), folds.get(other, other))
        for instance in arg_instance[arg_ptr[row] : arg_ptr[row + 1]]:
            if instance >= 0 and home[instance] == here and instance not in born:
                born.add(instance)
                for other, reader, done in reads[here]:
                    if other != instance and start[instance] < end[other] and start[other] < end[instance]:
                        wanted[reader] = max(wanted.get(reader, BEGIN), done)
        if max(wanted.values(), default=BEGIN) >= row:
            raise InternalError(f"row {row} waits for a later row: {wanted}")
        if news := learn(here, wanted):
            before[row] = news
    at_end = {}
    for here in range(count):
        wanted = {}
        for _, reader, done in reads[here]:
            wanted[reader] = max(wanted.get(reader, BEGIN), done)
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
