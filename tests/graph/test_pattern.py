"""Patterns: parsing, extents, and the boxes of windows and groups against index sets worked out point by point."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taskflow import Pattern, Rect, Window
from taskflow.graph.binding import bind


def bound(pattern, shapes, sizes=None, windows=None):
    names = [f"r{k}" for k in range(len(shapes))]
    return bind("'op'", Pattern.parse(pattern), names, shapes, sizes or {}, windows or {})


# -- parsing -----------------------------------------------------------------------------------------------------------


def test_terms_are_read_in_order():
    pattern = Pattern.parse("b ^i,  ^o ^i , . -> b (o h) 1, max[b], .")
    assert [t.dims for t in pattern.inputs] == [(("b",), ("i",)), (("o",), ("i",)), ()]
    assert [t.dims for t in pattern.outputs] == [(("b",), ("o", "h"), ()), (("b",),), ()]
    assert [t.reduction for t in pattern.outputs] == ["sum", "max", "sum"]
    assert pattern.fixed == {"i", "o"}
    assert pattern.text == "b ^i, ^o ^i , . -> b (o h) 1, max[b], ."
    assert [str(t) for t in pattern.outputs] == ["b (o h) 1", "max[b]", "."]


@pytest.mark.parametrize(
    "text, inputs, outputs", [("->", 0, 0), ("-> b", 0, 1), ("b ->", 1, 0), (". -> .", 1, 1)]
)
def test_a_side_may_be_empty(text, inputs, outputs):
    pattern = Pattern.parse(text)
    assert (len(pattern.inputs), len(pattern.outputs)) == (inputs, outputs)


# -- extents -----------------------------------------------------------------------------------------------------------


def test_extents_come_from_inputs_sizes_and_groups():
    found = bound("b (h d), d -> b h d k", [(4, 6), (3,)], sizes={"k": 5})
    assert found.extents == {"b": 4, "h": 2, "d": 3, "k": 5}
    assert found.shapes == ((4, 6), (3,), (4, 2, 3, 5))
    assert found.read_axes == {"b", "h", "d"}


def test_an_axis_known_only_by_its_window_gets_its_extent_from_it():
    found = bound("b w -> b c", [(2, 9)], windows={"w": Window("c", size=3, stride=2, padding=1)})
    assert found.extents == {"b": 2, "c": 5}
    assert found.reduced_axes(0) == frozenset()


def test_an_axis_that_is_read_and_in_no_output_is_reduced():
    found = bound("b i, o i -> b o, b", [(4, 3), (5, 3)])
    assert found.reduced_axes(0) == {"i"}
    assert found.reduced_axes(1) == {"i", "o"}


# -- groups ------------------------------------------------------------------------------------------------------------


@st.composite
def splits(draw, extents):
    """Axis -> interval, not empty."""
    found = {}
    for axis, extent in extents.items():
        lo = draw(st.integers(0, extent - 1))
        found[axis] = (lo, draw(st.integers(lo + 1, extent)))
    return found


@given(st.data())
def test_the_box_of_a_group_is_the_set_of_its_points_or_refused(data):
    extents = {axis: data.draw(st.integers(1, 4)) for axis in "hde"}
    intervals = data.draw(splits(extents))
    volume = extents["h"] * extents["d"] * extents["e"]
    group = bound("(h d e) -> (h d e)", [(volume,)], sizes=extents)
    points = {
        (h * extents["d"] + d) * extents["e"] + e
        for h in range(*intervals["h"])
        for d in range(*intervals["d"])
        for e in range(*intervals["e"])
    }
    if len(points) == max(points) - min(points) + 1:
        assert group.rect(0, intervals) == Rect((min(points),), (max(points) + 1,))
    else:
        with pytest.raises(
            ValueError, match="only a split that is contiguous in memory order is allowed"
        ):
            group.rect(0, intervals)


def test_an_empty_interval_makes_an_empty_group():
    group = bound("(h d) -> h d", [(6,)], sizes={"h": 2})
    assert group.rect(0, {"h": (1, 1)}).is_empty


# -- windows -----------------------------------------------------------------------------------------------------------


@st.composite
def windows(draw, transposed):
    return Window(
        "c",
        size=draw(st.integers(1, 4)),
        stride=draw(st.integers(1, 4)),
        padding=draw(st.integers(-3, 4)),
        dilation=draw(st.integers(1, 3)),
        transposed=transposed,
    )


def points_read(window, interval, extent):
    """Straight from the docstring of Window."""
    s, p, d = window.stride, window.padding, window.dilation
    taps = range(window.size)
    if window.transposed:
        return {
            q for q in range(extent) for k in taps if interval[0] <= q * s - p + k * d < interval[1]
        }
    return {q for j in range(*interval) for k in taps if 0 <= (q := j * s - p + k * d) < extent}


@pytest.mark.parametrize("transposed", [False, True])
@given(data=st.data())
def test_the_image_of_a_window_holds_every_point_read(transposed, data):
    window = data.draw(windows(transposed))
    extent = data.draw(st.integers(1, 12))
    lo = data.draw(st.integers(0, 10))
    interval = (lo, lo + data.draw(st.integers(1, 6)))
    first, last = window.image(interval, extent)
    points = points_read(window, interval, extent)
    assert 0 <= first <= last <= extent
    assert points <= set(range(first, last))
    if window.dilation == 1 and window.size >= window.stride:  # no gaps: nothing else is read
        assert points == set(range(first, last))


@given(data=st.data())
def test_a_window_and_its_transpose_are_the_same_relation(data):
    window, turned = data.draw(windows(False)), None
    turned = Window(
        "c", window.size, window.stride, window.padding, window.dilation, transposed=True
    )
    extent, j, q = (
        data.draw(st.integers(1, 12)),
        data.draw(st.integers(0, 9)),
        data.draw(st.integers(0, 11)),
    )
    assume(q < extent)
    assert (q in points_read(window, (j, j + 1), extent)) == (
        j in points_read(turned, (q, q + 1), 10)
    )


def test_an_empty_interval_reads_nothing():
    assert Window("c", 3).image((2, 2), 9) == (0, 0)


@given(
    st.integers(1, 30), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(1, 3)
)
def test_the_output_extent_is_the_number_of_whole_windows(extent, size, stride, padding, dilation):
    window = Window("c", size, stride, padding, dilation)
    fits = [j for j in range(99) if j * stride + (size - 1) * dilation < extent + 2 * padding]
    assert max(window.output_extent(extent), 0) == len(fits)


def test_a_halo_stops_at_the_border():
    found = bound("b w -> b c", [(2, 9)], windows={"w": Window("c", size=3, padding=1)})
    assert found.rect(0, {"c": (0, 3)}) == Rect((0, 0), (2, 4))
    assert found.rect(0, {"c": (3, 6)}) == Rect((0, 2), (2, 7))
    assert found.rect(0, {"c": (6, 9), "b": (1, 2)}) == Rect((1, 5), (2, 9))


def test_an_offset_window_reads_nothing_outside_of_its_part():
    parts = {"p": Window("c", padding=0), "q": Window("c", padding=4)}
    found = bound("p, q -> c", [(4,), (3,)], sizes={"c": 7}, windows=parts)
    assert found.rect(0, {"c": (2, 6)}) == Rect((2,), (4,))
    assert found.rect(1, {"c": (2, 6)}) == Rect((0,), (2,))
    assert found.rect(1, {"c": (0, 4)}).is_empty
