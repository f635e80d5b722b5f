"""Costs of collectives, worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import CostModel, Device, Link, MachineModel
from taskflow.collective import price as collective_cost
from taskflow.collective.algorithms import BY_STEPS, serving
from taskflow.collective.price import CollectiveCosts
from taskflow.tasks.moves import even_outline
from tests.lowering.test_collective import gathered
from tests.strategies import examples

BANDWIDTH, LATENCY = 1e9, 1e-6
FREE = Device("cuda", memory_bandwidth=1e24, overhead_seconds=0.0)  # sums cost nothing


def uniform(count, device=FREE):
    return MachineModel.uniform(count, device, BANDWIDTH, LATENCY)


def seconds(machine, name, size, group=None):
    """Of a collective of `size` bytes per device."""
    group = group or tuple(range(len(machine.devices)))
    return CollectiveCosts(machine).prices(group).choose(name, size).seconds


def test_of_seven_each_gets_six_pieces_in_as_many_messages_or_fewer():
    """By doubling these are 1, 2 and 3; those that lie round the end are two messages."""
    size, prices = 7_000_000, CollectiveCosts(uniform(7)).prices(tuple(range(7)))
    for name, ways in (("all-gather", 1), ("all-reduce", 2)):
        moved = ways * 6 * size / 7 / BANDWIDTH
        assert prices.seconds(name, "ring", size) == pytest.approx(moved + ways * 6 * LATENCY)
        assert prices.seconds(name, "two-level doubling", size) == pytest.approx(
            moved + ways * 5 * LATENCY
        )
        assert prices.choose(name, size).seconds <= moved + ways * 5.01 * LATENCY


def test_halving_has_the_bytes_of_the_ring_and_fewer_messages_where_it_divides():
    """Twice three messages: there is room for half of all, as the first one is."""
    size = 8_000_000
    assert seconds(uniform(8), "all-reduce", size) == pytest.approx(
        6 * LATENCY + 2 * size * 7 / 8 / BANDWIDTH
    )


def test_a_tree_has_a_message_a_level():
    size = 1000
    for name in ("broadcast", "reduce"):
        assert seconds(uniform(6), name, size) == pytest.approx(3 * (LATENCY + size / BANDWIDTH))


def test_a_small_all_reduce_of_six_takes_three_messages_each_way():
    """Two devices join the other four by a message of all bytes; these halve and double."""
    moved = 8 + 8 / 2 + 8 / 4
    assert seconds(uniform(6), "all-reduce", 8) == pytest.approx(
        2 * (3 * LATENCY + moved / BANDWIDTH)
    )


def test_sums_read_and_write_memory():
    device = Device("cuda", memory_bandwidth=1e8, overhead_seconds=1e-3)
    size = 8_000_000
    moving = seconds(uniform(8), "all-reduce", size)
    assert seconds(uniform(8, device), "all-reduce", size) == pytest.approx(
        moving + 3 * 1e-3 + 3 * size * 7 / 8 / 1e8
    )


def two_hosts(each=4):
    """Devices of a host see each other through a switch; one slow link each way between the switches."""
    links = [Link(("a", "b"), BANDWIDTH / 10, LATENCY), Link(("b", "a"), BANDWIDTH / 10, LATENCY)]
    for d in range(2 * each):
        switch = "a" if d < each else "b"
        links += [Link((d, switch), BANDWIDTH), Link((switch, d), BANDWIDTH)]
    return MachineModel(
        tuple(Device(host=d // each, **_RATES) for d in range(2 * each)), tuple(links)
    )


_RATES = {"kind": "cuda", "memory_bandwidth": 1e24, "overhead_seconds": 0.0}


def test_between_two_hosts_each_piece_crosses_once():
    """Ring: two of eight hops cross, one each way. Two levels: four share the slow link, but not their latency."""
    size, machine = 8_000_000, two_hosts()
    prices = CollectiveCosts(machine).prices(tuple(range(8)))
    slow, fast = size / 8 / (BANDWIDTH / 10), size / 8 / BANDWIDTH
    assert prices.seconds("all-gather", "ring", size) >= 7 * slow
    assert prices.seconds("all-gather", "two-level", size) == pytest.approx(
        LATENCY + 4 * slow + 6 * fast
    )
    assert prices.seconds("all-gather", "halving-doubling", size) >= 4 * 4 * slow
    assert prices.choose("all-gather", size)[1] == "two-level"


MACHINES = [two_hosts(), uniform(7), MachineModel.preset("v100", nodes=2).with_library("own")]


@examples(400)
@given(st.sampled_from(MACHINES), st.sampled_from(BY_STEPS), st.integers(1, 1 << 26))
def test_the_fastest_of_all_is_chosen_and_bounds_are_below(machine, name, size):
    prices = CollectiveCosts.of(machine).prices(tuple(range(len(machine.devices))))
    every = {each: prices.seconds(name, each, size) for each in serving(name)}
    assert prices.choose(name, size)[0] == min(every.values())
    outline = even_outline(name, prices.group.hosts, size)
    assert all(prices.bound_of(outline, each) <= seconds for each, seconds in every.items())
    assert all(
        prices.choose(name, size, each) == (seconds, each) for each, seconds in every.items()
    )


def test_cost_models_give_the_seconds_of_collective_rows():
    task_graph = gathered(6, 6)
    costs = CostModel.analytic(task_graph.machine)
    (row,) = [t.row for t in task_graph if t.collective]
    size = task_graph[row].bytes // 5
    expected = (
        CollectiveCosts(task_graph.machine)
        .prices(tuple(range(6)))
        .choose("all-gather", size)
        .seconds
    )
    assert costs.seconds(task_graph)[row] == expected > 0
    assert costs.source(task_graph, row) == "link"


def test_what_is_forgotten_costs_the_same_again(monkeypatch):
    monkeypatch.setattr(collective_cost, "MOST", 3)
    machine = MachineModel.preset("p100", nodes=3)
    costs = CollectiveCosts(machine)
    for _ in range(2):
        for count in range(2, 12):
            found = costs.prices(tuple(range(count))).choose("all-reduce", 1 << 20)
            assert found == CollectiveCosts(machine).prices(tuple(range(count))).choose(
                "all-reduce", 1 << 20
            )
            assert len(costs._models) <= 3


@pytest.mark.parametrize(
    "name", ["all-reduce", "reduce-scatter", "all-gather", "reduce", "broadcast"]
)
@pytest.mark.parametrize("size", [1 << 12, 1 << 20, 1 << 26])
def test_among_many_few_algorithms_are_looked_at_and_one_is_nearly_the_fastest(name, size):
    machine = MachineModel.preset("h100", nodes=17).with_library("own")  # of 8 devices
    prices = CollectiveCosts(machine).prices(tuple(range(136)))
    outline = even_outline(name, prices.group.hosts, size)
    found = prices.algorithm(outline)
    every = {
        each: prices.seconds_of(outline, each) for each in serving(name) if each != "multitree"
    }
    assert found in collective_cost.WITH_MANY
    assert every[found] <= 1.3 * min(every.values())
    assert prices.choose(name, size) == (every[found], found)
    assert prices.algorithm(outline, "ring" if "ring" in every else "straight") in (
        "ring",
        "straight",
    )


def test_the_algorithm_of_many_is_chosen_without_a_price():
    prices = CollectiveCosts(MachineModel.preset("h100", nodes=17)).prices(tuple(range(136)))
    prices.algorithm(even_outline("all-reduce", prices.group.hosts, 1 << 20))
    assert not prices._priced
