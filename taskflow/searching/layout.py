"""Which spans of rows a graph has, whatever the strategy, and which operators and regions have to do with them.

A span is the rows of one operator, or those that move one version of a region. A group is the spans that stand with
one operator: what fills the regions that it is the first to read, its points, and what moves the versions that it
makes. The rows of a group are issued by their ordinals (`lowering.ordinals`), and those of one ordinal span after span.
The issuers of a region are the operators that touch it, numbered in program order, then its versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers, records
from taskflow.lowering import Lowering
from taskflow.lowering.life import Life

BY_POINTS, BY_POINTS_AND_USED, BY_DEVICES = range(
    3
)  # what a region's fragment depends on, see `memo`

SPAN = records([("op", np.int64), ("region", np.int64), ("version", np.int64)])  # op or region: -1
WAIT = records([("region", np.int64), ("issuer", np.int64)])
LIFETIME = records([("first", np.int64), ("last", np.int64)])


class Layout(NamedTuple):
    """What depends on the graph alone. `x` of k is `x[x_ptr[k] : x_ptr[k + 1]]`.

    Attributes:
        span: (spans,) SPAN: its operator, or the region and version that it moves.
        group_ptr: per group its first span.
        wait_ptr, wait: per span WAIT: the regions through which it waits, and its number among their issuers.
        op_ptr, op: per region the operators that touch it.
        issuer_ptr, issuer_span: per region the span of every issuer.
        region_ptr, region: per operator the regions that it touches.
        kind: per region; those of a kind have the same fragments for the same points.
        depends: per region BY_POINTS, ...
        alive: (regions,) LIFETIME: first and last operator between which the region's instances are needed.
    """

    span: Array
    group_ptr: Array
    wait_ptr: Array
    wait: Array
    op_ptr: Array
    op: Array
    issuer_ptr: Array
    issuer_span: Array
    region_ptr: Array
    region: Array
    kind: Array
    depends: Array
    alive: Array


class Chosen(NamedTuple):
    """A strategy in numbers; -1 where there is none yet.

    Attributes:
        points, rows: per operator the number of its points in a `PointStore`, and of their rows in a pool.
        fragment: per region the number of its fragment in a pool.
        presence: per device, how many operators have points there.
        used: the devices where any have, in the order in which they name them; -1 behind the last.
    """

    points: Array
    rows: Array
    fragment: Array
    presence: Array
    used: Array


def lay_out(lowering: Lowering) -> Layout:
    """The layout of a graph."""
    lives, number_of = lowering.lives, {key: b for b, key in enumerate(lowering.order.sequence)}
    waits: list[list[tuple[int, int]]] = [[] for _ in number_of]
    issuers = []
    for number, life in enumerate(lives):
        versions = [number_of[-1, number, v] for v in range(len(life.producer))]
        issuers.append([*(number_of[op, -1, -1] for op in life.ops), *versions])
        for issuer, b in enumerate(issuers[-1]):
            waits[b].append((number, issuer))
    regions = [
        [number for number, _ in waits[number_of[op, -1, -1]]]
        for op in range(len(lowering.operators))
    ]
    kinds: dict[tuple[int, int], int] = {}
    return Layout(
        _records(number_of, SPAN),
        np.searchsorted(
            lowering.order.group[lowering.order.numbers], np.arange(-1, len(lowering.operators) + 1)
        ),
        pointers([len(wait) for wait in waits]),
        _records(chain.from_iterable(waits), WAIT),
        *_numbers([life.ops for life in lives]),
        *_numbers(issuers),
        *_numbers(regions),
        np.array(
            [kinds.setdefault(k, len(kinds)) for k in zip(lowering.dtype_kind, lowering.life_kind)],
            np.int64,
        ),
        np.array([_depends(life, k in lowering.fetched) for k, life in enumerate(lives)], np.int64),
        _records((_alive(lowering, number) for number in range(len(lives))), LIFETIME),
    )


def _numbers(parts: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    return pointers([len(part) for part in parts]), np.array(
        list(chain.from_iterable(parts)), np.int64
    )


def _records(values: Iterable[tuple[int, ...]], dtype: np.dtype[np.void]) -> Array:
    """An array of records of just this dtype object: what compiled code is told of a type is where it lies."""
    given = list(values)
    found = np.zeros(len(given), dtype)
    found[:] = given
    return found


def _depends(life: Life, is_fetched: bool) -> int:
    """A scalar that is only read is held, and nothing else, by every device on which anybody reads it."""
    is_written = bool(life.event["role"].any())
    is_constant = (
        life.region.is_persistent and not life.region.ndim and len(life.ops) and not is_written
    )
    return BY_POINTS_AND_USED if is_fetched else BY_DEVICES if is_constant else BY_POINTS


def _alive(lowering: Lowering, number: int) -> tuple[int, int]:
    life, last = lowering.lives[number], len(lowering.operators) - 1
    if life.region.is_persistent or not life.ops:
        return 0, last
    return 0 if life.producer[0] < 0 else min(
        life.ops
    ), last if number in lowering.fetched else max(life.ops)
