"""Memoised fragments of regions, compiled by numba: a hash table from what a fragment depends on to its number.

The key of a fragment is the kind of the region's life, the numbers of the points of the operators that touch it, and,
of a region that is fetched, the devices in use, as operators name them. Of a constant (a learning rate, which all
updates read) it is the devices of these operators alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined, inner, leaf, tiered
from taskflow.searching.layout import BY_DEVICES, BY_POINTS_AND_USED, Chosen, Layout

FREE = -1


class Memo(NamedTuple):
    """The hash table: open addressing, linear probing.

    Attributes:
        table: numbers of fragments, or FREE; at least twice as long as there are fragments.
        key, key_ptr: the key of fragment k is `key[key_ptr[k] : key_ptr[k + 1]]`.
    """

    table: Array
    key: Array
    key_ptr: Array


class Changes(NamedTuple):
    """What a proposal changes.

    Attributes:
        used: of the three others, how many are in use.
        ops, regions, missing: operators and regions that change, and regions whose fragments have to be made.
    """

    used: Array
    ops: Array
    regions: Array
    missing: Array


@leaf
def hash_of(key: Array) -> int:
    """A number of 43 bits: what is multiplied fits into 63."""
    found = 0
    for number in key:
        found = ((found ^ number) * 1000003 + 12345) & 0x7FFFFFFFFFF
        found ^= found >> 17
    return found


@leaf
def find(memo: Memo, fragment: int) -> int:
    """Where a fragment with the key of this one is in the table, or where it belongs."""
    key = memo.key[memo.key_ptr[fragment] : memo.key_ptr[fragment + 1]]
    at = hash_of(key) % len(memo.table)
    while memo.table[at] != FREE and not has_key(memo, memo.table[at], key):
        at = at + 1 if at + 1 < len(memo.table) else 0
    return int(at)


@inlined
def has_key(memo: Memo, fragment: int, key: Array) -> bool:
    """Whether a fragment has this key."""
    first = memo.key_ptr[fragment]
    if memo.key_ptr[fragment + 1] - first != len(key):
        return False
    for k in range(len(key)):  # noqa: SIM110
        if memo.key[first + k] != key[k]:
            return False
    return True


@tiered
def refill(table: Array, key: Array, key_ptr: Array, fragments: int) -> None:
    """Put all fragments into an empty table."""
    for fragment in range(fragments):
        table[find(Memo(table, key, key_ptr), fragment)] = fragment


@tiered
def forget_last(table: Array, key: Array, key_ptr: Array, first: int, end: int) -> None:
    """Take out the fragments that were put in last, from number `first` to before `end`."""
    for fragment in range(end - 1, first - 1, -1):
        table[find(Memo(table, key, key_ptr), fragment)] = FREE


@tiered
def find_fragments(
    columns: Array,
    old: tuple[Array, ...],
    new: tuple[Array, ...],
    record: Array,
    device: Array,
    of_graph: tuple[Array, ...],
    of_memo: tuple[Array, Array, Array],
    fragments: int,
    changes: tuple[Array, ...],
) -> None:
    """The fragments of all regions that other points of some operators change.

    Args:
        columns: (3, n) operators, the numbers of their new points, and of the rows of these.
        old, new: `Chosen` of the current strategy, and of the proposal before this, which becomes this one.
        record, device: of all points, see `pointtable.PointTable`.
        of_graph, of_memo: `Layout` and `Memo`, which has room for one more fragment a region.
        fragments: how many there are; those that are missing get the next numbers.
        changes: `Changes` of the proposal before this, which become those of this one.
    """
    current, proposed, layout = Chosen(*old), Chosen(*new), Layout(*of_graph)
    memo, found = Memo(*of_memo), Changes(*changes)
    take_back(current, proposed, found)
    found.used[0] = change_points(columns, current, proposed, record, device, found.ops)
    marked = mark_regions(found.ops[: found.used[0]], current, proposed, layout)
    found.used[1], found.used[2] = 0, 0
    is_used = np.zeros(len(proposed.presence), np.bool_)
    for r in range(len(layout.kind)):
        if not marked[r]:
            continue
        put_key(r, fragments, proposed, record, device, layout, memo, is_used)
        at = find(memo, fragments)
        if memo.table[at] == FREE:
            memo.table[at] = fragments
            found.missing[found.used[2]] = r
            found.used[2] += 1
            fragments += 1
        proposed.fragment[r] = memo.table[at]
        if proposed.fragment[r] != current.fragment[r]:
            found.regions[found.used[1]] = r
            found.used[1] += 1


@leaf
def take_back(current: Chosen, proposed: Chosen, found: Changes) -> None:
    """The proposal is the current strategy again."""
    for op in found.ops[: found.used[0]]:
        proposed.points[op], proposed.rows[op] = current.points[op], current.rows[op]
    for r in found.regions[: found.used[1]]:
        proposed.fragment[r] = current.fragment[r]
    for d in range(len(current.presence)):
        proposed.presence[d], proposed.used[d] = current.presence[d], current.used[d]


@inner
def change_points(
    columns: Array, current: Chosen, proposed: Chosen, record: Array, device: Array, ops: Array
) -> int:
    """Give operators other points where they are others; how many there are, which are put into `ops`."""
    count, seen = 0, np.full(len(proposed.presence), -1, np.int64)
    for i in range(columns.shape[1]):
        op, points = columns[0, i], columns[1, i]
        if points == current.points[op]:
            continue
        proposed.points[op], proposed.rows[op] = points, columns[2, i]
        count_devices(proposed.presence, record[points], device, 1, seen, 2 * i)
        if current.points[op] >= 0:
            count_devices(
                proposed.presence, record[current.points[op]], device, -1, seen, 2 * i + 1
            )
        ops[count] = op
        count += 1
    name_devices(proposed, record, device, np.zeros(len(seen), np.bool_))
    return count


@leaf
def count_devices(
    presence: Array, record: np.record, device: Array, change: int, seen: Array, number: int
) -> None:
    """Count an operator, or no longer, on every device that has a point of it; `seen` gets a number of this call."""
    for p in range(record.first_device, record.first_device + record.points):
        if seen[device[p]] != number:
            seen[device[p]] = number
            presence[device[p]] += change


@leaf
def name_devices(proposed: Chosen, record: Array, device: Array, is_named: Array) -> None:
    """Set `used`; `is_named` is memory: nobody is named yet."""
    left, count, op = 0, 0, 0
    for d in range(len(is_named)):
        left += proposed.presence[d] > 0
        proposed.used[d] = -1
    while left and op < len(proposed.points):
        of = record[proposed.points[op]]
        for p in range(of.first_device, of.first_device + of.points):
            if not is_named[device[p]]:
                is_named[device[p]] = True
                proposed.used[count] = device[p]
                count, left = count + 1, left - 1
        op += 1


@inner
def mark_regions(ops: Array, current: Chosen, proposed: Chosen, layout: Layout) -> Array:
    """Whether a region changes: an operator that touches it does, or it is fetched and others are in `used`."""
    marked, differs = np.zeros(len(layout.depends), np.bool_), False
    for op in ops:
        for k in range(layout.region_ptr[op], layout.region_ptr[op + 1]):
            marked[layout.region[k]] = True
    for d in range(len(proposed.used)):
        differs = differs or proposed.used[d] != current.used[d]
    for r in range(len(layout.depends) if differs else 0):
        marked[r] |= layout.depends[r] == BY_POINTS_AND_USED
    return marked


@leaf
def put_key(
    r: int,
    fragment: int,
    proposed: Chosen,
    record: Array,
    device: Array,
    layout: Layout,
    memo: Memo,
    is_used: Array,
) -> None:
    """Write the key of a region's fragment; `is_used` is memory."""
    at = memo.key_ptr[fragment]
    memo.key[at] = layout.kind[r]
    at += 1
    ops = layout.op[layout.op_ptr[r] : layout.op_ptr[r + 1]]
    if layout.depends[r] == BY_DEVICES:
        mark_devices(ops, proposed.points, record, device, is_used)
        at = put_marked(memo.key, at, is_used)
    else:
        for op in ops:
            memo.key[at] = proposed.points[op]
            at += 1
    if layout.depends[r] == BY_POINTS_AND_USED:
        for d in proposed.used:
            memo.key[at] = d
            at += 1
    memo.key_ptr[fragment + 1] = at


@leaf
def mark_devices(ops: Array, points: Array, record: Array, device: Array, is_used: Array) -> None:
    """Mark the devices that have points of some operators."""
    left = len(is_used)
    for d in range(left):
        is_used[d] = False
    for op in ops:
        first, count = record[points[op]].first_device, record[points[op]].points
        for p in range(first, first + count):
            left -= not is_used[device[p]]
            is_used[device[p]] = True
        if left == 0:
            break


@leaf
def put_marked(key: Array, at: int, marks: Array) -> int:
    """Append the numbers of the devices that are marked to a key; its new end."""
    for d in range(len(marks)):
        if marks[d] > 0:
            key[at] = d
            at += 1
    return at
