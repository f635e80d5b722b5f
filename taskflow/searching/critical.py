"""The critical path of a judge's current strategy, and a pass over it and what changed alone, compiled by numba.

Every start is a largest and every end a sum, so a pass over some of the rows, with some of what they wait for, gives
ends that are none later, to the last bit. Of all rows those are worth passing that ended last, each because of the one
before it: the critical path. What a proposal makes slower delays it mostly. So a proposal is rejected for certain if
the rows that were laid for it and those of the path, a small part of all, end above the limit. The path between two
laid stretches is shifted as a whole, so those ends are right but for rounding, hence the slack of the limit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import leaf, njit

STREAMS = (0, 1, 6, 7)  # the columns of a line that name streams
ENDS, WAITS, QUEUE = 2, 3, 5  # columns of a line of the path
NEAR = 128  # lines on either side of what was laid that are looked at one by one


class Path(NamedTuple):
    """The critical path, and memory for a pass. A line of it is one of its rows; each starts when the one before ends.

    Attributes:
        code: (n, 8) as in `program.Program`, of every line in order; but ENDS: the place of its end; WAITS: whether it
            waits for the line before it, though they share no stream.
        end: of every line; before the first it is 0.
        ptr: per stretch its first line; all are 0 if no path is known.
        line: per place of an end, its line, or 0.
        laid_end, known: per place of an end: the end of a row that was laid for a proposal, and the proposal's stamp.
    """

    code: Any
    end: Any
    ptr: Any
    line: Any
    laid_end: Any
    known: Any


@leaf
def mark_streams(code: Any, at: int, queue_ptr: Any, streams: Any, number: int, mark: Any) -> None:
    """Put a number on all streams of a line."""
    queue = code[at, QUEUE]
    mark[code[at, 0]] = mark[code[at, 1]] = mark[code[at, 6]] = mark[code[at, 7]] = number
    for k in range(queue_ptr[queue], queue_ptr[queue + 1] if queue > 0 else queue_ptr[queue]):
        mark[streams[k]] = number


@leaf
def is_marked(code: Any, at: int, queue_ptr: Any, streams: Any, number: int, mark: Any) -> bool:
    """Whether a stream of a line has the number."""
    if mark[code[at, 0]] == number or mark[code[at, 1]] == number:
        return True
    if mark[code[at, 6]] == number or mark[code[at, 7]] == number:
        return True
    queue = code[at, QUEUE]
    if queue > 0:
        for k in range(queue_ptr[queue], queue_ptr[queue + 1]):
            if mark[streams[k]] == number:
                return True
    return False


@leaf
def awaits(code: Any, chain: Any, at: int, place: int) -> bool:
    """Whether a line waits for the end that stands at a place."""
    if code[at, 2] == place or code[at, 3] == place:
        return True
    more = code[at, 4]
    while more > 0:
        for k in range(chain[more, 2]):
            if chain[more, 0] + k * chain[more, 1] == place:
                return True
        more = chain[more, 3]
    return False


@njit
def trace(
    place: Any, code: Any, seconds: Any, chain: Any, end: Any, queue_ptr: Any, streams: Any, count: int, path: Any
) -> None:
    """Find the critical path of the rows of a program, from the last end back.

    Args:
        place ... end: see `program.Program`; of the current strategy.
        queue_ptr, streams, count: see `streams.Queues`.
        path: `Path` as a plain tuple, with room for all rows; the lines are put at the end of the columns.
    """
    p = Path(*path)
    last, stretch, before = -1.0, 0, 0
    for b in range(len(place)):
        for j in range(place[b, 2]):
            if end[place[b, 1] + j] > last:
                last, stretch, before = end[place[b, 1] + j], b, j
    at = place[stretch, 0] + before
    n = len(p.end)
    p.ptr[stretch + 1 :] = n
    n = put_line(p, n, code, at, place[stretch, 1] + before, end)
    mark = np.full(count, -1, np.int64)
    mark_streams(code, at, queue_ptr, streams, n, mark)
    taken = seconds[at]
    for b in range(stretch, -1, -1):
        j = before if b == stretch else place[b, 2]
        while True:
            j = last_tie(end, place[b, 1], j, taken, last)
            if j < 0:
                break
            row = place[b, 1] + j
            is_shared = is_marked(code, place[b, 0] + j, queue_ptr, streams, n, mark)
            if is_shared or awaits(code, chain, at, row):
                p.code[n, WAITS] = not is_shared
                at, last = place[b, 0] + j, end[row]
                taken = seconds[at]
                n = put_line(p, n, code, at, row, end)
                mark_streams(code, at, queue_ptr, streams, n, mark)
        p.ptr[b] = n
    p.end[n - 1] = 0.0


@leaf
def last_tie(end: Any, first: int, count: int, taken: float, finish: float) -> int:
    """Of so many rows from `first` on, the last one at whose end a row begins that finishes then; -1: none."""
    at = np.uint64(first + count)  # what has no sign needs no look whether it counts from the end
    for j in range(count - 1, -1, -1):
        at -= np.uint64(1)
        if end[at] + taken == finish:
            return j
    return -1


@leaf
def put_line(p: Path, n: int, code: Any, at: int, row: int, end: Any) -> int:
    """Put a line of a program, whose end stands at `row`, in front of line `n` of the path; its number."""
    n -= 1
    for column in range(8):
        p.code[n, column] = code[at, column]
    p.code[n, ENDS], p.code[n, WAITS], p.end[n], p.line[row] = row, 0, end[row], n
    return n


class Shift(NamedTuple):
    """How much later than in the current strategy lines of the path end at least: all, and those from one on."""

    least: float
    first: int
    seconds: float


@leaf
def reached(p: Path, x: Shift, place: int, now: int) -> float:
    """The end that stands at a place, as far as it is known: of rows that were laid `now`, and of the path."""
    if p.known[place] == now:
        return float(p.laid_end[place])
    line = p.line[place]
    if line == 0:
        return 0.0
    return float(p.end[line] + (x.seconds if line >= x.first else x.least))


@leaf
def pass_path(
    first: int, p: Path, stamp: Any, now: int, place: Any, code: Any, seconds: Any, chain: Any, free: Any,
    queue_ptr: Any, streams: Any, limit: float,
) -> float:  # fmt: skip
    """An end, but for rounding, of the path or of the stretches that were laid `now`: above the limit if any is.

    The lines between two laid stretches are shifted together, as the first of them is, or one that comes soon after.

    Args:
        free: when every stream is free, before the first stretch; is changed.
        others: see `resimulate`.
    """
    x, done = Shift(0.0, 0, 0.0), p.ptr[first]
    last: float = 0.0
    for b in range(first, len(place)):
        if stamp[b] != now:
            continue
        begin, next_line = p.ptr[b], p.ptr[b + 1]
        x = delay(p, x, done, min(done + NEAR, begin), free)
        release(p, x, max(begin - NEAR, done), begin, free)
        found = pass_laid(b, p, x, now, place, code, seconds, chain, free, queue_ptr, streams)
        last = max(last, found)
        if begin > done:
            last = max(last, float(p.end[begin - 1] + x.seconds))
        if last > limit:
            return last
        if next_line > begin and next_line < len(p.end):
            x = resume(p, x, next_line, now, free)
        done = next_line
    x = delay(p, x, done, min(done + NEAR, len(p.end)), free)
    return float(max(last, p.end[len(p.end) - 1] + x.seconds)) if done < len(p.end) else last


@leaf
def delay(p: Path, x: Shift, begin: int, stop: int, free: Any) -> Shift:
    """Lines that begin when the one before ends, unless one of their streams is not free by then."""
    for n in range(begin, stop):
        code = p.code[n]
        start = max(max(free[code[0]], free[code[1]]), max(free[code[6]], free[code[7]]))
        if start > p.end[n - 1] + x.seconds:
            x = Shift(x.least, n, start - p.end[n - 1])
    return x


@leaf
def resume(p: Path, x: Shift, n: int, now: int, free: Any) -> Shift:
    """The line before is no more: line `n` waits for its streams alone, or for what stands where that stood."""
    code = p.code[n]
    start = max(max(free[code[0]], free[code[1]]), max(free[code[6]], free[code[7]]))
    place = p.code[n - 1, ENDS]
    if code[WAITS] and p.known[place] == now:
        start = max(start, p.laid_end[place])
    seconds = start - p.end[n - 1]
    return Shift(min(x.least, seconds), n, seconds)


@leaf
def release(p: Path, x: Shift, begin: int, stop: int, free: Any) -> None:
    """Streams are free when the last line that occupies them ends."""
    for n in range(begin, stop):
        finish = p.end[n] + (x.seconds if n >= x.first else x.least)
        for column in STREAMS:
            stream = p.code[n, column]
            free[stream] = max(free[stream], finish)


@leaf
def pass_laid(
    b: int, p: Path, x: Shift, now: int, place: Any, code: Any, seconds: Any, chain: Any, free: Any, queue_ptr: Any,
    streams: Any,
) -> float:  # fmt: skip
    """Time the rows of one stretch that was laid; the last end."""
    last = 0.0
    for j in range(place[b, 2]):
        at, row = place[b, 0] + j, place[b, 1] + j
        start = max(reached(p, x, code[at, 2], now), reached(p, x, code[at, 3], now))
        more, queue = code[at, 4], code[at, QUEUE]
        while more > 0:
            awaited, step = chain[more, 0], chain[more, 1]
            for k in range(chain[more, 2]):
                start = max(start, reached(p, x, awaited + k * step, now))
            if chain[more, 2] < 0:
                earliest = reached(p, x, awaited, now)
                for k in range(1, -chain[more, 2]):
                    earliest = min(earliest, reached(p, x, awaited + k * step, now))
                start = max(start, earliest)
            more = chain[more, 3]
        for column in STREAMS:
            start = max(start, free[code[at, column]])
        for k in range(queue_ptr[queue], queue_ptr[queue + 1] if queue > 0 else queue_ptr[queue]):
            start = max(start, free[streams[k]])
        finish = start + seconds[at]
        for column in STREAMS:
            free[code[at, column]] = finish
        for k in range(queue_ptr[queue], queue_ptr[queue + 1] if queue > 0 else queue_ptr[queue]):
            free[streams[k]] = finish
        p.laid_end[row], p.known[row] = finish, now
        last = max(last, finish)
    return last


def no_path(stretches: int, rows: int, ends: int) -> Path:
    """Memory for a path of so many rows."""
    rows += 1
    code, end, laid_end = np.zeros((rows, 8), np.uint32), np.zeros(rows), np.zeros(ends)
    return Path(
        code, end, np.zeros(stretches + 1, np.int64), np.zeros(ends, np.int32), laid_end, np.zeros(ends, np.int64)
    )
