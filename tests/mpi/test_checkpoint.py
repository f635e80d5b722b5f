"""Checkpoints by several ranks: written in parallel, read under any strategy, refused by all ranks alike."""

import pytest

import taskflow
from taskflow import checkpoint
from taskflow.core.system import world_size
from tests import kept

pytestmark = pytest.mark.two_ranks  # with more it takes no other way

SIZE = world_size()
RULES = ["single_device", "data_parallel", "model_parallel", "one_weird_trick"]


def executor(rule):
    return kept.executor(getattr(taskflow, rule), SIZE)


@pytest.mark.parametrize("rule", RULES)
def test_a_resumed_run_is_the_undisturbed_one(rule, folder):
    step = executor(rule)
    kept.train(step, 3)
    checkpoint.save(step, folder)
    bits, losses = kept.bits(step), kept.train(step, 6)
    for other in RULES:
        again = executor(other)
        checkpoint.load(again, folder)
        assert kept.bits(again) == bits
        if other == rule:
            assert kept.train(again, 6) == losses


def test_ranks_share_the_writing(comm, folder):
    path = checkpoint.save(executor("data_parallel"), folder)
    comm.barrier()
    files = sorted(path.glob("*.safetensors"))
    assert [f.name for f in files] == [f"rank-{r:04d}.safetensors" for r in range(SIZE)]


def test_all_ranks_refuse_what_one_of_them_finds(comm, folder):
    step = executor("data_parallel")
    path = checkpoint.save(step, folder)
    if comm.rank == 0:
        file = path / f"rank-{SIZE - 1:04d}.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    comm.barrier()
    with pytest.raises(ValueError, match="is altered") as caught:
        checkpoint.load(step, folder)
    assert len(set(comm.allgather(str(caught.value)))) == 1


def test_all_ranks_hear_that_one_could_not_write(comm, folder, monkeypatch):
    if comm.rank == SIZE - 1:
        full = OSError(28, "No space")
        monkeypatch.setattr(
            "taskflow.checkpoint.tensorfile.os.fsync", lambda handle: (_ for _ in ()).throw(full)
        )
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(executor("data_parallel"), folder)
    assert checkpoint.latest(folder) is None
