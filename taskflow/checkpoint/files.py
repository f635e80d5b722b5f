"""Checkpoints: an executor's persistent regions on disk, in logical coordinates.

Every region is saved whole under its name, so a checkpoint knows nothing of strategies and ranks. Each rank writes one
file; a region goes to a rank that holds all of it anyway, or else is gathered first, one at a time. A checkpoint
appears under its name only when it is complete, on the disk and read back; what is not whole when read is refused
(`manifest`). One run at a time writes into a folder (`folder`); readers hold files that are removed meanwhile.
All ranks call these functions together, and all of them raise what one of them finds.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from taskflow.backend.choices import Choices
from taskflow.checkpoint.folder import latest, make_draft, newest_sound, owning, publish
from taskflow.checkpoint.manifest import (
    Entry,
    Manifest,
    Reader,
    checkpoints,
    is_checkpoint,
    read_manifest,
)
from taskflow.checkpoint.tensorfile import TensorWriter
from taskflow.comm.ending import phase
from taskflow.comm.transport import Transport
from taskflow.core.numbers import is_whole
from taskflow.execute import Executor

_log = logging.getLogger(__name__)
_TRIES = 100  # to open the newest checkpoint before it is removed


# -- saving ------------------------------------------------------------------------------------------------------------


def save(
    executor: Executor,
    folder: str | Path,
    keep: int | None = None,
    notes: dict[str, Any] | None = None,
    steps: int | None = None,
) -> Path:
    """Write the checkpoint `folder/step-<steps>`; all ranks call it between two steps.

    Args:
        executor: whose persistent regions, step and seed are saved.
        folder: where the checkpoints of this run are; made if need be, shared by all ranks.
        keep: how many checkpoints to leave there, None: all; the newest whose numbers are all finite is always left.
        notes: JSON values to keep with it; `load` gives them back.
        steps: how many are over; default: as many as the executor counts.

    Raises:
        ValueError: the folder already holds this step or a later one, another run owns it, or notes are no JSON.
        OSError: there is no room, or a rank could not write its file; what was written of it is removed.
    """
    with owning(Path(folder), executor.transport):
        return save_owned(executor, Path(folder), keep, notes, steps)


@phase("checkpoint")
def save_owned(
    executor: Executor,
    folder: Path,
    keep: int | None,
    notes: dict[str, Any] | None,
    steps: int | None = None,
) -> Path:
    """`save` into a folder that this run owns."""
    if keep is not None and not is_whole(keep):
        raise ValueError(f"save: keep is at least 1, not {keep!r}")
    transport = executor.transport
    manifest = Manifest(steps or executor.steps, executor.seed, notes or {}, {}, {})
    size_bytes = sum(executor.regions.region(name).size_bytes for name in executor.persistent)
    draft = transport.on_rank_0(lambda: make_draft(folder, manifest, size_bytes, keep))
    try:
        file, entries = _write(executor, draft / f"rank-{transport.rank:04d}.safetensors")
        parts = transport.gather(
            (file.path.name, file.layout.size_bytes, entries, file.is_finite, file.error)
        )
        for *_, error in parts:
            if error is not None:
                raise error
        files = {name: size for name, size, entries, *_ in parts if entries}
        regions = {name: entry for _, _, entries, *_ in parts for name, entry in entries.items()}
        is_finite = all(is_finite for *_, is_finite, _ in parts)
        made = replace(
            manifest,
            files=files,
            regions=regions,
            is_finite=is_finite,
            constants=executor.regions.constants,
            choices={key: dict(by) for key, by in executor.choices.seconds.items()},
        )
        return transport.on_rank_0(lambda: publish(draft, made, keep))
    except (OSError, ValueError):
        if transport.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)  # the room is needed
        raise


def _write(executor: Executor, path: Path) -> tuple[TensorWriter, dict[str, Entry]]:
    """Write this rank's regions; ranks gather what none of them holds whole."""
    rank = executor.transport.rank
    owners = _owners(executor)
    executor.regions.refresh()
    mine = [executor.regions.region(name) for name, owner in owners.items() if owner == rank]
    file = TensorWriter(path, [(r.name, r.shape, r.dtype) for r in mine])
    entries = {}
    for name, owner in owners.items():
        if owner in executor.regions.whole_on(name):
            value = executor.regions.read_own(name) if owner == rank else None
        else:
            value = executor.read(name)
        if value is not None and owner == rank:
            entries[name] = Entry(path.name, value.shape, str(value.dtype), file.put(name, value))
    file.close()
    return file, entries


