"""Laws 1 and 3 for 1, 2 and 4 ranks that share a GPU, by every carrier; each a run of `ranks.py` under mpirun."""

import re
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("ranks.py")


@pytest.mark.mpi
@pytest.mark.parametrize("ranks, exchange", [(1, "auto"), *((n, e) for n in (2, 4) for e in ("shared", "messages"))])
def test_ranks_on_one_gpu(mpirun, ranks, exchange):
    assert_right(mpirun(ranks, PROGRAM, exchange, timeout=200))


@pytest.mark.mpi
def test_ranks_on_one_gpu_with_nccl(mpirun):
    """NCCL takes the ranks for hosts of their own and moves everything through sockets: slow, so two ranks only."""
    assert_right(mpirun(2, PROGRAM, "nccl", timeout=300))


def assert_right(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ models are right", done.stdout), done.stdout
