"""Re-simulation, compiled by numba: the one pass of `simulate` over rows where they are packed.

Which spans there are, and in what order, depends on the graph alone (`layout`); what is in them is a fragment of a
pool (`pool`). What streams have to do in all is changed by what differs, and is known before there is a pass.

Starts and ends are the same to the last bit as those of the whole pass over the task graph: a start is the largest of
some numbers, in whatever order they are compared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, record
from taskflow.core.compiling import inlined, inner, leaf, tiered
from taskflow.core.start_rule import finish_of, occupy, start_of, work_of
from taskflow.searching.layout import Layout
from taskflow.searching.packed import OPEN, Columns, Packed

SLACK = 1e-9  # sums of work are rounded; nothing is given up for less
# Of a span its first row in the pool, its first end, how many rows, and how many ordinals these have.
LAID = record("row", "end", "count", "parts")


class Rows(NamedTuple):
    """The rows of a pool.

    Attributes:
        packed: of regions.
        op_rows: ROWS of the points of an operator under a configuration.
        set_ptr, stream, hop_ptr, hop: see `streams.StreamSets`.
    """

    packed: Packed
    op_rows: Array
    set_ptr: Array
    stream: Array
    hop_ptr: Array
    hop: Array


class Timed(NamedTuple):
    """A strategy whose rows are passed.

    Attributes:
        span: (spans,) LAID.
        end: of all rows, span after span.
    """

    span: Array
    end: Array


Choice = tuple[Array, Array]  # per operator its ROWS, per region its fragment


@tiered
def change_work(
    work: Array,
    ops: Array,
    regions: Array,
    old: Choice,
    new: Choice,
    of_pool: Columns,
    of_rows: Columns,
) -> bool:
    """The seconds that every stream has to do in all become those of another choice.

    False: fragments are still to be made; what they take is left out.

    Args:
        ops, regions: the operators and regions that change.
        of_pool, of_rows: `Packed` and the other fields of `Rows`, as plain tuples, whose type numba finds out fastest.
    """
    rows, is_known = Rows(Packed(*of_pool), *of_rows), True
    for op in ops:
        exchange(work, rows.op_rows, old[0][op], new[0][op], rows)
    for r in regions:
        is_made = new[1][r] < rows.packed.filled[0].fragments
        exchange(work, rows.packed.fragment, old[1][r], new[1][r] if is_made else -1, rows)
        is_known &= is_made
    return is_known


@tiered
def pass_rows(
    limit: float,
    chosen: Choice,
    span: Array,
    streams: int,
    of_graph: Columns,
    of_pool: Columns,
    of_rows: Columns,
) -> tuple[float, Array]:
    """The end of the last row, or infinity as soon as one is above `limit`; and all ends.

    Args:
        limit: in seconds.
        span: gets LAID.
        streams: how many.
        of_graph: `Layout`; the others as of `change_work`.
    """
    layout, rows = Layout(*of_graph), Rows(Packed(*of_pool), *of_rows)
    t = Timed(span, np.empty(lay_spans(span, chosen, layout, rows)))
    free = np.zeros(streams)
    waiting = first_waits(chosen[1], layout, rows.packed)
    for group in range(len(layout.group_ptr) - 1):
        if pass_group(group, 0.0, waiting, free, t, layout, rows) > limit:
            return np.inf, t.end
    return max(free.max(), t.end.max() if len(t.end) else 0.0), t.end


@leaf
def lay_spans(span: Array, chosen: Choice, layout: Layout, rows: Rows) -> int:
    """Where the rows of all spans are; where nothing is chosen yet there are none. And how many there are in all."""
    end = 0
    packed = rows.packed
    for b in range(len(span)):
        of = layout.span[b]
        number = chosen[0][of.op] if of.op >= 0 else chosen[1][of.region]
        span[b].end = end
        span[b].count = 0
        if number < 0:
            continue
        if of.op >= 0:
            here = rows.op_rows[number]
        else:
            here = packed.version[packed.fragment[number].version + of.version]
        span[b].row = here.first
        span[b].count = here.count
        span[b].parts = here.parts
        end += here.count
    return end


@inner
def first_waits(fragment: Array, layout: Layout, packed: Packed) -> Array:
    """Per `Layout.wait`, where the rows begin in `Packed.edge_ptr`; -1: nowhere."""
    begins = np.full(len(layout.wait), -1, np.int64)
    for w in range(len(begins)):
        number = fragment[layout.wait[w].region]
        issuer = layout.wait[w].issuer
        if number >= 0:
            begins[w] = packed.issuer[packed.fragment[number].issuer + issuer]
    return begins


@leaf
def pass_group(
    group: int, begin: float, waiting: Array, free: Array, t: Timed, layout: Layout, rows: Rows
) -> float:
    """Pass the rows of a group by their ordinals, and those of one ordinal span after span; the last end.

    Those of the operator do not start before `begin`.
    """
    spans = range(layout.group_ptr[group], layout.group_ptr[group + 1])
    parts = 1
    last = 0.0
    for b in spans:
        parts = max(parts, t.span[b].parts)
    for part in range(parts):
        for b in spans:
            span = t.span[b]
            least = begin if layout.span[b].op >= 0 else 0.0
            for k in range(span.count):
                if rows.packed.ordinal[span.row + k] == part:
                    done = max(least, awaited(b, k, waiting, t, layout, rows.packed))
                    t.end[span.end + k] = pass_row(span.row + k, done, free, rows)
                    last = max(last, t.end[span.end + k])
    return last


@inlined
def awaited(b: int, k: int, waiting: Array, t: Timed, layout: Layout, packed: Packed) -> float:
    """When all has ended that row `k` of a span waits for."""
    done = 0.0
    for w in range(layout.wait_ptr[b], layout.wait_ptr[b + 1]):
        if waiting[w] < 0:
            continue
        row = waiting[w] + k
        first = layout.wait[w].first
        for e in range(packed.edge_ptr[row], packed.edge_ptr[row + 1]):
            edge = packed.edge[e]
            span = t.span[layout.issuer_span[first + edge.issuer]]
            done = max(done, t.end[span.end + edge.index])
    return done


@inlined
def pass_row(row: int, done: float, free: Array, rows: Rows) -> float:
    """The end of a row that can start at `done`, as far as what it awaits goes."""
    number = rows.packed.streams[row]
    if number == OPEN:
        return done
    streams = rows.stream[rows.set_ptr[number] : rows.set_ptr[number + 1]]
    hops = rows.hop[rows.hop_ptr[number] : rows.hop_ptr[number + 1]]
    start = start_of(done, free, streams)
    finish: float = finish_of(start, rows.packed.seconds[row], free, hops)
    occupy(free, streams, finish)
    return finish


# -- work ------------------------------------------------------------------------------------------------------------


@leaf
def exchange(work: Array, parts: Array, old: int, new: int, rows: Rows) -> None:
    """Exchange an operator's rows or a fragment's in the work of all streams; -1: there are none, or not yet."""
    for number, sign in ((old, -1.0), (new, 1.0)):
        if number < 0:
            continue
        first = parts[number].first
        for row in range(first, first + parts[number].count):
            streams = rows.packed.streams[row]
            seconds = rows.packed.seconds[row]
            if streams == OPEN:
                continue
            for k in range(rows.set_ptr[streams], rows.set_ptr[streams + 1]):
                work[rows.stream[k]] += sign * seconds
            for k in range(rows.hop_ptr[streams], rows.hop_ptr[streams + 1]):
                work[rows.hop[k].link] += sign * work_of(rows.hop[k], seconds)
