"""Rows on emulated devices: real data, and the clock of the simulator."""

import numpy as np
import pytest

from taskflow import CostModel, Device, Executor, Graph, MachineModel, ParallelConfig, Strategy, lower, simulate

SLOW = MachineModel.uniform(2, Device("emulated", 0, 1 << 30, 1e9, 1e6, 1e-3), 1e6, 1e-3)


def doubled(ctx, x, y):
    np.multiply(x, 2.0, out=y)


@pytest.fixture
def chain():
    """Three operators in turns on device 0, 1 and 0: about 40 ms, of which the host needs almost nothing."""
    graph = Graph()
    h = graph.input("x", (500,), "float64")
    for k in range(3):
        h = graph.launch(f"h{k}", "b -> b", [h], kernel=doubled)
    graph.output("y", h)
    strategy = Strategy({f"h{k}": ParallelConfig({}, (k % 2,)) for k in range(3)})
    return lower(graph, strategy, SLOW)


def test_the_clock_is_the_simulators(chain):
    predicted = simulate(chain, CostModel.analytic(SLOW))
    with Executor(chain) as step:
        for _ in range(3):
            np.testing.assert_array_equal(step({"x": np.arange(500.0)})["y"], 8 * np.arange(500.0))
        measured = step.timeline
    assert predicted.seconds <= measured.seconds * 1.0001  # never early; late by what the host is late
    order = np.argsort(predicted.start, kind="stable")
    assert (np.diff(measured.start[order]) >= -1e-9).all()
    waits = measured.end - measured.start >= (predicted.end - predicted.start) * 0.9999
    assert waits.all()
