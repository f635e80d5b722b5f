"""Priorities on links: `mpirun -n 4 python benchmarks/priorities.py` (or -n 8), on emulated devices.

VGG-19 and ResNet-50 under data parallelism, 16 steps in one call, gradients in pieces. Each layer has the parameters
and the flops of the model, all of them scaled to what a few processes share on one host: a layer is an operator with
as many weights and a kernel of little work that really computes. The rate of the links is chosen so that a step's
all-reduces take as long as its forward and backward passes together. First-in-first-out (`schedule.first_ready`) sends
gradients as they come, so the first layer's, which the next step needs first, come last. `schedule.forward_first`
sends them in the order of the next forward pass (P3: Jayarajan et al., MLSys 2019).

With forward f, backward 2f and communication 3f, one step takes f + 3f first-in-first-out and at least 3f otherwise;
16 steps 64f and 49f, so nothing is more than 64/49 = 1.306 times as fast.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import ops
import taskflow
from taskflow.schedule import first_ready, forward_first

STEPS, CAP = 16, 64 / 49
LEAST_GAIN, MOST_OFF = 1.25, 0.03  # the acceptance lines
WIDTH = 8  # numbers of a sample between two layers
LATENCY_SECONDS = 5e-4  # of a link: a step is some ten times as long as a real one


class Layer(NamedTuple):
    """A layer: parameters (of the batch norm behind it, too), and flops of a forward pass of one sample."""

    name: str
    parameters: int
    flops: int


def convolution(
    name: str, inputs: int, outputs: int, kernel: int, size: int, is_normed: bool
) -> Layer:
    """A convolution whose output is `size` squared: with a batch norm, or a bias."""
    weights = inputs * outputs * kernel**2
    return Layer(name, weights + outputs * (2 if is_normed else 1), 2 * weights * size**2)


def dense(name: str, inputs: int, outputs: int) -> Layer:
    """A layer of products."""
    return Layer(name, (inputs + 1) * outputs, 2 * inputs * outputs)


def vgg19() -> Iterator[Layer]:
    """Simonyan and Zisserman, ICLR 2015, configuration E: 143,667,240 parameters."""
    inputs, size = 3, 224
    for block, (outputs, count) in enumerate(((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)), 1):
        for k in range(count):
            yield convolution(f"conv{block}_{k + 1}", inputs, outputs, 3, size, False)
            inputs = outputs
        size //= 2
    yield from (dense("fc6", 512 * 49, 4096), dense("fc7", 4096, 4096), dense("fc8", 4096, 1000))


def resnet50() -> Iterator[Layer]:
    """He et al., CVPR 2016: 25,557,032 parameters."""
    yield convolution("conv1", 3, 64, 7, 112, True)
    inputs = 64
    for stage, (width, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        size = 224 >> stage
        for k in range(count):
            name, before = f"conv{stage}_{k + 1}", size * (2 if k == 0 and stage > 2 else 1)
            yield convolution(f"{name}a", inputs, width, 1, before, True)
            yield convolution(f"{name}b", width, width, 3, size, True)
            yield convolution(f"{name}c", width, 4 * width, 1, size, True)
            if k == 0:
                yield convolution(f"{name}s", inputs, 4 * width, 1, size, True)
            inputs = 4 * width
    yield dense("fc", 2048, 1000)


MODELS = {"VGG-19": (vgg19, 143_667_240), "ResNet-50": (resnet50, 25_557_032)}


def _forward(ctx: taskflow.Context, x: Any, w: Any, y: Any) -> None:
    np.tanh(x + w.mean(axis=0), out=y)


def _backward_inputs(ctx: taskflow.Context, g: Any, y: Any, gx: Any) -> None:
    np.multiply(g, 1 - y * y, out=gx)


def _backward_weights(ctx: taskflow.Context, g: Any, y: Any, gw: Any) -> None:
    rows = np.sin(np.arange(*ctx.interval("n"), dtype=np.float32) + 1)[:, None]
    np.multiply((g * (1 - y * y)).sum(axis=0), rows, out=gw)


def layer(x: taskflow.LogicalRegion, name: str, rows: int, flops: float) -> taskflow.LogicalRegion:
    """`rows` times WIDTH weights, and so many flops of a sample forward; twice as many backward."""
    weight = x.graph.parameter(f"{name}.weight", (rows, WIDTH), taskflow.Uniform(-1.0, 1.0))
    each = flops / (rows * WIDTH)

    def backward(op: taskflow.Operator, g: taskflow.LogicalRegion) -> tuple[Any, Any]:
        y, launch = op.outputs[0], partial(x.graph.launch, sizes={"n": rows}, flops=each)
        gw = launch(f"{name}.dw", "b f, b f -> n f", [g, y], kernel=_backward_weights)
        inner = x.graph.producer(op.inputs[0]) is not None
        gx = x.graph.launch(
            f"{name}.dx", "b f, b f -> b f", [g, y], kernel=_backward_inputs, flops=flops / WIDTH
        )
        return gx if inner else None, gw

    return x.graph.launch(
        name, "b f, n f -> b f", [x, weight], kernel=_forward, backward=backward, flops=each
    )


def build(layers: list[Layer], batch: int, size_bytes: int) -> taskflow.Graph:
    """The model with all its parameters scaled to so many bytes."""
    graph, total = taskflow.Graph(), sum(each.parameters for each in layers)
    h = graph.input("x", (batch, WIDTH))
    for each in layers:
        rows = max(1, round(each.parameters / total * size_bytes / (4 * WIDTH)))
        h = layer(h, each.name, rows, float(each.flops))
    ops.sgd(ops.softmax_cross_entropy(h, graph.input("t", (batch,), "int32"), name="loss"), lr=0.1)
    return graph


def balanced(
    graph: taskflow.Graph, ranks: int, seconds: float, piece_bytes: int
) -> taskflow.MachineModel:
    """A machine on which computing takes a step so long, and all all-reduces together as long."""
    kinds, rates = np.zeros(2), (1e6, 1e9)
    for rate in rates:
        machine = make_machine(ranks, 1e9, rate)
        strategy = taskflow.data_parallel(graph, machine)
        task_graph = taskflow.lower(graph, strategy, machine, piece_bytes=piece_bytes)
        found = taskflow.CostModel.analytic(machine).seconds(task_graph)
        kinds[rates.index(rate)] = found[task_graph.kind == taskflow.Kind.COLLECTIVE].sum()
        flops = task_graph.flops[task_graph.device == 0].sum()
    by_byte = (kinds[0] - kinds[1]) / (1 / rates[0] - 1 / rates[1])
    fixed = kinds[1] - by_byte / rates[1]
    return make_machine(ranks, flops / seconds, by_byte / (seconds - fixed))


def make_machine(ranks: int, flops_per_second: float, bandwidth: float) -> taskflow.MachineModel:
    """Emulated devices whose all-reduces are rows, by the fastest algorithm."""
    device = taskflow.Device(
        "emulated", flops_per_second=flops_per_second, memory_bandwidth=1e15, overhead_seconds=0
    )
    machine = taskflow.MachineModel.uniform(ranks, device, bandwidth, LATENCY_SECONDS)
    return machine.with_collectives({"all-reduce": "fastest"})


def run(
    task_graph: taskflow.TaskGraph, costs: taskflow.CostModel, calls: int, seed: int
) -> tuple[float, dict[str, Any]]:
    """Measured seconds of a step, least of some calls, and all numbers after them."""
    comm, rng = MPI.COMM_WORLD, np.random.default_rng(seed)
    batch, times = task_graph.regions[0].shape[0], []
    with taskflow.Executor(task_graph, costs=costs, record=False) as step:
        losses = []
        for _ in range(calls):
            x = rng.standard_normal((STEPS, batch, WIDTH)).astype(np.float32)
            t = rng.integers(0, WIDTH, (STEPS, batch)).astype(np.int32)
            losses.append(step({"x": x, "t": t})["loss"])
            times.append(comm.allreduce(step.seconds, MPI.MAX) / STEPS)
        return min(times), {"loss": np.stack(losses)} | {
            name: step.read(name) for name in step.persistent
        }


def measure(name: str, options: argparse.Namespace) -> None:
    """Both orders of one model, and the acceptance lines."""
    comm, (layers, parameters) = MPI.COMM_WORLD, MODELS[name]
    found = list(layers())
    assert sum(each.parameters for each in found) == parameters
    size_bytes = options.kilobytes * 1024
    piece_bytes = size_bytes // options.pieces
    graph = build(found, 2 * comm.size, size_bytes)
    machine = balanced(graph, comm.size, options.seconds, piece_bytes)
    costs, strategy = taskflow.CostModel.analytic(machine), taskflow.data_parallel(graph, machine)
    lowered = taskflow.lower(graph, strategy, machine, repeat=STEPS, piece_bytes=piece_bytes)
    rows, values = {}, {}
    for order in (first_ready, forward_first):
        task_graph = taskflow.reorder(lowered, costs, order)
        predicted = taskflow.simulate(task_graph, costs).seconds / STEPS
        measured, values[order] = (
            (np.nan, {}) if options.simulate else run(task_graph, costs, options.calls, 0)
        )
        rows[order] = predicted, measured
        if comm.rank == 0:
            of = f"{order.__name__:14s} {predicted * 1e3:9.1f} {measured * 1e3:9.1f} {measured / predicted:6.3f}"
            print(f"{name:10s} {comm.size} {of}", flush=True)
    (fifo, fifo_measured), (first, first_measured) = rows.values()
    a, b = values.values()
    is_equal = a.keys() == b.keys() and all(np.array_equal(a[each], b[each]) for each in a)
    off = max(abs(measured / predicted - 1) for predicted, measured in rows.values())
    if comm.rank == 0:
        gain = fifo_measured / first_measured
        verdict = "holds" if gain >= LEAST_GAIN and off <= MOST_OFF and is_equal else "MISSED"
        print(
            f"  {name}, {comm.size} ranks, {len(lowered)} rows: {gain:.3f}x measured, {fifo / first:.3f}x predicted "
            f"(at least {LEAST_GAIN}, cap {CAP:.3f}); off by {off:.1%} (at most {MOST_OFF:.0%}); "
            f"bits of {len(a)} regions {'equal' if is_equal else 'DIFFER'}: {verdict}",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.5,
        help="forward and backward of a step: of 16 steps less than a minute in all",
    )
    parser.add_argument("--kilobytes", type=int, default=256, help="all parameters, scaled")
    parser.add_argument(
        "--pieces",
        type=int,
        default=16,
        help="a piece has at most one part in so many of all bytes",
    )
    parser.add_argument(
        "--calls", type=int, default=2, help=f"of {STEPS} steps each; the first is a warm-up"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="predict alone, without ranks to measure on"
    )
    options = parser.parse_args()
    if MPI.COMM_WORLD.rank == 0:
        print(f"{STEPS} steps in a call; milliseconds of a step: predicted, measured, ratio")
    for name in options.models:
        measure(name, options)


if __name__ == "__main__":
    main()
