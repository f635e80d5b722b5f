"""Re-simulation, compiled by numba: the one pass of `simulate` over stretches of rows, from the first that changed.

A stretch is the rows of one operator, or those that move one version of a region. Which stretches there are, and in
what order, depends on the graph alone; what is in them is an entry of a pool (`pool`). So a changed strategy
changes entries, nothing is copied, and rows have no numbers of their own: a dependence names a stretch and a row in it.

Starts and ends are the same to the last bit as those of the whole pass over the task graph: a start is the largest of
some numbers, in whatever order they are compared.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from taskflow.lower.boxes import inner

SLACK = 1e-9  # sums of work are rounded; nothing is given up for less


@numba.njit(cache=True)
def pack_edges(edges: Any, slots: int, ops: int, version_row: Any) -> tuple[Any, Any, Any, Any]:
    """Edges of a fragment, sorted by waiting slot, as runs within and between slots.

    A run is (waiting row, awaited slot, awaited row, step of waiting rows, step of awaited rows, number).

    Returns:
        the runs, the first run of every slot and their number; awaited rows of the same slot for every row that moves
        data: CSR. An operator's points do not wait for each other: then the second array is empty.
    """
    rows = version_row[-1]
    within_ptr, count = np.zeros(rows + 1, np.int64), 0
    between = np.empty(len(edges), np.int64)
    for e in range(len(edges)):
        if edges[e, 0] != edges[e, 2]:
            between[count] = e
            count += 1
        elif edges[e, 0] < ops:
            return np.empty((0, 6), np.int64), np.empty(0, np.int64), within_ptr, between[:0]
        else:
            within_ptr[version_row[edges[e, 0] - ops] + edges[e, 1] + 1] += 1
    for r in range(rows):
        within_ptr[r + 1] += within_ptr[r]
    within, place = np.empty(within_ptr[rows], np.int64), within_ptr.copy()
    for e in range(len(edges)):
        if edges[e, 0] == edges[e, 2]:
            row = version_row[edges[e, 0] - ops] + edges[e, 1]
            within[place[row]] = edges[e, 3]
            place[row] += 1
    runs, run_ptr = make_runs(edges, between[:count], slots)
    return runs, run_ptr, within_ptr, within


@inner
def make_runs(edges: Any, between: Any, slots: int) -> tuple[Any, Any]:
    """Runs of edges between slots, those of a waiting slot ordered by awaited slot and waiting row."""
    most_slot, most_row = slots + 1, 1
    for e in between:
        most_row = max(most_row, edges[e, 1] + 1, edges[e, 3] + 1)
    key = np.empty(len(between), np.int64)
    for i in range(len(between)):
        e = between[i]
        key[i] = ((edges[e, 0] * most_slot + edges[e, 2]) * most_row + edges[e, 1]) * most_row + edges[e, 3]
    runs, run_ptr, n, slot = np.empty((len(between), 6), np.int64), np.zeros(slots + 1, np.int64), 0, -1
    for i in np.argsort(key, kind="mergesort"):
        w, a, o, b = edges[between[i]]
        extends = n > 0 and slot == w and runs[n - 1, 1] == o
        if extends:
            last = runs[n - 1]
            if last[5] == 1:
                last[3], last[4], last[5] = a - last[0], b - last[2], 2
                continue
            extends = a == last[0] + last[3] * last[5] and b == last[2] + last[4] * last[5]
            if extends:
                last[5] += 1
                continue
        runs[n, 0], runs[n, 1], runs[n, 2], runs[n, 3], runs[n, 4], runs[n, 5] = a, o, b, 0, 0, 1
        slot = w
        n += 1
        run_ptr[w + 1] = n
    for k in range(slots):
        run_ptr[k + 1] = max(run_ptr[k + 1], run_ptr[k])
    return runs[:n], run_ptr


@numba.njit(cache=True)
def bytes_of(device: Any, box: Any, itemsize: int, alignment: int, devices: int) -> Any:
    """(devices,) what instances take, each rounded up to the alignment."""
    size = np.zeros(devices, np.int64)
    for k in range(len(device)):
        points = itemsize
        for d in range(box.shape[1]):
            points *= box[k, d, 1] - box[k, d, 0]
        size[device[k]] += -(-points // alignment) * alignment
    return size


@numba.njit(cache=True)
def add_work(work: Any, sign: float, spans: Any, seconds: Any, stream_ptr: Any, streams: Any) -> None:
    """Add what rows of the pool take to the work of their streams; `spans`: (n, 2) first row and number."""
    for b in range(len(spans)):
        for row in range(spans[b, 0], spans[b, 0] + spans[b, 1]):
            for k in range(stream_ptr[row], stream_ptr[row + 1]):
                work[streams[k]] += sign * seconds[row]


@numba.njit(cache=True)
def add_alive(alive: Any, spans: Any, size: Any) -> None:
    """Add bytes of regions to what is alive while each operator runs: `spans` (n, 2) first and last operator."""
    for r in range(len(spans)):
        for op in range(spans[r, 0], spans[r, 1] + 1):
            for device in range(alive.shape[1]):
                alive[op, device] += size[r, device]


@numba.njit(cache=True)
def alive_peak(alive: Any, spans: Any, size: Any) -> Any:
    """The most that is alive on each device at any time, once `add_alive` would have been done."""
    change = np.zeros((len(alive) + 1, alive.shape[1]))
    for r in range(len(spans)):
        for device in range(alive.shape[1]):
            change[spans[r, 0], device] += size[r, device]
            change[spans[r, 1] + 1, device] -= size[r, device]
    now, peak = np.zeros(alive.shape[1]), np.zeros(alive.shape[1])
    for op in range(len(alive)):
        for device in range(alive.shape[1]):
            now[device] += change[op, device]
            peak[device] = max(peak[device], alive[op, device] + now[device])
    return peak


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
    begin: int,
    limit: float,
    work: Any,
    stretch: Any,
    touch_ptr: Any,
    touch: Any,
    local_ptr: Any,
    local_stretch: Any,
    op_entry: Any,
    entry_rows: Any,
    fragment: Any,
    fragment_rows: Any,
    fragment_runs: Any,
    version_rows: Any,
    run_ptr: Any,
    runs: Any,
    seconds: Any,
    stream_ptr: Any,
    streams: Any,
    within_ptr: Any,
    within: Any,
    old_base: Any,
    old_end: Any,
    base: Any,
    start: Any,
    end: Any,
    every: int,
    old_marks: Any,
    marks: Any,
) -> float:
    """The end of the last row, or infinity as soon as that is certain to be above `limit`.

    Args:
        begin: the first stretch that changed.
        work: seconds that every stream has to do in all.
        stretch: (stretches, 3) operator (or -1), region, version.
        touch_ptr, touch: per stretch (region, its slot there) through which it waits.
        local_ptr, local_stretch: per region, the stretch of every slot.
        op_entry, entry_rows: pool entry per operator, first row and number per entry.
        fragment, fragment_rows, fragment_runs: pool entry per region; per entry the first of `version_rows` (row and
            number of every version) and the first of `run_ptr`.
        seconds, stream_ptr, streams, within_ptr, within: pool columns of rows.
        old_base, old_end: first row of every stretch and ends of the current strategy.
        base, start, end: the same of the proposed one, filled from `begin` (or a little before) on.
        every, old_marks, marks: each `every` stretches: when every stream is free, what it has done, and the last end.
    """
    streams_count = len(work)
    for k in range(streams_count):
        if work[k] * (1.0 - SLACK) > limit:
            return np.inf
    mark = begin // every
    first = mark * every
    state = old_marks[mark].copy()
    free, done = state[:streams_count], state[streams_count : 2 * streams_count]
    last: float = state[2 * streams_count]
    row, since = old_base[first], 0
    for b in range(first, len(stretch)):
        if b % every == 0:
            state[2 * streams_count] = last
            marks[b // every] = state
        base[b] = row
        op = stretch[b, 0]
        if op >= 0:
            pool_row, count = entry_rows[op_entry[op]]
        else:
            pool_row, count = version_rows[fragment_rows[fragment[stretch[b, 1]]] + stretch[b, 2]]
        for i in range(row, row + count):
            start[i] = 0.0
        for t in range(touch_ptr[b], touch_ptr[b + 1] if count else touch_ptr[b]):
            region = touch[t, 0]
            at = fragment_runs[fragment[region]] + touch[t, 1]
            for r in range(run_ptr[at], run_ptr[at + 1]):
                awaited = local_stretch[local_ptr[region] + runs[r, 1]]
                if awaited < first:
                    follow(runs[r], start, row, old_end, old_base[awaited])
                else:
                    follow(runs[r], start, row, end, base[awaited])
        for i in range(count):
            at, lasts = start[row + i], seconds[pool_row + i]
            for k in range(within_ptr[pool_row + i], within_ptr[pool_row + i + 1]):
                at = max(at, end[row + within[k]])
            for k in range(stream_ptr[pool_row + i], stream_ptr[pool_row + i + 1]):
                at = max(at, free[streams[k]])
            finish = at + lasts
            for k in range(stream_ptr[pool_row + i], stream_ptr[pool_row + i + 1]):
                free[streams[k]] = finish
                done[streams[k]] += lasts
            start[row + i], end[row + i] = at, finish
            last = max(last, finish)
        row += count
        since += count
        if last > limit:
            return np.inf
        if since > 2 * streams_count:
            since = 0
            for k in range(streams_count):
                if free[k] + (work[k] - done[k]) - SLACK * work[k] > limit:
                    return np.inf
    base[len(stretch)] = row
    return last
