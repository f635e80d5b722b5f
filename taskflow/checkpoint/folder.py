"""A folder of checkpoints: what is in it, who writes there, drafts, room.

One run at a time owns it, by a lock; a second one is refused and told who that is. The lock is a file with host and
process id, locked (`flock`) for as long as its owner lives: a dead owner holds nothing, on whatever host it died, and
is followed without a question. Where a file system has no such locks, what the file says decides: an owner on another
host counts as alive. Readers need no lock.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path

from taskflow.checkpoint.manifest import (
    NAME,
    Manifest,
    Reader,
    check_all,
    checkpoints,
    parse_manifest,
    read_manifest,
    step_folder,
)
from taskflow.comm.transport import Transport
from taskflow.core.files import blaming, naming, sync_folder

_log = logging.getLogger(__name__)

OWNER = ".owner"
_LOOKS = 10  # while one checkpoint comes and another goes, a list of the folder may miss both


def latest(folder: str | Path) -> Path | None:
    """The newest checkpoint in `folder`, None where there is none."""
    for _ in range(_LOOKS):
        if paths := checkpoints(folder):
            return paths[max(paths)]
    return None


def newest_sound(folder: str | Path, before: float = inf, is_finite: bool = False) -> Path | None:
    """The newest checkpoint in `folder` in which every bit is right, None where there is none.

    Args:
        folder: of checkpoints.
        before: a step; it and later ones are passed over.
        is_finite: pass over those with numbers that are not finite, too.
    """
    for step, path in reversed(checkpoints(folder).items()):
        with suppress(ValueError, OSError):
            if step < before and (check_all(path).is_finite or not is_finite):
                return path
    return None


def fall_back(folder: str | Path) -> Path | None:
    """The newest checkpoint, of whose damaged successors there are none any more: where a killed run goes on.

    Only where none is sound it is a damaged one.
    """
    sound = newest_sound(folder)
    for path in checkpoints(folder).values():
        if sound is not None and path.name > sound.name:
            _log.warning("checkpoint '%s' is damaged: going on from '%s'", path, sound)
            _remove(path)
    return sound or latest(folder)


# -- owner ------------------------------------------------------------------------------------------------------------


@contextmanager
def owning(folder: Path, transport: Transport) -> Iterator[None]:
    """Own a folder, which is made if need be, meanwhile; all ranks call it.

    Raises:
        ValueError: another process owns it.
        OSError: it cannot be written to.
    """
    held: list[int] = []
    transport.on_rank_0(lambda: held.append(_lock(folder)))
    try:
        yield
    finally:
        for handle in held:
            with suppress(OSError):
                os.unlink(folder / OWNER)
            os.close(handle)


def _lock(folder: Path) -> int:
    """The handle of the locked file, in which this process is named."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / OWNER
    while True:
        handle = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644
        )
        process, _, host = os.pread(handle, 200, 0).decode(errors="replace").strip().partition(" ")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        except OSError:  # no locks here
            is_free = not process or (
                host == os.uname().nodename and not os.path.exists(f"/proc/{process}")
            )
        if not is_free:
            os.close(handle)
            owner = (
                f"process {process} on '{host}'"
                if process.isdecimal() and host.isprintable()
                else "another process"
            )
            raise ValueError(
                f"checkpoint: '{folder}' belongs to the run of {owner}; give another folder"
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):  # else its owner has just left
                break
        os.close(handle)
    os.ftruncate(handle, 0)
    try:
        os.pwrite(handle, f"{os.getpid()} {os.uname().nodename}\n".encode(), 0)
    except OSError as error:
        if (
            error.errno != errno.ENOSPC
        ):  # the disk is full: the lock is ours, and what follows makes room
            raise
    return handle


# -- drafts -----------------------------------------------------------------------------------------------------------


def make_draft(folder: Path, manifest: Manifest, size_bytes: int, keep: int | None) -> Path:
    """The folder of a draft: after a check of what is known already, without what killed runs left, and with room."""
    newest = next(reversed(checkpoints(folder)), -1)
    if newest >= manifest.steps:
        raise ValueError(
            f"save: '{folder}' already holds step {newest}, this is step {manifest.steps}; give another folder"
        )
    with naming("save"):
        try:
            parse_manifest(manifest.render())
        except TypeError as error:
            raise ValueError(f"notes are JSON values: {error}") from error
    for left in folder.glob(".step-*.partial"):
        shutil.rmtree(left, ignore_errors=True)
    _make_room(folder, size_bytes, keep)
    draft = _aside(step_folder(folder, manifest.steps))
    draft.mkdir()
    return draft


def _aside(path: Path) -> Path:
    """A name beside a checkpoint's that nobody else uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")


def _make_room(folder: Path, size_bytes: int, keep: int | None) -> None:
    """Remove checkpoints that would go after this one, too, if that makes room that is not there."""
    spare = _surplus(folder, keep - 1) if keep else []
    room = _free_bytes(folder) + sum(
        file.stat().st_size for path in spare for file in path.iterdir()
    )
    if room < size_bytes:
        rule = f"No space left for a checkpoint of {size_bytes} bytes, there is room for {room}"
        raise OSError(errno.ENOSPC, rule, str(folder))
    while spare and _free_bytes(folder) < size_bytes:
        _remove(spare.pop(0))


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _surplus(folder: Path, keep: int) -> list[Path]:
    """All checkpoints but the `keep` newest, the newest, and the newest whose numbers are all finite."""
    paths = list(checkpoints(folder).values())
    kept = set(paths[-max(keep, 1) :])
    for path in reversed(paths):
        with suppress(ValueError, OSError):
            if read_manifest(path).is_finite:
                kept.add(path)
                break
    return [path for path in paths if path not in kept]


def _remove(path: Path) -> None:
    """Remove a checkpoint: first its name, so that nobody sees a half of it."""
    shutil.rmtree(path.rename(_aside(path)), ignore_errors=True)


def publish(draft: Path, manifest: Manifest, keep: int | None) -> Path:
    """Give the finished draft its name, if it can be read; only then do older checkpoints go."""
    target = step_folder(draft.parent, manifest.steps)
    with blaming(draft / NAME), (draft / NAME).open("x", encoding="utf-8") as stream:
        stream.write(manifest.render())
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(draft)
    Reader(draft, read_manifest(draft))
    draft.rename(target)
    sync_folder(target.parent)
    sync_folder(target.parent.parent)
    for old in _surplus(target.parent, keep) if keep else []:
        _remove(old)
    return target
