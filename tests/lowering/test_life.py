"""Lives: who touches a region, what each does, and the versions that come of it."""

from taskflow import Graph
from taskflow.lowering.life import Role, lives, tabulate
from tests import tiny

READS, UPDATES, WRITES = Role.READS, Role.UPDATES, Role.WRITES


def found(graph, fetched=()):
    regions = tuple(graph.regions.values())
    table = tabulate(tuple(graph.operators), regions, fetched)
    return {life.region.name: life for life in lives(regions, table)}, table


def test_events_in_program_order():
    """`y` is written, doubled in place, and then read twice by one operator."""
    x = Graph().input("x", (4, 4))
    y = tiny.tanh(x, "y")
    tiny.double(y)
    tiny.add(y, y)
    x.graph.parameter("kept", (2,))
    alive, _ = found(x.graph)
    y, x, kept = alive["y"], alive["x"], alive["kept"]
    assert y.ops == (0, 1, 2)
    assert y.event.tolist() == [(0, 1, WRITES, -1), (1, 0, UPDATES, 0), (2, 0, READS, 1), (2, 1, READS, 1)]
    assert y.producer.tolist() == [0, 1]
    assert (x.ops, x.event.tolist(), x.producer.tolist()) == ((0,), [(0, 0, READS, 0)], [-1])
    assert (kept.ops, kept.event.tolist(), kept.producer.tolist()) == ((), [], [-1])


def test_what_is_kept_and_updated_has_a_version_that_nobody_makes():
    graph = Graph()
    x, state = graph.input("x", (4,)), graph.parameter("state", (4,))
    tiny.decay(state, x)
    tiny.decay(state, x, "again")
    alive, _ = found(graph)
    assert alive["state"].event.tolist() == [(0, 0, UPDATES, 0), (1, 0, UPDATES, 1)]
    assert alive["state"].producer.tolist() == [-1, 0, 1]


def test_the_table_has_a_box_for_scalars():
    graph = Graph()
    tiny.mean_square(graph.input("x", (4, 6)))
    alive, table = found(graph, fetched={1})
    assert list(alive) == ["x", "loss"]
    assert table.whole.tolist() == [0, 4, 0, 6, 0, 1] and table.whole_ptr.tolist() == [0, 4, 6]
    itemsize = [life.region.itemsize for life in alive.values()]
    assert table.region.tolist() == [(itemsize[0], 0, 0, 0), (itemsize[1], 0, 1, 1)]
