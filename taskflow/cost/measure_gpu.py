"""Micro-benchmarks of GPUs: matrix products by dtype, copies, launches in a graph, copies from and to the host, links.

Links between devices are timed as the executor uses them: out of the memory of another rank's GPU where that can be
mapped, else through pinned memory of the hosts; in one process, from one GPU to the next.

`CostModel.measured` asks `DeviceTimes` for rows of `cuda` devices: each kernel timed by events, on made-up arrays that
lie as in the executor. Kernels run as they do in a step: the variant for CUDA where an operator has one, scratch memory
that is there already, numbers of the step in cells, products in the precision of the graph.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from taskflow.backend import Array, Run, StreamBackend, StreamContext, Workspace
from taskflow.backend.choices import LIBRARY, OWN, Choices
from taskflow.backend.timing import DeviceClock
from taskflow.comm.transport import Transport
from taskflow.cost.costfile import ByWay
from taskflow.cost.measure_library import measure_library
from taskflow.cost.plausible import Possible, possible, transfer_rate
from taskflow.cost.samples import fitted_rates, one_way_times
from taskflow.machine import MachineModel
from taskflow.machine.device import Device
from taskflow.tasks.parts import boxes_of
from taskflow.tasks.task_graph import Launch, TaskGraph, access

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_DTYPES = ("float64", "float16", "bfloat16", "tf32")
_PRODUCTS = (128, 512, 1024, 2048, 4096)
# Bytes. The large ones are beyond every cache: within its L2 of 60 MB an H200 copies at 5.8 TB/s, beyond it at 4.2.
_COPIES = (1 << 14, 1 << 16, 1 << 18, 1 << 27, 1 << 28)
_ROUNDS = 5  # of measurements that take turns, of which the median counts
_LARGE_PRODUCT = 4096
_CELL_BYTES = 8
_SIZES = _, _LARGE = 1 << 12, 1 << 28  # bytes of transfers; large ones are beyond every cache, too
_SHORTEST_SECONDS = 1e-12  # a clock that stands still is refused by its rate

_log = logging.getLogger(__name__)
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class HostLink:
    """Copies between pinned memory and a GPU: seconds of a small one, bytes/s of a large one, in either direction."""

    to_device_seconds: float
    to_device_bandwidth: float
    to_host_seconds: float
    to_host_bandwidth: float


def measure_gpus(
    machine: MachineModel, backend: StreamBackend, transport: Transport
) -> MachineModel:
    """See `taskflow.cost.measure.measure_machine`; all ranks call it."""
    device = transport.rank if transport.size > 1 else 0
    clock = DeviceClock(backend, device)
    rates: dict[str, Any] = device_rates(machine.devices[device], clock, backend)
    link = _link(backend, transport, clock, len(machine.devices))
    rates |= link or {}
    machine = machine.with_rates(**transport.gather(rates)[0])
    return replace(machine, library=measure_library(backend, transport))


def device_rates(device: Device, clock: DeviceClock, backend: StreamBackend) -> dict[str, Any]:
    """The fields of a device, whose curve goes through float32 products and copies; the other dtypes' peaks."""
    overhead = _launch_seconds(clock, backend)
    products = _by_turns({n: partial(product_seconds, clock, backend, n) for n in _PRODUCTS})
    copies = _by_turns({n: _copying(clock, backend, n) for n in _COPIES})
    rates = fitted_rates(device, overhead, products, copies)
    return rates | {"rates": {**device.rates, **_other_rates(clock, backend)}}


def _by_turns(measurements: Mapping[_Key, Callable[[], float]]) -> dict[_Key, float]:
    """The median of several measurements each, in turns: what disturbs some of them decides nothing."""
    rounds = [{key: measure() for key, measure in measurements.items()} for _ in range(_ROUNDS)]
    return {key: float(np.median([seconds[key] for seconds in rounds])) for key in measurements}


