"""Checked execution on GPUs, on fake streams: with NumPy, and with the kernels as C++."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import Device, Executor, Graph, MachineModel, lower
from taskflow.core.dtypes import known_dtype
from taskflow.execute.check import poison, poisoned_elements
from tests import laws, shim, tiny
from tests.execute.gpu.test_streamed import feeds, network
from tests.fake_gpu.streams import FakeStreams
from tests.ops.strategies import operator_graphs
from tests.ops.test_precision import MODELS, convolutions, perceptron
from tests.ops.test_precision import trained as half_model
from tests.sampling import IS_THOROUGH
from tests.strategies import examples, random_strategy, strategies

TWO = MachineModel.uniform(2, Device(kind="cuda"))
X = np.arange(24.0).reshape(6, 4)

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
BACKENDS = [FakeStreams, pytest.param(shim.ShimStreams, marks=needs_compiler)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("strategy", [1, 2, 5] if IS_THOROUGH else [5])
def test_a_checked_run_gives_the_same_numbers(backend, strategy):
    graph = network()
    task_graph = lower(graph, random_strategy(graph, TWO, strategy), TWO)
    options = [{"record": False}, {"watch": True, "record": False}, {"watch": True}]
    first, *others = (
        laws.run(task_graph, feeds()[0], 3, backend=backend(strategy), **o) for o in options
    )
    for found in others:
        laws.assert_equal(found, first)


@pytest.mark.slow
@examples(30)
@given(
    data=st.data(),
    seed=st.integers(0, 99),
    starve=st.sampled_from((None, "receiving", "host copies", "compute")),
)
def test_no_operator_breaks_its_privileges(data, seed, starve):
    model = data.draw(operator_graphs())
    machine, strategy = data.draw(strategies(model.graph))
    backend = FakeStreams(seed, starve)
    laws.any_strategy_is_one_device(
        model, machine.with_rates(kind="cuda"), strategy, 2, backend=backend, watch=True
    )


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [m for m in MODELS if IS_THOROUGH or m not in (convolutions, perceptron)]
)
def test_no_kernel_for_gpus_breaks_its_privileges(build):
    model = half_model(build, "float16")
    task_graph = lower(model.graph, random_strategy(model.graph, TWO, 3), TWO)
    plain, checked = (
        laws.run(task_graph, model.feeds, backend=shim.ShimStreams(), watch=check)
        for check in (False, True)
    )
    laws.assert_equal(checked, plain)


# -- kernels that do what they may not ---------------------------------------------------------------------------------


def run(kernel, backend, change=None):
    graph = Graph()
    x = graph.input("x", (6, 4), "float64")
    graph.output("y", graph.launch("bad", "b c -> b c", [x], kernel=kernel, flops=1))
    task_graph = lower(graph, taskflow.single_device(graph, TWO), TWO)
    if change is not None:
        change(task_graph)
    with Executor(task_graph, watch=True, backend=backend()) as step:
        step({"x": X})


def leaves_a_row(ctx, x, y):
    y[1:] = x[1:]


def writes_its_input(ctx, x, y):
    x[2, 1] = 7
    y[...] = x


def half_is_fed(task_graph):
    """A fault in lowering: the feed fills half of what the point reads."""
    task_graph.arg_box[0, :, 0] = (0, 3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "kernel, change, what",
    [
        (leaves_a_row, None, "output 0: leaves 4 of 24 elements unwritten"),
        (tiny._copy, half_is_fed, "argument 0: reads 12 elements that no task wrote"),
    ],
)
def test_a_fault_is_found(backend, kernel, change, what, monkeypatch):
    monkeypatch.setattr(
        "taskflow.execute.executor.check_own_plan", lambda task_graph: None
    )  # finds one earlier
    with pytest.raises(PermissionError, match=what) as caught:
        run(kernel, backend, change)
    assert str(caught.value) == f"task 1: point bad[0] @0 384 B, after [0]: {what}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("where", [-1, 24])
def test_a_kernel_that_writes_outside_of_its_array_is_found(where, backend):
    def wild(ctx, x, y):
        y[...] = x
        (ctypes.c_double * 1).from_address(y.ctypes.data + 8 * where)[0] = 7

    with pytest.raises(PermissionError) as caught:
        run(wild, backend)
    assert str(caught.value).endswith("output 0: the kernel writes outside of the array")


@needs_compiler
def test_a_kernel_that_writes_its_input_is_found():
    """Arrays of GPUs cannot be made read-only, as those of NumPy."""
    with pytest.raises(PermissionError) as caught:
        run(writes_its_input, shim.ShimStreams)
    what = "argument 0: is only read, and has been written"
    assert str(caught.value) == f"task 1: point bad[0] @0 384 B, after [0]: {what}"


# -- kernels of the checks ---------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("dtype", ["uint8", "float16", "int32", "float64"])
def test_arrays_are_looked_at_where_they_lie(dtype):
    whole = np.arange(240).reshape(4, 5, 12).astype(dtype)
    view, out, backend = (
        whole[1:, ::2, 3:10:3].transpose(1, 2, 0),
        np.zeros(2, np.uint64),
        shim.ShimStreams(),
    )
    expected = whole.copy()
    poison(expected[1:, ::2, 3:10:3])
    backend.inspect(view, out)()
    before = out.copy()
    backend.poison(view)()
    np.testing.assert_array_equal(whole, expected)
    backend.inspect(view, out)()
    assert out[0] == poisoned_elements(view) == (view.size if view.itemsize > 1 else 0)
    assert before[0] == 0 and before[1] != out[1]
    view[0, 0, 0], view[0, 1, 0] = 0, 1
    backend.inspect(view, out)()
    assert out[0] == (view.size - 2 if view.itemsize > 1 else 0)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_that_are_not_finite_are_noted(dtype):
    finfo = pytest.importorskip("ml_dtypes").finfo if dtype == "bfloat16" else np.finfo
    values = np.arange(300).astype(known_dtype("", dtype))[::3]
    found, backend = np.zeros(1, np.uint64), shim.ShimStreams()
    values[0] = -finfo(values.dtype).max
    backend.note_not_finite(values, found)()
    assert found[0] == 0
    for number in (np.nan, np.inf, -np.inf):
        values[-1], found[0] = number, 0
        backend.note_not_finite(values, found)()
        assert found[0] == 1
