"""The judge of a search: strategy -> predicted seconds of one step, and the same after some operators changed.

It holds one current strategy, as entries of a pool of packed rows. `propose` judges a neighbour of it, from the first
stretch of rows that changed and only as far as it may still be accepted; `accept` moves there. A proposal that is not
accepted leaves no trace. Infinite seconds mean: illegal, slower than the limit, or more than the memory of a device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.cost import CostModel
from taskflow.graph import Graph
from taskflow.lower import Lowering
from taskflow.machine import MachineModel
from taskflow.memory import plan_memory
from taskflow.partition import Points
from taskflow.search.pool import Pool
from taskflow.strategy import ParallelConfig, Strategy, check_config, check_strategy, effective_config
from taskflow.task import STREAMS, Array

POOL_BYTES = 2 << 30  # packed rows beyond that are forgotten
MARK_BYTES = 32 << 20  # for what is remembered along the way, so that a proposal need not begin at the first row


@dataclass(frozen=True, eq=False)
class Layout:
    """Which stretches of rows there are, whatever the strategy; see `taskflow.search.resimulate`.

    Attributes:
        stretch: (stretches, 3) operator (or -1), region, version.
        touch_ptr, touch, local_ptr, local_stretch: as `resimulate` wants them.
        regions: per operator, the regions that it touches.
        first: per region, the first stretch with rows of it or of an operator that touches it.
        alive: (regions, 2) first and last operator between which the region's instances are needed.
    """

    stretch: Array
    touch_ptr: Array
    touch: Array
    local_ptr: Array
    local_stretch: Array
    regions: tuple[tuple[int, ...], ...]
    first: Array
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
    regions = tuple(tuple(n for n, _ in touch[place[op, -1, -1]]) for op in range(len(lowering.operators)))
    return Layout(
        np.array(list(place), np.int64),
        _pointers([len(t) for t in touch]),
        np.array([t for touched in touch for t in touched], np.int64).reshape(-1, 2),
        _pointers([len(stretches) for stretches in local]),
        np.array([b for stretches in local for b in stretches], np.int64),
        regions,
        np.array([min(stretches) for stretches in local], np.int64),
        np.array([_alive(lowering, number) for number in range(len(lives))], np.int64),
    )


def _alive(lowering: Lowering, number: int) -> tuple[int, int]:
    life, last = lowering.lives[number], len(lowering.operators) - 1
    if life.region.is_persistent or not life.ops:
        return 0, last
    return 0 if life.producer[0] < 0 else min(life.ops), last if number in lowering.fetched else max(life.ops)


def _pointers(lengths: Sequence[int]) -> Array:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@dataclass
class _Proposal:
    """What a proposed strategy has other than the current one, and where its times are if they are known."""

    strategy: Strategy
    points: dict[int, Points]
    slots: list[int]
    ops: list[int]
    regions: list[int]
    fragments: list[int]
    presence: Array
    used: Array
    work: Array
    bytes: Array
    first: int


class Judge:
    """See the module. `last_refusal` says why the last strategy was infinitely slow, where it is not the limit."""

    def __init__(self, graph: Graph, machine: MachineModel, costs: CostModel) -> None:
        self.graph, self.machine, self.costs = graph, machine, costs
        self.last_refusal = ""
        self._devices = len(machine.devices)
        self._capacity = np.array([d.memory_bytes for d in machine.devices])
        self._known = {op.name: op for op in graph.operators}
        self._followers: dict[str, list[int]] = {op.name: [] for op in graph.operators}
        for slot, op in enumerate(graph.operators):
            self._followers[op.follows or op.name].append(slot)
            if op.follows:
                self._followers[op.name].append(slot)
        self._is_refilling = False
        self._fill()

    def _fill(self) -> None:
        """An empty pool and no current strategy."""
        self.lowering = Lowering(self.graph, self.machine)
        self.layout = lay_out(self.lowering)
        self.pool = Pool(self.lowering, self.costs)
        self.strategy = Strategy({})
        ops, regions = len(self.lowering.operators), len(self.lowering.regions)
        self._points: list[Points] = []
        self._op, self._fragment = np.full(ops, -1, np.int64), np.full(regions, -1, np.int64)
        self._presence = np.zeros(self._devices, np.int64)  # operators that have points on a device
        self._used = np.zeros(0, np.int64)
        streams = STREAMS * self._devices + len(self.machine.links)
        self._work, self._bytes = np.zeros(streams), np.zeros(self._devices)
        self._alive = np.zeros((ops, self._devices))
        stretches, state = len(self.layout.stretch), 2 * streams + 1
        self._every = max(1, -(-stretches * state * 8 // MARK_BYTES))
        marks = (stretches // self._every + 1, state)
        self._base, self._new_base = np.zeros(stretches + 1, np.int64), np.zeros(stretches + 1, np.int64)
        self._marks, self._new_marks = np.zeros(marks), np.zeros(marks)
        self._end, self._new_end, self._start = np.zeros(0), np.zeros(0), np.zeros(0)
        self._proposed: _Proposal | None = None

    def start(self, strategy: Strategy) -> float:
        """Make `strategy` the current one; its seconds. It may need too much memory, but it has to be legal."""
        check_strategy(self.graph, strategy, self._devices)
        seconds = self.seconds(strategy)
        if self._proposed is None:
            self._judge(strategy.copy(), self._other_points(strategy), math.inf, is_forced=True)
        self.accept()
        return seconds

    def propose(self, name: str, config: ParallelConfig, limit: float = math.inf) -> float:
        """Seconds of the current strategy with another configuration of the operator `name`.

        What is slower than `limit` is given up early: then the result is infinite.
        """
        return self.propose_all({name: config}, limit)

    def propose_all(self, changes: Mapping[str, ParallelConfig], limit: float = math.inf) -> float:
        """Seconds of the current strategy with other configurations of some operators; `limit` as for `propose`."""
        self._proposed = None
        strategy = self.strategy.copy()
        strategy.update(changes)
        try:
            for name, config in changes.items():
                check_config(self._known[name], config, self._devices)
            points = self._changed_points(changes, strategy)
        except ValueError as error:
            self.last_refusal = str(error)
            return math.inf
        return self._judge(strategy, points, limit)

    def accept(self) -> None:
        """Make the strategy that was proposed last the current one."""
        from taskflow.search.resimulate import add_alive  # numba: imported on first use

        p = self._proposed
        assert p is not None, "nothing was proposed, or it was refused"
        mark = p.first // self._every if self._points else 0
        begin = mark * self._every
        row = int(self._base[begin])
        rows = int(self._new_base[-1])
        self._end = _grown(self._end, rows)
        self._end[row:rows] = self._new_end[row:rows]
        self._base[begin:] = self._new_base[begin:]
        self._marks[mark:] = self._new_marks[mark:]
        add_alive(self._alive, self.layout.alive[p.regions], self._grows(p))
        if not self._points:
            self._points = [p.points[slot] for slot in range(len(p.points))]
        for slot, points in p.points.items():
            self._points[slot] = points
        self._op[p.slots], self._fragment[p.regions] = p.ops, p.fragments
        self.strategy, self._used, self._work, self._bytes = p.strategy, p.used, p.work, p.bytes
        self._presence = p.presence
        self._proposed = None
        if self.pool.size_bytes > POOL_BYTES and not self._is_refilling:
            strategy, self._is_refilling = self.strategy, True
            self._fill()
            self.start(strategy)
            self._is_refilling = False

    def seconds(self, strategy: Strategy, limit: float = math.inf) -> float:
        """Seconds of any strategy; `limit` as for `propose`. It counts as proposed."""
        self._proposed = None
        try:
            check_strategy(self.graph, strategy, self._devices)
            points = self._other_points(strategy)
        except ValueError as error:
            self.last_refusal = str(error)
            return math.inf
        return self._judge(strategy.copy(), points, limit)

    @property
    def rows(self) -> int:
        """Rows of the current strategy's task graph."""
        return int(self._base[-1])

    @property
    def ends(self) -> Array:
        """When each of them ends, in row order."""
        return self._end[: self.rows]

    # -- judging -------------------------------------------------------------------------------------------------------

    def _changed_points(self, changes: Mapping[str, ParallelConfig], strategy: Strategy) -> dict[int, Points]:
        found = {}
        for name in changes:
            for slot in self._followers[name]:
                op = self.lowering.operators[slot]
                points = self.lowering.points_of(slot, effective_config(op, strategy)[0])
                if points is not self._points[slot]:
                    found[slot] = points
        return found

    def _other_points(self, strategy: Strategy) -> dict[int, Points]:
        found = {}
        for slot, op in enumerate(self.lowering.operators):
            points = self.lowering.points_of(slot, effective_config(op, strategy)[0])
            if not self._points or points is not self._points[slot]:
                found[slot] = points
        return found

    def _judge(self, strategy: Strategy, points: dict[int, Points], limit: float, is_forced: bool = False) -> float:
        slots = sorted(points)
        everything = list(self._points)
        if not everything:
            everything = [points[slot] for slot in range(len(points))]
        for slot, found in points.items():
            everything[slot] = found
        presence = self._presence_with(points)
        used = np.flatnonzero(presence)
        regions = {r for slot in slots for r in self.layout.regions[slot]}
        if not np.array_equal(used, self._used):
            regions |= self.lowering.fetched
        ordered = sorted(regions)
        ops, fragments = self.pool.enter(slots, ordered, everything, used)
        work, size = self._work_with(slots, ops, ordered, fragments)
        first = int(self.layout.first[ordered].min()) if ordered else 0
        proposal = _Proposal(strategy, points, slots, ops, ordered, fragments, presence, used, work, size, first)
        seconds = self._simulate(proposal, limit)
        if seconds <= limit and math.isfinite(seconds):
            if not is_forced and not self._fits(proposal):
                return math.inf
            self._proposed = proposal
        return seconds

    def _presence_with(self, points: Mapping[int, Points]) -> Array:
        """How many operators have points on each device."""
        presence = self._presence.copy()
        for slot, found in points.items():
            presence += found.presence(self._devices)
            if self._points:
                presence -= self._points[slot].presence(self._devices)
        return presence

    def _work_with(
        self, slots: list[int], ops: list[int], regions: list[int], fragments: list[int]
    ) -> tuple[Array, Array]:
        """Seconds of work of every stream, and bytes of instances of every device."""
        from taskflow.search.resimulate import add_work  # numba: imported on first use

        pool, work, size = self.pool, self._work.copy(), self._bytes.copy()
        columns = pool.seconds.data, pool.stream_ptr.data, pool.streams.data
        if self._points:
            old = np.concatenate([pool.op_rows.data[self._op[slots]], pool.fragment_span.data[self._fragment[regions]]])
            add_work(work, -1.0, old, *columns)
            for k in regions:
                size -= pool.bytes[self._fragment[k]]
        add_work(work, 1.0, np.concatenate([pool.op_rows.data[ops], pool.fragment_span.data[fragments]]), *columns)
        for k in fragments:
            size += pool.bytes[k]
        return work, size

    def _simulate(self, p: _Proposal, limit: float) -> float:
        """The one pass from the first changed stretch, over the proposed entries."""
        from taskflow.search.resimulate import resimulate  # numba: imported on first use

        pool, layout = self.pool, self.layout
        op, fragment = self._op.copy(), self._fragment.copy()
        op[p.slots], fragment[p.regions] = p.ops, p.fragments
        rows = int(pool.op_rows.data[op, 1].sum() + pool.fragment_span.data[fragment, 1].sum())
        self._new_end, self._start = _grown(self._new_end, rows), _grown(self._start, rows)
        begin = p.first if self._points else 0
        return float(
            resimulate(
                begin,
                limit,
                p.work,
                layout.stretch,
                layout.touch_ptr,
                layout.touch,
                layout.local_ptr,
                layout.local_stretch,
                op,
                pool.op_rows.data,
                fragment,
                pool.fragment_rows.data,
                pool.fragment_runs.data,
                pool.version_rows.data,
                pool.run_ptr.data,
                pool.runs.data,
                pool.seconds.data,
                pool.stream_ptr.data,
                pool.streams.data,
                pool.within_ptr.data,
                pool.within.data,
                self._base,
                self._end,
                self._new_base,
                self._start,
                self._new_end,
                self._every,
                self._marks,
                self._new_marks,
            )
        )

    def _fits(self, p: _Proposal) -> bool:
        """Whether a proposal fits into memory, as far as a quick look can tell; `fits` plans it.

        It does where all instances have room side by side. Else all instances of a region are taken to live as long
        as the region does: plans were found within 1 % of the peak of that. What is above the capacity by up to a tenth
        is planned, what is above that does not fit; what is below may turn out not to, when `fits` plans it.
        """
        from taskflow.search.resimulate import alive_peak  # numba: imported on first use

        if np.all(p.bytes <= self._capacity):
            return True
        peak = alive_peak(self._alive, self.layout.alive[p.regions], self._grows(p))
        if np.all(peak <= self._capacity):
            return True
        if np.all(peak <= 1.1 * self._capacity):
            return self.fits(p.strategy)
        device = int(np.argmax(peak - self._capacity))
        self.last_refusal = f"device {device} needs {int(peak[device])} bytes and has {self._capacity[device]}"
        return False

    def _grows(self, p: _Proposal) -> Array:
        """(changed regions, devices) bytes that instances take more."""
        size = np.zeros((len(p.regions), self._devices))
        for k, (number, entry) in enumerate(zip(p.regions, p.fragments, strict=True)):
            size[k] = self.pool.bytes[entry] - (self.pool.bytes[self._fragment[number]] if self._points else 0)
        return size

    def fits(self, strategy: Strategy) -> bool:
        """Whether the memory plan of a strategy fits into every device."""
        peak = plan_memory(self.lowering.lower(strategy)).peak_bytes
        for number, device in enumerate(self.machine.devices):
            if peak[number] > device.memory_bytes:
                self.last_refusal = f"device {number} needs {peak[number]} bytes and has {device.memory_bytes}"
                return False
        return True


def _grown(array: Array, length: int) -> Array:
    """The array, or a longer one that begins with it."""
    if len(array) >= length:
        return array
    grown = np.zeros(max(length, 2 * len(array)))
    grown[: len(array)] = array
    return grown
