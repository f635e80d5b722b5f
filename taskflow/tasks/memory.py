"""Memory: one arena per device, with the offset of every instance fixed before the first step.

Behind what lies in the memory of a device stands what the device keeps in that of its host (`graph.offload`).

Takes a task graph in its row order; gives lifetimes, offsets, peak bytes, and who waits for whose bytes. Instances may
share bytes when one is dead before the other is born. Placement is first fit by decreasing size (Pisarchyk and Lee,
"Efficient memory management for deep neural net inference", 2020: "greedy by size").

Lifetimes decide who waits (`taskflow.tasks.lifetimes`). A device has a wait-free plan, by which nobody waits for
memory, if at least half of what the tight plan would leave of its memory stays free: for an evaluation, or others,
beside it. Else its lifetimes are those by row order, which make the tight plan, and at both ends so many rows longer,
but never longer than wait-free ones, as leave that half free, of a few numbers of rows. So bytes of what is gathered,
summed or carried away are needed some rows later: 6.7B on 8 GPUs of 24 GB, activations on their hosts, is 1.15 times as
fast. A tight plan takes at least what is alive at once: where the wait-free one leaves half free even beside that, no
tight one is made. Else the tight plan alone decides what fits, and a device that is said to have less memory
(`MachineModel.with_rates`) has a tighter plan. Steps of four models on 4 to
16 P100 take with tight plans 1.02 times what they take without waits in the median, 1.39 times at most; with wait-
free ones just that, and 1.007 times the bytes in the median, 1.66 times at most (`benchmarks/reuse.py`). On CPUs
waits take 0.1 % of a step: plans are tight.

What makes a row wait is in the task graph, or it does not exist: `with_reuse` is the task graph whose rows wait for the
memory that they take over, too. Simulation and execution read that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from taskflow.core.columns import distinct, spread
from taskflow.core.compiling import tiered
from taskflow.core.grouping import grouped
from taskflow.core.text import describe_memory
from taskflow.machine import MachineModel
from taskflow.tasks.calls import with_calls
from taskflow.tasks.first_fit import first_fit, most_alive
from taskflow.tasks.lifetimes import lifetimes_by_order, uses_beside, wait_free_lifetimes
from taskflow.tasks.reuse import reuse_edges
from taskflow.tasks.task_graph import Array, Kind, TaskGraph

ALIGNMENT = 64
FEED_BLOCKS = 3  # on a GPU: two in turn in which they arrive, and the one that a step reads


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Where every instance lies.

    Attributes:
        offset: bytes from the start of its device's arena, per instance.
        size: bytes, per instance.
        first, last: rows between which an instance is alive by row order (persistent and fetched ones to the end).
        peak_bytes: size of the arena, per device.
        persistent_bytes: the part of it that lives across steps, per device.
        host_bytes: behind it, what every device keeps in the memory of its host.
        receive: per row, the row before which a receive of that copy is posted (-1: no transfer).
        reuse_ptr, reuse_rows: row k also waits for the rows `reuse_rows[reuse_ptr[k] : reuse_ptr[k + 1]]`, which use
            memory that an instance of it takes over (see `taskflow.tasks.reuse`).
    """

    offset: Array
    size: Array
    first: Array
    last: Array
    peak_bytes: Array
    persistent_bytes: Array
    host_bytes: Array
    receive: Array
    reuse_ptr: Array
    reuse_rows: Array

    def share_bytes(self, task_graph: TaskGraph, some: Array | int, others: Array | int) -> Array:
        """Whether instances lie, in part, in the same bytes of a device; elementwise, of arrays that broadcast."""
        device = task_graph.instance_device
        begin = self.offset
        size = self.size
        is_before = begin[some] < begin[others] + size[others]
        shared: Array = (
            (device[some] == device[others])
            & is_before
            & (begin[others] < begin[some] + size[some])
        )
        return shared


