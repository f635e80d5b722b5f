"""Laying the rows of a strategy into a program, compiled by numba; see `program.Program`.

What is laid anew are the stretches that have to do with a changed region: operators that touch it, and its versions.
Their rows are put behind all that lie there, so that nothing is lost when the proposal is not accepted. Where the ends
of a stretch stand stays the same unless it has another number of rows; then all that wait for it are laid anew as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from taskflow.core.compiling import leaf

# Places in `Program.top`: how far `code`, ends and `chain` are filled, now and (behind NEW) with what is proposed; how
# many stretches are laid anew, from which stretch on the proposed ends are not the current ones, and a counter.
CODE, END, CHAIN, NEW, LAID, DIRTY, STAMP = 0, 1, 2, 3, 6, 7, 8


class Rows(NamedTuple):
    """The entries of a pool, as far as their seconds matter; see `packing.Packed`, and `streams.Queues`.

    Attributes:
        op_rows: (n, 2) first row and number of every entry of an operator.
    """

    op_rows: Any
    entry: Any
    version: Any
    run_ptr: Any
    run: Any
    seconds: Any
    queue: Any
    within_ptr: Any
    within: Any
    queue_ptr: Any
    streams: Any


@leaf
def lay_changed(
    regions: Any, new_op: Any, new_fragment: Any, stretch: Any, touch_ptr: Any, touch: Any, local_ptr: Any, local: Any,
    rows: Rows, top: Any, place: Any, new_place: Any, laid: Any, stamp: Any, code: Any, seconds: Any, chain: Any,
    ends: int,
) -> int:  # fmt: skip
    """Lay all stretches that changed regions have to do with: 0, or how many rows there should be room for."""
    for k in range(3):
        top[NEW + k] = top[k]
    top[STAMP] += 1
    for r in regions:
        for k in range(local_ptr[r], local_ptr[r + 1]):
            if stamp[local[k]] != top[STAMP]:
                stamp[local[k]] = top[STAMP]
                laid[top[LAID]] = local[k]
                top[LAID] += 1
    found = laid[: top[LAID]]
    find_places(found, new_op, new_fragment, stretch, rows, top, place, new_place)
    needed = int(top[NEW + CODE] - top[CODE])
    if top[NEW + CODE] > len(code) or top[NEW + END] > ends:
        return needed
    lay_rows(found, new_place, code, seconds, rows)
    lay_within(found, stretch, new_place, top, code, chain, rows)
    lay_runs(found, new_fragment, touch_ptr, touch, local_ptr, local, rows, top, new_place, code, chain)
    return needed if top[NEW + CHAIN] > len(chain) else 0


@leaf
def find_places(
    laid: Any, op: Any, fragment: Any, stretch: Any, rows: Rows, top: Any, place: Any, new_place: Any
) -> None:
    """Room for the rows of the stretches, and for their ends where there are more or fewer than before."""
    for b in laid:
        if stretch[b, 0] >= 0:
            at = op[stretch[b, 0]]
            pool_row, number = rows.op_rows[at, 0], rows.op_rows[at, 1]
        else:
            at = rows.entry[fragment[stretch[b, 1]], 2] + stretch[b, 2]
            pool_row, number = rows.version[at, 0], rows.version[at, 1]
        new_place[b, 0], new_place[b, 1], new_place[b, 2] = top[NEW + CODE], place[b, 1], number
        new_place[b, 3] = pool_row
        top[NEW + CODE] += number
        if number != place[b, 2]:
            new_place[b, 1] = top[NEW + END]
            top[NEW + END] += number


@leaf
def lay_rows(laid: Any, place: Any, code: Any, seconds: Any, rows: Rows) -> None:
    """Seconds and streams of the rows of the stretches."""
    for b in laid:
        at = place[b, 0]
        for row in range(place[b, 3], place[b, 3] + place[b, 2]):
            queue = rows.queue[row]
            begin, count = rows.queue_ptr[queue], rows.queue_ptr[queue + 1] - rows.queue_ptr[queue]
            seconds[at] = rows.seconds[row]
            code[at, 0] = code[at, 6] = code[at, 7] = rows.streams[begin]
            code[at, 1] = rows.streams[begin + 1] if count > 1 else rows.streams[begin]
            if count > 2:
                code[at, 6], code[at, 7] = rows.streams[begin + 2], rows.streams[begin + min(count, 4) - 1]
            code[at, 2] = code[at, 3] = code[at, 4] = 0
            code[at, 5] = queue if count > 4 else 0
            at += 1


@leaf
def lay_within(laid: Any, stretch: Any, place: Any, top: Any, code: Any, chain: Any, rows: Rows) -> None:
    """What rows of a version wait for within it."""
    for b in laid:
        if stretch[b, 0] < 0:
            for i in range(place[b, 2]):
                row = place[b, 3] + i
                for k in range(rows.within_ptr[row], rows.within_ptr[row + 1]):
                    await_ends(place[b, 0] + i, 0, place[b, 1] + rows.within[k], 0, 1, top, code, chain)


@leaf
def lay_runs(
    laid: Any, fragment: Any, touch_ptr: Any, touch: Any, local_ptr: Any, local: Any, rows: Rows, top: Any, place: Any,
    code: Any, chain: Any,
) -> None:  # fmt: skip
    """What the rows of the stretches wait for in others."""
    run = rows.run
    for b in laid:
        for t in range(touch_ptr[b], touch_ptr[b + 1]):
            region = touch[t, 0]
            slot = rows.entry[fragment[region], 3] + touch[t, 1]
            for r in range(rows.run_ptr[slot], rows.run_ptr[slot + 1]):
                waits = place[b, 0] + run[r, 0]
                awaited = place[local[local_ptr[region] + run[r, 1]], 1] + run[r, 2]
                await_ends(waits, run[r, 3], awaited, run[r, 4], run[r, 5], top, code, chain)


@leaf
def await_ends(
    row: int, step: int, awaited: int, further: int, count: int, top: Any, code: Any, chain: Any
) -> None:  # fmt: skip
    """Let `count` lines wait for as many ends, or one line for all of them; for the earliest of `-count` if negative.

    What finds no room is counted only.
    """
    if count < 0:
        add_link(row, awaited, further, count, top, code, chain)
    for _ in range(count):
        if code[row, 2] == 0:
            code[row, 2] = awaited
        elif code[row, 3] == 0:
            code[row, 3] = awaited
        else:
            add_link(row, awaited, further, count if step == 0 else 1, top, code, chain)
            if step == 0:
                return
        row += step
        awaited += further
        count -= 1


@leaf
def add_link(row: int, awaited: int, further: int, count: int, top: Any, code: Any, chain: Any) -> None:
    """Put ends in front of the chain of a line."""
    k = top[NEW + CHAIN]
    top[NEW + CHAIN] += 1
    if k < len(chain):
        chain[k, 0], chain[k, 1], chain[k, 2], chain[k, 3] = awaited, further, count, code[row, 4]
        code[row, 4] = k
