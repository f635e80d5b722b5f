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
from taskflow.core.compiling import inlined, inner, leaf, njit
from taskflow.core.start_rule import cross, start_of
from taskflow.searching.laying import Rows, awaited, run_row
from taskflow.searching.program import Path, ProgramTables

NOTHING, OF_ROW = -1, -2  # causes, see `Causes`
NEAR = 128  # rows of the path on either side of a laid span that are looked at one by one

# -- finding it ------------------------------------------------------------------------------------------------------


class Causes(NamedTuple):
    """The rows of the current strategy, once more: what each of them waited for.

    A cause is the number of a hop (HOP of a row) that was through then, `OF_ROW - i` for the end of row i, or NOTHING.

    Attributes:
        span, at, end: of every row its span, its number in the program, and the number of its end.
        start, cause: when it starts, and because of which of its streams; NOTHING: because of what it awaits.
        late: the hop that it ends with, or NOTHING.
        row, link: of every hop, the latter as a stream.
        before, through: of every hop its cause, and when it is through; NOTHING: it began with its row.
    """

    span: Array
    at: Array
    end: Array
    start: Array
    cause: Array
    late: Array
    row: Array
    link: Array
    before: Array
    through: Array


@njit
def trace(program: tuple[Array, ...], sets: tuple[Array, ...], streams: int, path: tuple[Array, ...]) -> None:
    """Find the critical path of the current strategy, from the last end back.

    Args:
        program: `ProgramTables` as a plain tuple.
        sets, streams: `columns` and `count` of `streams.StreamSets`.
        path: `Path` as a plain tuple, with room for all rows; its rows are put at the end of the columns.
    """
    t, p = ProgramTables(*program), Path(*path)
    x = replay(t, sets, np.zeros(streams), np.full(streams, NOTHING))
    i, n = 0, len(p.finish)
    for k in range(len(x.at)):
        if t.end[x.end[k]] > t.end[x.end[i]]:
            i = k
    p.ptr[x.span[i] + 1 :] = n
    hop, waits = x.late[i], False
    while True:
        n = put_row(p, n, t, x, i, hop)
        cause = x.before[hop] if hop >= 0 else NOTHING
        if cause == NOTHING:
            cause = x.cause[i]
        waits = cause == NOTHING
        if waits and x.start[i] > 0.0:
            cause = OF_ROW - awaited_row(t, x, i)
        if cause == NOTHING:
            break
        p.row[n].waits = waits
        before, hop = (x.row[cause], cause) if cause >= 0 else (OF_ROW - cause, x.late[OF_ROW - cause])
        p.ptr[x.span[before] + 1 : x.span[i] + 1] = n
        i = before
    p.ptr[: x.span[i] + 1] = n


@inner
def replay(t: ProgramTables, sets: tuple[Array, ...], free: Array, last: Array) -> Causes:
    """See `Causes`; `free` and `last`, the cause of that, of every stream, as they are before the first row."""
    set_ptr, stream, hop_ptr, hop = sets
    rows, hops, i, h = 0, 0, 0, 0
    for b in range(len(t.span)):
        for k in range(t.span[b].row, t.span[b].row + t.span[b].count):
            hops += hop_ptr[t.row[k].set + 1] - hop_ptr[t.row[k].set] if t.row[k].set > 0 else 0
        rows += t.span[b].count
    span, at, end = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    start, cause, late = np.zeros(rows), np.empty(rows, np.int64), np.full(rows, NOTHING)
    of_hops = np.empty(hops, np.int64), np.empty(hops, np.int64), np.full(hops, NOTHING), np.empty(hops)
    x = Causes(span, at, end, start, cause, late, *of_hops)
    for b in range(len(t.span)):
        for k in range(t.span[b].count):
            x.span[i], x.at[i], x.end[i] = b, t.span[b].row + k, t.span[b].end + k
            row, seconds = t.row[x.at[i]], t.seconds[x.at[i]]
            streams = stream[set_ptr[row.set] : set_ptr[row.set + 1]]
            done = awaited(row, t.link, t.end)
            x.start[i] = done
            x.cause[i] = NOTHING
            of_row, of_set = row.stream, streams if row.set > 0 else streams[:0]
            for s in of_row:
                if free[s] > 0.0 and free[s] >= x.start[i]:
                    x.start[i], x.cause[i] = free[s], last[s]
            for s in of_set:
                if free[s] > 0.0 and free[s] >= x.start[i]:
                    x.start[i], x.cause[i] = free[s], last[s]
            finish = x.start[i] + seconds
            for j in range(hop_ptr[row.set], hop_ptr[row.set + 1] if row.set > 0 else hop_ptr[row.set]):
                link = hop[j].link
                x.row[h], x.link[h] = i, link
                if cross(x.start[i], seconds, free, hop[j]):
                    x.before[h] = last[link]
                    if free[link] > finish:
                        finish, x.late[i] = free[link], h
                x.through[h], last[link] = free[link], h
                h += 1
            for s in of_row:
                free[s], last[s] = finish, OF_ROW - i
            for s in of_set:
                free[s], last[s] = finish, OF_ROW - i
            i += 1
    return x


@leaf
def awaited_row(t: ProgramTables, x: Causes, i: int) -> int:
    """The last row that row `i` awaits which ends when it starts."""
    j = i - 1
    while t.end[x.end[j]] != x.start[i] or not awaits(t.row[x.at[i]], t.link, x.end[j]):
        j -= 1
    return j


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


@leaf
def put_row(p: Path, n: int, t: ProgramTables, x: Causes, i: int, hop: int) -> int:
    """Put row `i`, up to its end or, if it has a number, to when `hop` is through, in front of row `n` of the path."""
    n -= 1
    row, number = t.row[x.at[i]], x.end[i]
    of_path = p.row[n]
    of_path.stream[0], of_path.stream[1] = row.stream[0], row.stream[1]
    of_path.stream[2] = x.link[hop] if hop >= 0 and x.before[hop] != NOTHING else row.stream[0]
    of_path.end, of_path.waits = number, 0
    p.finish[n], p.of_end[number] = x.through[hop] if hop >= 0 else t.end[number], n
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
        finish = run_row(row, reached(row, p, x, t.link, now), t.seconds[span.row + j], rows, free)
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
