"""Costs: how many seconds each row of a task graph takes.

Two models with one interface. `analytic` is a roofline from the machine's rates. `measured` runs each kernel once per
tile shape on the device at hand and remembers the result, in a file if one is given; transfers come from the links of
the machine model. The rows of a task graph that had a rehearsal have their seconds from there, and those of others may
take as many times longer than alone as these did (`factors`). `source(row)` says where a number came from.
"""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from pathlib import Path

import numpy as np

from taskflow.backend import StreamBackend, make_backend
from taskflow.backend.choices import Choices
from taskflow.collective.called import seconds_of_calls
from taskflow.collective.price import Carried, CollectiveCosts
from taskflow.core import ahead
from taskflow.core.errors import CostError
from taskflow.cost.factors import Factors, row_keys
from taskflow.cost.kept import KeptTimes
from taskflow.cost.measure_gpu import DeviceTimes
from taskflow.cost.points import check_costs, name_of_point, rates_to_hosts, seconds_of_points
from taskflow.cost.rates import (
    ATTENTION,
    KINDS,
    WINOGRAD,
    DeviceRates,
    RateKind,
    Rates,
    rate_number,
)
from taskflow.cost.samples import (
    kernel_key,
    rehearsal_key,
    relative_seconds,
    sample_call,
    sample_move,
    time_call,
)
from taskflow.machine import MachineModel
from taskflow.machine.efficiency import curve_seconds
from taskflow.tasks.exchange import Exchange
from taskflow.tasks.task_graph import JOINED, Array, Kind, Launch, TaskGraph
from taskflow.tasks.threads.crew import crew