def plan_memory(
    task_graph: TaskGraph, borrowed: Sequence[int] = (), *, is_predicted: bool = False
) -> MemoryPlan:
    """The memory plan of every device of `task_graph`, for its row order.

    Args:
        task_graph: the rows.
        borrowed: instances that lie in the memory of another executor and take none here.
        is_predicted: leave out who waits for memory of wait-free devices. Streams imply it where rows of each are done
            in their order, as those of a simulation; an executor waits for every message by itself.
    """
    size = -(-task_graph.instance_bytes() // ALIGNMENT) * ALIGNMENT
    size[list(borrowed)] = 0
    if task_graph.devices is not None:  # memory of other devices is planned with their rows
        size[~np.isin(task_graph.instance_device, task_graph.devices)] = 0
    receive = receive_rows(task_graph)
    other_uses = uses_beside(task_graph)
    first, last, persistent = lifetimes_by_order(task_graph, receive, other_uses)
    devices = len(task_graph.machine.devices)
    on_host = task_graph.is_on_host
    device = task_graph.instance_device + devices * on_host  # as if hosts were devices, too
    pinned, passing = np.flatnonzero(persistent), np.flatnonzero(~persistent & (last >= 0))
    pinned = pinned[np.argsort(device[pinned], kind="stable")]
    passing = passing[grouped(first[passing], len(task_graph))[1]]
    sizes = distinct(-size[passing])
    passing = passing[grouped(np.searchsorted(sizes, -size[passing]), len(sizes))[1]]
    held = np.bincount(device[pinned], size[pinned], 2 * devices).astype(np.int64)
    offset = np.zeros(len(size), np.int64)
    offset[pinned] = (
        np.cumsum(size[pinned]) - size[pinned] - (np.cumsum(held) - held)[device[pinned]]
    )
    peak = held.copy()

    def place(first: Array, last: Array, most: Array, is_open: Array) -> Array:
        """Peaks where what passes on some devices is placed; that is the plan of those whose peak is `most` at most."""
        some = passing[is_open[device[passing]]]
        where = device[some]
        begin = held[where] + first_fit(where, size[some], first[some], last[some])
        high = held.copy()
        np.maximum.at(high, where, begin + size[some])
        fits = is_open & (high <= most)
        peak[fits] = high[fits]
        offset[some[fits[where]]] = begin[fits[where]]
        return high

    room = np.zeros(2 * devices, np.int64)
    room[:devices] = spendable_bytes(task_graph.machine)
    room[:devices] -= staged_bytes(task_graph) + reserved_bytes(task_graph)
    most = most_alive(device[passing], size[passing], first[passing], last[passing], 2 * devices)
    least = held + most
    is_open = least < room
    is_free = np.zeros(2 * devices, np.bool_)
    if is_open.any():
        free = wait_free_lifetimes(task_graph, first, last, other_uses)
        most = (least + room) // 2  # whatever the tight plan takes
        longest = place(*free, most, is_open)
        is_free = is_open & (longest <= most)
    place(first, last, np.full(2 * devices, np.iinfo(np.int64).max), ~is_free)
    is_open = ~is_free & (peak < room)
    if is_open.any():
        most = (peak + room) // 2
        is_free |= is_open & (longest <= most)
        place(*free, most, is_open & is_free)
        is_open &= ~is_free
        rows = (1 << len(task_graph).bit_length()) // 16
        while rows and is_open.any():
            longer = (
                np.maximum(free[0], 2 * (first - rows)),
                np.minimum(free[1], 2 * (last + rows)),
            )
            is_open &= place(*longer, most, is_open) > most
            rows //= 16
    offset[on_host] += peak[task_graph.instance_device[on_host]]
    edges = reuse_edges(task_graph, offset, size * ~(is_predicted & is_free[device]), first, last)
    of_devices = peak[:devices], held[:devices], peak[devices:]
    return MemoryPlan(offset, size, first, last, *of_devices, receive, *edges)


def with_reuse(task_graph: TaskGraph, plan: MemoryPlan) -> TaskGraph:
    """The task graph in which every row also waits for the rows whose memory it takes over, and calls as a whole."""
    counts = np.diff(task_graph.dep_ptr)
    added = np.diff(plan.reuse_ptr)
    ptr = task_graph.dep_ptr + plan.reuse_ptr
    rows = np.empty(ptr[-1], np.int64)
    rows[spread(ptr[:-1], counts)] = task_graph.dep_row
    rows[spread(ptr[:-1] + counts, added)] = plan.reuse_rows
    return with_calls(replace(task_graph, dep_ptr=ptr, dep_row=rows))


def needed_bytes(task_graph: TaskGraph, plan: MemoryPlan) -> Array:
    """Bytes that every device needs: its arena, on a GPU blocks for feeds on their way, and what no instance has."""
    needed: Array = plan.peak_bytes + staged_bytes(task_graph) + reserved_bytes(task_graph)
    return needed


def shortage(task_graph: TaskGraph, plan: MemoryPlan, needed: Array | None = None) -> str:
    """What does not fit: the device that lacks most, with the numbers; empty where all fits.

    The one rule of it, for searches, reports and executors alike. `needed`: see `needed_bytes`, where that is known.
    """
    needed = needed_bytes(task_graph, plan) if needed is None else needed
    memory = np.array([d.memory_bytes for d in task_graph.machine.devices])
    device = int(np.argmax(needed - memory))
    if needed[device] <= memory[device]:
        return _host_shortage(task_graph, plan)
    kept = int(plan.persistent_bytes[device])
    passing = int(plan.peak_bytes[device]) - kept
    others = {
        "for feeds on their way": staged_bytes(task_graph)[device],
        "of context and communicators": reserved_bytes(task_graph)[device],
    }
    beside = "".join(f", {describe_memory(size)} {what}" for what, size in others.items() if size)
    return (
        f"device {device}: the task graph needs {describe_memory(needed[device])} ({describe_memory(kept)} for "
        f"parameters and state, {describe_memory(passing)} at the peak of a step{beside}), the device has "
        f"{describe_memory(memory[device])}"
    )


def _host_shortage(task_graph: TaskGraph, plan: MemoryPlan) -> str:
    """The host that lacks most for what its devices keep in its memory; empty where all fits."""
    machine = task_graph.machine
    kept = plan.host_bytes
    if task_graph.peers is not None:
        orbits = task_graph.peers.orbits
        kept = kept[orbits.representative[orbits.of]]
    host = np.array([device.host for device in machine.devices])
    of_hosts = [(int(kept[host == m.host].sum()), m.memory_bytes, m.host) for m in machine.memories]
    needed, has, number = max(of_hosts, key=lambda of: of[0] - of[1], default=(0, 0, 0))
    if needed <= has:
        return ""
    return (
        f"host {number}: its devices keep {describe_memory(needed)} in its memory, which has "
        f"{describe_memory(has)} for them"
    )


def spendable_bytes(machine: MachineModel) -> Array:
    """Memory of every device, where spending it spares time: not on a CPU, whose one stream hardly ever waits."""
    return np.array([0 if d.kind == "cpu" else d.memory_bytes for d in machine.devices], np.int64)


def staged_bytes(task_graph: TaskGraph) -> Array:
    """Bytes beside the arena of every device, for feeds on their way to a GPU."""
    fed = (task_graph.kind == Kind.FEED) & np.array(
        [d.kind == "cuda" for d in task_graph.machine.devices]
    )[task_graph.device]
    sizes = -(-task_graph.bytes[fed] // ALIGNMENT) * ALIGNMENT
    return FEED_BLOCKS * np.bincount(
        task_graph.device[fed], sizes, len(task_graph.machine.devices)
    ).astype(np.int64)


def reserved_bytes(task_graph: TaskGraph) -> Array:
    """Bytes of every device that no instance has: the context, and buffers for each group that it communicates in.

    Groups are those of collectives; what devices send one another goes through one more.
    """
    machine = task_graph.machine
    count = len(task_graph.machine.devices)
    sizes = np.array([(d.reserved_bytes, d.communicator_bytes) for d in machine.devices], np.int64)
    if not sizes[:, 1].any():
        return sizes[:, 0]
    spans = {(0, 0, 0): (task_graph, slice(len(task_graph)), [0])}
    if task_graph.peers is not None:  # representatives have rows of theirs alone: all are in tables
        spans = {}
        for kind in task_graph.peers.kinds:
            key = id(kind.table), *kind.ends
            spans.setdefault(key, (kind.table.rows, kind.span, []))[2].append(kind.by)
    members = [np.zeros(0, np.int64)]
    talks = np.zeros(count, np.bool_)
    for rows, span, moved in spans.values():
        together = np.unique(rows.streams[span][rows.kind[span] == Kind.COLLECTIVE, 0])
        groups = [np.array(rows.groups.devices_of(-2 - g), np.int64) for g in together.tolist()]
        moves = np.flatnonzero(rows.is_transfer[span]) + (span.start or 0)
        ends = np.unique(np.concatenate([rows.source[moves], rows.device[moves]]))
        for by in set(moved):
            members += [group + by for group in groups]
            talks[ends + by] = True
    different = {group.tobytes(): group for group in members}
    joined = np.bincount(np.concatenate(list(different.values())), minlength=count)
    reserved: Array = sizes[:, 0] + sizes[:, 1] * (joined + talks)
    return reserved


def receive_rows(task_graph: TaskGraph) -> Array:
    """For every transfer the row before which its target posts the receive.

    That is the last point that the target device computes before the copy (so the message can arrive meanwhile), but
    behind every row of that device which still uses the memory. (A collective counts as a row of any device.)
    """
    graph = task_graph
    columns = (
        graph.kind,
        graph.source,
        graph.device,
        graph.is_transfer,
        graph.dep_ptr,
        graph.dep_row,
    )
    receive: Array = _post_rows(*columns, len(graph.machine.devices))
    return receive


@tiered
def _post_rows(
    kind: Array,
    source: Array,
    device: Array,
    transfer: Array,
    dep_ptr: Array,
    dep_row: Array,
    devices: int,
) -> Array:
    """See `receive_rows`."""
    receive = np.full(len(kind), -1, np.int64)
    last_point = np.full(devices, -1, np.int64)
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
