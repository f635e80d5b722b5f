"""Batches whose numbers are not finite: what a training does, and which state it leaves."""

import numpy as np
import pytest

import ops
from taskflow import Device, Executor, Graph, MachineModel, lower, single_device
from taskflow.core.system import world_size
from tests import kept, tiny
from tests.fake_gpu.streams import FakeStreams
from tests.refusals import assert_refused

BAD = 7  # the batch that is not finite: the third of the second epoch


def trainer(kind="cpu", **options):
    count = max(world_size(), 2) if kind == "cuda" else 2 * world_size()
    machine = MachineModel.uniform(count, Device(kind=kind))
    executor = {"backend": FakeStreams()} if kind == "cuda" else {}
    return kept.trainer(machine=machine, executor=executor | options.pop("executor", {}), **options)


class Spoilt:
    """The batches of `kept`, one of which holds a number that is not finite."""

    def __init__(self, *bad, value=np.nan):
        self.batches, self.bad, self.value = kept.batches(), bad, value

    def __len__(self):
        return len(self.batches)

    def epoch(self, number):
        for k, feeds in enumerate(self.batches.epoch(number)):
            if number * len(self) + k in self.bad:
                feeds = feeds | {"x": lambda rect: np.full(rect.shape, self.value, np.float32)}
            yield feeds


class Without(Spoilt):
    """The same without those batches."""

    def epoch(self, number):
        yield from (
            f
            for k, f in enumerate(self.batches.epoch(number))
            if number * len(self) + k not in self.bad
        )


@pytest.mark.parametrize("every", [None, 3])
@pytest.mark.parametrize("is_kept", [False, True])
def test_stop_leaves_the_last_finite_state(is_kept, every, tmp_path):
    run, twin = trainer(), trainer()
    options = {"checkpoint": tmp_path / "run", "every": every} if is_kept else {"every": every}
    with pytest.raises(
        FloatingPointError, match=r"step 7: the loss is nan; the state is again that after \d steps"
    ):
        run.fit(Spoilt(BAD), 2, **options)
    twin.fit(kept.batches(), 1)
    for feeds in list(kept.batches().epoch(1))[: run.step.steps - 5]:
        twin.step.write("learning_rate", twin.learning_rate(twin.step.steps))
        twin.step(feeds)
    assert run.step.steps == (6 if every else 5)
    assert kept.bits(run.step) == kept.bits(twin.step)


@pytest.mark.parametrize("is_kept", [False, True])
def test_back_goes_on_with_the_next_batch(is_kept, tmp_path):
    run, twin = trainer(), trainer()
    history = run.fit(
        Spoilt(BAD), 3, on_nan="back", checkpoint=tmp_path / "run" if is_kept else None
    )
    assert (
        history.refused == 1
        and np.isfinite(history.outputs["loss"]).all()
        and len(history.outputs["loss"]) == 3
    )
    assert run.step.steps == 12  # those of batches 5 and 6 were undone
    twin.fit(Without(5, 6, BAD), 3)
    assert kept.bits(run.step) == kept.bits(twin.step)


KINDS = [
    ("cpu", {}),
    ("emulated", {}),
    ("cuda", {}),
    ("cuda", {"capture": False}),
    ("cuda", {"record": True}),
]


@pytest.mark.parametrize(("kind", "executor"), KINDS)
def test_skip_changes_nothing_but_the_number_of_steps(kind, executor):
    """Running statistics, which are updated before, have what they had; transfers and folds go on."""
    run = trainer(kind, executor=executor)
    seen = []
    call = Executor._step

    def spy(step, *feeds):
        values = call(step, *feeds)
        seen.append((step.is_skipped, {n: step.regions.read(n).tobytes() for n in step.persistent}))
        return values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "_step", spy)
        history = run.fit(Spoilt(3, BAD, value=np.inf), 2, on_nan="skip")
    skipped = [k for k, (is_skipped, _) in enumerate(seen) if is_skipped]
    assert skipped == [3, BAD] and history.refused == 2 and run.step.steps == 10
    for k in skipped:
        before, after = (dict(state, learning_rate=b"") for _, state in seen[k - 1 : k + 1])
        assert after == before
        assert seen[k + 1][1] != seen[k][1]
    assert np.isfinite(history.outputs["loss"]).all()
    assert kind != "cuda" or run.step._streamed.replay.is_captured == (not executor)


