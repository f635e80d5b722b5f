"""Rings over a mesh of links: how many there are, that none takes more of a link than it has, and what they reach."""

from itertools import pairwise

import numpy as np
import pytest

from taskflow import MachineModel
from taskflow.collective.group import group_of
from taskflow.collective.price import GroupPrices
from taskflow.collective.ring import find_rings
from taskflow.machine.topology import fat_tree, mesh, torus
from taskflow.tasks.streams import StreamTable


def whole(machine):
    return group_of(machine, StreamTable(machine), range(len(machine.devices)))[0]


MESHES = [
    (MachineModel.preset("v100"), 3),  # six links each, as NCCL uses them
    (MachineModel.preset("p100"), 1),  # every two of four: three links each, a ring takes two
    (torus((4, 4)), 2),
    (torus((3, 5)), 2),
    (mesh((4, 4)), 1),
    (mesh((3, 3)), 0),  # nine members, coloured as a chess board: no ring
    (fat_tree(2, 4), 0),
    (MachineModel.preset("v100", nodes=2), 0),
]


@pytest.mark.parametrize(
    ("machine", "count"), MESHES, ids=lambda value: getattr(value, "name", str(value))
)
def test_rings_go_through_all_members_and_share_no_link(machine, count):
    group = whole(machine)
    rings = find_rings(group)
    assert len(rings) == count
    used = np.zeros(len(group.capacity), np.int64)
    for ring in rings:
        assert sorted(ring.tolist()) == list(range(group.count))
        for a, b in pairwise([*ring.tolist(), int(ring[0])]):
            for links in (group.links[a, b], group.links[b, a]):
                assert links[0] >= 0 and np.all(links[1:] < 0)
                used[links[0]] += 1
    assert np.all(used <= group.capacity)


def test_rings_of_a_dgx1_gather_at_the_rate_of_all_its_links():
    """Each of 8 receives 7/8 of the bytes over six links that reach 20 of 25 GB/s."""
    prices = GroupPrices(whole(MachineModel.preset("v100").with_rates(latency_seconds=0.0)))
    size = 1 << 30
    assert prices.seconds("all-gather", "rings", size) == pytest.approx(7 / 8 * size / 120e9)
    assert prices.choose("all-gather", size)[1] == "rings"


def test_levels_in_parts_overlap():
    """In 8 parts the network is busy while the hosts are: no more than 1.25 times what the slower level takes alone."""
    machine, size = MachineModel.preset("h100", nodes=4), 1 << 30
    prices = GroupPrices(whole(machine))
    network = 2 * 3 / 4 * size / 8 / 48e9
    parts, one = (
        prices.seconds("all-reduce", name, size) for name in ("two-level in 8 parts", "two-level")
    )
    within = size * 7 / 8 * (2 / 370.8e9 + 3 / (0.88 * 3350e9))
    assert max(network, within) < parts < 1.25 * max(network, within) < 0.75 * one
