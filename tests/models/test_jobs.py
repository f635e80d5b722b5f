"""The applications of jobs beside each other, with few steps."""

import numpy as np
import pytest

import taskflow
from examples.applications import micro_clouds, two_jobs
from taskflow import MachineModel


def test_two_jobs_learn(capsys):
    losses = two_jobs.train(MachineModel.local(devices=2), 1)
    assert losses["digits"] < 1.5 and losses["pairs"] < 0.75
    assert "digits: loss" in capsys.readouterr().out


def test_links_carry_what_they_can(capsys):
    """Elements of the largest size, of every cloud to every other; none over its budget."""
    pytest.importorskip("sklearn")
    whole = micro_clouds.learn("whole", 1.0, False, False, 4)
    part = micro_clouds.learn("part", 772e-6, True, False, 4)
    assert part[1] == 12 * 8 * 96 and part[1] < 0.05 * whole[1] and part[2] < 0.1 * whole[2]
    assert "at most    768 of a link" in capsys.readouterr().out


def test_the_largest_elements_arrive():
    """A step of cloud 0 is its own gradient and the largest elements of the others', in their places."""
    machine = micro_clouds.wan()
    graph, strategy, _ = micro_clouds.build(machine, 84e-6)  # ten elements
    for k in range(micro_clouds.CLOUDS):
        graph.output(f"g{k}", graph.regions[f"c{k}/gradient"])
    rows = taskflow.lower(graph, strategy, machine)
    taskflow.check_plan(graph, rows)
    samples, _ = micro_clouds.digits(False)
    feeds = {
        f"c{k}/{n}": a[:30] for k, xt in enumerate(samples) for n, a in zip("xt", xt, strict=True)
    }
    with taskflow.Executor(rows) as step:
        names = [r.name for r in graph.parameters if r.name.startswith("c0/")]
        before = np.concatenate([step.read(name).reshape(-1) for name in names])
        values = step(feeds)
        after = np.concatenate([step.read(name).reshape(-1) for name in names])
    total = values["g0"].copy()
    for k in (1, 2, 3):
        places = np.argsort(-np.abs(values[f"g{k}"]), kind="stable")[:10]
        total[places] += values[f"g{k}"][places]
    expected = before - micro_clouds.RATE / micro_clouds.CLOUDS * total
    np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-7)
