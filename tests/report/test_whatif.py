"""What if: cases are searches and simulations of their own, sensitivities are shares of a step, no plan is beaten."""

from functools import partial

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Graph,
    MachineModel,
    Strategy,
    data_parallel,
    lower,
    scale_machine,
    search,
    simulate,
    single_device,
    what_if,
)
from taskflow.cost.model import MeasuredCosts
from taskflow.schedule.plan import Plan
from taskflow.searching import SearchInterrupted
from taskflow.searching.outcome import FOUND, Outcome, non_dominated

HOSTS = MachineModel.join([MachineModel.preset("p100").take(2)] * 2).with_library("own")
COSTS = CostModel.analytic(HOSTS)
SHORT = partial(search, proposals=10)


@pytest.fixture(scope="module")
def graph():
    graph = Graph()
    x = ops.relu(ops.linear(graph.input("x", (256, 512)), 1024, name="fc1"))
    loss = ops.softmax_cross_entropy(
        ops.linear(x, 64, name="fc2"), graph.input("t", (256,), "int32"), name="loss"
    )
    ops.sgd(loss, lr=0.1)
    return graph


def rule(graph, machine, costs):
    return data_parallel(graph, machine)


def simulated(graph, machine):
    return simulate(
        lower(graph, data_parallel(graph, machine), machine), CostModel.analytic(machine)
    )


def test_every_case_is_what_a_search_of_its_own_finds(graph):
    scales = [{"network": 10.0, "flops": 2.0, "latency": 0.5}]
    cases = list(
        what_if(graph, HOSTS, COSTS, SHORT, scales=scales, devices=[2, 4], sensitivities=False)
    )
    assert [(c.devices, dict(c.scales)) for c in cases] == [
        (n, s) for s in ({}, *scales) for n in (2, 4)
    ]
    for case in cases:
        machine = scale_machine(HOSTS, case.scales).take(case.devices)
        found = SHORT(graph, machine, CostModel.analytic(machine))
        assert (case.seconds, case.start, case.pareto) == (
            found.seconds,
            found.best_start,
            found.pareto,
        )
        assert case.speedup == cases[0].seconds / case.seconds
        costs = CostModel.analytic(machine)
        timeline = simulate(found.plan.apply(graph, machine, costs)[1], costs)
        assert (case.bytes_moved, case.peak_bytes) == (
            timeline.bytes_moved,
            timeline.peak_bytes.max(),
        )


def test_equal_machines_are_asked_about_once(graph):
    """The network of 2 devices in one host is not theirs, and a factor of 1 changes nothing."""
    asked = []

    def find(graph, machine, costs):
        asked.append(machine)
        return data_parallel(graph, machine)

    scales = [{"network": 10.0}, {"flops": 1.0}]
    cases = list(
        what_if(graph, HOSTS, COSTS, find, scales=scales, devices=[2, 4, 2], sensitivities=False)
    )
    assert len(cases) == 9 and len(asked) == 3
    assert cases[0].seconds == cases[3].seconds == cases[6].seconds
    assert cases[4].seconds < cases[1].seconds == cases[7].seconds


@pytest.mark.parametrize(
    "found", [rule, lambda *given: Plan(rule(*given))], ids=["strategy", "plan"]
)
def test_a_rule_in_place_of_a_search(graph, found):
    (case,) = what_if(graph, HOSTS, COSTS, found)
    timeline = simulated(graph, HOSTS)
    assert (case.seconds, case.bytes_moved) == (timeline.seconds, timeline.bytes_moved)
    assert (case.start, case.pareto, case.refusal) == ("", (), "")


def test_sensitivities_are_the_derivatives_and_add_up(graph):
    """Twice all rates and half all delays halve a step: what rates save and delays cost is all of it (Euler)."""
    (case,) = what_if(graph, HOSTS, COSTS, rule)
    found = case.sensitivities
    assert set(found) == {"network", "links", "latency", "flops", "memory_bandwidth", "overhead"}
    for name, value in found.items():
        more, less = (
            simulated(graph, scale_machine(HOSTS, {name: 1 + step})).seconds
            for step in (0.001, -0.001)
        )
        assert value == pytest.approx((more - less) / 0.002 / case.seconds, abs=0.02)
    delays = found["latency"] + found["overhead"]
    assert delays - (sum(found.values()) - delays) == pytest.approx(1.0, abs=0.03)
    assert min(found["latency"], found["overhead"]) > 0 > found["network"]


