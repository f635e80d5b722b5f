"""List scheduling, compiled by numba: rows are issued one by one, of those that may be always the first by some rule.

A row may be issued when all that it waits for have been, and the one before it in its list, if it stands in one. A row
starts when its inputs are done and its streams free. What is compared is a moment, then a priority, then the row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.core.compiling import inlined, leaf, tiered
from taskflow.core.grouping import turned
from taskflow.schedule.ordinal_order import by_ordinal
from taskflow.schedule.put_off import a_layer_ahead_in_lists, held_back
from taskflow.tasks.streams import find_queues
from taskflow.tasks.task_graph import Kind, TaskGraph

BY_START, BY_READY = range(2)  # which moment is compared
LATEST_FIRST = np.zeros(0)  # instead of priorities: who became ready last
NOBODY = np.zeros(0, np.int64), np.zeros(0, np.int64)


class Waiting(NamedTuple):
    """What list scheduling knows of rows.

    Attributes:
        seconds: of every row.
        priority: of every row; less goes first. Empty: minus the moment at which it became ready.
        ptr, follower: the rows that wait for each row.
        stream_ptr, stream: that each row occupies.
        waiting: for how many rows each waits.
        next: the row after each in its list; -1: none.
    """

    seconds: Array
    priority: Array
    ptr: Array
    follower: Array
    stream_ptr: Array
    stream: Array
    waiting: Array
    next: Array


class Heap(NamedTuple):
    """Rows that may be issued, the least first: `row[:size[0]]`; the keys under which they were put there."""

    row: Array
    moment: Array
    priority: Array
    size: Array


class Parked(NamedTuple):
    """Rows that wait for a stream behind one in the heap which goes before them: a heap for every stream.

    Attributes:
        left, right: of every row.
        top: of every stream.
        first: of every stream, the row in the heap; -1: none.
    """

    left: Array
    right: Array
    top: Array
    first: Array


def list_schedule(
    task_graph: TaskGraph,
    seconds: Array,
    moment: int,
    priority: Array,
    following: Array | None = None,
    position: Array | None = None,
    held: tuple[Array, Array] = NOBODY,
) -> Array:
    """Row numbers in issue order; those that never could be issued are missing.

    What a step could do at once and should not is put off, see `put_off`.

    Args:
        task_graph: rows, and for what they wait.
        seconds: of every row.
        moment: BY_START or BY_READY.
        priority: of every row, or LATEST_FIRST.
        following: per row the next one in its list, or -1.
        position: of every row in the list of its device, or NOWHERE; none: of these, `by_ordinal` is taken.
        held: rows, and for each one that is to be issued before.
    """
    rows = len(task_graph)
    if position is None:
        late, before = held_back(task_graph, np.argsort(by_ordinal(task_graph, seconds)))
    else:
        late, before = a_layer_ahead_in_lists(task_graph, position)
    late = np.concatenate([late, held[0]])
    before = np.concatenate([before, held[1]])
    follower_ptr, follower = turned(task_graph.dep_ptr, task_graph.dep_row, before, late)
    waits = np.diff(task_graph.dep_ptr) + np.bincount(late, minlength=rows)
    row, stream = find_queues(task_graph)
    if following is None:
        following = np.full(rows, -1)
    waiting = waits + np.bincount(following[following >= 0], minlength=rows)
    table = Waiting(
        np.asarray(seconds, float),
        np.asarray(priority, float),
        follower_ptr,
        follower,
        pointers(np.bincount(row, minlength=rows)),
        stream,
        waiting,
        following,
    )
    order = np.empty(rows, np.int64)
    issued = issue(table, moment, int(stream.max(initial=-1)) + 1, order)
    return feeds_late(task_graph, table, order[:issued])


def feeds_late(task_graph: TaskGraph, rows: Waiting, order: Array) -> Array:
    """The same order with every feed right before the first row that waits for it: until then it needs no memory."""
    place = np.full(len(task_graph), len(task_graph), float)
    place[order] = np.arange(len(order))
    feeds = np.flatnonzero(task_graph.kind == Kind.FEED)
    for feed in feeds[np.diff(rows.ptr)[feeds] > 0].tolist():
        place[feed] = place[rows.follower[rows.ptr[feed] : rows.ptr[feed + 1]]].min() - 0.5
    return order[np.argsort(place[order], kind="stable")]


@tiered
def issue(rows: Waiting, moment: int, streams: int, order: Array) -> int:
    """Fill in `order`; how many rows were issued."""
    count = len(rows.seconds)
    ready = np.zeros(count)
    free = np.zeros(streams)
    waiting = rows.waiting.copy()
    heap = Heap(np.empty(count, np.int64), np.empty(count), np.empty(count), np.zeros(1, np.int64))
    none = np.full(count, -1)
    of_streams = np.full(streams, -1)
    parked = Parked(none, none.copy(), of_streams, of_streams.copy())
    for row in range(count):
        if waiting[row] == 0:
            offer(row, rows, heap, parked, ready, free, moment)
    issued = 0
    while heap.size[0]:
        row = heap.row[0]
        then = heap.moment[0]
        pop(heap)
        if moment_of(rows, row, ready, free, moment) > then:  # its streams have filled up
            leave(row, rows, parked)
            wake(row, rows, heap, parked, ready, free)
            offer(row, rows, heap, parked, ready, free, moment)
            continue
        end = moment_of(rows, row, ready, free, BY_START) + rows.seconds[row]
        for k in range(rows.stream_ptr[row], rows.stream_ptr[row + 1]):
            free[rows.stream[k]] = end
        order[issued] = row
        issued += 1
        leave(row, rows, parked)
        wake(row, rows, heap, parked, ready, free)
        for k in range(rows.ptr[row], rows.ptr[row + 1]):
            after = rows.follower[k]
            ready[after] = max(ready[after], end)
            release(rows, after, heap, parked, waiting, ready, free, moment)
        if rows.next[row] >= 0:
            release(rows, rows.next[row], heap, parked, waiting, ready, free, moment)
    return issued


@inlined
def moment_of(rows: Waiting, row: int, ready: Array, free: Array, moment: int) -> float:
    """When a row became ready, or can start."""
    seconds: float = ready[row]
    if moment == BY_START:
        for k in range(rows.stream_ptr[row], rows.stream_ptr[row + 1]):
            seconds = max(seconds, free[rows.stream[k]])
    return seconds


@inlined
def priority_of(rows: Waiting, row: int, ready: Array) -> float:
    """See `Waiting`."""
    priority: float = rows.priority[row] if len(rows.priority) else -ready[row]
    return priority


@leaf
def release(
    rows: Waiting,
    row: int,
    heap: Heap,
    parked: Parked,
    waiting: Array,
    ready: Array,
    free: Array,
    moment: int,
) -> None:
    """One of the rows that `row` waits for has been issued."""
    waiting[row] -= 1
    if waiting[row] == 0:
        offer(row, rows, heap, parked, ready, free, moment)


# -- rows that wait for a stream -----------------------------------------------------------------------------------


@leaf
def offer(
    row: int, rows: Waiting, heap: Heap, parked: Parked, ready: Array, free: Array, moment: int
) -> None:
    """A row may be issued: into the heap, or beside the stream that it waits for if one there goes before it."""
    now = moment_of(rows, row, ready, free, moment)
    stream = -1
    if moment == BY_START and now > ready[row]:
        for k in range(rows.stream_ptr[row], rows.stream_ptr[row + 1]):
            if free[rows.stream[k]] == now:
                stream = rows.stream[k]
                break
    if stream >= 0:
        ahead = parked.first[stream]
        if ahead >= 0 and goes_before(rows, ready, ahead, row):
            parked.left[row] = parked.right[row] = -1
            parked.top[stream] = meld(rows, ready, parked, parked.top[stream], row)
            return
        parked.first[stream] = row
    push(heap, row, now, priority_of(rows, row, ready))


@leaf
def leave(row: int, rows: Waiting, parked: Parked) -> None:
    """The row is in the heap no more."""
    for k in range(rows.stream_ptr[row], rows.stream_ptr[row + 1]):
        if parked.first[rows.stream[k]] == row:
            parked.first[rows.stream[k]] = -1


@leaf
def wake(row: int, rows: Waiting, heap: Heap, parked: Parked, ready: Array, free: Array) -> None:
    """Those of the row's streams of which no row is in the heap put there the one that goes first."""
    for k in range(rows.stream_ptr[row], rows.stream_ptr[row + 1]):
        stream = rows.stream[k]
        while parked.first[stream] < 0 and parked.top[stream] >= 0:
            next_row = parked.top[stream]
            parked.top[stream] = meld(
                rows, ready, parked, parked.left[next_row], parked.right[next_row]
            )
            offer(next_row, rows, heap, parked, ready, free, BY_START)


