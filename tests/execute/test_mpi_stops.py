"""tests/mpi/conftest.py keeps its promise: whatever goes wrong on one rank ends all of them, and says so."""

import shutil
from pathlib import Path

import pytest

HEAD = "import pytest\nfrom hypothesis import given, settings, strategies as st\n"

WRONG = {
    "test": "def test_wrong(comm):\n    assert comm.rank == 0, 'rank 1 differs'\n    comm.recv()\n",
    "setup": (
        "@pytest.fixture\ndef value(comm):\n    assert comm.rank == 0, 'rank 1 differs'\n\n"
        "def test_wrong(comm, value):\n    comm.recv()\n"
    ),
    "hypothesis": (
        "@settings(max_examples=1)\n@given(n=st.integers())\ndef test_wrong(comm, n):\n"
        "    comm.barrier()\n    assert comm.rank == 0, 'rank 1 differs'\n"
    ),
    "collection": (
        "import os\nassert os.environ['OMPI_COMM_WORLD_RANK'] == '0', 'rank 1 differs'\n"
        "def test_wrong(comm):\n    comm.recv()\n"
    ),
}


@pytest.mark.mpi
@pytest.mark.waits
@pytest.mark.parametrize("when", WRONG)
def test_a_failure_on_one_rank_stops_every_rank(when, mpirun, tmp_path):
    shutil.copy(Path(__file__).parents[1] / "mpi" / "conftest.py", tmp_path)
    (tmp_path / "test_wrong.py").write_text(HEAD + WRONG[when])
    done = mpirun(2, "-m", "pytest", tmp_path, "-q", "-p", "no:cacheprovider")
    assert done.returncode != 0
    assert "rank 1 of 2: " in done.stderr
    assert "rank 1 differs" in done.stderr
