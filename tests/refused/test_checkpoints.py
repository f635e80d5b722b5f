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
from tests.refusals import assert_refused, each_refused

FILE = "rank-0000.safetensors"
FIRST, LAST = "run/step-00000000", "run/step-00000001"
ADVICE = f"; '{FIRST}' is sound: remove '{LAST}' to go on from there"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with checkpoints of steps 0 and 1."""
    folder, step = tmp_path_factory.mktemp("run"), kept.executor()
    for _ in range(2):
        checkpoint.save(step, folder)
        kept.train(step, step.steps + 1)
    return folder


@pytest.fixture(autouse=True)
def run(whole, tmp_path, monkeypatch):
    """A copy of it, which is `run` of the current folder."""
    shutil.copytree(whole, tmp_path / "run")
    monkeypatch.chdir(tmp_path)


def load(folder="run", **options):
    checkpoint.load(kept.executor(**options), folder)


def fit(folder="run", epochs=1, batches=None, **options):
    kept.trainer().fit(batches or kept.batches(), epochs, checkpoint=folder, **options)


# -- damaged -----------------------------------------------------------------------------------------------------------


def manifest():
    return json.loads(Path(LAST, "manifest.json").read_text())


def sign(**changes):
    """Change the manifest, as someone does who knows how it is signed."""
    Path(LAST, "manifest.json").write_text(render_table(manifest() | changes))


def replace(old, new):
    """Change the text of the manifest."""
    path = Path(LAST, "manifest.json")
    path.write_text(path.read_text().replace(old, new))


def cut(name, size):
    path = Path(LAST, name)
    path.write_bytes(path.read_bytes()[:size])


def flip(place):
    """Change a bit of the file of regions."""
    path = Path(LAST, FILE)
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def move(name):
    """Move all regions to a file of another name."""
    Path(LAST, FILE).rename("outside.safetensors")
    table = manifest()
    [size] = table["files"].values()
    regions = {region: entry | {"file": name} for region, entry in table["regions"].items()}
    sign(files={name: size}, regions=regions)


def put_a_pipe():
    Path(LAST, FILE).unlink()
    os.mkfifo(Path(LAST, FILE))


def loading(damage):
    """A call that loads what is damaged."""

    def call():
        damage()
        load()

    return call


DAMAGED = [
    ("a manifest that is missing", Path(LAST, "manifest.json").unlink, "manifest.json: is missing"),
    (
        "a manifest cut short",
        lambda: cut("manifest.json", 10),
        "manifest.json: is not complete JSON: Unterminated string starting at: line 2 column 2 (char 3)",
    ),
    (
        "a file of another program",
        lambda: Path(LAST, "manifest.json").write_text('{"format": "pt"}'),
        "manifest.json: its format is not 'taskflow-checkpoint'",
    ),
    (
        "a later version",
        lambda: replace('"version": 1', '"version": 2'),
        "manifest.json: has version 2, this reads 1",
    ),
    *(
        (
            f"a file outside of the folder, {name!r}",
            lambda name=name: move(name),
            f"manifest.json: 'files' is {{\"{name}\": 2760}}: expected 'str' matching regex "
            r"'^rank-\\d{4,9}\\.safetensors$'",
        )
        for name in ("../../outside.safetensors", "/outside.safetensors", f"{FILE}/../x", "")
    ),
    ("negative steps", lambda: sign(steps=-1), "manifest.json: 'steps' is -1: expected 'int' >= 0"),
    (
        "true steps",
        lambda: sign(steps=True),
        "manifest.json: 'steps' is true: expected 'int', got 'bool'",
    ),
    ("steps of another", lambda: sign(steps=7), "manifest.json: is that of step 7"),
    (
        "a seed in words",
        lambda: sign(seed="3"),
        "manifest.json: 'seed' is \"3\": expected 'int', got 'str'",
    ),
    (
        "a wide seed",
        lambda: sign(seed=1 << 70),
        f"manifest.json: 'seed' is {1 << 70}: expected 'int' <= {(1 << 63) - 1}",
    ),
    (
        "a size",
        lambda: sign(files={FILE: -1}),
        f"manifest.json: size of file '{FILE}': is -1: expected 'int' >= 0",
    ),
    (
        "no files",
        lambda: sign(files={}),
        f"manifest.json: region 'fc1.weight': there is no file '{FILE}' or no dtype 'float32'",
    ),
    (
        "no regions",
        lambda: sign(regions={}),
        f"manifest.json: file '{FILE}': its regions take 16 bytes, not 2760",
    ),
    (
        "a region",
        lambda: sign(regions={"a": 3}),
        "manifest.json: region 'a': is 3: expected 'object', got 'int'",
    ),
    (
        "notes",
        lambda: sign(notes=[1]),
        "manifest.json: 'notes' is [1]: expected 'object', got 'array'",
    ),
    (
        "more",
        lambda: sign(stepz=1),
        "manifest.json: object contains unknown field 'stepz'; the fields are digest, steps, seed, "
        "notes, files, regions, is_finite, constants, choices",
    ),
    ("a pipe in the place of a file", put_a_pipe, f"file '{FILE}': is no regular file"),
    ("a file that is missing", Path(LAST, FILE).unlink, f"file '{FILE}': is missing"),
    (
        "a file cut short",
        lambda: cut(FILE, -1),
        f"file '{FILE}': has 2759 bytes, the manifest says 2760",
    ),
    (
        "a header with another bit",
        lambda: flip(20),
        f"file '{FILE}': its header (bytes 0 to 1504) is altered",
    ),
]


def the_first_without_its_file():
    shutil.rmtree(LAST)
    Path(FIRST, FILE).unlink()


# -- another graph, saving and training --------------------------------------------------------------------------------


def load_another_graph():
    checkpoint.save(kept.executor(training=False), "small")
    load("small")


def fit_from_no_position():
    fit("new")
    path = checkpoint.latest("new")
    table = json.loads((path / "manifest.json").read_text())
    table["notes"]["position"]["epoch"] = True
    (path / "manifest.json").write_text(render_table(table))
    fit("new", 2)


def fit_other_batches():
    fit("new")
    fewer = kept.batches()
    fewer.examples -= fewer.size
    fit("new", 2, fewer)


ALTERED = f"checkpoint '{LAST}': is of another graph: "
REFUSED = [
    *(
        (what, loading(damage), f"checkpoint '{LAST}': {said}{ADVICE}")
        for what, damage, said in DAMAGED
    ),
    (
        "the one that is left is damaged too",
        loading(the_first_without_its_file),
        f"checkpoint '{FIRST}': file '{FILE}': is missing",
    ),
    ("a folder without one", lambda: load("."), "load: there is no checkpoint in '.'"),
    (
        "another shape",
        lambda: load(width=9),
        ALTERED + "region 'fc1.weight' is (8, 6) float32 there, (9, 6) float32 here",
    ),
    (
        "another dtype",
        lambda: load(dtype="float64"),
        ALTERED + "region 'fc1.weight' is (8, 6) float32 there, (8, 6) float64 here",
    ),
    (
        "too many regions",
        lambda: load(training=False),
        ALTERED + "the graph has no region 'fc1.weight.adam_m', 'fc1.weight.adam_v', "
        "'fc2.weight.adam_m', 'fc2.weight.adam_v', 'fc1.bias.adam_m' and 8 more",
    ),
    (
        "missing regions",
        load_another_graph,
        "checkpoint 'small/step-00000000': is of another graph: it has no region 'learning_rate', "
        "'fc2.weight.adam_m', 'fc2.weight.adam_v', 'fc2.bias.adam_m', 'fc2.bias.adam_v' and 8 more",
    ),
    (
        "a step that is there already",
        lambda: checkpoint.save(kept.executor(), "run"),
        "save: 'run' already holds step 1, this is step 0; give another folder",
    ),
    (
        "nothing to keep",
        lambda: checkpoint.save(kept.executor(), "new", keep=0),
        "save: keep is at least 1, not 0",
    ),
    *(
        (
            f"a seed that is no number, {value!r}",
            lambda value=value: Executor(kept.executor().task_graph, seed=value),
            f"executor: seed is a whole number of 64 bits, not {value!r}",
        )
        for value in (True, 1.5, "3", 1 << 70)
    ),
    (
        "a position that cannot be",
        fit_from_no_position,
        "fit: 'new/step-00000005': its position: 'epoch' is true: expected 'int', got 'bool'",
    ),
    (
        "a folder of another run",
        lambda: fit(resume=False),
        "fit: 'run' holds 'step-00000001' of another run; resume it or give another folder",
    ),
    (
        "a checkpoint that no training made",
        lambda: fit(),
        f"fit: '{LAST}' was not saved by a training run: it has no position in it",
    ),
    (
        "checkpoints every no steps",
        lambda: fit("new", every=0),
        "fit: every is 0, a whole number from 1 is needed",
    ),
    (
        "an epoch of other batches",
        fit_other_batches,
        "fit: 'new/step-00000005' was saved after batch 5 of 5 in its epoch; an epoch has 4 batches here",
    ),
]
test_refused = each_refused(REFUSED)


# -- with digests ------------------------------------------------------------------------------------------------------


def test_a_manifest_that_says_something_else():
    replace('"steps": 1', '"steps": 2')
    said = f"is altered: its text does not have the digest {manifest()['digest']}"
    assert_refused(f"checkpoint '{LAST}': manifest.json: {said}{ADVICE}", load)


def test_a_region_with_another_bit():
    """And nothing changes when a checkpoint is refused."""
    flip(-1)
    step = kept.executor(seed=9)
    bits = kept.bits(step)
    digest = manifest()["regions"]["norm.weight.adam_v"]["digest"]
    message = (
        f"checkpoint '{LAST}': region 'norm.weight.adam_v' (file '{FILE}', bytes 2728 to 2760): "
        f"is altered: its bytes do not have the digest {digest}{ADVICE}"
    )
    assert_refused(message, lambda: checkpoint.load(step, "run"))
    assert (kept.bits(step), step.steps, step.seed) == (bits, 0, 9)


# -- nothing is left ---------------------------------------------------------------------------------------------------


def test_notes_that_are_no_json():
    step = kept.executor()
    Path("new").mkdir()
    message = "save: notes are JSON values: Encoding objects of type complex is unsupported"
    assert_refused(message, lambda: checkpoint.save(step, "new", notes={"a": 1j}))
    message = "save: key '1' is there twice"
    assert_refused(message, lambda: checkpoint.save(step, "new", notes={"a": {1: 1, "1": 2}}))
    assert list(Path("new").iterdir()) == []


def test_a_folder_that_another_run_owns():
    with owning(Path("run"), LocalTransport()):
        owner = f"process {os.getpid()} on '{os.uname().nodename}'"
        message = f"checkpoint: 'run' belongs to the run of {owner}; give another folder"
        assert_refused(message, lambda: checkpoint.save(kept.executor(), "run"))
        assert_refused(message, fit)
    assert not Path("run/.owner").exists()