def _owners(executor: Executor) -> dict[str, int]:
    """Region -> the rank that writes it: the least loaded of those that hold it whole, or of all. Every rank agrees."""
    load = [0] * executor.transport.size
    owners = {}
    for name in sorted(
        executor.persistent, key=lambda n: (-executor.regions.region(n).size_bytes, n)
    ):
        owners[name] = min(
            executor.regions.whole_on(name) or range(len(load)), key=lambda r: (load[r], r)
        )
        load[owners[name]] += executor.regions.region(name).size_bytes
    return owners


# -- loading -----------------------------------------------------------------------------------------------------------


@phase("checkpoint")
def load(executor: Executor, folder: str | Path, ignore_extra: bool = False) -> Manifest:
    """Set persistent regions, step and seed from a checkpoint; all ranks call it between two steps.

    Args:
        executor: of the same graph; its strategy and number of ranks may be others.
        folder: a checkpoint, or a folder of them, of which the newest is taken.
        ignore_extra: skip regions that the graph lacks, as an inference graph lacks momenta.

    Returns:
        the manifest; `notes` are what `save` was given.

    Raises:
        ValueError: there is no checkpoint, it is damaged (with file, region and bytes; if it is the newest of several,
            with the newest sound one), or it is of another graph (with the regions).
    """
    transport = executor.transport
    reader = _open(transport, Path(folder))
    path = reader.path
    manifest = reader.manifest
    _match(executor, path, manifest, ignore_extra)
    error = None
    try:
        for name in list(manifest.regions)[transport.rank :: transport.size]:
            reader.check(name)
    except (OSError, ValueError) as problem:
        error = problem
    _raise_any(transport, error, path)
    for name in executor.persistent:
        executor.regions.write(name, reader.region(name))
    executor.continue_from(manifest.steps, manifest.seed)
    if executor.choices.seconds and Choices(manifest.choices).digest != executor.choices.digest:
        _log.warning("checkpoint '%s': other kernels ran there: last bits may differ", path)
    return manifest


def _open(transport: Transport, folder: Path) -> Reader:
    """The checkpoint `folder`, or the newest one in it, its files open on every rank."""
    for _ in range(_TRIES):
        path = transport.on_rank_0(lambda: find_checkpoint(folder))
        try:
            reader = Reader(path, transport.on_rank_0(partial(read_manifest, path)))
            error = None
        except (OSError, ValueError) as problem:
            error = problem
        try:
            _raise_any(transport, error, path)
            return reader
        except ValueError:
            if path == folder or transport.on_rank_0(path.exists):
                raise
    raise ValueError(f"load: the checkpoints in '{folder}' go faster than they can be opened")


def find_checkpoint(folder: Path) -> Path:
    """The checkpoint `folder`, or the newest one in it; ValueError if there is none."""
    path = folder if is_checkpoint(folder) else latest(folder)
    if path is None:
        raise ValueError(f"load: there is no checkpoint in '{folder}'")
    return path


def _raise_any(transport: Transport, error: Exception | None, path: Path) -> None:
    """Raise on every rank what one of them found, with what to do about a damaged checkpoint."""
    for failure in transport.gather(error):
        if isinstance(failure, ValueError):
            raise ValueError(f"{failure}{transport.on_rank_0(partial(_advise, path))}") from failure
        if failure is not None:
            raise failure


def _advise(damaged: Path) -> str:
    """Nothing is done silently about a damaged checkpoint."""
    step = next(
        (step for step, path in checkpoints(damaged.parent).items() if path.name == damaged.name),
        -1,
    )
    sound = newest_sound(damaged.parent, before=step)
    return f"; '{sound}' is sound: remove '{damaged}' to go on from there" if sound else ""


def _match(executor: Executor, path: Path, manifest: Manifest, ignore_extra: bool) -> None:
    where = f"checkpoint '{path}': is of another graph"
    here = dict.fromkeys(executor.persistent)
    missing = [n for n in here if n not in manifest.regions]
    extra = [n for n in manifest.regions if n not in here]
    if missing:
        raise ValueError(f"{where}: it has no region {_names(missing)}")
    if extra and not ignore_extra:
        raise ValueError(f"{where}: the graph has no region {_names(extra)}")
    for name in here:
        region = executor.regions.region(name)
        entry = manifest.regions[name]
        if (region.shape, region.dtype) != (entry.shape, entry.dtype):
            raise ValueError(
                f"{where}: region '{name}' is {entry.shape} {entry.dtype} there, {region.shape} {region.dtype} here"
            )

    constants = executor.regions.constants.items()
    if other := [n for n, digest in constants if manifest.constants.get(n, digest) != digest]:
        raise ValueError(f"{where}: other values are in the constant {_names(other)}")


def _names(names: list[str]) -> str:
    return ", ".join(f"'{n}'" for n in names[:5]) + (
        f" and {len(names) - 5} more" if len(names) > 5 else ""
    )
