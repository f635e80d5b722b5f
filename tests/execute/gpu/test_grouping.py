"""Grouping: which rows run together, that nothing between them needs them, and that they are one launch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ops
import taskflow
from taskflow import Executor, Graph, Kind, LossScale, MachineModel, lower
from taskflow.execute.expand import expand, expand_plan
from taskflow.execute.gpu.grouping import group_rows
from taskflow.tasks.memory import plan_memory
from tests import laws, shim
from tests.ops.strategies import operator_graphs
from tests.strategies import Model, feeds_of, strategies

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def planned(graph, strategy, machine):
    """Rows without collectives, and their memory plan."""
    task_graph = lower(graph, strategy, machine)
    expansion = expand(task_graph)
    return expansion.task_graph, expand_plan(plan_memory(task_graph), expansion)


def keys_of(rows):
    """Every point of an operator with a name of two parts may run with its like: on its device, of its kind."""
    points = np.flatnonzero(rows.kind == Kind.POINT).tolist()
    return {
        row: (int(rows.device[row]), rows.name(row).rpartition(".")[2])
        for row in points
        if "." in rows.name(row)
    }


def issue_order(rows, groups):
    grouped = {row for found in groups.values() for group in found for row in group}
    order = []
    for row in range(len(rows) + 1):
        for group in groups.get(row, ()):
            order += group
        if row < len(rows) and row not in grouped:
            order.append(row)
    return order


@settings(max_examples=max(1, settings().max_examples // 2), deadline=None)
@given(data=st.data())
def test_groups_keep_dependences_and_memory_apart(data):
    model = data.draw(operator_graphs())
    machine, strategy = data.draw(strategies(model.graph, 4))
    rows, plan = planned(model.graph, strategy, machine)
    keys = keys_of(rows)
    groups = group_rows(rows, plan, keys)
    order = issue_order(rows, groups)
    place = np.argsort(order)
    assert sorted(order) == list(range(len(rows)))
    for row in range(len(rows)):
        assert all(place[dep] < place[row] for dep in rows.deps(row))
    for before, found in groups.items():
        for group in found:
            assert len(group) > 1 and group[-1] < before and len({keys[row] for row in group}) == 1
    assert_memory_in_order(rows, plan, place)


def assert_memory_in_order(rows, plan, place):
    """Two rows whose instances share bytes keep their order."""
    uses = [
        (row, i) for row in range(len(rows)) for i in {i for i, _, _ in rows.args(row) if i >= 0}
    ]
    for k, (row, one) in enumerate(uses):
        for later, other in uses[k + 1 :]:
            if one != other and rows.instance_device[one] == rows.instance_device[other]:
                shares = plan.offset[one] < plan.offset[other] + plan.size[other]
                shares &= plan.offset[other] < plan.offset[one] + plan.size[one]
                assert not shares or row == later or place[row] < place[later], (row, later)


def perceptron(optimizer=ops.adam, precision="float32", **options):
    graph = Graph()
    x, t = graph.input("x", (6, 9)), graph.input("t", (6,), "int32")
    h = ops.relu(ops.linear(x, 100, name="fc1"))
    loss = ops.softmax_cross_entropy(ops.linear(ops.relu(ops.linear(h, 50, name="fc2")), 4), t)
    scale = {"loss_scale": LossScale(2.0**40, backoff=2.0**-34)} if options else {}
    graph = taskflow.precision(graph, precision, **scale)
    optimizer(graph.regions[loss.name], lr=0.05)
    return Model(graph, feeds_of(graph))


class Counting(shim.ShimStreams):
    """Remembers the kernels that were launched."""

    def __init__(self):
        super().__init__()
        self.names = []

    def kernel(self, source, name):
        self.names.append(name)
        return super().kernel(source, name)


@needs_compiler
@pytest.mark.parametrize("optimizer", [ops.adam, ops.adamw, ops.sgd])
def test_all_updates_of_a_device_are_one_launch(optimizer):
    model, machine, backend = perceptron(optimizer), MachineModel.uniform(2), Counting()
    strategy = taskflow.data_parallel(model.graph, machine)
    task_graph = lower(model.graph, strategy, machine.with_rates(kind="cuda"))
    with Executor(task_graph, backend=backend, record=False) as step:
        backend.names.clear()  # of the trial before the first step
        step(model.feeds)
        assert (
            backend.names.count(backend.names[-1]) == 2
        )  # a step ends with updates, of six parameters on two devices
    found = laws.run(task_graph, model.feeds, 4, backend=shim.ShimStreams(), record=False)
    laws.assert_close(found, laws.one_device(model, MachineModel.uniform(2), 4), 1e-4)


@needs_compiler
@pytest.mark.parametrize("optimizer", [ops.adam, ops.sgd, ops.rmsprop, ops.lamb])
def test_steps_are_skipped_on_the_device(optimizer):
    """With an overflow in the first of three steps."""
    model = perceptron(optimizer, "float16", scaled=True)
    machine = MachineModel.uniform(1)
    task_graph = lower(
        model.graph, taskflow.single_device(model.graph, machine), machine.with_rates(kind="cuda")
    )
    found = laws.run(task_graph, model.feeds, 3, backend=shim.ShimStreams(), record=False)
    expected = laws.one_device(model, machine, 3)
    assert expected["loss_scale"] == found["loss_scale"] == 2.0**6
    laws.assert_close(found, expected, 1e-2)


@needs_compiler
def test_rows_that_are_timed_run_one_by_one():
    model, machine, backend = perceptron(), MachineModel.uniform(1), Counting()
    task_graph = lower(
        model.graph, taskflow.single_device(model.graph, machine), machine.with_rates(kind="cuda")
    )
    with Executor(task_graph, backend=backend, record=True) as step:
        backend.names.clear()
        step(model.feeds)
        assert backend.names.count(backend.names[-1]) == 6
