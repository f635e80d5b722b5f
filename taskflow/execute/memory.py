"""Arenas of this rank's devices, those of its peers where memory is shared, and arrays for the instances in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import numpy as np

from taskflow.comm.claims import answer_claims, distant_claims
from taskflow.comm.transport import Transport
from taskflow.core.geometry import Rect
from taskflow.tasks.memory import ALIGNMENT, MemoryPlan
from taskflow.tasks.task_graph import Array, Launch, TaskGraph


class Memory:
    """The arenas of the devices that this rank drives, and arrays for the instances in them.

    With `share_memory` the arenas of all ranks of a host are mapped, so that peers read instances in place.

    Attributes:
        begins_zeroed: whether new arenas hold zeros.
        claim_next: the next item of (launch, round, count), -1 where all are gone; see `with_counters`.
    """

    begins_zeroed = True
    claim_next: Callable[[int, int, int], int]

    def __init__(
        self,
        task_graph: TaskGraph,
        plan: MemoryPlan,
        transport: Transport,
        share_memory: bool = False,
    ) -> None:
        self.task_graph = task_graph
        self.plan = plan
        self.transport = transport
        self.devices = [d for d in range(len(task_graph.machine.devices)) if transport.drives(d)]
        self.arenas: dict[int, Array] = {}
        self.elsewhere: set[int] = set()  # instances whose memory is in no arena
        self._arrays: dict[int, Array] = {}
        self._wholes: dict[
            int, tuple[Array, tuple[int, ...]]
        ] = {}  # in the region's order, and where they begin
        size = self.arena_bytes()
        shared = self.share(sum(size[d] for d in self.devices)) if share_memory else None
        self.is_shared = shared is not None
        if shared is None:
            self.arenas = {d: self.make_arena(d, size[d]) for d in self.devices}
        else:
            self._take_arenas(shared, size)

    def _take_arenas(self, shared: Sequence[Array | None], size: Sequence[int]) -> None:
        """The arenas of devices, of these bytes, lie one after the other in what their ranks share."""
        taken = [0] * len(shared)
        for device, rank in enumerate(self.transport.ranks_of(len(size)).tolist()):
            arena = shared[rank] if rank < len(shared) else None
            if arena is not None:
                self.arenas[device] = arena[taken[rank] : taken[rank] + size[device]]
                taken[rank] += size[device]

    def with_counters(self, launches: Sequence[Launch]) -> Self:
        """This memory, where points of an operator claim items with cells of 64 bits that all ranks reach."""
        ranks = self.transport
        count = len(launches)
        if not any(launch.kernel.claims for launch in launches):
            return self
        from taskflow.backend.claims import claim_next  # which is compiled

        shared = ranks.shared_arrays(8 * count * (not ranks.rank)) or [None]
        cells = np.zeros(8 * count, np.uint8) if shared[0] is None and not ranks.rank else shared[0]
        distant = sum(ranks.gather(cells is None))
        if cells is not None:
            self.claim_next = partial(claim_next, cells.view(np.int64))
        counts = not ranks.rank and distant
        address = ranks.gather(answer_claims(self.claim_next, distant) if counts else None)[0]
        if cells is None:
            self.claim_next = distant_claims(address)
        return self

    def share(self, size_bytes: int) -> Sequence[Array | None] | None:
        """One zeroed byte array of every rank of this host, this one's of that size, which all of them use in place.

        None for ranks of other hosts; None in all where memory cannot be shared.
        """
        return self.transport.shared_arrays(size_bytes)

    def arena_bytes(self) -> list[int]:
        """Of every device: behind what lies there, what it keeps in the memory of its host, which is the same here."""
        sizes: list[int] = (self.plan.peak_bytes + self.plan.host_bytes).tolist()
        return sizes

    def make_arena(self, device: int, size_bytes: int) -> Array:
        """Zeroed bytes in the memory of a device, which begin where a cache line does."""
        room = np.zeros(size_bytes + ALIGNMENT, np.uint8)
        return room[-room.ctypes.data % ALIGNMENT :][:size_bytes]

    def array(self, instance: int) -> Array:
        """The memory of an instance, row-major: its dimensions stand in the region's memory order."""
        if instance not in self._arrays:
            graph = self.task_graph
            start = int(self.plan.offset[instance])
            region = graph.regions[int(graph.instance_region[instance])]
            rect = graph.instance_rect(instance)
            order = self.order_of(instance)
            part = self.part(instance, start, start + rect.volume * region.itemsize)
            self._arrays[instance] = part.view(region.dtype).reshape([rect.shape[d] for d in order])
        return self._arrays[instance]

    def part(self, instance: int, begin: int, end: int) -> Array:
        """The bytes of an instance, of an arena and what is behind it."""
        return self.arenas[int(self.task_graph.instance_device[instance])][begin:end]

    def bind(self, instance: int, array: Array) -> None:
        """Use `array`, of the instance's shape, as its memory."""
        self._arrays[instance] = array.transpose(self.order_of(instance))
        self.elsewhere.add(instance)
        self._wholes.pop(instance, None)

    def view(self, instance: int, rect: Rect) -> Array:
        """The box `rect` (global coordinates) of an instance, in the region's own order of dimensions."""
        if instance not in self._wholes:
            whole = self.array(instance).transpose(np.argsort(self.order_of(instance)).tolist())
            self._wholes[instance] = whole, self.task_graph.instance_rect(instance).lo
        whole, lo = self._wholes[instance]
        return whole[rect.slices(lo)]

    def get(self, instance: int, rect: Rect) -> Array:
        """The box `rect` of an instance in the host's memory: as it lies there, or a copy."""
        return self.view(instance, rect)

    def put(self, instance: int, rect: Rect, value: Array) -> None:
        """Overwrite the box `rect` of an instance with an array of the host."""
        self.view(instance, rect)[...] = value

    def fill(self, instance: int, rect: Rect, values: Callable[[Array], object]) -> None:
        """Have `values` write the box `rect` of an instance."""
        values(self.view(instance, rect))

    def local_box(self, instance: int, rect: Rect) -> Rect:
        """`rect` in the coordinates of `array(instance)`."""
        local = rect.relative_to(self.task_graph.instance_rect(instance).lo)
        order = self.order_of(instance)
        return Rect(tuple(local.lo[d] for d in order), tuple(local.hi[d] for d in order))

    def order_of(self, instance: int) -> tuple[int, ...]:
        """The dimensions of an instance as they lie in memory, slowest first."""
        return self.task_graph.order(int(self.task_graph.instance_region[instance]))
