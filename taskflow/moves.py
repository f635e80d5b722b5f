"""The rules of `taskflow.movement`, compiled by numba: play the events of a region and append what they cause.

All state is arrays. What grows has a capacity; an append beyond it only raises `n[FULL]`, and the caller starts again
with larger arrays. Boxes are `(dimensions, 2)`, a scalar has one dimension of one point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from taskflow.boxes import covers, is_empty, overlaps, put, same, subtract, volume

READ, WRITE, READ_WRITE = 0, 1, 2  # of task.Privilege
COPY, FOLD, FEED = 1, 2, 3  # of task.Kind
READS, UPDATES, WRITES, REDUCES = 0, 1, 2, 3  # what an event does

INSTANCES, ACCESSES, EDGES, ROWS, ARGS, HELD, NEEDS, FULL, LOST = range(9)  # places in `n`


class State(NamedTuple):
    """What a fragment consists of, and what is known on the way; `n` holds the lengths."""

    n: Any
    inst_device: Any  # instances
    inst_box: Any
    inst_partial: Any
    inst_next: Any  # those of a device that hold values, in order
    value_first: Any
    value_last: Any
    access_box: Any  # last writers and the readers since, per instance
    access_task: Any
    access_next: Any
    writers: Any
    readers: Any
    edge: Any  # waiting slot and index, awaited slot and index
    row: Any  # kind, source, device, end of its arguments, points moved
    arg: Any  # instance, privilege
    arg_box: Any
    held: Any  # device, instance: boxes that are valid, in order of becoming so
    held_box: Any
    held_next: Any  # of the same instance
    held_first: Any
    held_last: Any
    need: Any  # device, next of its version, next of its version and device
    need_box: Any
    need_first: Any
    need_last: Any
    need_at: Any
    work: Any  # boxes being cut up
    spare: Any


@numba.njit(cache=True)
def append(n: Any, what: int, capacity: int) -> int:
    """The next free place, or -1 where there is none."""
    if n[what] >= capacity:
        n[FULL] = 1
        return -1
    n[what] += 1
    return n[what] - 1


# -- instances and what is known of them -----------------------------------------------------------------------------


@numba.njit(cache=True)
def add_instance(s: State, device: int, boxes: Any, i: int, partial: bool) -> int:
    """A new instance."""
    k = append(s.n, INSTANCES, len(s.inst_device))
    if k >= 0:
        s.inst_device[k], s.inst_partial[k], s.inst_next[k] = device, partial, -1
        s.writers[k], s.readers[k], s.held_first[k], s.held_last[k] = -1, -1, -1, -1
        put(s.inst_box, k, boxes, i)
    return k


@numba.njit(cache=True)
def find_instance(s: State, device: int, boxes: Any, i: int) -> int:
    """The first instance on `device` that holds values and covers the box, or -1."""
    k = s.value_first[device]
    while k >= 0 and not covers(s.inst_box, k, boxes, i):
        k = s.inst_next[k]
    return k


@numba.njit(cache=True)
def wait_for(s: State, head: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """Edges to all accesses of a chain that overlap the box."""
    k = head
    while k >= 0:
        if (s.access_task[k, 0] != slot or s.access_task[k, 1] != index) and overlaps(s.access_box, k, boxes, i):
            e = append(s.n, EDGES, len(s.edge))
            if e >= 0:
                s.edge[e, 0], s.edge[e, 1] = slot, index
                s.edge[e, 2], s.edge[e, 3] = s.access_task[k, 0], s.access_task[k, 1]
        k = s.access_next[k]


@numba.njit(cache=True)
def forget_covered(s: State, heads: Any, instance: int, boxes: Any, i: int) -> None:
    """Drop the accesses of a chain that lie within the box."""
    before, k = -1, heads[instance]
    while k >= 0:
        after = s.access_next[k]
        if is_empty(s.access_box, k) or covers(boxes, i, s.access_box, k):
            if before < 0:
                heads[instance] = after
            else:
                s.access_next[before] = after
        else:
            before = k
        k = after


@numba.njit(cache=True)
def remember(s: State, heads: Any, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """Put an access in front of a chain."""
    k = append(s.n, ACCESSES, len(s.access_next))
    if k >= 0:
        put(s.access_box, k, boxes, i)
        s.access_task[k, 0], s.access_task[k, 1] = slot, index
        s.access_next[k] = heads[instance]
        heads[instance] = k


@numba.njit(cache=True)
def note_read(s: State, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """A task reads the box: it waits for those who wrote any of it."""
    wait_for(s, s.writers[instance], boxes, i, slot, index)
    remember(s, s.readers, instance, boxes, i, slot, index)


@numba.njit(cache=True)
def note_write(s: State, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """A task writes the box: it waits for those who read or wrote any of it."""
    wait_for(s, s.readers[instance], boxes, i, slot, index)
    wait_for(s, s.writers[instance], boxes, i, slot, index)
    forget_covered(s, s.readers, instance, boxes, i)
    forget_covered(s, s.writers, instance, boxes, i)
    remember(s, s.writers, instance, boxes, i, slot, index)


@numba.njit(cache=True)
def hold(s: State, device: int, instance: int, boxes: Any, i: int) -> int:
    """The box is valid in the instance from now on."""
    k = append(s.n, HELD, len(s.held))
    if k >= 0 and instance >= 0:
        s.held[k, 0], s.held[k, 1], s.held_next[k] = device, instance, -1
        put(s.held_box, k, boxes, i)
        if s.held_first[instance] < 0:
            s.held_first[instance] = k
        else:
            s.held_next[s.held_last[instance]] = k
        s.held_last[instance] = k
    return k


# -- rows ------------------------------------------------------------------------------------------------------------


@numba.njit(cache=True)
def add_arg(s: State, instance: int, boxes: Any, i: int, privilege: int) -> None:
    """One more argument of the row that is added next."""
    k = append(s.n, ARGS, len(s.arg))
    if k >= 0:
        s.arg[k, 0], s.arg[k, 1] = instance, privilege
        put(s.arg_box, k, boxes, i)


@numba.njit(cache=True)
def add_row(s: State, slot: int, first: int, kind: int, source: int, device: int) -> None:
    """A row with the arguments appended since the last one; `first` is the first row of its version."""
    k = append(s.n, ROWS, len(s.row))
    if k < 0 or s.n[FULL]:
        return
    begin = s.row[k - 1, 3] if k > 0 else 0
    s.row[k, 0], s.row[k, 1], s.row[k, 2], s.row[k, 3] = kind, source, device, s.n[ARGS]
    s.row[k, 4] = volume(s.arg_box, begin) * (s.n[ARGS] - begin if kind == FOLD else 1)
    for a in range(begin, s.n[ARGS]):
        if s.arg[a, 1] == READ:
            note_read(s, s.arg[a, 0], s.arg_box, a, slot, k - first)
    for a in range(begin, s.n[ARGS]):
        if s.arg[a, 1] != READ:
            note_write(s, s.arg[a, 0], s.arg_box, a, slot, k - first)


@numba.njit(cache=True)
def copy_in_rounds(s: State, slot: int, first: int, copies: Any, boxes: Any, hosts: Any) -> None:
    """Rows for copies (source, its instance, target device, its instance): in round k device d gets from d + k.

    So every device sends and receives one at a time, and all are busy in every round. Copies within a device come
    last, since they may copy what has just arrived.
    """
    count = len(hosts)
    key = np.empty(len(copies), np.int64)
    for c in range(len(copies)):
        away = (copies[c, 0] - copies[c, 2]) % count
        key[c] = (count if away == 0 else away) * count + copies[c, 2]
    for c in np.argsort(key, kind="mergesort"):
        add_arg(s, copies[c, 1], boxes, c, READ)
        add_arg(s, copies[c, 3], boxes, c, WRITE)
        add_row(s, slot, first, COPY, copies[c, 0], copies[c, 2])


# -- what is needed where --------------------------------------------------------------------------------------------


@numba.njit(cache=True)
def add_need(s: State, v: int, device: int, boxes: Any, i: int) -> None:
    """Version `v` is needed in the box on `device`; each need counts once."""
    k = s.need_at[v, device]
    while k >= 0:
        if same(s.need_box, k, boxes, i):
            return
        k = s.need[k, 2]
    k = append(s.n, NEEDS, len(s.need))
    if k < 0:
        return
    put(s.need_box, k, boxes, i)
    s.need[k, 0], s.need[k, 1], s.need[k, 2] = device, -1, s.need_at[v, device]
    s.need_at[v, device] = k
    if s.need_first[v] < 0:
        s.need_first[v] = k
    else:
        s.need[s.need_last[v], 1] = k
    s.need_last[v] = k


@numba.njit(cache=True)
def gather_needs(
    s: State, whole: Any, persistent: bool, fetch: Any, ev_ptr: Any, ev_reads: Any, place: Any, box: Any, versions: int
) -> Any:
    """What readers need of each version; returns the needs that are the homes of a persistent region."""
    for v in range(versions):
        for e in range(len(ev_reads)):
            if ev_reads[e] == v:
                for p in range(ev_ptr[e], ev_ptr[e + 1]):
                    if not is_empty(box, p):
                        add_need(s, v, place[p], box, p)
    homes = np.empty(0, np.int64)
    if persistent:
        if s.need_first[0] < 0:  # nobody reads it: it lives where it is fetched
            for device in fetch:
                add_need(s, 0, device, whole, 0)
        keep_unread(s, whole)
        homes = needs_of(s, 0)
        for k in homes:
            add_need(s, versions - 1, s.need[k, 0], s.need_box, k)
    for device in fetch:
        add_need(s, versions - 1, device, whole, 0)
    return homes


@numba.njit(cache=True)
def keep_unread(s: State, whole: Any) -> None:
    """What nobody uses lives on the device of the first need, since it can be read and written between steps."""
    device = s.need[s.need_first[0], 0] if s.need_first[0] >= 0 else 0
    put(s.work, 0, whole, 0)
    left = 1
    for k in needs_of(s, 0):
        left = cut_out(s, left, s.need_box, k)
    pieces = s.work[: min(left, len(s.work))].copy()
    for i in range(len(pieces)):
        add_need(s, 0, device, pieces, i)


@numba.njit(cache=True)
def needs_of(s: State, v: int) -> Any:
    """The needs of a version, in order."""
    count, k = 0, s.need_first[v]
    while k >= 0:
        count, k = count + 1, s.need[k, 1]
    found = np.empty(count, np.int64)
    count, k = 0, s.need_first[v]
    while k >= 0:
        found[count] = k
        count, k = count + 1, s.need[k, 1]
    return found


@numba.njit(cache=True)
def cut_out(s: State, left: int, boxes: Any, i: int) -> int:
    """Take a box out of `work[:left]`; the new length."""
    cut = 0
    for w in range(left):
        cut = subtract(s.spare, cut, s.work, w, boxes, i)
    if cut > len(s.spare):
        s.n[FULL] = 1
        return 0
    for w in range(cut):
        put(s.work, w, s.spare, w)
    return cut


@numba.njit(cache=True)
def make_instances(
    s: State, versions: int, ver_producer: Any, ev_ptr: Any, partial: Any, place: Any, box: Any, scalar: bool
) -> None:
    """One instance per device for every box that is needed or produced and is not inside a larger one."""
    total = s.n[NEEDS]
    for v in range(versions):
        e = ver_producer[v]
        total += 0 if e < 0 or partial[e] else ev_ptr[e + 1] - ev_ptr[e]
    device, boxes, n = np.empty(total, np.int64), np.empty((total, box.shape[1], 2), np.int64), 0
    for k in range(s.n[NEEDS]):
        put(boxes, n, s.need_box, k)
        device[n] = s.need[k, 0]
        n += 1
    for v in range(versions):
        e = ver_producer[v]
        if e >= 0 and not partial[e]:
            for p in range(ev_ptr[e], ev_ptr[e + 1]):
                put(boxes, n, box, p)
                device[n] = place[p]
                n += 1
    for k in sorted_boxes(device, boxes):
        if not is_empty(boxes, k) and find_instance(s, device[k], boxes, k) < 0:
            new = add_instance(s, device[k], boxes, k, False)
            if new >= 0:
                if s.value_first[device[k]] < 0:
                    s.value_first[device[k]] = new
                else:
                    s.inst_next[s.value_last[device[k]]] = new
                s.value_last[device[k]] = new


@numba.njit(cache=True)
def sorted_boxes(device: Any, boxes: Any) -> Any:
    """An order by device, then by decreasing volume, then by corners."""
    order = np.arange(len(device))
    for k in range(boxes.shape[1] - 1, -1, -1):
        order = order[np.argsort(boxes[order, k, 1], kind="mergesort")]
    for k in range(boxes.shape[1] - 1, -1, -1):
        order = order[np.argsort(boxes[order, k, 0], kind="mergesort")]
    size = np.empty(len(order), np.int64)
    for i in range(len(order)):
        size[i] = -volume(boxes, order[i])
    order = order[np.argsort(size, kind="mergesort")]
    return order[np.argsort(device[order], kind="mergesort")]
