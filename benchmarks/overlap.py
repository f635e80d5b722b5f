"""Overlap of communication and computing on emulated devices: `mpirun -n 4 python benchmarks/overlap.py` (or -n 8).

An MLP of equal layers on emulated devices and links, sized so that a step's communication lasts as long as its backward
pass. Printed: predicted and measured step time of three plans, and for data parallelism how much of what can be hidden
is hidden. Nothing is hidden in the same step with one stream a device; all that can be is hidden when each layer's
all-reduce starts as soon as its gradient is ready and the one before it is over (the last one cannot be hidden).
"""

import argparse

import numpy as np
from mpi4py import MPI

import ops
import taskflow


def build(layers: int, width: int, batch: int) -> taskflow.Graph:
    """An MLP whose layers all have `width` inputs and outputs."""
    graph = taskflow.Graph()
    h, t = graph.input("x", (batch, width)), graph.input("t", (batch,), "int32")
    for k in range(layers):
        h = ops.linear(h, width, bias=False, name=f"fc{k}")
    loss = ops.softmax_cross_entropy(h, t, name="loss")
    ops.sgd(loss, lr=0.01)
    return graph


def plans(graph: taskflow.Graph, machine: taskflow.MachineModel) -> dict[str, taskflow.Strategy]:
    """Data parallel, tensor parallel (column then row split), and operator parallel (layers on devices in turn)."""
    count = len(machine.devices)
    tensor = taskflow.data_parallel(graph, machine)
    operators = taskflow.data_parallel(graph, machine)
    layers = [op.name for op in graph.operators if op.name.startswith("fc") and op.follows is None]
    for k, name in enumerate(layers):
        tensor[name] = taskflow.ParallelConfig({"o" if k % 2 == 0 else "i": count})
        operators[name] = taskflow.ParallelConfig({}, (k * count // len(layers),))
    return {
        "data parallel": taskflow.data_parallel(graph, machine),
        "tensor parallel": tensor,
        "operator parallel": operators,
    }


def all_hidden_seconds(layers: int, backward: float) -> float:
    """Step time when each all-reduce (as long as one layer's backward) starts when its gradient is ready.

    A forward takes half of a backward, and so does the backward of the first layer, which has no input gradient.
    """
    ready, sent = layers * backward / 2, 0.0
    for layer in reversed(range(layers)):
        ready += backward if layer else backward / 2
        sent = max(sent, ready) + backward
    return sent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--layer-milliseconds", type=float, default=40.0, help="one layer's backward on one device")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    comm, ranks = MPI.COMM_WORLD, MPI.COMM_WORLD.size
    backward = options.layer_milliseconds * 1e-3
    flops = 4.0 * options.batch // ranks * options.width**2
    moved = 2 * (ranks - 1) / ranks * 4 * options.width**2  # sent by each device for one layer's all-reduce
    device = taskflow.Device(
        "emulated", flops_per_second=flops / backward, memory_bandwidth=1e12, overhead_seconds=1e-5
    )
    machine = taskflow.MachineModel.uniform(ranks, device, bandwidth=moved / backward, latency_seconds=2e-5)
    one_stream = taskflow.Device("cpu", flops_per_second=flops / backward, memory_bandwidth=1e12, overhead_seconds=1e-5)
    serial = taskflow.MachineModel.uniform(ranks, one_stream, bandwidth=moved / backward, latency_seconds=2e-5)
    graph = build(options.layers, options.width, options.batch)
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.random((options.batch, options.width), dtype=np.float32),
        "t": rng.integers(0, options.width, options.batch).astype(np.int32),
    }
    if comm.rank == 0:
        print(f"{ranks} emulated devices; milliseconds, median of {options.steps} steps")
        print(f"{'plan':18s} {'predicted':>10s} {'measured':>10s} {'ratio':>6s} {'bytes moved':>12s}")
    for name, strategy in plans(graph, machine).items():
        task_graph = taskflow.lower(graph, strategy, machine)
        costs = taskflow.CostModel.analytic(machine)
        predicted = taskflow.simulate(task_graph, costs).seconds
        with taskflow.Executor(task_graph, costs=costs) as step:
            step(feeds)
            times = []
            for _ in range(options.steps):
                step(feeds)
                times.append(comm.allreduce(step.seconds, MPI.MAX))
        measured = float(np.median(times))
        if comm.rank:
            continue
        print(
            f"{name:18s} {predicted * 1e3:10.1f} {measured * 1e3:10.1f} {measured / predicted:6.3f} "
            f"{task_graph.bytes_moved:12d}",
            flush=True,
        )
        if name == "data parallel":
            together = taskflow.lower(graph, strategy, serial)
            apart = taskflow.simulate(together, taskflow.CostModel.analytic(serial)).seconds
            best = all_hidden_seconds(options.layers, backward)
            print(f"  nothing hidden {apart * 1e3:.1f}, all that can be {best * 1e3:.1f}: ", end="")
            print(f"hidden {(apart - measured) / (apart - best):.1%} of what can be", flush=True)


if __name__ == "__main__":
    main()
