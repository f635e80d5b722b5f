"""Reuse of memory as an order: the rows that a row waits for because its instance takes over their bytes.

Takes a task graph with the bytes and the life of every instance; gives edges between rows. Rows of several streams run
side by side, so everyone who uses an instance has to be done before anyone uses the next one in
its bytes. It is enough that those who use the old one last are awaited by those who use the new one first: rows on
which no other user depends, and rows that depend on no other user.

Left out is what the task graph says already: direct dependences, and rows that run on the same stream of one device.
Streams of transfers do not count: executors wait for each message by itself.

A fold may read the sources of copies itself (`folded`), so it uses them as long as the copies do.
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array, distinct
from taskflow.core.compiling import inner, tiered
from taskflow.core.grouping import grouped
from taskflow.tasks.task_graph import Kind, TaskGraph

Columns = tuple[Array, Array]

MIXED = -2
NOBODY = -1


def folded(task_graph: TaskGraph) -> Columns:
    """Per row: the fold, and the number of its argument, that alone reads what this transfer brings; -1 for none.

    Where ranks share memory, the fold reads the source itself and the transfer needs no copy.
    """
    args = (task_graph.arg_ptr, task_graph.arg_instance)
    graph = task_graph
    folds: Columns = _folded(graph.kind, graph.is_transfer, *args, graph.instance_partial)
    return folds


@tiered
def _folded(
    kind: Array, is_transfer: Array, arg_ptr: Array, arg_instance: Array, is_partial: Array
) -> Columns:
    """See `folded`."""
    fold = np.full(len(kind), -1, np.int64)
    argument = np.full(len(kind), -1, np.int64)
    latest = np.full(len(is_partial), -1, np.int64)
    for row in range(len(kind)):
        first = arg_ptr[row]
        if is_transfer[row]:
            if is_partial[arg_instance[first + 1]]:
                latest[arg_instance[first + 1]] = row
        elif kind[row] == Kind.FOLD:
            for k in range(first + 1, arg_ptr[row + 1]):
                copy = latest[arg_instance[k]]
                if copy >= 0:
                    fold[copy] = row
                    argument[copy] = k - first
    return fold, argument


def reuse_edges(
    task_graph: TaskGraph,
    offset: Array,
    size: Array,
    first: Array,
    last: Array,
    lies_in: Array | None = None,
) -> Columns:
    """`ptr`, `rows`: row k waits for `rows[ptr[k] : ptr[k + 1]]`, all before it, besides what it depends on.

    Args:
        task_graph: the rows.
        offset, size: bytes of every instance.
        first, last: rows between which it is alive; `last` is negative if it is never used.
        lies_in: the instance in whose memory it lies; default: itself.
    """
    graph = task_graph
    number = np.arange(len(offset))
    lies_in = number if lies_in is None else lies_in
    used = np.flatnonzero((last >= 0) & (size > 0) & (lies_in == number))
    if not len(used):
        return np.zeros(len(graph) + 1, np.int64), np.zeros(0, np.int64)
    births = used[np.argsort(first[used], kind="stable")]
    begin = graph.instance_device * (int((offset + size).max(initial=0)) + 1) + offset
    bounds = distinct(np.concatenate([begin[used], begin[used] + size[used]]))
    low = np.searchsorted(bounds, begin)
    high = np.searchsorted(bounds, begin + size)
    taken = _taken_over(births, low, high, len(bounds).bit_length())
    queue = np.where(graph.is_communication, -1, graph.first_stream)
    is_used = np.zeros(len(offset), np.bool_)
    is_used[used] = True
    kept = np.flatnonzero(is_used[lies_in][graph.arg_instance] & (graph.arg_instance >= 0))
    instance = lies_in[graph.arg_instance[kept]]
    ptr, use = grouped(instance, len(offset))  # the arguments by instance, in row order
    uses = use, ptr
    args = np.searchsorted(kept, graph.arg_ptr), instance
    deps = (graph.dep_ptr, graph.dep_row)
    edges: Columns = _edges(args, uses, deps, taken, queue, folded(graph)[0])
    return edges


@tiered
def _taken_over(births: Array, low: Array, high: Array, depth: int) -> Columns:
    """Whose bytes an instance takes over: those of `taken[part[i, 0] : part[i, 1]]`.

    A tree of some depth over the bytes knows who had them last: one owner of all bytes of a node, or `MIXED`. `births`
    are the instances in the order in which they are born, `low` and `high` the numbers of the bounds of their bytes.
    """
    part = np.zeros((len(low), 2), np.int64)
    taken = np.empty(5 * len(births), np.int64)
    count = 0
    owner = np.full(2 << depth, NOBODY, np.int64)
    left = np.empty((depth + 2, 3), np.int64)
    for i in births:
        part[i] = count
        left[0] = (1, 0, 1 << depth)
        lefts = 1
        while lefts:
            lefts -= 1
            node, at, width = left[lefts]
            if at < high[i] and low[i] < at + width:
                held = owner[node]
                is_inside = low[i] <= at and at + width <= high[i]
                if held >= 0 and (count == part[i, 0] or taken[count - 1] != held):
                    taken[count] = held
                    count += 1
                owner[node] = i if is_inside else MIXED
                if held == MIXED or not is_inside:
                    if held != MIXED:
                        owner[node << 1] = held
                        owner[node << 1 | 1] = held
                    left[lefts] = node << 1 | 1, at + width // 2, width // 2
                    left[lefts + 1] = node << 1, at, width // 2
                    lefts += 2
        part[i, 1] = count
    return part, taken[:count]


@tiered
def _edges(
    args: Columns, uses: Columns, deps: Columns, taken_over: Columns, queue: Array, fold: Array
) -> Columns:
    """See `reuse_edges`, `_taken_over` and `folded`.

    `args` are where those of a row begin, and their instances, whose bytes others may take over; `uses` the arguments
    by instance, and where those of an instance begin; `deps` where those of a row begin, and their rows; `queue` the
    stream of a row of one device, or -1.
    """
    (arg_ptr, instance) = args
    (use, use_ptr) = uses
    (dep_ptr, dep_row) = deps
    part, taken = taken_over
    row_of = np.repeat(np.arange(len(queue)), np.diff(arg_ptr))
    opens, closes = _first_and_last(row_of, uses, deps)
    ptr = np.zeros(len(queue) + 1, np.int64)
    awaited = np.empty(len(queue) + 1, np.int64)
    count = 0
    awaited_by = np.full(len(queue), -1, np.int64)
    for row in range(len(queue)):
        for d in range(dep_ptr[row], dep_ptr[row + 1]):
            awaited_by[dep_row[d]] = row
        for k in range(arg_ptr[row], arg_ptr[row + 1]):
            i = instance[k]
            if i < 0 or not opens[k]:
                continue
            for t in range(part[i, 0], part[i, 1]):
                for u in range(use_ptr[taken[t]], use_ptr[taken[t] + 1]):
                    if not closes[use[u]]:
                        continue
                    n = row_of[use[u]]
                    for before in (n, fold[n]):
                        is_same = before >= 0 and queue[before] >= 0 and queue[before] == queue[row]
                        if before >= 0 and awaited_by[before] != row and not is_same:
                            awaited_by[before] = row
                            if count == len(awaited):
                                awaited = np.concatenate((awaited, np.empty(count, np.int64)))
                            awaited[count] = before
                            count += 1
        ptr[row + 1] = count
    return ptr, awaited[:count]


@inner
def _first_and_last(row_of: Array, uses: Columns, deps: Columns) -> Columns:
    """Of every argument: whether no other user of its instance is before its row, and whether none is behind it."""
    (use, use_ptr) = uses
    (dep_ptr, dep_row) = deps
    opens = np.ones(len(row_of), np.bool_)
    closes = np.ones(len(row_of), np.bool_)
    used = np.full(len(dep_ptr), -1, np.int64)
    followed = np.full(len(dep_ptr), -1, np.int64)
    for i in range(len(use_ptr) - 1):
        for u in range(use_ptr[i], use_ptr[i + 1]):
            used[row_of[use[u]]] = i
        for u in range(use_ptr[i], use_ptr[i + 1]):
            row = row_of[use[u]]
            for d in range(dep_ptr[row], dep_ptr[row + 1]):
                if used[dep_row[d]] == i:
                    opens[use[u]] = False
                    followed[dep_row[d]] = i
        for u in range(use_ptr[i], use_ptr[i + 1]):
            closes[use[u]] = followed[row_of[use[u]]] != i
    return opens, closes
