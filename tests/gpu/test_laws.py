"""Laws 1 to 3 on a GPU against NumPy: every operator, random strategies; captured steps that allocate nothing.

What NumPy gives is made before, see `references`: no kernel for CPUs is compiled while a GPU waits.
"""

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Executor, Graph, MachineModel, lower
from tests import laws
from tests.gpu import references
from tests.gpu.streams import backend
from tests.ops.cases import CASES
from tests.ops.test_gpu import trained
from tests.strategies import Model, feeds_of

drawn = pytest.mark.parametrize("number", range(references.DRAWN))  # of `references.drawn()`
few = pytest.mark.parametrize("number", range(0, references.DRAWN, 4))


def example(number):
    """A random model, a machine and a strategy; shown where a test fails."""
    found = references.drawn()[number]
    print(*found, sep="\n")
    return found


def on_gpu(machine):
    return machine.with_rates(kind="cuda")


def on_one_gpu(model):
    machine = on_gpu(MachineModel.uniform(1))
    return model, machine, taskflow.single_device(model.graph, machine)


def is_numpys(model, machine, strategy, steps=references.STEPS, **options):
    """Law 1, held to what NumPy has given before."""
    expected = references.one_device(model, steps)
    laws.any_strategy_is_one_device(
        model, machine, strategy, steps, expected, backend=backend(), **options
    )


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_gives_the_numbers_of_numpy(case, record):
    is_numpys(*on_one_gpu(trained(case)), record=record)


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_kernels_keep_to_their_privileges(case):
    is_numpys(*on_one_gpu(trained(case)), references.CHECKED_STEPS, watch=True)


@few
def test_any_strategy_keeps_to_its_privileges(number):
    model, machine, strategy = example(number)
    is_numpys(model, on_gpu(machine), strategy, references.CHECKED_STEPS, watch=True)


@pytest.mark.parametrize("record", [True, False])
def test_repeated_steps_are_single_ones(record):
    """Random numbers and Adam's counter are those of each step, in captured steps too."""
    graph, generator = Graph(), np.random.default_rng(0)
    x, t = graph.input("x", (8, 64)), graph.input("t", (8,), "int32")
    h = ops.dropout(ops.relu(ops.linear(x, 32, name="fc1")), 0.4)
    ops.adam(ops.softmax_cross_entropy(ops.linear(h, 10, name="fc2"), t), lr=0.01)
    feeds = {
        "x": generator.random((8, 64), np.float32),
        "t": generator.integers(0, 10, 8).astype(np.int32),
    }
    machine = on_gpu(MachineModel.uniform(2))
    strategy = taskflow.data_parallel(graph, machine)
    laws.repeated_steps_are_single_ones(
        Model(graph, feeds), machine, strategy, backend=backend(), record=record
    )


@pytest.mark.parametrize("record", [True, False])
@drawn
def test_any_strategy_gives_the_numbers_of_one_device(number, record):
    model, machine, strategy = example(number)
    is_numpys(model, on_gpu(machine), strategy, record=record)


@few
def test_any_order_gives_the_same_numbers(number):
    model, machine, strategy = example(number)
    laws.any_order_is_the_same(
        model, on_gpu(machine), strategy, 5, number, backend=backend(), record=False
    )


@few
def test_runs_are_the_same_to_the_bit(number):
    model, machine, strategy = example(number)
    laws.runs_are_the_same(model, on_gpu(machine), strategy, 3, backend=backend(), record=False)


def perceptron():
    graph = Graph()
    x, t = graph.input("x", (64, 100)), graph.input("t", (64,), "int32")
    h = ops.dropout(ops.layer_norm(ops.relu(ops.linear(x, 200))), 0.2)
    ops.adam(ops.softmax_cross_entropy(ops.linear(h, 10), t), lr=0.01)
    return Model(graph, feeds_of(graph))


def test_a_step_is_one_graph():
    model, machine = perceptron(), MachineModel.uniform(1)
    task_graph = lower(model.graph, taskflow.single_device(model.graph, machine), on_gpu(machine))
    with Executor(
        task_graph, backend=backend(), record=False, allow_nan=True
    ) as step:  # a guard parts it in two
        for _ in range(3):
            step(model.feeds)
        assert [part.is_captured for part in step._streamed.replay.segments] == [True]


def test_issued_steps_allocate_nothing_and_wait_for_nothing():
    model, machine = perceptron(), MachineModel.uniform(1)
    task_graph = lower(model.graph, taskflow.single_device(model.graph, machine), on_gpu(machine))
    with Executor(
        task_graph, backend=backend(is_checked=True), record=False, capture=False
    ) as step:
        values = [step(model.feeds)["loss"] for _ in range(4)]
    assert np.all(np.diff(values) < 0)


def test_a_timeline_is_measured():
    model, machine = perceptron(), MachineModel.uniform(1)
    task_graph = lower(model.graph, taskflow.single_device(model.graph, machine), on_gpu(machine))
    with Executor(task_graph, backend=backend(), record=True) as step:
        step(model.feeds)
        step(model.feeds)
        assert np.all(step.timeline.end >= step.timeline.start)
