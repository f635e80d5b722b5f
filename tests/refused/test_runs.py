"""Runs that stop: feeds, regions, memory, orders, and a loss that is not a number."""

from threading import Event, Thread

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Device, Executor, Graph, MachineModel, lower
from tests import tiny
from tests.refusals import assert_refused

TWO = MachineModel.uniform(2)
X = np.ones((6, 4), np.float32)


def network(width=4, dtype="float32"):
    graph = Graph()
    tiny.sgd(tiny.mean_square(tiny.linear(graph.input("x", (6, 4), dtype), width)))
    return graph


def task_graph(graph):
    return lower(graph, taskflow.single_device(graph, TWO), TWO)


@pytest.fixture
def step():
    with Executor(task_graph(network())) as step:
        yield step


FEEDS = {
    "missing": ({}, "feed 'x': is missing"),
    "unknown": ({"x": X, "labels": X}, "feed 'labels': the graph has no input of this name"),
    "no input": ({"x": X, "fc.weight": X}, "feed 'fc.weight': the graph has no input of this name"),
    "shape": ({"x": X[:5]}, "feed 'x': has shape (5, 4), the region (6, 4)"),
    "dimensions": ({"x": X[None]}, "feed 'x': has shape (1, 6, 4), the region (6, 4)"),
    "dtype": ({"x": X.astype("float64")}, "feed 'x': has dtype float64, the region float32"),
    "list": ({"x": X.tolist()}, "feed 'x': has dtype float64, the region float32"),
}


@pytest.mark.parametrize("case", FEEDS)
def test_a_feed_that_does_not_fit(step, case):
    feeds, message = FEEDS[case]
    assert_refused(message, lambda: step(feeds))
    assert step.steps == 0


@pytest.mark.parametrize("value", [X[:5], X.astype("float64"), 1.0])
def test_a_function_that_gives_another_box(step, value):
    found = np.asarray(value)
    message = f"feed 'x': the function gave {found.shape} {found.dtype} for the box [0:6, 0:4], which is (6, 4) float32"
    assert_refused(message, lambda: step({"x": lambda rect: value}))


def test_a_loss_that_is_not_a_number(step):
    step({"x": X})
    assert_refused(
        "step 1: the loss is nan; nothing has changed",
        lambda: step({"x": X * np.nan}),
        FloatingPointError,
    )


def test_a_gradient_that_is_not_finite():
    """The loss is: the slope of a square root at 0 alone is infinite."""
    graph = Graph()
    ops.sgd(
        ops.mean(ops.sqrt(ops.multiply(graph.input("x", (3,)), graph.parameter("w", (3,), 1.0)))),
        0.1,
    )
    good = np.ones(3, np.float32)
    with Executor(task_graph(graph)) as step:
        step({"x": good})
        message = "step 1: the gradient of 'w' is not finite; nothing has changed"
        assert_refused(message, lambda: step({"x": good * 0}), FloatingPointError)


def test_a_loss_that_is_infinite(step):
    step.write("fc.weight", np.full((4, 4), 1e30, np.float32))
    with np.errstate(over="ignore"):
        assert_refused(
            "step 0: the loss is inf; nothing has changed",
            lambda: step({"x": X}),
            FloatingPointError,
        )


def test_a_loss_that_is_not_a_number_in_an_evaluation(step):
    step({"x": X})
    graph = Graph()
    graph.output("loss", tiny.mean_square(tiny.linear(graph.input("x", (6, 4)), 4)))
    evaluate = Executor(task_graph(graph), share=step)
    assert_refused(
        "step 1: the loss is nan", lambda: evaluate({"x": X * np.nan}), FloatingPointError
    )


def test_a_region_that_does_not_persist(step):
    message = "region 'x': the graph has no persistent region of this name"
    assert_refused(message, lambda: step.read("x"))
    assert_refused(message, lambda: step.write("x", X))


def test_a_value_of_another_shape(step):
    message = "write 'fc.weight': the value has shape (4,), the region (4, 4)"
    assert_refused(message, lambda: step.write("fc.weight", np.ones(4)))


