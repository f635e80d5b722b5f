"""A process that compiles ahead: it fills the folder of compiled code while those who asked run as Python.

There is one for all processes that use a folder, at low priority. Who asks leaves a file with the function and its
types, which is named as the compiled one will be, so that what many ask for is compiled once. The process keeps each
function when it is done, and ends with the last of those who asked: each of them holds a lock, until it withdraws or
ends, however it ends. An executor withdraws: its steps are timed, and need the cores. What was asked for stays asked.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from time import sleep
from typing import Any

from taskflow.core import code_folders
from taskflow.core.garbage import collect_rarely
from taskflow.core.system import outside_job

_ASKED = "asked"
_ASKERS = "askers.lock"
_COMPILER = "compiler.lock"
_LOOK_SECONDS = 0.2
_NICE = 19  # unless TASKFLOW_COMPILE_NICE says otherwise
_held = list[int]()  # the lock of those who ask, while this process is one of them


def ask(name: str, function: tuple[str, str], types: Any) -> None:
    """Ask for the file `name`: a function, by module and name, compiled for numba's `types` of its arguments.

    Nobody compiles it where files cannot be kept, and in tests, which would leave processes behind.
    """
    from numba.core import serialize

    tools: Any = serialize  # numba has no types for it
    try:
        folder = _folder()
        if folder is None:
            return
        _hold(folder)
        code_folders.put(folder / _ASKED / name, tools.dumps((function, types)))
        if not _is_compiling(folder):
            _start(folder)
    except OSError:
        code_folders.warn_of_nowhere()


def withdraw() -> None:
    """Need nothing for now: where nobody else does, the process ends at once."""
    while _held:
        os.close(_held.pop())


def _hold(folder: Path) -> None:
    """Be one of those who ask, from now on."""
    if not _held:
        (folder / _ASKED).mkdir(exist_ok=True)
        _held.append(os.open(folder / _ASKERS, os.O_RDWR | os.O_CREAT, 0o600))
        fcntl.flock(_held[0], fcntl.LOCK_SH)  # waits for a process that is ending


@cache
def _folder() -> Path | None:
    """The folder in which this process asks; None where it cannot."""
    if "pytest" in sys.modules or "PYTEST_CURRENT_TEST" in os.environ:
        return None
    folder = code_folders.used_folder()
    if folder is None:
        code_folders.warn_of_nowhere()
    return folder


def _is_compiling(folder: Path) -> bool:
    """Whether there is a process for the folder."""
    with open(folder / _COMPILER, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _start(folder: Path) -> None:
    """Start the process; where others start it, too, all but one end at once.

    It stays in this session: Linux gives each session as much time as another, whatever the priorities within (with one
    of its own it took half of a core from two busy ranks, so it takes 2 %).
    """
    _niceness()  # what is wrong is said here
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environment = outside_job(os.environ) | {
        "PYTHONPATH": paths,
        "TASKFLOW_COMPILE": "always",
        "OMP_NUM_THREADS": "1",
    }
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _niceness() -> int:
    said = os.environ.get("TASKFLOW_COMPILE_NICE") or str(_NICE)
    if not said.isdecimal() or int(said) > 19:
        raise ValueError(f"TASKFLOW_COMPILE_NICE: 0 to 19, not '{said}'")
    return int(said)


# -- the process -------------------------------------------------------------------------------------------------------


def main(folder: Path) -> None:
    """Compile what is asked for in a folder, until nobody is there any more."""
    os.nice(_niceness())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for those who asked
    with (
        collect_rarely(),
        open(folder / _COMPILER, "ab") as lock,
        open(folder / _ASKERS, "rb+") as askers,
        suppress(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        threading.Thread(target=_end_with, args=[askers], daemon=True).start()
        for path in _asked(folder / _ASKED):
            _compile(path)
            path.unlink(missing_ok=True)


def _end_with(askers: Any) -> None:
    """End this process, whatever it is at, as soon as nobody holds the lock of those who ask."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(askers, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os._exit(0)
        sleep(_LOOK_SECONDS)


def _asked(folder: Path) -> Iterator[Path]:
    """For ever what is asked for, earliest first."""
    while True:
        paths = sorted(
            (path for path in folder.iterdir() if "-" in path.name),
            key=lambda path: path.stat().st_mtime,
        )
        yield from paths[:1]
        if not paths:
            sleep(_LOOK_SECONDS)


def _compile(path: Path) -> None:
    """Compile one function, unless that was done; whoever asked meets what goes wrong here as well."""
    with suppress(Exception):
        (module, name), types = pickle.loads(path.read_bytes())
        if not code_folders.has(path.name):
            getattr(import_module(module), name).compile(types)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
