"""Checkpoints: what is saved comes back to the bit, under any strategy, or is refused."""

import shutil
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

import taskflow
from taskflow import checkpoint
from taskflow.checkpoint import manifest
from tests import kept


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint after five steps, what it must hold, and the losses of the next four."""
    step = kept.executor()
    kept.train(step, 5)
    path = checkpoint.save(step, tmp_path_factory.mktemp("run"))
    return path, kept.bits(step), kept.train(step, 9)


def test_a_resumed_run_is_the_undisturbed_one(saved):
    path, bits, losses = saved
    step = kept.executor(seed=4)  # the seed of masks comes from the checkpoint
    assert checkpoint.load(step, path.parent).steps == 5
    assert kept.bits(step) == bits
    assert kept.train(step, 9) == losses


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "rule", ["single_device", "data_parallel", "model_parallel", "one_weird_trick"]
)
def test_any_strategy_saves_and_loads_the_same_bits(saved, rule, devices, tmp_path):
    path, bits, losses = saved
    step = kept.executor(getattr(taskflow, rule), devices)
    checkpoint.load(step, path)
    assert kept.bits(step) == bits
    again = kept.executor()
    checkpoint.load(again, checkpoint.save(step, tmp_path))
    assert kept.train(again, 9) == losses


def test_the_files_are_safetensors(saved):
    path, bits, _ = saved
    tensors = load_file(path / "rank-0000.safetensors")
    assert {name: value.tobytes() for name, value in tensors.items()} == bits


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "bool"])
def test_dtypes_keep_their_bits(dtype, tmp_path):
    graph, machine = taskflow.Graph(), taskflow.MachineModel.uniform(1)
    shapes = {"scalar": (".", ()), "row": ("a", (3,)), "box": ("a b c", (2, 3, 5))}
    for name, (term, shape) in shapes.items():
        region = graph.parameter(name, shape, dtype=dtype, trainable=False)
        graph.launch(
            f"copy {name}",
            f"{term} -> {term}",
            [region],
            kernel=lambda ctx, x, y: np.copyto(y, x),
            dtype=dtype,
        )
    step = taskflow.Executor(taskflow.lower(graph, taskflow.single_device(graph, machine), machine))
    shapes = {name: shape for name, (_, shape) in shapes.items()}
    for name, shape in shapes.items():
        step.write(name, np.arange(np.prod(shape)).reshape(shape).astype(dtype))
    bits = kept.bits(step)
    path = checkpoint.save(step, tmp_path)
    assert load_file(path / "rank-0000.safetensors")["box"].dtype == dtype
    for name in shapes:
        step.write(name, np.zeros(shapes[name], dtype))
    checkpoint.load(step, path)
    assert kept.bits(step) == bits


# -- folders -----------------------------------------------------------------------------------------------------------


def test_the_last_ones_are_kept(tmp_path):
    step = kept.executor()
    for _ in range(4):
        kept.train(step, step.steps + 1)
        checkpoint.save(step, tmp_path, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]
    assert checkpoint.latest(tmp_path) == tmp_path / "step-00000004"


def test_what_a_killed_save_leaves_is_no_checkpoint_and_goes(tmp_path):
    (tmp_path / ".step-00000002.partial").mkdir(parents=True)
    (tmp_path / ".step-00000002.partial" / "rank-0000.safetensors").write_bytes(b"half")
    assert checkpoint.latest(tmp_path) is None
    step = kept.executor()
    checkpoint.save(step, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000000"]


def test_notes_come_back(tmp_path):
    step = kept.executor()
    notes = {"place": [1, 0.1], "name": "\u00e9"}
    assert checkpoint.load(step, checkpoint.save(step, tmp_path, notes=notes)).notes == notes


def test_a_disk_without_room_leaves_no_checkpoint(tmp_path, monkeypatch):
    step = kept.executor()
    monkeypatch.setattr(
        "taskflow.checkpoint.tensorfile.os.fsync",
        lambda handle: (_ for _ in ()).throw(OSError(28, "No space")),
    )
    with pytest.raises(OSError, match="No space") as caught:
        checkpoint.save(step, tmp_path)
    assert caught.value.filename.endswith("rank-0000.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_evaluation_sees_what_was_loaded(saved):
    step = kept.executor(taskflow.data_parallel, 2)
    machine, graph = taskflow.MachineModel.uniform(2), kept.network(training=False)
    evaluation = taskflow.Executor(
        taskflow.lower(graph, taskflow.single_device(graph, machine), machine), share=step
    )
    before = evaluation(kept.feeds(0))["loss"]
    checkpoint.load(step, saved[0])
    after = evaluation(kept.feeds(0))["loss"]
    alone = kept.executor(training=False)
    checkpoint.load(alone, saved[0], ignore_extra=True)
    assert after != before
    assert after == alone(kept.feeds(0))["loss"]


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copy(saved, tmp_path_factory):
    """A copy of the checkpoint to be damaged: file -> its bytes."""
    path = tmp_path_factory.mktemp("damaged") / saved[0].name
    shutil.copytree(saved[0], path)
    return path, {file: file.read_bytes() for file in sorted(path.iterdir())}


def refuses(path):
    with pytest.raises(ValueError, match=f"checkpoint '{path}'"):
        manifest.check_all(path)


@given(data=st.data())
def test_one_flipped_bit_is_refused(copy, data):
    path, files = copy
    file = data.draw(st.sampled_from(sorted(files)))
    place, bit = data.draw(st.integers(0, len(files[file]) - 1)), data.draw(st.integers(0, 7))
    altered = bytearray(files[file])
    altered[place] ^= 1 << bit
    file.write_bytes(altered)
    refuses(path)
    file.write_bytes(files[file])


@given(data=st.data())
def test_a_file_cut_short_is_refused(copy, data):
    path, files = copy
    file = data.draw(st.sampled_from(sorted(files)))
    file.write_bytes(files[file][: data.draw(st.integers(0, len(files[file]) - 1))])
    refuses(path)
    file.write_bytes(files[file])


# -- Trainer.fit -------------------------------------------------------------------------------------------------------


class Cut(Exception):
    """Ends a run in the middle of a step."""


def fit(folder, epochs=3, every=None, cut=None, by=None):
    """Train; in step `cut`, raise or send this process the signal `by`."""
    trainer, batches = kept.trainer(), kept.batches()
    load = batches.epoch

    def end():
        if trainer.step.steps == cut:
            if by is None:
                raise Cut
            signal.raise_signal(by)

    def epoch(number):
        for feeds in load(number):
            end()
            yield feeds
        end()  # batches are fetched one step ahead: before the last step there is none any more

    batches.epoch = epoch
    history = trainer.fit(
        batches, epochs, (kept.network(training=False), kept.batches()), folder, every=every
    )
    return kept.bits(trainer.step), history.outputs, history.validation


@pytest.fixture(scope="module")
def undisturbed():
    return fit(None)


@pytest.mark.parametrize(
    ("every", "cut"), [(None, 0), (None, 5), (None, 7), (1, 4), (1, 14), (4, 4), (4, 5), (4, 7)]
)
def test_fit_goes_on_as_if_it_had_never_stopped(undisturbed, cut, every, tmp_path):
    with pytest.raises(Cut):
        fit(tmp_path, every=every, cut=cut)
    assert fit(tmp_path, every=every) == undisturbed
    assert fit(tmp_path, every=every) == undisturbed  # there is nothing left to do


def test_fit_goes_on_for_more_epochs(undisturbed, tmp_path):
    fit(tmp_path, epochs=1)
    assert fit(tmp_path) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_the_step_and_leaves(undisturbed, number, tmp_path):
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as left:
        fit(tmp_path, cut=7, by=number)
    assert left.value.code == 128 + number
    assert signal.getsignal(number) == before
    assert checkpoint.latest(tmp_path).name == "step-00000007"
    assert fit(tmp_path) == undisturbed


def test_a_signal_without_a_folder_leaves_too():
    with pytest.raises(SystemExit) as left:
        fit(None, cut=7, by=signal.SIGTERM)
    assert left.value.code == 128 + signal.SIGTERM


def test_what_is_started_again_goes_on_from_the_newest_sound_checkpoint(
    undisturbed, monkeypatch, tmp_path
):
    fit(tmp_path, every=4)
    newest = checkpoint.latest(tmp_path)
    file = next(newest.glob("rank-*"))
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(ValueError, match=r"altered|bytes"):
        fit(tmp_path, every=4)
    monkeypatch.setenv("TASKFLOW_RESTART", "1")
    assert fit(tmp_path, every=4) == undisturbed
    assert checkpoint.newest_sound(tmp_path) == newest
