"""What is needed of a region where, which instances it takes, and who sums what of partial results.

Compiled by numba; see `movement` for the rules. What is summed where is the least that any algorithm moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import (
    covers,
    hash_of,
    intersect,
    is_empty,
    overlaps,
    put,
    same,
    split_evenly,
    subtract,
    volume,
)
from taskflow.lowering.life import ADDS, READS, RegionLife
from taskflow.lowering.line import Line, near
from taskflow.lowering.state import State, add_instance, append, find_instance
from taskflow.lowering.tiles import Points, by_number


@leaf
def add_need(s: State, version: int, device: int, box: Any) -> None:
    """The version is needed in the box on `device`; each need counts once."""
    slot = hash_of(box, version * s.devices + device) % len(s.need_slot)
    k = s.need_slot[slot]
    while k >= 0:
        need = s.need[k]
        if need.device == device and need.version == version and same(s.need_box[k], box):
            return
        k = need.before
    k = append(s, s.needs, len(s.need))
    if k < 0:
        return
    s.needs += 1
    put(s.need_box[k], box)
    new = s.need[k]
    of_version = s.version_needs[version]
    new.version = version
    new.device = device
    new.next = -1
    new.before = s.need_slot[slot]
    s.need_slot[slot] = k
    if of_version.first < 0:
        of_version.first = k
    else:
        s.need[of_version.last].next = k
    of_version.last = k


@inner
def gather_needs(s: State, life: RegionLife, points: Points, fetch: Any, turn: Any) -> Any:
    """What readers need of each version; returns the needs that are the homes of a persistent region.

    Where points have turns (see `turns_of`) what they need counts as a version for each turn.
    """
    last = len(life.producer) - 1
    for version in range(last + 1):
        for e in range(len(life.event)):
            if life.event[e].version == version:
                for p in range(life.event_ptr[e], life.event_ptr[e + 1]):
                    if not is_empty(points.box[p]) and needs_value(life, e, points.colour[p]):
                        number = turn[p] if len(turn) else version
                        add_need(s, number, points.device[p], points.box[p])
    homes = np.empty(0, np.int64)
    if life.is_persistent:
        if s.version_needs[0].first < 0:  # nobody reads it: it lives where it is fetched
            for device in fetch:
                add_need(s, 0, device, life.whole)
        keep_unread(s, life.whole)
        homes = needs_of(s, 0)
        for k in homes:
            add_need(s, last, s.need[k].device, s.need_box[k])
    for device in fetch:
        add_need(s, last, device, life.whole)
    return homes


@inner
def turns_of(life: RegionLife, points: Points, ordinal: Any) -> Any:
    """Per point the turn in which it reads what is gathered so often, its micro-batch; none: all read it at once.

    So it is where one event makes the region and all others read it, between steps nobody, and some device has several
    points of a reader. Points of one micro-batch, of pieces of it say, follow each other.
    """
    none = np.empty(0, np.int64)
    turns = ordinal * life.gathers
    is_kept = life.is_persistent or life.is_fetched or len(life.producer) != 1
    if life.gathers < 2 or not len(ordinal) or is_kept or life.producer[0] < 0:
        return none
    for e in range(len(life.event)):
        if life.is_partial[e] or (e != life.producer[0] and life.event[e].role != READS):
            return none
        span = slice(life.event_ptr[e], life.event_ptr[e + 1])
        turns[span] //= np.bincount(points.device[span])[points.device[span]]
    return turns


@leaf
def needs_value(life: RegionLife, e: int, colour: int) -> bool:
    """Whether points of this colour need the version before, whole.

    Of those that add parts to it, only the first do; who reads its parts does not.
    """
    return bool(not life.is_partial[e] or (life.event[e].role == ADDS and colour == 0))


@inner
def keep_unread(s: State, whole: Any) -> None:
    """What nobody uses lives on the device of the first need, or on the first, since it can be read and written between
    steps.
    """
    first = s.version_needs[0].first
    device = s.need[first].device if first >= 0 else 0
    put(s.work[0], whole)
    left = 1
    for k in needs_of(s, 0):
        left = cut_out(s, left, s.need_box[k])
    for i in range(left):
        add_need(s, 0, device, s.work[i])


@inner
def needs_of(s: State, version: int) -> Any:
    """The needs of a version, in order."""
    count = 0
    k = s.version_needs[version].first
    while k >= 0:
        count = count + 1
        k = s.need[k].next
    needs = np.empty(count, np.int64)
    count = 0
    k = s.version_needs[version].first
    while k >= 0:
        needs[count] = k
        count = count + 1
        k = s.need[k].next
    return needs


@leaf
def cut_out(s: State, left: int, box: Any) -> int:
    """Take a box out of the first boxes in `work`; how many there are then."""
    is_hit = False
    for i in range(left):
        is_hit = is_hit or overlaps(s.work[i], box)
    if not is_hit:
        return left
    cut = 0
    for i in range(left):
        cut = subtract(s.spare, cut, s.work[i], box)
    if cut > len(s.spare):
        s.is_full = 1
        return 0
    for i in range(cut):
        put(s.work[i], s.spare[i])
    return cut


@leaf
def missing(s: State, need: int) -> int:
    """How many boxes of a needed one are not valid on its device; they are left in `work`."""
    target = find_instance(s, s.need[need].device, s.need_box[need])
    if target < 0:
        return 0
    put(s.work[0], s.need_box[need])
    left = 1
    k = s.instance[target].first_held
    while k >= 0 and left:
        left = cut_out(s, left, s.held_box[k])
        k = s.held[k].next
    return left


@inner
def make_instances(s: State, life: RegionLife, points: Points, needs: Any) -> None:
    """One instance per device for every box that is needed, or produced, and is not inside a larger one."""
    total = len(needs)
    for e in life.producer:
        total += 0 if e < 0 or life.is_partial[e] else life.event_ptr[e + 1] - life.event_ptr[e]
    device = np.empty(total, np.int64)
    box = np.empty((total, s.width), np.int64)
    n = len(needs)
    for i in range(n):
        device[i] = s.need[needs[i]].device
        put(box[i], s.need_box[needs[i]])
    for e in life.producer:
        if e >= 0 and not life.is_partial[e]:
            for p in range(life.event_ptr[e], life.event_ptr[e + 1]):
                device[n] = points.device[p]
                put(box[n], points.box[p])
                n += 1
    last = -1
    # The first instance of the device that is as large as the last box, among those that are new.
    beside = -1
    for k in sorted_boxes(device, box, s.devices):
        if last < 0 or device[last] != device[k] or volume(box[last]) != volume(box[k]):
            beside = -1
        elif same(box[last], box[k]):
            continue
        last = k
        if not is_empty(box[k]) and not is_covered(s, device[k], box[k], beside):
            new = add_instance(s, device[k], box[k], False)
            at = s.device[device[k]]
            beside = new if beside < 0 else beside
            if new >= 0:
                if at.first_value < 0:
                    at.first_value = new
                else:
                    s.instance[at.last_value].next = new
                at.last_value = new


@leaf
def is_covered(s: State, device: int, box: Any, end: int) -> bool:
    """Whether an instance of a device that stands before instance `end` covers a box."""
    k = s.device[device].first_value
    while k >= 0 and k != end:
        if covers(s.instance_box[k], box):
            return True
        k = s.instance[k].next
    return False


@inner
def sorted_boxes(device: Any, box: Any, devices: int) -> Any:
    """An order by device, then by decreasing volume, then by corners."""
    order, ptr = by_number(device, devices)
    for j in range(len(order)):  # an insertion sort within every device
        k = order[j]
        low = ptr[device[order[j]]]
        high = j
        middle = max(low, high - 1)  # most come in order
        while low < high:
            if comes_before(box[k], box[order[middle]]):
                high = middle
            else:
                low = middle + 1
            middle = (low + high) // 2
        for i in range(j, low, -1):
            order[i] = order[i - 1]
        order[low] = k
    return order


@leaf
def comes_before(a: Any, b: Any) -> bool:
    """The larger box first, then by lower corner, then by upper corner."""
    size = volume(a)
    other = volume(b)
    if size != other:
        return bool(size > other)
    for side in range(2):
        for k in range(side, len(a), 2):
            if a[k] != b[k]:
                return bool(a[k] < b[k])
    return False


# -- owners of sums ----------------------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """What of a tile is needed, and by which device."""

    box: Any
    device: Any


@inner
def owners_of(s: State, tile: Any, holds: Any, needs: Line) -> tuple[Any, Any]:
    """Which device sums which part of a tile; `holds`: who has a partial result of it, `needs`: of the version.

    The tile is cut at the borders of the needed boxes; a part that one device needs is summed there, one that several
    need is shared out among them, those first that hold a partial result already.
    """
    wanted = wanted_of(s, tile, needs)
    parts = cut_at_borders(s, tile, wanted.box)
    owner = np.empty(s.devices, np.int64)
    owned = np.empty((s.devices, s.width), np.int64)
    able = np.empty(s.devices, np.bool_)
    cut = np.empty((s.devices, s.width), np.int64)
    count = 0
    for i in range(len(parts)):
        if count + s.devices > len(owner):
            owner = np.concatenate((owner, owner))
            owned = np.concatenate((owned, owned))
        devices = able_of(s, parts[i], wanted, holds, able)
        if devices:
            split_evenly(cut, parts[i], devices, s.is_scalar)
        part = 0
        for device in range(s.devices):
            if able[device]:
                if not is_empty(cut[part]):
                    owner[count] = device
                    put(owned[count], cut[part])
                    count += 1
                part += 1
    return owner[:count], owned[:count]


@inner
def wanted_of(s: State, tile: Any, needs: Line) -> Wanted:
    """What of a tile is needed of the version that is being moved."""
    around = near(needs, tile)
    count = 0
    box = np.empty((len(around), s.width), np.int64)
    device = np.empty(len(around), np.int64)
    for k in around:
        if overlaps(s.need_box[k], tile):
            intersect(box[count], s.need_box[k], tile)
            device[count] = s.need[k].device
            count += 1
    return Wanted(box[:count], device[:count])


@leaf
def able_of(s: State, part: Any, wanted: Wanted, holds: Any, able: Any) -> int:
    """Set who shares a part: those who need it, and if some of them hold a partial result, these; how many."""
    has_holder = False
    count = 0
    for device in range(s.devices):
        able[device] = False
    for k in range(len(wanted.device)):
        if covers(wanted.box[k], part):
            able[wanted.device[k]] = True
            has_holder = has_holder or holds[wanted.device[k]]
    for device in range(s.devices):
        able[device] = able[device] and (holds[device] or not has_holder)
        count += able[device]
    return count


@inner
def cut_at_borders(s: State, tile: Any, wanted: Any) -> Any:
    """The tile in parts such that every wanted box is a union of parts."""
    put(s.work[0], tile)
    count = 1
    seen = np.empty(len(wanted), np.int64)
    distinct = 0
    for k in range(len(wanted)):
        j = 0
        while j < distinct and not same(wanted[seen[j]], wanted[k]):
            j += 1
        if j == distinct:
            seen[distinct] = k
            distinct += 1
            count = cut_along(s, count, wanted[k])
    return s.work[:count].copy()


@leaf
def cut_along(s: State, count: int, box: Any) -> int:
    """Cut each of the first boxes in `work` in what lies in the box and what does not; the new number."""
    n = 0
    for i in range(count):
        if overlaps(s.work[i], box):
            if n < len(s.spare):
                intersect(s.spare[n], s.work[i], box)
            n += 1
        n = subtract(s.spare, n, s.work[i], box)
    if n > len(s.spare):
        s.is_full = 1
        return 0
    for i in range(n):
        put(s.work[i], s.spare[i])
    return n
