"""Rehearsals: every row of a graph gets a cost, which is what was timed and no more."""

import math

import numpy as np
import pytest

import ops
from taskflow import (
    Graph,
    MachineModel,
    data_parallel,
    lower,
    model_parallel,
    simulate,
    single_device,
)
from taskflow.cost.model import MeasuredCosts
from taskflow.execute import rehearsal
from taskflow.execute.rehearsal import FEWEST, Rehearsal, can_rehearse, rehearse, typical_seconds
from taskflow.simulation.simulate import schedule
from taskflow.tasks import moves
from taskflow.tasks.memory import plan_memory
from taskflow.tasks.task_graph import Kind
from tests.collectives import by_copies

MACHINE = MachineModel.uniform(2, latency_seconds=0.25)


def network():
    graph = Graph()
    x, t = graph.input("x", (4, 6)), graph.input("t", (4,), "int32")
    h = ops.relu(ops.linear(x, 8, name="fc1"))
    loss = ops.softmax_cross_entropy(ops.linear(h, 6, name="fc2"), t, name="loss")
    graph.output("loss", loss)
    ops.sgd(loss, lr=0.1)
    return graph


def task_graph_of(rule, machine=MACHINE):
    graph = network()
    return lower(graph, rule(graph, machine), machine)


def test_every_row_is_rehearsed_and_no_other_graph():
    costs, split, alone = (
        MeasuredCosts(MACHINE),
        task_graph_of(model_parallel),
        task_graph_of(single_device),
    )
    rehearse(costs, split, rounds=2)
    assert all(costs.source(split, row).startswith("rehearsed") for row in range(len(split)))
    assert not any(costs.source(alone, row).startswith("rehearsed") for row in range(len(alone)))
    kinds = {Kind(int(k)) for k in split.kind}
    assert kinds == set(Kind) - {Kind.COLLECTIVE}
    seconds = costs.seconds(split)
    assert (seconds > 0).all()
    assert (seconds[split.is_transfer] >= 0.2).all() and (seconds[~split.is_transfer] < 0.2).all()
    assert simulate(split, costs).seconds > 0.2


def test_what_an_all_reduce_copies_is_in_its_folds():
    task_graph = task_graph_of(data_parallel)
    transfers = np.flatnonzero(task_graph.is_transfer)
    assert {task_graph[r].collective for r in transfers.tolist()} == {"all-reduce"}
    rounds = Rehearsal(task_graph).time_rows(2)
    assert (rounds[:, transfers] == 0.25).all()  # their latency and nothing else
    assert (rounds[:, task_graph.kind == Kind.FOLD] > 0).all()


def test_collectives_keep_their_formula(monkeypatch):
    monkeypatch.setattr(moves, "ROOM_BYTES", 0)
    machine = by_copies(MachineModel.uniform(3), 1)
    task_graph, costs = task_graph_of(data_parallel, machine), MeasuredCosts(machine)
    together = task_graph.kind == Kind.COLLECTIVE
    assert together.any()
    formula = costs.seconds(task_graph)[together]
    rehearse(costs, task_graph, rounds=1)
    np.testing.assert_array_equal(costs.seconds(task_graph)[together], formula)
    sources = [costs.source(task_graph, row).split()[0] for row in range(len(task_graph))]
    assert [source == "rehearsed" for source in sources] == (~together).tolist()


def test_rounds_are_ordinary_where_their_simulation_is_the_median():
    """Two devices wait for each other: what slows down now one, now the other, counts each time."""
    task_graph = task_graph_of(model_parallel, MachineModel.uniform(2))
    random = np.random.default_rng(0)
    rounds = random.choice([1.0, 1.0, 1.0, 4.0], (41, len(task_graph)))
    typical = typical_seconds(task_graph, rounds)
    steps = [schedule(task_graph, seconds)[2] for seconds in rounds]
    assert schedule(task_graph, typical)[2] == pytest.approx(np.median(steps))
    assert typical == pytest.approx(typical[0])  # their medians are equal
    assert typical[0] > 1.75  # their mean


def test_rows_without_a_time_stay_without_one():
    task_graph = task_graph_of(single_device)
    rounds = np.ones((3, len(task_graph)))
    rounds[:, 1] = np.nan
    typical = typical_seconds(task_graph, rounds)
    assert np.isnan(typical[1]) and np.isnan(typical).sum() == 1


def test_the_last_rehearsal_of_a_graph_counts():
    task_graph, costs = task_graph_of(data_parallel), MeasuredCosts(MACHINE)
    for seconds in (5.0, 2.0):
        costs.learn(task_graph, np.full(len(task_graph), seconds))
    assert (costs.seconds(task_graph) == 2.0).all()


def test_arenas_that_would_take_half_of_the_memory_are_not_made():
    machine = MACHINE.with_rates(memory_bytes=1000)
    task_graph, costs = task_graph_of(data_parallel, machine), MeasuredCosts(machine)
    assert not can_rehearse(task_graph)
    rehearse(costs, task_graph)
    assert costs.source(task_graph, 0).startswith("measured")


def test_several_take_turns_as_many_at_a_time_as_fit(monkeypatch):
    turns = []

    class Noted:
        def __init__(self, task_graph):
            self.task_graph = task_graph

        def time_rows(self, rounds):
            turns.append(self.task_graph)
            return np.ones((rounds, len(self.task_graph)))

    monkeypatch.setattr(rehearsal, "Rehearsal", Noted)
    graphs = [task_graph_of(rule) for rule in (single_device, data_parallel, model_parallel)]
    costs = MeasuredCosts(MACHINE)
    assert rehearse(costs, *graphs, rounds=2) == graphs
    assert turns == graphs * 2 and all(costs.is_rehearsed(each) for each in graphs)
    peaks = max(int(plan_memory(each).peak_bytes.max()) for each in graphs)
    tight = MACHINE.with_rates(memory_bytes=2 * peaks)
    turns.clear()
    graphs = [task_graph_of(rule, tight) for rule in (single_device, data_parallel)]
    assert (
        rehearse(costs, *graphs, rounds=2) == graphs and turns == [graphs[0]] * 2 + [graphs[1]] * 2
    )
    turns.clear()
    assert (
        rehearse(costs, *graphs, is_late=lambda: True) == graphs[:1]
        and turns == graphs[:1] * FEWEST
    )


@pytest.mark.parametrize("short, passes", [(0.0, 2), (math.inf, 4)])
def test_a_short_step_is_passed_once_more_before_each_time(short, passes, monkeypatch):
    made, time_all = [], rehearsal._time_all
    monkeypatch.setattr(rehearsal, "SHORT_SECONDS", short)
    monkeypatch.setattr(rehearsal, "_time_all", lambda calls: made.append(0) or time_all(calls))
    one = Rehearsal(task_graph_of(data_parallel))
    made.clear()
    assert (one.time_rows(2).shape[0], len(made)) == (2, passes)
