"""Blocks: what a device does for one micro-batch without a break, as schedules are searched over.

Takes blocks in the user's units of time and memory and gives a `Table`: whole units of time, and the longest path
between every two blocks. A block stands for one micro-batch; every micro-batch has all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from taskflow.core.columns import Array

FINEST = 256  # units that the busiest device computes in a micro-batch: finer spans are rounded up
FAR = 1 << 40  # units: no path leads from one block to the other


class Block(NamedTuple):
    """Rows of one micro-batch that run one after the other.

    Attributes:
        span: how long it takes, in any unit of time.
        memory: what it takes of each of its devices at its start, in any unit; negative where it gives back.
        devices: where it runs, on all of them at the same time.
        after: numbers of the blocks of the same micro-batch that it waits for.
    """

    span: float
    memory: float
    devices: Sequence[int]
    after: Sequence[int] = ()


class Table(NamedTuple):
    """Blocks as columns, for compiled code.

    Attributes:
        span: whole units of time, by block.
        memory: by block, on each of its devices.
        limit: memory of every device.
        on: whether a block (first axis) runs on a device (second).
        after: whether a block (first axis) waits for another (second).
        distance: units of the longest path from the start of a block (first axis) to that of another; -FAR: no path.
    """

    span: Array
    memory: Array
    limit: Array
    on: Array
    after: Array
    distance: Array


def _limit(memory: Any, devices: int) -> Array:
    """(devices,) bytes; ValueError where a number is none, or there is none for each."""
    if memory is None:
        return np.full(devices, np.inf)
    given = [memory] * devices if isinstance(memory, Real | str) else list(memory)
    for value in given:
        if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0:
            raise ValueError(f"schedule: memory is {value!r}, a number from 0 is needed")
    if len(given) != devices:
        raise ValueError(f"schedule: memory of {len(given)} devices, blocks are on {devices}")
    return np.array(given, float)


def table_of(
    blocks: Sequence[Block], memory: float | Sequence[float] | None
) -> tuple[Table, float]:
    """The columns of `blocks`, and how long a unit of time is; spans that are finer are rounded up.

    Args:
        blocks: of one micro-batch, in any order.
        memory: of every device, or of each; None: without limit.

    Raises:
        ValueError: a block is not possible, or waits for itself, or a micro-batch does not give back what it took.
    """
    _check(blocks)
    unit = _unit(blocks)
    span = np.array([math.ceil(Fraction(block.span) / unit) for block in blocks], np.int64)
    on = np.zeros((len(blocks), 1 + max(max(block.devices) for block in blocks)), np.bool_)
    after = np.zeros((len(blocks), len(blocks)), np.bool_)
    for number, block in enumerate(blocks):
        on[number, list(block.devices)] = True
        after[number, list(block.after)] = True
    held = np.array([block.memory for block in blocks], float)
    _check_memory(held, on)
    return Table(
        span,
        held,
        _limit(memory, on.shape[1]),
        on,
        after,
        distances(span, after),
    ), float(unit)


def is_exact(blocks: Sequence[Block], unit: float) -> bool:
    """Whether every span is a number of whole units, so that what is proven of units holds."""
    return all((Fraction(block.span) / Fraction(unit)).denominator == 1 for block in blocks)


def repeated(table: Table, parts: int) -> Table:
    """The blocks of so many micro-batches: block i of micro-batch k is number `k * blocks + i`."""
    blocks = len(table.span)
    same = np.eye(parts, dtype=np.bool_)
    distance = np.full((parts, blocks, parts, blocks), -FAR)
    for part in range(parts):
        distance[part, :, part] = table.distance
    return Table(
        np.tile(table.span, parts),
        np.tile(table.memory, parts),
        table.limit,
        np.tile(table.on, (parts, 1)),
        np.kron(same, table.after),
        distance.reshape(parts * blocks, parts * blocks),
    )


def _check(blocks: Sequence[Block]) -> None:
    if not blocks:
        raise ValueError("blocks: there are none")
    for number, block in enumerate(blocks):
        if not (math.isfinite(block.span) and block.span >= 0 and math.isfinite(block.memory)):
            raise ValueError(
                f"block {number}: span {block.span} and memory {block.memory} must be finite, span >= 0"
            )
        if not block.devices or min(block.devices) < 0:
            raise ValueError(
                f"block {number}: devices are {list(block.devices)}; it needs one or more, from 0 on"
            )
        for other in block.after:
            if not 0 <= other < len(blocks):
                raise ValueError(f"block {number}: waits for block {other} of {len(blocks)}")
    if not any(block.span for block in blocks):
        raise ValueError("blocks: every span is 0")
    try:
        TopologicalSorter({number: block.after for number, block in enumerate(blocks)}).prepare()
    except CycleError as error:
        around = " after ".join(str(number) for number in error.args[1])
        raise ValueError(f"blocks: wait for each other in a circle: {around}") from None


def _check_memory(held: Array, on: Array) -> None:
    left = held @ on
    for device in np.flatnonzero(abs(left) > 1e-9 * abs(held).sum()):
        raise ValueError(
            f"device {device}: a micro-batch takes memory and gives back; {left[device]:g} are left over"
        )


def _unit(blocks: Sequence[Block]) -> Fraction:
    """The longest unit of time that measures every span, or one that is short enough."""
    spans = [Fraction(block.span) for block in blocks if block.span]
    shared = Fraction(math.lcm(*(span.denominator for span in spans)))
    exact = math.gcd(*(int(span * shared) for span in spans)) / shared
    work: dict[int, Fraction] = {}
    for block in blocks:
        for device in set(block.devices):
            work[device] = work.get(device, Fraction(0)) + Fraction(block.span)
    return max(exact, max(work.values()) / FINEST)


def distances(span: Array, after: Array) -> Array:
    """Units of the longest path from the start of a block (first axis) to that of another; -FAR: there is no path."""
    blocks = len(span)
    distance = np.full((blocks, blocks), -FAR)
    np.fill_diagonal(distance, 0)
    for number in TopologicalSorter(
        {k: np.flatnonzero(after[k]).tolist() for k in range(blocks)}
    ).static_order():
        for before in np.flatnonzero(after[number]):
            np.maximum(
                distance[:, number], distance[:, before] + span[before], out=distance[:, number]
            )
    return np.where(distance < 0, -FAR, distance)
