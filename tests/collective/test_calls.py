"""Calls of NCCL as its own model has them: what a group offers, what is chosen, and what that takes."""

from dataclasses import replace

import numpy as np
import pytest

from taskflow import Link, MachineModel
from taskflow.collective.calls import calls
from taskflow.collective.price import CollectiveCosts
from taskflow.machine.protocol import published, read_protocols

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def prices(machine, members=None):
    return CollectiveCosts(machine).prices(tuple(members or range(len(machine.devices))))


def chosen(machine, name, size, members=None):
    """Algorithm and protocol that the library expects to be the fastest."""
    known = machine.protocols or read_protocols()
    able = calls(prices(machine, members).library.fabric, known, name, np.array([size]))
    best = min(able, key=lambda call: call.expected[0])
    return best.protocol.algorithm, best.protocol.protocol


@pytest.mark.parametrize(
    "name, hosts, members, within, between",
    [
        ("v100", 1, None, 6 * 20e9, np.inf),  # three rings both ways
        ("v100", 1, (0, 3), 2 * 20e9, np.inf),  # two links
        ("p100", 2, None, 2 * 18e9, 12e9),  # all of a host share its card
        ("h100", 4, None, 370.8e9, 8 * 48e9),  # a card for each
        ("h100", 4, (0, 1, 8, 9), 370.8e9, 2 * 48e9),
        ("h100", 4, (0, 8, 16), np.inf, 48e9),
        ("k80", 1, None, 12e9, np.inf),
    ],
)
def test_a_ring_for_every_card(name, hosts, members, within, between):
    fabric = prices(MachineModel.preset(name, nodes=hosts), members).library.fabric
    assert (fabric.within, fabric.between) == (pytest.approx(within), pytest.approx(between))
    assert fabric.kind == ("pci" if name == "k80" else "nvlink")


def test_figures_of_the_published_model():
    """By hand, of eight A100: 6.6 us and fourteen hops of 0.6 us; 1.75 bytes a byte by LL."""
    machine = MachineModel.preset("a100")
    fabric = prices(machine).library.fabric
    (by_ll,) = [
        call
        for call in calls(fabric, machine.protocols, "all-reduce", np.array([32 * KIB]))
        if (call.protocol.algorithm, call.protocol.protocol) == ("ring", "LL")
    ]
    sent = 1.75 * 32 * KIB / 87.7e9
    assert by_ll.expected[0] == pytest.approx(6.6e-6 + 14 * 0.6e-6 + sent)
    more = published()
    first = more.call_seconds + 6.6e-6 + more.hop_factor * 14 * 0.6e-6
    assert by_ll.protocol.hop_factor == more.hop_factor > 1
    assert by_ll.seconds[0] == pytest.approx(first + sent)


def test_what_is_chosen_by_size():
    """As NCCL says of eight H200: rings by LL up to 1 MiB, sums in the switch from 2 MiB on.

    Source: stas00/ml-engineering, network/benchmarks/README.md, 744d01e1 (NCCL_DEBUG_SUBSYS=TUNING).
    """
    machine = MachineModel.preset("h200")
    for size in (32 * KIB, 256 * KIB, MIB):
        assert chosen(machine, "all-reduce", size) == ("ring", "LL")
    for size in (2 * MIB, 64 * MIB, GIB):
        assert chosen(machine, "all-reduce", size) == ("nvls", "Simple")
    assert chosen(machine, "all-gather", GIB) == ("ring", "Simple")
    assert chosen(MachineModel.preset("h100", nodes=4), "all-reduce", GIB)[0] == "nvls-tree"
    assert chosen(MachineModel.preset("a100", nodes=4), "all-reduce", 64 * KIB)[0] == "tree"
    assert chosen(MachineModel.preset("k80"), "all-reduce", 64 * MIB)[1] != "LL128", (
        "by NVLink only"
    )


def test_what_is_not_allowed_is_not_chosen(tmp_path):
    machine = MachineModel.preset("h200")
    rings = tuple(
        p if p.algorithm == "ring" else replace(p, collectives=()) for p in machine.protocols
    )
    other = replace(machine, protocols=rings)
    assert chosen(other, "all-reduce", GIB) == ("ring", "Simple")
    other.save(tmp_path / "m.toml")
    assert MachineModel.load(tmp_path / "m.toml") == other
    found = prices(other).choose("all-reduce", 16 * GIB).seconds
    assert found == pytest.approx(1.75 * 16 * GIB / 370.8e9, rel=2e-3)


def test_slower_networks_take_their_latency_with_every_hop():
    machine = MachineModel.preset("h100", nodes=4)
    slow = [replace(x, latency_seconds=1e-3) if x.kind == "network" else x for x in machine.links]
    fast, slow = (
        prices(m).choose("all-reduce", KIB).seconds
        for m in (machine, replace(machine, links=tuple(slow)))
    )
    assert slow - fast == pytest.approx(4 * (2e-3 - 6.5e-6), rel=0.02)  # up and down a tree of four


def test_the_slowest_way_between_hosts_counts():
    machine = MachineModel.preset("h100", nodes=3)
    latency = {x: 1e-3 if x.ends == (8, "network") else x.latency_seconds for x in machine.links}
    links = tuple(replace(x, latency_seconds=seconds) for x, seconds in latency.items())
    one_slow = prices(replace(machine, links=links), (0, 8, 16)).library.fabric
    assert one_slow.network_seconds == pytest.approx(1e-3, rel=0.01)


def test_all_groups_have_a_price():
    """Uneven hosts, two members, and links of no class."""
    machine = MachineModel.preset("v100", nodes=2)
    plain = replace(
        machine, links=tuple(Link(x.ends, x.bandwidth, x.latency_seconds) for x in machine.links)
    )
    for m in (machine, plain):
        for members in ((0, 9), (0, 1, 2, 8), tuple(range(11))):
            for name in ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"):
                choice = prices(m, members).choose(name, 4 * 11 * KIB)
                assert choice.algorithm == "library" and 0 < choice.seconds < 1
