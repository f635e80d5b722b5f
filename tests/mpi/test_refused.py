"""What only several ranks can do wrong. Alone there is nothing to refuse, and the same calls succeed."""

import numpy as np
import pytest

import taskflow
from taskflow import Device, Executor, Graph, MachineModel, ParallelConfig, lower
from tests import tiny
from tests.refusals import assert_refused
from tests.ways import on_hosts


def network(width=4, names=("y",)):
    graph = Graph()
    y = tiny.linear(graph.input("x", (6, 4), "float64"), width)
    for name in names:
        graph.output(name, y)
    return graph


def lowered(graph, devices, kind="cpu", **changes):
    machine = MachineModel.uniform(devices, Device(kind))
    strategy = taskflow.single_device(graph, machine)
    strategy.update({name.replace("_", "."): config for name, config in changes.items()})
    return lower(graph, strategy, machine)


def refused_by_several(comm, message, call):
    if comm.size > 1:
        assert_refused(message, call)
    else:
        call()


def different(task_graph, other, comm):
    """Every rank but the last runs `task_graph`."""
    last = comm.size - 1
    mine = other if comm.rank == last and last else task_graph
    message = f"executor: rank {last} runs another task graph ({other.digest()}) than rank 0 ({task_graph.digest()})"
    refused_by_several(comm, message, lambda: Executor(mine))


def test_ranks_that_run_different_graphs(comm):
    different(lowered(network(4), comm.size), lowered(network(5), comm.size), comm)


def test_ranks_that_follow_different_strategies(comm):
    split = lowered(network(), comm.size, fc=ParallelConfig({"b": 2}, (0, comm.size - 1)))
    different(lowered(network(), comm.size), split, comm)


def test_ranks_that_fetch_different_outputs(comm):
    different(lowered(network(), comm.size), lowered(network(names=("z",)), comm.size), comm)


def test_ranks_that_issue_their_rows_in_different_orders(comm):
    task_graph = lowered(network(), comm.size, fc=ParallelConfig({"b": 3}, (0,) * 3))
    order = np.arange(len(task_graph))
    order[1:3] = 2, 1  # a point, and the feed of the next one
    different(task_graph, task_graph.reordered(order), comm)


def test_ranks_whose_own_rows_are_of_different_strategies(comm):
    graph, machine = network(), MachineModel.uniform(comm.size)
    plain = taskflow.single_device(graph, machine)
    other = plain | {"fc": ParallelConfig({"b": 2}, (0, comm.size - 1))}
    last = comm.size - 1

    def rows(strategy):
        return lower(graph, strategy, machine, devices=[comm.rank])

    agreed, theirs = (rows(strategy).own.agreed for strategy in (plain, other))
    message = f"executor: rank {last} runs another task graph ({theirs}) than rank 0 ({agreed})"
    with pytest.MonkeyPatch.context() as patch:
        on_hosts(patch, comm.size)
        refused_by_several(
            comm, message, lambda: Executor(rows(other if comm.rank == last else plain))
        )


def test_a_rank_may_have_no_rows_of_its_own(comm):
    graph, machine = network(), MachineModel.uniform(comm.size)
    with pytest.MonkeyPatch.context() as patch:
        on_hosts(patch, comm.size)
        rows = lower(graph, taskflow.single_device(graph, machine), machine, devices=[comm.rank])
        assert bool(len(rows)) == (comm.rank == 0)
        with Executor(rows) as step:
            assert step({"x": np.ones((6, 4))})["y"].shape == (6, 4)
            assert step.read("fc.weight").any()


def test_ranks_with_different_seeds(comm):
    message = "executor: rank 1 has seed 1, rank 0 has 0"
    refused_by_several(
        comm, message, lambda: Executor(lowered(network(), comm.size), seed=comm.rank)
    )


def test_fewer_ranks_than_gpus(comm):
    beyond = lowered(
        network(), comm.size + 2, "cuda", fc=ParallelConfig({"b": 2}, (0, comm.size + 1))
    )
    message = (
        f"executor: the strategy uses 2 cuda devices up to number {comm.size + 1}, and a rank drives one; "
        f"mpirun started {comm.size} ranks"
    )
    if comm.size > 1:
        assert_refused(message, lambda: Executor(beyond))


def test_emulated_devices_that_exchange_messages(comm):
    task_graph = lowered(network(), comm.size, "emulated", fc=ParallelConfig({"b": comm.size}))
    message = "executor: emulated devices share memory, which transport='messages' lacks here"
    refused_by_several(comm, message, lambda: Executor(task_graph, transport="messages"))


def scaled(number):
    """A graph whose kernel closes over a number."""
    graph = Graph()
    x = graph.input("x", (4,), "float64")
    kernel = lambda ctx, x, y: ctx.xp.multiply(x, number, out=y)
    graph.output("y", graph.launch("scale", "b -> b", [x], kernel=kernel))
    return graph


def test_ranks_whose_kernels_close_over_different_values(comm):
    last = comm.size - 1
    message = f"executor: rank {last} runs another kernel for 'scale' than rank 0: its code or what it closes over"
    refused_by_several(
        comm, message, lambda: Executor(lowered(scaled(float(comm.rank == last)), comm.size))
    )
    Executor(lowered(scaled(2.0), comm.size))


def test_ranks_that_write_different_values(comm):
    with Executor(lowered(network(), comm.size)) as step:
        before = step.read("fc.weight")
        message = "write 'fc.weight': rank 1 gives another value, or another region, than rank 0"
        refused_by_several(
            comm, message, lambda: step.write("fc.weight", np.full((4, 4), float(comm.rank)))
        )
        if comm.size > 1:
            np.testing.assert_array_equal(step.read("fc.weight"), before)


def test_a_machine_may_be_larger_than_what_the_strategy_uses(comm):
    with Executor(lowered(network(), comm.size + 2)) as step:
        assert step({"x": np.zeros((6, 4))})["y"].shape == (6, 4)


def test_a_loss_that_is_not_a_number_stops_every_rank(comm):
    graph = Graph()
    loss = graph.output("loss", tiny.mean_square(graph.input("x", (6, 4), "float64")))
    task_graph = lowered(loss.graph, comm.size, loss=ParallelConfig({"b": 2}, (0, comm.size - 1)))
    with (
        Executor(task_graph) as step,
        pytest.raises(FloatingPointError, match="step 0: the loss is nan"),
    ):
        step({"x": np.full((6, 4), np.nan)})


def test_a_graph_that_does_not_fit_one_device_is_refused_on_every_rank(comm):
    machine = MachineModel.uniform(comm.size, taskflow.Device(memory_bytes=100))
    graph = network()
    task_graph = lower(graph, taskflow.single_device(graph, machine, comm.size - 1), machine)
    message = (
        f"device {comm.size - 1}: the task graph needs 512 B (128 B for parameters and state, "
        "384 B at the peak of a step), the device has 100 B"
    )
    assert_refused(message, lambda: Executor(task_graph))
