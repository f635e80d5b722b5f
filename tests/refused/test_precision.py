"""Precisions that a graph cannot have."""

import pytest

from taskflow import Graph, differentiate, precision
from tests import tiny
from tests.refusals import each_refused, of_values


@pytest.fixture
def graph():
    graph = Graph()
    tiny.mean_square(tiny.linear(graph.input("x", (4, 3)), 2))
    return graph


def after_differentiating(graph):
    differentiate(graph.regions["loss"], graph.parameters)
    precision(graph, "float16")


REFUSED = [
    (
        "an unknown dtype",
        lambda graph: precision(graph, "float8"),
        "precision: dtype is 'float8', it is one of float32, tf32, float16, bfloat16",
    ),
    *of_values(
        "precision: loss_scale is {!r}, it is 'dynamic', a positive number or None",
        lambda scale, graph: precision(graph, "float16", scale),
        ("static", 0, -2.0),
    ),
    (
        "a graph with gradients",
        after_differentiating,
        "precision: the graph has gradients already; call it before the optimizer",
    ),
    (
        "a second precision",
        lambda graph: precision(precision(graph, "float16"), "float32"),
        "precision: the graph computes in float16 already",
    ),
]
test_refused = each_refused(REFUSED)
