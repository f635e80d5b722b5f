"""No rank outlives its launcher, and none leaves the others alone."""

import os
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taskflow.comm import ending, launch

ROOT = Path(__file__).parents[1]
TRAIN = ROOT / "tests" / "programs" / "train.py"
SECONDS = 10  # the promise
PYTHON = sys.executable
FIND = (
    f"{shlex.quote(PYTHON)} -c 'import os; from taskflow.comm.heart import find_launcher; "
    "print(os.getppid(), find_launcher())'; true"
)


def quoted(*words):
    """Words for a shell."""
    return shlex.join(map(str, words))


def found(*command, **rank):
    """The parent and the launcher that a process finds which a shell starts."""
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI_"))
    }
    done = subprocess.run(
        command, env=outside | rank, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(map(int, done.stdout.split()))


def test_the_launcher_is_the_nearest_ancestor_that_is_no_rank():
    parent, launcher = found("sh", "-c", FIND, PMIX_RANK="0")
    assert launcher == os.getpid() != parent
    parent, launcher = found("sh", "-c", f"PMIX_RANK=0 {FIND}")
    assert launcher == parent != os.getpid()


def start(command, **options):
    """The command, under way in an environment fit for ranks."""
    environment = launch.launch_environment(os.environ, 2)
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(list(map(str, command)), cwd=ROOT, env=environment, **pipes, **options)


def below(process):
    """The processes that this one has started, and theirs."""
    files = Path(f"/proc/{process}/task").glob("*/children")
    children = [int(child) for file in files for child in file.read_text().split()]
    return children + [other for child in children for other in below(child)]


def assert_gone(handles, seconds):
    """All of these processes end within so many seconds."""
    end = time.monotonic() + seconds
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(1000 * max(end - time.monotonic(), 0)), "a process runs on"


MPIRUN = [launch.find_mpirun(), "-n", "2"]
WAIT = "from taskflow.comm.transport import connect; t = connect(); open({!r}, 'w'); t.rank or t._world.recv()"
JOBS = {
    "shared memory": lambda folder: [*MPIRUN, PYTHON, TRAIN, folder, "--accident", "hang"],
    "behind a script": lambda folder: [
        *MPIRUN,
        "sh",
        "-c",
        f"{quoted(PYTHON, TRAIN, folder)} --accident hang; true",
    ],
    "taskflow run": lambda folder: [
        PYTHON,
        "-m",
        "taskflow",
        "run",
        "-n",
        "2",
        TRAIN,
        folder,
        "--accident",
        "hang",
    ],
    "messages": lambda folder: [*MPIRUN, PYTHON, "-c", WAIT.format(f"{folder}/accident")],
}


@pytest.mark.mpi
@pytest.mark.waits
@pytest.mark.parametrize("job", JOBS)
def test_ranks_end_with_a_launcher_that_is_killed(job, tmp_path):
    launcher = start(JOBS[job](tmp_path))
    deadline = time.monotonic() + 30
    while not (tmp_path / "accident").exists() and time.monotonic() < deadline:
        time.sleep(0.05)  # until the ranks are under way: there is nothing else to wait on
    processes = below(launcher.pid)
    assert len(processes) >= 2
    handles = [os.pidfd_open(process) for process in processes]
    launcher.kill()
    launcher.wait()
    try:
        assert_gone(handles, SECONDS)
    finally:
        for handle in handles:
            os.close(handle)


LEAVES = """
import sys, taskflow
from tests import kept
with kept.executor(taskflow.data_parallel, 2) as step:
    kept.train(step, 3)
    if step.transport.rank == 1:
        sys.exit(0)
    kept.train(step, 6)
"""


@pytest.mark.mpi
@pytest.mark.waits
def test_leaving_alone_ends_all(mpirun):
    """With a status, in the middle of a step: tests/execute/test_faults.py."""
    done = mpirun(2, "-c", LEAVES)
    assert done.returncode
    assert (
        "left before the others, which wait for it, in exit (after script); all ranks end"
        in done.stderr
    )


def test_only_errors_end_all(monkeypatch):
    ended = []
    monkeypatch.setattr(ending, "end_all_ranks", lambda *about: ended.append(about))
    for leave in (SystemExit(), SystemExit(0), SystemExit(130)):
        ending.end_all_leaving(leave)
    assert not ended
    ending.end_all_leaving(SystemExit(3))
    ending.end_all_leaving(SystemExit("no"))
    ending.end_all_leaving(SystemExit(), is_alone=True)
    assert [about[:2] for about in ended] == [
        (3, "leaves with 3"),
        (1, "leaves with 'no'"),
        (1, "leaves with None"),
    ]
