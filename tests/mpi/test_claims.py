"""Claimed items over ranks, or devices of one process: the bits of one device, and each item once."""

import numpy as np
import pytest

from taskflow import Executor, MachineModel, ParallelConfig, check_plan, lower, single_device
from taskflow.comm.transport import connect
from tests.ops.test_claims import graph_of

STEPS = 20


def values(graph, machine, degree):
    strategy = single_device(graph, machine)
    strategy["join"] = ParallelConfig({"r": degree})
    rows = lower(graph, strategy, machine)
    check_plan(graph, rows)
    with Executor(rows) as step:
        return [step({"x": np.array([0.1, 0.2, 0.3]) + k}) for k in range(STEPS)]


@pytest.mark.parametrize("is_shared", [True, False], ids=["memory", "messages"])
def test_bits_are_those_of_one_device_in_every_step(comm, monkeypatch, is_shared):
    if not is_shared and comm.size > 1:  # as ranks of several hosts do
        monkeypatch.setattr(type(connect()), "shared_arrays", lambda ranks, size_bytes: None)
    graph, devices = graph_of(), comm.size if comm.size > 1 else 4
    machine = MachineModel.local(devices=devices)
    for one, several in zip(
        values(graph, machine, 1), values(graph, machine, devices), strict=True
    ):
        for name, value in one.items():
            assert value.tobytes() == several[name].tobytes()
