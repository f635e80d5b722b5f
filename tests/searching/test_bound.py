"""The lower bound: below the optimum wherever all strategies can be judged, and as large as it should be."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.models import dlrm
from taskflow import (
    CostModel,
    Device,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    data_parallel,
    lower,
    placed_tables,
    simulate,
)
from taskflow.searching.bound import lower_bound
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.space import Space, power_of_two
from tests import tiny
from tests.strategies import examples, graphs, random_strategy

FREE_LINKS = {"bandwidth": 1e18, "latency_seconds": 0.0}


def machine_of(devices, **rates):
    device = Device(
        kind="emulated", flops_per_second=1e9, memory_bandwidth=1e12, overhead_seconds=0.0
    )
    return MachineModel.uniform(devices, replace(device, **rates), **FREE_LINKS)


def chain(layers=2, width=8):
    graph = Graph()
    x = graph.input("x", (8, width), "float32")
    for _ in range(layers):
        x = tiny.linear(x, width)
    return graph


def all_strategies(space):
    for chosen in product(*(list(space.configs(name)) for name in space.names)):
        yield Strategy.of_graph(space.graph, dict(zip(space.names, chosen, strict=True)))


def optimum(space, costs):
    judge = PackedJudge(space.graph, space.machine, costs)
    return min(judge.propose_all(strategy) for strategy in all_strategies(space))


SMALL = {
    "chain": lambda: chain(),
    "trained": lambda: trained(lambda x: tiny.linear(x, 4)),
    "concat": lambda: beside(),
    "stride": lambda: strided(),
    "wide": lambda: trained(lambda x: tiny.row_max(tiny.tanh(x))),
}


def trained(build):
    graph = Graph()
    tiny.sgd(
        tiny.mean_square(build(tiny.linear(graph.input("x", (4, 6), "float64"), 4))), momentum=0
    )
    return graph


def beside():
    graph = Graph()
    x = graph.input("x", (4, 6), "float64")
    tiny.concat([x, tiny.part(x, 1, 0, 3)])
    return graph


def strided():
    graph = Graph()
    tiny.stencil(tiny.tanh(graph.input("x", (4, 9), "float64")), 1, size=1, stride=4, padding=0)
    return graph


@pytest.mark.parametrize("case", SMALL)
@pytest.mark.parametrize("slow", [1.0, 0.25])
@pytest.mark.parametrize("kind", ["cpu", "emulated"])
def test_below_the_optimum_of_all_strategies(case, slow, kind):
    """Two devices, of which the second may be slower; compute, memory and overhead in turn matter most."""
    for rates in ({"flops_per_second": 1e6}, {"memory_bandwidth": 1e6}, {"overhead_seconds": 1e-3}):
        one = replace(Device(kind=kind), **rates)
        other = replace(
            one,
            flops_per_second=one.flops_per_second * slow,
            memory_bandwidth=one.memory_bandwidth * slow,
        )
        machine = replace(MachineModel.uniform(2, **FREE_LINKS), devices=(one, other))
        space = Space(SMALL[case](), machine, device_lists=[(0,), (1,), (0, 1)])
        costs = CostModel.analytic(machine)
        assert 0 < lower_bound(space, costs) <= optimum(space, costs) * (1 + 1e-9)


@examples(60)
@given(graphs(steps=3), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_below_random_strategies(model, devices, seed):
    machine, generator = machine_of(devices, overhead_seconds=1e-7), np.random.default_rng(seed)
    space, costs = Space(model.graph, machine), CostModel.analytic(machine)
    judge = PackedJudge(model.graph, machine, costs)
    bound = lower_bound(space, costs)
    seconds = [judge.propose_all(space.draw_strategy(generator)) for _ in range(3)]
    assert (
        0
        < bound
        <= min(*seconds, judge.propose_all(data_parallel(model.graph, machine))) * (1 + 1e-9)
    )


@pytest.mark.parametrize("case", ["chain", "concat", "stride"])
@pytest.mark.parametrize("kind", ["cpu", "by link", "cuda"])
def test_below_the_optimum_where_links_are_slow(case, kind):
    """Also where parts share a device, or receive by several links."""
    device = Device("cpu" if kind == "cpu" else "cuda", flops_per_second=1e7, overhead_seconds=1e-6)
    device = replace(device, memory_bandwidth=1e8, sends_by_link=kind == "by link")
    for bandwidth in (1e4, 1e7):
        machine = MachineModel.uniform(2, device, bandwidth, latency_seconds=1e-5)
        space = Space(SMALL[case](), machine, device_lists=[(0,), (1,), (0, 1), (0, 0)])
        costs = CostModel.analytic(machine)
        assert 0 < lower_bound(space, costs) <= optimum(space, costs) * (1 + 1e-9)


@examples(60)
@given(
    graphs(steps=4),
    st.integers(1, 8),
    st.sampled_from([1e3, 1e5, 1e7, 1e9]),
    st.integers(0, 2**32 - 1),
)
def test_below_random_strategies_on_slow_links(model, devices, bandwidth, seed):
    """Judged, and simulated with fair links; of few devices with collectives as rows of their own."""
    device = Device(kind="cuda", flops_per_second=1e8, memory_bandwidth=1e8, overhead_seconds=1e-6)
    generator = np.random.default_rng(seed)
    machine = MachineModel.uniform(
        devices, device, bandwidth, latency_seconds=float(generator.choice([0.0, 1e-4]))
    )
    if generator.random() < 0.5:
        machine = machine.with_collectives({"all-reduce": "ring", "all-gather": "ring"})
    space, costs = Space(model.graph, machine), CostModel.analytic(machine)
    if generator.random() < 0.5:
        space.include(random_strategy(model.graph, machine, seed))
    judge, bound = PackedJudge(model.graph, machine, costs), lower_bound(space, costs)
    every = [
        data_parallel(model.graph, machine),
        *(space.draw_strategy(generator) for _ in range(6)),
    ]
    said = [simulate(lower(model.graph, s, machine), costs).seconds for s in every]
    assert 0 < bound <= min(*map(judge.propose_all, every), *said) * (1 + 1e-9)


def test_below_tables_on_devices_of_their_own():
    """What a chain of operators moves has once put the bound above them."""
    graph, machine = dlrm.build(batch=1024), MachineModel.preset("p100", nodes=1)
    costs = CostModel.analytic(machine)
    seconds = PackedJudge(graph, machine, costs).propose_all(placed_tables(graph, machine))
    assert 0 < lower_bound(Space(graph, machine), costs) < seconds


def test_what_splits_perfectly_reaches_the_bound():
    graph, machine = chain(), machine_of(4)
    space, costs = Space(graph, machine, power_of_two), CostModel.analytic(machine)
    seconds = PackedJudge(graph, machine, costs).propose_all(data_parallel(graph, machine))
    assert lower_bound(space, costs) == pytest.approx(seconds, rel=1e-3)


def test_what_cannot_be_split_takes_as_long_as_on_one_device():
    graph = Graph()
    tiny.centre(tiny.tanh(graph.input("x", (1, 6), "float64")))
    machine = machine_of(4, memory_bandwidth=1e6)
    space, costs = Space(graph, machine), CostModel.analytic(machine)
    assert lower_bound(space, costs) == pytest.approx(2 * 6 * 8 / 1e6)


def test_a_start_with_parts_of_its_own_is_covered():
    """Fractions, and a follower with a configuration of its own, are outside of what degrees tell."""
    graph = trained(lambda x: tiny.stencil(x, 1))
    machine = machine_of(2)
    space, costs = Space(graph, machine), CostModel.analytic(machine)
    start = data_parallel(graph, machine)
    start["fc"] = ParallelConfig({"b": (0.75, 0.25)}, (0, 1))
    start["fc.dweight"] = ParallelConfig({"o": 2}, (0, 1))
    before = lower_bound(space, costs)
    start = space.include(start)
    assert lower_bound(space, costs) <= min(
        before, PackedJudge(graph, machine, costs).propose_all(start)
    )
