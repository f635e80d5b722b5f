"""Re-simulation, compiled by numba: the one pass of `simulate` over stretches of rows, from the first that changed.

A stretch is the rows of one operator, or those that move one version of a region. Which stretches there are, and in
what order, depends on the graph alone; what is in them is an entry of a pool (`pool`). So a changed strategy changes
entries; the stretches that they have to do with are laid anew into a program (`laying`), and the pass goes on through
all others as they lie there.

Starts and ends are the same to the last bit as those of the whole pass over the task graph: a start is the largest of
some numbers, in whatever order they are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import leaf, njit
from taskflow.searching.critical import Path, pass_path
from taskflow.searching.laying import DIRTY, LAID, STAMP, Rows, lay_changed

SLACK = 1e-9  # sums of work are rounded; nothing is given up for less
TOO_SHORT = -1.0
ONE = np.uint64(1)  # what has no sign needs no look whether it counts from the end


@leaf
def add_work(work: Any, sign: float, first: int, count: int, rows: Rows) -> None:
    """Add what rows of the pool take to the work of their streams."""
    for row in range(first, first + count):
        queue = rows.queue[row]
        for k in range(rows.queue_ptr[queue], rows.queue_ptr[queue + 1]):
            work[rows.streams[k]] += sign * rows.seconds[row]


@leaf
def change_ops(work: Any, slots: Any, old: Any, new: Any, rows: Rows) -> None:
    """Exchange the entries of some operators in the work of all streams; -1: none."""
    for slot in slots:
        if old[slot] >= 0:
            add_work(work, -1.0, rows.op_rows[old[slot], 0], rows.op_rows[old[slot], 1], rows)
        add_work(work, 1.0, rows.op_rows[new[slot], 0], rows.op_rows[new[slot], 1], rows)


@leaf
def change_regions(
    work: Any, size: Any, regions: Any, old: Any, new: Any, known: int, sizes: Any, rows: Rows
) -> bool:  # fmt: skip
    """Exchange the entries of some regions in the work of all streams and the bytes of all devices.

    False: not all of them are among the `known` ones; what the others will have is left out.
    """
    is_known = True
    for r in regions:
        if old[r] >= 0:
            add_work(work, -1.0, rows.entry[old[r], 0], rows.entry[old[r], 1], rows)
        if new[r] >= known:
            is_known = False
            continue
        add_work(work, 1.0, rows.entry[new[r], 0], rows.entry[new[r], 1], rows)
        for device in range(len(size)):
            size[device] += sizes[new[r], device] - (sizes[old[r], device] if old[r] >= 0 else 0)
    return is_known


@leaf
def change_stretches(
    done: Any, stretch: Any, begin: int, stop: int, stamp: Any, now: int, old_op: Any, new_op: Any, old: Any, new: Any,
    rows: Rows,
) -> None:  # fmt: skip
    """Exchange the rows of some stretches, where they are others, in the work of all streams.

    Only what was laid `now` may have others.
    """
    for b in range(begin, stop):
        if stamp[b] != now:
            continue
        slot, r = stretch[b, 0], stretch[b, 1]
        if slot >= 0 and old_op[slot] != new_op[slot]:
            change_ops(done, stretch[b, :1], old_op, new_op, rows)
        elif slot < 0 and old[r] != new[r]:
            if old[r] >= 0:
                add_version(done, -1.0, rows.entry[old[r], 2] + stretch[b, 2], rows)
            add_version(done, 1.0, rows.entry[new[r], 2] + stretch[b, 2], rows)


@leaf
def add_version(work: Any, sign: float, version: int, rows: Rows) -> None:
    """Add what the rows of a version take to the work of their streams."""
    add_work(work, sign, rows.version[version, 0], rows.version[version, 1], rows)


@leaf
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


@leaf
def catch_up(top: Any, first: int, every: int, place: Any, old_end: Any, end: Any, old_marks: Any, marks: Any) -> None:
    """Ends and marks before stretch `first` are those of the current strategy; they were so up to `top[DIRTY]`."""
    for b in range(top[DIRTY], first):
        for i in range(place[b, 1], place[b, 1] + place[b, 2]):
            end[i] = old_end[i]
    for k in range(top[DIRTY] // every, first // every):
        for i in range(marks.shape[1]):
            marks[k, i] = old_marks[k, i]
    top[DIRTY] = first


@leaf
def earliest(end: Any, first: int, step: int, count: int) -> float:
    """The earliest of some ends."""
    found = end[first]
    for k in range(1, count):
        found = min(found, end[first + k * step])
    return float(found)


@leaf
def pass_stretches(
    begin: int, stop: int, place: Any, code: Any, seconds: Any, chain: Any, end: Any, free: Any, queue_ptr: Any,
    streams: Any, limit: float,
) -> float:  # fmt: skip
    """Time the rows of some stretches; the last end, or one above the limit. See `program.Program`."""
    last = 0.0
    for b in range(begin, stop):
        at, row = np.uint64(place[b, 0]), np.uint64(place[b, 1])
        for _ in range(place[b, 2]):
            one, other, third, fourth = code[at, 0], code[at, 1], code[at, 6], code[at, 7]
            more, queue = code[at, 4], code[at, 5]
            start = max(max(end[code[at, 2]], end[code[at, 3]]), max(free[one], free[other]))
            if third != one:
                start = max(start, max(free[third], free[fourth]))
            while more > 0:
                awaited, step = chain[more, 0], chain[more, 1]
                for _ in range(chain[more, 2]):
                    start = max(start, end[awaited])
                    awaited += step
                if chain[more, 2] < 0:
                    start = max(start, earliest(end, awaited, step, -chain[more, 2]))
                more = chain[more, 3]
            if queue > 0:
                for k in range(queue_ptr[queue], queue_ptr[queue + 1]):
                    start = max(start, free[streams[k]])
            finish = start + seconds[at]
            free[one] = free[other] = end[row] = finish
            if third != one:
                free[third] = free[fourth] = finish
            if queue > 0:
                for k in range(queue_ptr[queue], queue_ptr[queue + 1]):
                    free[streams[k]] = finish
            last = max(last, finish)
            at, row = at + ONE, row + ONE
        if last > limit:
            break
    return last


@njit
def resimulate(
    limit: float,
    known: int,
    is_brief: bool,
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
    top: Any,
    place: Any,
    new_place: Any,
    laid: Any,
    stamp: Any,
    code: Any,
    code_seconds: Any,
    chain: Any,
    old_end: Any,
    end: Any,
    every: int,
    old_marks: Any,
    marks: Any,
    path: Any,
) -> tuple[float, int]:
    """The end of the last row, or infinity as soon as it is certain to be above `limit`; and the first stretch passed.

    TOO_SHORT where the program has too little room, and the number of rows to be laid. Where entries of the proposal
    are still to be made: infinity if the work of the others is above the limit, else 0.

    Args:
        known: number of entries of regions that are made.
        is_brief: leave it at work and critical path, and return 0 if they are not above the limit.
        slots, regions: the operators and regions that change.
        old_op, new_op, old_fragment, new_fragment: pool entries of all operators and regions, -1 for none.
        work, size: seconds that every stream has to do in all, and bytes of instances of every device: those of the
            current strategy, brought up to date.
        sizes: (n, devices) bytes of every entry of a region.
        stretch: (stretches, 3) operator (or -1), region, version.
        touch_ptr, touch: per stretch (region, its slot there) through which it waits.
        life_ops: per region, where its operators begin in a list of those of all.
        local_ptr, local: per region, the stretch of every slot.
        op_rows ... streams: see `laying.Rows`.
        top ... end: see `program.Program`.
        every, old_marks, marks: each `every` stretches: when every stream is free, and what it has done.
        path: `critical.Path` as a plain tuple.
    """
    rows = Rows(op_rows, entry, version, run_ptr, run, seconds, queue, within_ptr, within, queue_ptr, streams)
    for b in laid[: top[LAID]]:
        new_place[b] = place[b]
    top[LAID] = 0
    change_ops(work, slots, old_op, new_op, rows)
    is_known = change_regions(work, size, regions, old_fragment, new_fragment, known, sizes, rows)
    count, last = len(work), len(stretch) - 1
    for k in range(count):
        if work[k] * (1.0 - SLACK) > limit:
            return np.inf, 0
    if not is_known:
        return 0.0, 0
    needed = lay_changed(
        regions, new_op, new_fragment, stretch, touch_ptr, touch, local_ptr, local, rows,
        top, place, new_place, laid, stamp, code, code_seconds, chain, len(end),
    )  # fmt: skip
    if needed:
        return TOO_SHORT, needed
    first = 0
    if old_op[0] >= 0:
        first = first_changed(last, regions, old_fragment, new_fragment, life_ops, local_ptr, local, rows)
    first -= first % every
    p = Path(*path)
    if p.ptr[len(stretch)] > 0 and limit < np.inf:
        free = old_marks[first // every, :count].copy()
        found = pass_path(
            first, p, stamp, top[STAMP], new_place, code, code_seconds, chain, free, queue_ptr, streams, limit
        )  # fmt: skip
        if found * (1.0 - SLACK) > limit:
            return np.inf, first
    if is_brief:
        return 0.0, first
    catch_up(top, first, every, new_place, old_end, end, old_marks, marks)
    free, more, found = old_marks[first // every, :count].copy(), np.zeros(count), 0.0
    for begin in range(first, len(stretch), every):
        mark, stop = begin // every, min(begin + every, len(stretch))
        for k in range(count):
            marks[mark, k], marks[mark, count + k] = free[k], old_marks[mark, count + k] + more[k]
            if free[k] + (work[k] - marks[mark, count + k]) - SLACK * work[k] > limit:
                return np.inf, first
        change_stretches(
            more, stretch, begin, stop, stamp, top[STAMP], old_op, new_op, old_fragment, new_fragment, rows
        )  # fmt: skip
        found = pass_stretches(
            begin, stop, new_place, code, code_seconds, chain, end, free, queue_ptr, streams, limit
        )  # fmt: skip
        if found > limit:
            return np.inf, first
    for k in range(count):
        found = max(found, free[k])
    return found, first


@njit
def alive_peak(
    change: Any, spans: Any, regions: Any, old: Any, new: Any, sizes: Any, peak: Any, affected: Any, keeps: bool
) -> None:
    """The most bytes that are alive on each device at any time, if all instances of a region live as long as it does.

    Args:
        change: (devices, operators + 1) what becomes alive before each operator, less what is dead by then.
        spans: (regions, 2) first and last operator between which a region is needed.
        regions, old, new, sizes: see `resimulate`; those that change.
        peak: of the devices before the change; gets those after it.
        affected: (devices,) memory for whether a device has other sizes.
        keeps: leave `change` changed.
    """
    affected[:] = False
    change_sizes(change, spans, regions, old, new, sizes, affected, 1)
    for device in range(len(peak)):
        if affected[device]:
            now, most = 0, 0
            for op in range(change.shape[1]):
                now += change[device, op]
                most = max(most, now)
            peak[device] = most
    if not keeps:
        change_sizes(change, spans, regions, old, new, sizes, affected, -1)


@leaf
def change_sizes(
    change: Any, spans: Any, regions: Any, old: Any, new: Any, sizes: Any, affected: Any, sign: int
) -> None:
    """Exchange the entries of some regions in `change`, or take that back."""
    for r in regions:
        first, end = spans[r, 0], spans[r, 1] + 1
        for device in range(len(affected)):
            more = sizes[new[r], device] - (sizes[old[r], device] if old[r] >= 0 else 0)
            if more != 0:
                affected[device] = True
                change[device, first] += sign * more
                change[device, end] -= sign * more
