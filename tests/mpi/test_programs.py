"""What keeps ranks in order: programs with fused calls and merged messages, and ranks of uneven pace."""

import gc
import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import Executor, Graph, MachineModel, lower
from taskflow.comm.transport import Message, connect
from tests import laws, tiny
from tests.mpi.test_laws import SIZE, TRANSPORTS, examples, placed
from tests.strategies import graphs


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(70)
@given(example=placed(graphs()))
def test_fused_calls_give_the_numbers_of_one_device(transport, example):
    laws.any_strategy_is_one_device(*example, steps=3, transport=transport, record=False)


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(30)
@given(example=placed(graphs()), seed=st.integers(0, 99))
def test_ranks_of_uneven_pace_give_the_numbers_of_one_device(comm, transport, example, seed):
    model, machine, strategy = example
    generator, options = (
        np.random.default_rng([seed, comm.rank]),
        {"record": False, "transport": transport},
    )
    with Executor(lower(model.graph, strategy, machine), seed=3, allow_nan=True, **options) as step:
        for k, call in enumerate(step.program.calls):
            if generator.random() < 0.2:
                step.program.calls[k] = partial(late, call, generator.random() * 1e-3)
        found = {
            f"{name} in step {k}": v for k in range(3) for name, v in step(model.feeds).items()
        }
        found |= {name: step.read(name) for name in step.persistent}
    laws.assert_close(found, laws.one_device(model, MachineModel.uniform(SIZE), 3))


def late(call, seconds):
    time.sleep(seconds)
    call()


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