def test_a_graph_that_does_not_fit_the_memory():
    """fc.weight and its momentum persist: 2 x 1024. At loss.dx live x: 96 -> 128, fc and loss.dx: 1536 each, loss
    and loss.one: 4 -> 64 each.
    """
    machine = MachineModel.uniform(2, Device(memory_bytes=4000))
    message = (
        "device 1: the task graph needs 5376 B (2048 B for parameters and state, 3328 B at the peak of a step), "
        "the device has 4000 B"
    )
    graph = network(64)
    assert_refused(
        message, lambda: Executor(lower(graph, taskflow.single_device(graph, machine, 1), machine))
    )


def test_regions_that_the_shared_executor_lacks(step):
    graph = Graph()
    tiny.linear(graph.input("x", (6, 4)), 4, name="other")
    message = "executor: the shared executor has no region 'other.weight'"
    assert_refused(message, lambda: Executor(task_graph(graph), share=step))


@pytest.mark.parametrize("width, dtype", [(5, "float32"), (4, "float64")])
def test_regions_that_differ_in_the_shared_executor(step, width, dtype):
    graph = Graph()
    tiny.linear(graph.input("x", (6, 4), dtype), width)
    message = f"executor: region 'fc.weight' is ({width}, 4) {dtype}, in the shared executor (4, 4) float32"
    assert_refused(message, lambda: Executor(task_graph(graph), share=step))


def test_a_transport_that_is_not_there():
    message = "executor: transport is one of auto, shared, messages, nccl, not 'pigeons'"
    assert_refused(message, lambda: Executor(task_graph(network()), transport="pigeons"))
    message = "executor: transport='nccl' is for cuda devices, these are cpu"
    assert_refused(message, lambda: Executor(task_graph(network()), transport="nccl"))


def test_an_order_that_is_none():
    rows = task_graph(network())
    count = len(rows)
    message = f"order: is no permutation of {count} rows"
    assert_refused(message, lambda: rows.reordered(range(count - 1)))
    assert_refused(message, lambda: rows.reordered([0] * count))
    message = "order: row 1 stands before row 0, for which it waits"
    assert_refused(message, lambda: rows.reordered([1, 0, *range(2, count)]))


def test_a_step_of_a_closed_executor(step):
    step.close()
    assert_refused("executor: it is closed", lambda: step({"x": X}))


WRITTEN = {
    "imaginary": (np.full((4, 4), 1j), "the value is complex128, the region float32"),
    "too large": (np.full((4, 4), 1e39), "float32 cannot hold 1e+39"),
    "no numbers": (np.full((4, 4), "1"), "the value is <U1, the region float32"),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_value_that_the_dtype_cannot_hold(step, case):
    value, message = WRITTEN[case]
    before = step.read("fc.weight")
    assert_refused(f"write 'fc.weight': {message}", lambda: step.write("fc.weight", value))
    np.testing.assert_array_equal(step.read("fc.weight"), before)
    step.write("fc.weight", np.full((4, 4), np.inf))  # is one that float32 has


def test_a_number_that_is_not_whole():
    graph = Graph()
    tiny.linear(graph.input("x", (6, 4)), 4)
    graph.parameter("count", (), 0.0, "uint8", trainable=False)
    step = Executor(task_graph(graph))
    for number in (3.5, 256, -1, np.nan):
        assert_refused(
            f"write 'count': uint8 cannot hold {number}",
            lambda number=number: step.write("count", number),
        )
    step.write("count", 255.0)
    assert step.read("count") == 255


def test_two_calls_at_once(step):
    """Of two threads: the second call comes while the first one reads its feed."""
    inside, leave, found = Event(), Event(), []

    def slow(rect):
        inside.set()
        leave.wait()
        return X[rect.slices()]

    first = Thread(target=lambda: found.append(step({"x": slow})))
    first.start()
    inside.wait()
    message = "executor: it is in use, by another thread or by a feed; it takes one call at a time"
    for call in (
        lambda: step({"x": X}),
        lambda: step.read("fc.weight"),
        lambda: step.write("fc.weight", X[:4]),
    ):
        assert_refused(message, call)
    leave.set()
    first.join()
    assert len(found) == step.steps == 1
