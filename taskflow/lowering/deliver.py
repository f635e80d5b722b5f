"""Delivering a version where it is needed, compiled by numba; see `movement` for the rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import intersect, overlaps
from taskflow.lowering.collective import gather_together
from taskflow.lowering.moves import add_copy, copy_in_rounds
from taskflow.lowering.needs import cut_out, missing, needs_of
from taskflow.lowering.sorting import sort_first
from taskflow.lowering.state import State, find_instance, hold


@inner
def deliver(s: State) -> None:
    """Copy into every needed box what is not valid there."""
    sources = s.held_boxes
    gather_together(s, sources)
    near, spare = np.empty(len(s.held), np.int64), np.empty(len(s.held), np.int64)
    s.copies = 0
    for need in needs_of(s, s.version):
        serve(s, need, sources, near, spare)
    copy_in_rounds(s)


@leaf
def serve(s: State, need: int, sources: int, near: Any, spare: Any) -> None:
    """Copies of what a need lacks, from the nearest; the first `sources` held boxes may be copied by all."""
    target, left = find_instance(s, s.need[need].device, s.need_box[need]), missing(s, need)
    if not left:
        return
    count = holders_of(s, need, sources, target, near)
    sort_first(near, count, spare)
    for i in range(count):
        k = near[i] % len(s.held)
        copy_from(s, k, s.need[need].device, target, left)
        left = cut_out(s, left, s.held_box[k])
        if not left:
            return
    s.lost = 1 + need


@leaf
def holders_of(s: State, need: int, sources: int, target: int, near: Any) -> int:
    """Who has a part of a need: first what its device has elsewhere, then its host; replicas serve different readers.

    The first `sources` held boxes may be copied by all, later ones by their own device. `near` gets numbers to sort:
    how far away, and which held box.
    """
    device, n = s.need[need].device, 0
    for k in range(sources):
        if s.held[k].instance != target and overlaps(s.held_box[k], s.need_box[need]):
            source = s.held[k].device
            away = 0 if source == device else 1 if s.device[source].host == s.device[device].host else 2
            near[n] = (away * s.devices + (source - device) % s.devices) * len(s.held) + k
            n += 1
    instance = s.device[device].first_value
    while instance >= 0:
        k = s.instance[instance].first_held if instance != target else -1
        while k >= 0:
            if k >= sources and overlaps(s.held_box[k], s.need_box[need]):
                near[n] = k
                n += 1
            k = s.held[k].next
        instance = s.instance[instance].next
    return n


@leaf
def copy_from(s: State, k: int, device: int, target: int, left: int) -> None:
    """Copies of what held box `k` has of the first boxes in `work`."""
    for i in range(left):
        if overlaps(s.work[i], s.held_box[k]):
            copy = add_copy(s, s.held[k].device, s.held[k].instance, device, target)
            if copy < 0:
                return
            intersect(s.copy_box[copy], s.work[i], s.held_box[k])
            hold(s, device, target, s.copy_box[copy])