def product_seconds(
    clock: DeviceClock, backend: StreamBackend, n: int, dtype: str = "float32"
) -> float:
    """Seconds of a product of two n x n matrices; `tf32`: of float32 ones in TensorFloat-32."""
    is_tf32 = dtype == "tf32"
    a, b, out = (clock.array((n, n), "float32" if is_tf32 else dtype) for _ in range(3))
    with backend.tf32(is_tf32):
        return clock.seconds(partial(backend.xp.matmul, a, b, out=out))


def _other_rates(clock: DeviceClock, backend: StreamBackend) -> dict[str, float]:
    """flop/s by dtype, of those that NumPy and the library know."""
    rates = {}
    for dtype in _DTYPES:
        try:
            measure = partial(product_seconds, clock, backend, _LARGE_PRODUCT, dtype)
            rate = (
                2.0 * _LARGE_PRODUCT**3 / max(_by_turns({dtype: measure})[dtype], _SHORTEST_SECONDS)
            )
            rates[dtype] = possible(f"products in {dtype}", rate, Possible.PRODUCTS)
        except (TypeError, KeyError, ModuleNotFoundError) as error:
            _log.info("products in %s are not measured: %s", dtype, error)
    return rates


def _copying(clock: DeviceClock, backend: StreamBackend, size: int) -> Callable[[], float]:
    source, target = (clock.array((size // 4,), "float32") for _ in range(2))
    return partial(clock.seconds, lambda: backend.xp.copyto(target, source))


def _launch_seconds(clock: DeviceClock, backend: StreamBackend) -> float:
    a = clock.array((1,), "float32")
    launch = partial(clock.seconds, lambda: backend.xp.add(a, a, out=a))
    return _by_turns({"launch": launch})["launch"]


def measure_host_link(backend: StreamBackend, device: int = 0) -> HostLink:
    """Copies between the host and a GPU.

    Raises:
        ValueError: what was measured is not possible; see `taskflow.cost.plausible`.
    """
    clock = DeviceClock(backend, device)
    directions = {}
    for size in _SIZES:
        here = backend.pinned(size)
        there = backend.zeros(device, size)
        directions["to the device", size] = partial(clock.seconds, backend.copy(there, here))
        directions["to the host", size] = partial(clock.seconds, backend.copy(here, there))
    medians = _by_turns(directions)
    rates = []
    for direction in ("to the device", "to the host"):
        small, large = (medians[direction, size] for size in _SIZES)
        seconds = possible(f"small copies {direction}", small, Possible.CALL)
        rates += [seconds, transfer_rate(f"copies {direction}", _SIZES, [small], [large])]
    return HostLink(*rates)


# -- links -------------------------------------------------------------------------------------------------------------


def _link(
    backend: StreamBackend, transport: Transport, clock: DeviceClock, devices: int
) -> dict[str, float] | None:
    """Latency and bandwidth of a transfer from one device to another; None where there is one device."""
    if transport.size > 1:
        shared = backend.shared_zeros(transport.rank, _LARGE, transport)
        time_copy = partial(_mapped_seconds, backend, transport, clock, shared) if shared else None
        time_copy = time_copy or partial(_staged_seconds, backend, transport)
        copies = {size: partial(time_copy, size) for size in _SIZES}
    elif devices > 1:
        source = clock.array((_LARGE // 4,), "float32")
        target = backend.zeros(1, _LARGE).view("float32")
        copies = {
            n: partial(clock.seconds, backend.copy(target[: n // 4], source[: n // 4]))
            for n in _SIZES
        }
    else:
        return None
    small, large = _by_turns(copies).values()
    if (
        transport.rank
    ):  # rank 0 says how long they took; not all ranks take part in copies through the hosts
        return {}
    latency = possible("small copies between devices", small, Possible.CALL)
    return {
        "latency_seconds": latency,
        "bandwidth": transfer_rate("copies between devices", _SIZES, [small], [large]),
    }


def _mapped_seconds(
    backend: StreamBackend, transport: Transport, clock: DeviceClock, shared: list[Array], size: int
) -> float:
    """A copy out of the memory of the next rank's GPU, one rank at a time."""
    seconds = 0.0
    for rank in range(transport.size):
        transport.barrier()
        if rank == transport.rank:
            source = shared[(rank + 1) % transport.size]
            target = backend.zeros(rank, size)
            seconds = clock.seconds(backend.copy(target, source[:size]))
    transport.barrier()
    return seconds


def _staged_seconds(
    backend: StreamBackend, transport: Transport, size: int, rounds: int = 5
) -> float:
    """One way from rank 0 to rank 1 and back, through the hosts."""
    host = backend.pinned(size)
    device = backend.zeros(transport.rank, size)
    stream, over = (
        backend.make_stream(transport.rank, "staging"),
        backend.make_event(transport.rank),
    )

    def finish(call: Callable[[], object]) -> None:
        backend.run(stream, call)
        backend.record(stream, over)
        backend.synchronize(over)

    upload = backend.copy(device, host)
    download = backend.copy(host, device)
    times = one_way_times(
        transport, host, rounds, partial(finish, download), partial(finish, upload)
    )
    return float(np.median(times))


# -- rows -------------------------------------------------------------------------------------------------------------


class DeviceTimes:
    """Seconds of kernels and copies on the GPUs of one backend.

    Args:
        choose: told the kind of GPU, and the seconds of what a library and an own kernel do, when they are timed.
    """

    def __init__(self, backend: StreamBackend, choose: Callable[[str, ByWay], object]) -> None:
        self._backend = backend
        self._choose = choose
        self._clocks: dict[int, DeviceClock] = {}

    def name(self, device: int) -> str:
        """What a device is called in a cost file."""
        return self._backend.name(device)

    def point(self, task_graph: TaskGraph, launch: Launch, row: int) -> float:
        """Seconds of the kernel of a point, by the faster way where there are two."""
        clock = self._clock(int(task_graph.device[row]))
        args = task_graph.args(row)
        arrays = []
        for (_, rect, _), number in zip(args, launch.args, strict=True):
            order = task_graph.order(number)
            array = clock.array(
                tuple(rect.shape[d] for d in order), task_graph.regions[number].dtype
            )
            arrays.append(array.transpose(np.argsort(order).tolist()))
        context = StreamContext(
            self._backend,
            partial(self._cell, clock.device),
            partial(self._backend.zeros, clock.device),
            partial(boxes_of, task_graph, row),
            Run(),
            Workspace(partial(self._backend.zeros, clock.device)),
            int(task_graph.point[row]),
        )
        kernel = launch.kernel.on_cuda if self._backend.uses_variants else launch.kernel
        kernel = kernel.for_dtypes(arrays, *access([privilege for _, _, privilege in args]))
        with self._backend.tf32(task_graph.uses_tf32):
            return self._fastest(clock, partial(kernel, context, *arrays))

    def _fastest(self, clock: DeviceClock, call: Callable[[], object]) -> float:
        backend = self._backend
        backend.planned.clear()
        with backend.choosing(Choices()):
            seconds = clock.cold_seconds(call)
        if not (asked := sorted(backend.planned)):
            return seconds
        with backend.choosing(Choices({key: {OWN: 0.0} for key in asked})):
            by_way = {LIBRARY: seconds, OWN: clock.cold_seconds(call)}
        self._choose(self.name(clock.device), dict.fromkeys(asked, by_way))
        return min(by_way.values())

    def move(self, device: int, shape: Sequence[int], dtype: str, adds: int) -> float:
        """Seconds of a copy within a device, or of so many additions."""
        clock, xp = self._clock(device), self._backend.xp
        target, other = (clock.array(tuple(shape), dtype) for _ in range(2))
        if not adds:
            return clock.seconds(lambda: xp.copyto(target, other))
        return adds * clock.seconds(lambda: xp.add(target, other, out=target))

    def _clock(self, device: int) -> DeviceClock:
        if device not in self._clocks:
            self._clocks[device] = DeviceClock(self._backend, device)
        return self._clocks[device]

    def _cell(self, device: int, dtype: DTypeLike, value: Callable[[Run], float]) -> Array:
        host = self._backend.pinned(_CELL_BYTES)
        host.view(dtype)[0] = value(Run())
        cell = self._backend.zeros(device, _CELL_BYTES)
        self._backend.copy(cell, host)()
        typed: Array = cell.view(dtype)
        return typed
