"""Rehearsals under mpirun: all ranks take part and learn the same."""

import numpy as np

import ops
from taskflow import Graph, MachineModel, data_parallel, lower
from taskflow.comm import connect
from taskflow.cost import MeasuredCosts
from taskflow.rehearse import rehearse


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