@pytest.mark.parametrize("kind", ["cpu", "emulated", "cuda"])
def test_a_guarded_step_is_the_same_to_the_bit(kind):
    run, twin = trainer(kind), trainer(kind)
    assert run.fit(kept.batches(), 2, on_nan="skip").outputs == twin.fit(kept.batches(), 2).outputs
    run.fit(kept.batches(), 1)  # without the guard again
    twin.fit(kept.batches(), 1)
    assert kept.bits(run.step) == kept.bits(twin.step)


@pytest.mark.parametrize("goes_back", [False, True])
def test_a_state_that_is_not_finite_is_never_saved(goes_back, tmp_path):
    """A moment of Adam is infinite, and the losses stay finite."""

    def rate(steps):
        if steps == BAD:
            run.step.regions.write("fc1.weight.adam_v", np.full((8, 6), np.inf))
        return 0.01

    run, twin = trainer(learning_rate=rate), trainer(learning_rate=lambda steps: 0.01)
    twin.fit(kept.batches(), 1)
    message = "step 9: not all numbers of 'fc1.weight.adam_v' are finite; the state is again that after 5 steps"
    if goes_back:
        run.fit(kept.batches(), 2, checkpoint=tmp_path / "run", on_nan="back")
    else:
        with pytest.raises(FloatingPointError) as caught:
            run.fit(kept.batches(), 2, checkpoint=tmp_path / "run")
        assert str(caught.value) == message
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-00000005"]
    assert kept.bits(run.step) == kept.bits(twin.step)


def test_an_epoch_of_which_nothing_is_finite_ends_the_run():
    with pytest.raises(FloatingPointError, match="epoch 1: no batch of 5 gave finite numbers"):
        trainer().fit(Spoilt(*range(5)), 2, on_nan="back")


@pytest.mark.parametrize("way", ["stop", "skip", "back"])
def test_a_validation_that_is_not_finite(way, caplog):
    """Its batch does not count where runs go on, and it changes nothing; a state with it is no better than another."""
    run, twin, validation = trainer(), trainer(), kept.network(training=False)
    if way == "stop":
        with pytest.raises(
            FloatingPointError,
            match=r"^validation after epoch 1, batch 2: step 5: the loss is nan$",
        ):
            run.fit(kept.batches(), 2, (validation, Spoilt(1)), on_nan=way)
        twin.fit(kept.batches(), 1)
    else:
        found = run.fit(kept.batches(), 2, (validation, Spoilt(1)), on_nan=way)
        expected = twin.fit(kept.batches(), 2, (validation, Without(1)))
        assert (
            found.validation == expected.validation and np.isfinite(found.validation["loss"]).all()
        )
        what = "the loss is not finite in 1 of 5 batches, which do not count"
        said = [r.message for r in caplog.records if r.name == "taskflow.train.trainer"]
        assert said == [f"validation after epoch {k}: {what}" for k in (1, 2)]
    assert kept.bits(run.step) == kept.bits(twin.step)


def test_a_validation_of_which_nothing_is_finite_ends_the_run():
    with pytest.raises(
        FloatingPointError, match=r"^validation after epoch 1: no batch of 5 gave finite numbers$"
    ):
        trainer().fit(
            kept.batches(), 2, (kept.network(training=False), Spoilt(*range(5))), on_nan="back"
        )


def test_an_unknown_way():
    assert_refused(
        "fit: on_nan is one of stop, skip, back, not 'hope'",
        lambda: trainer().fit([], 1, on_nan="hope"),
    )


def eager_rows(kind="cpu"):
    """Rows that update `fc2` before the gradient of `fc1` is there, and feeds."""
    graph = Graph()
    x = graph.input("x", (4, 6))
    ops.adam(tiny.mean_square(ops.linear(ops.linear(x, 5, name="fc1"), 3, name="fc2")), 0.1)
    machine = MachineModel.uniform(1, Device(kind=kind))
    rows = lower(graph, single_device(graph, machine), machine)
    names = [rows.name(k) for k in range(len(rows))]
    early = sorted(
        range(len(rows)), key=lambda k: (not _before(rows, names.index("fc2.weight.adam"), k), k)
    )
    return rows.reordered(early), np.ones((4, 6), np.float32)


def _before(rows, row, k):
    """Whether `row` is k, or waits for it."""
    return row == k or any(_before(rows, dep, k) for dep in rows.deps(row))
