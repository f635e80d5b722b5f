"""Compiled functions on disk, one file for each function and types of arguments.

The name of a file is a digest of all that decides what is in it: the function, the types, the options, the versions of
the compiler, the processor, and the sources and constants of every module that compiled code of this function's module
can name, and of those that these can name in turn. So no change is missed, in whichever file it is, and checkouts with
the same sources share their files, wherever they lie. numba's own cache looks at the file of the called function alone.

What one process compiles, others wait for. `code_folders` says where the files lie.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import pickle
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from time import sleep
from types import CodeType, ModuleType
from typing import Any, BinaryIO

import llvmlite
import numba
import numpy as np
from numba.core import caching, compiler, config, environment, serialize
from numba.core.runtime import nrt

from taskflow.core import code_folders

_progress = logging.getLogger(
    "taskflow.compiling"
)  # of what is not on disk, one record for each variant
_config: Any = config  # numba has no types for these
_serialize: Any = serialize
_compiler: Any = compiler

_COURTESY_SECONDS = 1.0  # for which who waited once lets others begin first
_NO_OBJECTS: Any = environment.Environment({})  # what a function that uses none is given
_FOREIGN = (
    frozenset({"numba", "numpy", "llvmlite"}) | sys.stdlib_module_names
)  # their versions are in the digest
_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    tuple,
    frozenset,
    type(None),
    np.generic,
    np.dtype,
    Enum,
)
_SETTINGS = (
    "OPT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "BOUNDSCHECK",
    "DEBUGINFO_DEFAULT",
)  # of numba
_VERSIONS = (
    *(sys.version, platform.machine(), np.__version__, numba.__version__, llvmlite.__version__),
    *(str(getattr(config, name, None)) for name in _SETTINGS),
)
_OWN = tuple(
    str(Path(__file__).with_name(name)) for name in ("code_cache.py", "compiling.py", "linking.py")
)


class CodeCache(caching._Cache):
    """The files of one function; what numba asks for a variant before it compiles one."""

    _has_waited = False  # this process, for another one, which has inner functions at hand that the next may share

    def __init__(
        self, function: Callable[..., Any], options: Mapping[str, Any], shares_code: bool = False
    ) -> None:
        self._function = function
        self._options = options
        self._is_enabled = True
        self._shares_code = shares_code  # with others: the inner functions that it calls
        self._held: BinaryIO | None = None  # the lock of what is compiled now
        with suppress(OSError):  # typed in, it has no file, and is not kept
            _source(
                function.__globals__.get("__file__")
            )  # now: it may change while this process runs

    @property
    def cache_path(self) -> str:
        """The folder that is tried first."""
        return str(code_folders.first_folder() or "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled variant for these types, None where there is none."""
        name = self.name_of(sig, target_context.codegen()) if self._is_enabled else None
        payload = code_folders.read(name) if name else None
        if payload is None and name:
            _progress.info("%s.%s", self._function.__module__, self._function.__name__)
            self._lock(name)
            payload = code_folders.read(
                name
            )  # another process may have made it while this one waited
        if payload is None:
            return None
        self.release()
        nrt.rtsys.initialize(
            target_context
        )  # what compiled code calls; what compiling needs takes 0.3 s to import
        reduced, bare = pickle.loads(payload)
        variant = _compiler.CompileResult._rebuild(target_context, *reduced)
        for name in bare:
            target_context.codegen().set_env(name, _NO_OBJECTS)
        return variant

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled for these types."""
        is_kept = self._is_enabled and not data.lifted and not data.library.has_dynamic_globals
        if is_kept:
            *reduced, held = data._reduce()
            bare = [
                env.env_name for env in held if not env.consts
            ]  # loading one imports its module
            reduced.append([env for env in held if env.consts])
            if name := self.name_of(sig, data.codegen):
                code_folders.write(name, _serialize.dumps((reduced, bare)))
        self.release()

    def _lock(self, name: str) -> None:
        """Wait until no other process compiles this, and keep others waiting; where a file can be locked."""
        for folder in code_folders.folders():
            with suppress(OSError):
                if CodeCache._has_waited and self._shares_code:
                    sleep(_COURTESY_SECONDS)
                folder.mkdir(parents=True, exist_ok=True)
                self._held = open(folder / f"{name}.lock", "ab")  # noqa: SIM115 - until `release`
                try:
                    fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    CodeCache._has_waited |= self._shares_code
                    fcntl.flock(self._held, fcntl.LOCK_EX)
                return

    def release(self) -> None:
        """Let others go on: it is on disk, or cannot be compiled."""
        if self._held is not None:
            with suppress(OSError):
                os.unlink(self._held.name)
            self._held.close()
            self._held = None

    def enable(self) -> None:
        """Load and save from now on."""
        self._is_enabled = True

    def disable(self) -> None:
        """Neither load nor save from now on."""
        self._is_enabled = False

    def flush(self) -> None:
        """Nothing to do: a function that changes has another name."""

    def name_of(self, types: Any, codegen: Any) -> str | None:
        """The file's name; None where a source cannot be read."""
        function = self._function
        try:
            sources = _digest_of(function.__globals__), *map(_source, _OWN)
        except OSError:
            return None
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        said = (
            sources,
            _VERSIONS,
            codegen.magic_tuple(),
            str(types),
            sorted(self._options.items()),
        )
        itself = (function.__module__, function.__qualname__, _code(function.__code__))
        digest = hashlib.sha256(
            repr((said, itself)).encode() + (_serialize.dumps(cells) if cells else b"")
        )
        return f"{function.__module__}.{function.__name__}-{digest.hexdigest()[:32]}"


