"""The manifest of a checkpoint: what it holds, and digests by which a cut or an altered bit is found.

A checkpoint is a folder `step-00000012` of safetensors files and `manifest.json`. A folder of checkpoints is what a
training run keeps. All checks of files are here; what fits a graph is the business of `checkpoint`.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from taskflow.checkpoint.tensorfile import FileLayout, digest_of, lay_out, map_tensor
from taskflow.core.columns import Array

FORMAT, VERSION, NAME = "taskflow-checkpoint", 1, "manifest.json"

_STEP = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Entry:
    """A region: the file that holds it whole, its shape, dtype and the digest of its bytes in row-major order."""

    file: str
    shape: tuple[int, ...]
    dtype: str
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds.

    Attributes:
        steps: number of finished steps.
        seed: of random operators.
        notes: what the writer wants back (JSON values).
        files: file name -> bytes.
        regions: the graph's persistent regions.
    """

    steps: int
    seed: int
    notes: dict[str, Any]
    files: dict[str, int]
    regions: dict[str, Entry]

    def render(self) -> str:
        """The text of `manifest.json`."""
        return _render({"format": FORMAT, "version": VERSION, **asdict(self)})

    @cached_property
    def layouts(self) -> dict[str, FileLayout]:
        """File name -> its layout."""
        inside: dict[str, list[tuple[str, tuple[int, ...], str]]] = {name: [] for name in self.files}
        for name, entry in self.regions.items():
            inside[entry.file].append((name, entry.shape, entry.dtype))
        return {file: lay_out(tensors) for file, tensors in inside.items()}


def _render(table: dict[str, Any]) -> str:
    table = {k: v for k, v in table.items() if k != "digest"}
    body = json.dumps(table, indent=1)
    return json.dumps(table | {"digest": digest_of(body.encode())}, indent=1) + "\n"


def step_folder(folder: Path, steps: int) -> Path:
    """The name of a checkpoint."""
    return folder / f"step-{steps:08d}"


def checkpoints(folder: str | Path) -> dict[int, Path]:
    """Step -> checkpoint, oldest first."""
    names = [p for p in Path(folder).glob("step-*") if _STEP.fullmatch(p.name) and p.is_dir()]
    return dict(sorted((int(p.name.removeprefix("step-")), p) for p in names))


def is_checkpoint(folder: Path) -> bool:
    """Whether `folder` is a checkpoint itself, whatever became of its files."""
    return bool(_STEP.fullmatch(folder.name)) or (folder / NAME).exists()


def read_manifest(path: Path) -> Manifest:
    """Read and check the manifest of the checkpoint `path`.

    Raises:
        ValueError: it is missing, cut short, altered, or of another format or version.
    """
    where = f"checkpoint '{path}': {NAME}"
    try:
        text = (path / NAME).read_text(encoding="utf-8")
        table = json.loads(text)
    except FileNotFoundError as error:
        raise ValueError(f"{where}: is missing") from error
    except ValueError as error:
        raise ValueError(f"{where}: is cut short or altered ({error})") from error
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        raise ValueError(f"{where}: its format is not '{FORMAT}'")
    if table.get("version") != VERSION:
        raise ValueError(f"{where}: has version {table.get('version')}, this reads {VERSION}")
    if text != _render(table):
        raise ValueError(f"{where}: is altered: its text does not have the digest {table.get('digest')}")
    regions = {n: Entry(**{**e, "shape": tuple(e["shape"])}) for n, e in table["regions"].items()}
    return Manifest(table["steps"], table["seed"], table["notes"], table["files"], regions)


def check_files(path: Path, manifest: Manifest) -> None:
    """Check that all files of a checkpoint are there, have their sizes and begin with their headers.

    Raises:
        ValueError: with the file and the numbers.
    """
    for name, size in manifest.files.items():
        where, file = f"checkpoint '{path}': file '{name}'", path / name
        if not file.is_file():
            raise ValueError(f"{where}: is missing")
        if (found := file.stat().st_size) != size:
            raise ValueError(f"{where}: has {found} bytes, the manifest says {size}")
        layout = manifest.layouts[name]
        with file.open("rb") as stream:
            if stream.read(len(layout.header)) != layout.header:
                raise ValueError(f"{where}: its header (bytes 0 to {len(layout.header)}) is altered")


def map_region(path: Path, manifest: Manifest, name: str) -> Array:
    """A region of a checkpoint whose files were checked, mapped."""
    entry = manifest.regions[name]
    span = manifest.layouts[entry.file].spans[name]
    return map_tensor(path / entry.file, span, entry.shape, entry.dtype)


def check_region(path: Path, manifest: Manifest, name: str) -> None:
    """Check the content of one region.

    Raises:
        ValueError: with file, region and bytes.
    """
    entry = manifest.regions[name]
    start, end = manifest.layouts[entry.file].spans[name]
    if digest_of(map_region(path, manifest, name)) != entry.digest:
        raise ValueError(
            f"checkpoint '{path}': region '{name}' (file '{entry.file}', bytes {start} to {end}): is altered: "
            f"its bytes do not have the digest {entry.digest}"
        )


def check_all(path: Path) -> Manifest:
    """Check everything in a checkpoint; see the functions that it calls."""
    manifest = read_manifest(path)
    check_files(path, manifest)
    for name in manifest.regions:
        check_region(path, manifest, name)
    return manifest
