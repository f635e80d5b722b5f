"""Captured kernels: what is noted and repeated, and what cannot be."""

from functools import partial

import numpy as np
import pytest
from numba import njit

from taskflow import Executor, Graph, Kernel, MachineModel, lower, single_device
from taskflow.backend import Context
from taskflow.core.geometry import Rect


def context():
    return Context([Rect((0,), (4,))], {"a": (0, 4)})


def double_into(x, y):
    y[...] = 2 * x


def test_the_calls_are_repeated_and_the_rest_is_not():
    looked = []

    @partial(Kernel, is_captured=True)
    def kernel(ctx, x, y):
        looked.append(x.shape)
        work = ctx.scratch("work", x.shape, x.dtype)
        ctx.call(double_into, x, work)
        ctx.xp.add(work, 1, out=work)
        ctx.xp.copyto(y, work)

    x, y = np.arange(4.0), np.zeros(4)
    call = kernel.call(context(), [x, y])
    assert not y.any()  # nothing was called yet
    for _ in range(3):
        x += 1
        call()
        np.testing.assert_array_equal(y, 2 * x + 1)
    assert looked == [(4,)]


def test_a_function_of_numba_is_called_as_it_was_compiled_for_these_types():
    @njit
    def add(x, y, number):
        y[:] = x + number

    @njit
    def add_one(x, y, number=1):
        y[:] = x + number

    @njit("void(float64[:], float64[:], int64)")
    def add_as_said(x, y, number):
        y[:] = x + number

    @njit
    def add_bytes(x, y, bytes):
        y[:] = x + len(bytes)

    @partial(Kernel, is_captured=True)
    def kernel(ctx, x, y, z):
        ctx.call(add, x, y, 2)
        ctx.call(add_one, y, y)
        ctx.call(add_as_said, y, z, 5)
        ctx.call(add_bytes, z, z, bytearray(b"12345"))  # which has no hash

    x, y, z = np.arange(4.0), np.zeros(4), np.zeros(4)
    x.flags.writeable = False
    call = kernel.call(context(), [x, y, z])
    assert len(add.signatures) == 1 and not z.any()
    for _ in range(2):
        call()
        np.testing.assert_array_equal(z, x + 13)
    noted = [each.func for each in call.args[0]]
    assert noted[0] is not add and noted[1:] == [add_one, add_as_said, add_bytes]


def test_what_depends_on_the_step_is_done_in_every_step():
    @partial(Kernel, is_captured=True)
    def kernel(ctx, x, y):
        ctx.xp.negative(x, out=y)
        ctx.each_step(lambda ctx, y: np.add(y, ctx.step, out=y), y)

    graph = Graph()
    x = graph.input("x", (4,), "float64")
    graph.output("y", graph.launch("negative", "a -> a", [x], kernel=kernel))
    machine = MachineModel.local(1)
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        for k in range(3):
            np.testing.assert_array_equal(step({"x": np.ones(4)})["y"], np.full(4, k - 1.0))


def test_a_step_does_not_enter_a_captured_kernel():
    entered = []

    @partial(Kernel, is_captured=True)
    def kernel(ctx, x, y):
        entered.append(ctx.rect(0))
        ctx.xp.negative(x, out=y)

    graph = Graph()
    x = graph.input("x", (4,), "float64")
    graph.output("y", graph.launch("negative", "a -> a", [x], kernel=kernel))
    machine = MachineModel.local(1)
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        before = len(entered)
        for k in range(3):
            np.testing.assert_array_equal(
                step({"x": np.full(4, float(k))})["y"], np.full(4, -float(k))
            )
    assert len(entered) == before


def test_other_kernels_are_called_as_they_are():
    def kernel(ctx, x, y):
        np.copyto(y, x.sum())

    x, y = np.arange(4.0), np.zeros(4)
    Kernel(kernel).call(context(), [x, y])()
    np.testing.assert_array_equal(y, np.full(4, 6.0))


def test_what_has_a_result_cannot_be_captured():
    @partial(Kernel, is_captured=True)
    def kernel(ctx, x, y):
        ctx.xp.copyto(y, ctx.xp.sum(x))

    with pytest.raises(TypeError) as caught:
        kernel.call(context(), [np.arange(4.0), np.zeros(4)])
    assert (
        str(caught.value)
        == "a captured kernel calls numpy.sum without `out`, so it cannot be repeated"
    )


def test_scratch_memory_that_is_kept_stays_where_it_is():
    first = context()
    kept = first.scratch("a", (8,), "uint8")
    place = kept.ctypes.data
    other = Context([], {}, workspace=first._workspace)
    other.scratch("b", (1 << 20,), "uint8")
    assert first._workspace.growths <= 1
    assert first.scratch("a", (8,), "uint8").ctypes.data == place
