"""The heart of a rank: the cells in which it notes what it does, and the guard that reads them.

Cells and the tables of programs are in a file without a name: nothing is left of them once rank and guard are gone,
however they end. A process that is no rank has cells that nobody reads.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from taskflow.comm.guard import rank_of
from taskflow.comm.judge import CELLS, STATUS, Cell, Stage
from taskflow.core.system import (
    accept_tracer,
    host_address,
    job_name,
    local_size,
    patience_seconds,
    tell_status,
    world_rank,
    world_size,
)

_START = (
    "import sys, types; package = types.ModuleType('taskflow'); package.__path__ = [{!r}]; "
    "sys.modules['taskflow'] = package; from taskflow.comm.guard import main; main()"
)
_GUARDED = "TASKFLOW_GUARDED"  # what a rank starts inherits it, and is no rank
_AWAIT_SECONDS = 5.0  # for the guard to begin; this process goes on without it
_HEARD_SECONDS = 0.05  # that guards take to tell each other


class Heart:
    """What this process notes; for its guard, if it is a rank of a `job` that `launcher` started."""

    def __init__(self, job: str = "", launcher: int = 0) -> None:
        self.is_guarded = bool(job)
        self._process = os.getpid()
        self._end = 0
        self._file = os.memfd_create("taskflow") if job else -1
        self.cells: memoryview[int] = memoryview(self.room(8 * CELLS)[0]).cast("q")
        if job:
            self._guard, guards_end = socket.socketpair()
            rank = world_rank(), world_size(), local_size() == world_size(), self._process, launcher
            words = json.dumps([*rank, patience_seconds(), self._file, guards_end.fileno(), job])
            command = [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _START.format(str(Path(__file__).parents[1])),
                words,
            ]
            for handle in (self._file, guards_end.fileno()):
                os.set_inheritable(handle, True)
            none = [(os.POSIX_SPAWN_OPEN, end, os.devnull, os.O_RDWR, 0) for end in (0, 1)]
            accept_tracer(
                os.posix_spawn(command[0], command, os.environ, file_actions=none, setsid=True)
            )
            os.set_inheritable(self._file, False)
            tell_status(self._guard.fileno(), STATUS)
            guards_end.close()

    def room(self, size_bytes: int) -> tuple[mmap.mmap, int]:
        """Memory that the guard can read, and where in it that begins."""
        begin = self._end
        self._end = self._end - -size_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        if self._file < 0:
            return mmap.mmap(-1, size_bytes), begin
        os.ftruncate(self._file, self._end)
        return mmap.mmap(self._file, size_bytes, offset=begin), begin

    def await_guard(self) -> None:
        """Return when the guard is at work: it takes less time than the import of the package, but cores may be few."""
        end = time.monotonic() + _AWAIT_SECONDS
        while self.is_guarded and not self.cells[Cell.IS_KNOWN] and time.monotonic() < end:
            time.sleep(1e-3)

    @contextmanager
    def meeting(self) -> Iterator[None]:
        """In it this process waits for all others to come to the same."""
        self.cells[Cell.COUNT] += 1
        self.cells[Cell.WAITING] = 1
        try:
            yield
        finally:
            self.cells[Cell.WAITING] = 0

    def approach_end(self, stage: Stage) -> None:
        """The end of this rank is so near; when it returns, the guards know if it ends all."""
        if self._process == os.getpid():  # a fork may end as it likes
            self.cells[Cell.STAGE] = stage
            if self.is_guarded:
                with suppress(OSError):  # the guard has gone
                    self._guard.sendall(b"\n")
                time.sleep(_HEARD_SECONDS if stage == Stage.SAID else 0)

    def await_hosts(self) -> tuple[int, str, int]:
        """As rank 0: have the guards of other hosts meet this one's; a token of the job, and where it listens."""
        meeting = secrets.randbits(62), host_address(), self.cells[Cell.PORT]
        self.meet_hosts(*meeting)
        return meeting

    def meet_hosts(self, token: int, host: str, port: int) -> None:
        """From now on the guards of several hosts stand together: who is lost is missed by them."""
        if self.is_guarded:
            self.cells[Cell.IS_KNOWN] = 0
            self._guard.sendall(json.dumps([token, host, port]).encode() + b"\n")
            self.await_guard()


@cache
def heart() -> Heart:
    """That of this process; a rank's guard begins with the first call."""
    launcher = find_launcher()
    job = f"{launcher}-{job_name()}"
    name = f"{job}-{world_rank()}"
    if not world_size(0) or os.environ.get(_GUARDED) == name or not hasattr(os, "memfd_create"):
        return Heart()
    os.environ[_GUARDED] = name
    return Heart(job, launcher)


def find_launcher() -> int:
    """The nearest ancestor that is no rank: what stands between the two has the environment of the rank."""
    process = os.getppid()
    while rank_of(process) is not None:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process
