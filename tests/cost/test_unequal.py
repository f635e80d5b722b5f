"""Ranks of unequal speed: what each measures becomes the rates of its devices, and those what parts they get."""

from dataclasses import replace

import pytest

import ops
from taskflow import (
    CostModel,
    Graph,
    MachineModel,
    data_parallel,
    lower,
    proportional,
    search,
    simulate,
)
from taskflow.cost.measure import UNEQUAL, with_slow_devices


def unequal(*speeds):
    return with_slow_devices(MachineModel.uniform(len(speeds)), speeds)


@pytest.fixture(scope="module")
def graph():
    graph = Graph()
    x = ops.relu(ops.linear(graph.input("x", (6000, 256)), 256, name="fc1"))
    ops.sgd(
        ops.mean_squared_error(
            ops.linear(x, 256, name="fc2"), graph.input("t", (6000, 256)), name="loss"
        ),
        lr=0.1,
    )
    return graph


def test_a_slow_device_is_slower_in_all():
    machine = MachineModel.uniform(3)
    (first, _, third), found = machine.devices, unequal(4.0, 4.0, 1.0)
    assert found.devices[:2] == machine.devices[:2] and found.links == machine.links
    assert third.flops_per_second / found.devices[2].flops_per_second == pytest.approx(4.0)
    assert third.memory_bandwidth / found.devices[2].memory_bandwidth == pytest.approx(4.0)
    assert found.devices[2].overhead_seconds == pytest.approx(4 * first.overhead_seconds)


def test_what_may_be_noise_is_not_unequal():
    assert unequal(1.0, 0.01 + 1 / UNEQUAL) == MachineModel.uniform(2)
    assert unequal(1.0, 1 / UNEQUAL - 0.01).shares([0, 1]) is not None
    assert unequal(1.0, UNEQUAL + 0.01).shares([0, 1]) is not None


def test_shares_follow_what_devices_reach():
    machine = unequal(3.0, 1.0)
    assert machine.shares([0, 1]) == pytest.approx((0.75, 0.25))
    assert machine.shares([1, 1, 0]) == pytest.approx((0.2, 0.2, 0.6))
    half = replace(
        machine,
        devices=tuple(
            replace(d, compute_efficiency=e) for d, e in zip(machine.devices, (0.5, 1.0))
        ),
    )
    assert half.shares([0, 1]) == pytest.approx((0.6, 0.4))


def test_proportional_parts(graph):
    machine = unequal(3.0, 1.0)
    strategy = proportional(graph, machine)
    assert strategy["fc1"].devices == (0, 1) and strategy["fc1"].bounds("b", 6000) == [
        0,
        4500,
        6000,
    ]
    equal = MachineModel.uniform(2)
    assert proportional(graph, equal) == data_parallel(graph, equal)


@pytest.mark.parametrize("times", [2, 3, 4])
def test_it_is_a_start_that_comes_near_the_ideal(graph, times):
    """(k + 1) / 2 times as fast as halves where products are all that counts and one of two is k times slower."""
    machine = unequal(1.0, 1.0 / times).with_rates(
        overhead_seconds=0.0, bandwidth=1e15, latency_seconds=0.0
    )
    result = search(graph, machine, CostModel.analytic(machine), proposals=1)
    gain = result.baseline_seconds["data parallel"] / result.baseline_seconds["proportional"]
    assert 0.97 * (times + 1) / 2 < gain < 1.001 * (times + 1) / 2
    assert result.seconds <= result.baseline_seconds["proportional"]


def test_equal_devices_have_one_start_for_both(graph):
    machine = MachineModel.uniform(2)
    result = search(graph, machine, CostModel.analytic(machine), proposals=1)
    assert "proportional" not in result.baseline_seconds


def test_a_rank_carries_its_times_over_to_slower_devices(graph, monkeypatch):
    """Kernels are timed on the first device of this rank; another one takes as much longer as its rates say."""
    monkeypatch.setattr("taskflow.cost.model.time_call", lambda call: 1e-3)
    machine = unequal(4.0, 1.0)
    rows = lower(graph, data_parallel(graph, machine), machine)
    seconds, is_copy = CostModel.measured(machine).seconds(rows), ~rows.is_communication
    assert {*seconds[is_copy & (rows.device == 0)]} == {1e-3} and seconds[
        is_copy & (rows.device == 1)
    ] == pytest.approx(4e-3)
    equal = MachineModel.uniform(2)
    rows = lower(graph, data_parallel(graph, equal), equal)
    assert {*CostModel.measured(equal).seconds(rows)[~rows.is_communication]} == {1e-3}
    assert (
        simulate(rows, CostModel.measured(equal)).seconds
        < simulate(rows, CostModel.measured(machine)).seconds
    )
