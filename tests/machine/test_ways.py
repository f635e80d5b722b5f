"""Ways are those of a table of all pairs, without one: on machines that fall into parts, and among some devices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, Device, Link, MachineModel, lower, simulate
from taskflow.machine.routes import find_routes, link_lengths
from taskflow.machine.topology import of_name
from taskflow.machine.ways import are_apart, near_pairs
from taskflow.strategy.orbits import orbits_of
from tests.lowered import network
from tests.strategies import examples

TABLES = "routes", "latency_seconds", "bandwidth", "doors"
MACHINES = {
    "one": MachineModel.uniform(1),
    "uniform": MachineModel.uniform(5),
    "h100": MachineModel.preset("h100", 3),
    "v100": MachineModel.preset("v100", 2),
    "joined": MachineModel.join([MachineModel.preset(n, 2) for n in ("k80", "p100", "h100")]),
    "fat tree": of_name("fat_tree:3x3"),
    "torus": of_name("torus:2x4"),
}


@st.composite
def machines(draw):
    """Hosts of one to three devices, unequal, behind a network; no two ways are equally long."""
    links, devices = [], []
    for host in range(draw(st.integers(1, 4))):
        own = range(len(devices), len(devices) + draw(st.integers(1, 3)))
        devices += [Device(host=host, sends_by_link=draw(st.booleans())) for _ in own]
        switch = f"switch {host}" if draw(st.booleans()) else "network"
        pairs = [(d, switch) for d in own]
        pairs += [(a, b) for a in own for b in own if a < b and draw(st.booleans())]
        pairs += [(switch, "network")] * (switch != "network")
        for pair in pairs:
            rates = 1e9 * 1.37 ** draw(st.integers(0, 9)), 1e-6 * 1.13 ** len(links)
            links += [Link(pair, *rates), Link(pair[::-1], *rates)]
    return MachineModel(tuple(devices), tuple(links))


def table_of(machine):
    """All pairs at once."""
    places = {d: d for d in range(len(machine.devices))}
    ends = [[places.setdefault(e, len(places)) for e in link.ends] for link in machine.links]
    ends = np.array(ends, np.int64).reshape(-1, 2)
    return find_routes(len(machine.devices), ends, link_lengths(machine.links))


@examples(200)
@given(machines())
def test_ways_of_parts_are_those_of_the_whole(machine):
    np.testing.assert_array_equal(machine.routes, table_of(machine))


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_ways_of_machines_are_those_of_the_whole(machine):
    np.testing.assert_array_equal(machine.routes, table_of(machine))


@examples(200)
@given(machines() | st.sampled_from(list(MACHINES.values())), st.data())
def test_ways_of_some_devices(machine, data):
    count = len(machine.devices)
    some = np.array(data.draw(st.permutations(range(count))))[: data.draw(st.integers(1, count))]
    ways, used = machine.ways.only(some)
    member, pair = np.arange(len(some)), np.ix_(some, some)
    both = member[:, None], member
    np.testing.assert_array_equal(np.append(used, -1)[ways.links(*both)], machine.routes[pair])
    np.testing.assert_array_equal(ways.latency(*both), machine.latency_seconds[pair])
    np.testing.assert_array_equal(ways.bandwidth(*both), machine.bandwidth[pair])
    np.testing.assert_array_equal(ways.doors(*both), machine.doors[pair])
    first = list(dict.fromkeys(k for k in machine.routes[pair].reshape(-1).tolist() if k >= 0))
    assert used.tolist() == first
    assert ways.most_doors == 1 + machine.doors[pair].max()
    latency = machine.latency_seconds[pair]
    assert ways.least_latency == latency.min(initial=np.inf, where=latency > 0)
    end = np.append(np.array([k.ends[1] if k.ends[1] in some else -1 for k in machine.links]), -1)
    passed = (end[machine.routes[pair][:, :, :-1]] != -1) & (machine.routes[pair][:, :, 1:] >= 0)
    assert ways.has_relays == passed.any()
    for a, b in zip(*np.nonzero((ways.links(*both) >= 0).any(axis=-1)), strict=True):
        assert ways.door(a, b) == machine.doors[some[a], some[b]]


def test_pairs_and_kinds_in_parts():
    part, kind = np.array([0, 1, 0, 2]), np.array([0, 1, 1, 2])
    pairs = list(zip(*(a.tolist() for a in near_pairs(part)), strict=True))
    assert pairs == [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2), (3, 3)]
    apart = [[False, True, True], [True, True, True], [True, True, False]]
    assert are_apart(kind, part).tolist() == apart


@examples(100)
@given(machines() | st.sampled_from(list(MACHINES.values())), st.data())
def test_links_that_are_alike_carry_equal_parts(machine, data):
    count = len(machine.links)
    load = np.array(data.draw(st.lists(st.integers(0, 99), min_size=count, max_size=count)))
    found, kinds = machine.ways.link.evened(load), dict[object, list[int]]()
    for k, link in enumerate(machine.links):
        ends = tuple(isinstance(end, int) for end in link.ends)
        kinds.setdefault((*ends, link.bandwidth, link.latency_seconds), []).append(k)
    for alike in kinds.values():
        assert found[alike].tolist() == [load[alike].sum() / len(alike)] * len(alike)


def test_no_table_of_all_pairs_is_made():
    """Of 4,096 devices that is 16 million entries, or several times as many."""
    machine = MachineModel.preset("h100", nodes=512)
    assert sum(column.nbytes for column in machine.ways.columns) < 4e6
    graph = network(batch=2 * 4096)
    strategy = taskflow.data_parallel(graph, machine)
    rows = lower(graph, strategy, machine, devices=orbits_of(graph, strategy, machine))
    simulate(rows, CostModel.analytic(machine))
    assert not any(table in vars(machine) for table in TABLES)
