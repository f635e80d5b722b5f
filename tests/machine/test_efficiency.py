"""The curve of a device and its fit to measured tasks."""

from dataclasses import replace

import numpy as np
import pytest

from taskflow import CostModel, Device, Graph, Kind, MachineModel, lower, single_device
from taskflow.cost.measure import fit_machine
from taskflow.machine.efficiency import device_seconds, fit_device, fit_error
from tests.refusals import assert_refused

TRUE = Device(
    "cuda",
    flops_per_second=10e12,
    memory_bandwidth=700e9,
    overhead_seconds=5e-6,
    rates={"float64": 5e12},
    compute_efficiency=0.76,
    memory_efficiency=0.88,
    half_flops=100e6,
    half_bytes=700e3,
)
PEAKS = Device(
    "cuda",
    flops_per_second=10e12,
    memory_bandwidth=700e9,
    overhead_seconds=5e-6,
    rates={"float64": 5e12},
)
CURVE = ("compute_efficiency", "memory_efficiency", "half_flops", "half_bytes")

N = 2.0 ** np.arange(5, 13)
FLOPS = np.concatenate([2 * N**3, N**2, np.zeros(len(N))])  # products, elementwise, copies
BYTES = np.concatenate([12 * N**2, 8 * N**2, 8 * N**2])


def curve(device):
    return [getattr(device, name) for name in CURVE]


def test_a_fit_finds_the_curve_that_made_the_samples():
    fitted = fit_device(PEAKS, FLOPS, BYTES, device_seconds(TRUE, FLOPS, BYTES))
    assert curve(fitted) == pytest.approx(curve(TRUE))
    assert fitted.flops_per_second == 10e12 and fitted.memory_bandwidth == 700e9


def test_a_fit_knows_what_is_exposed():
    true, peaks = (replace(device, exposed_share=0.4) for device in (TRUE, PEAKS))
    fitted = fit_device(peaks, FLOPS, BYTES, device_seconds(true, FLOPS, BYTES))
    assert curve(fitted) == pytest.approx(curve(TRUE))
    assert (device_seconds(true, FLOPS, BYTES) > device_seconds(TRUE, FLOPS, BYTES))[: len(N)].all()


def test_a_fit_of_noisy_samples_is_close():
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal(len(FLOPS)))
    seconds = noise * device_seconds(TRUE, FLOPS, BYTES)
    fitted = fit_device(PEAKS, FLOPS, BYTES, seconds)
    assert curve(fitted) == pytest.approx(curve(TRUE), rel=0.15)
    assert fit_error(fitted, FLOPS, BYTES, seconds) < 0.05


def test_a_fit_raises_a_peak_that_is_exceeded():
    low = Device("cuda", flops_per_second=1e12, memory_bandwidth=1e9, overhead_seconds=5e-6)
    fitted = fit_device(low, FLOPS, BYTES, device_seconds(TRUE, FLOPS, BYTES))
    assert fitted.flops_per_second == pytest.approx(
        7.6e12
    ) and fitted.compute_efficiency == pytest.approx(1)
    assert fitted.memory_bandwidth == pytest.approx(0.88 * 700e9)


def test_a_side_that_no_sample_shows_stays():
    """Copies say nothing about arithmetic."""
    copies = slice(2 * len(N), None)
    fitted = fit_device(
        PEAKS, FLOPS[copies], BYTES[copies], device_seconds(TRUE, FLOPS, BYTES)[copies]
    )
    assert fitted.compute_efficiency == 1.0 and fitted.half_flops == 0.0
    assert [fitted.memory_efficiency, fitted.half_bytes] == pytest.approx([0.88, 700e3])


def test_a_fit_needs_samples():
    assert_refused(
        "fit: takes four samples or more that took time, not [1.0, 2.0]",
        lambda: fit_device(PEAKS, np.ones(2), np.ones(2), np.array([1.0, 2.0])),
    )
    assert_refused(
        "fit: takes four samples or more that took time, not [1.0, 1.0, 0.0, 1.0]",
        lambda: fit_device(PEAKS, np.ones(4), np.ones(4), np.array([1.0, 1.0, 0.0, 1.0])),
    )


def fill(ctx, *arrays):
    arrays[-1][...] = 0


def test_a_machine_is_fitted_to_the_costs_of_a_task_graph():
    """Points in float64 count as float32 ones of twice the flops."""
    graph, machine = Graph(), MachineModel.uniform(1, PEAKS)
    for dtype in ("float32", "float64"):
        for n in (64, 256, 1024, 4096):
            graph.launch(
                f"product {n}",
                "-> b",
                [],
                kernel=fill,
                sizes={"b": 3 * n * n},
                dtype=dtype,
                flops=n / 3,
            )
            graph.launch(
                f"wide {n}", "-> b", [], kernel=fill, sizes={"b": n * n}, dtype=dtype, flops=0
            )
    task_graph = lower(graph, single_device(graph, machine), machine)
    assert (task_graph.kind == Kind.POINT).all()
    measured = CostModel.analytic(MachineModel.uniform(1, TRUE))
    fitted = fit_machine(machine, task_graph, measured)
    assert curve(fitted.devices[0]) == pytest.approx(curve(TRUE))
    found = CostModel.analytic(fitted).seconds(task_graph)
    assert found == pytest.approx(measured.seconds(task_graph))
