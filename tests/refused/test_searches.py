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
    search,
    search_at_home,
    simulate,
    single_device,
)
from taskflow.searching.exhaustive import search_exhaustively
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
    message = "search: the start 'mine': operator 'fc': device 2 is not among the machine's 2 devices"
    assert_refused(message, searching(graph, starts={"mine": start}))


def test_nothing_fits(graph):
    """x 192, weight 96 and y 128 bytes, in places of 64 bytes; whatever the split, a device holds more than 128."""
    machine = MachineModel.uniform(2, Device(memory_bytes=128))
    message = (
        "search: no start fits into memory (single device: device 0 needs 448 B and has 128 B; data parallel: "
        "device 0 needs 320 B and has 128 B; model parallel: device 0 needs 320 B and has 128 B; one weird trick: "
        "device 0 needs 320 B and has 128 B; operator placement: device 1 needs 448 B and has 128 B)"
    )
    assert_refused(message, searching(graph, machine))


def test_a_known_strategy_outside_of_the_space(graph):
    start = single_device(graph, TWO)
    start["fc"] = ParallelConfig({"b": 2}, (1, 0))
    message = "exhaustive search: 'fc' is b:2 on 1,0, which is not in the space"
    assert_refused(message, lambda: search_exhaustively(graph, TWO, CostModel.analytic(TWO), known=[start]))


def test_an_optimum_that_nothing_fits(graph):
    machine = MachineModel.uniform(2, Device(memory_bytes=64))
    with pytest.raises(ValueError, match=r"^exhaustive search: no strategy fits into memory; device \d needs \d+ B"):
        search_exhaustively(graph, machine, CostModel.analytic(machine))


def test_a_proof_from_costs_that_prove_nothing(graph):
    message = "exhaustive search: its proof needs costs of which a part r of a task takes at least r"
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
