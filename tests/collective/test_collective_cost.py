"""Costs of collectives, worked out by hand."""

import pytest

from taskflow import CostModel, Device, Link, MachineModel
from taskflow.collective import price as collective_cost
from taskflow.collective.price import Algorithms, CollectiveCosts
from tests.lowering.test_collective import gathered

BANDWIDTH, LATENCY = 1e9, 1e-6
FREE = Device(memory_bandwidth=1e24, overhead_seconds=0.0)  # sums cost nothing


def uniform(count, device=FREE):
    return MachineModel.uniform(count, device, BANDWIDTH, LATENCY)


def seconds(machine, name, size, group=None):
    """Of a collective of `size` bytes per device."""
    group = group or tuple(range(len(machine.devices)))
    moved = (2 if name == "all-reduce" else 1) * (len(group) - 1) * size
    return CollectiveCosts(machine).of(name, group, moved)


def test_a_large_all_gather_of_seven_goes_round_the_ring():
    size = 7_000_000
    assert seconds(uniform(7), "all-gather", size) == pytest.approx(6 * (LATENCY + size / 7 / BANDWIDTH))
    assert seconds(uniform(7), "all-reduce", size) == pytest.approx(12 * (LATENCY + size / 7 / BANDWIDTH))


def test_halving_has_the_bytes_of_the_ring_and_fewer_messages_where_it_divides():
    size = 8_000_000
    assert seconds(uniform(8), "all-reduce", size) == pytest.approx(2 * (3 * LATENCY + size * 7 / 8 / BANDWIDTH))


def test_a_tree_has_a_message_a_level():
    size = 1000
    for name in ("broadcast", "reduce"):
        assert seconds(uniform(6), name, size) == pytest.approx(3 * (LATENCY + size / BANDWIDTH))


def test_a_small_all_reduce_of_six_takes_three_messages_each_way():
    """Two devices join the other four by a message of all bytes; these halve and double."""
    moved = 8 + 8 / 2 + 8 / 4
    assert seconds(uniform(6), "all-reduce", 8) == pytest.approx(2 * (3 * LATENCY + moved / BANDWIDTH))


def test_sums_read_and_write_memory():
    device = Device(memory_bandwidth=1e8, overhead_seconds=1e-3)
    size = 8_000_000
    moving = seconds(uniform(8), "all-reduce", size)
    assert seconds(uniform(8, device), "all-reduce", size) == pytest.approx(moving + 3 * 1e-3 + 3 * size * 7 / 8 / 1e8)


def two_hosts(each=4):
    """Devices of a host see each other through a switch; one slow link each way between the switches."""
    links = [Link(("a", "b"), BANDWIDTH / 10, LATENCY), Link(("b", "a"), BANDWIDTH / 10, LATENCY)]
    for d in range(2 * each):
        switch = "a" if d < each else "b"
        links += [Link((d, switch), BANDWIDTH), Link((switch, d), BANDWIDTH)]
    return MachineModel(tuple(Device(host=d // each, **_RATES) for d in range(2 * each)), tuple(links))


_RATES = {"memory_bandwidth": 1e24, "overhead_seconds": 0.0}


def test_between_two_hosts_each_piece_crosses_once():
    """Ring: two of eight hops cross, one each way. Halving: four messages share the slow link in its first step."""
    size = 8_000_000
    algorithms = Algorithms(two_hosts(), tuple(range(8)))
    ring = 7 * (LATENCY + size / 8 / (BANDWIDTH / 10))
    halve = LATENCY + 4 * size / 2 / (BANDWIDTH / 10) + (size / 4 + size / 8) / BANDWIDTH
    two_level = 3 * size / 4 / BANDWIDTH + LATENCY + 4 * size / 8 / (BANDWIDTH / 10)
    assert algorithms._ring(size, False) == pytest.approx(ring)
    assert algorithms._halve(size, False) == pytest.approx(halve)
    assert algorithms._two_level(size, False) == pytest.approx(two_level)
    assert algorithms.seconds("all-gather", 7 * size) == pytest.approx(min(ring, halve, two_level))


def test_two_levels_need_equal_parts_of_the_group_on_every_host():
    assert Algorithms(two_hosts(), (0, 1, 2, 4, 5))._two_level(1e6, False) == float("inf")


def test_cost_models_give_the_seconds_of_collective_rows():
    task_graph = gathered(6, 6)
    costs = CostModel.analytic(task_graph.machine)
    (row,) = [t.row for t in task_graph if t.collective]
    expected = CollectiveCosts(task_graph.machine).of("all-gather", tuple(range(6)), task_graph[row].bytes)
    assert costs.seconds(task_graph)[row] == expected > 0
    assert costs.source(task_graph, row) == "link"


def test_what_is_forgotten_costs_the_same_again(monkeypatch):
    monkeypatch.setattr(collective_cost, "MOST", 3)
    machine = MachineModel.preset("p100", nodes=3)
    costs = CollectiveCosts(machine)
    for _ in range(2):
        for count in range(2, 12):
            found = costs.of("all-reduce", tuple(range(count)), 1 << 20)
            assert found == Algorithms(machine, tuple(range(count))).seconds("all-reduce", 1 << 20)
            assert len(costs._algorithms) <= 3
