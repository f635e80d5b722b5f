"""What is given as an array, and says more than its numbers, or has numbers that do not fit, is refused by its name."""

import numpy as np
import pytest

from taskflow import Executor, Graph, MachineModel, lower, single_device
from taskflow.train.batches import Batches
from taskflow.train.loading import feeds_of
from tests import tiny
from tests.refusals import assert_refused

X = np.ones((2, 3), np.float32)
MASKED = np.ma.masked_array(X, [[True, False, False]] * 2)


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


LOST = {
    "mask": (MASKED, ValueError, "2 of 6 numbers are masked; give them values, as by filled()"),
    "unit": (
        X.view(Metres),
        TypeError,
        "is a Metres, of which only the numbers would be left; give an array",
    ),
    "chars": (
        np.char.asarray([["a"] * 3] * 2),
        TypeError,
        "is a chararray, of which only the numbers would be left; give an array",
    ),
    "sparse": (Sparse(), TypeError, "is a sparse Sparse; give an array, as by toarray()"),
    "tensor": (
        Attached(),
        TypeError,
        "cannot be read as an array: Can't call numpy() on Tensor that requires grad",
    ),
    "None": (None, TypeError, "is a NoneType of Python objects, numbers are needed"),
    "objects": (
        np.array([[1, 2, None]] * 2),
        TypeError,
        "is a ndarray of Python objects, numbers are needed",
    ),
}


@pytest.fixture(scope="module")
def graph():
    graph = Graph()
    graph.output("y", tiny.linear(graph.input("x", (2, 3)), 3, name="fc"))
    graph.input("t", (2,), "int32")
    return graph


@pytest.fixture(scope="module")
def step(graph):
    machine = MachineModel.uniform(1)
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        yield step


@pytest.mark.parametrize("case", LOST)
def test_what_would_be_lost(graph, step, case):
    value, kind, message = LOST[case]
    assert_refused(f"feed 'x': {message}", lambda: step({"x": value}), kind)
    assert_refused(f"feed 'x': {message}", lambda: step({"x": lambda rect: value}), kind)
    assert_refused(f"write 'fc.weight': {message}", lambda: step.write("fc.weight", value), kind)
    batch = {"x": value, "t": np.zeros(2, np.int64)}
    assert_refused(f"batches: 'x': {message}", lambda: feeds_of(batch, graph.inputs), kind)
    if case in ("mask", "unit", "sparse"):
        assert_refused(f"batches: 'x': {message}", lambda: Batches({"x": value}, 1), kind)


def test_rows_of_different_lengths(step):
    with pytest.raises(
        ValueError, match=r"^feed 'x': cannot be read as an array: setting an array element"
    ):
        step({"x": [[1.0, 2.0], [3.0]]})


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


@pytest.mark.parametrize(("dtype", "number", "message"), WRITTEN)
def test_numbers_that_do_not_fit(dtype, number, message):
    graph, machine = Graph(), MachineModel.uniform(1)
    state = graph.parameter("state", (1,), 0, dtype, trainable=False)
    graph.launch("set", "a ->", [state], kernel=lambda ctx, s: None, writes=[state])
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        assert_refused(f"write 'state': {message}", lambda: step.write("state", np.array([number])))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([0, 2**31]), "batches: 't': int32 cannot hold 2147483648"),
        (np.array([0, -(2**31) - 1]), "batches: 't': int32 cannot hold -2147483649"),
        (np.array([0, 2**63], np.uint64), "batches: 't': int32 cannot hold 9223372036854775808"),
        (np.array([0.0, 1.0]), "batches: 't' is int32, a batch has float64"),
    ],
)
def test_batches_that_do_not_fit(graph, values, message):
    assert_refused(message, lambda: feeds_of({"x": X, "t": values}, graph.inputs))


def test_floats_of_batches_that_do_not_fit(graph):
    batch = {"x": X * np.float64(1e39), "t": np.zeros(2, np.int32)}
    assert_refused("batches: 'x': float32 cannot hold 1e+39", lambda: feeds_of(batch, graph.inputs))


def test_what_is_right(step):
    """Nothing is masked, a view from the end, bytes in another order by their values, memory of a file."""
    expected = step({"x": X})["y"]
    for value in (np.ma.masked_array(X), X[::-1][::-1]):
        np.testing.assert_array_equal(step({"x": value})["y"], expected)
    step.write("fc.weight", step.read("fc.weight").astype(">f8"))
    np.testing.assert_array_equal(step({"x": X})["y"], expected)
    assert_refused(
        "feed 'x': has dtype >f4, the region float32", lambda: step({"x": X.astype(">f4")})
    )
