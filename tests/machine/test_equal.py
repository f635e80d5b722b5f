"""Equal devices are those of which any two can change places; in an order they stand as they are named."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Device, MachineModel
from taskflow.machine.equal import in_order
from taskflow.machine.topology import of_name
from tests.strategies import examples


def on_hosts(*hosts, devices=None):
    machine = MachineModel.uniform(len(hosts))
    given = devices or machine.devices
    return replace(
        machine, devices=tuple(replace(d, host=h) for d, h in zip(given, hosts, strict=True))
    )


MACHINES = {
    "uniform": MachineModel.uniform(4),
    "one": MachineModel.uniform(1),
    "hosts": on_hosts(0, 0, 1, 1, 2),
    "alternating hosts": on_hosts(5, 2, 5, 2),
    "two kinds": on_hosts(0, 0, 1, 1, devices=(Device(), Device(memory_bytes=1 << 20)) * 2),
    "presets": MachineModel.join([MachineModel.preset("k80", 2), MachineModel.preset("p100", 2)]),
    "cube mesh": MachineModel.preset("v100", 2),
    "fat tree": of_name("fat_tree:2x3"),
    "torus": of_name("torus:2x4"),
}


def is_swap(machine, here, there):
    """Whether devices change places with others, and nothing is seen of it."""
    renamed = np.arange(len(machine.devices))
    renamed[[*here, *there]] = [*there, *here]
    devices = [replace(d, host=0) for d in machine.devices]
    ways = machine.latency_seconds, machine.bandwidth
    return [devices[d] for d in renamed] == devices and all(
        (way == way[np.ix_(renamed, renamed)]).all() for way in ways
    )


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_equal_are_those_that_can_change_places(machine):
    host, host_kind, kind = machine.equals
    assert [machine.devices[d].host for d in range(len(host))] == np.unique(
        [d.host for d in machine.devices]
    )[host].tolist()
    for members in machine.hosts:
        for (i, a), (j, b) in combinations(enumerate(members), 2):
            assert (kind[a] == kind[b]) == is_swap(machine, [a], [b]), (i, j)
    for one, other in combinations(machine.hosts, 2):
        can = len(one) == len(other) and is_swap(machine, one, other)
        assert (host_kind[one[0]] == host_kind[other[0]]) == can
        assert not can or kind[list(one)].tolist() == kind[list(other)].tolist()


@examples(50)
@given(
    names=st.lists(st.integers(0, 7), min_size=1, max_size=20),
    renamed=st.permutations(range(4)),
    turned=st.permutations(range(2)),
)
def test_other_names_of_equal_devices_are_in_the_same_order(names, renamed, turned):
    """Four equal devices on each of two equal hosts."""
    equals = tuple(MachineModel.preset("p100", 2).equals)
    new = np.array([4 * turned[d // 4] + (renamed[d % 4] if d < 4 else d % 4) for d in range(8)])
    found = in_order(np.array(names), equals)
    assert sorted(found.tolist()) == sorted(set(names))
    assert found[0] == names[0]
    assert (np.diff(found // 4) != 0).sum() < len(set(found // 4))
    np.testing.assert_array_equal(in_order(new[names], equals), new[found])


def test_unequal_devices_are_in_the_order_of_their_numbers():
    """Neighbours of a mesh are neighbours of a ring, and kinds stand together."""
    assert in_order(np.array([2, 7, 0, 5]), tuple(MACHINES["torus"].equals)).tolist() == [
        0,
        2,
        5,
        7,
    ]
    two = tuple(MACHINES["two kinds"].equals)
    assert in_order(np.array([3, 2, 1]), two).tolist() == [2, 3, 1]


def test_neighbours_sit_on_one_host():
    equals = tuple(MACHINES["alternating hosts"].equals)
    assert in_order(np.arange(4), equals).tolist() == [0, 2, 1, 3]
