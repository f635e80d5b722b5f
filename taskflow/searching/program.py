"""The rows of the current strategy of a judge, laid out so that one pass over them is fast.

Every row is a record: the streams that it occupies and the ends that it waits for. Records name the numbers of ends,
not of rows, so a span whose neighbours stay the same stays as it is when others before it have more rows or fewer
(`laying`). Behind the rows of the current strategy are those of a proposal that are not the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, records

ROOM = 3  # times the rows of a strategy: what proposals and changes take until all is laid anew

# How much is in use: by the current strategy, with the proposal (`new_...`), and `spans` that are laid for the latter;
# the first group whose proposed ends are not the current ones; the number of this proposal; groups between two marks.
COUNTERS = records(
    [
        (name, np.int64)
        for name in ("rows", "ends", "links", "new_rows", "new_ends", "new_links", "spans")
    ]
    + [(name, np.int64) for name in ("first_differing", "proposal", "every")]
)
# Where the rows of a span are: its first row, its first end, how many rows, how many ordinals these have, its first row
# in the pool.
LAID = records([(name, np.int64) for name in ("row", "end", "count", "parts", "packed")])
# Streams, one of them repeated where there are fewer; two ends (0: none); the first of its further links, or 0; the
# number of its set where that has more streams, or loads links of the machine, else 0, which is a set of one.
ROW = records(
    [
        ("stream", np.uint32, (2,)),
        ("awaits", np.uint32, (2,)),
        ("link", np.uint32),
        ("set", np.uint32),
    ]
)
# Ends that a row waits for: the first, the step to the next, how many (negative: for the earliest of them), and the
# next link of the same row, or 0.
LINK = records([(name, np.int32) for name in ("end", "step", "count", "link")])


class ProgramTables(NamedTuple):
    """A program as compiled code sees it.

    Attributes:
        counter: one COUNTERS.
        span, new_span: (spans,) LAID of the current and the proposed strategy, which differ in `changed[:spans]`.
        proposal: per span, the number of the proposal that it was laid for last.
        passed: per span of which the rows are passed by their ordinals, how many have been.
        row, seconds: ROW and seconds of every row.
        link: LINK.
        end, new_end: ends of rows, the first being no row's: 0.
        free, done, new_free, new_done: (marks, streams) before each `every` groups: when every stream is free, and the
            seconds that it has worked.
    """

    counter: Array
    span: Array
    new_span: Array
    changed: Array
    proposal: Array
    passed: Array
    row: Array
    seconds: Array
    link: Array
    end: Array
    new_end: Array
    free: Array
    done: Array
    new_free: Array
    new_done: Array


class JudgedProgram:
    """See the module.

    Args:
        spans: number of spans.
        groups: number of groups of spans.
        streams: number of streams.
        marks: number of groups before which the state is remembered, at most.

    Attributes:
        tables: all that compiled code reads and writes.
    """

    def __init__(self, spans: int, groups: int, streams: int, marks: int) -> None:
        every = -(-groups // marks)
        remembered = groups // every + 1, streams
        of_spans = [np.zeros(spans, dtype) for dtype in (LAID, LAID, np.int64, np.int64, np.int64)]
        of_rows, of_marks = [np.zeros(0)] * 5, [np.zeros(remembered) for _ in range(4)]
        self.tables = ProgramTables(np.zeros(1, COUNTERS), *of_spans, *of_rows, *of_marks)
        self.tables.counter["every"] = every
        self._make_room(0)

    def _make_room(self, rows: int) -> None:
        row, link, ends = np.zeros(rows, ROW), np.zeros(rows, LINK), rows + 1
        of_ends = {"end": np.zeros(ends), "new_end": np.zeros(ends)}
        self.tables = self.tables._replace(row=row, seconds=np.zeros(rows), link=link, **of_ends)

    def clear(self, more: int) -> None:
        """No rows, all of which are to be laid anew, and room for `more`; the ends of the current strategy stay."""
        ends, used, room = self.ends, int(self.tables.counter["rows"][0]), len(self.tables.row)
        needed = ROOM * (len(ends) + more)
        if used <= len(ends):  # nothing was to be gained
            needed = max(needed, 2 * room)
        if needed > room:
            self._make_room(needed)
        t = self.tables
        t.end[1 : 1 + len(ends)] = ends
        t.span["end"] = np.cumsum(t.span["count"]) - t.span["count"] + 1
        t.new_span[:] = t.span
        every, t.proposal[:] = int(t.counter["every"][0]), 0
        t.counter[0] = 0
        t.counter["every"], t.counter["ends"], t.counter["links"] = every, 1 + len(ends), 1

    def accept(self) -> None:
        """The proposed strategy is the current one."""
        t, counter = self.tables, self.tables.counter[0]
        changed = t.changed[: counter["spans"]]
        t.span[changed] = t.new_span[changed]
        counter["rows"], counter["ends"], counter["links"] = (
            counter[f"new_{n}"] for n in ("rows", "ends", "links")
        )
        swapped = {"end": t.new_end, "free": t.new_free, "done": t.new_done}
        self.tables = t._replace(**swapped, new_end=t.end, new_free=t.free, new_done=t.done)

    @property
    def ends(self) -> Array:
        """When each row of the current strategy ends, span after span."""
        count = self.tables.span["count"]
        first = np.cumsum(count) - count
        found: Array = self.tables.end[
            np.arange(count.sum()) + np.repeat(self.tables.span["end"] - first, count)
        ]
        return found
