"""Boxes against sets of points."""

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from taskflow.core.geometry import Rect, balanced_bounds, fraction_bounds, subtract_all

LIMIT = 5


@st.composite
def rects(draw, ndim=None, count=1):
    """Boxes of the same number of dimensions; some are empty."""
    ndim = draw(st.integers(0, 3)) if ndim is None else ndim
    corners = st.tuples(*[st.integers(-1, LIMIT)] * ndim)
    return tuple(Rect(draw(corners), draw(corners)) for _ in range(count))


def points(rect):
    return set(product(*(range(l, h) for l, h in zip(rect.lo, rect.hi, strict=True))))


def assert_disjoint(boxes):
    assert sum(len(points(b)) for b in boxes) == len(set().union(*map(points, boxes)))


@given(rects(count=2))
def test_relations_are_those_of_the_points(pair):
    a, b = pair
    assert a.volume == len(points(a))
    assert a.is_empty == (not points(a))
    assert a.covers(b) == (points(a) >= points(b))
    assert points(a.intersect(b)) == points(a) & points(b)
    if not a.is_empty and not b.is_empty:
        assert a.overlaps(b) == bool(points(a) & points(b))


@given(rects(count=2))
def test_subtract_leaves_disjoint_boxes_of_the_other_points(pair):
    a, b = pair
    pieces = a.subtract(b)
    assert set().union(*map(points, pieces)) == points(a) - points(b)
    assert_disjoint(pieces)
    assert not any(piece.is_empty for piece in pieces)
    assert len(pieces) <= max(1, 2 * len(a.lo))


@given(rects(count=4))
def test_subtract_all_takes_every_box_away(boxes):
    rect, *others = boxes
    pieces = subtract_all(rect, others)
    assert set().union(*map(points, pieces)) == points(rect) - set().union(*map(points, others))
    assert_disjoint(pieces)


def test_a_scalar_is_a_box_of_one_point():
    scalar = Rect.of_shape(())
    assert scalar.volume == 1
    assert not scalar.is_empty
    assert scalar.covers(scalar)
    assert scalar.overlaps(scalar)
    assert scalar.subtract(scalar) == []


def test_slices_index_an_array_that_starts_elsewhere():
    rect = Rect((2, 5), (4, 9))
    assert rect.slices() == (..., slice(2, 4), slice(5, 9))
    assert rect.slices((2, 4)) == (..., slice(0, 2), slice(1, 5))
    assert rect.relative_to((2, 4)) == Rect((0, 1), (2, 5))
    assert str(rect) == "[2:4, 5:9]"


@given(st.integers(1, 40), st.integers(1, 12))
def test_balanced_bounds_differ_by_at_most_one(extent, parts):
    bounds = balanced_bounds(extent, parts)
    sizes = [b - a for a, b in pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(sizes)) == (0, extent, parts)
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 40), st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_fraction_bounds_follow_the_shares(extent, shares):
    fractions = [share / sum(shares) for share in shares]
    bounds = fraction_bounds(extent, fractions)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, extent, len(shares) + 1)
    assert bounds == sorted(bounds)
    for k, bound in enumerate(bounds):
        assert abs(bound - extent * sum(fractions[:k])) <= 0.5 + 1e-9
