"""Which stretches of rows a graph has, whatever the strategy, and which operators and regions have to do with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from taskflow.lowering import Lowering
from taskflow.lowering.life import Life
from taskflow.tasks.task_graph import Array

BY_POINTS, BY_POINTS_AND_USED, BY_DEVICES = range(3)


class Layout(NamedTuple):
    """See `resimulate`.

    Attributes:
        stretch: (stretches, 3) operator (or -1), region, version.
        touch_ptr, touch: per stretch the regions through which it waits, and its slot in the life of each.
        op_ptr, op: per region the operators that touch it.
        local_ptr, local: per region the stretch of every slot of its life.
        region_ptr, region: per operator the regions that it touches.
        kind: per region; those of a kind have the same entries for the same points.
        keyed: per region what its entries depend on, see `entries`.
        alive: (regions, 2) first and last operator between which the region's instances are needed.
    """

    stretch: Array
    touch_ptr: Array
    touch: Array
    op_ptr: Array
    op: Array
    local_ptr: Array
    local: Array
    region_ptr: Array
    region: Array
    kind: Array
    keyed: Array
    alive: Array


def lay_out(lowering: Lowering) -> Layout:
    """The layout of a graph."""
    lives, place = lowering.lives, {key: b for b, key in enumerate(lowering.sequence)}
    touch: list[list[tuple[int, int]]] = [[] for _ in place]
    local = []
    for number, life in enumerate(lives):
        local.append([place[op, -1, -1] for op in life.ops] + [place[-1, number, v] for v in range(len(life.producer))])
        for slot, at in enumerate(local[-1]):
            touch[at].append((number, slot))
    regions = [[number for number, _ in touch[place[op, -1, -1]]] for op in range(len(lowering.operators))]
    kinds: dict[tuple[int, int], int] = {}
    return Layout(
        np.array(list(place), np.int64),
        _pointers(touch),
        np.array([t for touched in touch for t in touched], np.int64).reshape(-1, 2),
        _pointers([life.ops for life in lives]),
        np.array([op for life in lives for op in life.ops], np.int64),
        _pointers(local),
        np.array([b for stretches in local for b in stretches], np.int64),
        _pointers(regions),
        np.array([r for touched in regions for r in touched], np.int64),
        np.array([kinds.setdefault(k, len(kinds)) for k in zip(lowering.dtype_kind, lowering.life_kind)], np.int64),
        np.array([_keyed(life, k in lowering.fetched) for k, life in enumerate(lives)], np.int64),
        np.array([_alive(lowering, number) for number in range(len(lives))], np.int64),
    )


def _keyed(life: Life, is_fetched: bool) -> int:
    """A scalar that is only read is held, and nothing else, by every device on which anybody reads it."""
    is_constant = life.region.is_persistent and not life.region.ndim and len(life.ops) and not life.event["role"].any()
    return BY_POINTS_AND_USED if is_fetched else BY_DEVICES if is_constant else BY_POINTS


def _alive(lowering: Lowering, number: int) -> tuple[int, int]:
    life, last = lowering.lives[number], len(lowering.operators) - 1
    if life.region.is_persistent or not life.ops:
        return 0, last
    return 0 if life.producer[0] < 0 else min(life.ops), last if number in lowering.fetched else max(life.ops)


def _pointers(parts: Sequence[Sequence[object]]) -> Array:
    return np.array([0, *accumulate(map(len, parts))], np.int64)
