"""`taskflow.testing.check_operator` for every operator: the real executor, every split of every axis."""

import numpy as np
import pytest

import ops
from taskflow import Graph, LogicalRegion
from taskflow.testing import check_operator

from .cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operator(case: Case) -> None:
    options = {"high": case.high, "differentiable": case.is_differentiable, "moved": case.moved}
    checked = check_operator(case.build, case.reference, degrees=(2, 3, 4), **options)
    assert checked or all(op.extents[a] == 1 for op in case.build()[0].operators for a in op.split_axes)


def scale(kernel, backward_factor=1.0):
    def build() -> tuple[Graph, LogicalRegion]:
        graph = Graph()
        x, s = graph.input("x", (5, 3), "float64"), graph.input("s", (3,), "float64")

        def backward(op, gy):
            gx = ops.multiply(gy, op.inputs[1])
            if backward_factor != 1.0:
                gx = ops.add(gx, gx)
            return gx, ops.sum_to(ops.multiply(gy, op.inputs[0]), op.inputs[1])

        return graph, graph.launch("scale", "b c, c -> b c", [x, s], kernel=kernel, backward=backward)

    return build


def right(ctx, x, s, y):
    ctx.xp.multiply(x, s, out=y)


def test_a_right_operator_passes_and_every_split_is_named():
    assert ("scale", "c", 3) in check_operator(scale(right), lambda v: v["x"] * v["s"])


def test_a_wrong_value_is_found():
    with pytest.raises(AssertionError, match="value of 'scale'"):
        check_operator(scale(right), lambda v: v["x"] + v["s"])


def test_a_wrong_gradient_is_found():
    with pytest.raises(AssertionError, match="gradient of 'x'"):
        check_operator(scale(right, 2.0))


def test_a_kernel_that_depends_on_its_tile_is_found():
    def centred(ctx, x, s, y):
        y[...] = x * s - np.mean(x)

    with pytest.raises(AssertionError, match="split b:2"):
        check_operator(scale(centred), differentiable=False)


def test_an_unwritten_element_is_found():
    def lazy(ctx, x, s, y):
        y[1:] = x[1:] * s

    with pytest.raises(PermissionError, match="leaves 3 of 15 elements unwritten"):
        check_operator(scale(lazy))
