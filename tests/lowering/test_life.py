"""Lives: who touches a region, what each does, and the versions that come of it."""

from taskflow import Graph
from taskflow.lowering.life import Role, lives, tabulate
from tests import tiny

READS, UPDATES, WRITES, ADDS, SUMS = Role.READS, Role.UPDATES, Role.WRITES, Role.ADDS, Role.SUMS


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
    assert y.event.tolist() == [
        (0, 1, WRITES, -1, 0),
        (1, 0, UPDATES, 0, -1),
        (2, 0, READS, 1, -1),
        (2, 1, READS, 1, -1),
    ]
    assert y.producer.tolist() == [0, 1]
    assert (x.ops, x.event.tolist(), x.producer.tolist()) == ((0,), [(0, 0, READS, 0, -1)], [-1])
    assert (kept.ops, kept.event.tolist(), kept.producer.tolist()) == ((), [], [-1])


def test_what_is_kept_and_updated_has_a_version_that_nobody_makes():
    graph = Graph()
    x, state = graph.input("x", (4,)), graph.parameter("state", (4,))
    tiny.decay(state, x)
    tiny.decay(state, x, "again")
    alive, _ = found(graph)
    assert alive["state"].event.tolist() == [(0, 0, UPDATES, 0, -1), (1, 0, UPDATES, 1, -1)]
    assert alive["state"].producer.tolist() == [-1, 0, 1]


def test_what_is_added_to_has_the_number_of_a_made_term():
    """The two states come behind the outputs, of which there is none; a gradient whose kernel adds begins a region."""
    graph = Graph()
    x, sums = (
        graph.input("x", (4, 2)),
        [graph.parameter(name, (2,), trainable=False) for name in ("total", "squares")],
    )
    tiny.count(x, *sums)
    tiny.sgd(tiny.mean_square(tiny.linear(x, 3, "fc")), lr=0.1)
    alive, _ = found(graph)
    assert alive["total"].event.tolist() == [(0, 1, ADDS, 0, 0)]
    assert alive["squares"].event.tolist() == [(0, 2, ADDS, 0, 1)]
    assert alive["squares"].producer.tolist() == [-1, 0]
    assert alive["fc.dweight"].event.tolist() == [(0, 2, SUMS, -1, 0), (1, 1, READS, 0, -1)]


def test_the_table_has_a_box_for_scalars():
    graph = Graph()
    tiny.mean_square(graph.input("x", (4, 6)))
    alive, table = found(graph, fetched={1})
    assert list(alive) == ["x", "loss"]
    assert table.whole.tolist() == [0, 4, 0, 6, 0, 1] and table.whole_ptr.tolist() == [0, 4, 6]
    itemsize = [life.region.itemsize for life in alive.values()]
    assert table.region.tolist() == [(itemsize[0], 0, 0, 0, 1, 0), (itemsize[1], 0, 1, 1, 1, 0)]
