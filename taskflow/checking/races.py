"""Races: every order that two rows need, because of what they touch, is implied by what makes rows wait. Compiled.

Rows need an order where one of them writes what the other touches: overlapping boxes of an instance, or, with a memory
plan, instances that lie in the same bytes. Per instance the accesses are kept that a later one may need to wait for: a
write drops those that it covers, a read the reads of the same box that are over. Per device the bytes are kept by the
instance that had them last; an instance that is written first takes over its bytes, and every write to it must wait
for all that is kept of the instances before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.checking.clocks import Clocks, Waits, hear, is_over, keep
from taskflow.checking.pieces import copy_box, covers, is_same, overlaps
from taskflow.checking.rules import BROKEN, DONE, PlanFault, Rule, refuse
from taskflow.core.columns import Array, record
from taskflow.core.compiling import leaf, tiered
from taskflow.core.pointers import pointer_to

TOUCH = record("arg", "instance", "access")
ACCESS = record("row", "touch", "next")
OWNER = record("dims", "head", "device", "begin", "end", "is_born", "is_gone", "before")
SEGMENT = record("begin", "end", "instance", "next")
TAKEN = record("instance", "next")
READS = 0
WRITES = 1
WRITES_ALL = 2  # the last one: whatever the box is


class Touches(NamedTuple):
    """What rows touch.

    Attributes:
        ptr: the touches of row k are `touch[ptr[k] : ptr[k + 1]]`.
        touch: `TOUCH` records; access is READS, WRITES or WRITES_ALL.
        box: of every touch.
    """

    ptr: Array
    touch: Array
    box: Array


class Arenas(NamedTuple):
    """Who touched an instance last, and who has which bytes.

    Attributes:
        owner: `OWNER` records of instances: the last `ACCESS` that is kept, bytes in the arena of the device, whether
            it took them and another has since, and the last of those whose bytes it took. No bytes: no memory plan.
        kept: `ACCESS` records, lists.
        head, segment: per device its bytes in order, `SEGMENT` records.
        taken: `TAKEN` records, lists.
        used: number of kept ones, of segments and of taken ones.
    """

    owner: Array
    kept: Array
    head: Array
    segment: Array
    taken: Array
    used: Array


class Watch(NamedTuple):
    """All that the pass reads and writes."""

    order: Waits
    clocks: Clocks
    touches: Touches
    arenas: Arenas
    fault: PlanFault


@tiered
def follow_order(
    order: tuple[Array, ...],
    clocks: tuple[Array, ...],
    touches: tuple[Array, ...],
    arenas: tuple[Array, ...],
    ends: tuple[Array, Array],
    fault: tuple[Array, ...],
) -> int:
    """Pass over all rows; how it ended, see `rules`. The arguments are named tuples as plain ones.

    `ends`: instances that have bytes before the first row, and those that must have them after the last.
    """
    tables = Waits(*order), Clocks(*clocks), Touches(*touches), Arenas(*arenas), PlanFault(*fault)
    w: Watch = pointer_to(Watch(*tables))
    rows = len(w.touches.ptr) - 1
    for k in range(len(ends[0])):
        take_over(w.arenas, ends[0][k])
    for row in range(rows):
        hear(w.order, w.clocks, row)
        for k in range(w.touches.ptr[row], w.touches.ptr[row + 1]):
            if w.touches.touch[k].instance >= 0 and not touch(w, row, k):
                return BROKEN
        keep(w.order, w.clocks, row)
    for k in range(len(ends[1])):
        i = ends[1][k]
        if w.arenas.owner[i].is_gone:
            refuse(w.fault, Rule.ALIVE, rows + k, -1)
            return BROKEN
    return DONE


@leaf
def touch(w: Watch, row: int, k: int) -> bool:
    """Whether all that an argument must wait for is over."""
    a = w.arenas
    i = w.touches.touch[k].instance
    previous = -1
    at = a.owner[i].head
    while at >= 0:
        other = a.kept[at].row
        following = a.kept[at].next
        if (
            needs_order(w, k, a.kept[at].touch)
            and other != row
            and not is_over(w.order, w.clocks, other)
        ):
            return race(w, Rule.RACE, row, k, other)
        if not replaces(w, k, a.kept[at].touch, other):
            previous = at
        elif previous < 0:
            a.owner[i].head = following
        else:
            a.kept[previous].next = following
        at = following
    at = a.used[0]
    a.used[0] += 1
    a.kept[at].row = row
    a.kept[at].touch = k
    a.kept[at].next = a.owner[i].head
    a.owner[i].head = at
    return has_bytes(w, row, k, i)


@leaf
def needs_order(w: Watch, k: int, other: int) -> bool:
    """Whether two touches of one instance overlap and one writes."""
    mine = w.touches.touch[k]
    its = w.touches.touch[other]
    if mine.access == READS and its.access == READS:
        return False
    if mine.access == WRITES_ALL or its.access == WRITES_ALL:
        return True
    return overlaps(w.touches.box[k], w.touches.box[other], w.arenas.owner[mine.instance].dims)


@leaf
def replaces(w: Watch, k: int, other: int, row: int) -> bool:
    """Whether whoever waits for touch `k` need not ask for that of an earlier `row`."""
    mine = w.touches.touch[k]
    its = w.touches.touch[other]
    t = w.touches
    dims = w.arenas.owner[mine.instance].dims
    if mine.access == WRITES_ALL:
        return True
    if mine.access == WRITES:
        return its.access != WRITES_ALL and covers(t.box[k], t.box[other], dims)
    if its.access != READS or not is_same(t.box[k], t.box[other], dims):
        return False
    return is_over(w.order, w.clocks, row)


@leaf
def race(w: Watch, rule: int, row: int, k: int, other: int) -> bool:
    """Note that nothing keeps `other` before `row`."""
    w.fault.record[0].other = other
    w.fault.record[0].has_box = 1
    copy_box(w.fault.box, w.touches.box[k], w.fault.box.shape[1])
    return refuse(w.fault, rule, row, w.touches.touch[k].arg)


# -- bytes -------------------------------------------------------------------------------------------------------------


@leaf
def has_bytes(w: Watch, row: int, k: int, i: int) -> bool:
    """Whether the bytes of an instance are its own, and all that used them before is over."""
    a = w.arenas
    if a.owner[i].is_gone:
        return race(w, Rule.ALIVE, row, k, -1)
    take_over(a, i)
    at: int = (
        a.owner[i].before if w.touches.touch[k].access != READS else -1
    )  # who reads waits for who wrote
    while at >= 0:
        kept = a.owner[a.taken[at].instance].head
        while kept >= 0:
            other = a.kept[kept].row
            if other != row and not is_over(w.order, w.clocks, other):
                return race(w, Rule.REUSE, row, k, other)
            kept = a.kept[kept].next
        at = a.taken[at].next
    return True


@leaf
def take_over(a: Arenas, i: int) -> None:
    """The bytes of an instance are its own from its first use on."""
    owner = a.owner[i]
    if owner.is_born or owner.begin == owner.end:
        return
    owner.is_born = 1
    device = owner.device
    begin = owner.begin
    end = owner.end
    previous = -1
    at = a.head[device]
    while at >= 0 and a.segment[at].end <= begin:
        previous = at
        at = a.segment[at].next
    while at >= 0 and a.segment[at].begin < end:
        instance = a.segment[at].instance
        a.owner[instance].is_gone = 1
        a.taken[a.used[2]].instance = instance
        a.taken[a.used[2]].next = owner.before
        owner.before = a.used[2]
        a.used[2] += 1
        if a.segment[at].begin < begin:
            previous = add_segment(a, device, previous, a.segment[at].begin, begin, instance, at)
        following = a.segment[at].next
        if a.segment[at].end > end:
            a.segment[at].begin = end
            break
        link(a, device, previous, following)
        at = following
    add_segment(a, device, previous, begin, end, i, at)


@leaf
def add_segment(
    a: Arenas, device: int, previous: int, begin: int, end: int, instance: int, following: int
) -> int:
    """Insert a segment between two; its number."""
    at: int = a.used[1]
    a.used[1] += 1
    s = a.segment[at]
    s.begin = begin
    s.end = end
    s.instance = instance
    s.next = following
    link(a, device, previous, at)
    return at


@leaf
def link(a: Arenas, device: int, previous: int, following: int) -> None:
    """What comes behind `previous`, or first."""
    if previous < 0:
        a.head[device] = following
    else:
        a.segment[previous].next = following


def make_arenas(owner: Array, touches: int) -> Arenas:
    """Arenas in which nobody has touched anything yet."""
    owner["head"] = owner["before"] = -1
    head = np.full(int(owner["device"].max(initial=0)) + 1, -1, np.int64)
    count = len(owner) if owner["end"].any() else 0  # a new segment cuts one in two at most
    segments = np.zeros(3 * count + 1, SEGMENT)
    taken = np.zeros(6 * count + 1, TAKEN)
    return Arenas(owner, np.empty(touches, ACCESS), head, segments, taken, np.zeros(3, np.int64))
