"""Memory: one arena per device, with the offset of every instance fixed before the first step.

Takes a task graph in its row order; gives lifetimes, offsets and peak bytes. Instances may share bytes when one is dead
before the other is born, by row order: a device runs its rows in that order. Placement is first fit by decreasing size
(Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020: "greedy by size").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.core.compiling import njit
from taskflow.core.text import describe_memory
from taskflow.tasks.task_graph import Array, Kind, TaskGraph

ALIGNMENT = 64
FEED_BLOCKS = 3  # on a GPU: two in turn in which they arrive, and the one that a step reads


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Where every instance lies.

    Attributes:
        offset: bytes from the start of its device's arena, per instance.
        size: bytes, per instance.
        first, last: rows between which an instance is alive (persistent and fetched ones to the end).
        peak_bytes: size of the arena, per device.
        persistent_bytes: the part of it that lives across steps, per device.
        receive: per row, the row before which a receive of that copy is posted (-1: no transfer).
    """

    offset: Array
    size: Array
    first: Array
    last: Array
    peak_bytes: Array
    persistent_bytes: Array
    receive: Array

    def share_bytes(self, task_graph: TaskGraph, some: Array | int, others: Array | int) -> Array:
        """Whether instances lie, in part, in the same bytes of a device; elementwise, of arrays that broadcast."""
        device, begin, size = task_graph.instance_device, self.offset, self.size
        is_before = begin[some] < begin[others] + size[others]
        found: Array = (device[some] == device[others]) & is_before & (begin[others] < begin[some] + size[some])
        return found


