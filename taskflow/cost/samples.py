"""Samples: kernels run on arrays of their own, to be timed, or compiled before the first step; messages likewise.

What is timed becomes the rates of a device (`fitted_rates`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from taskflow.backend import Context
from taskflow.comm.transport import Transport, connect
from taskflow.core.dtypes import is_floating
from taskflow.core.system import local_rank, local_size
from taskflow.cost.plausible import Possible, possible
from taskflow.machine import MachineModel
from taskflow.machine.device import Device
from taskflow.machine.efficiency import fit_device
from taskflow.tasks.task_graph import Array, Kind, Launch, Privilege, TaskGraph
from taskflow.tasks.threads.crew import crew, thread_limit
from taskflow.tasks.threads.division import Part, best_alone, whole_part
from taskflow.tasks.threads.sections import part_calls

_SAMPLES = 4096  # random numbers of an array, which it repeats
_WARM = set[object]()  # kernels that have run, see `warm_up`


def sample_move(shape: tuple[int, ...], dtype: str, adds: int) -> Callable[[], object]:
    """A copy, or so many additions."""
    target, other = sample_array(shape, dtype), sample_array(shape, dtype)
    if not adds:
        return partial(np.copyto, target, other)
    return lambda: [np.add(target, other, out=target) for _ in range(adds)]


def launch_key(launch: Launch) -> str:
    """What the time of a launch depends on besides its tiles; two kernels may have one name, so not on that alone."""
    return f"{launch.identity} | {launch.kernel.digest}"


def kernel_key(task_graph: TaskGraph, launch: Launch, row: int) -> str:
    """What the time of a point depends on: its kernel, the shapes of its tiles and how they lie in memory."""
    orders = [task_graph.order(n) for n in launch.args]
    shapes = [rect.shape for _, rect, _ in task_graph.args(row)]
    threads = f" | {count} threads" if (count := thread_limit()) > 1 else ""
    return (
        f"{launch_key(launch)} | {shapes}" + (f" | {orders}" if task_graph.orders else "") + threads
    )


def sample_call(
    task_graph: TaskGraph, launch: Launch, row: int, parts: Sequence[Part] | None = None
) -> Callable[[], object]:
    """The kernel of a point on arrays of its own, which lie in memory as in the executor, in parts side by side."""
    args = task_graph.args(row)
    arrays = []
    for (_, rect, privilege), number in zip(args, launch.args, strict=True):
        order = task_graph.order(number)
        array = sample_array(tuple(rect.shape[d] for d in order), task_graph.regions[number].dtype)
        arrays.append(array.transpose(np.argsort(order)))
        arrays[-1].flags.writeable = privilege != Privilege.READ  # kernels are compiled for it
    parts = parts or best_alone(task_graph, row, thread_limit()).parts
    calls = part_calls(
        task_graph,
        row,
        parts,
        arrays,
        lambda row, part, thread: Context(part.rects, part.intervals),
    )
    return calls[0] if len(calls) == 1 else partial(crew().run, calls)


def warm_up(
    task_graph: TaskGraph, drives: Callable[[int], bool], parts: Mapping[int, Sequence[Part]]
) -> None:
    """Run every compiled kernel of the devices that `drives` names once a process, so that no step has to compile.

    What is compiled depends on dtypes and layouts, not on shapes, so the smallest point of each kernel will do. Where a
    point is divided into `parts`, these decide on the layouts. The ranks of a host begin with different kernels: what
    one of them compiles the others have from disk.
    """
    smallest: dict[object, int] = {}
    for row in np.flatnonzero(task_graph.kind == Kind.POINT).tolist():
        launch = task_graph.launches[int(task_graph.launch[row])]
        if launch.kernel.is_compiled and drives(int(task_graph.device[row])):
            orders = tuple(tuple(task_graph.order(n)) for n in launch.args)
            key = launch_key(launch), orders, _split_axes(parts.get(row, ()))
            if key in _WARM:
                continue
            if key not in smallest or task_graph.bytes[row] < task_graph.bytes[smallest[key]]:
                smallest[key] = row
    todo = list(smallest.items())
    first = len(todo) * local_rank() // local_size()
    for kernel, row in [*todo[first:], *todo[:first]]:
        whole = [whole_part(task_graph, row)]
        sample_call(
            task_graph, task_graph.launches[int(task_graph.launch[row])], row, parts.get(row, whole)
        )()
        _WARM.add(kernel)


def _split_axes(parts: Sequence[Part]) -> tuple[str, ...]:
    """The axes along which parts differ."""
    return (
        tuple(a for a in parts[0].intervals if parts[0].intervals[a] != parts[-1].intervals[a])
        if parts
        else ()
    )


def sample_array(shape: tuple[int, ...], dtype: str) -> Array:
    """Values that are legal for any kernel: numbers between 0.1 and 1, or zeros where an index is expected."""
    array = np.zeros(shape, dtype)
    if is_floating(array.dtype.name):
        some = np.random.default_rng(0).uniform(0.1, 1.0, _SAMPLES).astype(dtype)
        flat = array.reshape(-1)
        whole = array.size - array.size % _SAMPLES
        flat[:whole].reshape(-1, _SAMPLES)[...] = some
        flat[whole:] = some[: array.size - whole]
    return array


def time_call(call: Callable[[], object], budget_seconds: float = 0.005, most: int = 50) -> float:
    """Median seconds of `call`, after one call that is not counted (compilation, first touch of memory)."""
    call()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget_seconds and len(times) < most):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def relative_seconds(machine: MachineModel) -> tuple[Array, Array]:
    """How many times as long as this rank's first device each one computes, and copies, by its rates.

    A rank times kernels on its own processor alone. GPUs are timed one by one, so there all are 1.
    """
    devices = machine.devices
    transport = connect()
    if any(d.kind == "cuda" for d in devices):
        return np.ones(len(devices)), np.ones(len(devices))
    first = next((k for k in range(len(devices)) if transport.drives(k)), 0)
    computes = np.array([d.compute_efficiency * d.flops_per_second for d in devices])
    copies = np.array([d.memory_efficiency * d.memory_bandwidth for d in devices])
    return computes[first] / computes, copies[first] / copies


def one_way_times(
    transport: Transport,
    array: Array,
    rounds: int,
    before: Callable[[], object] = int,
    after: Callable[[], object] = int,
    ends: tuple[int, int] = (0, 1),
) -> list[float]:
    """Seconds of each of some messages between two ranks, one of 0 on the others; all ranks call it.

    `before` is called by the sender, `after` by the receiver once it has arrived; both are part of the time.
    """
    transport.barrier()
    times = []
    if transport.rank in ends:
        peer = sum(ends) - transport.rank
        send = transport.sender([array], peer, 1)
        receive = transport.receiver([array], peer, 1)
        for _ in range(rounds):
            begin = time.perf_counter()
            for sender in ends:
                if transport.rank == sender:
                    before()
                    send.start()
                    send.wait()
                else:
                    receive.start()
                    receive.wait()
                    after()
            times.append((time.perf_counter() - begin) / 2)
        send.free()
        receive.free()
    transport.barrier()
    return times or [0.0]


def fitted_rates(
    device: Device,
    overhead_seconds: float,
    products: Mapping[int, float],
    copies: Mapping[int, float],
) -> dict[str, Any]:
    """The fields of a device whose curve goes through measurements.

    Args:
        device: what is not measured.
        overhead_seconds: of a call.
        products: n -> seconds of a product of two n x n matrices of float32.
        copies: bytes -> seconds of a copy.

    Raises:
        ValueError: a time is not possible; see `taskflow.cost.plausible`.
    """
    for n, took in products.items():
        _check_rate(f"products of {n} x {n}", 2.0 * n**3, took, Possible.PRODUCTS)
    for size, took in copies.items():
        _check_rate(f"copies of {size} bytes", 2.0 * size, took, Possible.MEMORY)
    possible("the overhead of calls", overhead_seconds, Possible.CALL)
    samples = [(2.0 * n**3, 12.0 * n**2, seconds) for n, seconds in products.items()]
    flops, size_bytes, seconds = np.array(
        samples + [(0.0, 2.0 * n, seconds) for n, seconds in copies.items()]
    ).T
    start = replace(
        device,
        flops_per_second=float((flops / seconds).max()),
        memory_bandwidth=float((size_bytes / seconds)[len(products) :].max()),
        overhead_seconds=overhead_seconds,
    )
    fitted = fit_device(start, flops, size_bytes, seconds)
    return {
        f.name: getattr(fitted, f.name)
        for f in fields(fitted)
        if f.name not in ("kind", "host", "memory_bytes")
    }


def _check_rate(what: str, amount: float, seconds: float, rate: Possible) -> None:
    possible(what, amount / seconds if seconds > 0 else np.inf, rate, f"{seconds:.3g} s")


def rehearsal_key(task_graph: TaskGraph) -> str:
    """The digest of the rows, which names kernels only, and those of the kernels."""
    kernels = [launch.kernel.digest for launch in task_graph.launches]
    return " ".join([task_graph.digest(), *kernels])
