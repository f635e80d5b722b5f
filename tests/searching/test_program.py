"""The program of a judge: what is laid anew, and that room which runs out changes nothing."""

import numpy as np
import pytest

import taskflow
from taskflow import CostModel, MachineModel, lower
from taskflow.graph.family import Family
from taskflow.machine.topology import torus
from taskflow.searching import program as programs
from taskflow.searching.packed_judge import PackedJudge
from taskflow.simulation.simulate import schedule
from taskflow.strategy.rules import leaders, random_config
from tests.lowered import ends_of, network


@pytest.mark.parametrize("room", [1, 3])
def test_rows_that_find_no_room_are_laid_anew(monkeypatch, room):
    """With `room` 1 there is hardly ever room: all ends stay those of the whole pass."""
    monkeypatch.setattr(programs, "ROOM", room)
    graph, machine = network(layers=4), MachineModel.preset("p100", nodes=2)
    costs, generator = CostModel.analytic(machine), np.random.default_rng(0)
    judge, strategy = PackedJudge(graph, machine, costs), taskflow.data_parallel(graph, machine)
    judge.start(strategy)
    clears = []
    clear = judge.program.clear
    monkeypatch.setattr(judge.program, "clear", lambda more: (clears.append(more), clear(more)))
    for op in leaders(graph) * 4:
        strategy[op.name] = random_config(Family.of(op), machine, generator)
        judge.propose(op.name, strategy[op.name])
        judge.accept()
        task_graph = lower(graph, strategy, machine)
        np.testing.assert_array_equal(
            ends_of(judge), schedule(task_graph, costs.seconds(task_graph))[1]
        )
    assert clears


def test_only_what_changed_regions_have_to_do_with_is_laid_anew():
    """All updates read the learning rate, which is no reason to lay them anew."""
    graph, machine = network(layers=12), MachineModel.uniform(2)
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.data_parallel(graph, machine))
    judge.propose("fc5", taskflow.ParallelConfig({"o": 2}))
    assert 0 < judge.program.tables.counter["spans"][0] < len(judge.program.tables.span) / 4
    changed = {judge.lowering.regions[k].name for k in judge.index.changed[1]}
    assert "fc5.weight" in changed and "learning_rate" not in changed


def test_a_proposal_that_is_not_accepted_leaves_no_rows():
    graph, machine = network(layers=4), MachineModel.uniform(2)
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.data_parallel(graph, machine))
    rows = judge.program.tables.counter["rows"][0]
    for _ in range(3):
        judge.propose("fc1", taskflow.ParallelConfig({"o": 2}))
        assert judge.program.tables.counter["rows"][0] == rows


def test_of_a_device_that_receives_by_several_links_no_arrival_implies_another():
    """A grid of 2 x 3: what comes by different links comes in no order."""
    graph, machine = network(layers=2), torus((2, 3))
    costs, generator = CostModel.analytic(machine), np.random.default_rng(0)
    judge, strategy = PackedJudge(graph, machine, costs), taskflow.data_parallel(graph, machine)
    judge.start(strategy)
    for op in leaders(graph) * 2:
        strategy[op.name] = random_config(Family.of(op), machine, generator)
        judge.propose(op.name, strategy[op.name])
        judge.accept()
        task_graph = lower(graph, strategy, machine)
        np.testing.assert_array_equal(
            ends_of(judge), schedule(task_graph, costs.seconds(task_graph))[1]
        )
