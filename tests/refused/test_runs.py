"""Runs that stop: feeds, regions, memory, orders, and a loss that is not a number."""

from threading import Event, Thread

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Device, Executor, Graph, MachineModel, lower
from tests import tiny
from tests.refusals import assert_refused, each_refused

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


def feeding(feeds):
    """A call of a step that is not counted."""

    def call(step):
        try:
            step(feeds)
        finally:
            assert step.steps == 0

    return call


def share(step, name="fc", width=4, dtype="float32"):
    """An executor of another graph, which shares the regions of `step`."""
    graph = Graph()
    tiny.linear(graph.input("x", (6, 4), dtype), width, name=name)
    Executor(task_graph(graph), share=step)


def step_into_a_gradient():
    """The loss is finite: the slope of a square root at 0 alone is infinite."""
    graph = Graph()
    root = ops.sqrt(ops.multiply(graph.input("x", (3,)), graph.parameter("w", (3,), 1.0)))
    ops.sgd(ops.mean(root), 0.1)
    good = np.ones(3, np.float32)
    with Executor(task_graph(graph)) as step:
        step({"x": good})
        step({"x": good * 0})


def step_into_infinity(step):
    step.write("fc.weight", np.full((4, 4), 1e30, np.float32))
    with np.errstate(over="ignore"):
        step({"x": X})


def evaluate(step):
    step({"x": X})
    graph = Graph()
    graph.output("loss", tiny.mean_square(tiny.linear(graph.input("x", (6, 4)), 4)))
    Executor(task_graph(graph), share=step)({"x": X * np.nan})


def execute_in_little_memory():
    """fc.weight and its momentum persist: 2 x 1024. At loss.dx live x: 96 -> 128, fc and loss.dx: 1536 each, loss
    and loss.one: 4 -> 64 each.
    """
    graph, machine = network(64), MachineModel.uniform(2, Device(memory_bytes=4000))
    Executor(lower(graph, taskflow.single_device(graph, machine, 1), machine))


def reorder(change):
    """A call that gives the rows another order."""

    def call():
        rows = task_graph(network())
        rows.reordered(change(list(range(len(rows)))))

    return call


def step_closed(step):
    step.close()
    step({"x": X})


FEEDS = [
    ("missing", {}, "feed 'x': is missing"),
    ("unknown", {"x": X, "labels": X}, "feed 'labels': the graph has no input of this name"),
    (
        "no input",
        {"x": X, "fc.weight": X},
        "feed 'fc.weight': the graph has no input of this name",
    ),
    ("shape", {"x": X[:5]}, "feed 'x': has shape (5, 4), the region (6, 4)"),
    ("dimensions", {"x": X[None]}, "feed 'x': has shape (1, 6, 4), the region (6, 4)"),
    ("dtype", {"x": X.astype("float64")}, "feed 'x': has dtype float64, the region float32"),
    ("list", {"x": X.tolist()}, "feed 'x': has dtype float64, the region float32"),
    *(
        (
            f"{found} of a function",
            {"x": lambda rect, value=value: value},
            f"feed 'x': the function gave {found} for the box [0:6, 0:4], which is (6, 4) float32",
        )
        for value, found in (
            (X[:5], "(5, 4) float32"),
            (X.astype("float64"), "(6, 4) float64"),
            (1.0, "() float64"),
        )
    ),
]
NOT_PERSISTENT = "region 'x': the graph has no persistent region of this name"
REFUSED = [
    *((what, feeding(feeds), message) for what, feeds, message in FEEDS),
    (
        "a loss that is not a number",
        lambda step: (step({"x": X}), step({"x": X * np.nan})),
        "step 1: the loss is nan; nothing has changed",
        FloatingPointError,
    ),
    (
        "a gradient that is not finite",
        step_into_a_gradient,
        "step 1: the gradient of 'w' is not finite; nothing has changed",
        FloatingPointError,
    ),
    (
        "a loss that is infinite",
        step_into_infinity,
        "step 0: the loss is inf; nothing has changed",
        FloatingPointError,
    ),
    ("a loss in an evaluation", evaluate, "step 1: the loss is nan", FloatingPointError),
    ("reading what does not persist", lambda step: step.read("x"), NOT_PERSISTENT),
    ("writing what does not persist", lambda step: step.write("x", X), NOT_PERSISTENT),
    (
        "a value of another shape",
        lambda step: step.write("fc.weight", np.ones(4)),
        "write 'fc.weight': the value has shape (4,), the region (4, 4)",
    ),
    (
        "a graph that does not fit the memory",
        execute_in_little_memory,
        "device 1: the task graph needs 5376 B (2048 B for parameters and state, 3328 B at the peak of a step), "
        "the device has 4000 B",
    ),
    (
        "a region that the shared executor lacks",
        lambda step: share(step, "other"),
        "executor: the shared executor has no region 'other.weight'",
    ),
    (
        "a width that the shared executor has not",
        lambda step: share(step, width=5),
        "executor: region 'fc.weight' is (5, 4) float32, in the shared executor (4, 4) float32",
    ),
    (
        "a dtype that the shared executor has not",
        lambda step: share(step, dtype="float64"),
        "executor: region 'fc.weight' is (4, 4) float64, in the shared executor (4, 4) float32",
    ),
    (
        "a transport that is not there",
        lambda: Executor(task_graph(network()), transport="pigeons"),
        "executor: transport is one of auto, shared, messages, nccl, not 'pigeons'",
    ),
    (
        "a transport of other devices",
        lambda: Executor(task_graph(network()), transport="nccl"),
        "executor: transport='nccl' is for cuda devices, these are cpu",
    ),
    (
        "an order that lacks a row",
        reorder(lambda rows: rows[:-1]),
        "order: is no permutation of 7 rows",
    ),
    (
        "an order of one row",
        reorder(lambda rows: [0] * len(rows)),
        "order: is no permutation of 7 rows",
    ),
    (
        "an order against a dependence",
        reorder(lambda rows: [1, 0, *rows[2:]]),
        "order: row 1 stands before row 0, for which it waits",
    ),
    ("a step of a closed executor", step_closed, "executor: it is closed"),
]
test_refused = each_refused(REFUSED)


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
