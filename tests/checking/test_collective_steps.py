"""Steps of equal collectives are made once: no step may be missing, and no row be another."""

from dataclasses import replace

import numpy as np
import pytest

import ops
from taskflow import Graph, MachineModel, PlanError, check_plan, data_parallel, lower
from taskflow.checking import collectives
from taskflow.tasks.task_graph import Kind, Privilege
from tests.checking.mutations import args_of, without_args

LAYERS = 3


@pytest.fixture(scope="module")
def plan():
    """Equal layers on 2 hosts of 4 devices; their gradients are summed round rings, the loss up a tree."""
    graph = Graph()
    x = graph.input("x", (8, 256))
    for k in range(LAYERS):
        x = ops.linear(x, 256, name=f"fc{k}")
    loss = ops.mean_squared_error(x, graph.input("t", (8, 256)))
    graph.output("loss", loss)
    ops.sgd(loss, lr=0.1)
    machine = MachineModel.preset("p100", nodes=2)
    return graph, lower(graph, data_parallel(graph, machine), machine)


def layers_of(task_graph):
    """Rows with the most arguments and equal steps: the collectives of the layers."""
    table = collectives.read_collectives(task_graph).table
    most = np.bincount(table[table >= 0]).argmax()
    return np.flatnonzero(table == most).tolist()


def test_steps_of_equal_collectives_are_made_once(plan, monkeypatch):
    graph, task_graph = plan
    rows, followed = layers_of(task_graph), []
    read = collectives.TaskGraph.exchange
    monkeypatch.setattr(
        collectives.TaskGraph, "exchange", lambda g, row: followed.append(row) or read(g, row)
    )
    check_plan(graph, task_graph)
    assert len(rows) >= LAYERS - 1 and len(set(rows) & set(followed)) == 1
    assert len(task_graph.exchange(rows[0]).steps()) > 8 * 8  # a ring


@pytest.mark.parametrize("times", [0, 2])
def test_every_step_is_done_once(plan, monkeypatch, times):
    graph, task_graph = plan
    steps, row = collectives._steps, layers_of(task_graph)[0]
    own = steps(task_graph, row)
    sums = [
        k for k, step in enumerate(own) if times == 0 or len(step.parts) > 1
    ]  # to copy twice does no harm
    for k in sums[::11]:
        bad = [*own[:k], *[own[k]] * times, *own[k + 1 :]]
        monkeypatch.setattr(
            collectives, "_steps", lambda g, r, bad=bad: bad if steps(g, r) == own else steps(g, r)
        )
        with pytest.raises(PlanError, match=r"plan, rule \w+: row .*region '"):
            check_plan(graph, task_graph)


def test_one_row_of_many_is_another(plan):
    """Its source is a whole value, that of another layer, or what its points make are not all parts."""
    graph, task_graph = plan
    row, other = layers_of(task_graph)[-2:]
    args = slice(*task_graph.arg_ptr[[row, row + 1]])
    sources = np.flatnonzero(task_graph.arg_privilege[args] == Privilege.READ) + args.start
    for k in sources[::3].tolist():
        instance = task_graph.arg_instance.copy()
        instance[k] = task_graph.arg_instance[k - args.start + task_graph.arg_ptr[other]]
        assert_refused(graph, replace(task_graph, arg_instance=instance))
    maker = task_graph.arg_instance == task_graph.arg_instance[sources[0]]
    points = np.repeat(task_graph.kind == Kind.POINT, np.diff(task_graph.arg_ptr))
    made_by = (
        int(np.searchsorted(task_graph.arg_ptr, np.flatnonzero(maker & points)[0], side="right"))
        - 1
    )
    point = task_graph.point.copy()
    point[made_by] = (point[made_by] + 1) % 8  # the part of another device
    assert_refused(graph, replace(task_graph, point=point))


def assert_refused(graph, bad):
    with pytest.raises(PlanError, match=r"plan, rule \w+: row .*region '"):
        check_plan(graph, bad)


def test_a_device_without_scratch_memory_for_what_it_adds_is_refused(plan):
    graph, task_graph = plan
    row = layers_of(task_graph)[0]
    exchange = task_graph.exchange(row)
    for device, scratch in exchange.scratch_at.items():
        gone = [args_of(task_graph, row)[k] for k in scratch]
        with pytest.raises(
            PlanError, match=f"rule arguments: row {row}, .*none of the algorithm's"
        ):
            check_plan(graph, without_args(task_graph, gone))
        assert device in exchange.targets_at
