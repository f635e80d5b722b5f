"""What executors of several ranks leave behind."""

import gc

import numpy as np
import pytest

import taskflow
from taskflow import Executor, Graph, MachineModel, lower
from taskflow.comm.transport import Message, connect
from tests import tiny
from tests.ways import SIZE


@pytest.mark.slow
@pytest.mark.two_ranks
def test_executors_that_end_leave_nothing_in_mpi(monkeypatch):
    """Every second one is closed, the others are dropped; most of these messages have pieces, hence types."""
    transport, held = connect(), []

    def keep(make):
        def kept(*args) -> Message:
            message = make(*args)
            held.append(message.free.args[0])
            return message

        return kept

    for name in ("sender", "receiver"):
        monkeypatch.setattr(transport, name, keep(getattr(transport, name)))
    graph, machine = Graph(), MachineModel.uniform(SIZE)
    tiny.sgd(tiny.mean_square(tiny.tanh(tiny.linear(graph.input("x", (8, 4)), 8))))
    strategy = taskflow.data_parallel(graph, machine)
    strategy["tanh"] = taskflow.ParallelConfig({"o": SIZE})
    task_graph = lower(graph, strategy, machine)
    for number in range(200):
        step = Executor(task_graph, transport="messages")
        if number == 0:
            step({"x": np.ones((8, 4), np.float32)})
        if number % 2:
            step.close()
        del step
    gc.collect()
    assert len(held) >= 200 or SIZE == 1
    assert not any(map(bool, held))
