"""The trainer: its report of predicted beside measured, and steps on GPUs, which are captured and fed ahead."""

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Device,
    Graph,
    MachineModel,
    PlanError,
    Trainer,
    data_parallel,
    lower,
    single_device,
)
from taskflow.comm.interrupt import Interrupted, Interrupts
from taskflow.comm.transport import world_size
from taskflow.execute.gpu.staging import Staging
from tests import kept
from tests.checking.mutations import dependence_missing
from tests.fake_gpu.streams import FakeStreams


@pytest.fixture
def trainer():
    graph = Graph()
    x, t = graph.input("x", (4, 6)), graph.input("t", (4,), "int32")
    loss = ops.softmax_cross_entropy(ops.linear(x, 3, name="fc"), t, name="loss")
    graph.output("loss", loss)
    ops.sgd(loss, lr=0.1)
    machine = MachineModel.uniform(1)
    trainer = Trainer(
        graph, machine=machine, costs=CostModel.analytic(machine), strategy=single_device
    )
    trainer.step({"x": np.ones((4, 6), np.float32), "t": np.zeros(4, np.int32)})
    return trainer


@pytest.mark.parametrize(
    ("measured", "warns"), [(0.7, True), (0.8, False), (1.25, False), (1.35, True)]
)
def test_a_prediction_off_by_more_than_30_percent_is_reported(trainer, capsys, measured, warns):
    trainer.step._seconds = 2.0 * measured
    trainer.predicted_seconds = 2.0
    trainer.report()
    text = capsys.readouterr().out
    assert "predicted step time: 2000.000 ms" in text
    assert f"measured step time:  {2000 * measured:.3f} ms ({measured:.2f} of predicted)" in text
    assert ("off by more than 30 %" in text) == warns


@pytest.mark.parametrize("check", [True, False])
def test_a_plan_is_proven_before_the_first_step(check, monkeypatch, capsys):
    graph, machine = kept.network(), MachineModel.uniform(2 * world_size())
    bad = dependence_missing(
        lower(graph, data_parallel(graph, machine), machine), np.random.default_rng(0)
    )
    options = {
        "machine": machine,
        "costs": CostModel.analytic(machine),
        "strategy": data_parallel,
        "check": check,
    }
    monkeypatch.setattr("taskflow.train.trainer.LONG_CHECK_SECONDS", 0.0)
    Trainer(graph, **options)
    assert ("plan: proven in " in capsys.readouterr().out) == check
    monkeypatch.setattr("taskflow.schedule.plan.lower", lambda *_, **__: bad)
    if not check:
        Trainer(graph, **options)
        return
    with pytest.raises(PlanError, match="rule race"):
        Trainer(graph, **options)


def on(kind, **options):
    """A trainer of the network with every kind of persistent region."""
    machine = MachineModel.uniform(world_size(), Device(kind=kind))
    executor = {"backend": FakeStreams()} if kind == "cuda" else {}
    return kept.trainer(machine=machine, executor=executor | options)


def validation():
    return kept.network(training=False), kept.batches()


def test_steps_on_gpus_are_captured_and_give_the_losses_of_cpus():
    gpu, cpu = on("cuda"), on("cpu")
    found, expected = (
        trainer.fit(kept.batches(), 2, validation=validation()) for trainer in (gpu, cpu)
    )
    for kind in ("outputs", "validation"):
        np.testing.assert_allclose(
            getattr(found, kind)["loss"], getattr(expected, kind)["loss"], rtol=1e-6
        )
    steps = (
        gpu.step,
        *(step for _, sizes in gpu._evaluators.values() for step in sizes.executors.values()),
    )
    assert all(step._streamed.replay.is_captured for step in steps)
    assert found.step_seconds > 0


def gated(training=True):
    """A chain of elementwise operators between two layers."""
    graph = Graph()
    x, t = graph.input("x", (kept.BATCH, kept.WIDTH)), graph.input("t", (kept.BATCH,), "int32")
    h = ops.multiply(ops.add(ops.linear(x, 8, name="fc1"), 1.0, name="plus"), 0.5, name="half")
    loss = ops.softmax_cross_entropy(
        ops.linear(ops.relu(h, name="relu"), 3, name="fc2"), t, name="loss"
    )
    graph.output("loss", loss)
    if training:
        ops.adam(loss, 0.01)
    return graph


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_graphs_are_fused_on_gpus_unless_a_strategy_names_their_operators(kind, is_named):
    machine, graph = MachineModel.uniform(world_size(), Device(kind=kind)), gated()
    rule = data_parallel
    strategy = rule(graph, machine) if is_named else rule
    executor = {"backend": FakeStreams()} if kind == "cuda" else {}
    costs = CostModel.analytic(machine)
    trainer = Trainer(
        graph, machine=machine, strategy=strategy, costs=costs, quiet=True, executor=executor
    )
    losses = trainer.fit(
        kept.batches(), 1, validation=(gated(training=False), kept.batches())
    ).validation["loss"]
    steps = (step for _, sizes in trainer._evaluators.values() for step in sizes.executors.values())
    rows = [trainer.task_graph, *(step.task_graph for step in steps)]
    found = [any(launch.name == "half" for launch in each.launches) for each in rows]
    assert found == [kind == "cpu" or is_named] * 2 and np.isfinite(losses).all()
    assert not any(op.members for op in graph.operators)


def test_a_timeline_can_be_asked_for():
    trainer = on("cuda", record=True)
    trainer.fit(kept.batches(), 1)
    assert trainer.step.timeline.seconds > 0


def test_all_batches_of_an_epoch_but_its_first_are_fed_ahead(monkeypatch):
    trainer, seen = on("cuda"), []
    begin, stage = Staging.begin, Staging.stage
    monkeypatch.setattr(
        Staging, "begin", lambda self, lead: seen.append("step") or begin(self, lead)
    )
    monkeypatch.setattr(Staging, "stage", lambda self: seen.append("feeds") or stage(self))
    trainer.fit(kept.batches(), 2)
    assert seen == 2 * [
        "step",
        "feeds",
        "feeds",
        *3 * ["step", "feeds"],
        "step",
    ]  # a first batch within its own step


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_batch_that_was_fetched_ahead_of_a_signal_is_trained_later(kind, monkeypatch, tmp_path):
    """Whoever stops goes on with the batch that comes next, the same trainer or another one."""
    whole, stopped, other = on(kind), on(kind), on(kind)
    expected = whole.fit(kept.batches(), 2).outputs
    check = Interrupts.check

    def stop_once(self):
        if stopped.step.steps == 3:
            monkeypatch.setattr(Interrupts, "check", check)
            raise Interrupted(15, 0)

    monkeypatch.setattr(Interrupts, "check", stop_once)
    with pytest.raises(SystemExit):
        stopped.fit(kept.batches(), 2, checkpoint=tmp_path)
    assert stopped.step.steps == 3
    assert other.fit(kept.batches(), 2, checkpoint=tmp_path / "none").outputs == expected
    assert stopped.fit(kept.batches(), 2, checkpoint=tmp_path).outputs == expected
    assert kept.bits(stopped.step) == kept.bits(whole.step)