def plan_memory(task_graph: TaskGraph, reuse: bool = True, borrowed: Sequence[int] = ()) -> MemoryPlan:
    """The memory plan of every device of `task_graph`, for its row order.

    `borrowed` instances lie in the memory of another executor and take none here.

    With `reuse=False` no two instances share bytes: for executors that run streams side by side, out of row order.
    """
    size = -(-task_graph.instance_bytes() // ALIGNMENT) * ALIGNMENT
    size[list(borrowed)] = 0
    receive = receive_rows(task_graph)
    first, last, persistent = _lifetimes(task_graph, receive)
    if not reuse:
        first, last = np.zeros_like(first), np.where(last >= 0, len(task_graph), -1)
    devices = len(task_graph.machine.devices)
    offset = np.zeros(len(size), np.int64)
    peak, held = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    by_device = np.argsort(task_graph.instance_device, kind="stable")
    ends = np.cumsum(np.bincount(task_graph.instance_device, minlength=devices))
    for device, here in enumerate(np.split(by_device, ends[:-1])):
        pinned, passing = here[persistent[here]], here[~persistent[here] & (last[here] >= 0)]
        offset[pinned] = np.cumsum(size[pinned]) - size[pinned]
        held[device] = size[pinned].sum()
        order = np.lexsort((np.arange(len(passing)), first[passing], -size[passing]))
        offset[passing] = held[device] + _first_fit(order, size[passing], first[passing], last[passing])
        peak[device] = max(held[device], int((offset[passing] + size[passing]).max(initial=0)))
    return MemoryPlan(offset, size, first, last, peak, held, receive)


def check_memory(task_graph: TaskGraph, plan: MemoryPlan) -> None:
    """Refuse what does not fit.

    Raises:
        ValueError: a device's arena is larger than its memory, with the numbers.
    """
    feeds = feed_bytes(task_graph)
    for number, device in enumerate(task_graph.machine.devices):
        peak, persistent = int(plan.peak_bytes[number]), int(plan.persistent_bytes[number])
        staged = FEED_BLOCKS * int(feeds[number]) if device.kind == "cuda" else 0
        if peak + staged > device.memory_bytes:
            needed, kept, passing, fed, room = map(
                describe_memory, (peak + staged, persistent, peak - persistent, staged, device.memory_bytes)
            )
            beside = f", {fed} for feeds on their way" if staged else ""
            raise ValueError(
                f"device {number}: the task graph needs {needed} ({kept} for parameters and state, "
                f"{passing} at the peak of a step{beside}), the device has {room}"
            )


def feed_bytes(task_graph: TaskGraph) -> Array:
    """Bytes of feeds that every device gets in a step."""
    fed = task_graph.kind == Kind.FEED
    sizes = -(-task_graph.bytes[fed] // ALIGNMENT) * ALIGNMENT
    return np.bincount(task_graph.device[fed], sizes, len(task_graph.machine.devices)).astype(np.int64)


def receive_rows(task_graph: TaskGraph) -> Array:
    """For every transfer the row before which its target posts the receive.

    That is the last point that the target device computes before the copy (so the message can arrive meanwhile), but
    behind every row of that device which still uses the memory. (A collective counts as a row of any device.)
    """
    graph = task_graph
    columns = graph.kind, graph.source, graph.device, graph.is_transfer, graph.dep_ptr, graph.dep_row
    receive: Array = _post_rows(*columns, len(graph.machine.devices))
    return receive


@njit
def _post_rows(
    kind: Array, source: Array, device: Array, transfer: Array, dep_ptr: Array, dep_row: Array, devices: int
) -> Array:
    """See `receive_rows`."""
    receive, last_point = np.full(len(kind), -1, np.int64), np.full(devices, -1, np.int64)
    for row in range(len(kind)):
        here = device[row]
        if transfer[row]:
            local = -1
            for k in range(dep_ptr[row], dep_ptr[row + 1]):
                d = dep_row[k]
                if device[d] == here or source[d] == here or kind[d] == Kind.COLLECTIVE:
                    local = max(local, d)
            early = last_point[here] if last_point[here] >= 0 else row
            receive[row] = min(max(early, local + 1), row)
        elif kind[row] == Kind.POINT:
            last_point[here] = row
    return receive


def folded_copies(task_graph: TaskGraph) -> dict[int, tuple[int, int]]:
    """Transfers whose target is only read by a fold: transfer row -> (fold row, number of the argument).

    Where ranks share memory, the fold reads the source itself and the transfer needs no copy.
    """
    is_transfer, latest, found = task_graph.is_transfer, dict[int, int](), dict[int, tuple[int, int]]()
    for row in np.flatnonzero(is_transfer | (task_graph.kind == Kind.FOLD)).tolist():
        first = int(task_graph.arg_ptr[row])
        if is_transfer[row]:
            target = int(task_graph.arg_instance[first + 1])
            if task_graph.instance_partial[target]:
                latest[target] = row
            continue
        for k in range(first + 1, int(task_graph.arg_ptr[row + 1])):
            copy = latest.get(int(task_graph.arg_instance[k]))
            if copy is not None:
                found[copy] = (row, k - first)
    return found


def _lifetimes(task_graph: TaskGraph, receive: Array) -> tuple[Array, Array, Array]:
    count, rows = len(task_graph.instance_region), len(task_graph)
    first, last = np.full(count, rows, np.int64), np.full(count, -1, np.int64)
    row = np.repeat(np.arange(rows), np.diff(task_graph.arg_ptr))
    real = task_graph.arg_instance >= 0
    np.minimum.at(first, task_graph.arg_instance[real], row[real])
    np.maximum.at(last, task_graph.arg_instance[real], row[real])
    transfers = np.flatnonzero(task_graph.is_transfer)
    np.minimum.at(first, task_graph.arg_instance[task_graph.arg_ptr[transfers] + 1], receive[transfers])
    for copy, (fold, _) in folded_copies(task_graph).items():  # the fold may read the source itself
        source = task_graph.arg_instance[task_graph.arg_ptr[copy]]
        last[source] = max(last[source], fold)
    persistent = np.zeros(count, np.bool_)
    for homes in task_graph.homes.values():
        persistent[[i for i, _ in homes]] = True
    fetched = [i for places in task_graph.fetches.values() for _, i, _ in places]
    last[fetched] = rows
    return first, last, persistent


@njit
def _first_fit(order: Array, size: Array, first: Array, last: Array) -> Array:
    """Offsets: in `order`, each at the lowest one at which nothing that was placed and lives meanwhile is hit."""
    offset, placed = np.zeros(len(size), np.int64), np.empty(len(size), np.int64)  # `placed` by offset
    for n in range(len(order)):
        k, start = order[n], 0
        for i in range(n):
            rival = placed[i]
            if first[rival] <= last[k] and last[rival] >= first[k]:
                if offset[rival] >= start + size[k]:
                    break
                start = max(start, offset[rival] + size[rival])
        offset[k] = start
        i = n
        while i > 0 and offset[placed[i - 1]] > start:
            placed[i] = placed[i - 1]
            i -= 1
        placed[i] = k
    return offset
