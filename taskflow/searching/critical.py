"""The critical path of a judge's current strategy, and a pass over it and what changed alone, compiled by numba.

Every start is a largest and every end a sum, so a pass over some of the rows, with some of what they wait for, gives
ends that are none later, to the last bit. Of all rows those are worth passing that ended last, each because of the one
before it: the critical path. What a proposal makes slower delays it mostly. So a proposal is rejected for certain if
the rows that were laid for it and those of the path, a small part of all, end above the limit. The path between two
laid spans is shifted as a whole, so those ends are right but for rounding, hence the slack of the limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined, leaf, njit
from taskflow.core.start_rule import occupy, start_of
from taskflow.searching.laying import Rows, more_streams
from taskflow.searching.program import Path, ProgramTables

NEAR = 128  # rows of the path on either side of a laid span that are looked at one by one

# -- finding it ------------------------------------------------------------------------------------------------------


@njit
def trace(program: tuple[Array, ...], set_ptr: Array, stream: Array, streams: int, path: tuple[Array, ...]) -> None:
    """Find the critical path of the current strategy, from the last end back.

    Args:
        program: `ProgramTables` as a plain tuple.
        set_ptr, stream, streams: see `streams.StreamSets`.
        path: `Path` as a plain tuple, with room for all rows; its rows are put at the end of the columns.
    """
    t, p = ProgramTables(*program), Path(*path)
    last, span, before = -1.0, 0, 0
    for b in range(len(t.span)):
        for j in range(t.span[b].count):
            if t.end[t.span[b].end + j] > last:
                last, span, before = t.end[t.span[b].end + j], b, j
    at, n = t.span[span].row + before, len(p.finish)
    p.ptr[span + 1 :] = n
    n = put_row(p, n, t.row[at], t.span[span].end + before, t.end)
    mark = np.full(streams, -1, np.int64)
    mark_streams(t.row[at], set_ptr, stream, n, mark)
    for b in range(span, -1, -1):
        j = before if b == span else t.span[b].count
        while True:
            j = last_tie(t.end, t.span[b].end, j, t.seconds[at], last)
            if j < 0:
                break
            number, row = t.span[b].end + j, t.row[t.span[b].row + j]
            is_shared = is_marked(row, set_ptr, stream, n, mark)
            if is_shared or awaits(t.row[at], t.link, number):
                p.row[n].waits = not is_shared
                at, last = t.span[b].row + j, t.end[number]
                n = put_row(p, n, row, number, t.end)
                mark_streams(row, set_ptr, stream, n, mark)
        p.ptr[b] = n
    p.finish[n - 1] = 0.0


@leaf
def last_tie(end: Array, first: int, count: int, taken: float, finish: float) -> int:
    """Of so many ends from `first` on, the last one at which a row begins that takes `taken` and ends at `finish`."""
    at = np.uint64(first + count)  # what has no sign needs no look whether it counts from the end
    for j in range(count - 1, -1, -1):
        at -= np.uint64(1)
        if end[at] + taken == finish:
            return j
    return -1


@inlined
def mark_streams(row: np.record, set_ptr: Array, stream: Array, number: int, mark: Array) -> None:
    """Put a number on all streams of a row."""
    for s in row.stream:
        mark[s] = number
    for s in stream[more_streams(row, set_ptr)]:
        mark[s] = number


@inlined
def is_marked(row: np.record, set_ptr: Array, stream: Array, number: int, mark: Array) -> bool:
    """Whether a stream of a row has the number."""
    found = False
    for s in row.stream:
        found = found or mark[s] == number
    for s in stream[more_streams(row, set_ptr)]:
        found = found or mark[s] == number
    return found


@leaf
def awaits(row: np.record, link: Array, number: int) -> bool:
    """Whether a row waits for an end."""
    if row.awaits[0] == number or row.awaits[1] == number:
        return True
    at = row.link
    while at > 0:
        for k in range(link[at].count):
            if link[at].end + k * link[at].step == number:
                return True
        at = link[at].link
    return False


@inlined
def put_row(p: Path, n: int, row: np.record, number: int, end: Array) -> int:
    """Put a row of a program, with the number of its end, in front of row `n` of the path; its own number there."""
    n -= 1
    for k in range(4):
        p.row[n].stream[k] = row.stream[k]
    p.row[n].end, p.row[n].waits = number, 0
    p.finish[n], p.of_end[number] = end[number], n
    return n


# -- passing it ------------------------------------------------------------------------------------------------------


class Shift(NamedTuple):
    """How much later than in the current strategy rows of the path end at least: all, and those from one on."""

    least: float
    first: int
    seconds: float


@leaf
def pass_path(first: int, p: Path, rows: Rows, t: ProgramTables, free: Array, limit: float) -> float:
    """An end, but for rounding, of the path or of the spans that were laid for a proposal: above the limit if any is.

    The path between two laid spans is shifted as a whole, as the first of its rows is, or one that comes soon after.

    Args:
        first: the first span to pass.
        free: when every stream is free before it; is changed.
    """
    x, done = Shift(0.0, 0, 0.0), p.ptr[first]
    last: float = 0.0
    for b in range(first, len(t.span)):
        if t.proposal[b] != t.counter[0].proposal:
            continue
        begin, after = p.ptr[b], p.ptr[b + 1]
        x = delay(p, x, done, min(done + NEAR, begin), free)
        release(p, x, max(begin - NEAR, done), begin, free)
        last = max(last, pass_laid(t.new_span[b], p, x, rows, t, free))
        if begin > done:
            last = max(last, float(p.finish[begin - 1] + x.seconds))
        if last > limit:
            return last
        if after > begin and after < len(p.finish):
            x = resume(p, x, after, t.counter[0].proposal, free)
        done = after
    x = delay(p, x, done, min(done + NEAR, len(p.finish)), free)
    return float(max(last, p.finish[len(p.finish) - 1] + x.seconds)) if done < len(p.finish) else last


@inlined
def delay(p: Path, x: Shift, begin: int, stop: int, free: Array) -> Shift:
    """Rows of the path begin when the one before ends, unless one of their streams is not free by then."""
    for n in range(begin, stop):
        start = start_of(0.0, free, p.row[n].stream)
        if start > p.finish[n - 1] + x.seconds:
            x = Shift(x.least, n, start - p.finish[n - 1])
    return x


@inlined
def release(p: Path, x: Shift, begin: int, stop: int, free: Array) -> None:
    """Streams are free when the last row of the path that occupies them ends."""
    for n in range(begin, stop):
        finish = p.finish[n] + (x.seconds if n >= x.first else x.least)
        for stream in p.row[n].stream:
            free[stream] = max(free[stream], finish)


@inlined
def resume(p: Path, x: Shift, n: int, now: int, free: Array) -> Shift:
    """Row `n` of the path without the one before it: it waits for its streams, or for the row that has the same end."""
    start = start_of(0.0, free, p.row[n].stream)
    before = p.row[n - 1].end
    if p.row[n].waits and p.known[before] == now:
        start = max(start, p.laid_end[before])
    seconds = start - p.finish[n - 1]
    return Shift(min(x.least, seconds), n, seconds)


@inlined
def pass_laid(span: np.record, p: Path, x: Shift, rows: Rows, t: ProgramTables, free: Array) -> float:
    """Time the rows of one span that was laid for the proposal; the last end."""
    last, now = 0.0, t.counter[0].proposal
    for j in range(span.count):
        row, number = t.row[span.row + j], span.end + j
        more = rows.stream[more_streams(row, rows.set_ptr)]
        start = start_of(start_of(reached(row, p, x, t.link, now), free, row.stream), free, more)
        finish = start + t.seconds[span.row + j]
        occupy(free, row.stream, finish)
        occupy(free, more, finish)
        p.laid_end[number], p.known[number] = finish, now
        last = max(last, finish)
    return last


@leaf
def reached(row: np.record, p: Path, x: Shift, link: Array, now: int) -> float:
    """`laying.awaited`, as far as ends are known."""
    done = max(end_of(p, x, row.awaits[0], now), end_of(p, x, row.awaits[1], now))
    at = row.link
    while at > 0:
        more = link[at]
        first, last = np.inf, 0.0
        for k in range(abs(more.count)):
            end = end_of(p, x, more.end + k * more.step, now)
            first, last = min(first, end), max(last, end)
        done = max(done, last if more.count > 0 else first)
        at = more.link
    return done


@inlined
def end_of(p: Path, x: Shift, number: int, now: int) -> float:
    """An end, as far as it is known: of rows that were laid for proposal `now`, and of the path; else 0."""
    if p.known[number] == now:
        return float(p.laid_end[number])
    n = p.of_end[number]
    if n == 0:
        return 0.0
    return float(p.finish[n] + (x.seconds if n >= x.first else x.least))
