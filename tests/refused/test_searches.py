"""Searches that cannot be: no budget, starts that do not fit, no memory, and no costs."""

import numpy as np
import pytest

from taskflow import (
    CostModel,
    Device,
    Graph,
    MachineModel,
    ParallelConfig,
    lower,
    scale_machine,
    search,
    search_at_home,
    simulate,
    single_device,
    what_if,
)
from taskflow.searching.exhaustive import search_exhaustively
from taskflow.searching.joint import search_stages
from tests import tiny
from tests.refusals import assert_refused
from tests.simple_costs import SimpleCosts

TWO = MachineModel.uniform(2)


@pytest.fixture
def graph():
    graph = Graph()
    tiny.linear(graph.input("x", (8, 6)), 4)
    return graph


def searching(graph, machine=TWO, find=search, **options):
    return lambda: find(graph, machine, CostModel.analytic(machine), **options)


@pytest.mark.parametrize("proposals", [0, -3])
def test_no_proposals(graph, proposals):
    message = f"search: the budget is at least one proposal, not {proposals}"
    assert_refused(message, searching(graph, proposals=proposals))
    assert_refused(message, searching(graph, find=search_at_home, proposals=proposals))


@pytest.mark.parametrize("seconds", [0, -1.5, float("nan")])
def test_no_seconds(graph, seconds):
    message = f"search: the budget is a positive number of seconds, not {seconds}"
    assert_refused(message, searching(graph, seconds=seconds, proposals=10))
    assert_refused(message, searching(graph, find=search_at_home, seconds=seconds))


def test_more_devices_than_the_machine_has(graph):
    start = single_device(graph, TWO)
    start["fc"] = ParallelConfig({"b": 3})
    message = (
        "search: the start 'mine': operator 'fc': device 2 is not among the machine's 2 devices"
    )
    assert_refused(message, searching(graph, starts={"mine": start}))


def test_no_plan_of_stages_fits(graph):
    """As below; half of a micro-batch of four samples is 48 bytes of `x` and 32 of y, beside 96 of weight."""
    machine = MachineModel.uniform(2, Device(memory_bytes=128))
    message = (
        "search_stages: no plan that fits into memory was found; 1 stage on 2 of 2 devices (data) x 4 micro-batches, "
        "one_f_one_b: device 0 needs 256 B, it has 128 B"
    )
    assert_refused(
        message, lambda: search_stages(graph, machine, CostModel.analytic(machine), 60.0)
    )


def test_nothing_fits(graph):
    """x 192, weight 96 and y 128 bytes, in places of 64 bytes; whatever the split, a device holds more than 128."""
    machine = MachineModel.uniform(2, Device(memory_bytes=128))
    message = (
        "search: no start fits into memory; the one that takes least is 'data parallel': device 0: the task graph "
        "needs 320 B (128 B for parameters and state, 192 B at the peak of a step), the device has 128 B"
    )
    assert_refused(message, searching(graph, machine))


@pytest.mark.parametrize("factor", [0, -2.0, float("nan"), "2"])
def test_a_scale_that_is_no_factor(factor):
    message = f"scale 'flops': its factor is a positive number, not {factor!r}"
    assert_refused(message, lambda: scale_machine(TWO, {"flops": factor}))


def test_a_scale_of_links_that_a_machine_lacks():
    message = (
        "scale 'network': multiplies the bandwidth of links between hosts; "
        "machine 'uniform' has 2 links and 1 hosts"
    )
    assert_refused(message, lambda: scale_machine(TWO, {"network": 2.0}))


def test_what_was_measured_is_not_scaled(graph):
    message = (
        "what if: scale 'flops': costs are measured, on devices as they are; analytic costs scale"
    )
    assert_refused(
        message, lambda: next(what_if(graph, TWO, CostModel.measured(TWO), scales=[{"flops": 2.0}]))
    )


def test_a_known_strategy_outside_of_the_space(graph):
    start = single_device(graph, TWO)
    start["fc"] = ParallelConfig({"b": 2}, (1, 0))
    message = "exhaustive search: 'fc' is b:2 on 1,0, which is not in the space"
    assert_refused(
        message, lambda: search_exhaustively(graph, TWO, CostModel.analytic(TWO), known=[start])
    )


def test_an_optimum_that_nothing_fits(graph):
    machine = MachineModel.uniform(2, Device(memory_bytes=64))
    with pytest.raises(
        ValueError, match=r"^exhaustive search: no strategy fits into memory; device \d needs \d+ B"
    ):
        search_exhaustively(graph, machine, CostModel.analytic(machine))


def test_a_proof_from_costs_that_prove_nothing(graph):
    message = (
        "exhaustive search: its proof needs costs of which a part r of a task takes at least r"
    )
    assert_refused(message, lambda: search_exhaustively(graph, TWO, CostModel.measured(TWO)))


def no_kernel(ctx, x, y):
    raise NotImplementedError("no such device")


def test_an_operator_whose_kernel_cannot_be_timed():
    graph = Graph()
    graph.launch("odd", "b c -> b c", [graph.input("x", (8, 6))], kernel=no_kernel)
    message = (
        "costs: point 0 of operator 'odd' on device 0 has no cost: its kernel fails on made-up arrays of "
        "(8, 6), (8, 6): NotImplementedError: no such device"
    )
    assert_refused(message, lambda: search(graph, TWO, CostModel.measured(TWO), proposals=3))


class Guessed(SimpleCosts):
    """The costs of a user, who has none for tanh."""

    def seconds(self, task_graph):
        return CostModel.seconds(self, task_graph)

    def _points(self, task_graph, rows):
        names = [task_graph.name(row) for row in rows.tolist()]
        return np.array([np.nan if name == "tanh" else 1e-6 for name in names])


def test_an_operator_with_no_cost(graph):
    tiny.tanh(graph.regions["fc"])
    message = "costs: point 0 of operator 'tanh' on device 0 has no cost: nan seconds"
    assert_refused(message, lambda: search(graph, TWO, Guessed(TWO)))
    strategy = single_device(graph, TWO)
    assert_refused(message, lambda: simulate(lower(graph, strategy, TWO), Guessed(TWO)))
