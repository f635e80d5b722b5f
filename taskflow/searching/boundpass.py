"""The inner loop of `exhaustive`, compiled by numba: simulation of less than what will run.

Rows of decided operators and what moves between them run as they will (`resimulate`); of what moves is left out what
more than two families decide. An undecided operator takes the least seconds of a point after the first point of each
operator that it reads from.
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inner, tiered
from taskflow.searching.layout import Layout
from taskflow.searching.packed import Columns, Packed
from taskflow.searching.resimulate import Rows, Timed, first_waits, lay_spans, pass_group
from taskflow.searching.tables import BoundTables


@tiered
def bound_children(
    chosen: Array,
    leader: int,
    tables: Columns,
    span: Array,
    streams: int,
    of_graph: Columns,
    of_pool: Columns,
    of_rows: Columns,
    out: Array,
) -> None:
    """`out[c]`: a lower bound for all strategies in which the operators of `chosen` and `leader`, by c, are decided.

    Args:
        chosen: per leader the number of its configuration; -1: undecided.
        tables: `BoundTables` as a plain tuple.
        span: memory for LAID.
        streams, of_graph, of_pool, of_rows: see `resimulate.pass_rows`.
    """
    b, layout = BoundTables(*tables), Layout(*of_graph)
    rows = Rows(Packed(*of_pool), *of_rows)
    for c in range(len(out)):
        chosen[leader] = c
        out[c] = bound_of(chosen, b, span, streams, layout, rows)
    chosen[leader] = -1


@inner
def bound_of(
    chosen: Array, b: BoundTables, span: Array, streams: int, layout: Layout, rows: Rows
) -> float:
    """The bound of what is decided."""
    numbers, fragment = decided(chosen, b)
    count = lay_spans(span, (numbers, fragment), layout, rows)
    waiting = first_waits(fragment, layout, rows.packed)
    t = Timed(span, np.empty(count))
    free = np.zeros(streams)
    devices = rows.packed.bytes.shape[1]
    first = np.zeros(len(numbers))
    last = 0.0
    load = 0.0  # when the first point of each ends
    for group in range(len(layout.group_ptr) - 1):
        op = group - 1
        begin = 0.0
        for w in range(b.writer_ptr[op], b.writer_ptr[op + 1]) if op >= 0 else range(0):
            begin = max(begin, first[b.writer[w]])
        if op >= 0 and numbers[op] < 0:
            first[op] = begin + b.least[op]
            last = max(last, begin + b.whole[op] / b.most[op])
            load += b.whole[op]
        last = max(last, pass_group(group, begin, waiting, free, t, layout, rows))
        for s in range(layout.group_ptr[group], layout.group_ptr[group + 1]):
            if layout.span[s].op >= 0 and span[s].count:
                first[op] = t.end[span[s].end : span[s].end + span[s].count].min()
                load += b.seconds[op, chosen[b.family[op]]]
    return float(max(last, load / devices))


@inner
def decided(chosen: Array, b: BoundTables) -> tuple[Array, Array]:
    """Per operator its ROWS, and per region its fragment; -1: not yet."""
    numbers = np.full(len(b.family), -1, np.int64)
    fragment = np.full(len(b.families), -1, np.int64)
    for op in range(len(numbers)):
        if chosen[b.family[op]] >= 0:
            numbers[op] = b.rows[op, chosen[b.family[op]]]
    for r in range(len(fragment)):
        one, other = b.families[r]
        if one >= 0 and chosen[one] >= 0 and chosen[other] >= 0:
            fragment[r] = b.fragment[r, chosen[one], chosen[other]]
    return numbers, fragment
