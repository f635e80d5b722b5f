"""Finding the entries of regions in a pool, compiled by numba: a hash table from what a fragment depends on.

The key of an entry is the kind of the region's life, the numbers of the points of the operators that touch it, and, of
a region that is fetched, the devices in use. Of a constant (a learning rate, which all updates read) it is the devices
of these operators alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf, njit
from taskflow.searching.stretches import BY_DEVICES, BY_POINTS_AND_USED

FREE = -1


@leaf
def hash_of(keys: Any, begin: int, end: int) -> Any:
    """A number of 43 bits: what is multiplied fits into 63."""
    found = 0
    for k in range(begin, end):
        found = ((found ^ keys[k]) * 1000003 + 12345) & 0x7FFFFFFFFFF
        found ^= found >> 17
    return found


@leaf
def place_of(table: Any, keys: Any, key_ptr: Any, entry: int) -> int:
    """Where an entry with the key of this one stands in the table, or the place where it belongs."""
    begin, end = key_ptr[entry], key_ptr[entry + 1]
    at = hash_of(keys, begin, end) % len(table)
    while table[at] != FREE and not is_same(keys, key_ptr, table[at], begin, end):
        at = at + 1 if at + 1 < len(table) else 0
    return int(at)


@leaf
def is_same(keys: Any, key_ptr: Any, other: int, begin: int, end: int) -> bool:
    """Whether an entry's key is `keys[begin:end]`."""
    first = key_ptr[other]
    if key_ptr[other + 1] - first != end - begin:
        return False
    for k in range(end - begin):  # noqa: SIM110
        if keys[first + k] != keys[begin + k]:
            return False
    return True


@njit
def refill(table: Any, keys: Any, key_ptr: Any, entries: int) -> None:
    """Put all entries into an empty table."""
    for entry in range(entries):
        table[place_of(table, keys, key_ptr, entry)] = entry


@njit
def forget_last(table: Any, keys: Any, key_ptr: Any, first: int, end: int) -> None:
    """Take out the entries that were put in last, from number `first` to before `end`."""
    for entry in range(end - 1, first - 1, -1):
        table[place_of(table, keys, key_ptr, entry)] = FREE


@leaf
def add_presence(presence: Any, points: int, record: Any, place: Any, change: int, seen: Any, stamp: int) -> None:
    """Count an operator, or no longer, on every device that has a point of it; `seen` is marked with the stamp."""
    for p in range(record[points].first_device, record[points].first_device + record[points].points):
        if seen[place[p]] != stamp:
            seen[place[p]] = stamp
            presence[place[p]] += change


@inner
def change_points(
    columns: Any, old: Any, new: Any, old_op: Any, new_op: Any, presence: Any, record: Any, place: Any, slots: Any
) -> int:
    """Give operators other points where they are others; how many there are, which are put into `slots`."""
    count, seen = 0, np.full(len(presence), -1, np.int64)
    for i in range(columns.shape[1]):
        slot, number = columns[0, i], columns[1, i]
        if number == old[slot]:
            continue
        new[slot], new_op[slot] = number, columns[2, i]
        add_presence(presence, number, record, place, 1, seen, 2 * i)
        if old[slot] >= 0:
            add_presence(presence, old[slot], record, place, -1, seen, 2 * i + 1)
        slots[count] = slot
        count += 1
    return count


@inner
def mark_regions(slots: Any, region_ptr: Any, region: Any, presence: Any, old_presence: Any, keyed: Any) -> Any:
    """Whether a region changes: an operator that touches it does, or it is fetched and other devices are in use."""
    marked, differs = np.zeros(len(keyed), np.bool_), False
    for slot in slots:
        for k in range(region_ptr[slot], region_ptr[slot + 1]):
            marked[region[k]] = True
    for d in range(len(presence)):
        differs = differs or (presence[d] > 0) != (old_presence[d] > 0)
    for r in range(len(keyed) if differs else 0):
        marked[r] |= keyed[r] == BY_POINTS_AND_USED
    return marked


@leaf
def put_devices(keys: Any, at: int, ops: Any, numbers: Any, record: Any, place: Any, is_used: Any) -> int:
    """Append the devices that have points of some operators; the new end of the key."""
    left = len(is_used)
    for d in range(len(is_used)):
        is_used[d] = False
    for slot in ops:
        first, count = record[numbers[slot]].first_device, record[numbers[slot]].points
        for p in range(first, first + count):
            left -= not is_used[place[p]]
            is_used[place[p]] = True
        if left == 0:
            break
    for d in range(len(is_used)):
        if is_used[d]:
            keys[at] = d
            at += 1
    return at


@njit
def find_entries(
    columns: Any,
    old: Any,
    new: Any,
    old_op: Any,
    new_op: Any,
    old_fragment: Any,
    new_fragment: Any,
    old_presence: Any,
    presence: Any,
    record: Any,
    place: Any,
    region_ptr: Any,
    region: Any,
    op_ptr: Any,
    op: Any,
    kind: Any,
    keyed: Any,
    entries: int,
    table: Any,
    keys: Any,
    key_ptr: Any,
    counts: Any,
    slots: Any,
    regions: Any,
    missing: Any,
) -> None:
    """The entries of all regions that other points of some operators change.

    Args:
        columns: (3, n) operators, the numbers of their new points, and their entries.
        old, new, old_op, new_op: points and entries of all operators, -1 for none; those of the current strategy, and
            those of the one before this, which get those of this one.
        old_fragment, new_fragment: the same of the entries of all regions.
        old_presence, presence: per device, how many operators have points there; the second is filled in.
        record, place: see `pointtable.PointTable`.
        region_ptr, region, op_ptr, op, kind, keyed: see `stretches.Layout`.
        entries: how many there are; table, keys, key_ptr: of them, with room for one more a region.
        counts, slots, regions, missing: get the operators that changed, the regions, and those whose entries have to be
            made, in this order; they hold what the proposal before this had.
    """
    for slot in slots[: counts[0]]:
        new[slot], new_op[slot] = old[slot], old_op[slot]
    for r in regions[: counts[1]]:
        new_fragment[r] = old_fragment[r]
    presence[:] = old_presence
    counts[0] = change_points(columns, old, new, old_op, new_op, presence, record, place, slots)
    marked = mark_regions(slots[: counts[0]], region_ptr, region, presence, old_presence, keyed)
    counts[1] = counts[2] = 0
    is_used = np.zeros(len(presence), np.bool_)
    for r in range(len(kind)):
        if not marked[r]:
            continue
        at = key_ptr[entries]
        keys[at] = kind[r]
        at += 1
        if keyed[r] == BY_DEVICES:
            at = put_devices(keys, at, op[op_ptr[r] : op_ptr[r + 1]], new, record, place, is_used)
        else:
            for k in range(op_ptr[r], op_ptr[r + 1]):
                keys[at] = new[op[k]]
                at += 1
        if keyed[r] == BY_POINTS_AND_USED:
            for d in range(len(presence)):
                if presence[d] > 0:
                    keys[at] = d
                    at += 1
        key_ptr[entries + 1] = at
        at = place_of(table, keys, key_ptr, entries)
        if table[at] != FREE:
            new_fragment[r] = table[at]
        else:
            table[at] = new_fragment[r] = entries
            missing[counts[2]] = r
            counts[2] += 1
            entries += 1
        if new_fragment[r] != old_fragment[r]:
            regions[counts[1]] = r
            counts[1] += 1
