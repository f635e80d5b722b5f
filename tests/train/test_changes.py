"""Another plan, or graph, between two steps: the numbers are those of one device, whatever callbacks give, and when."""

from dataclasses import replace

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Batches, Device, Graph, MachineModel, Plan, Strategy, checkpoint
from taskflow.strategy.rebalance import cut_by_rates
from taskflow.train.callbacks import Moment, Rebalance, Rungs
from taskflow.train.trainer import KEPT_EXECUTORS
from tests.fake_gpu.streams import FakeStreams
from tests.refusals import each_refused

MACHINE = MachineModel.uniform(4)


def net(extra=0, training=True):
    """A net of float64 that repeats its work; `extra` layers change no number."""
    graph = Graph()
    x, t = graph.input("x", (16, 6), "float64"), graph.input("t", (16,), "int32")
    h = ops.tanh(ops.linear(x, 12, name="fc1"), name="tanh")
    y = ops.linear(ops.dropout(h, 0.2, name="drop"), 3, name="fc2")
    for k in range(extra):
        y = ops.add(y, ops.multiply(y, 0.0, name=f"nothing{k}"), name=f"same{k}")
    loss = ops.cross_entropy(y, t, name="ce")
    graph.output("wide", ops.mean(ops.multiply(h, h), name="wide"))
    if training:
        ops.adam(loss, lr=0.02)
    return graph


def batches():
    generator = np.random.default_rng(0)
    x, t = generator.normal(size=(80, 6)), generator.integers(0, 3, 80, np.int32)
    return Batches({"x": x, "t": t}, 16, seed=1)


def train(strategy, epochs=2, graph=None, machine=MACHINE, callbacks=(), **fit):
    trainer = taskflow.Trainer(
        graph or net(),
        machine=machine,
        strategy=strategy,
        costs=taskflow.CostModel.analytic(machine),
        quiet=True,
    )
    history = trainer.fit(batches(), epochs, callbacks=callbacks, **fit)
    values = {name: trainer.step.read(name) for name in trainer.step.persistent}
    return trainer, history, values


def assert_same(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-10, err_msg=name)


@pytest.fixture(scope="module")
def expected():
    return train(taskflow.single_device)[1:]


def random_plans(moment):
    """Any plan, at most steps; that of seed 3 comes again."""
    if moment.step % 4 == 3:
        return None
    seed = moment.step if moment.step % 2 else 3
    strategy = taskflow.random_strategy(moment.graph, MACHINE, seed)
    return Plan(strategy, schedule="critical_path" if seed == 3 else None)


def test_any_plans_between_steps_are_one_device(expected):
    trainer, history, values = train(
        taskflow.data_parallel,
        callbacks=[random_plans],
        validation=(net(training=False), batches()),
    )
    assert_same(values, expected[1])
    assert_same(history.outputs, expected[0].outputs)
    assert len(trainer._executors) == KEPT_EXECUTORS, (
        "plans that come again are kept, and few of the others"
    )
    assert trainer.first in trainer._executors.values()
    assert trainer.plan == random_plans(Moment(10, 1, {}, None, None, trainer.graph, trainer.plan))


def test_feeds_that_went_ahead_to_a_gpu_are_fed_again(expected):
    """Plans change after every other step, when the next batch has been staged for the step that is no more."""
    machine = MachineModel.uniform(2, Device(kind="cuda"))
    trainer = taskflow.Trainer(
        net(),
        machine=machine,
        strategy=Plan(taskflow.data_parallel(net(), machine)),
        costs=taskflow.CostModel.analytic(machine),
        quiet=True,
        executor={"backend": FakeStreams()},
    )

    ran = []

    def change(moment):
        ran.append(moment.is_epoch or moment.executor.seconds > 0)
        return None if moment.step % 2 else moment.plan.rebalanced(net(), [moment.step, 4.0])

    history = trainer.fit(batches(), 2, callbacks=[change])
    assert all(ran), "the next step is one of the plan that was given"
    assert len(trainer._executors) > 2 and history.outputs.keys() == expected[0].outputs.keys()
    assert_same(history.outputs, expected[0].outputs)
    assert_same({n: trainer.step.read(n) for n in expected[1]}, expected[1])


