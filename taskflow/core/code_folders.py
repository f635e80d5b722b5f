"""Where compiled code is kept: folders, and files whose names are digests of what is in them (see `code_cache`).

A file is written aside and then renamed, so that processes may fill a folder at once. It begins with a digest of its
contents, so that a damaged one is noticed. Files go first to `NUMBA_CACHE_DIR`, or the user's folder for caches; where
that cannot be written, to a folder for temporary files that is the user's alone, or nowhere.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import time

from taskflow.core.numbers import GIB

_log = logging.getLogger(__name__)

LARGEST_BYTES = GIB  # of a folder; one generation of all functions takes some 20 MB
_DAY_SECONDS = 86400
_DIGEST_BYTES = 32


def first_folder() -> Path | None:
    """The folder that is asked for; None: there is no home."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named, "taskflow")
    with suppress(RuntimeError):
        home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        return Path(home, "taskflow") if Path(home).is_absolute() else None
    return None


def folders() -> Iterator[Path]:
    """Where files may lie, best first."""
    if first := first_folder():
        yield first
    with suppress(OSError):
        private = Path(tempfile.gettempdir()) / f"taskflow-{os.getuid()}"
        private.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        status = private.lstat()  # what others could write to is not trusted: a file is code
        if (
            stat.S_ISDIR(status.st_mode)
            and status.st_uid == os.getuid()
            and not status.st_mode & 0o077
        ):
            yield private


def used_folder() -> Path | None:
    """The first folder that takes files; None: nothing is kept."""
    return next((folder for folder in folders() if _takes_files(folder)), None)


def has(name: str) -> bool:
    """Whether there is a file of this name."""
    return any((folder / name).is_file() for folder in folders())


@cache
def functions() -> frozenset[str]:
    """The functions of which there was a file, for whatever types and sources, when this was first asked."""
    names = set[str]()
    for folder in folders():
        with suppress(OSError):
            names |= {name.rpartition("-")[0] for name in os.listdir(folder)}
    return frozenset(names)


def read(name: str) -> bytes | None:
    """The contents of a file, None where it is missing or damaged."""
    for folder in folders():
        path = folder / name
        try:
            data = path.read_bytes()
            if time() - path.stat().st_mtime > _DAY_SECONDS:
                os.utime(path)  # it is in use: see `_bound`
        except OSError:
            continue
        if hashlib.sha256(data[_DIGEST_BYTES:]).digest() == data[:_DIGEST_BYTES]:
            return data[_DIGEST_BYTES:]
        _warn_of_damage(str(folder))
    return None


@cache
def _warn_of_damage(folder: str) -> None:
    _log.warning("compiled code in %s is damaged; it is compiled again", folder)


def write(name: str, payload: bytes) -> None:
    """Keep contents in the first folder that takes them; where none does, that is said once."""
    for folder in folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            _bound(folder)
            put(folder / name, hashlib.sha256(payload).digest() + payload)
            return
    warn_of_nowhere()


def put(path: Path, data: bytes) -> None:
    """Write a file aside, and rename it."""
    handle, aside = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(aside, path)
    except OSError:
        os.unlink(aside)
        raise


@cache
def warn_of_nowhere() -> None:
    """Say once that nothing is kept, and nothing compiled ahead."""
    _log.warning(
        "compiled code is not kept: neither %s nor a folder for temporary files takes it",
        first_folder(),
    )


@cache
def _bound(folder: Path) -> None:
    """Once a process: remove the files that were not used for longest while the folder is too large."""
    files = []
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):
            if entry.is_file():
                files.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= LARGEST_BYTES:
            break
        with suppress(OSError):
            os.unlink(path)
        total -= size


def _takes_files(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
