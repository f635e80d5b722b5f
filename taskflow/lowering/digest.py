"""A hash of what decides the rows of all devices, without these rows: ranks that make their own rows compare it.

Rows are a function of operators in their order, the points that they have, the fragments of regions, and the machine,
which decides by which algorithm a collective is carried out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from taskflow.core.columns import Array
from taskflow.graph.graph import LogicalRegion
from taskflow.lowering.fragments import Found
from taskflow.lowering.rows import DistinctPoints
from taskflow.machine import MachineModel
from taskflow.tasks.task_graph import Launch


def digest_of(
    launches: Sequence[Launch],
    regions: Sequence[LogicalRegion],
    orders: Mapping[str, tuple[int, ...]],
    chosen: DistinctPoints,
    by_region: Found,
    machine: MachineModel,
) -> str:
    """Equal for equal rows of all devices, and only for these.

    Args:
        launches, regions, orders: see `TaskGraph`.
        chosen, by_region: of all devices.
        machine: with its choice of collectives.
    """
    hasher = hashlib.sha256()  # twice as fast as BLAKE2 where processors know it: 100 MB
    texts = *_texts(launches, regions, orders), *map(str, machine.collectives.items())
    hasher.update("\0".join(texts).encode())
    for array in _arrays(launches, chosen, by_region, machine):
        hasher.update(f"{array.shape} ".encode())
        hasher.update(np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()[:32]


def _texts(
    launches: Sequence[Launch],
    regions: Sequence[LogicalRegion],
    orders: Mapping[str, tuple[int, ...]],
) -> Iterable[str]:
    for launch in launches:
        degrees = launch.config.degrees  # the devices are in the columns
        yield f"{launch.name} {launch.identity} {launch.step} {launch.args} {degrees}"
    for region in regions:
        yield f"{region.name} {region.shape} {region.dtype} {region.init} {orders.get(region.name)}"


def _arrays(
    launches: Sequence[Launch], chosen: DistinctPoints, by_region: Found, machine: MachineModel
) -> Iterable[Array]:
    spans = {id(launch.spans): launch.spans for launch in launches}  # many share them
    yield from spans.values()
    yield from (chosen.which, chosen.points, chosen.device)  # all else of a point follows
    yield from (by_region.which, by_region.shift)
    for fragment in by_region.fragments:
        yield from vars(fragment).values()
    yield from machine.ways.columns
    yield np.array([device.host for device in machine.devices])
