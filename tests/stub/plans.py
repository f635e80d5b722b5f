"""Plans on the stub: algorithms of collectives, micro-batches, schedules, sums in place, guards, repeated steps."""

import numpy as np
import pytest

import ops
import taskflow
from taskflow import (
    CostModel,
    Executor,
    Graph,
    Kind,
    MachineModel,
    ParallelConfig,
    Strategy,
    lower,
    reorder,
    stages,
)
from taskflow.backend.cuda.device import CudaStreams
from taskflow.collective.algorithms import serving
from tests.strategies import Model, feeds_of
from tests.stub import stub
from tests.stub.ownership import no_faults, perceptron
from tests.stub.runs import run, run_rows

__all__ = ["no_faults"]  # a fixture

NAMES = "all-reduce", "all-gather", "reduce-scatter", "all-to-all"
ALGORITHMS = [(name, algorithm) for name in NAMES for algorithm in serving(name)]
# From what a product is split by to what its reader is split by.
SPLITS = {
    "all-reduce": ({"i": 4}, {"replicas": 4}),
    "all-gather": ({"b": 4}, {"replicas": 4}),
    "reduce-scatter": ({"i": 4}, {"b": 4}),
    "all-to-all": ({"b": 4}, {"o": 4}),
}


def on_gpus(devices):
    return MachineModel.uniform(devices).with_rates(kind="cuda")


@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)
def test_collectives(collective, algorithm):
    named = {"all-reduce": "fastest", "all-gather": "fastest"} | {collective: algorithm}
    graph, machine = Graph(), on_gpus(4).with_collectives(named)
    graph.output("y", ops.relu(ops.linear(graph.input("x", (8, 8)), 8, bias=False, name="fc")))
    before, after = map(ParallelConfig, SPLITS[collective])
    rows = lower(graph, Strategy({"fc": before, "relu": after}), machine)
    assert any(
        f"{collective} " in str(rows[row]) for row in np.flatnonzero(rows.kind == Kind.COLLECTIVE)
    )
    run_rows(rows, feeds_of(graph))


def layers(dtype="float32"):
    """A layer a stage."""
    graph = Graph()
    h = graph.input("x", (16, 8))
    for k in range(4):
        h = ops.linear(h, 8, name=f"fc{k}")
    loss = ops.softmax_cross_entropy(h, graph.input("t", (16,), "int32"), name="loss")
    graph = taskflow.precision(graph, dtype, None)
    ops.sgd(graph.regions[loss.name], lr=0.1)
    return Model(graph, feeds_of(graph))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("order", ["gpipe", "one_f_one_b", "zb_h1"])
def test_pipelines(order, dtype):
    model, machine = layers(dtype), on_gpus(4)
    cuts = [f"fc{k}" for k in range(1, 4)]
    rows = lower(model.graph, stages(model.graph, machine, cuts=cuts, parts=4), machine)
    run_rows(reorder(rows, CostModel.analytic(machine), order), model.feeds)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_micro_batches_add_to_one_gradient(dtype):
    """Products with a beta of 1 take the place of folds."""
    model, config = layers(dtype), ParallelConfig({"b": 4}, (0,) * 4)
    parts = run(model, strategy=Strategy({f"fc{k}": config for k in range(4)} | {"loss": config}))
    assert stub.kinds(parts)["product"] >= 3 * stub.kinds(run(model))["product"]


def _count(ctx, x, total):
    total += x.sum(axis=0)


@pytest.mark.parametrize("devices", [1, 4])
def test_states_that_are_added_to(devices):
    graph = Graph()
    x, total = graph.input("x", (8, 3)), graph.parameter("total", (3,), 0.0, trainable=False)
    graph.launch("count", "b c, c ->", [x, total], kernel=_count, adds=[total])
    graph.output("y", ops.relu(x))
    config = ParallelConfig({"b": devices})
    run(
        Model(graph, feeds_of(graph)), devices, strategy=Strategy({"count": config, "relu": config})
    )


@pytest.mark.parametrize("devices", [1, 4])
def test_guarded_steps(devices):
    model, machine = perceptron(), on_gpus(devices)
    rows = lower(model.graph, taskflow.data_parallel(model.graph, machine), machine)
    with Executor(rows, allow_nan=True, backend=CudaStreams(), record=False) as step:
        step.guard_updates()
        for _ in range(3):
            step(model.feeds)
        assert [part.is_captured for part in step._streamed.replay.segments] == [True, False, True]


def test_repeated_steps():
    model, machine = perceptron(), on_gpus(2)
    rows = lower(model.graph, taskflow.data_parallel(model.graph, machine), machine, repeat=3)
    run_rows(rows, {name: np.stack([value] * 3) for name, value in model.feeds.items()})


@pytest.mark.parametrize("devices", [1, 4])
def test_checked_steps(devices):
    """They are issued; what they find is nothing, where the stub should have put a pattern: so a task is at fault."""
    model, machine = perceptron(), on_gpus(devices)
    rows = lower(model.graph, taskflow.data_parallel(model.graph, machine), machine)
    with (
        Executor(rows, allow_nan=True, backend=CudaStreams(), watch=True) as step,
        pytest.raises(PermissionError, match="the kernel writes outside of the array"),
    ):
        step(model.feeds)