class CostModel(ABC):
    """Row -> seconds.

    Attributes:
        is_shared_out: whether a part r of a task takes at least r of its seconds, which lower bounds rely on.
        knows_no_rows: whether seconds depend on what a row does and on the rates of devices and links, and not on which
            row it is.
        within: of the machine's devices.
    """

    is_shared_out = True
    knows_no_rows = False

    def __init__(self, machine: MachineModel) -> None:
        self.machine = machine
        devices = machine.devices
        bandwidth = np.array([d.memory_efficiency * d.memory_bandwidth for d in devices])
        self.within = DeviceRates(
            overhead=np.array([d.overhead_seconds for d in devices]),
            bandwidth=bandwidth,
            ramp=np.array([d.half_bytes for d in devices]) / bandwidth,
            flops=np.ones((len(KINDS), len(devices))),
            compute_ramp=np.zeros(len(devices)),
            exposed=np.zeros(len(devices)),
        )
        self._collectives = CollectiveCosts.of(machine)

    @staticmethod
    def analytic(
        machine: MachineModel, use_tf32: bool = False, *, is_burst: bool = False
    ) -> AnalyticCosts:
        """A roofline with ramps from the machine's rates, of the dtype in which an operator computes.

        Large tasks take overhead + max(flops / rate, bytes / bandwidth); `machine.efficiency` has the whole curve, and
        `fit_machine` fits it to measurements.

        Args:
            machine: rates of its devices and links.
            use_tf32: float32 operators run at the rate of TensorFloat-32, where a device has one.
            is_burst: products run at the rate of one on an idle device, not of step after step.
        """
        return AnalyticCosts(machine, use_tf32, is_burst)

    @staticmethod
    def measured(
        machine: MachineModel, cache: str | Path | None = None, backend: StreamBackend | None = None
    ) -> CostModel:
        """Each kernel timed on this machine, once per shape of its tiles; on `cuda` devices by events of a GPU.

        Args:
            machine: for the transfers.
            cache: a JSON file that is read now and written after new measurements.
            backend: what runs kernels of `cuda` devices; default: CuPy.

        Raises:
            ValueError: the file is of another format.
        """
        return MeasuredCosts(machine, cache, backend)

    def with_jitter(self, seed: int = 0) -> CostModel:
        """These costs with the machine's `jitter`, one draw of it: kernels take a random number of times as long.

        Every row that runs on a device, no transfer and no collective, has its own number; equal seeds give equal ones.
        """
        return JitteredCosts(self, seed)

    def seconds(self, task_graph: TaskGraph) -> Array:
        """Seconds of every row.

        Raises:
            CostError: an operator has no cost: its seconds are no number from 0, or its kernel cannot be timed.
            ValueError: these are the rows of some devices alone.
        """
        if task_graph.peers is not None:
            of_tables = [self.seconds(table.rows) for table in task_graph.peers.tables]
            return self.seconds_of_representatives(task_graph, np.concatenate(of_tables))
        task_graph.check_complete("costs")
        kind, device = task_graph.kind, task_graph.device
        seconds = np.zeros(len(task_graph))
        points = np.flatnonzero(kind == Kind.POINT)
        seconds[points] = self._priced(task_graph, points)
        check_costs(task_graph, points, seconds[points])
        together = np.flatnonzero(kind == Kind.COLLECTIVE)
        seconds[together] = self._collectives.seconds(task_graph, together)
        moves = np.flatnonzero(
            (kind != Kind.POINT) & (kind != Kind.COLLECTIVE) & ~task_graph.is_transfer
        )
        seconds[moves] = self._moves(task_graph, moves)
        transfers = np.flatnonzero(task_graph.is_transfer)
        pair, ways = (task_graph.source[transfers], device[transfers]), self.machine.ways
        latency = np.where(task_graph.algorithm[transfers] == JOINED, 0.0, ways.latency(*pair))
        seconds[transfers] = latency + task_graph.bytes[transfers] / ways.bandwidth(*pair)
        return seconds

    def of_calls(self, task_graph: TaskGraph, seconds: Array) -> Array:
        """The seconds of every row where some rows are one call (`tasks.calls`), of those of rows by themselves."""
        if not task_graph.bucket_bytes:
            return seconds
        return seconds_of_calls(self._collectives, task_graph, seconds)

    def seconds_of_representatives(self, task_graph: TaskGraph, of_tables: Array) -> Array:
        """Of the rows of representatives, from those of the tables of its peers, one after the other."""
        peers, seconds = task_graph.peers, np.zeros(len(task_graph))
        assert peers is not None
        points, moves = np.flatnonzero(peers.kind < 0), np.flatnonzero(peers.kind >= 0)
        seconds[points] = self._priced(task_graph, points)
        check_costs(task_graph, points, seconds[points])
        seconds[moves] = of_tables[peers.in_turn[moves]]
        return seconds

    def carried(self, exchange: Exchange, itemsize: int) -> Carried:
        """What a search takes a collective to take, and of the links."""
        return self._searched.carried(exchange, itemsize)

    def choices(self, gpu: str) -> Choices | None:
        """Which kernels a kind of GPU runs where there are two for one thing; None: these costs do not know."""
        return None

    @cached_property
    def rates(self) -> Rates:
        """Of the machine, for searches."""
        links = self.machine.latency_seconds, self.machine.bandwidth
        return Rates(*links, *rates_to_hosts(self.machine), *self.within)

    @cached_property
    def _searched(self) -> CollectiveCosts:
        return CollectiveCosts.of_search(self.machine)

    def on(self, machine: MachineModel) -> CostModel:
        """These costs for a machine with other rates, or of other devices of the same kind."""
        other = copy(self)
        for derived in ("rates", "_searched", "_slower"):
            other.__dict__.pop(derived, None)
        CostModel.__init__(other, machine)
        return other

    @abstractmethod
    def source(self, task_graph: TaskGraph, row: int) -> str:
        """Where the seconds of a row come from."""

    def _priced(self, task_graph: TaskGraph, rows: Array) -> Array:
        return seconds_of_points(self._points, task_graph, rows, isinstance(self, MeasuredCosts))

    @abstractmethod
    def _points(self, task_graph: TaskGraph, rows: Array) -> Array:
        """Seconds of points."""

    def _moves(self, task_graph: TaskGraph, rows: Array) -> Array:
        """Seconds of copies within a device, folds and feeds: bytes over memory bandwidth."""
        device, size, rates = task_graph.device[rows], task_graph.bytes[rows], self.within
        ramp = np.where(size > 0, rates.ramp[device], 0.0)
        seconds: Array = rates.overhead[device] + size / rates.bandwidth[device] + ramp
        return seconds


