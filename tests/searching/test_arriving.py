"""What collectives take at least: never more than their prices, and most of these where links are slow."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, Device, Graph, MachineModel, ParallelConfig
from taskflow.graph.family import Family
from taskflow.machine.library import LibraryTimes
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.pool import Pool
from taskflow.strategy.rules import leaders, random_config
from tests import tiny
from tests.lowered import network
from tests.strategies import examples, graphs


@pytest.fixture
def priced(monkeypatch):
    """Of every collective that was priced, its least seconds and its seconds."""
    found, price = list[tuple[float, float]](), Pool._price_collectives

    def spy(pool):
        p = pool.packed
        rows = p.pending["row"][: p.filled["pending"][0]].copy()
        least = p.seconds[rows].copy()
        price(pool)
        found.extend(zip(least.tolist(), pool.packed.seconds[rows].tolist(), strict=True))

    monkeypatch.setattr(Pool, "_price_collectives", spy)
    return found


@st.composite
def machines(draw):
    """Hosts of devices, which send by link or not, behind links of unequal rates; groups of few devices and of many."""
    preset = draw(st.sampled_from(["p100", "k80", "v100", "h100", None]))
    machine = (
        MachineModel.preset(preset, nodes=draw(st.integers(1, 2)))
        if preset
        else MachineModel.uniform(draw(st.integers(2, 9)))
    )
    rates = st.sampled_from([0.25, 1.0, 3.0])
    links = [replace(link, bandwidth=link.bandwidth * draw(rates)) for link in machine.links]
    exchanges = {"all-to-all": draw(st.sampled_from(["copies", "pairwise", "two-level"]))}
    return replace(machine, links=tuple(links), collectives=exchanges)


def propose_some(graph, machine, seed, proposals):
    generator, costs = np.random.default_rng(seed), CostModel.analytic(machine)
    judge, operators = PackedJudge(graph, machine, costs), leaders(graph)
    judge.start(taskflow.random_strategy(graph, machine, seed))
    for _ in range(proposals):
        count = min(2, len(operators))
        chosen = generator.choice(len(operators), size=count, replace=False).tolist()
        families = {operators[k].name: Family.of(operators[k]) for k in chosen}
        judge.propose_all({n: random_config(f, machine, generator) for n, f in families.items()})


def test_never_more_than_the_price(priced):
    @examples(25)
    @given(model=graphs(), machine=machines(), seed=st.integers(0, 2**32 - 1))
    def check(model, machine, seed):
        priced.clear()
        propose_some(model.graph, machine, seed, 20)
        assert all(least <= price for least, price in priced)

    check()


@pytest.mark.parametrize(("preset", "hosts"), [("p100", 2), ("k80", 4), ("v100", 2), ("h100", 2)])
def test_never_more_than_the_price_in_a_network_that_moves_much(preset, hosts, priced):
    propose_some(network(layers=3), MachineModel.preset(preset, nodes=hosts), hosts, 40)
    assert len(priced) > 20 and all(0 < least <= price for least, price in priced)


SLOW = {"bandwidth": 1e6, "latency_seconds": 0.0}


def two_layers(batch=64, width=512):
    graph = Graph()
    tiny.linear(tiny.linear(graph.input("x", (batch, width), "float32"), width), width)
    return graph


def judged(machine, first, second):
    graph = two_layers()
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.single_device(graph, machine))
    names = [op.name for op in leaders(graph)]
    return judge, dict(zip(names, (first, second), strict=True))


EIGHT = MachineModel.uniform(8, Device(kind="emulated"), **SLOW)
HOSTS = MachineModel.preset("p100", nodes=4)
SLOW_HOSTS = replace(
    HOSTS,
    links=tuple(
        replace(x, bandwidth=1e6) if "network" in map(str, x.ends) else x for x in HOSTS.links
    ),
)


@pytest.mark.parametrize("machine", [EIGHT, SLOW_HOSTS], ids=["devices", "hosts"])
@pytest.mark.parametrize(
    ("first", "second"), [({"b": 8}, {"o": 8}), ({"i": 8}, {"o": 8}), ({"i": 8}, {"b": 8})]
)
def test_where_links_are_slow_it_is_most_of_the_price(machine, first, second, priced):
    """Tiles that all read, partial sums that all read, and of which each gets a tile."""
    devices = range(0, len(machine.devices), len(machine.devices) // 8)
    judge, changes = judged(machine, *(ParallelConfig(x, devices) for x in (first, second)))
    judge.propose_all(changes)
    assert any(least > price / 2 for least, price in priced)
    assert all(least <= price for least, price in priced)


def test_what_is_too_slow_is_not_priced(priced):
    judge, changes = judged(EIGHT, ParallelConfig({"i": 8}), ParallelConfig({"o": 8}))
    priced.clear()
    seconds, fragments = judge.start(judge.strategy), judge.pool.fragments
    assert judge.propose_all(changes, seconds) == math.inf and not priced
    assert judge.pool.fragments == fragments
    assert math.isfinite(judge.propose_all(changes)) and priced
    assert judge.pool.fragments > fragments


@pytest.mark.parametrize(("machine", "hosts"), [(EIGHT, 1), (SLOW_HOSTS, 4)])
def test_of_a_library_whose_calls_were_measured_nothing_is_certain(machine, hosts, priced):
    times = LibraryTimes("all-reduce", hosts, 8, (1 << 10, 1 << 30), (1e-9, 2e-9))
    devices = range(0, len(machine.devices), len(machine.devices) // 8)
    configs = (ParallelConfig(x, devices) for x in ({"i": 8}, {"o": 8}))
    judge, changes = judged(replace(machine, library=(times,)), *configs)
    judge.propose_all(changes)
    assert priced and all(least <= price for least, price in priced)
