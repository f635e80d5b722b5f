"""Who sums what of partial results, compiled by numba: the least that any algorithm moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import (
    covers,
    intersect,
    is_empty,
    overlaps,
    put,
    same,
    split_evenly,
    subtract,
)
from taskflow.lowering.moves import needs_of
from taskflow.lowering.state import AT, FULL, State


@inner
def owners_of(s: State, v: int, box: Any, tile: int, holds: Any, scalar: bool) -> tuple[Any, Any]:
    """Which device sums which part of tile number `tile`; `holds`: the devices that have a partial result of it.

    The tile is cut at the borders of the needed boxes; a piece that one device needs is summed there, one that several
    need is shared out among them, those first that hold a partial result already.
    """
    needs, w = needs_of(s, v), s.w
    wanted, by = np.empty(len(needs) * w, np.int64), np.empty(len(needs), np.int64)
    count = wanted_of(s, needs, box, tile, wanted, by)
    pieces = cut_at_borders(s, box, tile, wanted[: count * w])
    owner, piece, owned = np.empty(s.devices, np.int64), np.empty(s.devices * w, np.int64), 0
    needers, cut = np.empty(s.devices, np.bool_), np.empty(s.devices * w, np.int64)
    for i in range(0, len(pieces), w):
        if owned + s.devices > len(owner):
            owner, piece = np.concatenate((owner, owner)), np.concatenate((piece, piece))
        owned = share_out(s, pieces, i, wanted, by, count, holds, scalar, needers, cut, owner, piece, owned)
    return owner[:owned], piece[: owned * w]


@leaf
def wanted_of(s: State, needs: Any, box: Any, tile: int, wanted: Any, by: Any) -> int:
    """Put down what of a tile is needed, and by which device; how often."""
    w, count = s.w, 0
    for k in needs:
        if overlaps(s.m, s.m[AT.need_box] + k * w, box, tile * w, w):
            intersect(wanted, count * w, s.m, s.m[AT.need_box] + k * w, box, tile * w, w)
            by[count] = s.m[s.m[AT.need] + 3 * k]
            count += 1
    return count


@leaf
def share_out(
    s: State, pieces: Any, i: int, wanted: Any, by: Any, count: int, holds: Any, scalar: bool, needers: Any, cut: Any,
    owner: Any, piece: Any, owned: int,
) -> int:  # fmt: skip
    """Append who sums which part of a piece; the new number of parts."""
    w, able, has_holder, part = s.w, 0, False, -1
    for device in range(s.devices):
        needers[device] = False
    for k in range(count):
        if covers(wanted, k * w, pieces, i, w):
            needers[by[k]] = True
            has_holder = has_holder or holds[by[k]]
    for device in range(s.devices):
        needers[device] = needers[device] and (holds[device] or not has_holder)
        able += needers[device]
    if able:
        split_evenly(cut, pieces, i, able, scalar, w)
    for device in range(s.devices):
        part += needers[device]
        if needers[device] and not is_empty(cut, part * w, w):
            owner[owned] = device
            put(piece, owned * w, cut, part * w, w)
            owned += 1
    return owned


@inner
def cut_at_borders(s: State, box: Any, tile: int, wanted: Any) -> Any:
    """The tile in pieces such that every wanted box is a union of pieces."""
    w = s.w
    put(s.m, s.m[AT.work], box, tile * w, w)
    count = 1
    for k in range(0, len(wanted), w):
        is_new = True
        for j in range(0, k, w):
            is_new = is_new and not same(wanted, j, wanted, k, w)
        if not is_new:
            continue
        n = 0
        for i in range(s.m[AT.work], s.m[AT.work] + count * w, w):
            if overlaps(s.m, i, wanted, k, w):
                if n < s.size:
                    intersect(s.m, s.m[AT.spare] + n * w, s.m, i, wanted, k, w)
                n += 1
            n = subtract(s.m, s.m[AT.spare], n, s.size, s.m, i, wanted, k, w)
        if n > s.size:
            s.m[FULL] = 1
            return s.m[:0].copy()
        count = n
        for i in range(count * w):
            s.m[s.m[AT.work] + i] = s.m[s.m[AT.spare] + i]
    return s.m[s.m[AT.work] : s.m[AT.work] + count * w].copy()
