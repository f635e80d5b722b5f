"""Rehearsals under mpirun: all ranks take part and learn the same."""

import numpy as np
import pytest

import ops
from taskflow import Graph, MachineModel, ParallelConfig, Strategy, data_parallel, lower
from taskflow.comm.transport import connect
from taskflow.cost.model import MeasuredCosts
from taskflow.execute.rehearsal import Rehearsal, rehearse

pytestmark = pytest.mark.two_ranks  # with more it takes no other way


def test_all_ranks_learn_the_same(comm):
    graph = Graph()
    x, t = graph.input("x", (8, 6)), graph.input("t", (8,), "int32")
    loss = ops.softmax_cross_entropy(ops.linear(x, 4, name="fc"), t, name="loss")
    graph.output("loss", loss)
    ops.sgd(loss, lr=0.1)
    machine = MachineModel.local(max(comm.size, 2))
    task_graph, costs = lower(graph, data_parallel(graph, machine), machine), MeasuredCosts(machine)
    rehearse(costs, task_graph, rounds=2)
    seconds = costs.seconds(task_graph)
    assert (seconds > 0).all()
    for other in connect().gather(seconds):
        np.testing.assert_array_equal(other, seconds)


def test_ranks_read_what_others_write(comm):
    """As in a step: the second device copies out of the memory of the first, not out of a stand-in of zeros."""
    seen = []

    def fill(ctx, x, y):
        y[...] = 7

    def look(ctx, y, z):
        seen.append(float(y.max()))
        z[...] = y

    graph = Graph()
    y = graph.launch("fill", "a -> a", [graph.input("x", (64,))], kernel=fill)
    graph.output("z", graph.launch("look", "a -> a", [y], kernel=look))
    machine = MachineModel.local(max(comm.size, 2))
    strategy = Strategy.of_graph(
        graph, {"fill": ParallelConfig(None, [0]), "look": ParallelConfig(None, [1])}
    )
    Rehearsal(lower(graph, strategy, machine)).time_rows(
        2
    )  # two passes ahead, and two each time: six
    after_barrier = seen[3:]
    assert after_barrier == ([7.0] * 3 if comm.rank == min(1, comm.size - 1) else [])
