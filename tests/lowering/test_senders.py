"""Who sends what several have: the nearest, of those as near each in turn; and what that leaves of a machine alike."""

import numpy as np
import pytest

from ops.models import gpt
from taskflow import Graph, Kind, MachineModel, ParallelConfig, Strategy, lower, stages
from taskflow.searching.grids import Grids
from taskflow.strategy.orbits import orbits_of
from tests import tiny
from tests.collectives import by_copies

HOSTS = by_copies(MachineModel.preset("p100", nodes=4), 16)  # of 4 devices each; all by copies


def sent(rows, name):
    """Source, target and collective of what carries a region between devices."""
    return sorted(
        (t.source, t.device, t.collective) for t in rows if t.name == name and t.source != t.device
    )


def read_whole(holders, readers):
    """A region that some devices have, each all of it, and that others read whole; who sends it to whom."""
    graph = Graph()
    x, z = graph.input("x", (4, 4), "float64"), graph.input("z", (len(readers),), "float64")
    made = graph.launch("made", "b c -> b c", [x], kernel=_copy)
    graph.launch("read", "b c, d -> d b c", [made, z], kernel=_spread)
    configs = {
        "made": ParallelConfig({"replicas": len(holders)} if len(holders) > 1 else {}, holders),
        "read": ParallelConfig({"d": len(readers)}, readers),
    }
    return sent(lower(graph, Strategy.of_graph(graph, configs), HOSTS), "made")


@pytest.mark.parametrize(
    ("holders", "readers", "pairs"),
    [
        ([0, 1], [4, 5], [(0, 4), (1, 5)]),  # the same place on another host
        ([0, 1], [5, 4], [(0, 5), (1, 4)]),  # by names
        ([0, 1], [4, 5, 6, 7], [(0, 4), (0, 6), (1, 5), (1, 7)]),
        ([0, 1], [4, 8, 12], [(0, 4), (0, 12), (1, 8)]),
        ([0, 4], [5, 1, 6, 2], [(0, 1), (0, 2), (4, 5), (4, 6)]),  # their host first
        ([0, 1], [2, 3], [(0, 2), (1, 3)]),
    ],
)
def test_replicas_serve_readers_in_turn(holders, readers, pairs):
    assert read_whole(holders, readers) == [(*pair, "broadcast") for pair in pairs]


def test_replicas_of_partial_results_on_the_host_of_the_sum_send_it():
    """Each half of a sum is on both hosts; nothing crosses between them."""
    graph = Graph()
    h = tiny.linear(graph.input("x", (4, 4), "float64"), 4, "fc")
    tiny.sgd(tiny.mean_square(h), own=("fc.weight",))
    configs = {
        "fc": ParallelConfig({"b": 2, "replicas": 2}, (0, 4, 1, 5)),
        "loss": ParallelConfig({}, (0,)),
        "fc.weight.update": ParallelConfig({}, (6,)),
    }
    found = sent(lower(graph, Strategy.of_graph(graph, configs), HOSTS), "fc.dweight")
    assert [(a, b) for a, b, _ in found] == [(4, 6), (5, 6)]


def gathers(tiles, replicas, order):
    """A region in tiles, of which there are replicas, that all devices of eight hosts read whole; its collectives.

    `order`: "tiles" or "replicas", whichever is on the devices of one host.
    """
    machine = MachineModel.preset("h100", nodes=8)
    graph, devices = Graph(), np.arange(64).reshape(8, 8)
    x, z = graph.input("x", (64, 4), "float64"), graph.input("z", (64,), "float64")
    made = graph.launch("made", "b c -> b c", [x], kernel=_copy)
    graph.launch("read", "b c, d -> d b c", [made, z], kernel=_spread)
    on = devices.T if order == "tiles" else devices
    configs = {
        "made": ParallelConfig({"b": tiles, "replicas": replicas}, on.ravel()[: tiles * replicas]),
        "read": ParallelConfig({"d": 64}),
    }
    strategy = Strategy.of_graph(graph, configs)
    rows = lower(graph, strategy, machine)
    found = [t for t in rows if t.kind == Kind.COLLECTIVE]
    orbits = lower(graph, strategy, machine, devices=orbits_of(graph, strategy, machine))
    return rows, [(t.collective, t.source) for t in found], len(orbits.peers.orbits)


@pytest.mark.parametrize(("order", "firsts"), [("tiles", range(0, 64, 8)), ("replicas", range(8))])
def test_tiles_with_replicas_are_gathered_by_those_who_hold_each_once(order, firsts):
    """On every host by its devices, or by the devices of one place on all hosts: regular, and no device is special."""
    rows, found, orbits = gathers(8, 8, order)
    assert found == [("all-gather", first) for first in firsts]
    assert all(rows.exchange(t.row).is_regular for t in rows if t.kind == Kind.COLLECTIVE)
    assert orbits == 1


def test_what_every_place_of_a_host_has_is_broadcast_by_places():
    """Each of the eight that have it sends to those of its place on the other hosts."""
    rows, found, _ = gathers(1, 8, "replicas")
    assert found == [("broadcast", place) for place in range(8)]
    members = [rows.exchange(t.row).members for t in rows if t.kind == Kind.COLLECTIVE]
    assert [sorted(of) for of in members] == [list(range(p, 64, 8)) for p in range(8)]


def test_stages_that_share_a_weight_tell_no_host_apart():
    """A tied embedding: 4 stages of two hosts; every host of the first stage sends to one of the last."""
    machine = MachineModel.preset("h100", nodes=8)
    graph = gpt.build(batch=64, layers=4, hidden=64, heads=8, sequence=16, vocabulary=64)
    devices = [range(k * 16, (k + 1) * 16) for k in range(4)]
    within = Grids(graph).strategy(devices[0], 8)
    strategy = stages(graph, machine, count=4, parts=4, within=within, devices=devices)
    rows = [t for t in lower(graph, strategy, machine) if t.name == "embed.weight"]
    pairs = {(t.source, t.device) for t in rows if t.source != t.device}
    assert pairs == {(d, d + 48) for d in range(16)}


def _copy(ctx, x, y):
    y[...] = x


def _spread(ctx, x, z, y):
    y[...] = x
