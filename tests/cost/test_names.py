"""Kernels of one name: what is kept by a kernel, in memory and in cost files, is not mistaken for another's."""

import math
from functools import partial

import numpy as np
import pytest

from taskflow import CostModel, Graph, Kernel, MachineModel, lower, single_device
from taskflow.cost.costfile import read_costs
from taskflow.cost.samples import kernel_key

ONE = MachineModel.uniform(1)


def often(times):
    def kernel(ctx, x, y):
        for _ in range(times):
            ctx.xp.multiply(x, 2, out=y)

    return kernel


def times(k):
    return lambda ctx, x, y: ctx.xp.multiply(x, k, out=y)


def by_default():
    def kernel(ctx, x, y, times=1):
        ctx.xp.multiply(x, times, out=y)

    def other(ctx, x, y, times=2):
        ctx.xp.multiply(x, times, out=y)

    other.__name__, other.__qualname__ = kernel.__name__, kernel.__qualname__
    return kernel, other


def redefined():
    """As a notebook does, or a file for each of two programs."""
    found = []
    for call in ("ctx.xp.copyto(y, x)", "ctx.xp.exp(x, out=y)"):
        names = {"__name__": "__main__"}
        exec(f"def kernel(ctx, x, y):\n    {call}", names)
        found.append(names["kernel"])
    return found


def calling(function):
    def kernel(ctx, x, y):
        function(x, y)

    return kernel


def table(ctx, x, y, *, values):
    ctx.xp.copyto(y, x)


def long_table(k):
    """What NumPy prints alike."""
    values = np.zeros(5000)
    values[2500] = k
    return Kernel(table).bind(values=values)


def variant(times):
    return Kernel(table, cuda=Kernel(often(times)))


PAIRS = {
    "closures": (often(1), often(500)),
    "lambdas": (times(1), times(2)),
    "defaults": by_default(),
    "definitions": redefined(),
    "functions of NumPy": (calling(np.exp), calling(np.negative)),
    "built-in functions": (calling(math.exp), calling(math.sin)),
    "functions of functions": (calling(often(1)), calling(often(2))),
    "arguments": (partial(often(1), 1), partial(often(1), 2)),
    "dtypes": (calling(np.dtype("f4")), calling(np.dtype("f8"))),
    "long arrays": (long_table(0), long_table(1)),
    "variants": (variant(1), variant(2)),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_they_have_keys_of_their_own(pair):
    graph = Graph()
    y = graph.input("x", (4, 4))
    for kernel in PAIRS[pair]:
        y = graph.launch("y", "a b -> a b", [y], kernel=kernel)
    rows = lower(graph, single_device(graph, ONE), ONE)
    points = [row for row in range(len(rows)) if rows.launch[row] >= 0]
    assert (
        len({kernel_key(rows, rows.launches[int(rows.launch[row])], row) for row in points})
        == len(points)
        == 2
    )


def test_equal_ones_have_one_key():
    for make in (partial(often, 3), partial(calling, np.exp), lambda: calling(often(2))):
        assert Kernel(make()).digest == Kernel(make()).digest
    assert long_table(1).digest == long_table(1).digest
    assert variant(2).digest == variant(2).digest


def test_each_is_timed(tmp_path):
    """One that does 500 times as much was said to take what the other takes."""
    for times in (1, 500):
        graph = Graph()
        y = graph.launch("y", "a b -> a b", [graph.input("x", (64, 64))], kernel=often(times))
        graph.output("y", y)
        rows = lower(graph, single_device(graph, ONE), ONE)
        seconds = CostModel.measured(ONE, tmp_path / "costs.json").seconds(rows)
        assert (seconds[rows.launch >= 0].sum() > 1e-4) == (times == 500)
    assert len(read_costs(tmp_path / "costs.json").kernels) == 2
