"""Several steps as one task graph: k of them give the bits of k single steps, in any order, and cross the barrier."""

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Device,
    Executor,
    Graph,
    Link,
    MachineModel,
    ParallelConfig,
    check_plan,
    data_parallel,
    lower,
    reorder,
    simulate,
)
from taskflow.graph.repeat import repeated
from taskflow.schedule import first_ready, forward_first
from tests.laws import random_order

STEPS = 3
UNEVEN = (0.25, 0.25, 0.25, 0.15, 0.1)


def model():
    """Updates in place with a step counter (Adam), random numbers, and statistics that steps hand on."""
    graph = Graph()
    x, t = graph.input("x", (12, 3, 7, 7)), graph.input("t", (12,), "int32")
    h = ops.batch_norm(ops.conv2d(x, 8, 3, padding=1, name="conv"), name="norm")
    h = ops.reshape(ops.dropout(ops.relu(h), 0.3), (12, 8 * 49))
    y = ops.linear(ops.relu(ops.linear(h, 40, name="fc1")), 5, name="fc2")
    graph.output("y", y)
    ops.adam(ops.softmax_cross_entropy(y, t), lr=0.01)
    return graph


def two_hosts():
    """Three devices and two."""
    devices = tuple(Device(host=host) for host in (0, 0, 0, 1, 1))
    links = tuple(Link((a, b), 1e9, 1e-6) for a in range(5) for b in range(5) if a != b)
    return MachineModel(devices, links)


def uneven(graph, machine):
    """Uneven parts of the samples, one layer split along its outputs over three of the devices."""
    strategy = data_parallel(graph, machine)
    for name, config in list(strategy.items()):
        degrees = {a: UNEVEN if d == len(UNEVEN) else d for a, d in config.degrees}
        strategy[name] = ParallelConfig(degrees, config.devices)
    strategy["fc1"] = ParallelConfig({"o": 3}, (4, 0, 2))
    return strategy


def batches(count):
    """Feeds of so many steps."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 12, 3, 7, 7)).astype(np.float32)
    return {"x": x, "t": rng.integers(0, 5, (count, 12)).astype(np.int32)}


@pytest.mark.parametrize(
    "options", [{}, {"collectives": {"all-reduce": "ring"}, "piece_bytes": 2000}]
)
def test_repeated_steps_give_the_bits_of_single_ones(options):
    graph, machine, feeds = model(), two_hosts(), batches(2 * STEPS)
    strategy = uneven(graph, machine)
    many = lower(graph, strategy, machine, repeat=STEPS, **options)
    order = random_order(many, np.random.default_rng(1)) if options else np.arange(len(many))
    check_plan(graph, many.reordered(order))
    found = {name: [] for name in graph.outputs}
    with Executor(lower(graph, strategy, machine, **options), seed=5) as one:
        for k in range(2 * STEPS):
            for name, value in one({"x": feeds["x"][k], "t": feeds["t"][k]}).items():
                found[name].append(value)
        with Executor(many.reordered(order), seed=5, watch=True) as step:
            for begin in range(0, 2 * STEPS, STEPS):
                values = step({name: value[begin : begin + STEPS] for name, value in feeds.items()})
                for name, value in values.items():
                    np.testing.assert_array_equal(value, found[name][begin : begin + STEPS])
            assert step.steps == one.steps == 2 * STEPS
            for name in one.persistent:
                np.testing.assert_array_equal(step.read(name), one.read(name), err_msg=name)


def test_the_barrier_is_crossed():
    """Weights arrive while the next step computes: two steps are shorter than twice one, but not first-in-first-out."""
    graph = Graph()
    h = graph.input("x", (8, 64))
    for k in range(4):
        h = ops.linear(h, 64, bias=False, name=f"fc{k}")
    ops.sgd(ops.softmax_cross_entropy(h, graph.input("t", (8,), "int32")), lr=0.1)
    machine = MachineModel.uniform(2, Device("emulated", 0, 1 << 30, 3e8, 1e12, 1e-6), 4e7, 1e-6)
    costs, strategy = CostModel.analytic(machine), data_parallel(graph, machine)
    one, two = (lower(graph, strategy, machine, repeat=k) for k in (1, 2))
    assert len(two) == 2 * len(one) and two.bytes_moved == 2 * one.bytes_moved
    seconds = {
        (rows, order): simulate(reorder(rows, costs, order), costs).seconds
        for rows in (one, two)
        for order in (first_ready, forward_first)
    }
    single = seconds[one, forward_first]
    assert single < seconds[two, forward_first] < 1.92 * single
    assert 1.99 * single < seconds[two, first_ready] <= 2.0001 * single


def test_an_all_reduce_in_pieces():
    """64 * 64 floats in pieces of at most 5000 bytes: four rows of 16 rows each, among four devices as in one."""
    graph = Graph()
    x, t = graph.input("x", (8, 64)), graph.input("t", (8,), "int32")
    ops.sgd(ops.softmax_cross_entropy(ops.linear(x, 64, bias=False, name="fc"), t), lr=0.1)
    machine = MachineModel.uniform(4)
    strategy, ring = data_parallel(graph, machine), {"all-reduce": "ring"}
    whole, cut = (lower(graph, strategy, machine, ring, piece_bytes=size) for size in (None, 5000))
    boxes = [
        str(task.args[0][1])
        for task in cut
        if task.collective == "all-reduce" and task.name == "fc.dweight"
    ]
    assert boxes == [f"[{lo}:{lo + 16}, 0:64]" for lo in range(0, 64, 16)]
    assert len(cut) == len(whole) + 3 and cut.bytes_moved == whole.bytes_moved
    check_plan(graph, cut)


def test_what_cannot_be_repeated_is_refused():
    graph = model()
    strategy = data_parallel(graph, MachineModel.uniform(2))
    for repeat, message in ((0, "at least 1, not 0"), (2.5, "whole numbers are needed")):
        with pytest.raises((ValueError, TypeError), match=message):
            lower(graph, strategy, MachineModel.uniform(2), repeat=repeat)
    with pytest.raises(ValueError, match="one of 2 steps already"):
        repeated(repeated(graph, 2), 2)
    with pytest.raises(ValueError, match="piece_bytes is at least 1, not 0"):
        lower(graph, strategy, MachineModel.uniform(2), piece_bytes=0)
    message = "feed 'x': has 2 values along a leading axis, each of 3 steps takes one"
    many = lower(graph, strategy, MachineModel.uniform(2), repeat=STEPS)
    with Executor(many) as step, pytest.raises(ValueError, match=message):
        step(batches(2))
    graph.output("mean", graph.regions["norm.running_mean"])
    with pytest.raises(
        ValueError, match=r"output 'mean' is 'norm.running_mean', which has one value for 2 steps"
    ):
        repeated(graph, 2)
