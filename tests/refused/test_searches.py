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
from tests import tiny
from tests.refusals import each_refused
from tests.simple_costs import SimpleCosts

TWO = MachineModel.uniform(2)


@pytest.fixture
def graph():
    graph = Graph()
    tiny.linear(graph.input("x", (8, 6)), 4)
    return graph


def find(graph, machine=TWO, by=search, **options):
    by(graph, machine, CostModel.analytic(machine), **options)


def small(memory_bytes):
    return MachineModel.uniform(2, Device(memory_bytes=memory_bytes))


def strategy(graph, *config):
    """All on one device, but for `fc`."""
    start = single_device(graph, TWO)
    start["fc"] = ParallelConfig(*config)
    return start


def search_in_little_memory(graph):
    """x 192, weight 96 and y 128 bytes, in places of 64 bytes; whatever the split, a device holds more than 128."""
    find(graph, small(128))


def search_what_cannot_be_timed():
    def no_kernel(ctx, x, y):
        raise NotImplementedError("no such device")

    graph = Graph()
    graph.launch("odd", "b c -> b c", [graph.input("x", (8, 6))], kernel=no_kernel)
    search(graph, TWO, CostModel.measured(TWO), proposals=3)


class Guessed(SimpleCosts):
    """The costs of a user, who has none for tanh."""

    def seconds(self, task_graph):
        return CostModel.seconds(self, task_graph)

    def _points(self, task_graph, rows):
        names = [task_graph.name(row) for row in rows.tolist()]
        return np.array([np.nan if name == "tanh" else 1e-6 for name in names])


def search_without_a_cost(graph):
    tiny.tanh(graph.regions["fc"])
    search(graph, TWO, Guessed(TWO))


def simulate_without_a_cost(graph):
    tiny.tanh(graph.regions["fc"])
    simulate(lower(graph, single_device(graph, TWO), TWO), Guessed(TWO))


BUDGETS = [
    ("proposals", (0, -3), "search: the budget is at least one proposal, not {}"),
    (
        "seconds",
        (0, -1.5, float("nan")),
        "search: the budget is a positive number of seconds, not {}",
    ),
]
NO_COST = "costs: point 0 of operator 'tanh' on device 0 has no cost: nan seconds"
REFUSED = [
    *(
        (
            f"{by.__name__}, {budget} {value}",
            lambda graph, by=by, options={budget: value}: find(graph, by=by, **options),
            said.format(value),
        )
        for budget, values, said in BUDGETS
        for value in values
        for by in (search, search_at_home)
    ),
    (
        "seconds beside proposals",
        lambda graph: find(graph, seconds=0, proposals=10),
        "search: the budget is a positive number of seconds, not 0",
    ),
    (
        "more devices than the machine has",
        lambda graph: find(graph, starts={"mine": strategy(graph, {"b": 3})}),
        "search: the start 'mine': operator 'fc': device 2 is not among the machine's 2 devices",
    ),
    (
        "nothing fits",
        search_in_little_memory,
        "search: no start fits into memory; the one that takes least is 'data parallel': device 0: the task graph "
        "needs 320 B (128 B for parameters and state, 192 B at the peak of a step), the device has 128 B",
    ),
    (
        "a scale of links that a machine lacks",
        lambda: scale_machine(TWO, {"network": 2.0}),
        "scale 'network': multiplies the bandwidth of links between hosts; "
        "machine 'uniform' has 2 links and 1 hosts",
    ),
    (
        "a scale of what was measured",
        lambda graph: next(what_if(graph, TWO, CostModel.measured(TWO), scales=[{"flops": 2.0}])),
        "what if: scale 'flops': costs are measured, on devices as they are; analytic costs scale",
    ),
    (
        "a known strategy outside of the space",
        lambda graph: find(
            graph, by=search_exhaustively, known=[strategy(graph, {"b": 2}, (1, 0))]
        ),
        "exhaustive search: 'fc' is b:2 on 1,0, which is not in the space",
    ),
    (
        "an optimum that nothing fits",
        lambda graph: find(graph, small(64), search_exhaustively),
        "exhaustive search: no strategy fits into memory; "
        "device 1: the task graph needs 512 B (128 B for parameters and state, 384 B at the peak of a step), "
        "the device has 64 B",
    ),
    (
        "a proof from costs that prove nothing",
        lambda graph: search_exhaustively(graph, TWO, CostModel.measured(TWO)),
        "exhaustive search: its proof needs costs of which a part r of a task takes at least r",
    ),
    (
        "an operator whose kernel cannot be timed",
        search_what_cannot_be_timed,
        "costs: point 0 of operator 'odd' on device 0 has no cost: its kernel fails on made-up arrays of "
        "(4, 6), (4, 6): NotImplementedError: no such device",
    ),
    ("a search without a cost", search_without_a_cost, NO_COST),
    ("a simulation without a cost", simulate_without_a_cost, NO_COST),
]
test_refused = each_refused(REFUSED)
