"""Energy of a step: what devices compute and read, what links carry, and what all draw meanwhile.

A device takes its joules for each flop of a point, for each byte that a point, a copy within it, a fold or a feed reads
and writes, and its watts as long as the step. What goes from device to device is counted once for each link that it
crosses, and not in the memories at its ends.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from taskflow.core.dtypes import computing_dtype
from taskflow.tasks.task_graph import Array, TaskGraph


def joules_of(task_graph: TaskGraph, seconds: float, link_bytes: Mapping[int, int]) -> float | None:
    """Of a step; None: a device, or a link that carries something, does not say what it takes.

    Rows of some devices alone have no energy of a step either.
    """
    machine = task_graph.machine
    if not (task_graph.is_complete or task_graph.peers):
        return None
    per_flop, per_byte, watts = (
        [getattr(device, name) for device in machine.devices]
        for name in ("joules_per_flop", "joules_per_byte", "watts")
    )
    per_link = [machine.links[link].joules_per_byte for link in link_bytes]
    if None in (*per_flop, *per_byte, *watts, *per_link):
        return None
    device = task_graph.device
    peers = task_graph.peers
    size = np.where(task_graph.is_communication, 0, task_graph.bytes)
    rows = task_graph.flops * np.array(per_flop)[device] * _of_dtypes(task_graph)
    rows += size * np.array(per_byte)[device]
    computed = rows.sum() if peers is None else rows @ peers.count
    carried = np.array(per_link, float) @ np.array([*link_bytes.values()], float)
    return float(computed + carried + seconds * np.sum(watts))


def _of_dtypes(task_graph: TaskGraph) -> Array:
    """Per row, joules of a flop of its dtype over those of float32: the higher the rate, the less."""
    of_launches = [
        computing_dtype(task_graph.regions[k].dtype for k in launch.args)
        for launch in task_graph.launches
    ]
    of_launches.append("float32")  # of the launch -1: no point
    dtypes, number = np.unique(of_launches, return_inverse=True)
    shares = np.array(
        [
            [device.flops_per_second / device.rate(dtype) for dtype in dtypes.tolist()]
            for device in task_graph.machine.devices
        ]
    )
    of_rows: Array = shares[task_graph.device, number[task_graph.launch]]
    return of_rows
