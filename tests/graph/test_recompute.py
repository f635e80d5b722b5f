"""Recomputation: the same bits, less memory, one strategy for both graphs, and what is refused."""

import numpy as np
import pytest

import ops
from taskflow import (
    Executor,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    data_parallel,
    lower,
    recompute,
    stages,
)
from taskflow.checking.checker import check_own_plan
from taskflow.graph.recompute import recomputed
from taskflow.schedule import one_f_one_b, zb_h1
from taskflow.schedule.orders import reorder
from taskflow.tasks.memory import plan_memory
from tests.refusals import assert_refused
from tests.simple_costs import SimpleCosts

WIDTH = 16


def blocks(count, samples=32):
    """Residual blocks with a norm, a wide layer and dropout, in float64."""
    graph = Graph()
    h = ops.linear(graph.input("x", (samples, WIDTH), "float64"), WIDTH, name="first")
    for k in range(count):
        inner = ops.layer_norm(h, name=f"norm{k}")
        inner = ops.relu(ops.linear(inner, 4 * WIDTH, name=f"wide{k}"), name=f"relu{k}")
        inner = ops.dropout(ops.linear(inner, WIDTH, name=f"narrow{k}"), 0.2, name=f"drop{k}")
        h = ops.add(h, inner, name=f"sum{k}")
    ops.adam(ops.softmax_cross_entropy(h, graph.input("t", (samples,), "int32"), name="loss"))
    return graph


def inside(count):
    """All operators of the blocks but the sums."""
    return [
        f"{name}{k}" for k in range(count) for name in ("norm", "wide", "relu", "narrow", "drop")
    ]


def numbers(rows, steps=2):
    check_own_plan(rows)
    samples = next(r for r in rows.regions if r.name == "x").shape[0]
    generator = np.random.default_rng(0)
    feeds = {
        "x": generator.standard_normal((samples, WIDTH)),
        "t": generator.integers(0, WIDTH, samples, np.int32),
    }
    with Executor(rows, seed=2, watch=True) as step:
        losses = [step(feeds)["loss"] for _ in range(steps)]
        return {"loss": np.array(losses)} | {name: step.read(name) for name in step.persistent}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("names", [inside(3), "auto", ["relu1"]])
def test_the_bits_are_the_same_under_any_strategy(names):
    graph, machine = blocks(3), MachineModel.uniform(2)
    again = recompute(graph, names)
    assert not any(op.name.endswith(".again") for op in graph.operators)
    clones = [op for op in again.operators if op.name.endswith(".again")]
    assert {r.name for op in clones for r in op.outputs} == {
        f"{r.name}.again" for op in clones for r in graph.operator(op.name[:-6]).outputs
    }
    strategies = (
        Strategy(
            {op.name: ParallelConfig({}, (0,)) for op in graph.operators if op.follows is None}
        ),
        data_parallel(graph, machine),
        stages(graph, machine, 2, 4),
    )
    for strategy in strategies:
        rows, more = lower(graph, strategy, machine), lower(again, strategy, machine)
        assert len(more) > len(rows)
        expected = numbers(rows)
        assert_same(numbers(more), expected)
    for order in (one_f_one_b, zb_h1):
        assert_same(numbers(reorder(more, SimpleCosts(machine), order)), expected)


def test_memory_and_work():
    """What is inside of blocks is not kept; every operator inside is computed once more, and nothing else."""
    graph, machine = blocks(16, 512), MachineModel.uniform(1)
    peaks, flops = [], []
    for each in (graph, recompute(graph, inside(16)), recompute(graph)):
        rows = lower(each, data_parallel(each, machine), machine)
        kept = sum(
            rows.instance_bytes()[instance]
            for homes in rows.homes.values()
            for instance, _ in homes
        )
        peaks.append(int(plan_memory(rows).peak_bytes[0]) - int(kept))
        flops.append(float(rows.flops.sum()))
        clones = sum(
            rows.flops[row] for row in range(len(rows)) if rows.name(row).endswith(".again")
        )
        assert flops[-1] == flops[0] + clones
    print(f"transient {peaks} bytes, {flops} flops")
    assert 0.1 < peaks[1] / peaks[0] < 0.35 and 0.1 < peaks[2] / peaks[0] < 0.5
    assert flops[0] < flops[2] <= 1.36 * flops[0]


def test_what_cannot_be_computed_again_is_refused():
    graph = blocks(1)
    assert_refused(
        "operator 'no': the graph has no operator of this name", lambda: recompute(graph, ["no"])
    )
    assert_refused(
        "recompute: 'relu0.dx' is a backward operator", lambda: recompute(graph, "relu0.dx")
    )
    update = next(op.name for op in graph.operators if op.writes)
    with pytest.raises(
        ValueError,
        match=rf"recompute: '{update}' updates '.*' in place; a second time would be one",
    ):
        recompute(graph, update)


def test_what_was_updated_since_is_refused():
    """A counter that a later operator of the forward pass moves on."""
    graph = Graph()
    x, w = graph.input("x", (4,), "float64"), graph.parameter("w", (4,), 1.0, "float64")
    count = graph.parameter("count", (4,), 1.0, "float64", trainable=False)

    def scale(ctx, x, w, c, y):
        y[...] = x * w * c

    def backward(op, g):
        return None, graph.launch("dw", "b, b -> b", [g, op.inputs[0]], kernel=double), None

    def square(ctx, x, y):
        y[...] = x * x

    def square_backward(op, g):
        return graph.launch("dsquare", "b, b -> b", [g, op.inputs[0]], kernel=double)

    def double(ctx, g, x, y):
        y[...] = 2 * g * x

    def add_one(ctx, c):
        c += 1

    y = graph.launch("scale", "b, b, b -> b", [x, w, count], kernel=scale, backward=backward)
    z = graph.launch("square", "b -> b", [y], kernel=square, backward=square_backward)
    graph.launch("count", "b ->", [count], kernel=add_one, writes=[0])
    ops.sgd(ops.sum(z, (0,)), lr=0.1)
    assert_refused(
        "recompute: 'scale' reads 'count', which 'count_2' has updated since",
        lambda: recompute(graph, ["scale"]),
    )


def test_a_name_may_have_the_word_for_clones_in_it():
    graph = Graph()
    h = ops.linear(graph.input("x", (8, WIDTH), "float64"), WIDTH, name="m.again.fc")
    h = ops.relu(ops.linear(h, WIDTH, name="m.again"), name="m.act")
    ops.sgd(ops.softmax_cross_entropy(h, graph.input("t", (8,), "int32"), name="loss"), lr=0.1)
    names = "m.again.fc", "m.again", "m.act"
    assert recomputed(recompute(graph, names[1:])) == names[1:]
    assert recomputed(recompute(recompute(graph, names[:1]), names[2:])) == names[::2]
    assert recomputed(graph) == ()
