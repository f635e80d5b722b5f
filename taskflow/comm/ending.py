"""Ending: all ranks end together, whatever ends one of them; without this the others wait for ever.

* an exception that nobody catches: MPI's abort, from Python's hook;
* leaving with an error (`sys.exit("...")`) inside a step, a training or an executor's `with`: the same. Python shows
  `SystemExit` to no hook, so elsewhere only `taskflow run` sees it (`rank.py`);
* a launcher that is killed: each rank ends itself.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType

_OF_RANKS = (b"PMIX_RANK=", b"PMI_RANK=", b"OMPI_COMM_WORLD_RANK=")


class Stopped(SystemExit):
    """Leaves Python as `SystemExit` does; all ranks leave, so none has to be ended by another."""


def end_together() -> None:
    """From now on this rank ends with its launcher, and all ranks with an exception that it does not catch."""
    sys.excepthook = _end_all
    _end_with_launcher()


def _end_all(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text: Sequence[str] = traceback.format_exception(kind, error, trace)
    if not end_all_ranks(1, "failed", "".join(text)):
        sys.stderr.write("".join(text))


def end_all_leaving(leave: SystemExit, in_step: bool = False) -> None:
    """Where other ranks count on this one: leaving Python with an error, or in the middle of a step, ends all ranks."""
    if (leave.code or in_step) and not isinstance(leave, Stopped):
        status = leave.code if leave.code and isinstance(leave.code, int) else 1
        end_all_ranks(status, f"leaves with {leave.code!r}")


def end_all_ranks(status: int, what: str, text: str = "") -> bool:
    """End all ranks at once, saying what this one did; from any thread. False if this process has not joined MPI."""
    mpi = sys.modules.get("mpi4py.MPI")  # to ask loads nothing
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return False
    sys.stderr.write(f"taskflow: rank {mpi.COMM_WORLD.Get_rank()} {what} and ends all ranks\n{text}")
    sys.stderr.flush()
    mpi.COMM_WORLD.Abort(status)
    return True


# -- the launcher ------------------------------------------------------------------------------------------------------


@cache
def _end_with_launcher() -> None:
    """Once per process. (Rejected: the parent death signal; a script between launcher and rank lives on.)"""
    threading.Thread(target=_outlive, args=(find_launcher(),), name="taskflow-launcher", daemon=True).start()


def find_launcher() -> int:
    """The nearest ancestor that is no rank: what stands between the two has the environment of the rank."""
    process = os.getppid()
    while _is_rank(process):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process


def _is_rank(process: int) -> bool:
    try:
        environment = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:  # not Linux, or a daemon of another user
        return False
    return any(variable.startswith(_OF_RANKS) for variable in environment.split(b"\0"))


def _outlive(launcher: int) -> None:
    """End this process as soon as `launcher` has ended."""
    parent = os.getppid()
    try:
        poll = select.poll()
        poll.register(os.pidfd_open(launcher), select.POLLIN)
        poll.poll()
    except (AttributeError, OSError):  # not Linux, or one before 5.3
        while os.getppid() == parent:
            time.sleep(1.0)
    os._exit(1)  # nobody is left to read a message
