"""Builds the stub: a library in the place of CUDA's, and CuPy's module for the runtime linked to it.

CuPy's wheel has CUDA's runtime inside of one module, `cupy_backends.cuda.api.runtime`; everything else it looks up in
libraries when it is imported. So that module alone is compiled anew, from its source of the same release. `.ci/stub`
fetches what this takes into `.cache/stub`: `site` (CuPy, CUDA's headers, Cython) and `source` (CuPy's own).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache" / "stub"
SITE, SOURCE, LIBRARY = CACHE / "site", CACHE / "source", "libstub.so"
_MODULE = Path("cupy_backends", "cuda", "api", "runtime")
_MACROS = "CUPY_CUDA_VERSION=13000,CUPY_HIP_VERSION=0,CUPY_USE_CUDA_PYTHON=False"
_PARTS = ("state.cpp", "memory.cpp", "streams.cpp", "driver.cpp", "products.cpp", "unsupported.cpp")
_OPTIONS = "-std=c++17", "-shared", "-fPIC", "-w"


def why_not() -> str:
    """Why the stub cannot be built here; empty: it can."""
    if shutil.which("g++") is None:
        return "g++ is not installed"
    if not (SITE / "cupy").is_dir() or not (SOURCE / _MODULE.with_suffix(".pyx")).is_file():
        return "CuPy's wheels are not in .cache/stub: `.ci/stub` fetches them"
    return ""


@cache
def environment() -> dict[str, str]:
    """That of a process in which CuPy finds the stub; it is built where that has not been done."""
    folder = _folder()
    if not folder.exists():
        _build(folder)
    found = {
        "STUB_LIBRARY": str(folder / LIBRARY),
        "PYTHONPATH": os.pathsep.join(map(str, (HERE / "start", folder, SITE, ROOT))),
        "CUPY_CACHE_DIR": str(CACHE / "kernels"),
        "CUPY_ACCELERATORS": "",
    }
    return os.environ | found


def _folder() -> Path:
    """Where what is built from these sources for this Python lies."""
    digest = hashlib.blake2b(sys.version.encode(), digest_size=8)
    for path in (
        *sorted(HERE.glob("*.cpp")),
        HERE / "state.h",
        Path(__file__),
        SOURCE / _MODULE.with_suffix(".pyx"),
    ):
        digest.update(path.read_bytes())
    return CACHE / digest.hexdigest()


def _build(folder: Path) -> None:
    """Make the folder, whole, whoever else does so."""
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        made = Path(name) / "made"
        _copy_packages(made)
        headers = f"-I{SITE}/nvidia/cu13/include"
        _run(
            "g++",
            *_OPTIONS,
            "-O1",
            headers,
            *(HERE / part for part in _PARTS),
            "-o",
            made / LIBRARY,
        )
        module = made / _MODULE.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
        text = Path(name) / "runtime.cpp"
        _run(
            sys.executable,
            "-m",
            "cython",
            "--cplus",
            "-E",
            _MACROS,
            SOURCE / _MODULE.with_suffix(".pyx"),
            "-o",
            text,
        )
        paths = f"-I{HERE / 'include'}", headers, f"-I{sysconfig.get_paths()['include']}", "-iquote"
        linked = f"-L{made}", "-lstub", f"-Wl,-rpath,{folder}"
        _run("g++", *_OPTIONS, "-O0", *paths, SOURCE / _MODULE.parent, text, *linked, "-o", module)
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise


def _copy_packages(made: Path) -> None:
    """CuPy's package of backends with links to all of its files but the one that is made anew."""
    for path in (SITE / _MODULE.parts[0]).rglob("*"):
        target = made / path.relative_to(SITE)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif not path.name.startswith("runtime.") or path.parent.name != _MODULE.parent.name:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)


def _run(*command: str | Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(SITE)}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(
            f"the stub cannot be built: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        )


if __name__ == "__main__":
    reason = why_not()
    if not reason:
        environment()
    print(f"stub: {reason or 'built'}")
