"""Topology optimisation: finite elements are those of the whole matrix; the network finds what gradients find."""

from contextlib import ExitStack

import numpy as np
import pytest

import taskflow
from taskflow import Executor, MachineModel

pytest.importorskip("scipy")  # it comes with scikit-learn

from examples.applications import topology

SMALL = topology.Cantilever(size=3, fine=2)


def test_compliance_is_that_of_the_whole_matrix():
    design = np.random.default_rng(0).random(9)
    whole = np.zeros((84 + 14, 84 + 14))  # with the clamped nodes, whose numbers are negative
    for freedoms, modulus in zip(SMALL.freedoms, SMALL.moduli(design), strict=True):
        whole[np.ix_(freedoms, freedoms)] += modulus * SMALL.stiffness
    u = np.linalg.solve(whole[:84, :84], SMALL.load)
    assert SMALL.compliance(design) == pytest.approx(SMALL.load @ u, rel=1e-10)
    rigid = np.tile([1.0, 0.0], 4), np.tile([0.0, 1.0], 4), np.array([0, 0, 0, 1, -1, 1, -1, 0.0])
    assert np.abs(SMALL.stiffness @ np.stack(rigid, 1)).max() < 1e-15  # moved, or turned


def test_gradients_are_differences():
    design = np.random.default_rng(1).uniform(0.3, 1, 9)
    energy = SMALL.moved(design)[1].reshape(3, 2, 3, 2).sum((1, 3)).ravel()
    slope = -topology.PENALTY * (1 - topology.VOID) * design ** (topology.PENALTY - 1) * energy
    for cell, step in enumerate(1e-6 * np.eye(9)):
        around = SMALL.compliance(design + step) - SMALL.compliance(design - step)
        assert around / 2e-6 == pytest.approx(slope[cell], rel=1e-6)


def test_designs_are_feasible():
    designs = topology.feasible(np.random.default_rng(2).normal(0.6, 0.5, (50, 9)))
    assert designs.min() >= 0 and designs.max() <= 1 + 1e-12
    assert designs.mean(1) == pytest.approx(np.full(50, topology.VOLUME), abs=1e-3)
    np.testing.assert_allclose(topology.feasible(designs), designs, atol=1e-3)


def test_devices_change_no_design(monkeypatch):
    monkeypatch.setattr(topology, "STEPS", 20)
    monkeypatch.setattr(topology, "GENERATIONS", 3)
    machine, graph, every = MachineModel.local(devices=2), topology.elements(SMALL), []
    for rule in (taskflow.single_device, taskflow.data_parallel):
        with Executor(taskflow.lower(graph, rule(graph, machine), machine)) as step:
            every.append(topology.solo(SMALL, topology.asked(step), 160, machine, seed=0))
    np.testing.assert_array_equal(every[0][0], every[1][0])
    np.testing.assert_array_equal(every[0][1], every[1][1])


def test_the_network_finds_better_designs(monkeypatch):
    monkeypatch.setattr(topology, "STEPS", 60)
    monkeypatch.setattr(topology, "GENERATIONS", 20)

    def ask(designs):
        return np.array([SMALL.compliance(design) for design in designs])

    _, values = topology.solo(SMALL, ask, 220, MachineModel.local(devices=1), seed=0)
    drawn, least = values[: topology.FIRST].min(), topology.gradient_method(SMALL)
    assert least < values.min() < min(0.8 * drawn, 1.5 * least)
    calls, best = topology.genetic(ask, 9, least, 60, seed=0)
    assert calls == 60 and best > least


def test_a_place_that_gains_no_more_is_left_alone():
    designs = topology.feasible(
        np.random.default_rng(4).random((topology.FIRST + topology.PATIENCE, 9))
    )
    values = 1.0 + np.arange(len(designs))
    with ExitStack() as opened:
        surrogate = topology.Surrogate(9, MachineModel.local(devices=1), 0, opened)
        assert surrogate.ranked(designs[: topology.FIRST], values[: topology.FIRST])[0] == 0
        for _ in range(2):  # the second time another place is new
            best = designs[surrogate.ranked(designs, values)[0]]
            assert np.abs(best - designs[0]).mean() >= topology.WIDTH
