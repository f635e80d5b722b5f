"""Law 3 where a library and an own kernel do the same: choices follow from a table, that of rank 0 on all ranks."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from taskflow import Executor
from taskflow.backend.choices import LIBRARY, OWN, Choices, shipped_choices
from taskflow.checkpoint import load
from taskflow.comm.transport import connect
from tests.programs.choices import Timed, measured, rows_of, run

PROGRAM = Path(__file__).parents[1] / "programs" / "choices.py"

pytestmark = pytest.mark.two_ranks  # with more it takes no other way


def told(done):
    """Of every rank which way it found faster, which one it took and which bits came out."""
    assert done.returncode == 0, done.stderr
    return [line.split()[1:] for line in done.stdout.splitlines()]


@pytest.mark.skipif(connect().size > 1, reason="starts processes")
def test_fresh_processes_and_two_ranks_whose_timings_differ_give_equal_bits(tmp_path, mpirun):
    """The second process finds the other way faster, and takes what the file says; without that file it does not."""

    def start(costs, faster):
        command = [sys.executable, PROGRAM, tmp_path / costs, faster]
        return told(subprocess.run(command, capture_output=True, text=True, check=False))

    (first,), (again,), (other,) = start("a", OWN), start("a", LIBRARY), start("b", LIBRARY)
    assert first == again == [OWN, OWN, first[2]] and other[:2] == [LIBRARY, LIBRARY]
    assert first[2] != other[2], "else the two ways have equal last bits"
    ranks = told(mpirun(2, PROGRAM, tmp_path / "c", OWN))
    assert ranks == [[OWN, OWN, ranks[0][2]], [LIBRARY, OWN, ranks[0][2]]]


@pytest.mark.skipif(connect().size > 1, reason="one process at a time")
def test_a_checkpoint_says_which_kernels_ran(tmp_path, caplog):
    first = run(1, Timed(OWN), measured(1, Timed(OWN), tmp_path / "costs.json"), tmp_path / "run")
    costs, (_, rows) = measured(1, Timed(LIBRARY), tmp_path / "other.json"), rows_of(1)
    with Executor(rows, backend=Timed(LIBRARY), costs=costs, record=False) as step:
        manifest = load(step, tmp_path / "run")
    assert Choices(manifest.choices).digest == first[1]
    assert "other kernels ran there: last bits may differ" in caplog.text


@pytest.mark.skipif(connect().size > 1, reason="needs no ranks")
def test_what_a_table_lacks_goes_the_way_of_the_nearest_shapes():
    small, large = (f"convolution of tf32 | {n}x3x8x8 4x3x3x3 | stride (1, 1)" for n in (8, 512))
    choices = Choices({small: {LIBRARY: 2.0, OWN: 1.0}, large: {LIBRARY: 1.0, OWN: 2.0}})
    near = "convolution of tf32 | {}x3x9x9 4x3x3x3 | stride (2, 2)"
    assert [choices.way(near.format(n)) for n in (4, 16, 256)] == [OWN, OWN, LIBRARY]
    for other in ("float32 | 4x3x8x8 4x3x3x3", "tf32 | 4x3x8 4x3x3"):
        assert choices.way(f"convolution of {other} | ") == LIBRARY


@pytest.mark.skipif(connect().size > 1, reason="needs no ranks")
def test_a_run_without_a_file_takes_the_table_of_its_gpu():
    assert np.all(shipped_choices("no GPU").seconds == {})
    assert run(1, Timed(OWN, "NVIDIA H200"))[1] == shipped_choices("NVIDIA H200").digest
    own_times = measured(1, Timed(OWN), None)  # of this process, which another one would not have
    assert run(1, Timed(OWN), own_times)[1] == Choices().digest
