"""Which spans of rows a graph has, whatever the strategy, and which operators and regions have to do with them.

A span is the rows of one operator, or those that move one version of a region. A group is the spans that stand with
one operator (`lowering.rows.IssueOrder`): what fills the regions that it is the first to read, its points, and what
moves the versions that it makes. The rows of a group are issued by their ordinals (`lowering.ordinals`), and those of
one ordinal span after span.
The issuers of a region are the operators that touch it, numbered in program order, then its versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers, record
from taskflow.lowering import Lowering
from taskflow.lowering.life import Life

SPAN = record("op", "region", "version")  # op or region: -1
WAIT = record("region", "issuer", "first")


class Layout(NamedTuple):
    """What depends on the graph alone. `x` of k is `x[x_ptr[k] : x_ptr[k + 1]]`.

    Attributes:
        span: (spans,) SPAN: its operator, or the region and version that it moves.
        group_ptr: per group its first span.
        wait_ptr, wait: per span WAIT: the regions through which it waits, its number among their issuers, and the first
            of these in `issuer_span`.
        issuer_span: the span of every issuer of every region.
    """

    span: Array
    group_ptr: Array
    wait_ptr: Array
    wait: Array
    issuer_span: Array


def lay_out(lowering: Lowering) -> Layout:
    """The layout of a graph."""
    order = lowering.order
    span = np.zeros(len(order.numbers), SPAN)
    span[:] = order.sequence
    group = order.group[order.numbers] + 1
    group_ptr = np.searchsorted(group, np.arange(len(lowering.operators) + 2))
    issuer_span = np.argsort(order.numbers)[order.issuers]
    return Layout(span, group_ptr, *_waits(lowering, issuer_span, len(span)), issuer_span)


def _waits(lowering: Lowering, issuer_span: Array, spans: int) -> tuple[Array, Array]:
    """`wait_ptr` and `wait` of so many spans."""
    lives = lowering.mover.table
    issuer_ptr = lives.op_ptr + lives.producer_ptr
    region = np.repeat(np.arange(len(issuer_ptr) - 1), np.diff(issuer_ptr))
    by_span = np.argsort(issuer_span, kind="stable")
    waits = by_span[~np.isin(region[by_span], constants(lowering.lives))]
    wait = np.zeros(len(waits), WAIT)
    wait["region"] = region[waits]
    wait["first"] = issuer_ptr[wait["region"]]
    wait["issuer"] = waits - wait["first"]
    return pointers(np.bincount(issuer_span[waits], minlength=spans)), wait


def constants(lives: Sequence[Life]) -> list[int]:
    """Regions of which nothing moves: nobody reads them, or they are scalars that are only read."""
    return [
        number
        for number, life in enumerate(lives)
        if not life.event["role"].any()
        and (not life.ops or (life.region.is_persistent and not life.region.ndim))
    ]


def lifetimes(lowering: Lowering) -> tuple[Array, Array]:
    """First and last operator between which the instances of every region are needed."""
    last = len(lowering.operators) - 1
    ends = np.zeros((2, len(lowering.lives)), np.int64)
    for number, life in enumerate(lowering.lives):
        is_kept = life.region.is_persistent or not life.ops
        ends[0, number] = 0 if is_kept or life.producer[0] < 0 else min(life.ops)
        ends[1, number] = last if is_kept or number in lowering.fetched else max(life.ops)
    return ends[0], ends[1]
