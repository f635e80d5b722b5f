"""Where devices do the same, `simulate` says from the rows of representatives what it says from all rows."""

import numpy as np
import pytest

import taskflow
from ops.models import gpt
from taskflow import CostModel, MachineModel, ParallelConfig, lower, simulate
from taskflow.lowering import Lowering, lower_to_simulate
from taskflow.searching.grids import Grids
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.timeline import Timeline
from tests.lowered import network
from tests.strategies import random_strategy

MACHINES = {"h100": 2, "p100": 4, "v100": 2, "k80": 2, "laptop": 8}  # hosts


@pytest.fixture(autouse=True)
def few_rows_are_worth_it(monkeypatch):
    """Representatives stand for others in small graphs, too."""
    monkeypatch.setattr("taskflow.lowering.lowering.ROWS_OF_A_KIND", 0)


def assert_equal(lowering, strategy):
    """To the digit; the rows that were given to the simulation, and those that it made of them."""
    costs = CostModel.analytic(lowering.machine)
    expected = simulate(lower(lowering.graph, strategy, lowering.machine), costs)
    rows = lowering.rows_to_simulate(strategy, costs)
    found = simulate(rows, costs)
    assert found.seconds == expected.seconds and found.shortage == expected.shortage
    np.testing.assert_array_equal(found.peak_bytes, expected.peak_bytes)
    assert found.bytes_moved == expected.bytes_moved
    return rows, found.task_graph


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_under_data_parallelism_one_device_stands_for_all(name):
    machine = MachineModel.preset(name, nodes=MACHINES[name])
    graph = network(batch=32, width=16)
    strategy = taskflow.data_parallel(graph, machine)
    found, _ = assert_equal(Lowering(graph, machine), strategy)
    every = lower(graph, strategy, machine)
    assert set(found.peers.orbits.of) == {0}
    assert len(found) <= len(every) / len(machine.devices) + len(graph.regions)
    assert not found.is_complete and every.is_complete
    with pytest.raises(ValueError, match=r"^numbers: rows of representatives have none"):
        _ = found.numbers


def test_two_devices_stand_for_a_stage_whose_weights_have_two_unequal_parts():
    """Weights that are cast name devices part by part, samples pair by pair; the loss goes to all in one order."""
    machine = MachineModel.preset("h100", nodes=4)
    sizes = {"layers": 2, "hidden": 16, "heads": 2, "vocabulary": 33}
    graph = gpt.build(64, 8, **sizes, dropout=0.0, dtype="mixed_bfloat16")
    grid = Grids(graph).strategy(range(16), 2)
    devices = [range(16), range(16, 32)]
    strategy = taskflow.stages(graph, machine, within=grid, devices=devices)
    rows, _ = assert_equal(Lowering(graph, machine), strategy)
    assert rows.peers.orbits.representative.tolist() == [0, 1, 16, 17]


def test_one_after_the_other_what_is_known_of_one_is_of_use_for_the_next():
    """Strategies that share kinds of regions, and need other orbits of them."""
    machine = MachineModel.preset("h100", nodes=2)
    graph = network(batch=64, width=32, layers=3)
    lowering, grids = Lowering(graph, machine), Grids(graph)
    data = taskflow.data_parallel(graph, machine)
    mixed = data.copy()
    mixed["fc1"] = ParallelConfig({"o": 16})
    some = [data, *(grids.strategy(range(16), degree) for degree in (2, 4, 8)), mixed]
    for strategy in [*some, *(random_strategy(graph, machine, k) for k in range(4)), *some]:
        _, found = assert_equal(lowering, strategy)
        _, fresh = assert_equal(Lowering(graph, machine), strategy)
        assert (found.peers is None) == (fresh.peers is None)
        for name in ("kind", "device", "source", "point", "bytes", "dep_row", "arg_instance"):
            np.testing.assert_array_equal(getattr(found, name), getattr(fresh, name), name)


def test_where_each_device_does_something_else_all_rows_are_simulated():
    machine = MachineModel.preset("h100")
    graph = network(batch=32)
    alone = taskflow.single_device(graph, machine)
    assert assert_equal(Lowering(graph, machine), alone)[0].peers is None
    few = taskflow.data_parallel(graph, machine)
    measured = CostModel.measured(machine)
    assert Lowering(graph, machine).rows_to_simulate(few, measured).peers is None


def test_a_device_with_more_to_do_is_not_alike():
    machine = MachineModel.preset("h100", nodes=2)
    graph = network(batch=36)
    strategy = taskflow.data_parallel(graph, machine)
    assert strategy["fc0"] == ParallelConfig({"b": 16}, tuple(range(16)))
    found, _ = assert_equal(Lowering(graph, machine), strategy)
    assert found.peers is None or len(found.peers.orbits) > 1


def test_a_plan_says_what_it_takes():
    machine = MachineModel.preset("h100", nodes=2)
    graph = network(batch=32)
    costs = CostModel.analytic(machine)
    for schedule in (None, "critical_path"):
        plan = taskflow.Plan(taskflow.data_parallel(graph, machine), 2, schedule)
        found = plan.predict(graph, machine, costs)
        expected = simulate(plan.apply(graph, machine, costs)[1], costs)
        assert isinstance(found, Timeline) and found.seconds == expected.seconds
        assert len(found.task_graph) < len(expected.task_graph)


def test_what_takes_much_is_let_go_of_and_made_again_for_finer_orbits(monkeypatch):
    gone = []
    monkeypatch.setattr("taskflow.lowering.lowering.MUCH", 0)
    monkeypatch.setattr(Lowering, "__del__", lambda _: gone.append(True), raising=False)
    graph, machine = network(batch=32), MachineModel.preset("h100", nodes=2)
    costs, strategy = CostModel.analytic(machine), taskflow.data_parallel(graph, machine)
    rows = lower_to_simulate(graph, strategy, machine, costs)
    assert len(gone) == 1 and len(rows.peers.orbits) == 1
    finer = rows.peers.lower(Orbits.of_equal(np.arange(16) % 2))
    assert len(gone) == 1 and len(finer.peers.orbits) == 2
    every = simulate(lower(graph, strategy, machine), costs)
    for found in (rows, finer):
        timeline = simulate(found, costs)
        assert timeline.seconds == every.seconds
        np.testing.assert_array_equal(timeline.peak_bytes, every.peak_bytes)


def test_of_few_rows_all_are_simulated(monkeypatch):
    graph, machine = network(batch=32), MachineModel.preset("h100")
    strategy = taskflow.data_parallel(graph, machine)
    assert assert_equal(Lowering(graph, machine), strategy)[0].peers is not None
    monkeypatch.undo()
    assert assert_equal(Lowering(graph, machine), strategy)[0].peers is None


@pytest.mark.parametrize("devices", [3, 5, 6, 7, 12])
def test_devices_whose_number_is_no_product_of_the_steps_of_a_strategy(devices):
    """Two parts on the first two of three devices, and three parts of seven rows on all of them."""
    machine = MachineModel.uniform(devices)
    graph = network(batch=2 * devices + 1, width=devices + 1)
    strategy = taskflow.data_parallel(graph, machine)
    strategy["fc1"] = ParallelConfig({"b": 2})
    assert_equal(Lowering(graph, machine), strategy)
