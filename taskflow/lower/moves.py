"""The rules of `taskflow.lower.movement`, compiled by numba: play the events of a region and append what they cause.

All state is arrays. What grows has a capacity; an append beyond it only raises `n[FULL]`, and the caller starts again
with larger arrays. Boxes are `(dimensions, 2)`, a scalar has one dimension of one point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from taskflow.lower.boxes import covers, inner, is_empty, overlaps, put, same, subtract, volume

READ, WRITE, READ_WRITE = 0, 1, 2  # of task.Privilege
COPY, FOLD, FEED, COLLECTIVE = 1, 2, 3, 4  # of task.Kind
READS, UPDATES, WRITES, REDUCES = 0, 1, 2, 3  # what an event does

INSTANCES, ACCESSES, EDGES, ROWS, ARGS, HELD, NEEDS, FULL, LOST = range(9)  # places at the start of `m`


class State(NamedTuple):
    """What a fragment consists of, and what is known on the way: tables in one flat memory.

    A field is where a table begins in `m`, its rows have the columns named. One array and numbers, since passing an
    array on to a function costs some instructions, and there are thirty tables.
    """

    m: Any
    w: int  # numbers of a box
    devices: int
    size: int  # rows of most tables
    many: int  # of those of accesses, edges and arguments
    inst_device: int  # instances
    inst_box: int
    inst_partial: int
    inst_next: int  # those of a device that hold values, in order
    value_first: int
    value_last: int
    access_box: int  # last writers and the readers since, per instance
    access_task: int  # slot, index
    access_next: int
    writers: int
    readers: int
    edge: int  # waiting slot, index, awaited slot, index
    row: int  # kind, source, device, end of its arguments, points moved, collective
    arg: int  # instance, privilege
    arg_box: int
    held: int  # device, instance: boxes that are valid, in order of becoming so
    held_box: int
    held_next: int  # of the same instance
    held_first: int
    held_last: int
    need: int  # device, next of its version, next of its version and device
    need_box: int
    need_first: int
    need_last: int
    need_at: int  # version, device
    work: int  # boxes being cut up
    spare: int


MANY = 4  # accesses, edges and arguments are so many times as many as instances, rows and needs


@numba.njit(cache=True)
def words(size: int, w: int, devices: int, versions: int) -> int:
    """Numbers that a state with room for `size` instances, rows and needs takes."""
    boxes = w * size * (5 + 2 * MANY)
    return 16 + 19 * size + 9 * MANY * size + boxes + (2 + versions) * devices + 2 * versions


@inner
def empty_state(m: Any, size: int, w: int, devices: int, versions: int) -> State:
    """A state in `m`, which has at least `words(...)` numbers; all that is not there yet is -1 or 0."""
    many = MANY * size
    value_first = 16
    value_last = value_first + devices
    need_first = value_last + devices
    need_last = need_first + versions
    need_at = need_last + versions
    inst_device = need_at + versions * devices
    m[:16] = 0
    m[16:inst_device] = -1
    inst_partial = inst_device + size
    inst_next = inst_partial + size
    writers = inst_next + size
    readers = writers + size
    held_next = readers + size
    held_first = held_next + size
    held_last = held_first + size
    held = held_last + size
    need = held + 2 * size
    row = need + 3 * size
    access_next = row + 6 * size
    access_task = access_next + many
    edge = access_task + 2 * many
    arg = edge + 4 * many
    inst_box = arg + 2 * many
    held_box = inst_box + w * size
    need_box = held_box + w * size
    work = need_box + w * size
    spare = work + w * size
    access_box = spare + w * size
    arg_box = access_box + w * many
    return State(
        m,
        w,
        devices,
        size,
        many,
        inst_device,
        inst_box,
        inst_partial,
        inst_next,
        value_first,
        value_last,
        access_box,
        access_task,
        access_next,
        writers,
        readers,
        edge,
        row,
        arg,
        arg_box,
        held,
        held_box,
        held_next,
        held_first,
        held_last,
        need,
        need_box,
        need_first,
        need_last,
        need_at,
        work,
        spare,
    )


@inner
def append(s: State, what: int, capacity: int) -> int:
    """The next free place, or -1 where there is none."""
    place: int = s.m[what]
    if place >= capacity:
        s.m[FULL] = 1
        return -1
    s.m[what] = place + 1
    return place


# -- instances and what is known of them -----------------------------------------------------------------------------


@inner
def add_instance(s: State, device: int, boxes: Any, i: int, partial: bool) -> int:
    """A new instance."""
    k: int = append(s, INSTANCES, s.size)
    if k >= 0:
        s.m[s.inst_device + k], s.m[s.inst_partial + k], s.m[s.inst_next + k] = device, partial, -1
        s.m[s.writers + k], s.m[s.readers + k], s.m[s.held_first + k], s.m[s.held_last + k] = -1, -1, -1, -1
        put(s.m, s.inst_box + k * s.w, boxes, i, s.w)
    return k


@inner
def find_instance(s: State, device: int, boxes: Any, i: int) -> int:
    """The first instance on `device` that holds values and covers the box, or -1."""
    k: int = s.m[s.value_first + device]
    while k >= 0 and not covers(s.m, s.inst_box + k * s.w, boxes, i, s.w):
        k = s.m[s.inst_next + k]
    return k


@inner
def wait_for(s: State, head: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """Edges to all accesses of a chain that overlap the box."""
    k = head
    while k >= 0:
        if (s.m[s.access_task + 2 * k] != slot or s.m[s.access_task + 2 * k + 1] != index) and overlaps(
            s.m, s.access_box + k * s.w, boxes, i, s.w
        ):
            e = append(s, EDGES, s.many)
            if e >= 0:
                s.m[s.edge + 4 * e], s.m[s.edge + 4 * e + 1] = slot, index
                s.m[s.edge + 4 * e + 2], s.m[s.edge + 4 * e + 3] = (
                    s.m[s.access_task + 2 * k],
                    s.m[s.access_task + 2 * k + 1],
                )
        k = s.m[s.access_next + k]


@inner
def forget_covered(s: State, heads: int, instance: int, boxes: Any, i: int) -> None:
    """Drop the accesses of a chain that lie within the box."""
    before, k = -1, s.m[heads + instance]
    while k >= 0:
        after = s.m[s.access_next + k]
        if is_empty(s.m, s.access_box + k * s.w, s.w) or covers(boxes, i, s.m, s.access_box + k * s.w, s.w):
            if before < 0:
                s.m[heads + instance] = after
            else:
                s.m[s.access_next + before] = after
        else:
            before = k
        k = after


@inner
def remember(s: State, heads: int, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """Put an access in front of a chain."""
    k = append(s, ACCESSES, s.many)
    if k >= 0:
        put(s.m, s.access_box + k * s.w, boxes, i, s.w)
        s.m[s.access_task + 2 * k], s.m[s.access_task + 2 * k + 1] = slot, index
        s.m[s.access_next + k] = s.m[heads + instance]
        s.m[heads + instance] = k


@inner
def note_read(s: State, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """A task reads the box: it waits for those who wrote any of it. (There is no instance only if there is no room.)"""
    if instance < 0:
        return
    wait_for(s, s.m[s.writers + instance], boxes, i, slot, index)
    remember(s, s.readers, instance, boxes, i, slot, index)


@inner
def note_write(s: State, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """A task writes the box: it waits for those who read or wrote any of it."""
    if instance < 0:
        return
    wait_for(s, s.m[s.readers + instance], boxes, i, slot, index)
    wait_for(s, s.m[s.writers + instance], boxes, i, slot, index)
    forget_covered(s, s.readers, instance, boxes, i)
    forget_covered(s, s.writers, instance, boxes, i)
    remember(s, s.writers, instance, boxes, i, slot, index)


@inner
def hold(s: State, device: int, instance: int, boxes: Any, i: int) -> int:
    """The box is valid in the instance from now on."""
    k: int = append(s, HELD, s.size)
    if k >= 0 and instance >= 0:
        s.m[s.held + 2 * k], s.m[s.held + 2 * k + 1], s.m[s.held_next + k] = device, instance, -1
        put(s.m, s.held_box + k * s.w, boxes, i, s.w)
        if s.m[s.held_first + instance] < 0:
            s.m[s.held_first + instance] = k
        else:
            s.m[s.held_next + s.m[s.held_last + instance]] = k
        s.m[s.held_last + instance] = k
    return k


# -- rows ------------------------------------------------------------------------------------------------------------


@inner
def add_arg(s: State, instance: int, boxes: Any, i: int, privilege: int) -> None:
    """One more argument of the row that is added next."""
    k = append(s, ARGS, s.many)
    if k >= 0:
        s.m[s.arg + 2 * k], s.m[s.arg + 2 * k + 1] = instance, privilege
        put(s.m, s.arg_box + k * s.w, boxes, i, s.w)


@inner
def add_row(s: State, slot: int, first: int, kind: int, source: int, device: int) -> None:
    """A row with the arguments appended since the last one; `first` is the first row of its version."""
    k = append(s, ROWS, s.size)
    if k < 0 or s.m[FULL]:
        return
    begin = s.m[s.row + 6 * (k - 1) + 3] if k > 0 else 0
    s.m[s.row + 6 * k], s.m[s.row + 6 * k + 1], s.m[s.row + 6 * k + 2], s.m[s.row + 6 * k + 3] = (
        kind,
        source,
        device,
        s.m[ARGS],
    )
    s.m[s.row + 6 * k + 4] = volume(s.m, s.arg_box + begin * s.w, s.w) * (s.m[ARGS] - begin if kind == FOLD else 1)
    s.m[s.row + 6 * k + 5] = 0
    for a in range(begin, s.m[ARGS]):
        if s.m[s.arg + 2 * a + 1] == READ:
            note_read(s, s.m[s.arg + 2 * a], s.m, s.arg_box + a * s.w, slot, k - first)
    for a in range(begin, s.m[ARGS]):
        if s.m[s.arg + 2 * a + 1] != READ:
            note_write(s, s.m[s.arg + 2 * a], s.m, s.arg_box + a * s.w, slot, k - first)


@inner
def copy_in_rounds(s: State, slot: int, first: int, copies: Any, boxes: Any) -> None:
    """Rows for copies (source, its instance, target device, its instance): in round k device d gets from d + k.

    So every device sends and receives one at a time, and all are busy in every round. Copies within a device come
    last, since they may copy what has just arrived.
    """
    key = np.empty(len(copies) // 4, np.int64)
    for k in range(len(key)):
        away = (copies[4 * k] - copies[4 * k + 2]) % s.devices
        key[k] = (s.devices if away == 0 else away) * s.devices + copies[4 * k + 2]
    for k in np.argsort(key, kind="mergesort"):
        add_arg(s, copies[4 * k + 1], boxes, k * s.w, READ)
        add_arg(s, copies[4 * k + 3], boxes, k * s.w, WRITE)
        add_row(s, slot, first, COPY, copies[4 * k], copies[4 * k + 2])


# -- what is needed where --------------------------------------------------------------------------------------------


@inner
def add_need(s: State, v: int, device: int, boxes: Any, i: int) -> None:
    """Version `v` is needed in the box on `device`; each need counts once."""
    k = s.m[s.need_at + v * s.devices + device]
    while k >= 0:
        if same(s.m, s.need_box + k * s.w, boxes, i, s.w):
            return
        k = s.m[s.need + 3 * k + 2]
    k = append(s, NEEDS, s.size)
    if k < 0:
        return
    put(s.m, s.need_box + k * s.w, boxes, i, s.w)
    at = s.need_at + v * s.devices + device
    s.m[s.need + 3 * k], s.m[s.need + 3 * k + 1], s.m[s.need + 3 * k + 2] = device, -1, s.m[at]
    s.m[at] = k
    if s.m[s.need_first + v] < 0:
        s.m[s.need_first + v] = k
    else:
        s.m[s.need + 3 * (s.m[s.need_last + v]) + 1] = k
    s.m[s.need_last + v] = k


@inner
def gather_needs(
    s: State, whole: Any, persistent: bool, fetch: Any, ev_ptr: Any, events: Any, place: Any, box: Any, versions: int
) -> Any:
    """What readers need of each version; returns the needs that are the homes of a persistent region."""
    for v in range(versions):
        for e in range(len(events)):
            if events[e, 3] == v:
                for p in range(ev_ptr[e], ev_ptr[e + 1]):
                    if not is_empty(box, p * s.w, s.w):
                        add_need(s, v, place[p], box, p * s.w)
    homes = np.empty(0, np.int64)
    if persistent:
        if s.m[s.need_first] < 0:  # nobody reads it: it lives where it is fetched
            for device in fetch:
                add_need(s, 0, device, whole, 0)
        keep_unread(s, whole)
        homes = needs_of(s, 0)
        for k in homes:
            add_need(s, versions - 1, s.m[s.need + 3 * k], s.m, s.need_box + k * s.w)
    for device in fetch:
        add_need(s, versions - 1, device, whole, 0)
    return homes


@inner
def keep_unread(s: State, whole: Any) -> None:
    """What nobody uses lives on the device of the first need, since it can be read and written between steps."""
    device = s.m[s.need + 3 * (s.m[s.need_first])] if s.m[s.need_first] >= 0 else 0
    put(s.m, s.work, whole, 0, s.w)
    left = 1
    for k in needs_of(s, 0):
        left = cut_out(s, left, s.m, s.need_box + k * s.w)
    pieces = s.m[s.work : s.work + min(left, s.size) * s.w].copy()
    for i in range(len(pieces) // s.w):
        add_need(s, 0, device, pieces, i * s.w)


@inner
def needs_of(s: State, v: int) -> Any:
    """The needs of a version, in order."""
    count, k = 0, s.m[s.need_first + v]
    while k >= 0:
        count, k = count + 1, s.m[s.need + 3 * k + 1]
    found = np.empty(count, np.int64)
    count, k = 0, s.m[s.need_first + v]
    while k >= 0:
        found[count] = k
        count, k = count + 1, s.m[s.need + 3 * k + 1]
    return found


@inner
def cut_out(s: State, left: int, boxes: Any, i: int) -> int:
    """Take a box out of `work[:left]`; the new length."""
    cut = 0
    for w in range(left):
        cut = subtract(s.m, s.spare, cut, s.size, s.m, s.work + w * s.w, boxes, i, s.w)
    if cut > s.size:
        s.m[FULL] = 1
        return 0
    for w in range(cut):
        put(s.m, s.work + w * s.w, s.m, s.spare + w * s.w, s.w)
    return cut


@inner
def make_instances(s: State, versions: int, ver_producer: Any, ev_ptr: Any, partial: Any, place: Any, box: Any) -> None:
    """One instance per device for every box that is needed or produced and is not inside a larger one."""
    total = s.m[NEEDS]
    for v in range(versions):
        e = ver_producer[v]
        total += 0 if e < 0 or partial[e] else ev_ptr[e + 1] - ev_ptr[e]
    device, boxes, n = np.empty(total, np.int64), np.empty(total * s.w, np.int64), 0
    for k in range(s.m[NEEDS]):
        put(boxes, n * s.w, s.m, s.need_box + k * s.w, s.w)
        device[n] = s.m[s.need + 3 * k]
        n += 1
    for v in range(versions):
        e = ver_producer[v]
        if e >= 0 and not partial[e]:
            for p in range(ev_ptr[e], ev_ptr[e + 1]):
                put(boxes, n * s.w, box, p * s.w, s.w)
                device[n] = place[p]
                n += 1
    for k in sorted_boxes(device, boxes, s.devices, s.w):
        if not is_empty(boxes, k * s.w, s.w) and find_instance(s, device[k], boxes, k * s.w) < 0:
            new = add_instance(s, device[k], boxes, k * s.w, False)
            if new >= 0:
                if s.m[s.value_first + device[k]] < 0:
                    s.m[s.value_first + device[k]] = new
                else:
                    s.m[s.inst_next + s.m[s.value_last + device[k]]] = new
                s.m[s.value_last + device[k]] = new


@inner
def sorted_boxes(device: Any, boxes: Any, devices: int, w: int) -> Any:
    """An order by device, then by decreasing volume, then by corners."""
    ptr = np.zeros(devices + 1, np.int64)
    for k in range(len(device)):
        ptr[device[k] + 1] += 1
    for d in range(devices):
        ptr[d + 1] += ptr[d]
    order, end = np.empty(len(device), np.int64), ptr.copy()
    for k in range(len(device)):  # an insertion sort within every device: few boxes each
        i = end[device[k]]
        end[device[k]] += 1
        while i > ptr[device[k]] and comes_before(boxes, k * w, order[i - 1] * w, w):
            order[i] = order[i - 1]
            i -= 1
        order[i] = k
    return order


@inner
def comes_before(boxes: Any, i: int, j: int, w: int) -> bool:
    """The larger box first, then by lower corner, then by upper corner."""
    a, b = volume(boxes, i, w), volume(boxes, j, w)
    if a != b:
        return bool(a > b)
    for side in range(2):
        for k in range(side, w, 2):
            if boxes[i + k] != boxes[j + k]:
                return bool(boxes[i + k] < boxes[j + k])
    return False
