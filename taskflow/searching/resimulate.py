"""Re-simulation, compiled by numba: the one pass of `simulate` over spans of rows, from the first that changed.

Which spans there are, and in what order, depends on the graph alone (`layout`); what is in them is a fragment of a
pool (`pool`). So a changed strategy changes fragments; the spans that they have to do with are laid anew into a
program (`laying`), and the pass goes on through all others as they are. Peaks of memory are looked at quickly.

Starts and ends are the same to the last bit as those of the whole pass over the task graph: a start is the largest of
some numbers, in whatever order they are compared.
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf, tiered
from taskflow.core.start_rule import work_of
from taskflow.searching.laying import Rows, lay_changed, pass_groups
from taskflow.searching.layout import Chosen, Layout
from taskflow.searching.packed import Packed
from taskflow.searching.program import ProgramTables

SLACK = 1e-9  # sums of work are rounded; nothing is given up for less
TOO_SHORT = -1.0


@tiered
def resimulate(
    limit: float,
    ops: Array,
    regions: Array,
    old: tuple[Array, ...],
    new: tuple[Array, ...],
    work: Array,
    size: Array,
    of_graph: tuple[Array, ...],
    of_pool: tuple[Array, ...],
    of_rows: tuple[Array, Array, Array, Array, Array],
    program: tuple[Array, ...],
) -> tuple[float, int]:
    """The end of the last row, or infinity as soon as it is certain to be above `limit`; and 0.

    TOO_SHORT where the program has too little room, and the number of rows to be laid. Where fragments of the proposal
    are still to be made: infinity if the work of the others is above the limit, else 0.

    Args:
        limit: in seconds.
        ops, regions: the operators and regions that change.
        old, new: `Chosen` of the current and the proposed strategy.
        work, size: seconds that every stream has to do in all, and bytes of instances of every device: those of the
            current strategy, which become those of the proposed one.
        of_graph, of_pool: `Layout` and `Packed`.
        of_rows: the other fields of `Rows`.
        program: `ProgramTables`; like all others as a plain tuple, whose type numba finds out fastest.
    """
    current, proposed, layout, packed = (
        Chosen(*old),
        Chosen(*new),
        Layout(*of_graph),
        Packed(*of_pool),
    )
    rows = Rows(of_rows[0], packed, *of_rows[1:])
    t = ProgramTables(*program)
    counter = t.counter[0]
    for b in t.changed[: counter.spans]:
        t.new_span[b] = t.span[b]
    counter.spans = 0
    for op in ops:
        exchange(work, rows.op_rows, current.rows[op], proposed.rows[op], rows)
    is_known = change_regions(work, size, regions, current, proposed, rows)
    for k in range(len(work)):
        if work[k] * (1.0 - SLACK) > limit:
            return np.inf, 0
    if not is_known:
        return 0.0, 0
    needed = lay_changed(regions, proposed, layout, rows, t)
    if needed:
        return TOO_SHORT, needed
    first = 0
    if current.rows[0] >= 0:
        first = first_changed(regions, current, proposed, layout, rows)
    return pass_from(
        first - first % counter.every, limit, work, current, proposed, layout, rows, t
    ), 0


@tiered
def pass_from(
    first: int,
    limit: float,
    work: Array,
    current: Chosen,
    proposed: Chosen,
    layout: Layout,
    rows: Rows,
    t: ProgramTables,
) -> float:
    """Pass all groups from number `first` on; the last end, or infinity as soon as it is certain to be above `limit`.

    A stream ends no earlier than it is free plus what work is left for it.
    """
    catch_up(first, layout.group_ptr, t)
    groups = len(layout.group_ptr) - 1
    every, streams, last = t.counter[0].every, len(work), 0.0
    free, more = t.free[first // every].copy(), np.zeros(streams)
    for begin in range(first, groups, every):
        mark, stop = begin // every, min(begin + every, groups)
        for k in range(streams):
            t.new_free[mark, k], t.new_done[mark, k] = free[k], t.done[mark, k] + more[k]
            if free[k] + (work[k] - t.new_done[mark, k]) - SLACK * work[k] > limit:
                return np.inf
        change_spans(
            more,
            layout.group_ptr[begin],
            layout.group_ptr[stop],
            current,
            proposed,
            layout,
            rows,
            t,
        )
        last = pass_groups(begin, stop, layout.group_ptr, rows, t, free, limit)
        if last > limit:
            return np.inf
    for k in range(streams):
        last = max(last, free[k])
    return last


# -- work ------------------------------------------------------------------------------------------------------------


@leaf
def add_work(work: Array, sign: float, first: int, count: int, rows: Rows) -> None:
    """Add what rows of the pool take to the work of their streams."""
    for row in range(first, first + count):
        streams = rows.packed.streams[row]
        for k in range(rows.set_ptr[streams], rows.set_ptr[streams + 1]):
            work[rows.stream[k]] += sign * rows.packed.seconds[row]
        for k in range(rows.hop_ptr[streams], rows.hop_ptr[streams + 1]):
            work[rows.hop[k].link] += sign * work_of(rows.hop[k], rows.packed.seconds[row])


@leaf
def exchange(work: Array, parts: Array, old: int, new: int, rows: Rows) -> None:
    """Exchange rows of the pool, by the numbers of their ROWS, in the work of all streams; -1: there are none yet."""
    if old >= 0:
        add_work(work, -1.0, parts[old].first, parts[old].count, rows)
    add_work(work, 1.0, parts[new].first, parts[new].count, rows)


@leaf
def change_regions(
    work: Array, size: Array, regions: Array, current: Chosen, proposed: Chosen, rows: Rows
) -> bool:
    """Exchange the fragments of some regions in the work of all streams and the bytes of all devices.

    False: not all of them are made; what the others will have is left out.
    """
    packed, is_known = rows.packed, True
    for r in regions:
        old, new = current.fragment[r], proposed.fragment[r]
        if old >= 0:
            add_work(work, -1.0, packed.fragment[old].row, packed.fragment[old].rows, rows)
        if new >= packed.filled[0].fragments:
            is_known = False
            continue
        add_work(work, 1.0, packed.fragment[new].row, packed.fragment[new].rows, rows)
        for device in range(len(size)):
            size[device] += packed.bytes[new, device] - (
                packed.bytes[old, device] if old >= 0 else 0
            )
    return is_known


@leaf
def change_spans(
    done: Array,
    begin: int,
    stop: int,
    current: Chosen,
    proposed: Chosen,
    layout: Layout,
    rows: Rows,
    t: ProgramTables,
) -> None:
    """Exchange the rows of those spans that were laid for the proposal in the work that all streams have done."""
    for b in range(begin, stop):
        if t.proposal[b] != t.counter[0].proposal:
            continue
        span = layout.span[b]
        if span.op >= 0:
            parts, old, new = rows.op_rows, current.rows[span.op], proposed.rows[span.op]
        else:
            parts, old, new = (
                rows.packed.version,
                current.fragment[span.region],
                proposed.fragment[span.region],
            )
            old = rows.packed.fragment[old].version + span.version if old >= 0 else -1
            new = rows.packed.fragment[new].version + span.version
        if old != new:
            exchange(done, parts, old, new, rows)


# -- where to begin --------------------------------------------------------------------------------------------------


@leaf
def first_changed(
    regions: Array, current: Chosen, proposed: Chosen, layout: Layout, rows: Rows
) -> int:
    """The group of the first span of an operator that touches a changed region, or of rows that move it.

    At most that of the last span.
    """
    first, packed = len(layout.span) - 1, rows.packed
    for r in regions:
        ops, old, new = (
            layout.op_ptr[r + 1] - layout.op_ptr[r],
            current.fragment[r],
            proposed.fragment[r],
        )
        begin = layout.issuer_ptr[r]
        for issuer in range(layout.issuer_ptr[r + 1] - begin):
            has_rows = issuer < ops or old < 0
            if not has_rows:
                a, b = (
                    packed.fragment[old].version + issuer - ops,
                    packed.fragment[new].version + issuer - ops,
                )
                has_rows = packed.version[a].count + packed.version[b].count > 0
            if has_rows:
                first = min(first, layout.issuer_span[begin + issuer])
    return int(np.searchsorted(layout.group_ptr, first, side="right") - 1)


@leaf
def catch_up(first: int, group_ptr: Array, t: ProgramTables) -> None:
    """Ends and marks before group `first` are those of the current strategy, as they were up to `first_differing`."""
    counter = t.counter[0]
    for b in range(group_ptr[counter.first_differing], group_ptr[first]):
        for k in range(t.new_span[b].end, t.new_span[b].end + t.new_span[b].count):
            t.new_end[k] = t.end[k]
    for mark in range(counter.first_differing // counter.every, first // counter.every):
        for k in range(t.free.shape[1]):
            t.new_free[mark, k], t.new_done[mark, k] = t.free[mark, k], t.done[mark, k]
    counter.first_differing = first


# -- memory ----------------------------------------------------------------------------------------------------------


@tiered
def alive_peak(
    change: Array,
    alive: Array,
    regions: Array,
    old: Array,
    new: Array,
    sizes: Array,
    peak: Array,
    affected: Array,
    keeps: bool,
) -> None:
    """The most bytes that are alive on each device at any time, if all instances of a region live as long as it does.

    Args:
        change: (devices, operators + 1) bytes that become alive before each operator, less those that die before it.
        alive: see `Layout`.
        regions, old, new: those that change, and the fragments of all regions in the current and the proposed strategy.
        sizes: (fragments, devices) bytes.
        peak: of the devices before the change; gets those after it.
        affected: (devices,) memory for whether a device has other sizes.
        keeps: leave `change` changed.
    """
    affected[:] = False
    change_sizes(change, alive, regions, old, new, sizes, affected, 1)
    for device in range(len(peak)):
        if affected[device]:
            now, most = 0, 0
            for op in range(change.shape[1]):
                now += change[device, op]
                most = max(most, now)
            peak[device] = most
    if not keeps:
        change_sizes(change, alive, regions, old, new, sizes, affected, -1)


@leaf
def change_sizes(
    change: Array,
    alive: Array,
    regions: Array,
    old: Array,
    new: Array,
    sizes: Array,
    affected: Array,
    sign: int,
) -> None:
    """Exchange the fragments of some regions in `change`, or take that back."""
    for r in regions:
        for device in range(len(affected)):
            more = sizes[new[r], device] - (sizes[old[r], device] if old[r] >= 0 else 0)
            if more != 0:
                affected[device] = True
                change[device, alive[r].first] += sign * more
                change[device, alive[r].last + 1] -= sign * more
