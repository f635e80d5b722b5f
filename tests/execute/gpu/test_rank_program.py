"""The program of tests/gpu/test_ranks.py on fake streams: whatever stands still or goes wrong, it ends and says so."""

import re

import pytest

from tests.gpu import ranks

FAULTY = """
import os, sys, time
sys.argv = ["ranks.py"]
from taskflow.comm.transport import connect
from tests import laws
from tests.gpu import ranks
ranks.LONGEST_SECONDS = {seconds}
law = laws.{law}
for other in ("any_strategy_is_one_device", "any_order_is_the_same", "runs_are_the_same"):
    setattr(laws, other, lambda *given, **options: None)
def fault(*given, **options):
    if connect().rank == 1:
        {fault}
    return law(*given, **options)
laws.{law} = fault
ranks.main("{transport}", True)
"""
STILL, WRONG, GONE = "time.sleep(600)", "raise ValueError('it is wrong')", "os._exit(3)"
FAULTS = [
    ("any_strategy_is_one_device", "shared", STILL, "law 1, any strategy: not over after 4 s"),
    ("any_order_is_the_same", "messages", STILL, "law 2, any order: not over after 4 s"),
    ("any_order_is_the_same", "shared", WRONG, "ValueError: it is wrong"),
    ("runs_are_the_same", "messages", GONE, "law 3, again"),
]


@pytest.mark.mpi
@pytest.mark.waits
@pytest.mark.parametrize("law, transport, fault, said", FAULTS)
def test_it_says_where_it_is_when_it_ends(mpirun, tmp_path, law, transport, fault, said):
    program = tmp_path / "faulty.py"
    program.write_text(
        FAULTY.format(
            law=law, transport=transport, fault=fault, seconds=4 if fault == STILL else 60
        )
    )
    done = mpirun(2, program, timeout=100, PYTHONPATH=str(ranks.Path(ranks.__file__).parents[2]))
    assert done.returncode != 0
    assert said in done.stderr
    assert f"rank 1 of 2 by '{transport}', model 1 of 1, network: law" in done.stderr


@pytest.mark.mpi
@pytest.mark.waits
def test_a_row_in_which_a_rank_waits_is_told(mpirun, tmp_path):
    """Also before the first step, where guards leave ranks alone."""
    program = tmp_path / "faulty.py"
    program.write_text(ROW)
    done = mpirun(2, program, timeout=100, PYTHONPATH=str(ranks.Path(ranks.__file__).parents[2]))
    assert done.returncode != 0
    assert (
        "rank 1 of 2 by 'messages', model 1 of 1, network: law 1, any strategy: not over after 6 s"
        in done.stderr
    )
    assert re.search(r"^\w+: row \d+", done.stderr, re.MULTILINE), done.stderr


ROW = """
import time
from taskflow.comm.transport import connect
from tests.fake_gpu.streams import FakeStreams
from tests.gpu import ranks
class Still(FakeStreams):
    def run(self, stream, call):
        if connect().rank == 1 and self._clock > 20:
            time.sleep(600)
        super().run(stream, call)
ranks.FakeStreams, ranks.LONGEST_SECONDS = Still, 6
ranks.main("messages", True)
"""


def test_what_is_not_over_in_time_fails_with_what_it_said(mpirun):
    code = "import sys, time; print('here', flush=True); print('there', file=sys.stderr, flush=True); time.sleep(60)"
    with pytest.raises(
        pytest.fail.Exception, match=r"not over after 3 s; until then it said:\nhere\nthere"
    ):
        mpirun(1, "-c", code, timeout=3)
