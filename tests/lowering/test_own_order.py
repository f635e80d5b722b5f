"""The rows of some devices in the order of a plan are those of the whole, and in one order on all ranks (law 13)."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, MachineModel, Plan, lower, reorder, schedule
from taskflow.lowering import Lowering
from taskflow.schedule.orders import NAMED
from taskflow.schedule.pipeline import pipeline_of
from tests.laws import own_plans_are_parts_of_the_whole
from tests.lowered import network
from tests.lowering.test_peers import cases
from tests.refusals import assert_refused
from tests.strategies import examples


@examples(100)
@given(cases(), st.sampled_from([None, *sorted(NAMED)]), st.integers(0, 99))
def test_own_rows_in_any_order(case, order, seed):
    graph, strategy, machine = case
    plan = Plan(strategy, schedule=order)
    try:
        plan.apply(graph, machine, CostModel.analytic(machine))
    except ValueError:  # a barrier, or what no schedule of stages knows
        with pytest.raises(ValueError):
            plan.apply(graph, machine, CostModel.analytic(machine), devices=[0])
        return
    count = len(machine.devices)
    devices = np.random.default_rng(seed).permutation(count)
    cut = seed % count
    owners = [devices[:1].tolist(), sorted(devices[1:cut].tolist()), [count - 1]]
    own_plans_are_parts_of_the_whole(graph, machine, plan, owners)


@pytest.mark.parametrize("devices", [64, 128])
def test_on_many_devices_no_rank_makes_all_rows(devices, monkeypatch):
    """Nor does who decides the order, where rows are not few."""
    monkeypatch.setattr("taskflow.lowering.lowering.ROWS_OF_A_KIND", 1)
    machine = MachineModel.preset("h100", nodes=devices // 8)
    graph = network(4 * devices, 32, layers=4)
    strategy = taskflow.stages(graph, machine, count=4, parts=4)
    plan = Plan(strategy, schedule="one_f_one_b")
    with mock.patch.object(Lowering, "_all_rows", side_effect=AssertionError):
        for device in (0, devices - 1):
            plan.apply(graph, machine, CostModel.analytic(machine), devices=[device])
    own_plans_are_parts_of_the_whole(graph, machine, plan, [[0], [5, devices // 2 + 1]])


def listed(graph, machine, strategy):
    """A schedule that names devices."""
    rows = lower(graph, strategy, machine)
    return schedule.one_f_one_b.schedule(pipeline_of(rows))


def backwards(task_graph, seconds):
    """A user's own order: of rows that may be issued the last one goes first."""
    waiting = np.diff(task_graph.dep_ptr).tolist()
    order = []
    while len(order) < len(waiting):
        row = max(k for k, count in enumerate(waiting) if count == 0)
        order.append(row)
        waiting[row] = -1
        for other in range(len(waiting)):
            waiting[other] -= row in task_graph.deps(other)
    return np.array(order)


@pytest.mark.parametrize("order", [listed, backwards, "searched"])
def test_an_order_that_only_all_rows_have(order):
    graph, machine = network(16, 8), MachineModel.uniform(4)
    strategy = taskflow.stages(graph, machine, count=2, parts=2)
    order = listed(graph, machine, strategy) if order is listed else order
    plan = Plan(strategy, schedule=order)
    own_plans_are_parts_of_the_whole(graph, machine, plan, [[0], [1, 2], [3]])


def test_one_rank_decides_for_all():
    """The others ask no costs."""
    graph, machine = network(16, 8), MachineModel.uniform(4)
    plan = Plan(taskflow.stages(graph, machine, count=2, parts=2), schedule="one_f_one_b")
    told = []

    def first(act):
        told.append(act())
        return told[0]

    costs = CostModel.analytic(machine)
    _, one = plan.apply(graph, machine, costs, devices=[0], decide=first)
    _, other = plan.apply(graph, machine, None, devices=[0], decide=lambda act: told[0])
    assert one.digest() == other.digest()
    assert one.own.agreed == other.own.agreed
    again = Plan(plan.strategy, schedule="gpipe").apply(graph, machine, costs, devices=[0])[1]
    assert again.own.agreed != one.own.agreed


def test_rows_of_some_devices_cannot_be_ordered_by_themselves():
    graph, machine = network(), MachineModel.uniform(2)
    rows = lower(graph, taskflow.data_parallel(graph, machine), machine, devices=[0])
    rule = (
        "costs: these are the rows of some devices alone (`lower(devices=)`), all rows are needed"
    )
    assert_refused(rule, lambda: reorder(rows, CostModel.analytic(machine)))
