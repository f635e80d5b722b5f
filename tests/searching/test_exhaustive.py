"""Branch and bound: the optimum that enumeration finds, and bounds below everything that they leave out."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskflow import CostModel, Device, Graph, MachineModel, Plan, Strategy, single_device
from taskflow.searching.exhaustive import Bounds, search_exhaustively
from taskflow.searching.judge import Judge
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.space import Space, count_strategies, power_of_two
from tests import tiny
from tests.strategies import graphs

SLOW = Device(kind="emulated", flops_per_second=1e8, memory_bandwidth=1e9)


def trained(build=tiny.tanh, batch=4):
    graph = Graph()
    tiny.sgd(
        tiny.mean_square(build(tiny.linear(graph.input("x", (batch, 6), "float64"), 4))), momentum=0
    )
    return graph


GRAPHS = {
    "tanh": trained,
    "halo": lambda: trained(lambda x: tiny.stencil(x, 1)),
    "concat": lambda: trained(lambda x: tiny.concat([x, x])),
    "replicas": lambda: trained(lambda x: tiny.linear(x, 4, bias=True), 8),
}


def seconds_of_all(space, costs):
    judge = Judge(space.graph, space.machine, costs)
    for chosen in product(*(list(space.configs(name)) for name in space.names)):
        configs = dict(zip(space.names, chosen, strict=True))
        yield judge.judge(Plan(Strategy(configs))).seconds


MACHINES = {
    "cpu": (1e7, {"kind": "cpu"}),
    "streams": (1e10, {}),
    "links": (1e10, {"sends_by_link": True}),
}


@pytest.mark.parametrize(
    ("case", "name"), [*product(GRAPHS, ["cpu", "streams"]), ("halo", "links")]
)
def test_the_optimum_of_enumeration(case, name):
    bandwidth, changes = MACHINES[name]
    machine = MachineModel.uniform(2, replace(SLOW, memory_bytes=1 << 30, **changes), bandwidth)
    graph, costs = GRAPHS[case](), CostModel.analytic(machine)
    space = Space(graph, machine, device_lists=[(0,), (1,), (0, 1)])
    found = search_exhaustively(graph, machine, costs, space)
    assert found.is_proven and found.seconds == min(seconds_of_all(space, costs))
    assert found.seconds == Plan(found.strategy).predict(graph, machine, costs).seconds
    assert 0 < found.judged < found.strategies == count_strategies(space)


def test_names_of_devices_are_exchanged():
    """On three equal devices one operator has 3 places for a whole, of which one is followed."""
    graph, machine = Graph(), MachineModel.uniform(3, SLOW)
    tiny.tanh(tiny.centre(graph.input("x", (1, 4), "float64")))
    costs, lists = CostModel.analytic(machine), [(0,), (1,), (2,)]
    equal = search_exhaustively(graph, machine, costs, Space(graph, machine, device_lists=lists))
    pinned = search_exhaustively(
        graph, machine, costs, Space(graph, machine, device_lists=[*lists, (0, 1)])
    )
    assert equal.seconds == pinned.seconds and equal.visited < pinned.visited


@settings(max_examples=4)
@given(graphs(steps=2), st.integers(2, 4), st.integers(0, 2**32 - 1), st.booleans())
@pytest.mark.slow
def test_bounds_are_below_the_seconds_of_every_completion(model, devices, seed, is_cpu):
    """Of a random strategy, with its first k operators decided, for every k."""
    kind = "cpu" if is_cpu else "emulated"
    machine = MachineModel.uniform(devices, Device(kind, 0, 1 << 30, 1e8, 1e9), 1e7, 1e-6)
    lists = [(0,), (1, 0), tuple(range(devices))]
    space, costs = Space(model.graph, machine, power_of_two, lists), CostModel.analytic(machine)
    generator = np.random.default_rng(seed)
    bounds = Bounds(space, PackedJudge(model.graph, machine, costs))
    for _ in range(4):
        numbers = [int(generator.integers(space.size(name))) for name in space.names]
        chosen = {name: space.config(name, k) for name, k in zip(space.names, numbers, strict=True)}
        seconds = Plan(Strategy(chosen)).predict(model.graph, machine, costs).seconds
        decided, before = np.full(len(numbers), -1, np.int64), 0.0
        for leader, number in enumerate(numbers):
            bound = bounds.of_children(decided, leader)[number]
            assert before * (1 - 1e-9) <= bound <= seconds * (1 + 1e-9)
            decided[leader], before = number, bound


def test_known_strategies_leave_out_more():
    machine = MachineModel.uniform(2, SLOW, 1e8)
    graph, costs = trained(), CostModel.analytic(machine)
    alone = search_exhaustively(graph, machine, costs)
    known = search_exhaustively(
        graph, machine, costs, known=[alone.strategy, single_device(graph, machine)]
    )
    assert known.seconds == alone.seconds and known.visited <= alone.visited


def test_a_stopped_search_proves_nothing():
    machine = MachineModel.uniform(2, SLOW, 1e8)
    graph = trained()
    found = search_exhaustively(
        graph,
        machine,
        CostModel.analytic(machine),
        known=[single_device(graph, machine)],
        most_visits=5,
    )
    assert not found.is_proven and "best of those seen" in str(found)
