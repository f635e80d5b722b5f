"""Laws 1 to 3 for 1, 2 and 4 ranks that share a GPU, by every carrier; each a run of `ranks.py` under mpirun.

NCCL takes the ranks for hosts of their own and moves everything through sockets: slow, so two ranks only. No run takes
ten minutes, all of them together may: `-k "auto or shared"`, `-k messages` and `-k nccl` are commands of their own.
"""

import re
from pathlib import Path

import pytest

from taskflow.backend import find_gpus
from tests.gpu.ranks import CASES, EVERY, RUNS

PROGRAM = Path(__file__).with_name("ranks.py")
PATIENCE = {
    "TASKFLOW_PATIENCE": "20"
}  # seconds in one row of a step: then guards say which, and end all ranks


@pytest.mark.mpi
@pytest.mark.parametrize("ranks, transport", RUNS)
def test_ranks_on_one_gpu(mpirun, ranks, transport):
    is_fake, timeout = not find_gpus(), 500 if transport == "nccl" else 250
    fake = ["--fake"] if is_fake else []
    done = mpirun(ranks, PROGRAM, transport, *fake, timeout=timeout, **PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) models are right", done.stdout)
    assert found and int(found[1]) > (0 if is_fake else len(CASES) // EVERY), done.stdout
