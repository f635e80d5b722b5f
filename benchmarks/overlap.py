"""Overlap of communication and computing on emulated devices: `mpirun -n 4 python benchmarks/overlap.py` (or -n 8).

An MLP of equal layers on emulated devices and links, sized so that a step's communication lasts as long as its backward
pass; with `--hosts` on two unequal hosts, each with a network card that its devices share. Printed: predicted and
measured step time of three plans, and on equal links how much of what can be hidden data parallelism hides. Nothing is
hidden in the same step with one stream a device; all that can be is hidden when each layer's all-reduce starts as soon
as its gradient is ready and the one before it is over (the last one cannot be hidden).
"""

import argparse

import numpy as np
from mpi4py import MPI

import ops
import taskflow

LATENCY_SECONDS = 2e-5


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


def equal_links(ranks: int, device: taskflow.Device, bandwidth: float) -> taskflow.MachineModel:
    """A link between every two devices."""
    return taskflow.MachineModel.uniform(
        ranks, device, bandwidth=bandwidth, latency_seconds=LATENCY_SECONDS
    )


def unequal_hosts(ranks: int, device: taskflow.Device, bandwidth: float) -> taskflow.MachineModel:
    """One device more than half of them on the first host, the others on the second.

    Devices of a host have links to each other. The card of the first host has the bandwidth of such a link, that of the
    second half of it; all of a host's devices share it.
    """
    count = (ranks // 2 + 1, ranks - ranks // 2 - 1)
    hosts = []
    for host, devices in enumerate(count):
        inside = equal_links(devices, device, bandwidth)
        card, width = f"card@{host}", bandwidth / (1 + host)
        ends = [(d, card) for d in range(devices)]
        links = [taskflow.Link(e, 4 * bandwidth, 0.0) for a, b in ends for e in ((a, b), (b, a))]
        links += [
            taskflow.Link(e, width, LATENCY_SECONDS) for e in ((card, "network"), ("network", card))
        ]
        hosts.append(
            taskflow.MachineModel(inside.devices, (*inside.links, *links), f"{devices} devices")
        )
    return taskflow.MachineModel.join(hosts, "two unequal hosts")


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
    parser.add_argument(
        "--layer-milliseconds", type=float, default=40.0, help="one layer's backward on one device"
    )
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="two unequal hosts, each with a card that its devices share",
    )
    options = parser.parse_args()
    comm, ranks = MPI.COMM_WORLD, MPI.COMM_WORLD.size
    backward = options.layer_milliseconds * 1e-3
    flops = 4.0 * options.batch // ranks * options.width**2
    moved = (
        2 * (ranks - 1) / ranks * 4 * options.width**2
    )  # sent by each device for one layer's all-reduce
    device = taskflow.Device(
        "emulated", flops_per_second=flops / backward, memory_bandwidth=1e12, overhead_seconds=1e-5
    )
    one_stream = taskflow.Device(
        "cpu", flops_per_second=flops / backward, memory_bandwidth=1e12, overhead_seconds=1e-5
    )
    connect = unequal_hosts if options.hosts else equal_links
    machine, serial = (connect(ranks, each, moved / backward) for each in (device, one_stream))
    graph = build(options.layers, options.width, options.batch)
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.random((options.batch, options.width), dtype=np.float32),
        "t": rng.integers(0, options.width, options.batch).astype(np.int32),
    }
    if comm.rank == 0:
        print(f"{ranks} emulated devices; milliseconds, median of {options.steps} steps")
        print(
            f"{'plan':18s} {'predicted':>10s} {'measured':>10s} {'ratio':>6s} {'bytes moved':>12s}"
        )
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
        if name == "data parallel" and not options.hosts:
            together = taskflow.lower(graph, strategy, serial)
            apart = taskflow.simulate(together, taskflow.CostModel.analytic(serial)).seconds
            best = all_hidden_seconds(options.layers, backward)
            print(f"  nothing hidden {apart * 1e3:.1f}, all that can be {best * 1e3:.1f}: ", end="")
            print(f"hidden {(apart - measured) / (apart - best):.1%} of what can be", flush=True)


if __name__ == "__main__":
    main()
