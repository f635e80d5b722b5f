"""Patterns, windows and extents that cannot be."""

import pytest

from taskflow import Graph, Pattern, Window
from tests import tiny
from tests.refusals import assert_refused

PATTERNS = {
    "b i, o i b o": "pattern 'b i, o i b o': '->' is missing between inputs and outputs",
    "max[b c] -> b": "pattern 'max[b c] -> b': a reduction stands in an output, not in the input 'max[b c]'",
    "b ? -> b": "pattern 'b ? -> b': cannot read '?' in the term 'b ?'",
    "b . -> b": "pattern 'b . -> b': cannot read '.' in the term 'b .'",
    "b 2 -> b": "pattern 'b 2 -> b': cannot read '2' in the term 'b 2'",
    "b -> min[b]": "pattern 'b -> min[b]': cannot read '[b]' in the term 'min[b]'",
    "b (h (d e)) -> b": "pattern 'b (h (d e)) -> b': a group inside a group in the term 'b (h (d e))'",
    "b h d) -> b": "pattern 'b h d) -> b': ')' without '(' in the term 'b h d)'",
    "b (h d -> b": "pattern 'b (h d -> b': ')' is missing in the term 'b (h d'",
    "b b -> b": "pattern 'b b -> b': axis 'b' stands twice in the term 'b b'",
    "b -> b (h b)": "pattern 'b -> b (h b)': axis 'b' stands twice in the term 'b (h b)'",
}


@pytest.mark.parametrize("text", PATTERNS)
def test_a_pattern_that_cannot_be_read(text):
    assert_refused(PATTERNS[text], lambda: Pattern.parse(text))


BINDINGS = {
    "number of inputs": (
        "b, b -> b",
        [(3,)],
        {},
        {},
        "'op': pattern 'b, b -> b' has 2 inputs, 1 were given",
    ),
    "dimensions": (
        "b i -> b",
        [(3,)],
        {},
        {},
        "'op': term 'b i' has 2 dimensions, region 'r0' has shape (3,)",
    ),
    "scalar": (
        ". -> .",
        [(3,)],
        {},
        {},
        "'op': term '.' has 0 dimensions, region 'r0' has shape (3,)",
    ),
    "inputs differ": (
        "b i, o i -> b o",
        [(4, 3), (5, 2)],
        {},
        {},
        "'op': axis 'i' is 3 in 'r0' and 2 in 'r1'",
    ),
    "sizes differ": (
        "b i -> b",
        [(4, 3)],
        {"i": 2},
        {},
        "'op': axis 'i' is 2 in sizes and 3 in 'r0'",
    ),
    "no extent": (
        "b -> b c",
        [(4,)],
        {},
        {},
        "'op': axis 'c' of the output 'b c' has no extent: name it in sizes",
    ),
    "no points": ("b -> b c", [(4,)], {"c": 0}, {}, "'op': axis 'c' has 0 points"),
    "one": ("b 1 -> b", [(4, 2)], {}, {}, "'op': a dimension '1' has 2 points in 'r0'"),
    "group": (
        "b (h d) -> b",
        [(4, 6)],
        {"h": 4},
        {},
        "'op': group '(h d)' has 6 points in 'r0', which does not agree with {'h': 4, 'd': None}",
    ),
    "two unknown": (
        "b (h d) -> b",
        [(4, 6)],
        {},
        {},
        "'op': group '(h d)' has 6 points in 'r0', which does not agree with {'h': None, 'd': None}",
    ),
    "window in an output": (
        "b -> w",
        [(4,)],
        {},
        {"w": Window("b")},
        "'op': 'w' is a window; a window belongs into an input",
    ),
    "window nowhere": (
        "b -> b",
        [(4,)],
        {},
        {"w": Window("b")},
        "'op': window 'w' stands in no input of the pattern 'b -> b'",
    ),
    "window in a group": (
        "b (w d) -> b d",
        [(4, 6)],
        {"d": 2},
        {"w": Window("b")},
        "'op': window 'w' stands in a group",
    ),
    "window of nothing": (
        "w b -> b",
        [(4, 3)],
        {},
        {"w": Window("c", transposed=True)},
        "'op': window 'w' follows axis 'c', which has no extent",
    ),
    "window of another axis": (
        "w -> c",
        [(4,)],
        {},
        {"w": Window("d")},
        "'op': axis 'c' of the output 'c' has no extent: window 'w' follows 'd', which stands in no term",
    ),
    "window too large": (
        "w -> c",
        [(4,)],
        {},
        {"w": Window("c", size=5)},
        "'op': axis 'c' has 0 points",
    ),
}


@pytest.mark.parametrize("case", BINDINGS)
def test_extents_that_do_not_agree(case):
    pattern, shapes, sizes, windows, message = BINDINGS[case]
    graph = Graph()
    regions = [graph.input(f"r{k}", shape) for k, shape in enumerate(shapes)]
    options = {"kernel": tiny._copy, "sizes": sizes, "windows": windows}
    assert_refused(message, lambda: graph.launch("op", pattern, regions, **options))
    assert not graph.operators


def test_a_weight_of_another_width():
    graph = Graph()
    x, w = graph.input("x", (64, 784)), graph.parameter("fc1.weight", (256, 512))
    message = "'fc1': axis 'i' is 784 in 'x' and 512 in 'fc1.weight'"
    assert_refused(
        message, lambda: graph.launch("fc1", "b i, o i -> b o", [x, w], kernel=tiny._matmul)
    )


@pytest.mark.parametrize("bad", [{"size": 0}, {"stride": 0}, {"dilation": -1}])
def test_a_window_without_points(bad):
    values = {"size": 1, "stride": 1, "dilation": 1} | bad
    message = "window of axis 'c': size, stride and dilation are positive, not {size}, {stride}, {dilation}"
    assert_refused(message.format(**values), lambda: Window("c", **bad))


def test_a_window_of_no_axis():
    assert_refused("window: axis is 3, the name of an axis is needed", lambda: Window(3), TypeError)
