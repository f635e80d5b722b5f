"""Who sums what of partial results, compiled by numba: the least that any algorithm moves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import covers, intersect, is_empty, overlaps, put, same, split_evenly, subtract
from taskflow.lowering.needs import needs_of
from taskflow.lowering.state import State


class Wanted(NamedTuple):
    """What of a tile is needed, and by which device."""

    box: Any
    device: Any


@inner
def owners_of(s: State, tile: Any, holds: Any) -> tuple[Any, Any]:
    """Which device sums which part of a tile; `holds`: the devices that have a partial result of it.

    The tile is cut at the borders of the needed boxes; a part that one device needs is summed there, one that several
    need is shared out among them, those first that hold a partial result already.
    """
    wanted = wanted_of(s, tile)
    parts = cut_at_borders(s, tile, wanted.box)
    owner, owned = np.empty(s.devices, np.int64), np.empty((s.devices, s.width), np.int64)
    able, cut, count = np.empty(s.devices, np.bool_), np.empty((s.devices, s.width), np.int64), 0
    for i in range(len(parts)):
        if count + s.devices > len(owner):
            owner, owned = np.concatenate((owner, owner)), np.concatenate((owned, owned))
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
def wanted_of(s: State, tile: Any) -> Wanted:
    """What of a tile is needed of the version that is being moved."""
    needs, count = needs_of(s, s.version), 0
    box, device = np.empty((len(needs), s.width), np.int64), np.empty(len(needs), np.int64)
    for k in needs:
        if overlaps(s.need_box[k], tile):
            intersect(box[count], s.need_box[k], tile)
            device[count] = s.need[k].device
            count += 1
    return Wanted(box[:count], device[:count])


@leaf
def able_of(s: State, part: Any, wanted: Wanted, holds: Any, able: Any) -> int:
    """Set who shares a part: those who need it, and if some of them hold a partial result, these; how many."""
    has_holder, count = False, 0
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
    for k in range(len(wanted)):
        is_new = True
        for j in range(k):
            is_new = is_new and not same(wanted[j], wanted[k])
        if is_new:
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
