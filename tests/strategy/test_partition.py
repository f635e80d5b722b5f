"""Which point touches which box, on which device: the one rule for forward, backward and update."""

import pytest
from hypothesis import given

from taskflow import Graph, MachineModel, ParallelConfig, Rect, random_strategy
from taskflow.strategy.partition import Partition, partition
from tests import tiny
from tests.strategies import examples, graphs


def points_of(op, degrees, devices=None):
    return partition(op, ParallelConfig(degrees, devices))


def boxes(points, arg):
    return [str(r) for r in points.args[arg].rects]


@pytest.fixture
def fc():
    """A linear operator, its update, and what lies between: (8, 6) -> (8, 4)."""
    graph = Graph()
    tiny.sgd(tiny.mean_square(tiny.linear(graph.input("x", (8, 6), "float64"), 4)))
    return graph


def test_an_axis_of_the_output_makes_tiles(fc):
    points = points_of(fc.operator("fc"), {"b": 2, "o": 2})
    assert points.devices == (0, 1, 2, 3)
    assert boxes(points, 0) == ["[0:4, 0:6]", "[0:4, 0:6]", "[4:8, 0:6]", "[4:8, 0:6]"]
    assert boxes(points, 1) == ["[0:2, 0:6]", "[2:4, 0:6]", "[0:2, 0:6]", "[2:4, 0:6]"]
    assert boxes(points, 2) == ["[0:4, 0:2]", "[0:4, 2:4]", "[4:8, 0:2]", "[4:8, 2:4]"]
    assert not points.partial[0]
    assert points.args[2].is_disjoint
    assert points.args[2].is_complete


def test_an_axis_that_is_only_read_makes_partial_results(fc):
    points = points_of(fc.operator("fc"), {"i": 3})
    assert boxes(points, 0) == ["[0:8, 0:2]", "[0:8, 2:4]", "[0:8, 4:6]"]
    assert boxes(points, 2) == ["[0:8, 0:4]"] * 3
    assert points.partial[0]
    assert points.colours[:, 0].tolist() == [0, 1, 2]


def test_an_axis_in_no_term_makes_one_replica_a_device(fc):
    points = points_of(fc.operator("fc.weight.update"), {"b": 4}, (2, 0, 2, 1))
    assert points.devices == (2, 0, 1)
    assert boxes(points, 0) == ["[0:4, 0:6]"] * 3
    assert not points.args[0].is_aliased  # replicas of one box


def test_replicas_go_where_their_tile_is_computed(fc):
    points = points_of(fc.operator("fc.weight.update"), {"b": 2, "o": 2}, (0, 1, 2, 1))
    assert points.devices == (0, 2, 1)  # o=0 on 0 and 2, o=1 on 1 alone
    assert boxes(points, 0) == ["[0:2, 0:6]", "[0:2, 0:6]", "[2:4, 0:6]"]


def test_points_may_share_a_device(fc):
    points = points_of(fc.operator("fc"), {"b": 4}, (0, 0, 1, 1))
    assert points.devices == (0, 0, 1, 1)
    assert boxes(points, 2) == ["[0:2, 0:4]", "[2:4, 0:4]", "[4:6, 0:4]", "[6:8, 0:4]"]


def test_fractions_serve_unequal_devices(fc):
    points = points_of(fc.operator("fc"), {"b": (0.25, 0.75)})
    assert boxes(points, 2) == ["[0:2, 0:4]", "[2:8, 0:4]"]


def test_points_without_work_are_dropped(fc):
    points = points_of(fc.operator("fc"), {"o": (0.05, 0.45, 0.5)})
    assert points.devices == (1, 2)
    assert boxes(points, 2) == ["[0:8, 0:2]", "[0:8, 2:4]"]


def test_a_follower_with_a_smaller_extent_has_fewer_points():
    graph = Graph()
    small = graph.launch("small", "b ->  b", [graph.input("x", (3,))], kernel=tiny._copy)
    assert points_of(small.graph.operator("small"), {"b": 5}).devices == (1, 3, 4)


def test_a_halo_is_an_aliased_partition():
    graph = Graph()
    op = tiny.stencil(graph.input("x", (9, 2), "float64")).graph.operators[0]
    points = points_of(op, {"b": 3})
    assert boxes(points, 0) == ["[0:4, 0:2]", "[2:7, 0:2]", "[5:9, 0:2]"]
    assert points.args[0].is_aliased
    assert points.args[0].is_complete
    assert points.args[1].is_disjoint


def test_a_strided_read_need_not_be_complete():
    graph = Graph()
    tiny.stencil(graph.input("x", (9, 2), "float64"), size=1, stride=2, padding=0)
    points = points_of(graph.operators[0], {"b": 5})
    assert boxes(points, 0) == [
        "[0:1, 0:2]",
        "[2:3, 0:2]",
        "[4:5, 0:2]",
        "[6:7, 0:2]",
        "[8:9, 0:2]",
    ]
    assert not points.args[0].is_complete


def test_several_outputs_are_split_each_in_its_own_way():
    graph = Graph()
    x = graph.input("x", (4, 6))
    graph.launch("op", "b c -> b, c, max[b], b c", [x], kernel=tiny._copy)
    points = points_of(graph.operators[0], {"c": 2})
    assert points.partial.tolist() == [True, False, True, False]
    assert points.colours.T.tolist() == [[0, 1], [0, 0], [0, 1], [0, 0]]
    assert boxes(points, 2) == ["[0:3]", "[3:6]"]


def test_a_follower_ignores_axes_that_it_never_splits():
    graph = Graph()
    fixed = graph.launch(
        "fixed", "^b c -> ^b c", [graph.input("x", (4, 6))], kernel=tiny._copy
    ).graph.operators[0]
    points = points_of(fixed, {"b": 2, "c": 2}, (0, 1, 2, 3))
    assert points.devices == (0, 2, 1, 3)
    assert boxes(points, 1) == ["[0:4, 0:3]", "[0:4, 0:3]", "[0:4, 3:6]", "[0:4, 3:6]"]


def test_a_scalar_is_everywhere():
    graph = Graph()
    tiny.mean_square(graph.input("x", (4, 6)))
    points = points_of(graph.operators[0], {"b": 2, "c": 2})
    assert points.args[1].rects == (Rect((), ()),) * 4
    assert points.colours[:, 0].tolist() == [0, 1, 2, 3]


def test_partitions_know_their_properties():
    region = Graph().input("x", (6,))
    halves = Partition(region, (Rect((0,), (3,)), Rect((3,), (6,)), Rect((0,), (3,))))
    assert (halves.is_disjoint, halves.is_aliased, halves.is_complete) == (True, False, True)
    gap = Partition(region, (Rect((0,), (4,)), Rect((3,), (5,))))
    assert (gap.is_disjoint, gap.is_aliased, gap.is_complete) == (False, True, False)


@examples(100)
@given(graphs())
def test_outputs_are_covered_once_by_every_colour(model):
    machine = MachineModel.uniform(6)
    for name, config in random_strategy(model.graph, machine, 0).items():
        op = model.graph.operator(name)
        points = partition(op, config)
        for k, colours in enumerate(points.colours.T.tolist()):
            for colour in set(colours):
                made = points.args[op.bound.made[k]]
                part = Partition(
                    made.region, tuple(r for r, c in zip(made.rects, colours) if c == colour)
                )
                assert part.is_disjoint
                assert part.is_complete
