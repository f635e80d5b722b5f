"""Several trainings as one: each learns what it learns alone, leaves when it is over, and keeps its checkpoints."""

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Batches, Graph, Job, Jobs, MachineModel, checkpoint
from taskflow.train.callbacks import MergeBest
from tests.refusals import each_refused

MACHINE = MachineModel.uniform(2)


def net(hidden):
    graph = Graph()
    x, t = graph.input("x", (8, 5), "float64"), graph.input("t", (8,), "int32")
    h = ops.dropout(ops.relu(ops.linear(x, hidden, name="fc1")), 0.2, name="drop")
    ops.adam(ops.cross_entropy(ops.linear(h, 3, name="fc2"), t, name="ce"), lr=0.1)
    return graph


def batches(seed, examples):
    generator = np.random.default_rng(seed)
    x, t = generator.normal(size=(examples, 5)), generator.integers(0, 3, examples, np.int32)
    return Batches({"x": x, "t": t}, 8, seed=seed)


def rate(step):
    return 0.1 / (1 + step)


def alone(hidden, source, epochs, learning_rate=None, **fit):
    trainer = taskflow.Trainer(
        net(hidden),
        machine=MACHINE,
        strategy=taskflow.data_parallel,
        costs=taskflow.CostModel.analytic(MACHINE),
        quiet=True,
        seed=4,
        learning_rate=learning_rate,
    )
    history = trainer.fit(source, epochs, **fit)
    return history, {name: trainer.step.read(name) for name in trainer.step.persistent}


def test_each_job_learns_what_it_learns_alone(tmp_path):
    """a: six steps with a rate of its own; b: eight, in four epochs; b's folder is gone on with alone."""
    jobs = Jobs(
        {
            "a": Job(net(6), batches(0, 24), epochs=2, learning_rate=rate),
            "b": Job(net(4), batches(1, 16), epochs=4, checkpoint=tmp_path / "b"),
        },
        machine=MACHINE,
        costs=taskflow.CostModel.analytic(MACHINE),
        quiet=True,
        seed=4,
    )
    histories = jobs.fit()
    assert {op.job for op in jobs.trainer.graph.operators} == {"b"}, "a is over, and left"
    for name, plain in (
        ("a", alone(6, batches(0, 24), 2, rate)),
        ("b", alone(4, batches(1, 16), 4, checkpoint=tmp_path / "alone")),
    ):
        assert histories[name].outputs == plain[0].outputs
        step = jobs.executor(name)
        for region, value in plain[1].items():
            np.testing.assert_array_equal(step.read(region), value, err_msg=f"{name}/{region}")
    assert checkpoint.latest(tmp_path / "b").name == checkpoint.latest(tmp_path / "alone").name
    more = [alone(4, batches(1, 16), 5, checkpoint=tmp_path / name) for name in ("b", "alone")]
    assert more[0][0].outputs == more[1][0].outputs
    for region, value in more[1][1].items():
        np.testing.assert_array_equal(more[0][1][region], value)


@pytest.mark.parametrize("others_epochs", [1, 3])
def test_a_quick_job_takes_several_steps_while_another_takes_one(tmp_path, others_epochs):
    """a: eight steps, two at a time; b is over before it, or goes on after."""
    jobs = Jobs(
        {
            "a": Job(net(6), batches(0, 32), epochs=2, steps=2, checkpoint=tmp_path / "a"),
            "b": Job(net(4), batches(1, 16), epochs=others_epochs),
        },
        machine=MACHINE,
        costs=taskflow.CostModel.analytic(MACHINE),
        quiet=True,
        seed=4,
    )
    histories = jobs.fit()
    plain = alone(6, batches(0, 32), 2, checkpoint=tmp_path / "alone")
    other = alone(4, batches(1, 16), others_epochs)
    for name, (history, regions) in (("a", plain), ("b", other)):
        assert histories[name].outputs == history.outputs
        step = jobs.executor(name)
        for region, value in regions.items():
            np.testing.assert_array_equal(step.read(region), value, err_msg=f"{name}/{region}")
    assert checkpoint.latest(tmp_path / "a").name == "step-00000008"
    more = [alone(6, batches(0, 32), 3, checkpoint=tmp_path / name) for name in ("a", "alone")]
    assert more[0][0].outputs == more[1][0].outputs


def test_the_best_copy_pulls_the_others():
    graph = taskflow.beside({"p": net(4), "q": net(4)})
    trainer = taskflow.Trainer(
        graph,
        machine=MACHINE,
        strategy=taskflow.data_parallel,
        costs=taskflow.CostModel.analytic(MACHINE),
        quiet=True,
    )
    seen = {}

    def look(moment):
        if not moment.is_epoch:
            seen[moment.step] = [moment.executor.read(f"{job}/fc1.weight") for job in "pq"]
            losses.append([moment.outputs[f"{job}.loss"] for job in "pq"])

    losses = []
    sources = [batches(seed, 16).arrays for seed in (0, 1)]
    arrays = {
        f"{job}/{n}": a for job, own in zip("pq", sources, strict=True) for n, a in own.items()
    }
    merge = MergeBest(("p", "q"), every=2, weight=0.25)
    trainer.fit(Batches(arrays, 8), 1, callbacks=[look, merge])
    means = 0.9 * np.array(losses[0]) + 0.1 * np.array(losses[1])
    best = int(means.argmin())
    before, after = seen[2], [trainer.step.read(f"{job}/fc1.weight") for job in "pq"]
    np.testing.assert_array_equal(after[best], before[best])
    expected = 0.75 * before[1 - best] + 0.25 * before[best]
    np.testing.assert_allclose(after[1 - best], expected, rtol=0, atol=1e-14)


test_refused = each_refused(
    [
        (
            "batches that nobody can count",
            lambda: Jobs({"a": Job(net(4), lambda: iter(()))}, machine=MACHINE, quiet=True),
            "job 'a': how many batches an epoch has is not known",
        ),
        (
            "no epochs",
            lambda: Jobs({"a": Job(net(4), batches(0, 8), epochs=0)}, machine=MACHINE),
            "job 'a': epochs is 0, a whole number from 1 is needed",
        ),
        (
            "an epoch that ends within a step",
            lambda: Jobs({"a": Job(net(4), batches(0, 24), steps=2)}, machine=MACHINE, quiet=True),
            "job 'a': 3 batches an epoch are no multiple of 2 steps",
        ),
        (
            "a rate within a step",
            lambda: Jobs({"a": Job(net(4), batches(0, 16), steps=2, learning_rate=rate)}),
            "job 'a': the learning rate of 2 steps is one",
        ),
    ]
)
