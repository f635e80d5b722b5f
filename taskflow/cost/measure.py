"""Micro-benchmarks: the rates of the machine at hand, for its machine model.

Under mpirun all ranks call it and get the same answer, that of rank 0; where ranks are unequal, with slower rates for
the devices of slower ones (parts in proportion to rates are among the starts of a search). Links are timed between
ranks, within each host and from host to host (`measure_links`). Alone, a transfer between devices is a copy in memory,
so links get the copy's rate. GPUs are timed by their events (`taskflow.cost.measure_gpu`), by ranks as well as alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from taskflow.backend import StreamBackend, make_backend
from taskflow.comm.transport import Transport, connect
from taskflow.cost.measure_gpu import measure_gpus
from taskflow.cost.measure_links import LinkRate, measure_links
from taskflow.cost.model import CostModel, task_dtype
from taskflow.cost.samples import fitted_rates, time_call
from taskflow.machine import Device, MachineModel
from taskflow.machine.efficiency import fit_device
from taskflow.tasks.task_graph import Kind, TaskGraph

UNEQUAL = 1.2  # times as fast; equal ranks measured up to 1.03 while others used the machine
SPEED_EXTENT = 192
SPEED_SECONDS = 0.2  # of the products by which ranks are compared


def measure_machine(machine: MachineModel, backend: StreamBackend | None = None) -> MachineModel:
    """`machine` with its rates replaced by measured ones: matrix products, copies, overhead of a call, links.

    Takes about 0.4 s, on GPUs 2 s. The curves by size are fitted to products and copies of several sizes.

    Args:
        machine: of devices of one kind.
        backend: what runs the kernels of `cuda` devices; default: CuPy.
    """
    transport = connect()
    if machine.devices[0].kind == "cuda":
        return measure_gpus(machine, backend or make_backend(), transport)
    overhead = _call_overhead()
    products = {n: _product_seconds(n) for n in (16, 64, 192, 512)}
    copies = {n: _copy_seconds(n) for n in (1 << 12, 1 << 16, 1 << 18, 1 << 20)}
    rates = transport.gather(fitted_rates(machine.devices[0], overhead, products, copies))[0]
    copying = LinkRate(
        rates["overhead_seconds"], rates["memory_bandwidth"] * rates["memory_efficiency"]
    )
    machine = with_slow_devices(machine.with_rates(**rates), _speeds(machine, transport))
    return measure_links(machine, transport, copying)


def with_slow_devices(machine: MachineModel, speeds: Sequence[float]) -> MachineModel:
    """The machine, of one kind of devices, with all their rates in proportion to `speeds`, the first as it is.

    Nothing changes unless one is `UNEQUAL` times as fast as another: equal ranks never measure the same, and equal
    parts are better than parts that follow noise.
    """
    if max(speeds) < UNEQUAL * min(speeds):
        return machine
    devices = (
        _as_fast(d, speed / speeds[0]) for d, speed in zip(machine.devices, speeds, strict=True)
    )
    return replace(machine, devices=tuple(devices))


def _as_fast(device: Device, times: float) -> Device:
    return replace(
        device,
        flops_per_second=device.flops_per_second * times,
        memory_bandwidth=device.memory_bandwidth * times,
        overhead_seconds=device.overhead_seconds / times,
    )


def _speeds(machine: MachineModel, transport: Transport) -> list[float]:
    """Products a second of the rank of each device, all ranks at the same time."""
    matrix = np.ones((SPEED_EXTENT, SPEED_EXTENT), np.float32)
    product = np.empty_like(matrix)
    transport.barrier()
    speeds = transport.gather(calls_per_second(lambda: np.matmul(matrix, matrix, out=product)))
    devices = range(len(machine.devices))
    return [speeds[rank] for rank in transport.over(devices).ranks_of(len(devices)).tolist()]


def calls_per_second(call: Callable[[], object]) -> float:
    """Calls in a second of the processor: what others take from it meanwhile is none of this rank's slowness."""
    count = 0
    end = time.perf_counter() + SPEED_SECONDS
    begin = time.thread_time()
    while count < 3 or time.perf_counter() < end:
        call()
        count += 1
    return count / (time.thread_time() - begin)


def fit_machine(machine: MachineModel, task_graph: TaskGraph, costs: CostModel) -> MachineModel:
    """`machine` with the efficiency curve of every device fitted to what `costs` says of the points of `task_graph`.

    With measured costs this carries the measurements over to tasks of other sizes. The peaks, the overheads and the
    links stay.

    Args:
        task_graph: a dozen operators or more, small and large, lowered for a machine of as many devices.

    Raises:
        ValueError: a device runs fewer than four points; see `fit_device`.
    """
    seconds = costs.seconds(task_graph)
    is_point = task_graph.kind == Kind.POINT
    devices = list(machine.devices)
    for number, device in enumerate(devices):
        rows = np.flatnonzero(is_point & (task_graph.device == number))
        in_float32 = [
            device.rate("float32") / device.rate(task_dtype(task_graph, row))
            for row in rows.tolist()
        ]
        flops = task_graph.flops[rows] * in_float32
        devices[number] = fit_device(device, flops, task_graph.bytes[rows], seconds[rows])
    return replace(machine, devices=tuple(devices))


def _product_seconds(n: int) -> float:
    a = np.ones((n, n), np.float32)
    out = np.empty_like(a)
    return time_call(lambda: np.matmul(a, a, out=out))


def _copy_seconds(size: int) -> float:
    # The target starts at another place of its page than the source. Where both start alike, loads wait for stores of
    # the same low address bits: 150 us instead of 9 for 256 KiB on an EPYC.
    source, target = np.ones(size, np.uint8), np.empty(size + 2048, np.uint8)[2048:]
    return time_call(lambda: np.copyto(target, source))


def _call_overhead() -> float:
    a = np.zeros(1, np.float32)
    return time_call(lambda: [np.add(a, a, out=a) for _ in range(100)]) / 100
