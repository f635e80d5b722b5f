"""Classes of devices that do the same: they say of a step what all rows say, and expanded they are all rows."""

from copy import copy
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, MachineModel, ParallelConfig, TaskGraph, lower, simulate
from taskflow.lowering import lowering
from taskflow.searching.grids import Grids
from tests.lowered import network
from tests.strategies import examples, graphs, random_strategy

MACHINES = {"h100": 2, "p100": 4, "v100": 2, "k80": 2, "laptop": 8}  # hosts
CARRIED = {}, {"all-reduce": "copies"}, {"all-reduce": "ring"}


def both(graph, strategy, machine):
    """The task graph with all rows, and that of which rows are made when they are asked for."""
    with mock.patch.object(lowering, "MANY", len(machine.devices) + 1):
        rows = lower(graph, strategy, machine)
    with mock.patch.object(lowering, "MANY", 2):
        return rows, lower(graph, strategy, machine)


def is_of_classes(timeline):
    return "start" not in vars(timeline)


def assert_equal(rows, found, costs):
    """To the digit, before and after the rows are made."""
    expected, timeline = simulate(rows, costs), simulate(found, costs)
    was_of_classes = is_of_classes(timeline)
    assert timeline.seconds == expected.seconds
    np.testing.assert_array_equal(timeline.peak_bytes, expected.peak_bytes)
    assert found.bytes_moved == rows.bytes_moved
    assert found.digest() == rows.digest()
    for name, column in vars(rows).items():
        if isinstance(column, np.ndarray):
            np.testing.assert_array_equal(getattr(found, name), column, name)
    np.testing.assert_array_equal(timeline.start, expected.start)
    np.testing.assert_array_equal(timeline.end, expected.end)
    assert timeline.critical_path() == expected.critical_path()
    return was_of_classes


@examples(50)
@given(
    data=st.data(),
    name=st.sampled_from(sorted(MACHINES)),
    carried=st.sampled_from(CARRIED),
    seed=st.integers(0, 99),
)
def test_classes_say_what_all_rows_say(data, name, carried, seed):
    machine = MachineModel.preset(name, nodes=MACHINES[name]).with_collectives(carried)
    if data.draw(st.booleans()):
        graph = data.draw(graphs(steps=3)).graph
    else:
        graph = network(
            batch=32,
            width=data.draw(st.sampled_from([8, 12, 32])),
            layers=data.draw(st.integers(1, 3)),
        )
    strategy = (
        taskflow.data_parallel(graph, machine)
        if seed < 50
        else random_strategy(graph, machine, seed)
    )
    assert_equal(*both(graph, strategy, machine), CostModel.analytic(machine))


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_under_data_parallelism_one_device_stands_for_all(name):
    machine = MachineModel.preset(name, nodes=MACHINES[name])
    graph = network(batch=32, width=16)
    rows, found = both(graph, taskflow.data_parallel(graph, machine), machine)
    assert set(found.classes.peers.orbits.of) == {0}
    assert len(found.classes) <= len(rows) / len(machine.devices) + len(graph.regions)
    assert assert_equal(rows, found, CostModel.analytic(machine))


def test_rows_are_made_when_they_are_asked_for():
    machine = MachineModel.preset("h100", nodes=2)
    graph = network(batch=32)
    rows, found = both(graph, taskflow.data_parallel(graph, machine), machine)
    with mock.patch.object(lowering.Lowering, "_assemble", side_effect=AssertionError):
        timeline = simulate(found, CostModel.analytic(machine))
        assert (
            timeline.seconds > 0
            and found.bytes_moved > 0
            and found.devices_used == rows.devices_used
        )
    assert "kind" not in vars(found)
    again = copy(found)
    assert isinstance(again, TaskGraph) and again.digest() == rows.digest()
    assert replace(found, repeat=1).classes is None
    assert len(found) == len(rows) and not hasattr(found, "no such field")


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_tensor_parallelism(degree):
    machine = MachineModel.preset("h100", nodes=8)
    graph = network(batch=64, width=32)
    strategy = Grids(graph).strategy(range(64), degree)
    rows, found = both(graph, strategy, machine)
    assert 1 < len(set(found.classes.peers.orbits.of)) < 64
    assert_equal(rows, found, CostModel.analytic(machine))


def test_a_device_that_is_slower_is_a_class_of_its_own():
    machine = MachineModel.preset("h100", nodes=2)
    first, *others = machine.devices
    slow = replace(
        first,
        flops_per_second=first.flops_per_second / 3,
        memory_bandwidth=first.memory_bandwidth / 3,
    )
    machine = replace(machine, devices=(slow, *others))
    graph = network(batch=64, width=64)
    rows, found = both(graph, taskflow.data_parallel(graph, machine), machine)
    assert assert_equal(rows, found, CostModel.analytic(machine))
    assert (found.classes.peers.orbits.of == 0).sum() == 1


def test_a_device_with_more_to_do_is_not_alike():
    machine = MachineModel.preset("h100", nodes=2)
    graph = network(batch=36)
    strategy = taskflow.data_parallel(graph, machine)
    assert strategy["fc0"] == ParallelConfig({"b": 16}, tuple(range(16)))
    rows, found = both(graph, strategy, machine)
    assert found.classes is None or len(found.classes.peers.orbits) > 1
    assert_equal(rows, found, CostModel.analytic(machine))
