"""What rows of representatives load of links is what they load among all rows, whatever has to be found out first."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import taskflow
from taskflow import CostModel, MachineModel, lower, simulate
from taskflow.machine import Link
from taskflow.searching.grids import Grids
from taskflow.simulation import sharing
from taskflow.simulation.representatives import find_loads, loads_of
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.streams import ports_of
from taskflow.tasks.task_graph import Kind
from tests.lowered import network
from tests.lowering.test_peers import assert_equal, cases, numbers
from tests.strategies import examples


def by_row(loads, number):
    """Of some rows, the distinct parts that they load."""
    spans = zip(loads.ptr[number].tolist(), loads.ptr[number + 1].tolist(), strict=True)
    return [sorted(set(loads.part[a:b].tolist())) for a, b in spans]


def assert_same_loads(graph, strategy, machine):
    """Of rows of representatives, found from one orbit of all devices, and of these among all rows."""
    costs, every = CostModel.analytic(machine), lower(graph, strategy, machine)
    coarse = Orbits.of_equal(np.zeros(len(machine.devices), np.int64))
    rows = simulate(lower(graph, strategy, machine, devices=coarse), costs).task_graph
    kinds, seconds = loads_of(rows.peers, costs)
    orbits, found = find_loads(rows, kinds)
    assert orbits is rows.peers.orbits
    number = numbers(rows, every)
    expected = sharing.find_loads(every, costs.seconds(every))
    np.testing.assert_array_equal(found.peak, expected.peak[number])
    np.testing.assert_array_equal(found.latency, expected.latency[number])
    np.testing.assert_array_equal(
        costs.seconds_of_representatives(rows, seconds), costs.seconds(every)[number]
    )
    assert by_row(found, np.arange(len(rows))) == by_row(expected, number)


@examples(100)
@given(cases())
def test_rows_of_representatives_load_what_they_load_among_all_rows(case):
    assert_same_loads(*case)


SMALL = {
    "two hosts": MachineModel.preset("p100", nodes=2).take(8),
    "one host": MachineModel.preset("p100", nodes=1),
    "unequal hosts": MachineModel.join(
        [MachineModel.preset("k80").take(4), MachineModel.preset("p100")]
    ),
}


@pytest.mark.parametrize("carried", ["copies", "ring", "tree"])
@pytest.mark.parametrize("name", SMALL)
def test_loads_of_data_parallelism(name, carried):
    """Every link with a number counts, the first one too."""
    machine = SMALL[name].with_collectives({"all-reduce": carried})
    graph = network(batch=16, width=8, layers=1)
    strategy = taskflow.data_parallel(graph, machine)
    assert_same_loads(graph, strategy, machine)
    assert_equal(graph, strategy, machine, one_orbit(machine))


@pytest.mark.parametrize("carried", ["ring", "tree"])
def test_a_slow_link_tells_apart_no_more_than_who_uses_it(carried):
    """Two in each of two hosts share what they have of every weight: one host is as the other, but for its link."""
    named = {"all-reduce": carried, "all-to-all": "copies"}
    machine = SMALL["two hosts"].with_library("own").with_collectives(named)
    first, *others = machine.links
    slow = replace(machine, links=(replace(first, bandwidth=first.bandwidth / 3), *others))
    graph = network(batch=48, width=48, layers=2)
    strategy = Grids(graph).strategy(range(8), 2, "samples")
    for each, orbits in ((machine, 2), (slow, 4)):
        timeline = assert_equal(graph, strategy, each, one_orbit(each))
        assert len(timeline.task_graph.peers.orbits) == orbits


@pytest.mark.parametrize("carried", ["ring", "tree"])
def test_orbits_of_few_devices_are_as_few_as_can_be(carried):
    """A slow device is alone, and all others do the same as one of them."""
    machine = SMALL["two hosts"].with_collectives({"all-reduce": carried})
    graph = network(batch=16, width=8, layers=2)
    strategy = taskflow.data_parallel(graph, machine)
    timeline = assert_equal(graph, strategy, machine, one_orbit(machine))
    assert len(timeline.task_graph.peers.orbits) == 1
    first, *others = machine.devices
    slow = replace(first, flops_per_second=first.flops_per_second / 3)
    machine = replace(machine, devices=(slow, *others))
    timeline = assert_equal(graph, strategy, machine, one_orbit(machine))
    assert len(timeline.task_graph.peers.orbits) == 2


@examples(100)
@given(cases())
def test_a_link_is_shared_if_several_send_and_several_receive_over_it(case):
    """A collective, and a transfer that leaves by a port of its own, share it with nobody on their side."""
    graph, strategy, machine = case
    rows = lower(graph, strategy, machine)
    row, link, _ = sharing.hops_of(rows, CostModel.analytic(machine).seconds(rows))
    port, has_port = ports_of(rows, row)
    users = {}
    for k, (r, at) in enumerate(zip(row.tolist(), link.tolist(), strict=True)):
        source, is_together = int(rows.source[r]), rows.kind[r] == Kind.COLLECTIVE
        is_cpu = machine.devices[source].kind == "cpu"
        sender = (
            ("row", r)
            if is_together or is_cpu
            else (bool(has_port[k]), int(port[k]) if has_port[k] else source)
        )
        receiver = ("row", r) if is_together or has_port[k] else int(rows.device[r])
        sending, receiving = users.setdefault(at, (set(), set()))
        sending.add(sender)
        receiving.add(receiver)
    found = sharing._is_shared(rows, row, link)
    for at, (sending, receiving) in users.items():
        assert found[at] == (len(sending) > 1 and len(receiving) > 1)


def one_orbit(machine):
    return Orbits.of_equal(np.zeros(len(machine.devices), np.int64))


@pytest.mark.parametrize("carried", ["copies", "ring"])
@pytest.mark.parametrize("slow", [0, 7, 12])
def test_a_slow_link_tells_apart_who_uses_it_and_nobody_else(carried, slow):
    """Links are slower, devices are not: no row says so."""
    machine = MachineModel.preset("p100", nodes=4).with_collectives({"all-reduce": carried})
    links = [
        replace(k, bandwidth=k.bandwidth / (3 if n == slow else 1))
        for n, k in enumerate(machine.links)
    ]
    machine = replace(machine, links=tuple(links))
    graph = network(batch=64, width=64)
    strategy = taskflow.data_parallel(graph, machine)
    assert_equal(graph, strategy, machine, one_orbit(machine))


def test_orbits_are_as_few_as_can_be():
    graph = network(batch=64, width=64)
    for name, few in (("h100", 1), ("p100", 1), ("v100", 1)):
        machine = MachineModel.preset(name, nodes=2)
        strategy = taskflow.data_parallel(graph, machine)
        timeline = assert_equal(graph, strategy, machine, one_orbit(machine))
        assert len(timeline.task_graph.peers.orbits) == few, name
        first, *others = machine.devices
        slow = replace(first, flops_per_second=first.flops_per_second / 3)
        machine = replace(machine, devices=(slow, *others))
        timeline = assert_equal(graph, strategy, machine, one_orbit(machine))
        assert len(timeline.task_graph.peers.orbits) == few + 1, name


def test_what_comes_from_hosts_is_as_quick_as_all_rows_say():
    """Two devices share a link from their host, and have one each to it."""
    machine = MachineModel.uniform(4).with_host_memory(1 << 30, 1e9)
    shared = {(f"host@{0}", k): k // 2 for k in range(4)}
    assert {x.ends for x in machine.links} > set(shared)
    links = [x for x in machine.links if x.ends not in shared]
    links += [Link(("host@0", f"half@{k}"), 1e9, 1e-6) for k in range(2)]
    links += [Link((f"half@{number}", k), 1e9, 1e-6) for (_, k), number in shared.items()]
    machine = replace(machine, links=tuple(links))
    graph = network(batch=16, width=8, layers=3)
    graph = taskflow.offload(graph, [op.name for op in graph.operators if op.name[:2] == "fc"][:2])
    assert_same_loads(graph, taskflow.data_parallel(graph, machine), machine)
