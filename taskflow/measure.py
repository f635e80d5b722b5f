"""Micro-benchmarks: the rates of the machine at hand, for its machine model.

Under mpirun all ranks call it and get the same answer, that of rank 0; links are timed between ranks 0 and 1. Alone,
a transfer between devices is a copy in memory, so links get the copy's rate.
"""

from __future__ import annotations

import time

import numpy as np

from taskflow.comm import Transport, connect
from taskflow.cost import time_call
from taskflow.machine import MachineModel


def measure_machine(machine: MachineModel) -> MachineModel:
    """`machine` with its CPU rates replaced by measured ones: matrix product, memory, overhead of a call, links.

    Takes about 0.2 s.
    """
    transport = connect()
    rates = {
        "flops_per_second": _blas_rate(),
        "memory_bandwidth": _copy_bandwidth(),
        "overhead_seconds": _call_overhead(),
    }
    if transport.size > 1:
        rates["latency_seconds"], rates["bandwidth"] = _link(transport)
    else:
        rates["latency_seconds"], rates["bandwidth"] = rates["overhead_seconds"], rates["memory_bandwidth"]
    return machine.with_rates(**transport.gather(rates)[0])


def _blas_rate(n: int = 512) -> float:
    a = np.ones((n, n), np.float32)
    out = np.empty_like(a)
    return 2 * n**3 / time_call(lambda: np.matmul(a, a, out=out))


def _copy_bandwidth(size: int = 1 << 20) -> float:
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    return 2 * size / time_call(lambda: np.copyto(target, source))


def _call_overhead() -> float:
    a = np.zeros(1, np.float32)
    return time_call(lambda: [np.add(a, a, out=a) for _ in range(100)]) / 100


def _link(transport: Transport, small: int = 8, large: int = 1 << 20) -> tuple[float, float]:
    """Latency and bandwidth of a transfer between ranks 0 and 1."""
    short, long = _ping_pong(transport, small, 200), _ping_pong(transport, large, 20)
    return short, (large - small) / max(long - short, 1e-9)


def _ping_pong(transport: Transport, size: int, rounds: int) -> float:
    """Median seconds of one way."""
    transport.barrier()
    times = []
    if transport.rank < 2:
        array, peer = np.zeros(size, np.uint8), 1 - transport.rank
        start_send, wait_send = transport.sender([array], peer, 1)
        start_receive, wait_receive = transport.receiver([array.copy()], peer, 1)
        for _ in range(rounds):
            begin = time.perf_counter()
            for own in (0, 1):
                first, wait = (start_send, wait_send) if transport.rank == own else (start_receive, wait_receive)
                first()
                wait()
            times.append((time.perf_counter() - begin) / 2)
    transport.barrier()
    return float(np.median(times)) if times else 0.0