def test_where_nothing_fits_a_sweep_goes_on(graph):
    cases = list(what_if(graph, HOSTS, COSTS, SHORT, scales=[{"memory": 1e-6}, {"flops": 2.0}]))
    assert cases[1].plan is None and cases[1].seconds == float("inf") and cases[1].speedup == 0.0
    assert cases[1].refusal.startswith(
        "search: no start fits into memory; the one that takes least is "
    )
    assert cases[0].speedup == 1.0 < cases[2].speedup and cases[2].refusal == ""


def test_a_rule_that_does_not_fit_says_so(graph):
    *_, case = what_if(graph, HOSTS, COSTS, rule, scales=[{"memory": 1e-6}], sensitivities=False)
    assert case.refusal.startswith("device 0: the task graph needs ") and case.refusal.endswith(
        " has 17180 B"
    )


def test_an_interrupted_search_ends_it_with_its_best(graph):
    asked = []

    def find(graph, machine, costs):
        asked.append(machine)
        found = SHORT(graph, machine, costs)
        if len(asked) == 2:
            raise SearchInterrupted(found)
        return found

    cases = []
    with pytest.raises(SearchInterrupted):
        cases.extend(what_if(graph, HOSTS, COSTS, find, devices=[1, 2, 4]))
    assert [c.devices for c in cases] == [1, 2] and cases[1].plan is not None


def test_measured_costs_are_timed_once(graph, monkeypatch):
    """And only links can be scaled then."""
    timed, machine = [], MachineModel.uniform(2)
    monkeypatch.setattr("taskflow.cost.model.time_call", lambda call: timed.append(call) or 1e-4)
    costs = CostModel.measured(machine)
    first, second = what_if(graph, machine, costs, rule, scales=[{"links": 1e3}])
    assert set(first.sensitivities) == {"links", "latency"}
    assert second.seconds < first.seconds
    assert len(timed) == len(costs._kept) + len(costs._by_move)


def test_a_rehearsal_is_of_its_machine_alone(graph):
    machine = MachineModel.uniform(2)
    rows, costs = lower(graph, data_parallel(graph, machine), machine), MeasuredCosts(machine)
    costs.learn(rows, np.full(len(rows), 7.0))
    assert (costs.seconds(rows) == 7.0).all()
    assert (costs.on(scale_machine(machine, {"links": 2.0})).seconds(rows) < 7.0).all()


def test_costs_on_another_machine_are_those_of_that_machine(graph):
    other = scale_machine(HOSTS, {"flops": 2.0, "network": 3.0})
    rows = lower(graph, data_parallel(graph, other), other)
    carried, own = CostModel.analytic(HOSTS).on(other), CostModel.analytic(other)
    assert (carried.seconds(rows) == own.seconds(rows)).all() and carried.machine is other


def outcome(*figures):
    return Outcome(Plan(Strategy({})), *figures)


def test_what_is_beaten_in_everything_is_left_out():
    fast, small, both = outcome(1.0, 9, 9), outcome(2.0, 1, 1), outcome(2.0, 9, 9)
    assert non_dominated([both, small, fast, outcome(1.0, 9, 9)]) == (fast, small)
    assert non_dominated([outcome(1.0, 2, 3), outcome(1.0, 3, 2)]) == (
        outcome(1.0, 2, 3),
        outcome(1.0, 3, 2),
    )


def test_a_search_tells_the_plans_that_nothing_beats(graph):
    found = search(graph, HOSTS, COSTS, proposals=60)
    assert found.pareto[0].seconds == found.seconds
    names = [each.name for each in found.pareto]
    assert "single device" in names and {*names} <= {*found.baseline_seconds, FOUND}
    alone = found.pareto[names.index("single device")]
    assert alone.plan.strategy == single_device(graph, HOSTS) and alone.bytes_moved == 0
    for each in found.pareto:
        timeline = simulate(each.plan.apply(graph, HOSTS, COSTS)[1], COSTS)
        assert each.figures == (timeline.seconds, timeline.bytes_moved, timeline.peak_bytes.max())
