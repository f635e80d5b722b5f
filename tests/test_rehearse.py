"""Rehearsals: every row of a graph gets a cost, which is what was timed and no more."""

import numpy as np

import ops
from taskflow import Graph, MachineModel, data_parallel, lower, model_parallel, simulate, single_device
from taskflow.cost import MeasuredCosts, merges, rehearsal_key
from taskflow.rehearse import _summarise, rehearse
from taskflow.task import Kind

MACHINE = MachineModel.uniform(2, latency_seconds=0.25)


def network():
    graph = Graph()
    x, t = graph.input("x", (4, 6)), graph.input("t", (4,), "int32")
    h = ops.relu(ops.linear(x, 8, name="fc1"))
    loss = ops.softmax_cross_entropy(ops.linear(h, 6, name="fc2"), t, name="loss")
    graph.output("loss", loss)
    ops.sgd(loss, lr=0.1)
    return graph


def test_every_row_is_rehearsed_and_no_other():
    graph, costs = network(), MeasuredCosts(MACHINE)
    split, alone = (lower(graph, rule(graph, MACHINE), MACHINE) for rule in (model_parallel, single_device))
    rehearse(costs, split, rounds=2)
    assert all(costs.source(split, row).startswith("rehearsed") for row in range(len(split)))
    assert not any(costs.source(alone, row).startswith("rehearsed") for row in range(len(alone)))
    kinds = {Kind(int(k)) for k in split.kind}
    assert kinds == set(Kind) - {Kind.COLLECTIVE}
    seconds = costs.seconds(split)
    assert (seconds > 0).all()
    assert (seconds[split.is_transfer] >= 0.25).all() and (seconds[~split.is_transfer] < 0.25).all()
    assert simulate(split, costs).seconds > 0.25


def test_what_an_all_reduce_copies_is_in_its_folds():
    graph = network()
    task_graph = lower(graph, data_parallel(graph, MACHINE), MACHINE)
    transfers = np.flatnonzero(task_graph.is_transfer).tolist()
    assert {task_graph[r].collective for r in transfers} == {"all-reduce"}
    assert all(merges(task_graph, r) for r in transfers)
    costs = MeasuredCosts(MACHINE)
    rehearse(costs, task_graph, rounds=2)
    np.testing.assert_allclose(costs.seconds(task_graph)[transfers], 0.25, atol=1e-2)


def test_a_cost_is_the_median_of_the_rehearsals():
    graph, costs = network(), MeasuredCosts(MACHINE)
    task_graph = lower(graph, data_parallel(graph, MACHINE), MACHINE)
    row = int(np.flatnonzero(task_graph.kind == Kind.POINT)[0])
    for seconds in (5.0, 1.0, 2.0):
        costs.learn({rehearsal_key(task_graph, row): [seconds]})
        costs.seconds(task_graph)
    assert costs.seconds(task_graph)[row] == 2.0


def test_rounds_that_are_quick_or_slow_as_a_whole_do_not_count():
    rounds = [[9.0, 9.0, 9.0], [1.0, 2.0, 6.0], [1.0, 4.0, 4.0], [0.0, 0.0, 0.0]]
    assert _summarise(["a", "b", "a"], rounds) == {"a": [3.0], "b": [3.0]}


def test_samples_that_would_take_half_of_the_memory_are_not_made():
    graph = network()
    machine = MACHINE.with_rates(memory_bytes=1000)
    task_graph, costs = lower(graph, data_parallel(graph, machine), machine), MeasuredCosts(machine)
    rehearse(costs, task_graph)
    assert costs.source(task_graph, 0).startswith("measured")