def _code(code: CodeType) -> tuple[Any, ...]:
    constants = [
        _code(constant) if isinstance(constant, CodeType) else constant
        for constant in code.co_consts
    ]
    return code.co_code, constants, code.co_names, code.co_varnames


@cache
def _source(path: str | None) -> bytes:
    """The source at a path as this process first met it."""
    if path is None:
        raise FileNotFoundError("a module without a file")
    return Path(path).read_bytes()


def _digest_of(names: Mapping[str, Any]) -> str:
    """Of the sources and constants that compiled code with these global names can reach.

    Raises:
        OSError: a source cannot be read.
    """
    content, pending = _look(names)
    reached = {"": content}
    while pending:
        name = pending.pop()
        if name not in reached:
            reached[name], below = _look_at(name)
            pending |= below
    return hashlib.sha256(repr(sorted(reached.items())).encode()).hexdigest()


@cache
def _look_at(module: str) -> tuple[str, set[str]]:
    return _look(vars(sys.modules[module]))


def _look(names: Mapping[str, Any]) -> tuple[str, set[str]]:
    """A digest of a module's source and constants; if it has compiled code, the modules that its other names are of."""
    digest = hashlib.sha256(_source(names.get("__file__")))
    owners = set()
    for name in sorted(names):
        value = names[name]
        if isinstance(value, _PLAIN) and not name.startswith("__"):
            digest.update(f"{name} = {value!r}\n".encode())
        elif isinstance(value, np.ndarray):
            digest.update(f"{name} = {value.dtype} {value.shape}\n".encode() + value.tobytes())
        else:
            if isinstance(value, type) and issubclass(value, Enum):
                digest.update(f"{name} = {list(value)!r}\n".encode())
            owners.add(
                value.__name__
                if isinstance(value, ModuleType)
                else getattr(value, "__module__", None) or ""
            )
    has_compiled = any(
        owner.partition(".")[0] == "numba" or owner == "taskflow.core.compiling" for owner in owners
    )
    below = {
        owner
        for owner in owners
        if owner in sys.modules and owner.partition(".")[0] not in _FOREIGN
    }
    return digest.hexdigest(), below if has_compiled else set()
