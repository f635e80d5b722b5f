"""Guards of real ranks: one that never imported the package, and one on another host."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.waits]

JOIN = (
    "import os, sys, time, signal\nrank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n"
    "os.environ['TASKFLOW_PATIENCE'] = '1'\n"
)
NEVER = JOIN + "rank == 1 and sys.exit()\nfrom taskflow.comm.transport import connect\nconnect()\n"
APART = JOIN + (
    "own = dict(os.environ)\n"
    "os.environ.update(OMPI_COMM_WORLD_LOCAL_SIZE='1', PMIX_NAMESPACE=str(rank))\n"
    "from taskflow.comm import transport\n"
    "os.environ.update(own)\n"
    "transport.host_name = lambda: str(rank)\n"
    "t = transport.connect(); t.barrier(); time.sleep(1)\n"
    "rank == 1 and os.kill(os.getpid(), signal.SIGSTOP)\n"
    "time.sleep(60)\n"
)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            NEVER,
            "rank 1 left before the others, which wait for it, before it imported taskflow; all ranks end",
        ),
        (APART, "has been stopped for 1 s in script; all ranks end"),
    ],
    ids=["never came", "on another host"],
)
def test_all_end(script, said, mpirun):
    done = mpirun(2, "-c", script)
    assert done.returncode
    assert said in done.stderr
