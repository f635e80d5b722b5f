"""Algorithms of collectives: what each of them promises, and what MultiTree and the rings of a grid do on links."""

import networkx as nx
import numpy as np
import pytest

from taskflow import Device, MachineModel
from taskflow.collective.algorithms import ALGORITHMS, everyone
from taskflow.collective.group import group_of, sent_in
from taskflow.collective.multitree import multitree
from taskflow.collective.price import GroupPrices
from taskflow.machine.topology import NODE, bigraph, dragonfly, fat_tree, mesh, of_edges, torus
from taskflow.tasks.steps import messages_of
from taskflow.tasks.streams import StreamTable

ALL = [(algorithm, name) for algorithm, each in ALGORITHMS.items() for name in each.serves]


def whole(machine):
    return group_of(machine, StreamTable(machine), range(len(machine.devices)))[0]


def unequal(first, second):
    """Two hosts."""
    hosts = [MachineModel.preset("v100", nodes=1).take(n) for n in (first, second)]
    return MachineModel.join(hosts, f"{first} and {second}")


MACHINES = [MachineModel.uniform(p) for p in (2, 3, 5, 7, 8, 12, 16)] + [
    unequal(5, 3),
    unequal(3, 2),
    unequal(4, 4),
]


@pytest.mark.parametrize(
    "machine", MACHINES, ids=lambda machine: f"{machine.name}-{len(machine.devices)}"
)
@pytest.mark.parametrize(("algorithm", "name"), ALL)
def test_what_is_brought_is_there_and_each_member_gets_each_piece_once(algorithm, name, machine):
    group = whole(machine)
    steps = ALGORITHMS[algorithm].steps(name, group)
    pieces = np.arange(len(steps.owner))
    since = np.full((group.count, len(pieces)), 1 << 30)
    since[steps.owner, pieces] = -1
    assert np.all(np.diff(steps.round) >= 0)
    for k in range(len(steps.round)):
        run = slice(steps.first[k], steps.last[k])
        assert np.all(since[steps.source[k], run] < steps.round[k])
        assert np.all(since[steps.target[k], run] == 1 << 30)
        since[steps.target[k], run] = steps.round[k]
    assert since.max() < 1 << 30
    assert (steps.last - steps.first).sum() == (group.count - 1) * len(pieces)  # the least bytes


@pytest.mark.parametrize("hosts", [1, 2, 3, 5])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_busiest_member_sends_as_many_messages_as_is_said(algorithm, hosts):
    """At least; by two levels there is one to each other host."""
    each = MachineModel.preset("v100", nodes=1).take(2)
    group = whole(MachineModel.join([each] * hosts, "hosts"))
    steps = ALGORITHMS[algorithm].steps(ALGORITHMS[algorithm].serves[0], group)
    said = ALGORITHMS[algorithm].sends(group)
    assert 0 <= said <= np.bincount(steps.source).max()
    assert algorithm != "two-level" or said == hosts - 1


@pytest.mark.parametrize(
    "machine", MACHINES[3:8], ids=lambda machine: f"{machine.name}-{len(machine.devices)}"
)
@pytest.mark.parametrize("algorithm", [a for a, name in ALL if name == "all-reduce"])
@pytest.mark.parametrize("cuts", [1, 7])
def test_sums_of_uneven_pieces_are_those_of_numpy(algorithm, machine, cuts):
    group = whole(machine)
    moved = messages_of("all-reduce", ALGORITHMS[algorithm].steps("all-reduce", group), cuts)
    parts = len(moved.owner)
    assert np.all((moved.last - moved.first)[moved.adds] <= parts / cuts)
    cut = np.arange(parts + 1) * (parts + 3) // parts
    values = np.random.default_rng(0).integers(-99, 99, (group.count, parts + 3))
    expected = np.broadcast_to(values.sum(axis=0), values.shape)
    for s, t, a, b, adds in zip(
        *moved[1:3], cut[moved.first], cut[moved.last], moved.adds, strict=True
    ):
        values[t, a:b] = values[s, a:b] + adds * values[t, a:b]
    assert np.array_equal(values, expected)


