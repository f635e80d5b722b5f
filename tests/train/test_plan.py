"""Plans in a trainer: what it trains is what they apply, evaluation and checkpoints know them."""

import json

import numpy as np
import pytest

import taskflow
from taskflow import Plan, checkpoint
from taskflow.checkpoint.manifest import NAME, render_table
from taskflow.comm.transport import world_size
from taskflow.schedule import by_ordinal
from tests import kept
from tests.train.test_accumulate import assert_same, network, trained


def everything(graph, machine):
    """Micro-batches in the order of a pipeline, homes split over all devices, clones, a named update."""
    fields = {
        "recomputed": ["fc1", "bn1"],
        "homes": [r.name for r in graph.parameters if r.role == "parameter"],
    }
    changed = Plan(taskflow.single_device(graph, machine), **fields).transform(graph)
    strategy = taskflow.fully_sharded(changed, machine, taskflow.stages(changed, machine, 2))
    strategy["fc2.bias.home"] = taskflow.ParallelConfig({}, (0,))
    return Plan(strategy, 4, "one_f_one_b", **fields, collectives={"all-gather": "ring"})


def zero(graph, machine):
    """No homes: updates alone are split, and samples in micro-batches."""
    strategy = taskflow.data_parallel(graph, machine)
    for op in graph.operators:
        if op.writes and op.split_axes and max(op.extents.values()) >= len(machine.devices):
            strategy[op.name] = taskflow.ParallelConfig(
                {max(op.split_axes, key=lambda a: op.extents[a]): 2}
            )
    return Plan(strategy, 2, by_ordinal)


@pytest.fixture(scope="module")
def expected():
    return trained(taskflow.single_device)[1]


@pytest.mark.parametrize("rule", [everything, zero])
def test_a_plan_is_trained(rule, expected):
    """By a rule, or as it is; every epoch is validated under it."""
    trainer, found = trained(rule)
    assert_same(found, expected)
    _, rows = trainer.plan.apply(network(), trainer.machine, trainer.costs)
    assert (
        trainer.task_graph.digest() == rows.digest() and trainer.strategy is trainer.plan.strategy
    )
    assert_same(trained(trainer.plan)[1], expected)


def test_micro_batches_and_an_order_beside_a_plan(expected):
    def rule(graph, machine):
        return Plan(taskflow.stages(graph, machine, 2), homes=["fc0.weight"])

    trainer, found = trained(rule, accumulate=4, order="one_f_one_b")
    assert (trainer.plan.parts, trainer.plan.schedule, trainer.plan.homes) == (
        4,
        "one_f_one_b",
        ("fc0.weight",),
    )
    assert_same(found, expected)
    assert trained(rule, accumulate=4)[0].plan.schedule == "by_ordinal"


@pytest.fixture(scope="module")
def trainers():
    return trained(everything)[0], trained(taskflow.single_device)[0]


@pytest.mark.parametrize(("batch", "parts"), [(64, 4), (30, 3), (6, 3), (1, 1)])
def test_evaluation_graphs_of_any_batch(batch, parts, trainers):
    trainer, on_one_device = trainers
    graph = network(training=False, parts=1, batch=batch)
    random = np.random.default_rng(5)
    feeds = {
        "x": random.standard_normal((batch, 16)),
        "t": random.integers(0, 16, batch).astype("int32"),
    }
    found = trainer.evaluate(graph, taskflow.Batches(feeds, batch))["loss"]
    alone = on_one_device.evaluate(graph, taskflow.Batches(feeds, batch))["loss"]
    assert abs(found - alone) <= 1e-10
    assert trainer.plan.for_graph(graph).parts == parts
    (step,) = trainer._evaluators[id(graph)][1].executors.values()
    rows = step.task_graph
    assert rows.ordinal.max() + 1 == parts
    halves = [[box for _, box in each.homes["fc0.weight"]] for each in (rows, trainer.task_graph)]
    assert halves[0] == halves[1] and len(halves[0]) == 2


def test_the_report_says_the_plan(capsys):
    trainer, _ = trained(everything, quiet=False)
    trainer.report()
    if trainer.transport.rank == 0:
        out = capsys.readouterr().out
        more = "4 micro-batches; schedule one_f_one_b; computed again: fc1, bn1; homes of 18 parameters"
        assert (
            f"plan: {more}; all-gather by ring" in out.replace("\n", " ")
            and "fc0.weight.home" in out
        )


# -- checkpoints -------------------------------------------------------------------------------------------------------


def halves(graph, machine):
    """Two micro-batches; a home of its own."""
    changed = taskflow.homes(graph, ["fc1.weight"])
    return Plan(taskflow.fully_sharded(changed, machine), 2, "by_ordinal", homes=["fc1.weight"])


def fit(rule, folder, epochs=1, **options):
    trainer = kept.trainer(rule, taskflow.MachineModel.uniform(max(2, world_size())), **options)
    history = trainer.fit(kept.batches(), epochs, checkpoint=folder)
    return trainer, kept.bits(trainer.step), history.outputs["loss"]


def test_a_checkpoint_records_the_plan_and_another_goes_on(tmp_path):
    trainer, bits, _ = fit(halves, tmp_path)
    assert (
        checkpoint.plan_of(tmp_path)
        == checkpoint.plan_of(checkpoint.latest(tmp_path))
        == trainer.plan
    )
    other, found, _ = fit(taskflow.data_parallel, tmp_path)
    assert (
        found == bits and checkpoint.plan_of(tmp_path) == trainer.plan != other.plan
    )  # nothing was left to do
    other, _, losses = fit(taskflow.data_parallel, tmp_path, 2)
    assert checkpoint.plan_of(tmp_path) == other.plan
    np.testing.assert_allclose(losses, fit(halves, None, 2)[2], rtol=1e-4)


def test_a_checkpoint_of_before_there_were_plans(tmp_path):
    _, bits, _ = fit(halves, tmp_path)
    path = checkpoint.latest(tmp_path) / NAME
    table = json.loads(path.read_text())
    del table["notes"]["plan"]
    path.write_text(render_table(table))
    assert checkpoint.plan_of(tmp_path) is None
    assert fit(halves, tmp_path)[1] == bits


def test_an_order_of_ones_own_is_not_recorded(tmp_path):
    fit(taskflow.data_parallel, tmp_path, order=lambda rows, seconds: by_ordinal(rows, seconds))
    assert checkpoint.plan_of(tmp_path) is None
