"""Folders of checkpoints with several users: one owner, readers beside it, little room, numbers that are not finite."""

import errno
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from taskflow import checkpoint
from taskflow.checkpoint import files, folder, manifest
from taskflow.comm.transport import LocalTransport
from tests import kept


def names(run):
    return sorted(path.name for path in run.iterdir())


def save(step, run, **options):
    path = checkpoint.save(step, run, **options)
    kept.train(step, step.steps + 1)
    return path


# -- owners ------------------------------------------------------------------------------------------------------------

HOLD = """
import fcntl, os, sys, time
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(handle, fcntl.LOCK_EX)
os.write(handle, f"{os.getpid()} {os.uname().nodename}".encode())
print("held", flush=True)
time.sleep(60)
"""


def test_a_dead_owner_is_followed_and_a_living_one_is_not(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".owner")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        step = kept.executor()
        with pytest.raises(ValueError, match=f"belongs to the run of process {process.pid} on "):
            checkpoint.save(step, tmp_path)
        assert names(tmp_path) == [".owner"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / ".owner").read_text()  # left behind
    checkpoint.save(step, tmp_path)
    assert names(tmp_path) == ["step-00000000"]


def test_a_full_disk_keeps_nobody_from_owning_a_folder(tmp_path, monkeypatch):
    """What follows makes room; and the lock is held all the same."""

    def pwrite(handle, data, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder.os, "pwrite", pwrite)
    with (
        folder.owning(tmp_path, LocalTransport()),
        pytest.raises(ValueError, match="belongs to the run of another"),
    ):
        folder._lock(tmp_path)


def test_without_locks_the_name_decides(tmp_path, monkeypatch):
    def flock(handle, how):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(folder.fcntl, "flock", flock)
    with (
        folder.owning(tmp_path, LocalTransport()),
        pytest.raises(ValueError, match="belongs to the run of process"),
    ):
        folder._lock(tmp_path)
    (tmp_path / ".owner").write_text("1 another-host")
    with pytest.raises(ValueError, match="process 1 on 'another-host'"):
        folder._lock(tmp_path)
    (tmp_path / ".owner").write_text(f"{2**30} {folder.os.uname().nodename}")
    with folder.owning(tmp_path, LocalTransport()):
        pass
    assert names(tmp_path) == []


# -- readers -----------------------------------------------------------------------------------------------------------


def test_what_is_open_can_be_read_after_it_was_removed(tmp_path):
    step = kept.executor()
    path = checkpoint.save(step, tmp_path)
    reader = manifest.Reader(path, manifest.read_manifest(path))
    shutil.rmtree(path)
    for name in step.persistent:
        reader.check(name)
        assert np.array_equal(reader.region(name), step.read(name))


def test_a_checkpoint_that_goes_while_it_is_opened_is_not_missed(tmp_path, monkeypatch):
    step = kept.executor()
    old, new = save(step, tmp_path), save(step, tmp_path)
    found = [old, new]

    def find(run):
        path = found.pop(0)
        if found:
            shutil.rmtree(path)
        return path

    monkeypatch.setattr(files, "latest", find)
    assert checkpoint.load(step, tmp_path).steps == 1
    assert not found


def test_a_list_that_misses_what_comes_and_what_goes_is_made_again(tmp_path, monkeypatch):
    path, lists = save(kept.executor(), tmp_path), [{}, {}, {7: tmp_path / "step-00000007"}]
    monkeypatch.setattr(folder, "checkpoints", lambda run: lists.pop(0))
    assert checkpoint.latest(tmp_path) == path.with_name("step-00000007")


# -- what is written ---------------------------------------------------------------------------------------------------


def test_what_reads_back_altered_is_not_published(tmp_path, monkeypatch):
    write = files.TensorWriter._put
    monkeypatch.setattr(
        files.TensorWriter, "_put", lambda self, start, value: write(self, start, value + 1)
    )
    with pytest.raises(OSError, match="reads back altered") as caught:
        checkpoint.save(kept.executor(), tmp_path)
    assert caught.value.filename.endswith("rank-0000.safetensors")
    assert names(tmp_path) == []


def test_room_is_made_and_else_refused_before_anything_is_written(tmp_path, monkeypatch):
    step = kept.executor()
    for _ in range(3):
        save(step, tmp_path, keep=3)
    monkeypatch.setattr(
        folder, "_free_bytes", lambda path: 10**6 * (3 - len(manifest.checkpoints(path)))
    )
    save(step, tmp_path, keep=3)
    assert names(tmp_path) == ["step-00000001", "step-00000002", "step-00000003"]
    monkeypatch.setattr(folder, "_free_bytes", lambda path: -(10**6))
    with pytest.raises(
        OSError, match=r"No space left for a checkpoint of \d+ bytes, there is room for -9"
    ) as caught:
        save(step, tmp_path, keep=1)
    assert caught.value.errno == 28 and caught.value.filename == str(tmp_path)
    assert names(tmp_path) == ["step-00000001", "step-00000002", "step-00000003"]


def test_the_last_finite_checkpoint_is_kept(tmp_path):
    step = kept.executor()
    paths = [save(step, tmp_path, keep=1)]
    name = next(n for n in step.persistent if n.endswith("adam_m"))
    step.write(name, np.full(step.read(name).shape, np.inf, np.float32))
    for _ in range(2):
        paths.append(checkpoint.save(step, tmp_path, keep=1))
        step.continue_from(step.steps + 1, 3)
    assert [manifest.read_manifest(path).is_finite for path in (paths[0], paths[2])] == [
        True,
        False,
    ]
    assert names(tmp_path) == [paths[0].name, paths[2].name]
    assert checkpoint.newest_sound(tmp_path) == paths[2]
    assert checkpoint.newest_sound(tmp_path, is_finite=True) == paths[0]
