"""Ctrl-C in a step, wherever it comes: the state is that of before the step or of after it, and training goes on."""

import os
import signal

import numpy as np
import pytest

import ops
from taskflow import (
    Executor,
    Graph,
    Kernel,
    MachineModel,
    data_parallel,
    lower,
    single_device,
    stages,
)

TWO = MachineModel.uniform(2)
X = np.random.default_rng(0).standard_normal((5, 8, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def handled():
    """Ctrl-C raises: in the background of a shell, where tests may run, it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def adam(loss):
    ops.adam(loss, 0.1)


def clipped(loss):
    ops.sgd(loss, 0.1, momentum=0.9, clip_norm=1.0)


def scheduled(loss):
    ops.sgd(loss, lambda steps: 0.1 / (1 + steps))


def network(optimizer):
    graph = Graph()
    x = graph.input("x", (8, 6))
    h = ops.dropout(ops.relu(ops.batch_norm(ops.linear(x, 6, name="fc1"))), 0.3)
    y = ops.linear(h, 3, name="fc2")
    loss = ops.mean(ops.multiply(y, y))
    optimizer(loss)
    return graph


def pressed(step, number):
    """A step in which Ctrl-C is pressed before call `number`."""
    calls = step.program.calls
    call = calls[number]

    def press():
        os.kill(os.getpid(), signal.SIGINT)
        call()

    calls[number] = press
    try:
        with pytest.raises(KeyboardInterrupt):
            step({"x": X[2]})
    finally:
        calls[number] = call


def state(step):
    return step.steps, {name: step.read(name).tobytes() for name in step.persistent}


RULES = {
    "one device": single_device,
    "data parallel": data_parallel,
    "pipeline": lambda graph, machine: stages(graph, machine, count=2),
}


@pytest.mark.parametrize("allow_nan", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("optimizer", [adam, clipped, scheduled])
def test_the_state_is_whole(optimizer, rule, allow_nan):
    graph = network(optimizer)
    rows = lower(graph, RULES[rule](graph, TWO), TWO)
    with Executor(rows) as twin:
        expected = []
        for x in X:
            twin({"x": x})
            expected.append(state(twin))
    with Executor(rows, allow_nan=allow_nan) as step:
        for k in (0, 1):
            step({"x": X[k]})
        heard = set()
        for number in range(len(step.program.calls)):
            for name, value in values_of(twin, expected[1]).items():
                step.write(name, value)
            step.continue_from(2, 0)
            pressed(step, number)
            assert state(step) in expected[1:3]
            heard.add(step.steps)
            for k in range(step.steps, 5):
                step({"x": X[k]})
            assert state(step) == expected[4]
        assert heard == ({3} if allow_nan else {2, 3}), "at once before updates, then at the end"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def values_of(step, state):
    like = {name: step.read(name) for name in step.persistent}
    return {
        name: np.frombuffer(data, like[name].dtype).reshape(like[name].shape)
        for name, data in state[1].items()
    }


def test_an_evaluation_ends_at_once():
    graph = Graph()
    graph.output("y", ops.relu(ops.linear(graph.input("x", (8, 6)), 6)))
    with Executor(lower(graph, data_parallel(graph, TWO), TWO)) as step:
        pressed(step, 0)
        step({"x": X[0]})


def test_a_second_one_ends_a_step_at_once():
    pressed_twice = []

    @Kernel
    def kernel(ctx, x, y):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            pressed_twice.append(None)
        ctx.xp.copyto(y, x)

    graph = Graph()
    x = graph.input("x", (8, 6))
    ops.sgd(ops.mean(ops.linear(x, 3)), 0.1)
    graph.output("y", graph.launch("k", "b i -> b i", [x], kernel=kernel))
    with (
        Executor(lower(graph, single_device(graph, TWO), TWO), allow_nan=True) as step,
        pytest.raises(KeyboardInterrupt),
    ):
        step({"x": X[0]})
    assert len(pressed_twice) == 1


def test_an_error_of_a_kernel_leaves_running_statistics():
    """What is updated before all gradients are there is what it was."""
    graph = network(adam)
    with Executor(lower(graph, data_parallel(graph, TWO), TWO)) as step:
        before = state(step)
        last = step.program.rows.index(step.guard.guarded.row)
        calls, wrong = step.program.calls, ZeroDivisionError("a kernel's")

        def fail():
            raise wrong

        first, calls[last - 1] = calls[last - 1], fail
        with pytest.raises(ZeroDivisionError):
            step({"x": X[0]})
        calls[last - 1] = first
        assert state(step) == before
