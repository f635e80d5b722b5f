"""Precisions that a graph cannot have."""

import pytest

import taskflow
from taskflow import Graph, differentiate
from tests import tiny
from tests.refusals import assert_refused


@pytest.fixture
def graph():
    graph = Graph()
    tiny.mean_square(tiny.linear(graph.input("x", (4, 3)), 2))
    return graph


def test_an_unknown_dtype(graph):
    message = "precision: dtype is 'float8', it is one of float32, tf32, float16, bfloat16"
    assert_refused(message, lambda: taskflow.precision(graph, "float8"))


@pytest.mark.parametrize("scale, shown", [("static", "'static'"), (0, "0"), (-2.0, "-2.0")])
def test_a_loss_scale_that_is_none(graph, scale, shown):
    message = f"precision: loss_scale is {shown}, it is 'dynamic', a positive number or None"
    assert_refused(message, lambda: taskflow.precision(graph, "float16", scale))


def test_a_graph_with_gradients(graph):
    differentiate(graph.regions["loss"], graph.parameters)
    message = "precision: the graph has gradients already; call it before the optimizer"
    assert_refused(message, lambda: taskflow.precision(graph, "float16"))


def test_a_second_precision(graph):
    graph = taskflow.precision(graph, "float16")
    message = "precision: the graph computes in float16 already"
    assert_refused(message, lambda: taskflow.precision(graph, "float32"))
