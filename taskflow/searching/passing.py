"""The pass over the rows of a program, compiled by numba: the start rule, on records."""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined
from taskflow.core.start_rule import occupy, start_of
from taskflow.searching.laying import Rows
from taskflow.searching.program import ProgramTables

ONE = np.uint64(1)  # of what has no sign nobody checks whether it counts from the end


@inlined
def more_streams(row: np.record, set_ptr: Array) -> slice:
    """All streams of a row that occupies more than four; else none."""
    return slice(set_ptr[row.set], set_ptr[row.set + 1]) if row.set > 0 else slice(0, 0)


@inlined
def earliest(end: Array, first: int, step: int, count: int) -> float:
    """The earliest of some ends."""
    found = end[first]
    for k in range(1, count):
        found = min(found, end[first + k * step])
    return float(found)


@inlined
def awaited(row: np.record, link: Array, end: Array) -> float:
    """When all ends that a row waits for have come."""
    done = max(end[row.awaits[0]], end[row.awaits[1]])
    at = row.link
    while at > 0:
        more = link[at]
        if more.count < 0:
            done = max(done, earliest(end, more.end, more.step, -more.count))
        for k in range(more.count):
            done = max(done, end[more.end + k * more.step])
        at = more.link
    return float(done)


@inlined
def pass_spans(begin: int, stop: int, rows: Rows, t: ProgramTables, free: Array, limit: float) -> float:
    """Time the rows of some spans of a proposal; the last end, or one above the limit."""
    last = 0.0
    for b in range(begin, stop):
        at, number = np.uint64(t.new_span[b].row), np.uint64(t.new_span[b].end)
        for _ in range(t.new_span[b].count):
            row = t.row[at]
            more = rows.stream[more_streams(row, rows.set_ptr)]
            start = start_of(start_of(awaited(row, t.link, t.new_end), free, row.stream), free, more)
            finish = start + t.seconds[at]
            occupy(free, row.stream, finish)
            occupy(free, more, finish)
            t.new_end[number] = finish
            last = max(last, finish)
            at, number = at + ONE, number + ONE
        if last > limit:
            break
    return last
