"""Checkpoints that are damaged, of another graph, or not wanted."""

import json
import os
import shutil
from pathlib import Path

import pytest

from taskflow import Executor, checkpoint
from taskflow.checkpoint.folder import owning
from taskflow.checkpoint.manifest import render_table
from taskflow.comm.transport import LocalTransport
from tests import kept
from tests.refusals import assert_refused


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with checkpoints of steps 0 and 1."""
    folder, step = tmp_path_factory.mktemp("run"), kept.executor()
    for _ in range(2):
        checkpoint.save(step, folder)
        kept.train(step, step.steps + 1)
    return folder


@pytest.fixture
def run(whole, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def load(folder, **options):
    return lambda: checkpoint.load(kept.executor(**options), folder)


def names(path):
    return path, path / "manifest.json", path / "rank-0000.safetensors"


def advice(path):
    return f"; '{path.parent / 'step-00000000'}' is sound: remove '{path}' to go on from there"


def test_a_folder_without_one(tmp_path):
    assert_refused(f"load: there is no checkpoint in '{tmp_path}'", load(tmp_path))


def test_a_manifest_that_is_missing(run):
    path, manifest, _ = names(run / "step-00000001")
    manifest.unlink()
    assert_refused(f"checkpoint '{path}': manifest.json: is missing{advice(path)}", load(run))


def test_a_manifest_cut_short(run):
    path, manifest, _ = names(run / "step-00000001")
    manifest.write_text(manifest.read_text()[:10])
    problem = "Expecting property name enclosed in double quotes: line 2 column 9 (char 10)"
    with pytest.raises(ValueError, match=r"manifest.json: is not complete JSON: ") as caught:
        load(run)()
    assert str(caught.value).endswith(advice(path)), problem


def test_a_manifest_that_says_something_else(run):
    path, manifest, _ = names(run / "step-00000001")
    table = json.loads(manifest.read_text())
    manifest.write_text(manifest.read_text().replace('"steps": 1', '"steps": 2'))
    message = f"is altered: its text does not have the digest {table['digest']}"
    assert_refused(f"checkpoint '{path}': manifest.json: {message}{advice(path)}", load(run))


def test_a_file_of_another_program(run):
    path, manifest, _ = names(run / "step-00000001")
    manifest.write_text('{"format": "pt"}')
    message = (
        f"checkpoint '{path}': manifest.json: its format is not 'taskflow-checkpoint'{advice(path)}"
    )
    assert_refused(message, load(run))


def test_a_later_version(run):
    path, manifest, _ = names(run / "step-00000001")
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
    assert_refused(
        f"checkpoint '{path}': manifest.json: has version 2, this reads 1{advice(path)}", load(run)
    )


def sign(path, **changes):
    """Change a manifest, as someone does who knows how it is signed."""
    table = json.loads((path / "manifest.json").read_text()) | changes
    (path / "manifest.json").write_text(render_table(table))


def with_file(run, name):
    """Changes that move all regions of the newest checkpoint to a file of another name."""
    table = json.loads((run / "step-00000001" / "manifest.json").read_text())
    [size] = table["files"].values()
    regions = {region: entry | {"file": name} for region, entry in table["regions"].items()}
    return {"files": {name: size}, "regions": regions}


@pytest.mark.parametrize(
    "name", ["../../outside.safetensors", "/outside.safetensors", "rank-0000.safetensors/../x", ""]
)
def test_a_file_outside_of_the_folder(run, name):
    path = run / "step-00000001"
    (path / "rank-0000.safetensors").rename(run.parent / "outside.safetensors")
    sign(path, **with_file(run, name))
    with pytest.raises(ValueError, match=r"manifest.json: .* matching regex .*rank-") as caught:
        load(run)()
    assert str(caught.value).endswith(advice(path))


MANIFESTS = {
    "negative steps": ({"steps": -1}, "'steps' is -1: expected 'int' >= 0"),
    "true steps": ({"steps": True}, "'steps' is true: expected 'int', got 'bool'"),
    "steps of another": ({"steps": 7}, "is that of step 7"),
    "a seed in words": ({"seed": "3"}, "'seed' is \"3\": expected 'int', got 'str'"),
    "a wide seed": ({"seed": 1 << 70}, f"'seed' is {1 << 70}: expected 'int' <= {(1 << 63) - 1}"),
    "a size": (
        {"files": {"rank-0000.safetensors": -1}},
        "size of file 'rank-0000.safetensors': is -1: expected 'int' >= 0",
    ),
    "no files": ({"files": {}}, None),
    "no regions": ({"regions": {}}, None),
    "a region": ({"regions": {"a": 3}}, "region 'a': is 3: expected 'object', got 'int'"),
    "notes": ({"notes": [1]}, "'notes' is [1]: expected 'object', got 'array'"),
    "more": (
        {"stepz": 1},
        "object contains unknown field 'stepz'; the fields are digest, steps, seed, notes, files, regions, is_finite",
    ),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_signed_manifest(run, case):
    changes, message = MANIFESTS[case]
    path = run / "step-00000001"
    sign(path, **changes)
    with pytest.raises(ValueError, match=r"manifest\.json: ") as caught:
        load(run)()
    where, _, said = str(caught.value).partition("manifest.json: ")
    assert where == f"checkpoint '{path}': " and said.endswith(advice(path))
    assert message is None or said == message + advice(path)


def test_a_pipe_in_the_place_of_a_file(run):
    path, _, file = names(run / "step-00000001")
    file.unlink()
    os.mkfifo(file)
    message = f"checkpoint '{path}': file 'rank-0000.safetensors': is no regular file{advice(path)}"
    assert_refused(message, load(run))


def test_a_file_that_is_missing(run):
    path, _, file = names(run / "step-00000001")
    file.unlink()
    assert_refused(
        f"checkpoint '{path}': file 'rank-0000.safetensors': is missing{advice(path)}", load(run)
    )


def test_a_file_cut_short(run):
    path, _, file = names(run / "step-00000001")
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    message = f"has {len(content) - 1} bytes, the manifest says {len(content)}"
    assert_refused(
        f"checkpoint '{path}': file 'rank-0000.safetensors': {message}{advice(path)}", load(run)
    )


def flip(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


def test_a_header_with_another_bit(run):
    path, _, file = names(run / "step-00000001")
    size = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    flip(file, 20)
    message = f"its header (bytes 0 to {size}) is altered"
    assert_refused(
        f"checkpoint '{path}': file 'rank-0000.safetensors': {message}{advice(path)}", load(run)
    )


def test_a_region_with_another_bit(run):
    path, manifest, file = names(run / "step-00000001")
    entries = json.loads(manifest.read_text())["regions"]
    size = file.stat().st_size
    last = max(n for n, e in entries.items() if e["dtype"] == "float32")
    flip(file, size - 1)
    with pytest.raises(ValueError, match="is altered") as caught:
        load(run)()
    start = size - 4 * _count(entries[last]["shape"])
    where = f"checkpoint '{path}': region '{last}' (file 'rank-0000.safetensors', bytes {start} to {size})"
    digest = entries[last]["digest"]
    assert (
        str(caught.value)
        == f"{where}: is altered: its bytes do not have the digest {digest}{advice(path)}"
    )


def _count(shape):
    return shape[0] * _count(shape[1:]) if shape else 1


def test_the_one_that_is_left_is_damaged_too(run):
    path, _, file = names(run / "step-00000000")
    shutil.rmtree(run / "step-00000001")
    file.unlink()
    assert_refused(f"checkpoint '{path}': file 'rank-0000.safetensors': is missing", load(run))


def test_nothing_changes_when_a_checkpoint_is_refused(run):
    flip(names(run / "step-00000001")[2], -1)
    step = kept.executor(seed=9)
    bits = kept.bits(step)
    with pytest.raises(ValueError, match="is altered"):
        checkpoint.load(step, run)
    assert (kept.bits(step), step.steps, step.seed) == (bits, 0, 9)


# -- another graph -----------------------------------------------------------------------------------------------------


def test_another_shape(run):
    path = run / "step-00000001"
    message = (
        "is of another graph: region 'fc1.weight' is (8, 6) float32 there, (9, 6) float32 here"
    )
    assert_refused(f"checkpoint '{path}': {message}", load(run, width=9))


def test_another_dtype(run):
    path = run / "step-00000001"
    message = (
        "is of another graph: region 'fc1.weight' is (8, 6) float32 there, (8, 6) float64 here"
    )
    assert_refused(f"checkpoint '{path}': {message}", load(run, dtype="float64"))


def test_regions_that_are_missing_or_too_many(run, tmp_path):
    small = kept.executor(training=False)
    message = f"checkpoint '{run / 'step-00000001'}': is of another graph: the graph has no region "
    with pytest.raises(ValueError, match="is of another graph: the graph has no region") as caught:
        checkpoint.load(small, run)
    assert str(caught.value).startswith(message)
    path = checkpoint.save(small, tmp_path / "small")
    with pytest.raises(ValueError, match="is of another graph: it has no region") as caught:
        load(path)()
    assert str(caught.value).startswith(
        f"checkpoint '{path}': is of another graph: it has no region "
    )


# -- saving and training -----------------------------------------------------------------------------------------------


def test_a_step_that_is_there_already(run):
    step = kept.executor()
    message = f"save: '{run}' already holds step 1, this is step 0; give another folder"
    assert_refused(message, lambda: checkpoint.save(step, run))


def test_nothing_to_keep(tmp_path):
    message = "save: keep is at least 1, not 0"
    assert_refused(message, lambda: checkpoint.save(kept.executor(), tmp_path, keep=0))


def test_notes_that_are_no_json(tmp_path):
    step = kept.executor()
    message = "save: notes are JSON values: Encoding objects of type complex is unsupported"
    assert_refused(message, lambda: checkpoint.save(step, tmp_path, notes={"a": 1j}))
    message = "save: key '1' is there twice"
    assert_refused(message, lambda: checkpoint.save(step, tmp_path, notes={"a": {1: 1, "1": 2}}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", [True, 1.5, "3", 1 << 70])
def test_a_seed_that_is_no_number(seed):
    task_graph = kept.executor().task_graph
    assert_refused(
        f"executor: seed is a whole number of 64 bits, not {seed!r}",
        lambda: Executor(task_graph, seed=seed),
    )


def test_a_position_that_cannot_be(tmp_path):
    kept.trainer().fit(kept.batches(), 1, checkpoint=tmp_path)
    path = checkpoint.latest(tmp_path)
    notes = json.loads((path / "manifest.json").read_text())["notes"]
    notes["position"]["epoch"] = True
    sign(path, notes=notes)
    message = f"fit: '{path}': its position: 'epoch' is true: expected 'int', got 'bool'"
    assert_refused(message, lambda: kept.trainer().fit(kept.batches(), 2, checkpoint=tmp_path))


def test_a_folder_that_another_run_owns(run):
    with owning(run, LocalTransport()):
        message = f"checkpoint: '{run}' belongs to the run of process {os.getpid()} on '{os.uname().nodename}'"
        message += "; give another folder"
        assert_refused(message, lambda: checkpoint.save(kept.executor(), run))
        assert_refused(message, lambda: kept.trainer().fit(kept.batches(), 1, checkpoint=run))
    assert not (run / ".owner").exists()


def test_a_folder_of_another_run(run):
    message = f"fit: '{run}' holds 'step-00000001' of another run; resume it or give another folder"
    assert_refused(
        message, lambda: kept.trainer().fit(kept.batches(), 1, checkpoint=run, resume=False)
    )


def test_a_checkpoint_that_no_training_made(run):
    message = (
        f"fit: '{run / 'step-00000001'}' was not saved by a training run: it has no position in it"
    )
    assert_refused(message, lambda: kept.trainer().fit(kept.batches(), 1, checkpoint=run))


def test_checkpoints_every_no_steps(tmp_path):
    message = "fit: every is 0, a whole number from 1 is needed"
    assert_refused(
        message, lambda: kept.trainer().fit(kept.batches(), 1, checkpoint=tmp_path, every=0)
    )


def test_an_epoch_of_other_batches(tmp_path):
    batches = kept.batches()
    kept.trainer().fit(batches, 1, checkpoint=tmp_path)
    fewer = kept.batches()
    fewer.examples -= fewer.size
    where = f"fit: '{tmp_path / 'step-00000005'}' was saved after batch 5 of 5 in its epoch"
    assert_refused(
        f"{where}; an epoch has 4 batches here",
        lambda: kept.trainer().fit(fewer, 2, checkpoint=tmp_path),
    )