ROUNDS = [
    (torus, 4, 5),
    (torus, 6, 10),
    (torus, 8, 17),
    (torus, 16, 66),
    (mesh, 4, 8),
    (mesh, 5, 12),
    (mesh, 8, 32),
]


@pytest.mark.parametrize(("shape", "extent", "rounds"), ROUNDS)
def test_trees_of_grids_take_few_rounds_and_no_link_twice(shape, extent, rounds):
    group = whole(shape((extent, extent)))
    steps = multitree(group, everyone(group))
    assert steps.round[-1] + 1 <= rounds
    assert most_on_a_link(group, steps) == 1


@pytest.mark.parametrize(
    "machine",
    [
        fat_tree(8, 8),
        bigraph(4, 2),
        dragonfly(5, 4, 2),
        MachineModel.preset("v100", nodes=2),
        torus((2, 3, 4)),
        of_edges("petersen", 10, nx.petersen_graph().edges(data="width", default=1)),
    ],
)
def test_trees_of_any_topology_take_no_more_of_a_link_than_it_has(machine):
    group = whole(machine)
    steps = multitree(group, everyone(group))
    assert most_on_a_link(group, steps) <= 1
    if machine.name == "fat tree 8x8":
        assert steps.round[-1] + 1 == 63


def most_on_a_link(group, steps):
    """Messages of a round on a link, over its capacity."""
    links = group.links[steps.source, steps.target]
    used = np.zeros((steps.round[-1] + 1, len(group.capacity)))
    round_, hop = np.nonzero(links >= 0)
    np.add.at(used, (steps.round[round_], links[round_, hop]), (steps.last - steps.first)[round_])
    return (used / group.capacity).max()


def test_rings_of_a_torus_and_trees_take_what_their_bytes_take():
    """All-reduce over S / bandwidth: 15/16/2 and 63/64/2 by four streams; 2 rounds / members by trees."""
    quick = Device("cuda", memory_bandwidth=1e20, overhead_seconds=0.0, sends_by_link=True)
    for extent, rounds in ((4, 5), (8, 17)):
        members = extent * extent
        prices = GroupPrices(whole(torus((extent, extent), quick, 1e9, 0.0)))
        rings, trees = (
            prices.seconds("all-reduce", name, members * 4e6) for name in ("2-D ring", "multitree")
        )
        assert rings == pytest.approx((members - 1) / members / 2 * members * 4e-3)
        assert trees == pytest.approx(2 * rounds / members * members * 4e-3, rel=0.05)


def test_groups_that_look_alike_are_alike():
    machine = MachineModel.preset("v100", nodes=2)
    table = StreamTable(machine)
    first, second, other = (group_of(machine, table, range(k, k + 8))[0].key for k in (0, 8, 4))
    assert first == second != other


def test_groups_over_hosts_are_alike_wherever_their_members_stand_in_them():
    """Though links end at doors of other numbers of a switch between them."""
    machine = MachineModel.preset("h100", nodes=4)
    groups = [group_of(machine, StreamTable(machine), range(k, 32, 8))[0] for k in range(8)]
    assert len({group.key for group in groups}) == 1
    source, target = np.nonzero(~np.eye(groups[0].count, dtype=np.bool_))
    for group in groups[1:]:
        for name in ("is_relayed", "capacity"):
            np.testing.assert_array_equal(getattr(group, name), getattr(groups[0], name))
        for found, first in zip(
            *(sent_in(g, source, target) for g in (group, groups[0])), strict=True
        ):
            np.testing.assert_array_equal(found, first)


def test_a_device_that_sends_by_link_is_no_queue():
    table = StreamTable(torus((2, 2), NODE))
    assert table.ends(*np.array([0, 1])).tolist() == [-1, -1] and table.routes(0, 1)[0] >= 0


def test_trees_reach_members_behind_devices_that_are_none():
    machine = mesh((1, 5))
    group = group_of(machine, StreamTable(machine), (0, 2, 4))[0]
    steps = ALGORITHMS["multitree"].steps("all-gather", group)
    assert sorted(zip(steps.source.tolist(), steps.target.tolist(), strict=True)) == [
        (0, 1),
        (1, 0),
        (1, 0),
        (1, 2),
        (1, 2),
        (2, 1),
    ]
