"""The manifest of a checkpoint: what it holds, and digests by which a cut or an altered bit is found.

A checkpoint is a folder `step-00000012` of safetensors files and `manifest.json`. A folder of checkpoints is what a
training run keeps. All checks of files are here; what fits a graph is the business of `files`.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, to_builtins

from taskflow.checkpoint.tensorfile import CODES, FileLayout, digest_of, lay_out
from taskflow.core.columns import Array
from taskflow.core.files import (
    fit,
    fit_each,
    naming,
    open_regular,
    parse_json,
    read_text,
    without_head,
)

FORMAT = "taskflow-checkpoint"
VERSION = 1
NAME = "manifest.json"

_STEP = re.compile(r"step-(\d{8,18})")
_FILE = r"^rank-\d{4,9}\.safetensors$"  # in the folder of the checkpoint, and nowhere else
_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
_Size = Annotated[int, Meta(ge=0, lt=1 << 60)]


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """A region: the file that holds it whole, its shape, dtype and the digest of its bytes in row-major order."""

    file: Annotated[str, Meta(pattern=_FILE)]
    shape: Annotated[tuple[_Size, ...], Meta(max_length=32)]
    dtype: str
    digest: _Digest


class ManifestTable(Struct, forbid_unknown_fields=True):
    """`manifest.json`."""

    digest: _Digest
    steps: Annotated[int, Meta(ge=0, lt=10**18)]
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    notes: dict[str, Any]
    files: dict[Annotated[str, Meta(pattern=_FILE)], Any]
    regions: dict[str, Any]
    is_finite: bool = True
    constants: dict[str, _Digest] = {}
    choices: dict[str, dict[str, float]] = {}


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds.

    Attributes:
        steps: number of finished steps.
        seed: of random operators.
        notes: what the writer wants back (JSON values).
        files: file name -> bytes.
        regions: the graph's persistent regions.
        is_finite: whether all numbers in them are.
        constants: the graph's constants, and digests of their values, which are not held.
        choices: by which kernels were chosen on GPUs (`taskflow.backend.choices`).
    """

    steps: int
    seed: int
    notes: dict[str, Any]
    files: dict[str, int]
    regions: dict[str, Entry]
    is_finite: bool = True
    constants: dict[str, str] = field(default_factory=dict)
    choices: dict[str, dict[str, float]] = field(default_factory=dict)

    def render(self) -> str:
        """The text of `manifest.json`."""
        return render_table({"format": FORMAT, "version": VERSION, **to_builtins(self)})

    @cached_property
    def layouts(self) -> dict[str, FileLayout]:
        """File name -> its layout."""
        inside: dict[str, list[tuple[str, tuple[int, ...], str]]] = {
            name: [] for name in self.files
        }
        for name, entry in self.regions.items():
            inside[entry.file].append((name, entry.shape, entry.dtype))
        return {file: lay_out(tensors) for file, tensors in inside.items()}


def render_table(table: dict[str, Any]) -> str:
    """A table as JSON text, with the digest of its other entries as the last one."""
    table = {k: v for k, v in table.items() if k != "digest"}
    body = json.dumps(table, indent=1)
    return json.dumps(table | {"digest": digest_of(body.encode())}, indent=1) + "\n"


def parse_manifest(text: str) -> Manifest:
    """What a `manifest.json` says; ValueError if it cannot be."""
    head = parse_json(text, is_finite=False)  # a note may be NaN
    body = without_head(head, FORMAT, VERSION)
    if text != render_table(head):
        raise ValueError(f"is altered: its text does not have the digest {body.get('digest')}")
    table = fit(body, ManifestTable)
    files = fit_each(table.files, _Size, "size of file")
    regions = fit_each(table.regions, Entry, "region")
    for name, entry in regions.items():
        if entry.file not in files or entry.dtype not in CODES:
            raise ValueError(
                f"region '{name}': there is no file '{entry.file}' or no dtype '{entry.dtype}'"
            )
    manifest = Manifest(
        table.steps,
        table.seed,
        table.notes,
        files,
        regions,
        table.is_finite,
        table.constants,
        table.choices,
    )
    for file, layout in manifest.layouts.items():
        if layout.size_bytes != files[file]:
            raise ValueError(
                f"file '{file}': its regions take {layout.size_bytes} bytes, not {files[file]}"
            )
    return manifest


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
    with naming(f"checkpoint '{path}': {NAME}"):
        try:
            manifest = parse_manifest(read_text(path / NAME))
        except FileNotFoundError as error:
            raise ValueError("is missing") from error
        if (match := _STEP.fullmatch(path.name)) and int(match[1]) != manifest.steps:
            raise ValueError(f"is that of step {manifest.steps}")
    return manifest


class Reader:
    """A checkpoint whose files are open, so that what is removed meanwhile can be read to its end.

    Raises:
        ValueError: a file is missing, has another size or does not begin with its header (with the numbers).
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._bytes = {name: self._open(name, size) for name, size in manifest.files.items()}

    def _open(self, name: str, size: int) -> Array:
        with naming(f"checkpoint '{self.path}': file '{name}'"):
            try:
                stream = open_regular(self.path / name)
            except FileNotFoundError as error:
                raise ValueError("is missing") from error
            with stream:
                if (actual := os.fstat(stream.fileno()).st_size) != size:
                    raise ValueError(f"has {actual} bytes, the manifest says {size}")
                header = self.manifest.layouts[name].header
                if stream.read(len(header)) != header:
                    raise ValueError(f"its header (bytes 0 to {len(header)}) is altered")
                return np.asarray(
                    np.memmap(stream, np.uint8, "r")
                )  # pages are read when they are touched

    def _span(self, name: str) -> tuple[str, int, int]:
        file = self.manifest.regions[name].file
        return file, *self.manifest.layouts[file].spans[name]

    def region(self, name: str) -> Array:
        """A region, mapped."""
        file, start, end = self._span(name)
        entry = self.manifest.regions[name]
        return self._bytes[file][start:end].view(entry.dtype).reshape(entry.shape)

    def check(self, name: str) -> None:
        """Check the content of one region.

        Raises:
            ValueError: with file, region and bytes.
        """
        (file, start, end) = self._span(name)
        digest = self.manifest.regions[name].digest
        if digest_of(self._bytes[file][start:end]) != digest:
            raise ValueError(
                f"checkpoint '{self.path}': region '{name}' (file '{file}', bytes {start} to {end}): is altered: "
                f"its bytes do not have the digest {digest}"
            )


def check_all(path: Path) -> Manifest:
    """Check everything in a checkpoint; see `read_manifest` and `Reader`."""
    reader = Reader(path, read_manifest(path))
    for name in reader.manifest.regions:
        reader.check(name)
    return reader.manifest
