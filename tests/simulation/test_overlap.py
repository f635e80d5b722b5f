"""Collectives and compute: one collective of a device at a time, under compute or behind it."""

import numpy as np
import pytest

import taskflow
from taskflow import CostModel, Kind, MachineModel, lower, simulate
from tests.collectives import one_collective
from tests.lowered import network
from tests.refusals import assert_refused

HOSTS = MachineModel.preset("h100", nodes=2)


def simulated(machine):
    graph = network(batch=64, width=512, layers=4)
    task_graph = lower(graph, taskflow.data_parallel(graph, machine), machine)
    costs = CostModel.analytic(machine)
    return simulate(task_graph, costs), costs.seconds(task_graph)


def test_collectives_of_a_device_go_one_after_the_other():
    timeline, _ = simulated(HOSTS)
    rows = np.flatnonzero(timeline.task_graph.kind == Kind.COLLECTIVE)
    assert len(rows) > 4
    assert np.all(timeline.start[rows[1:]] >= timeline.end[rows[:-1]] - 1e-12)


def test_behind_compute_nothing_is_computed_beside_a_collective():
    """A step then takes all of its sums longer than what is computed; under it, less."""
    (under, seconds), (behind, same) = (simulated(m) for m in (HOSTS, HOSTS.with_overlap("behind")))
    assert np.array_equal(seconds, same)
    graph = behind.task_graph
    together = graph.kind == Kind.COLLECTIVE
    points = np.flatnonzero((graph.kind == Kind.POINT) & (graph.device == 0))
    for row in np.flatnonzero(together):
        beside = (behind.start[points] < behind.end[row]) & (behind.end[points] > behind.start[row])
        lasts = behind.end[points] > behind.start[points]
        assert not (beside & lasts).any()
    alone = seconds[together].sum() + seconds[points].sum()
    assert under.seconds < behind.seconds and behind.seconds >= alone * (1 - 1e-9)


def test_who_runs_steps_or_gpus_cannot_wait_with_compute(tmp_path):
    behind = HOSTS.with_overlap("behind")
    behind.save(tmp_path / "m.toml")
    assert MachineModel.load(tmp_path / "m.toml") == behind
    assert behind.with_library("own").overlap == "under"
    assert_refused(
        "machine 'uniform': steps go beside compute; overlap 'behind' is for collectives_by 'nccl'",
        lambda: MachineModel.uniform(2).with_overlap("behind"),
    )
    assert_refused(
        "executor: collectives travel under compute; a machine on which they are 'behind' it is for predictions",
        lambda: taskflow.Executor(one_collective("all-reduce", "fastest", behind, (16, 3))[0]),
    )


@pytest.mark.parametrize("field", [{"collectives_by": "mpi"}, {"overlap": "over"}])
def test_other_words_are_refused(field):
    ((name, value),) = field.items()
    able = {"collectives_by": "own, nccl", "overlap": "under, behind"}[name]
    assert_refused(
        f"machine 'm': {name} is one of {able}, not '{value}'",
        lambda: MachineModel(HOSTS.devices, HOSTS.links, "m", **field),
    )
