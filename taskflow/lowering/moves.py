"""Rows that move a region, and what is needed of it where, compiled by numba; see `movement` for the rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import is_empty, overlaps, put, same, subtract, volume
from taskflow.lowering.sorting import bits, sort
from taskflow.lowering.state import (
    ARGS,
    AT,
    COPY,
    FOLD,
    FULL,
    MANY,
    NEEDS,
    READ,
    ROWS,
    WRITE,
    State,
    add_instance,
    append,
    find_instance,
    note_read,
    note_write,
)

# -- rows ------------------------------------------------------------------------------------------------------------


@leaf
def add_arg(s: State, instance: int, boxes: Any, i: int, privilege: int) -> None:
    """One more argument of the row that is added next."""
    k = append(s, ARGS, MANY * s.size)
    if k >= 0:
        s.m[s.m[AT.arg] + 2 * k], s.m[s.m[AT.arg] + 2 * k + 1] = instance, privilege
        put(s.m, s.m[AT.arg_box] + k * s.w, boxes, i, s.w)


@leaf
def add_row(s: State, slot: int, first: int, kind: int, source: int, device: int) -> None:
    """A row with the arguments appended since the last one; `first` is the first row of its version."""
    k = append(s, ROWS, s.size)
    if k < 0 or s.m[FULL]:
        return
    at, args = s.m[AT.row] + 6 * k, s.m[AT.arg]
    begin = s.m[at - 3] if k > 0 else 0
    points = volume(s.m, s.m[AT.arg_box] + begin * s.w, s.w)
    s.m[at], s.m[at + 1], s.m[at + 2], s.m[at + 3] = kind, source, device, s.m[ARGS]
    s.m[at + 4], s.m[at + 5] = points * (s.m[ARGS] - begin if kind == FOLD else 1), 0
    for a in range(begin, s.m[ARGS]):
        if s.m[args + 2 * a + 1] == READ:
            note_read(s, s.m[args + 2 * a], s.m, s.m[AT.arg_box] + a * s.w, slot, k - first)
    for a in range(begin, s.m[ARGS]):
        if s.m[args + 2 * a + 1] != READ:
            note_write(s, s.m[args + 2 * a], s.m, s.m[AT.arg_box] + a * s.w, slot, k - first)


@inner
def copy_in_rounds(s: State, slot: int, first: int, copies: Any, boxes: Any) -> None:
    """Rows for copies (source, its instance, target device, its instance): in round k device d gets from d + k.

    So every device sends and receives one at a time, and all are busy in every round. Copies within a device come
    last, since they may copy what has just arrived.
    """
    count = len(copies) // 4
    key, place = np.empty(count, np.int64), bits(count)
    for k in range(count):
        away = (copies[4 * k] - copies[4 * k + 2]) % s.devices
        key[k] = (((s.devices if away == 0 else away) * s.devices + copies[4 * k + 2]) << place) + k
    for packed in sort(key):
        k = packed & ((1 << place) - 1)
        add_arg(s, copies[4 * k + 1], boxes, k * s.w, READ)
        add_arg(s, copies[4 * k + 3], boxes, k * s.w, WRITE)
        add_row(s, slot, first, COPY, copies[4 * k], copies[4 * k + 2])


# -- what is needed where --------------------------------------------------------------------------------------------


@leaf
def add_need(s: State, v: int, device: int, boxes: Any, i: int) -> None:
    """Version `v` is needed in the box on `device`; each need counts once."""
    k = s.m[s.m[AT.need_at] + v * s.devices + device]
    while k >= 0:
        if same(s.m, s.m[AT.need_box] + k * s.w, boxes, i, s.w):
            return
        k = s.m[s.m[AT.need] + 3 * k + 2]
    k = append(s, NEEDS, s.size)
    if k < 0:
        return
    put(s.m, s.m[AT.need_box] + k * s.w, boxes, i, s.w)
    at = s.m[AT.need_at] + v * s.devices + device
    s.m[s.m[AT.need] + 3 * k], s.m[s.m[AT.need] + 3 * k + 1], s.m[s.m[AT.need] + 3 * k + 2] = device, -1, s.m[at]
    s.m[at] = k
    if s.m[s.m[AT.need_first] + v] < 0:
        s.m[s.m[AT.need_first] + v] = k
    else:
        s.m[s.m[AT.need] + 3 * (s.m[s.m[AT.need_last] + v]) + 1] = k
    s.m[s.m[AT.need_last] + v] = k


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
        if s.m[s.m[AT.need_first]] < 0:  # nobody reads it: it lives where it is fetched
            for device in fetch:
                add_need(s, 0, device, whole, 0)
        keep_unread(s, whole)
        homes = needs_of(s, 0)
        for k in homes:
            add_need(s, versions - 1, s.m[s.m[AT.need] + 3 * k], s.m, s.m[AT.need_box] + k * s.w)
    for device in fetch:
        add_need(s, versions - 1, device, whole, 0)
    return homes


@inner
def keep_unread(s: State, whole: Any) -> None:
    """What nobody uses lives on the device of the first need, since it can be read and written between steps."""
    device = s.m[s.m[AT.need] + 3 * (s.m[s.m[AT.need_first]])] if s.m[s.m[AT.need_first]] >= 0 else 0
    put(s.m, s.m[AT.work], whole, 0, s.w)
    left = 1
    for k in needs_of(s, 0):
        left = cut_out(s, left, s.m, s.m[AT.need_box] + k * s.w)
    pieces = s.m[s.m[AT.work] : s.m[AT.work] + min(left, s.size) * s.w].copy()
    for i in range(len(pieces) // s.w):
        add_need(s, 0, device, pieces, i * s.w)


@inner
def needs_of(s: State, v: int) -> Any:
    """The needs of a version, in order."""
    count, k = 0, s.m[s.m[AT.need_first] + v]
    while k >= 0:
        count, k = count + 1, s.m[s.m[AT.need] + 3 * k + 1]
    found = np.empty(count, np.int64)
    count, k = 0, s.m[s.m[AT.need_first] + v]
    while k >= 0:
        found[count] = k
        count, k = count + 1, s.m[s.m[AT.need] + 3 * k + 1]
    return found


@leaf
def cut_out(s: State, left: int, boxes: Any, i: int) -> int:
    """Take a box out of `work[:left]`; the new length."""
    is_hit = False
    for w in range(left):
        is_hit = is_hit or overlaps(s.m, s.m[AT.work] + w * s.w, boxes, i, s.w)
    if not is_hit:
        return left
    cut = 0
    for w in range(left):
        cut = subtract(s.m, s.m[AT.spare], cut, s.size, s.m, s.m[AT.work] + w * s.w, boxes, i, s.w)
    if cut > s.size:
        s.m[FULL] = 1
        return 0
    for w in range(cut):
        put(s.m, s.m[AT.work] + w * s.w, s.m, s.m[AT.spare] + w * s.w, s.w)
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
        put(boxes, n * s.w, s.m, s.m[AT.need_box] + k * s.w, s.w)
        device[n] = s.m[s.m[AT.need] + 3 * k]
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
                if s.m[s.m[AT.value_first] + device[k]] < 0:
                    s.m[s.m[AT.value_first] + device[k]] = new
                else:
                    s.m[s.m[AT.inst_next] + s.m[s.m[AT.value_last] + device[k]]] = new
                s.m[s.m[AT.value_last] + device[k]] = new


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


@leaf
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
