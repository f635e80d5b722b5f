"""`taskflow.testing.check_operator` for every operator: the real executor, every split of every axis."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

import ops
from taskflow import Graph, LogicalRegion, replace_regions
from taskflow.testing import check_operator
from tests.refusals import assert_refused
from tests.sampling import IS_THOROUGH, sampled

from .cases import CASES, Case

SPLIT = {case.name for case in sampled(CASES)}  # the first case of each operator


def degrees_of(case: Case) -> tuple[int, ...]:
    """Each operator's first case is split in two, its wide case in three; `test_operators` splits some others."""
    if IS_THOROUGH:
        return (2, 3, 4)
    if case.name.endswith("wide"):
        return (3,)
    return (2,) if case.name in SPLIT and not case.is_variant else ()


def moved_of(case: Case) -> int:
    """Elements of each region that are moved for gradients."""
    return case.moved if IS_THOROUGH else min(case.moved, 12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operator(case: Case) -> None:
    degrees = degrees_of(case)
    options = {"high": case.high, "differentiable": case.is_differentiable, "moved": moved_of(case)}
    checked = check_operator(
        case.build, case.reference, degrees=degrees, tolerance=1e-12, **options
    )
    assert (
        checked
        or not degrees
        or all(op.extents[a] == 1 for op in case.build()[0].operators for a in op.split_axes)
    )


def scale(kernel, backward_factor=1.0):
    def build() -> tuple[Graph, LogicalRegion]:
        graph = Graph()
        x, s = graph.input("x", (5, 3), "float64"), graph.input("s", (3,), "float64")

        def backward(op, gy):
            gx = ops.multiply(gy, op.inputs[1])
            if backward_factor != 1.0:
                gx = ops.add(gx, gx)
            return gx, ops.sum_to(ops.multiply(gy, op.inputs[0]), op.inputs[1])

        return graph, graph.launch(
            "scale", "b c, c -> b c", [x, s], kernel=kernel, backward=backward
        )

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


# -- what is refused, and what is said ---------------------------------------------------------------------------------


def in_dtype(dtype, factor=1.0):
    """y = sin(x) w, with a gradient of `factor` times the right one."""

    def build():
        graph = Graph()
        x, w = graph.input("x", (5, 3), dtype), graph.parameter("w", (3,), 1.0, dtype)
        y = ops.multiply(ops.sin(x), w)
        graph.operators[0] = replace(
            graph.operators[0], backward=lambda op, g: ops.multiply(wave(op, g), factor)
        )
        return graph, y

    def wave(op, g):
        return ops.multiply(g, ops.cos(op.inputs[0]))

    return build


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_gradients_of_any_dtype_are_checked(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    assert ("multiply", "c", 3) in check_operator(
        in_dtype(dtype), lambda v: np.sin(v["x"]) * v["w"]
    )
    with pytest.raises(
        AssertionError, match=r"^gradient of 'x': 15 of 15 elements differ, at \(0,\) .* instead of"
    ):
        check_operator(in_dtype(dtype, 1.01))


def test_a_kernel_that_is_wrong_in_float32_alone_is_found():
    def coarse(ctx, x, s, y):
        ctx.xp.multiply(x, s, out=y)
        y *= 1.01 if y.dtype == np.float32 else 1.0

    def narrow():
        graph, y = scale(coarse)()
        graph = replace_regions(
            graph, {r.name: replace(r, dtype="float32") for r in graph.regions.values()}
        )
        return graph, graph.regions[y.name]

    with pytest.raises(
        AssertionError, match=r"^value of 'scale' in float32: \d+ of 15 elements differ"
    ):
        check_operator(narrow)
    check_operator(scale(coarse))


def test_a_gradient_that_is_wrong_in_float32_alone_is_found():
    def coarse(ctx, g, x, out):
        np.multiply(g, np.cos(x) * (1.01 if g.dtype == np.float32 else 1), out=out)

    def build(dtype):
        graph = Graph()
        y = ops.sin(graph.input("x", (5, 3), dtype))
        backward = lambda op, g: g.graph.launch(
            "dx", "b c, b c -> b c", [g, op.inputs[0]], kernel=coarse
        )
        graph.operators[0] = replace(graph.operators[0], backward=backward)
        return graph, y

    with pytest.raises(
        AssertionError, match=r"^gradient of x in float32: \d+ of 15 elements differ"
    ):
        check_operator(lambda: build("float32"))
    check_operator(lambda: build("float64"))


def test_a_kernel_that_depends_on_what_was_there_before_is_found():
    def adds(ctx, x, y):
        y *= 0
        y += x

    def half_made(ctx, x, y):
        work = ctx.scratch("work", (5,), "float64")
        work[1:] = 1
        np.multiply(x, np.minimum(work, 1), out=y)

    for kernel in (adds, half_made):
        with pytest.raises(
            PermissionError, match="depends on what the output or scratch memory held before"
        ):
            check_operator(wildly(kernel), differentiable=False)


def test_messages_have_one_line():
    with pytest.raises(AssertionError) as caught:
        check_operator(scale(right), lambda v: v["x"] + v["s"])
    assert "\n" not in str(caught.value)


def test_no_numbers_are_found_without_a_reference():
    def nothing(ctx, x, s, y):
        y.fill(np.nan)

    with pytest.raises(AssertionError, match=r"^value of 'scale': 15 of 15 elements are NaN$"):
        check_operator(scale(nothing), differentiable=False)
    with pytest.raises(AssertionError, match=r"^value of 'scale': 15 of 15 elements differ"):
        check_operator(scale(nothing), lambda v: v["x"] * v["s"])
    check_operator(scale(nothing), lambda v: np.full((5, 3), np.nan), differentiable=False)


@pytest.mark.parametrize("dtype", ["int8", "bool", "uint8"])
def test_an_unwritten_element_of_one_byte_is_found(dtype):
    def build(lazy):
        def kernel(ctx, x, y):
            y[1 if lazy else 0 :] = (
                251 if dtype == "uint8" else -5 if dtype == "int8" else True
            )  # the pattern itself

        graph = Graph()
        x = graph.input("x", (4,), dtype)
        return graph, graph.launch("mark", "b -> b", [x], kernel=kernel)

    check_operator(lambda: build(False), differentiable=False)
    with pytest.raises(PermissionError, match="output 0: leaves 1 of 4 elements unwritten"):
        check_operator(lambda: build(True), differentiable=False)


def wildly(kernel):
    def build():
        graph = Graph()
        return graph, graph.launch(
            "wild", "b -> b", [graph.input("x", (5,), "float64")], kernel=kernel
        )

    return build


def through(array, index):
    """An element by its address, whoever owns it."""
    return (ctypes.c_double * 1).from_address(
        array.__array_interface__["data"][0] + index * array.itemsize
    )


@pytest.mark.parametrize("where", [-1, 5])
def test_a_kernel_that_writes_outside_of_its_array_is_found(where):
    def wild(ctx, x, y):
        np.multiply(x, 2, out=y)
        through(y, where)[0] = 7

    with pytest.raises(PermissionError, match=r"output 0: the kernel writes outside of the array"):
        check_operator(wildly(wild), differentiable=False)


def test_a_kernel_that_writes_outside_of_its_scratch_memory_is_found():
    def wild(ctx, x, y):
        work = ctx.scratch("work", (5,), "float64")
        work.fill(1)
        through(work, 5)[0] = 1
        np.multiply(x, work, out=y)

    with pytest.raises(PermissionError, match=r"the kernel writes outside of its scratch memory"):
        check_operator(wildly(wild), differentiable=False)


def test_a_kernel_that_writes_what_it_may_only_read_is_found():
    def wild(ctx, x, y):
        np.copyto(y, x)
        through(x, 1)[0] = 7

    with pytest.raises(PermissionError, match=r"argument 0: is only read, and has been written"):
        check_operator(wildly(wild), differentiable=False)


def test_what_cannot_be_checked_is_refused():
    def build(dtype):
        graph = Graph()
        kernel = lambda ctx, x, y: np.copyto(y, x)
        return graph, graph.launch(
            "copy", "b -> b", [graph.input("x", (4,), dtype)], kernel=kernel, dtype="int32"
        )

    message = "check_operator: no input or parameter is of floating point: say differentiable=False"
    assert_refused(message, lambda: check_operator(lambda: build("int32")))
    message = "check_operator: 'copy' is int32: say differentiable=False"
    assert_refused(message, lambda: check_operator(lambda: build("float32")))
    message = "check_operator: 'x' is complex64, complex numbers are not checked"
    assert_refused(
        message, lambda: check_operator(lambda: build("complex64"), differentiable=False)
    )
