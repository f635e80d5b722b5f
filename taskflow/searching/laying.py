"""Laying the rows of a strategy into a program, and the pass over them, compiled by numba; see `program`.

What is laid anew are the spans that have to do with a changed region: operators that touch it, and its versions. Their
rows are put behind all others, so that nothing is lost when the proposal is not accepted. The ends of a span keep their
numbers unless it has more rows or fewer; then all that wait for it are laid anew as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined, leaf
from taskflow.core.start_rule import finish_of, occupy, start_of
from taskflow.searching.layout import Chosen, Layout
from taskflow.searching.packed import Packed
from taskflow.searching.program import ProgramTables

ONE = np.uint64(1)  # of what has no sign nobody checks whether it counts from the end


class Rows(NamedTuple):
    """The rows of a pool.

    Attributes:
        op_rows: ROWS of the points of an operator under a configuration.
        packed: of regions.
        set_ptr, stream, hop_ptr, hop: see `streams.StreamSets`.
    """

    op_rows: Array
    packed: Packed
    set_ptr: Array
    stream: Array
    hop_ptr: Array
    hop: Array


@leaf
def lay_changed(
    regions: Array, proposed: Chosen, layout: Layout, rows: Rows, t: ProgramTables
) -> int:
    """Lay all spans that changed regions have to do with: 0, or how many rows there should be room for."""
    counter = t.counter[0]
    counter.new_rows, counter.new_ends, counter.new_links = (
        counter.rows,
        counter.ends,
        counter.links,
    )
    counter.proposal += 1
    for r in regions:
        for k in range(layout.issuer_ptr[r], layout.issuer_ptr[r + 1]):
            b = layout.issuer_span[k]
            if t.proposal[b] != counter.proposal:
                t.proposal[b] = counter.proposal
                t.changed[counter.spans] = b
                counter.spans += 1
                find_room(b, layout.span[b], proposed, rows, t)
    needed: int = counter.new_rows - counter.rows
    if counter.new_rows > len(t.row) or counter.new_ends > len(t.end):
        return needed
    for b in t.changed[: counter.spans]:
        lay_rows(t.new_span[b], rows, t)
        if layout.span[b].op < 0:
            lay_within(t.new_span[b], rows, t)
        lay_between(b, proposed, layout, rows, t)
    return needed if counter.new_links > len(t.link) else 0


@inlined
def find_room(b: int, span: np.record, proposed: Chosen, rows: Rows, t: ProgramTables) -> None:
    """Room for the rows of a span, and for their ends where there are more or fewer than before."""
    counter, new = t.counter[0], t.new_span[b]
    if span.op >= 0:
        packed = rows.op_rows[proposed.rows[span.op]]
    else:
        packed = rows.packed.version[
            rows.packed.fragment[proposed.fragment[span.region]].version + span.version
        ]
    new.packed, new.count, new.parts = packed.first, packed.count, packed.parts
    new.row, new.end = counter.new_rows, t.span[b].end
    counter.new_rows += new.count
    if new.count != t.span[b].count:
        new.end = counter.new_ends
        counter.new_ends += new.count


@inlined
def lay_rows(span: np.record, rows: Rows, t: ProgramTables) -> None:
    """Seconds and streams of the rows of a span."""
    for k in range(span.count):
        streams, row = rows.packed.streams[span.packed + k], t.row[span.row + k]
        begin, count = rows.set_ptr[streams], rows.set_ptr[streams + 1] - rows.set_ptr[streams]
        t.seconds[span.row + k] = rows.packed.seconds[span.packed + k]
        for j in range(len(row.stream)):
            row.stream[j] = rows.stream[begin + min(j, count - 1)]
        row.awaits[0] = row.awaits[1] = row.link = 0
        row.set = (
            streams
            if count > len(row.stream) or rows.hop_ptr[streams] < rows.hop_ptr[streams + 1]
            else 0
        )


@inlined
def lay_within(span: np.record, rows: Rows, t: ProgramTables) -> None:
    """What the rows of a version wait for within it."""
    for k in range(span.count):
        row = span.packed + k
        for j in range(rows.packed.within_ptr[row], rows.packed.within_ptr[row + 1]):
            await_ends(span.row + k, 0, span.end + rows.packed.within[j], 0, 1, t)


@inlined
def lay_between(b: int, proposed: Chosen, layout: Layout, rows: Rows, t: ProgramTables) -> None:
    """What the rows of a span wait for in others."""
    for w in range(layout.wait_ptr[b], layout.wait_ptr[b + 1]):
        region = layout.wait[w].region
        issuer = rows.packed.fragment[proposed.fragment[region]].run_ptr + layout.wait[w].issuer
        for k in range(rows.packed.run_ptr[issuer], rows.packed.run_ptr[issuer + 1]):
            run = rows.packed.run[k]
            at = layout.issuer_ptr[region] + run.issuer
            awaited = layout.issuer_span[at]
            first_row, first_end = (
                t.new_span[b].row + run.row,
                t.new_span[awaited].end + run.awaited,
            )
            await_ends(first_row, run.step, first_end, run.awaited_step, run.count, t)


@leaf
def await_ends(row: int, step: int, end: int, end_step: int, count: int, t: ProgramTables) -> None:
    """Let `count` rows, each `step` from the last, wait for as many ends, each `end_step` from the last.

    With a step of 0 one row waits for all of them; with a negative count, for the earliest of `-count`. What finds no
    room is counted only.
    """
    if count < 0:
        add_link(t.row[row], end, end_step, count, t)
    for _ in range(count):
        waiting = t.row[row]
        if waiting.awaits[0] == 0:
            waiting.awaits[0] = end
        elif waiting.awaits[1] == 0:
            waiting.awaits[1] = end
        else:
            add_link(waiting, end, end_step, count if step == 0 else 1, t)
            if step == 0:
                return
        row += step
        end += end_step
        count -= 1


@inlined
def add_link(row: np.record, end: int, step: int, count: int, t: ProgramTables) -> None:
    """Put ends in front of those that a row waits for."""
    k = t.counter[0].new_links
    t.counter[0].new_links += 1
    if k < len(t.link):
        link = t.link[k]
        link.end, link.step, link.count, link.link = end, step, count, row.link
        row.link = k


# -- the pass --------------------------------------------------------------------------------------------------------


@inlined
def run_row(row: np.record, done: float, seconds: float, rows: Rows, free: Array) -> float:
    """The end of a row that can start at `done`, as far as what it awaits goes."""
    if row.set == 0:
        finish: float = start_of(done, free, row.stream) + seconds
        occupy(free, row.stream, finish)
        return finish
    streams = rows.stream[rows.set_ptr[row.set] : rows.set_ptr[row.set + 1]]
    hops = rows.hop[rows.hop_ptr[row.set] : rows.hop_ptr[row.set + 1]]
    finish = finish_of(start_of(done, free, streams), seconds, free, hops)
    occupy(free, streams, finish)
    return finish


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
def pass_row(row: int, end: int, rows: Rows, t: ProgramTables, free: Array) -> float:
    """Time one row of a proposal; its end."""
    at = t.row[row]
    finish: float = run_row(at, awaited(at, t.link, t.new_end), t.seconds[row], rows, free)
    t.new_end[end] = finish
    return finish


@inlined
def pass_groups(
    begin: int, stop: int, group_ptr: Array, rows: Rows, t: ProgramTables, free: Array, limit: float
) -> float:
    """Time the rows of some groups of a proposal; the last end, or one above the limit."""
    last = 0.0
    for group in range(begin, stop):
        parts = 1
        for b in range(group_ptr[group], group_ptr[group + 1]):
            parts = max(parts, t.new_span[b].parts)
        if parts > 1:
            last = max(
                last, pass_parts(group_ptr[group], group_ptr[group + 1], parts, rows, t, free)
            )
            continue
        for b in range(group_ptr[group], group_ptr[group + 1]):
            at, number = np.uint64(t.new_span[b].row), np.uint64(t.new_span[b].end)
            for _ in range(t.new_span[b].count):
                last = max(last, pass_row(at, number, rows, t, free))
                at, number = at + ONE, number + ONE
        if last > limit:
            break
    return last


@leaf
def pass_parts(
    first: int, stop: int, parts: int, rows: Rows, t: ProgramTables, free: Array
) -> float:
    """Time the rows of a group by their ordinals, and those of one ordinal span after span; the last end."""
    last = 0.0
    for b in range(first, stop):
        t.passed[b] = 0
    for part in range(parts):
        for b in range(first, stop):
            span = t.new_span[b]
            while t.passed[b] < span.count:
                k = rows.packed.issued[span.packed + t.passed[b]] if span.parts > 1 else t.passed[b]
                if span.parts > 1 and rows.packed.ordinal[span.packed + k] > part:
                    break
                last = max(last, pass_row(span.row + k, span.end + k, rows, t, free))
                t.passed[b] += 1
    return last