@inlined
def goes_before(rows: Waiting, ready: Array, a: int, b: int) -> bool:
    """Whether row `a` goes before row `b` when both can start at the same moment."""
    first = priority_of(rows, a, ready)
    second = priority_of(rows, b, ready)
    return bool(first < second or (first == second and a < b))


@leaf
def meld(rows: Waiting, ready: Array, parked: Parked, a: int, b: int) -> int:
    """The top of two skew heaps together (Sleator and Tarjan 1986)."""
    if a < 0 or b < 0:
        return max(a, b)
    if goes_before(rows, ready, b, a):
        a, b = b, a
    top = a
    child = parked.right[a]
    parked.right[a] = parked.left[a]
    while child >= 0:
        if goes_before(rows, ready, b, child):
            child, b = b, child
        parked.left[a] = child
        a = child
        child = parked.right[child]
        parked.right[a] = parked.left[a]
    parked.left[a] = b
    return int(top)


# -- the heap --------------------------------------------------------------------------------------------------------


@inlined
def is_before(heap: Heap, a: int, b: int) -> bool:
    """Whether place `a` of the heap comes before place `b`."""
    if heap.moment[a] != heap.moment[b]:
        return bool(heap.moment[a] < heap.moment[b])
    if heap.priority[a] != heap.priority[b]:
        return bool(heap.priority[a] < heap.priority[b])
    return bool(heap.row[a] < heap.row[b])


@inlined
def swap(heap: Heap, a: int, b: int) -> None:
    """Exchange two places."""
    heap.row[a], heap.row[b] = heap.row[b], heap.row[a]
    heap.moment[a], heap.moment[b] = heap.moment[b], heap.moment[a]
    heap.priority[a], heap.priority[b] = heap.priority[b], heap.priority[a]


@leaf
def push(heap: Heap, row: int, moment: float, priority: float) -> None:
    """Add a row."""
    child = heap.size[0]
    heap.size[0] += 1
    heap.row[child] = row
    heap.moment[child] = moment
    heap.priority[child] = priority
    while child > 0 and is_before(heap, child, (child - 1) // 2):
        swap(heap, child, (child - 1) // 2)
        child = (child - 1) // 2


@leaf
def pop(heap: Heap) -> None:
    """Remove the first row."""
    heap.size[0] -= 1
    swap(heap, 0, heap.size[0])
    parent = 0
    while 2 * parent + 1 < heap.size[0]:
        child = 2 * parent + 1
        if child + 1 < heap.size[0] and is_before(heap, child + 1, child):
            child += 1
        if not is_before(heap, child, parent):
            break
        swap(heap, parent, child)
        parent = child