class JitteredCosts(CostModel):
    """See `CostModel.with_jitter`."""

    is_shared_out = False

    def __init__(self, costs: CostModel, seed: int) -> None:
        super().__init__(costs.machine)
        self._costs, self._seed = costs, seed

    def on(self, machine: MachineModel) -> CostModel:
        """The same draw on another machine."""
        return JitteredCosts(self._costs.on(machine), self._seed)

    def seconds(self, task_graph: TaskGraph) -> Array:
        """Seconds of every row, and some more."""
        seconds, quantiles = self._costs.seconds(task_graph), np.array(self.machine.jitter)
        here = ~task_graph.is_communication & (task_graph.crossing < 0)
        if len(quantiles):
            drawn = np.random.default_rng(self._seed).random(len(seconds))[here]
            seconds[here] *= np.interp(drawn, *quantiles.T)
        return seconds

    def source(self, task_graph: TaskGraph, row: int) -> str:
        """That of the costs."""
        return self._costs.source(task_graph, row)

    def _points(self, task_graph: TaskGraph, rows: Array) -> Array:
        return self._costs._points(task_graph, rows)


class AnalyticCosts(CostModel):
    """See `CostModel.analytic`. The seconds of a point depend on its device's rates, flops, bytes and dtype only."""

    knows_no_rows = True

    def __init__(
        self, machine: MachineModel, use_tf32: bool = False, is_burst: bool = False
    ) -> None:
        super().__init__(machine)
        devices, self._use_tf32, self._is_burst = machine.devices, use_tf32, is_burst
        shares = np.array(
            [(is_burst and d.burst_efficiency) or d.compute_efficiency for d in devices]
        )
        flops = np.array([self._peaks(kind) for kind in KINDS])
        for is_backward, work in enumerate(ATTENTION):
            of_kernels = [
                d.attention_share(bool(is_backward)) / s if d.attention else 1.0
                for d, s in zip(devices, shares, strict=True)
            ]
            flops[[kind.work == work for kind in KINDS]] *= of_kernels
        ramp = np.array(
            [d.half_flops / (d.compute_efficiency * d.rate("float32")) for d in devices]
        )
        exposed = np.array([d.exposed_share for d in devices])
        self.within = self.within._replace(flops=shares * flops, compute_ramp=ramp, exposed=exposed)
        self._kind_of: dict[tuple[str, int, str], int] = {}

    def _peaks(self, kind: RateKind) -> list[float]:
        """Peak flop/s of every device; what a window saves is as if it were faster."""
        is_tf32 = self._use_tf32 and kind.dtype == "float32"
        peaks = []
        for d in self.machine.devices:
            saves = d.kind == "cuda" and not (is_tf32 and "tf32" in d.rates)
            times = WINOGRAD.get(kind.window, 1.0) if saves else 1.0
            peaks.append(times * d.rate("tf32" if is_tf32 else kind.dtype))
        return peaks

    def on(self, machine: MachineModel) -> AnalyticCosts:
        """A roofline of the machine's own rates."""
        return AnalyticCosts(machine, self._use_tf32, self._is_burst)

    def source(self, task_graph: TaskGraph, row: int) -> str:
        """What the seconds of a row consist of, and at what rates."""
        device = self.machine.devices[int(task_graph.device[row])]
        if task_graph.is_communication[row] or task_graph.crossing[row] >= 0:
            return "link"
        if task_graph.kind[row] != Kind.POINT:
            return f"memory: {task_graph.bytes[row]} bytes at {device.memory_bandwidth:.4g} bytes/s"
        dtype, number = task_dtype(task_graph, row), int(task_graph.device[row])
        rate, bandwidth = (
            self.within.flops[self._kinds(task_graph, row), number],
            self.within.bandwidth[number],
        )
        is_computing = task_graph.flops[row] / rate >= task_graph.bytes[row] / bandwidth
        does = f"{task_graph.bytes[row]} bytes at {bandwidth:.4g} bytes/s"
        if is_computing:
            does = f"{task_graph.flops[row]:.4g} flops in {dtype} at {rate:.4g} flop/s"
        return f"roofline: {does}, {device.overhead_seconds:.4g} s to launch"

    def task_seconds(self, device: Array, kind: Array, flops: Array, size_bytes: Array) -> Array:
        """Seconds of tasks, elementwise: devices by number, kinds as `rate_number` gives them."""
        rates = self.within
        seconds = curve_seconds(
            flops / rates.flops[kind, device],
            size_bytes / rates.bandwidth[device],
            rates.compute_ramp[device],
            rates.ramp[device],
            rates.exposed[device],
        )
        return rates.overhead[device] + seconds

    def _points(self, task_graph: TaskGraph, rows: Array) -> Array:
        device, flops, size = (
            task_graph.device[rows],
            task_graph.flops[rows],
            task_graph.bytes[rows],
        )
        return self.task_seconds(device, self._kinds(task_graph, rows), flops, size)

    def _kinds(self, task_graph: TaskGraph, rows: Array | int) -> Array:
        """Number of the rate of each point."""
        kinds = self._kind_of
        keys = [
            (launch.identity, launch.kernel.window, launch.kernel.work)
            for launch in task_graph.launches
        ]
        for launch, key in zip(task_graph.launches, keys, strict=True):
            if key not in kinds:
                dtypes = [task_graph.regions[n].dtype for n in launch.args]
                kinds[key] = rate_number(dtypes, launch.kernel)
        numbers: Array = np.array([kinds[key] for key in keys], np.int64)
        return np.take(numbers, task_graph.launch[rows])


