"""Re-simulation, compiled by numba: the one pass of `simulate` over stretches of rows, from the first that changed.

A stretch is the rows of one operator, or those that move one version of a region. Which stretches there are, and in
what order, depends on the graph alone; what is in them is an entry of a pool (`pool`). So a changed strategy
changes entries, nothing is copied, and rows have no numbers of their own: a dependence names a stretch and a row in it.

Starts and ends are the same to the last bit as those of the whole pass over the task graph: a start is the largest of
some numbers, in whatever order they are compared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from taskflow.lower.boxes import inner

SLACK = 1e-9  # sums of work are rounded; nothing is given up for less


class Rows(NamedTuple):
    """The entries of a pool, as far as their seconds matter; see `packing.Packed`, and `streams.Queues`.

    Attributes:
        op_rows: (n, 2) first row and number of every entry of an operator.
    """

    op_rows: Any
    entry: Any
    version: Any
    run_ptr: Any
    run: Any
    seconds: Any
    queue: Any
    within_ptr: Any
    within: Any
    queue_ptr: Any
    streams: Any


@inner
def add_work(work: Any, sign: float, first: int, count: int, rows: Rows) -> None:
    """Add what rows of the pool take to the work of their streams."""
    for row in range(first, first + count):
        queue = rows.queue[row]
        for k in range(rows.queue_ptr[queue], rows.queue_ptr[queue + 1]):
            work[rows.streams[k]] += sign * rows.seconds[row]


@inner
def added_rows(slots: Any, regions: Any, old_op: Any, new_op: Any, old: Any, new: Any, rows: Rows) -> int:
    """How many more rows there are once the entries of some operators and regions were exchanged."""
    more = 0
    for slot in slots:
        more += rows.op_rows[new_op[slot], 1] - (rows.op_rows[old_op[slot], 1] if old_op[slot] >= 0 else 0)
    for r in regions:
        more += rows.entry[new[r], 1] - (rows.entry[old[r], 1] if old[r] >= 0 else 0)
    return more


@inner
def change_ops(work: Any, slots: Any, old: Any, new: Any, rows: Rows) -> None:
    """Exchange the entries of some operators in the work of all streams; -1: none."""
    for slot in slots:
        if old[slot] >= 0:
            add_work(work, -1.0, rows.op_rows[old[slot], 0], rows.op_rows[old[slot], 1], rows)
        add_work(work, 1.0, rows.op_rows[new[slot], 0], rows.op_rows[new[slot], 1], rows)


@inner
def change_regions(work: Any, size: Any, regions: Any, old: Any, new: Any, sizes: Any, rows: Rows) -> None:
    """Exchange the entries of some regions in the work of all streams and the bytes of all devices."""
    for r in regions:
        if old[r] >= 0:
            add_work(work, -1.0, rows.entry[old[r], 0], rows.entry[old[r], 1], rows)
        add_work(work, 1.0, rows.entry[new[r], 0], rows.entry[new[r], 1], rows)
        for device in range(len(size)):
            size[device] += sizes[new[r], device] - (sizes[old[r], device] if old[r] >= 0 else 0)


@inner
def first_changed(
    last: int, regions: Any, old: Any, new: Any, life_ops: Any, local_ptr: Any, local: Any, rows: Rows
) -> int:
    """The first stretch of an operator that touches a changed region, or with rows that move it; at most `last`."""
    first = last
    for r in regions:
        begin, ops = local_ptr[r], life_ops[r + 1] - life_ops[r]
        for slot in range(local_ptr[r + 1] - begin):
            has_rows = slot < ops or old[r] < 0
            if not has_rows:
                v = slot - ops
                has_rows = rows.version[rows.entry[old[r], 2] + v, 1] + rows.version[rows.entry[new[r], 2] + v, 1] > 0
            if has_rows:
                first = min(first, local[begin + slot])
    return first


@inner
def follow(run: Any, start: Any, row: int, end: Any, awaited: int) -> None:
    """Let rows, counted from `row`, start after the ends of those that a run of edges says, counted from `awaited`."""
    waits, done = row + run[0], awaited + run[2]
    for _ in range(run[5]):
        start[waits] = max(start[waits], end[done])
        waits += run[3]
        done += run[4]


@numba.njit(cache=True)
def resimulate(
    limit: float,
    slots: Any,
    regions: Any,
    old_op: Any,
    new_op: Any,
    old_fragment: Any,
    new_fragment: Any,
    work: Any,
    size: Any,
    sizes: Any,
    stretch: Any,
    touch_ptr: Any,
    touch: Any,
    life_ops: Any,
    local_ptr: Any,
    local: Any,
    op_rows: Any,
    entry: Any,
    version: Any,
    run_ptr: Any,
    run: Any,
    seconds: Any,
    queue: Any,
    within_ptr: Any,
    within: Any,
    queue_ptr: Any,
    streams: Any,
    old_base: Any,
    old_end: Any,
    base: Any,
    start: Any,
    end: Any,
    every: int,
    old_marks: Any,
    marks: Any,
) -> tuple[float, int]:
    """The end of the last row, or infinity as soon as it is certain to be above `limit`; and the first stretch passed.

    -1 where `start` or `end` is too short, and the number of rows.

    Args:
        slots, regions: the operators and regions that change.
        old_op, new_op, old_fragment, new_fragment: pool entries of all operators and regions, -1 for none.
        work, size: seconds that every stream has to do in all, and bytes of instances of every device: those of the
            current strategy, brought up to date.
        sizes: (n, devices) bytes of every entry of a region.
        stretch: (stretches, 3) operator (or -1), region, version.
        touch_ptr, touch: per stretch (region, its slot there) through which it waits.
        life_ops: per region, where its operators begin in a list of those of all.
        local_ptr, local: per region, the stretch of every slot.
        op_rows ... streams: see `Rows`.
        old_base, old_end: first row of every stretch and ends of the current strategy.
        base, start, end: the same of the proposed one, filled from the first stretch passed on.
        every, old_marks, marks: each `every` stretches: when every stream is free, what it has done, and the last end.
    """
    rows = Rows(op_rows, entry, version, run_ptr, run, seconds, queue, within_ptr, within, queue_ptr, streams)
    total = old_base[len(stretch)] + added_rows(slots, regions, old_op, new_op, old_fragment, new_fragment, rows)
    if total > min(len(start), len(end)):
        return -1.0, total
    change_ops(work, slots, old_op, new_op, rows)
    change_regions(work, size, regions, old_fragment, new_fragment, sizes, rows)
    count = len(work)
    for k in range(count):
        if work[k] * (1.0 - SLACK) > limit:
            return np.inf, 0
    first = first_changed(len(stretch) - 1, regions, old_fragment, new_fragment, life_ops, local_ptr, local, rows)
    mark = first // every if old_base[len(stretch)] > 0 else 0
    first = mark * every
    state = old_marks[mark].copy()
    free, done = state[:count], state[count : 2 * count]
    last: float = state[2 * count]
    row, since = old_base[first], 0
    for b in range(first, len(stretch)):
        if b % every == 0:
            state[2 * count] = last
            marks[b // every] = state
        base[b] = row
        if stretch[b, 0] >= 0:
            pool_row, number = op_rows[new_op[stretch[b, 0]]]
        else:
            pool_row, number = version[entry[new_fragment[stretch[b, 1]], 2] + stretch[b, 2]]
        if number == 0:
            continue
        for i in range(row, row + number):
            start[i] = 0.0
        for t in range(touch_ptr[b], touch_ptr[b + 1]):
            region = touch[t, 0]
            at = entry[new_fragment[region], 3] + touch[t, 1]
            for r in range(run_ptr[at], run_ptr[at + 1]):
                awaited = local[local_ptr[region] + run[r, 1]]
                if awaited < first:
                    follow(run[r], start, row, old_end, old_base[awaited])
                else:
                    follow(run[r], start, row, end, base[awaited])
        for i in range(number):
            at_time, lasts = start[row + i], seconds[pool_row + i]
            for k in range(within_ptr[pool_row + i], within_ptr[pool_row + i + 1]):
                at_time = max(at_time, end[row + within[k]])
            begin, stop = queue_ptr[queue[pool_row + i]], queue_ptr[queue[pool_row + i] + 1]
            for k in range(begin, stop):
                at_time = max(at_time, free[streams[k]])
            finish = at_time + lasts
            for k in range(begin, stop):
                free[streams[k]] = finish
                done[streams[k]] += lasts
            start[row + i], end[row + i] = at_time, finish
            last = max(last, finish)
        row += number
        since += number
        if last > limit:
            return np.inf, first
        if since > 2 * count:
            since = 0
            for k in range(count):
                if free[k] + (work[k] - done[k]) - SLACK * work[k] > limit:
                    return np.inf, first
    base[len(stretch)] = row
    return last, first


@numba.njit(cache=True)
def alive_peak(change: Any, spans: Any, regions: Any, old: Any, new: Any, sizes: Any, keeps: bool) -> Any:
    """The most bytes that are alive on each device at any time, if all instances of a region live as long as it does.

    Args:
        change: (operators + 1, devices) what becomes alive before each operator, less what is dead by then.
        spans: (regions, 2) first and last operator between which a region is needed.
        regions, old, new, sizes: see `resimulate`; those that change.
        keeps: leave `change` changed.
    """
    devices = change.shape[1]
    after = change if keeps else change.copy()
    for r in regions:
        for device in range(devices):
            more = sizes[new[r], device] - (sizes[old[r], device] if old[r] >= 0 else 0)
            after[spans[r, 0], device] += more
            after[spans[r, 1] + 1, device] -= more
    now, peak = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    for op in range(0 if keeps else len(after)):
        for device in range(devices):
            now[device] += after[op, device]
            peak[device] = max(peak[device], now[device])
    return peak
