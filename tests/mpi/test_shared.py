"""Shared memory among ranks: programs with fused calls, and ranks of uneven pace."""

import time
from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Executor, MachineModel, lower
from tests import laws
from tests.mpi.test_laws import SIZE, examples, placed
from tests.strategies import graphs


@examples(40)
@given(placed(graphs()))
def test_fused_calls_give_the_numbers_of_one_device(example):
    laws.any_strategy_is_one_device(*example, steps=3, exchange="shared", record=False)


@examples(20)
@given(placed(graphs()), st.integers(0, 99))
def test_ranks_of_uneven_pace_give_the_numbers_of_one_device(comm, example, seed):
    model, machine, strategy = example
    generator = np.random.default_rng([seed, comm.rank])
    with Executor(lower(model.graph, strategy, machine), seed=3, allow_nan=True, record=False) as step:
        for k, call in enumerate(step.program.calls):
            if generator.random() < 0.2:
                step.program.calls[k] = partial(late, call, generator.random() * 1e-3)
        found = {f"{name} in step {k}": v for k in range(3) for name, v in step(model.feeds).items()}
        found |= {name: step.read(name) for name in step.persistent}
    laws.assert_close(found, laws.one_device(model, MachineModel.uniform(SIZE), 3))


def late(call, seconds):
    time.sleep(seconds)
    call()