def test_a_run_goes_on_with_the_plan_that_it_had(expected, tmp_path):
    rates = [3.0, 1.0, 1.0, 1.0]

    def change(moment):
        return moment.plan.rebalanced(moment.graph, rates) if moment.step == 2 else None

    first = train(taskflow.data_parallel, 1, callbacks=[change], checkpoint=tmp_path)[0]
    shares = dict(first.plan.strategy["fc1"].degrees)["b"]
    assert shares == pytest.approx((0.5, 1 / 6, 1 / 6, 1 / 6), abs=0.1)
    again, _, values = train(taskflow.data_parallel, 2, checkpoint=tmp_path)
    assert again.plan == first.plan == checkpoint.plan_of(tmp_path)
    assert_same(values, expected[1])


def emulated(*speeds):
    device = Device("emulated", flops_per_second=1e6, memory_bandwidth=1e12, overhead_seconds=0)
    machine = MachineModel.uniform(len(speeds), device, bandwidth=1e10, latency_seconds=1e-6)
    devices = [replace(device, flops_per_second=1e6 * speed) for speed in speeds]
    return MachineModel(tuple(devices), machine.links, machine.name)


@pytest.mark.parametrize("speeds", [(3, 1), (1, 1)])
def test_parts_follow_measured_rates(speeds, expected):
    """The trainer believes that both are alike."""
    true = taskflow.CostModel.analytic(emulated(*speeds))
    trainer = taskflow.Trainer(
        net(),
        machine=emulated(1, 1),
        strategy=taskflow.data_parallel,
        costs=taskflow.CostModel.analytic(emulated(1, 1)),
        quiet=True,
        executor={"costs": true},
    )
    trainer.fit(batches(), 2, callbacks=[Rebalance(every=4, least_gain=0.1)])
    shares = dict(trainer.plan.strategy["fc1"].degrees)["b"]
    if speeds == (1, 1):
        assert shares == 2 and len(trainer._executors) == 1
    else:
        assert shares == pytest.approx((0.75, 0.25), abs=1 / 16)
    assert_same({n: trainer.step.read(n) for n in expected[1]}, expected[1])


def test_rungs_go_down_and_up(expected):
    graphs = [lambda k=k: net(2 - k) for k in range(3)]
    values = iter([0.5, 0.5, 0.3, 0.3, 0.05, 0.05, 0.305, 0.305, 0.4, 0.4])
    rungs, seen = Rungs(graphs, "wide", [0.4, 0.1], every=2), []

    def down(moment):
        if moment.is_epoch:
            return None
        seen.append(sum(op.name in ("same0", "same1") for op in moment.graph.operators))
        return rungs(replace(moment, outputs={"wide": next(values)}))

    trainer, _, found = train(taskflow.data_parallel, graph=net(2), callbacks=[down])
    assert seen == [2, 2, 2, 2, 1, 1, 0, 0, 1, 1]
    assert rungs.rung == 1 and trainer.strategy["fc1"].points == 4
    assert_same(found, expected[1])


def test_parts_by_rates_have_whole_samples():
    graph = net()
    strategy = taskflow.data_parallel(graph, MACHINE)
    cut = cut_by_rates(graph, strategy, [1e9, 1.0, float("nan"), 0.0])
    bounds = cut["fc1"].bounds("b", 16)
    assert min(np.diff(bounds)) == 1 and np.diff(bounds).tolist() == [7, 1, 4, 4]
    assert cut["fc1"].bounds("b", 16) == cut["tanh"].bounds("b", 16)
    taskflow.check_plan(graph, taskflow.lower(graph, cut, MACHINE))


test_refused = each_refused(
    [
        (
            "no rates",
            lambda: Plan(Strategy()).rebalanced(net(), [0.0]),
            "rebalance: rates are [0.0], no device has one",
        ),
        (
            "bounds that rise",
            lambda: Rungs([net, net, net], "loss", [1.0, 2.0]),
            "Rungs('loss'): 3 graphs have a falling bound each but the last, not [1.0, 2.0]",
        ),
    ]
)
