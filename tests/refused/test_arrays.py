"""What is given as an array, and says more than its numbers, or has numbers that do not fit, is refused by its name."""

import numpy as np
import pytest

from taskflow import Executor, Graph, MachineModel, lower, single_device
from taskflow.train.batches import Batches
from taskflow.train.loading import feeds_of
from tests import tiny
from tests.refusals import each_refused

ONE = MachineModel.uniform(1)
X = np.ones((2, 3), np.float32)


class Metres(np.ndarray):
    """Numbers of a unit."""


class Sparse:
    """As those of scipy."""

    def toarray(self):
        return X


class Attached:
    """As a tensor that wants a gradient, or lies elsewhere."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


@pytest.fixture(scope="module")
def graph():
    graph = Graph()
    graph.output("y", tiny.linear(graph.input("x", (2, 3)), 3, name="fc"))
    graph.input("t", (2,), "int32")
    return graph


@pytest.fixture(scope="module")
def step(graph):
    with Executor(lower(graph, single_device(graph, ONE), ONE)) as step:
        yield step


def ways(value):
    """How a value is given: the way, how its message begins, the call."""
    batch = {"x": value, "t": np.zeros(2, np.int64)}
    return [
        ("feed", "feed 'x'", lambda step: step({"x": value})),
        ("function", "feed 'x'", lambda step: step({"x": lambda rect: value})),
        ("write", "write 'fc.weight'", lambda step: step.write("fc.weight", value)),
        ("batch", "batches: 'x'", lambda graph: feeds_of(batch, graph.inputs)),
        ("batches", "batches: 'x'", lambda: Batches({"x": value}, 1)),
    ]


MASKED = np.ma.masked_array(X, [[True, False, False]] * 2)
ONLY = "of which only the numbers would be left; give an array"
READ = "cannot be read as an array: Can't call numpy() on Tensor that requires grad"
OBJECTS = "of Python objects, numbers are needed"
LOST = [
    ("mask", MASKED, "2 of 6 numbers are masked; give them values, as by filled()", ValueError),
    ("unit", X.view(Metres), f"is a Metres, {ONLY}", TypeError),
    ("chars", np.char.asarray([["a"] * 3] * 2), f"is a chararray, {ONLY}", TypeError),
    ("sparse", Sparse(), "is a sparse Sparse; give an array, as by toarray()", TypeError),
    ("tensor", Attached(), READ, TypeError),
    ("None", None, f"is a NoneType {OBJECTS}", TypeError),
    ("objects", np.array([[1, 2, None]] * 2), f"is a ndarray {OBJECTS}", TypeError),
]


def written(dtype, number):
    graph = Graph()
    state = graph.parameter("state", (1,), 0, dtype, trainable=False)
    graph.launch("set", "a ->", [state], kernel=lambda ctx, s: None, writes=[state])
    with Executor(lower(graph, single_device(graph, ONE), ONE)) as step:
        step.write("state", np.array([number]))


WRITTEN = [
    ("int32", 2**31, "int32 cannot hold 2147483648"),
    ("int32", np.nan, "int32 cannot hold nan"),
    ("int32", 0.5, "int32 cannot hold 0.5"),
    ("uint8", -1, "uint8 cannot hold -1"),
    ("bool", 2, "bool cannot hold 2"),
    ("float32", 1e39, "float32 cannot hold 1e+39"),
    ("float16", 70000, "float16 cannot hold 70000"),
    ("float32", 1j, "the value is complex128, the region float32"),
    ("float32", "1", "the value is <U1, the region float32"),
    ("int32", np.datetime64("2020-01-01"), "the value is datetime64[D], the region int32"),
]
TARGETS = [
    ("too large", np.array([0, 2**31]), "batches: 't': int32 cannot hold 2147483648"),
    ("too small", np.array([0, -(2**31) - 1]), "batches: 't': int32 cannot hold -2147483649"),
    (
        "unsigned",
        np.array([0, 2**63], np.uint64),
        "batches: 't': int32 cannot hold 9223372036854775808",
    ),
    ("floats", np.array([0.0, 1.0]), "batches: 't' is int32, a batch has float64"),
]
REFUSED = [
    *(
        (f"{what} as {way}", call, f"{where}: {message}", kind)
        for what, value, message, kind in LOST
        for way, where, call in ways(value)
        if way != "batches" or what in ("mask", "unit", "sparse")
    ),
    *(
        (f"{number} as {dtype}", lambda d=dtype, n=number: written(d, n), f"write 'state': {said}")
        for dtype, number, said in WRITTEN
    ),
    *(
        (f"targets {what}", lambda graph, t=t: feeds_of({"x": X, "t": t}, graph.inputs), message)
        for what, t, message in TARGETS
    ),
    (
        "samples too large",
        lambda graph: feeds_of(
            {"x": X * np.float64(1e39), "t": np.zeros(2, np.int32)}, graph.inputs
        ),
        "batches: 'x': float32 cannot hold 1e+39",
    ),
    (
        "bytes in another order",
        lambda step: step({"x": X.astype(">f4")}),
        "feed 'x': has dtype >f4, the region float32",
    ),
]
test_refused = each_refused(REFUSED)


def test_rows_of_different_lengths(step):
    with pytest.raises(
        ValueError, match=r"^feed 'x': cannot be read as an array: setting an array element"
    ):
        step({"x": [[1.0, 2.0], [3.0]]})


def test_what_is_right(step):
    """Nothing is masked, a view from the end, bytes in another order by their values, memory of a file."""
    expected = step({"x": X})["y"]
    for value in (np.ma.masked_array(X), X[::-1][::-1]):
        np.testing.assert_array_equal(step({"x": value})["y"], expected)
    step.write("fc.weight", step.read("fc.weight").astype(">f8"))
    np.testing.assert_array_equal(step({"x": X})["y"], expected)
