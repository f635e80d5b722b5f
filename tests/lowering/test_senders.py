"""Who sends what several have: the nearest, and of those as near each as often as the others."""

import pytest

from taskflow import Graph, MachineModel, ParallelConfig, Strategy, lower
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
        "made": ParallelConfig({None: len(holders)} if len(holders) > 1 else {}, holders),
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
        "fc": ParallelConfig({"b": 2, None: 2}, (0, 4, 1, 5)),
        "loss": ParallelConfig({}, (0,)),
        "fc.weight.update": ParallelConfig({}, (6,)),
    }
    found = sent(lower(graph, Strategy.of_graph(graph, configs), HOSTS), "fc.dweight")
    assert [(a, b) for a, b, _ in found] == [(4, 6), (5, 6)]


def _copy(ctx, x, y):
    y[...] = x


def _spread(ctx, x, z, y):
    y[...] = x
