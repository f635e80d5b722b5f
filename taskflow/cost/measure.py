"""Micro-benchmarks: the rates of the machine at hand, for its machine model.

Under mpirun all ranks call it and get the same answer. Every device has the rates of its rank where ranks are unequal
(parts in proportion to them are among the starts of a search), else those of rank 0. Links are timed between ranks,
within each host and from host to host (`measure_links`). Alone, a transfer between devices is a copy in memory, so
links get the copy's rate. GPUs are timed by their events (`taskflow.cost.measure_gpu`), by ranks as well as alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from taskflow.backend import StreamBackend, make_backend
from taskflow.comm.transport import connect
from taskflow.cost.measure_gpu import measure_gpus
from taskflow.cost.measure_links import LinkRate, measure_links
from taskflow.cost.model import CostModel, task_dtype
from taskflow.cost.samples import fitted_rates, time_call
from taskflow.machine import MachineModel
from taskflow.machine.efficiency import fit_device
from taskflow.tasks.task_graph import Array, Kind, TaskGraph

UNEQUAL = 1.5  # times as fast; equal ranks measured up to 1.3 times each other's rates while others used the machine


def measure_machine(machine: MachineModel, backend: StreamBackend | None = None) -> MachineModel:
    """`machine` with its rates replaced by measured ones: matrix products, copies, overhead of a call, links.

    Takes about 0.2 s, on GPUs 2 s. The curves by size are fitted to products and copies of several sizes.

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
    rates = fitted_rates(machine.devices[0], overhead, products, copies)
    machine = with_rates_of_ranks(machine, transport.gather(rates), transport.ranks_of(len(machine.devices)))
    first = machine.devices[0]
    copying = LinkRate(first.overhead_seconds, first.memory_bandwidth * first.memory_efficiency)
    return measure_links(machine, transport, copying)


def with_rates_of_ranks(machine: MachineModel, rates: Sequence[Mapping[str, Any]], ranks: Array) -> MachineModel:
    """`machine` with the rates that each device's rank has measured; those of rank 0 where none is slower by `UNEQUAL`.

    Equal ranks never measure the same, and equal parts are better than parts that follow noise.
    """
    speeds = [each["flops_per_second"] * each["compute_efficiency"] for each in rates]
    if max(speeds) < UNEQUAL * min(speeds):
        return machine.with_rates(**rates[0])
    devices = zip(machine.devices, ranks.tolist(), strict=True)
    return replace(machine, devices=tuple(replace(d, **rates[rank]) for d, rank in devices))


def fit_machine(machine: MachineModel, task_graph: TaskGraph, costs: CostModel) -> MachineModel:
    """`machine` with the efficiency curve of every device fitted to what `costs` says of the points of `task_graph`.

    With measured costs this carries the measurements over to tasks of other sizes. The peaks, the overheads and the
    links stay.

    Args:
        task_graph: a dozen operators or more, small and large, lowered for a machine of as many devices.

    Raises:
        ValueError: a device runs fewer than four points; see `fit_device`.
    """
    seconds, is_point = costs.seconds(task_graph), task_graph.kind == Kind.POINT
    devices = list(machine.devices)
    for number, device in enumerate(devices):
        rows = np.flatnonzero(is_point & (task_graph.device == number))
        in_float32 = [device.rate("float32") / device.rate(task_dtype(task_graph, row)) for row in rows.tolist()]
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
