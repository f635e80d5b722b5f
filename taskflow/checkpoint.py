"""Checkpoints: an executor's persistent regions on disk, in logical coordinates.

Every region is saved whole under its name, so a checkpoint knows nothing of strategies and ranks. Each rank writes one
file; a region goes to a rank that holds all of it anyway, or else is gathered first, one at a time. A checkpoint
appears under its name only when it is complete and on the disk; what is not whole when read is refused (`manifest`).
All ranks call these functions together, and all of them raise what one of them finds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from taskflow.comm import Transport
from taskflow.execute import Executor
from taskflow.manifest import (
    NAME,
    Entry,
    Manifest,
    check_all,
    check_files,
    check_region,
    checkpoints,
    digest_of,
    map_region,
    read_manifest,
    step_folder,
)
from taskflow.region import LogicalRegion
from taskflow.task import Array
from taskflow.tensorfile import Layout, lay_out

T = TypeVar("T")


def latest(folder: str | Path) -> Path | None:
    """The newest checkpoint in `folder`, None where there is none."""
    return next(reversed(checkpoints(folder).values()), None)


# -- saving ------------------------------------------------------------------------------------------------------------


def save(executor: Executor, folder: str | Path, keep: int | None = None, notes: dict[str, Any] | None = None) -> Path:
    """Write the checkpoint `folder/step-<steps>`.

    Args:
        executor: between two steps; every rank's.
        folder: where the checkpoints of this run are; made if need be.
        keep: how many checkpoints to leave there; None: all.
        notes: JSON values to keep with it; `load` gives them back.

    Raises:
        ValueError: the folder already holds this step or a later one.
        OSError: a rank could not write its file.
    """
    folder, transport = Path(folder), executor.transport
    if keep is not None and keep < 1:
        raise ValueError(f"save: keep is at least 1, not {keep}")
    target = step_folder(folder, executor.steps)
    draft = folder / f".{target.name}.partial"
    _on_rank_0(transport, lambda: _prepare(folder, draft, executor.steps))
    names = _assign(executor)
    file = f"rank-{transport.rank:04d}.safetensors"
    mine = [n for n, owner in names.items() if owner == transport.rank]
    error = None
    try:
        entries, size = _write(executor, draft / file, names, mine)
    except OSError as problem:
        entries, size, error = {}, 0, problem
    written = transport.gather((file, size, entries, error))
    failed = next((e for *_, e in written if e is not None), None)
    if failed is not None:
        raise failed
    manifest = Manifest(
        executor.steps,
        executor.seed,
        notes or {},
        {file: size for file, size, entries, _ in written if entries},
        {name: entry for _, _, entries, _ in written for name, entry in entries.items()},
    )
    _on_rank_0(transport, lambda: _publish(draft, target, manifest, keep))
    return target


def _prepare(folder: Path, draft: Path, steps: int) -> None:
    newest = next(reversed(checkpoints(folder)), -1)
    if newest >= steps:
        raise ValueError(f"save: '{folder}' already holds step {newest}, this is step {steps}; give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".step-*.partial"):  # of a run that was killed
        shutil.rmtree(left)
    draft.mkdir()


def _assign(executor: Executor) -> dict[str, int]:
    """Region -> the rank that writes it, the same on every rank: the least loaded one, of those that hold it whole."""
    ranks = executor.transport.size
    load = [0] * ranks
    owners = {}
    for name in sorted(executor.persistent, key=lambda n: (-executor.region(n).size_bytes, n)):
        whole = [r for r in range(ranks) if ranks == 1 or executor.holder(name, r) is not None]
        owners[name] = min(whole or range(ranks), key=lambda r: (load[r], r))
        load[owners[name]] += executor.region(name).size_bytes
    return owners


def _write(
    executor: Executor, path: Path, owners: dict[str, int], mine: list[str]
) -> tuple[dict[str, Entry], int]:
    """Write this rank's file; all ranks take part in gathering what no rank holds whole, whatever befalls their files."""
    rank, ranks = executor.transport.rank, executor.transport.size
    layout = lay_out(_signature(executor.region(n)) for n in mine)
    entries: dict[str, Entry] = {}
    error: OSError | None = None
    stream = None
    try:
        stream = path.open("xb", buffering=0) if mine else None
    except OSError as problem:
        error = problem
    for name, owner in owners.items():
        held = ranks == 1 or executor.holder(name, owner) is not None
        if held and owner != rank:
            continue
        value = executor.read_held(name) if held else executor.read(name)
    return entries, layout.size_bytes
