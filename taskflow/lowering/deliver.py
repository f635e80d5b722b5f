"""Delivering a version where it is needed, compiled by numba; see `movement` for the rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import intersect, overlaps, same, volume
from taskflow.lowering.collective import gather_together, missing
from taskflow.lowering.moves import copy_in_rounds, cut_out, needs_of
from taskflow.lowering.sorting import sort_first
from taskflow.lowering.state import AT, COPY, FOLD, FULL, HELD, LOST, ROWS, State, find_instance, hold


@inner
def deliver(s: State, v: int, slot: int, first: int, c: Any) -> None:
    """Copy into every needed box what is not valid there."""
    sources, copied = s.m[HELD], 0
    gather_together(s, v, slot, first, sources, c)
    copies, boxes = np.empty(4 * s.size, np.int64), np.empty(s.size * s.w, np.int64)
    near, spare = np.empty(s.size, np.int64), np.empty(s.size, np.int64)
    for need in needs_of(s, v):
        copied = serve(s, need, sources, c.hosts, near, spare, copies, boxes, copied)
    copy_in_rounds(s, slot, first, copies[: 4 * copied], boxes)


@leaf
def serve(
    s: State, need: int, sources: int, hosts: Any, near: Any, spare: Any, copies: Any, boxes: Any, copied: int
) -> int:  # fmt: skip
    """Copies of what a need lacks, from the nearest; the new number of copies."""
    device = s.m[s.m[AT.need] + 3 * need]
    target, left = find_instance(s, device, s.m, s.m[AT.need_box] + need * s.w), missing(s, need)
    if not left:
        return copied
    count = holders_of(s, need, sources, target, hosts, near)
    sort_first(near, count, spare)
    for i in range(count):
        k = near[i] % s.size
        copied = copy_from(s, k, device, target, left, copies, boxes, copied)
        left = cut_out(s, left, s.m, s.m[AT.held_box] + k * s.w)
        if not left:
            return copied
    s.m[LOST] = 1 + need
    return copied


@leaf
def holders_of(s: State, need: int, sources: int, target: int, hosts: Any, near: Any) -> int:
    """Who has a part of a need: first what its device has elsewhere, then its host; replicas serve different readers.

    The first `sources` held boxes may be copied by all, later ones by their own device. `near` gets numbers to sort:
    how far away, and which held box.
    """
    device, box, count, n = s.m[s.m[AT.need] + 3 * need], s.m[AT.need_box] + need * s.w, len(hosts), 0
    for k in range(sources):
        if s.m[s.m[AT.held] + 2 * k + 1] != target and overlaps(s.m, s.m[AT.held_box] + k * s.w, s.m, box, s.w):
            source = s.m[s.m[AT.held] + 2 * k]
            away = 0 if source == device else 1 if hosts[source] == hosts[device] else 2
            near[n] = (away * count + (source - device) % count) * s.size + k
            n += 1
    instance = s.m[s.m[AT.value_first] + device]
    while instance >= 0:
        k = s.m[s.m[AT.held_first] + instance] if instance != target else -1
        while k >= 0:
            if k >= sources and overlaps(s.m, s.m[AT.held_box] + k * s.w, s.m, box, s.w):
                near[n] = k
                n += 1
            k = s.m[s.m[AT.held_next] + k]
        instance = s.m[s.m[AT.inst_next] + instance]
    return n


@leaf
def copy_from(s: State, k: int, device: int, target: int, left: int, copies: Any, boxes: Any, copied: int) -> int:
    """Copies of all pieces in `work[:left]` that `held[k]` has; the new number of copies."""
    for w in range(left):
        if overlaps(s.m, s.m[AT.work] + w * s.w, s.m, s.m[AT.held_box] + k * s.w, s.w):
            if copied >= s.size:
                s.m[FULL] = 1
                return copied
            intersect(boxes, copied * s.w, s.m, s.m[AT.work] + w * s.w, s.m, s.m[AT.held_box] + k * s.w, s.w)
            at = 4 * copied
            copies[at], copies[at + 1] = s.m[s.m[AT.held] + 2 * k], s.m[s.m[AT.held] + 2 * k + 1]
            copies[at + 2], copies[at + 3] = device, target
            hold(s, device, target, boxes, copied * s.w)
            copied += 1
    return copied


# -- what the rows of a version are called ---------------------------------------------------------------------------


@inner
def name_copies(s: State, v: int, first: int, whole: Any) -> None:
    """Name the copies since row `first` after the collective that they make up."""
    code = classify(s, v, first, whole)
    for row in range(first, s.m[ROWS]):
        if s.m[s.m[AT.row] + 6 * row] == COPY and s.m[s.m[AT.row] + 6 * row + 1] != s.m[s.m[AT.row] + 6 * row + 2]:
            s.m[s.m[AT.row] + 6 * row + 5] = code


@inner
def classify(s: State, v: int, first: int, whole: Any) -> int:
    """The collective that the rows since `first` make up, as a place in `task.COLLECTIVES`; for people."""
    from_, to, folds = np.zeros(s.devices, np.int64), np.zeros(s.devices, np.int64), np.zeros(s.devices, np.int64)
    copies, reducing, sent, one_box, lead = 0, 0, 0, True, -1
    for k in range(first, s.m[ROWS]):
        row, begin = s.m[AT.row] + 6 * k, s.m[s.m[AT.row] + 6 * (k - 1) + 3] if k else 0
        if s.m[row] == FOLD:
            folds[s.m[row + 2]] = 1
            reducing += s.m[row + 3] - begin - 2
        elif s.m[row] == COPY and s.m[row + 1] != s.m[row + 2]:
            copies += 1
            from_[s.m[row + 1]], to[s.m[row + 2]] = 1, 1
            sent += s.m[row + 4]
            lead = begin if lead < 0 else lead
            one_box = one_box and same(s.m, s.m[AT.arg_box] + lead * s.w, s.m, s.m[AT.arg_box] + begin * s.w, s.w)
    if not copies:
        return 0
    if folds.sum():
        if copies > reducing or (folds.sum() == 1 and to.sum() > 1):
            return 2  # all-reduce
        return 3 if folds.sum() > 1 else 7  # reduce-scatter, reduce
    if from_.sum() == 1:
        return 1 if to.sum() == 1 else 5 if one_box else 10  # copy, broadcast, scatter
    if to.sum() == 1:
        return 9  # gather
    needed = 0
    for k in needs_of(s, v):
        device = s.m[s.m[AT.need] + 3 * k]
        needed += volume(s.m, s.m[AT.need_box] + k * s.w, s.w) if to[device] else 0
    for k in needs_of(s, v):
        if same(s.m, s.m[AT.need_box] + k * s.w, whole, 0, s.w):
            to[s.m[s.m[AT.need] + 3 * k]] = 0
    if not to.sum():
        return 4  # all-gather
    return 8 if sent * 2 < needed else 6  # halo, all-to-all
