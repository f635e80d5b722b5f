"""Checkpoints: an executor's persistent regions on disk, in logical coordinates.

Every region is saved whole under its name, so a checkpoint knows nothing of strategies and ranks. Each rank writes one
file; a region goes to a rank that holds all of it anyway, or else is gathered first, one at a time. A checkpoint
appears under its name only when it is complete and on the disk; what is not whole when read is refused (`manifest`).
All ranks call these functions together, and all of them raise what one of them finds.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from taskflow.checkpoint.manifest import (
    NAME,
    Entry,
    Manifest,
    check_all,
    check_files,
    check_region,
    checkpoints,
    is_checkpoint,
    map_region,
    read_manifest,
    step_folder,
)
from taskflow.checkpoint.tensorfile import TensorWriter
from taskflow.execute import Executor


def latest(folder: str | Path) -> Path | None:
    """The newest checkpoint in `folder`, None where there is none."""
    return next(reversed(checkpoints(folder).values()), None)


# -- saving ------------------------------------------------------------------------------------------------------------


def save(executor: Executor, folder: str | Path, keep: int | None = None, notes: dict[str, Any] | None = None) -> Path:
    """Write the checkpoint `folder/step-<steps>`; all ranks call it between two steps.

    Args:
        executor: whose persistent regions, step and seed are saved.
        folder: where the checkpoints of this run are; made if need be, shared by all ranks.
        keep: how many checkpoints to leave there; None: all.
        notes: JSON values to keep with it; `load` gives them back.

    Raises:
        ValueError: the folder already holds this step or a later one.
        OSError: a rank could not write its file.
    """
    if keep is not None and keep < 1:
        raise ValueError(f"save: keep is at least 1, not {keep}")
    folder, transport = Path(folder), executor.transport
    target = step_folder(folder, executor.steps)
    draft = folder / f".{target.name}.partial"
    transport.on_rank_0(lambda: _prepare(folder, draft, executor.steps))
    file, entries = _write(executor, draft / f"rank-{transport.rank:04d}.safetensors")
    parts = transport.gather((file.path.name, file.layout.size_bytes, entries, file.error))
    for *_, error in parts:
        if error is not None:
            raise error
    files = {name: size for name, size, entries, _ in parts if entries}
    regions = {name: entry for _, _, entries, _ in parts for name, entry in entries.items()}
    manifest = Manifest(executor.steps, executor.seed, notes or {}, files, regions)
    transport.on_rank_0(lambda: _publish(draft, target, manifest, keep))
    return target


def _prepare(folder: Path, draft: Path, steps: int) -> None:
    newest = next(reversed(checkpoints(folder)), -1)
    if newest >= steps:
        raise ValueError(f"save: '{folder}' already holds step {newest}, this is step {steps}; give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".step-*.partial"):  # of a run that was killed
        shutil.rmtree(left)
    draft.mkdir()


def _write(executor: Executor, path: Path) -> tuple[TensorWriter, dict[str, Entry]]:
    """Write this rank's regions; ranks gather what none of them holds whole."""
    rank, owners = executor.transport.rank, _owners(executor)
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
    for name in sorted(executor.persistent, key=lambda n: (-executor.regions.region(n).size_bytes, n)):
        owners[name] = min(executor.regions.whole_on(name) or range(len(load)), key=lambda r: (load[r], r))
        load[owners[name]] += executor.regions.region(name).size_bytes
    return owners


def _publish(draft: Path, target: Path, manifest: Manifest, keep: int | None) -> None:
    """Give the finished draft its name; only then do older checkpoints go."""
    with (draft / NAME).open("x", encoding="utf-8") as stream:
        stream.write(manifest.render())
        stream.flush()
        os.fsync(stream.fileno())
    _sync_folder(draft)
    draft.rename(target)
    _sync_folder(target.parent)
    _sync_folder(target.parent.parent)
    for old in list(checkpoints(target.parent).values())[: -keep if keep else 0]:
        shutil.rmtree(old.rename(old.with_name(f".{old.name}.partial")))  # a kill leaves no half of a checkpoint


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- loading -----------------------------------------------------------------------------------------------------------


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
    transport, folder = executor.transport, Path(folder)
    path, manifest = transport.on_rank_0(lambda: _open(folder))
    _match(executor, path, manifest, ignore_extra)
    error = None
    try:
        for name in list(manifest.regions)[transport.rank :: transport.size]:
            check_region(path, manifest, name)
    except (OSError, ValueError) as problem:
        error = problem
    for found in transport.gather(error):
        if found is not None:
            raise ValueError(f"{found}{transport.on_rank_0(lambda: _advise(path))}") from found
    for name in executor.persistent:
        executor.write(name, map_region(path, manifest, name))
    executor.continue_from(manifest.steps, manifest.seed)
    return manifest


def _open(folder: Path) -> tuple[Path, Manifest]:
    path = folder if is_checkpoint(folder) else latest(folder)
    if path is None:
        raise ValueError(f"load: there is no checkpoint in '{folder}'")
    try:
        manifest = read_manifest(path)
        check_files(path, manifest)
    except ValueError as error:
        raise ValueError(f"{error}{_advise(path)}") from error
    return path, manifest


def _advise(damaged: Path) -> str:
    """What to do about a damaged checkpoint: nothing is done silently."""
    for path in reversed(checkpoints(damaged.parent).values()):
        if path.name < damaged.name:
            with suppress(ValueError, OSError):
                check_all(path)
                return f"; '{path}' is sound: remove '{damaged}' to go on from there"
    return ""


def _match(executor: Executor, path: Path, manifest: Manifest, ignore_extra: bool) -> None:
    where = f"checkpoint '{path}': is of another graph"
    missing = [n for n in executor.persistent if n not in manifest.regions]
    extra = [n for n in manifest.regions if n not in set(executor.persistent)]
    if missing:
        raise ValueError(f"{where}: it has no region {_names(missing)}")
    if extra and not ignore_extra:
        raise ValueError(f"{where}: the graph has no region {_names(extra)}")
    for name in executor.persistent:
        region, entry = executor.regions.region(name), manifest.regions[name]
        if (region.shape, region.dtype) != (entry.shape, entry.dtype):
            raise ValueError(
                f"{where}: region '{name}' is {entry.shape} {entry.dtype} there, {region.shape} {region.dtype} here"
            )


def _names(names: list[str]) -> str:
    return ", ".join(f"'{n}'" for n in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
