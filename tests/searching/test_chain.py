"""Dynamic programming: the minimum of enumeration on chains and series-parallel graphs, honest about others."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import CostModel, Device, Graph, Kind, MachineModel, Strategy, lower, simulate
from taskflow.searching.chain import AddedCosts, dynamic_programming, minimise
from taskflow.searching.priced import Prices
from taskflow.searching.space import Space, power_of_two
from taskflow.searching.tables import subgraph
from taskflow.simulation.simulate import busiest
from tests import tiny

SLOW = Device(kind="emulated", flops_per_second=1e8, memory_bandwidth=1e9)

SHAPES = {
    "alone": [],
    "chain": [(0, 1), (1, 2), (2, 3)],
    "diamond": [(0, 1), (0, 2), (1, 3), (2, 3)],
    "branch": [(0, 1), (0, 2), (0, 3), (2, 4)],
    "skip": [(0, 1), (1, 2), (0, 2), (2, 3)],
    "two parts": [(0, 1), (2, 3)],
}
COMPLETE = [(a, b) for a in range(5) for b in range(a + 1, 5)]


def problem(pairs, seed, count=5):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 4, count)
    nodes = [generator.random(n) for n in sizes]
    return nodes, {(a, b): 2 * generator.random((sizes[a], sizes[b])) for a, b in pairs}


def total(nodes, edges, numbers):
    return sum(c[k] for c, k in zip(nodes, numbers)) + sum(
        t[numbers[a], numbers[b]] for (a, b), t in edges.items()
    )


def least(nodes, edges):
    return min(total(nodes, edges, numbers) for numbers in product(*(range(len(c)) for c in nodes)))


@pytest.mark.parametrize("shape", SHAPES)
@given(st.integers(0, 2**32 - 1))
def test_series_parallel_graphs_are_solved(shape, seed):
    nodes, edges = problem(SHAPES[shape], seed)
    numbers, added, is_exact = minimise(nodes, edges)
    assert is_exact and added == pytest.approx(least(nodes, edges)) == pytest.approx(
        total(nodes, edges, numbers)
    )


@given(st.integers(0, 2**32 - 1))
def test_others_are_not_said_to_be(seed):
    nodes, edges = problem(COMPLETE, seed)
    numbers, added, is_exact = minimise(nodes, edges)
    assert not is_exact and added >= least(nodes, edges) - 1e-12
    assert added == pytest.approx(total(nodes, edges, numbers))


def layers(*widths, batch=16):
    graph = Graph()
    x = graph.input("x", (batch, 16), "float64")
    for width in widths:
        x = tiny.linear(x, width)
    tiny.sgd(tiny.mean_square(x), momentum=0)
    return graph


def added_costs(graph, bandwidth=1e9, most=99):
    machine = MachineModel.uniform(2, SLOW, bandwidth)
    return AddedCosts(
        Space(graph, machine, power_of_two, [(0,), (0, 1)]), CostModel.analytic(machine), most
    )


def test_equal_operators_are_lowered_once():
    few, many = added_costs(layers(16, 16, 16)), added_costs(layers(16, 16, 16, 16, 16, 16))
    assert len(few.nodes) == 4 and len(many.nodes) == 7
    assert len(few._known) == len(many._known)
    assert all(np.array_equal(a, b) for a, b in zip(many.nodes[1:-1], many.nodes[2:-1]))


def test_prices_are_those_of_lowered_rows():
    graph = layers(16, 16)
    machine = MachineModel.uniform(2, SLOW, 1e6)
    space, costs = Space(graph, machine, power_of_two, [(0,), (0, 1)]), CostModel.analytic(machine)
    names, values = space.names[:2], {r.name for r in space.operators[0].outputs}
    together = [op for op in graph.operators if (op.follows or op.name) in names]
    prices, moved = Prices(graph, machine, costs, together, values), 0
    for configs in product(*(space.configs(name) for name in names)):
        chosen = dict(zip(names, configs))
        task_graph = lower(subgraph(graph, together), Strategy(chosen), machine)
        seconds = costs.seconds(task_graph)
        is_moved = np.isin(
            task_graph.region, [k for k, r in enumerate(task_graph.regions) if r.name in values]
        )
        expected = busiest(task_graph, np.where(is_moved, seconds, 0.0))
        price = prices.price(chosen)
        points = np.where(task_graph.kind == Kind.POINT, seconds, 0.0)
        assert price.moves == pytest.approx(expected) and price.points >= busiest(
            task_graph, points
        ) * (1 - 1e-9)
        moved += expected > 0
    assert moved


def test_what_does_not_fit_is_split_although_links_are_slow():
    graph, device = layers(256, 256, 256), replace(SLOW, flops_per_second=1e12)
    roomy = MachineModel.uniform(4, device, 1e5)
    alone = dynamic_programming(graph, roomy, CostModel.analytic(roomy))
    needed = max(
        simulate(lower(graph, alone.strategy, roomy), CostModel.analytic(roomy)).peak_bytes
    )
    tight = MachineModel.uniform(4, replace(device, memory_bytes=int(0.7 * needed)), 1e5)
    plan = dynamic_programming(graph, tight, CostModel.analytic(tight))
    assert alone.seconds < plan.seconds < np.inf
    assert (
        max(simulate(lower(graph, plan.strategy, tight), CostModel.analytic(tight)).peak_bytes)
        <= 0.7 * needed
    )


def test_equal_splits_need_no_movement_and_others_do():
    added = added_costs(layers(16, 16))
    names = [str(c) for c in added.configs[0]]
    edge = added.edges[0, 1]
    whole, batch = names.index("whole on 0"), names.index("b:2 on 0,1")
    there = [str(c) for c in added.configs[1]]
    assert edge[whole, there.index("whole on 0")] == 0.0 == edge[batch, there.index("b:2 on 0,1")]
    assert edge[whole, there.index("b:2 on 0,1")] > 0.0 < edge[batch, there.index("whole on 0")]


def test_the_synchronisation_of_parameters_is_a_nodes_own():
    """With slow links a split of the batch, which sums gradients of the weights over devices, costs more."""
    fast, slow = (added_costs(layers(16), bandwidth) for bandwidth in (1e12, 1e5))
    at = [str(c) for c in fast.configs[0]].index("b:2 on 0,1")
    assert (
        slow.nodes[0][[str(c) for c in slow.configs[0]].index("b:2 on 0,1")]
        > 10 * fast.nodes[0][at]
    )


@pytest.mark.parametrize("bandwidth", [1e4, 1e12])
def test_a_plan_is_a_strategy_that_suits_the_links(bandwidth):
    graph, device = (
        layers(64, 64, batch=64),
        Device(kind="emulated", flops_per_second=1e7, memory_bandwidth=1e12),
    )
    machine = MachineModel.uniform(4, device, bandwidth, latency_seconds=1e-7)
    plan = dynamic_programming(graph, machine, CostModel.analytic(machine))
    assert plan.is_exact and len(lower(graph, plan.strategy, machine))
    points = {config.points for config in plan.strategy.values()}
    assert points == ({1} if bandwidth == 1e4 else {4})


def test_only_the_cheapest_configurations_are_considered():
    added = added_costs(layers(16), most=2)
    assert [len(c) for c in added.configs] == [2, 2] and added.edges[0, 1].shape == (2, 2)
