"""Reduced order: the full model and both networks under splits, and operator inference of what is quadratic."""

import numpy as np
import pytest

import taskflow
from examples.applications import reduced_order
from taskflow import Executor, MachineModel, ParallelConfig, Strategy

MACHINE = MachineModel.local(devices=2)


def by_points(graph, machine):
    return Strategy({op.name: ParallelConfig({"x": 2}) for op in graph.operators})


@pytest.mark.parametrize("rule", [by_points, taskflow.data_parallel])
def test_waves_are_those_of_a_loop(rule, monkeypatch):
    monkeypatch.setattr(reduced_order, "STATES", 4)
    inflows, u = np.array([4.3, 5.2]), np.ones((2, 256))
    x = np.linspace(0, 100, 256)
    for _ in range(4 * reduced_order.STEPS):
        slope = np.diff(u**2 / 2, axis=1) / (x[1] - x[0])
        u[:, 1:] += 0.05 * (0.02 * np.exp(0.02 * x[1:]) - slope)
        u[:, 0] = inflows
    states = reduced_order.waves(inflows, MACHINE, rule)
    assert states.shape == (2, 5, 256)
    np.testing.assert_allclose(states[:, -1], u, rtol=1e-12)


@pytest.mark.parametrize("rule", [taskflow.data_parallel, taskflow.model_parallel])
def test_samples_and_channels_may_be_split(rule):
    graph = reduced_order.autoencoder(8, 10)
    x = np.random.default_rng(0).random((8, 1, 256), np.float32)
    losses = []
    for split in (taskflow.single_device, rule):
        with Executor(taskflow.lower(graph, split(graph, MACHINE), MACHINE), seed=0) as step:
            losses.append([float(step({"x": x})["loss"]) for _ in range(2)])
    assert losses[0][1] < losses[0][0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def test_operator_inference_finds_a_polynomial():
    generator = np.random.default_rng(0)
    operator, inflow = generator.normal(0, 0.002, (21, 4)), generator.random((8, 1))
    operator[1:5] -= 0.05 * np.eye(4)  # each number falls
    z = reduced_order.by_polynomial(operator, generator.random((8, 4)), inflow)
    inferred = reduced_order.quadratic(z, inflow)
    again = reduced_order.by_polynomial(inferred, z[:, 0], inflow)
    assert np.ptp(z, axis=1).mean() > 0.1 and reduced_order.relative(again, z) < 1e-3
    wild = reduced_order.by_polynomial(-100 * operator, z[:, 0], inflow)
    assert np.isfinite(wild).all() and reduced_order.relative(wild, z) > 1


def test_a_little_training_says_all_errors():
    errors = reduced_order.errors_of(reduced_order.Tools(MACHINE, steps=20))
    assert errors.modes == pytest.approx(0.1483, abs=1e-4)
    assert all(0 < error < 1 for error in errors)
