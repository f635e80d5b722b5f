"""Versions that are passed on, compiled by numba: from those who read one last to those who read it next.

    reads 0 1 2 3, then 3 0 1 2, then 2 3 0 1   ->   copies 3 to 0, 0 to 1, 1 to 2, 2 to 3, twice

Each round is a version of its own, so that its copies are issued behind the points of the round before it and wait for
those alone who hold what they bring.
"""

from __future__ import annotations

from typing import Any

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import covers, overlaps
from taskflow.lowering.life import PASSES, RegionLife
from taskflow.lowering.needs import needs_of
from taskflow.lowering.state import State, find_instance, hold


@leaf
def is_passed_on(life: RegionLife, version: int) -> bool:
    """Whether a version is that before it, brought to other readers."""
    e = life.producer[version] if version < len(life.producer) else -1
    return bool(e >= 0 and life.event[e].role == PASSES)


@inner
def pass_on(s: State, held: Any, held_box: Any) -> None:
    """The version is valid where the last one was read. Where the first was made, as `held` says, it is still: what
    nobody read last comes from there, or what is needed there.
    """
    last = needs_of(s, s.version - 1)
    now = needs_of(s, s.version)
    for k in range(len(held)):
        is_first = True
        for need in last:
            is_first = is_first and not covers(s.need_box[need], held_box[k])
        for need in now:
            is_here = s.need[need].device == held[k].device
            is_first = is_first or (is_here and overlaps(s.need_box[need], held_box[k]))
        if is_first:
            hold(s, held[k].device, held[k].instance, held_box[k])
    for need in last:
        device = s.need[need].device
        hold(s, device, find_instance(s, device, s.need_box[need]), s.need_box[need])
