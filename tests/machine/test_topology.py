"""Topologies: degree, hops and bisection against closed forms, and their names on the command line."""

import networkx as nx
import numpy as np
import pytest

from taskflow.cli.machine import find_machine
from taskflow.machine.topology import bigraph, dragonfly, fat_tree, mesh, of_name, torus
from tests.refusals import assert_refused


def degree(machine):
    """Links that leave a device, of every device."""
    return [sum(link.ends[0] == d for link in machine.links) for d in range(len(machine.devices))]


def hops(machine):
    return (machine.routes >= 0).sum(axis=2)


def bisection(machine):
    """Bandwidth in links' widths from the first half of the devices to the second: the least cut."""
    graph, half = nx.DiGraph(), len(machine.devices) // 2
    for link in machine.links:
        graph.add_edge(*link.ends, capacity=link.bandwidth / 25e9)
    for device in range(2 * half):
        graph.add_edge(*(("from", device) if device < half else (device, "to")), capacity=1e9)
    return nx.maximum_flow_value(graph, "from", "to")


def test_torus():
    machine = torus((4, 6))
    assert set(degree(machine)) == {4}
    assert hops(machine).max() == 4 // 2 + 6 // 2
    assert hops(machine).mean() == pytest.approx(4 / 4 + 6 / 4)  # n / 4 along each even extent
    assert bisection(machine) == 2 * 6
    assert degree(torus((2, 3, 4)))[0] == 1 + 2 + 2, "of two there is one link, not two"


def test_mesh():
    machine = mesh((4, 6))
    assert sorted(set(degree(machine))) == [2, 3, 4] and len(machine.links) == 2 * (3 * 6 + 4 * 5)
    assert hops(machine).max() == 3 + 5
    assert hops(machine).mean() == pytest.approx((4 - 1 / 4) / 3 + (6 - 1 / 6) / 3)
    assert bisection(machine) == 6


def test_fat_tree():
    machine = fat_tree(8, 4)
    assert set(degree(machine)) == {1}
    assert hops(machine)[0, 1] == 2 and hops(machine)[0, 31] == 4
    assert bisection(machine) == 32 / 2


def test_bigraph():
    machine = bigraph(4, 2)
    assert len(machine.devices) == 16 and set(degree(machine)) == {1}
    assert hops(machine)[0, 1] == 2 and hops(machine)[0, 15] == 3 and hops(machine)[0, 7] == 4
    assert bisection(machine) == 16 / 2, (
        "4 x 4 links between the layers carry all that 8 devices send"
    )


def test_dragonfly():
    groups, switches, each = 5, 4, 2
    machine = dragonfly(groups, switches, each)
    assert len(machine.devices) == groups * switches * each
    between = [
        link.ends for link in machine.links if all(isinstance(end, str) for end in link.ends)
    ]
    count = groups * switches * (switches - 1) + groups * (groups - 1)
    assert len(between) == count == len(set(between)), (
        "all within a group, one between every two groups, both ways"
    )
    assert hops(machine).max() == 5, "device, local, global, local, device"
    of_switch = np.bincount([int(a.removeprefix("switch")) for a, _ in between])
    assert set(of_switch) == {switches - 1 + 1}, (
        "the global links of a group go out of its switches in turn"
    )


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("torus:4x6", torus((4, 6))),
        ("mesh:2x2x2", mesh((2, 2, 2))),
        ("fat_tree:8x4", fat_tree(8, 4)),
        ("bigraph:4x2", bigraph(4, 2)),
        ("dragonfly:5x4x2", dragonfly(5, 4, 2)),
    ],
)
def test_a_name_makes_it_and_a_file_keeps_it(name, made, tmp_path):
    assert find_machine(name) == made
    made.save(tmp_path / "made.toml")
    assert find_machine(str(tmp_path / "made.toml")) == made


def test_names_that_are_none():
    known = "torus, mesh, fat_tree, bigraph, dragonfly"
    assert_refused(f"machine 'ring:8': topologies are {known}", lambda: of_name("ring:8"))
    rule = "2 numbers from 1, with an x between, at most 4096 devices"
    for name in ("fat_tree:8", "fat_tree:0x2", "fat_tree:axb", "fat_tree:99x99"):
        assert_refused(f"machine '{name}': fat_tree takes {rule}", lambda name=name: of_name(name))
    rule = (
        "machine topology 'torus:4x4': says itself how many hosts there are; "
        "--nodes is for presets and files"
    )
    assert_refused(rule, lambda: find_machine("torus:4x4", nodes=2))


@pytest.mark.parametrize("machine", [torus((3, 4)), fat_tree(2, 4), torus((2,))])
def test_a_door_is_the_number_of_the_last_link_among_those_that_end_there(machine):
    for device in range(len(machine.devices)):
        ends = [k for k, link in enumerate(machine.links) if link.ends[1] == device]
        for source in {*range(len(machine.devices))} - {device}:
            door = (
                ends.index(machine.route(source, device)[-1])
                if machine.devices[device].sends_by_link
                else 0
            )
            assert machine.doors[source, device] == door
        assert machine.doors[device, device] == 0
