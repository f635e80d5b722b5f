"""Rows on emulated devices: real data, and the clock of the simulator."""

import numpy as np
import pytest

from taskflow import (
    CostModel,
    Device,
    Executor,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    lower,
    simulate,
)
from taskflow.simulation.simulate import schedule
from tests.checking.reuse import tight

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
    with Executor(chain, record=True) as step:
        for _ in range(3):
            np.testing.assert_array_equal(step({"x": np.arange(500.0)})["y"], 8 * np.arange(500.0))
        measured = step.timeline
    assert (
        predicted.seconds <= measured.seconds * 1.0001
    )  # never early; late by what the host is late
    order = np.argsort(predicted.start, kind="stable")
    assert (np.diff(measured.start[order]) >= -1e-9).all()
    waits = measured.end - measured.start >= (predicted.end - predicted.start) * 0.9999
    assert waits.all()


def test_waits_for_memory_are_those_of_the_simulator():
    """Eight chains from device 0 to 1: each computes where the one before it is still sent from."""
    graph, configs = Graph(), {}
    for k in range(8):
        h = graph.input(f"x{k}", (500,), "float64")
        for device in range(2):
            h = graph.launch(f"h{k}{device}", "b -> b", [h], kernel=doubled)
            configs[f"h{k}{device}"] = ParallelConfig({}, (device,))
        graph.output(f"y{k}", h)
    task_graph, costs = tight(lower(graph, Strategy(configs), SLOW)), CostModel.analytic(SLOW)
    predicted, without = (
        simulate(task_graph, costs).seconds,
        schedule(task_graph, costs.seconds(task_graph))[2],
    )
    assert predicted > 1.3 * without
    feeds = {f"x{k}": np.full(500, float(k)) for k in range(8)}
    with Executor(task_graph, costs=costs, record=True) as step:
        for _ in range(3):
            values = step(feeds)
            assert all((values[f"y{k}"] == 4.0 * k).all() for k in range(8))
            assert predicted <= step.timeline.seconds * 1.0001
        # Late by what the host is late: of so many steps one meets a host that is idle.
        assert any(measured_seconds(step, feeds) <= 1.05 * predicted for _ in range(100))


def measured_seconds(step, feeds):
    step(feeds)
    return step.timeline.seconds


def test_a_link_of_a_device_takes_one_transfer_after_the_other():
    """Two transfers over one link, the first one long: the second waits, in prediction and in fact."""
    device = Device("emulated", 0, 1 << 30, 1e9, 1e6, 1e-3, sends_by_link=True)
    machine = MachineModel.uniform(2, device, 1e6, 1e-3)
    graph, configs = Graph(), {}
    for name, size in (("long", 5000), ("short", 50)):
        h = graph.input(f"x_{name}", (size,), "float64")
        for where in range(2):
            h = graph.launch(f"{name}{where}", "b -> b", [h], kernel=doubled)
            configs[f"{name}{where}"] = ParallelConfig({}, (where,))
        graph.output(name, h)
    costs = CostModel.analytic(machine)
    rows = lower(graph, Strategy(configs), machine)
    sent = np.flatnonzero(rows.is_transfer & (rows.source == 0))
    predicted = simulate(rows, costs)
    assert predicted.start[sent[1]] == predicted.end[sent[0]] > 0.04
    with Executor(rows, costs=costs, record=True) as step:
        step({"x_long": np.ones(5000), "x_short": np.ones(50)})
        assert step.timeline.start[sent[1]] >= step.timeline.end[sent[0]] - 1e-9
