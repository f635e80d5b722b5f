"""Boxes in compiled code are what Rects are in Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow.core.compiling import njit
from taskflow.core.geometry import Rect
from taskflow.lowering import boxes
from tests.core.test_geometry import assert_disjoint, points, rects


@njit
def relations(a, b):
    """Whether `a` covers `b`, whether they overlap, whether `a` is empty, and its volume."""
    return boxes.covers(a, b), boxes.overlaps(a, b), boxes.is_empty(a), boxes.volume(a)


@njit
def difference(a, b, out):
    """`a` without `b`, in `out`; how many boxes."""
    return boxes.subtract(out, 0, a, b)


@njit
def cut(box, parts, is_scalar):
    """A box in so many parts."""
    out = np.empty((parts, len(box)), np.int64)
    boxes.split_evenly(out, box, parts, is_scalar)
    return out


def box_of(rect):
    """Lower and upper border of every dimension in turn; a scalar has one dimension of one point."""
    return np.array(
        [x for pair in zip(rect.lo, rect.hi, strict=True) for x in pair] or [0, 1], np.int64
    )


def rect_of(box):
    return Rect(tuple(box[::2].tolist()), tuple(box[1::2].tolist()))


@given(rects(count=2))
def test_boxes_are_rects(pair):
    a, b = pair
    if b.is_empty or not a.shape:
        return
    assert relations(box_of(a), box_of(b)) == (a.covers(b), a.overlaps(b), a.is_empty, a.volume)


@given(rects(count=2))
def test_subtracted_is_the_same_in_the_same_order(pair):
    a, b = pair
    if not a.shape:
        return
    out = np.empty((2 * len(a.shape) + 1, 2 * len(a.shape)), np.int64)
    assert [rect_of(out[k]) for k in range(difference(box_of(a), box_of(b), out))] == a.subtract(b)


def test_what_has_no_room_is_counted():
    a, b = Rect((0, 0), (3, 3)), Rect((1, 1), (2, 2))
    assert difference(box_of(a), box_of(b), np.empty((1, 4), np.int64)) == 4


@given(rects(), st.integers(1, 7))
def test_parts_cover_every_point_once(box, parts):
    (rect,) = box
    if rect.is_empty or not rect.shape:
        return
    found = [rect_of(part) for part in cut(box_of(rect), parts, 0)]
    assert_disjoint(found)
    assert set().union(*map(points, found)) == points(rect)
    if any(extent >= parts for extent in rect.shape):
        assert not any(part.is_empty for part in found)
        extents = {
            tuple(n for n, whole in zip(p.shape, rect.shape, strict=True) if n != whole)
            for p in found
        }
        assert (
            len({n for extent in extents for n in extent}) <= 2
        )  # of one dimension, by one point apart


@pytest.mark.parametrize(
    ("shape", "parts", "expected"),
    [
        ((2, 5, 9), 3, ["[0:2, 0:1, 0:9]", "[0:2, 1:3, 0:9]", "[0:2, 3:5, 0:9]"]),
        ((2, 3), 4, ["[0:2, 0:0]", "[0:2, 0:1]", "[0:2, 1:2]", "[0:2, 2:3]"]),
    ],
)
def test_the_first_dimension_that_is_long_enough_is_cut_else_the_longest(shape, parts, expected):
    assert [str(rect_of(part)) for part in cut(box_of(Rect.of_shape(shape)), parts, 0)] == expected


def test_a_scalar_goes_to_the_first_part():
    assert cut(box_of(Rect.of_shape(())), 3, 1).tolist() == [[0, 1], [0, 0], [0, 0]]