def task_dtype(task_graph: TaskGraph, row: int) -> str:
    """The dtype in which a point computes."""
    launch = task_graph.launches[int(task_graph.launch[row])]
    return KINDS[rate_number([task_graph.regions[n].dtype for n in launch.args])].dtype


class MeasuredCosts(CostModel):
    """See `CostModel.measured`."""

    is_shared_out = False  # half a task may fit into a cache, and the whole not

    def __init__(
        self,
        machine: MachineModel,
        cache: str | Path | None = None,
        backend: StreamBackend | None = None,
    ) -> None:
        super().__init__(machine)
        self._backend = backend
        self._times: DeviceTimes | None = None  # made on first use
        self._kept = KeptTimes(Path(cache) if cache else None)
        self._by_launch: dict[int, tuple[Launch, Array]] = {}
        self._by_move: dict[str, float] = {}
        self._rehearsed: dict[str, Array] = {}  # see `rehearsal_key`
        self._factors = Factors()

    def on(self, machine: MachineModel) -> CostModel:
        """The same kernels, which are timed once for both; rehearsals are of this machine alone."""
        other = super().on(machine)
        assert isinstance(other, MeasuredCosts)
        other._rehearsed = {}
        return other

    @cached_property
    def _slower(self) -> tuple[Array, Array]:
        return relative_seconds(self.machine)

    def learn(self, task_graph: TaskGraph, seconds: Array) -> None:
        """Seconds of the rows of `task_graph` from a rehearsal, in place of those learnt before; NaN: none."""
        self._rehearsed[rehearsal_key(task_graph)] = seconds

    def correct(self, task_graphs: Sequence[TaskGraph]) -> None:
        """Take other graphs to be as many times slower than kernels alone as the rehearsals of these graphs were."""
        self._factors, keys, rehearsed, alone = Factors(), [], [], []
        self._by_launch.clear()
        for task_graph in task_graphs:
            rows = np.flatnonzero(task_graph.kind != Kind.COLLECTIVE)
            keys += row_keys(task_graph, rows)
            rehearsed += self.seconds(task_graph)[rows].tolist()
            alone += super().seconds(task_graph)[rows].tolist()
        self._factors = Factors(keys, rehearsed, alone)
        self._by_launch.clear()

    def choices(self, gpu: str) -> Choices | None:
        """What a cost file has: without one, another process would measure other times, and choose otherwise."""
        return self._kept.choices(gpu)

    def is_rehearsed(self, task_graph: TaskGraph) -> bool:
        """Whether this graph had a rehearsal."""
        return self._of_rehearsal(task_graph) is not None

    def seconds(self, task_graph: TaskGraph) -> Array:
        """Seconds of every row: those of a rehearsal where this graph had one."""
        rehearsed = self._of_rehearsal(task_graph)
        if rehearsed is not None and not np.any(np.isnan(rehearsed)):
            return rehearsed.copy()
        seconds = super().seconds(task_graph)
        moves = np.flatnonzero(
            (task_graph.kind != Kind.POINT) & (task_graph.kind != Kind.COLLECTIVE)
        )
        seconds[moves] *= self._factors.of(task_graph, moves)
        return seconds if rehearsed is None else np.where(np.isnan(rehearsed), seconds, rehearsed)

    def source(self, task_graph: TaskGraph, row: int) -> str:
        """`rehearsed on` or `measured on` a processor, or `link`."""
        processor = self._processor(int(task_graph.device[row]))
        rehearsed = self._of_rehearsal(task_graph)
        if rehearsed is not None and not np.isnan(rehearsed[row]):
            return f"rehearsed on {processor}"
        is_link = task_graph.is_communication[row] or task_graph.crossing[row] >= 0
        return "link" if is_link else f"measured on {processor}"

    def _processor(self, device: int) -> str:
        times = self._device_times(device)
        return times.name(device) if times else platform.processor() or "this processor"

    def _device_times(self, device: int) -> DeviceTimes | None:
        """What times the kernels of a GPU; None for a CPU."""
        if self.machine.devices[device].kind != "cuda":
            return None
        if self._times is None:
            self._times = DeviceTimes(self._backend or make_backend(), self._kept.choose)
        return self._times

    def _of_rehearsal(self, task_graph: TaskGraph) -> Array | None:
        return self._rehearsed.get(rehearsal_key(task_graph)) if self._rehearsed else None

    def _points(self, task_graph: TaskGraph, rows: Array) -> Array:
        seconds = np.empty(len(rows))
        launch = task_graph.launch[rows]
        for number in np.unique(launch):
            here = launch == number
            seconds[here] = self._of_launch(task_graph, int(number), rows[here])[
                task_graph.point[rows[here]]
            ]
        seconds *= self._slower[0][task_graph.device[rows]]
        self._kept.write()
        return seconds

    def _of_launch(self, task_graph: TaskGraph, number: int, rows: Array) -> Array:
        """Seconds per point of one launch, which a search meets again and again."""
        launch = task_graph.launches[number]
        held = self._by_launch.get(id(launch))
        if held is None:
            seconds = np.zeros(len(launch.spans))
            for row, factor in zip(rows.tolist(), self._factors.of(task_graph, rows), strict=True):
                seconds[task_graph.point[row]] = (
                    self._measure_point(task_graph, launch, row) * factor
                )
            held = self._by_launch[id(launch)] = (launch, seconds)
        return held[1]

    def _measure_point(self, task_graph: TaskGraph, launch: Launch, row: int) -> float:
        device = int(task_graph.device[row])
        times = self._device_times(device)
        key = kernel_key(task_graph, launch, row) + (f" | {times.name(device)}" if times else "")

        def measure() -> float:
            ahead.withdraw()  # what compiles meanwhile would be measured, too
            try:
                if times:
                    return times.point(task_graph, launch, row)
                with crew():
                    return time_call(sample_call(task_graph, launch, row))
            except Exception as error:
                shapes = ", ".join(str(rect.shape) for _, rect, _ in task_graph.args(row))
                what = f"its kernel fails on made-up arrays of {shapes}: {type(error).__name__}: {error}"
                raise CostError(
                    f"costs: {name_of_point(task_graph, row)} has no cost: {what}"
                ) from error

        def expect() -> float:
            return float(AnalyticCosts(self.machine)._points(task_graph, np.array([row]))[0])

        return self._kept.find(key, measure, expect)

    def _moves(self, task_graph: TaskGraph, rows: Array) -> Array:
        seconds: Array = np.array([self._measure_move(task_graph, row) for row in rows.tolist()])
        return seconds * self._slower[1][task_graph.device[rows]]

    def _measure_move(self, task_graph: TaskGraph, row: int) -> float:
        """A copy, fold or feed is timed on arrays of its size."""
        args, device = task_graph.args(row), int(task_graph.device[row])
        key = f"{task_graph.kind[row]} {task_graph.bytes[row]} {len(args)} {self.machine.devices[device].kind}"
        if key not in self._by_move:
            shape, dtype = args[0][1].shape, task_graph.regions[int(task_graph.region[row])].dtype
            adds = len(args) - 2 if task_graph.kind[row] == Kind.FOLD else 0
            times = self._device_times(device)
            self._by_move[key] = (
                times.move(device, shape, dtype, adds)
                if times
                else time_call(sample_move(shape, dtype, adds))
            )
        return self._by_move[key]
