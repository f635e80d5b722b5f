"""Safetensors files, laid out by hand.

Header and offsets follow from names, shapes and dtypes alone, so regions are streamed to their offsets one by one and
read back as maps; the library's writer wants all of them in memory. The format: 8 bytes of little-endian header size, a
JSON header padded with spaces, then the data (https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BufferedWriter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from taskflow.core.columns import Array

Tensor = tuple[str, tuple[int, ...], str]  # name, shape, dtype

_BITS = 8, 16, 32, 64
CODES = {"bool": "BOOL", "bfloat16": "BF16"}
CODES |= {f"{kind}{bits}": f"{kind[0].upper()}{bits}" for kind in ("float", "int", "uint") for bits in _BITS}
del CODES["float8"]  # of which there are several


@dataclass(frozen=True)
class FileLayout:
    """The first bytes of a file, where each tensor lies in it (name -> start, end; in file order), and its size."""

    header: bytes
    spans: dict[str, tuple[int, int]]
    size_bytes: int


def lay_out(tensors: Iterable[Tensor]) -> FileLayout:
    """The layout of a file: tensors of large elements first, so that all are aligned, then by name.

    Raises:
        ValueError: the format has no code for a dtype.
    """
    table: dict[str, Any] = {}
    end = 0
    for name, shape, dtype in sorted(tensors, key=lambda t: (-np.dtype(t[2]).itemsize, t[0])):
        if dtype not in CODES:
            raise ValueError(f"region '{name}': safetensors has no dtype {dtype}")
        start, end = end, end + prod(shape) * np.dtype(dtype).itemsize
        table[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    spans = {n: tuple(len(header) + o for o in entry["data_offsets"]) for n, entry in table.items()}
    return FileLayout(header, spans, len(header) + end)


def digest_of(data: bytes | Array) -> str:
    """The BLAKE2b digest (16 bytes) of raw bytes, or of an array's bytes in row-major order."""
    raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


class TensorWriter:
    """A file while it is written, its tensors in any order.

    A failure is kept in `error`, not raised: a rank whose disk is full still has to take part in gathering regions.
    """

    def __init__(self, path: Path, tensors: Iterable[Tensor]) -> None:
        self.path, self.layout = path, lay_out(tensors)
        self.error: OSError | None = None
        self._stream: BufferedWriter | None = None
        if self.layout.spans:
            self._try(self._open)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            if self.error is None:
                act()
        except OSError as error:
            self.error = error

    def _open(self) -> None:
        self._stream = self.path.open("xb")
        self._stream.write(self.layout.header)

    def put(self, name: str, value: Array) -> str:
        """Write a tensor at its offset; gives its digest."""
        value = np.ascontiguousarray(value)
        self._try(lambda: self._put(self.layout.spans[name][0], value))
        return digest_of(value)

    def _put(self, start: int, value: Array) -> None:
        assert self._stream is not None
        self._stream.seek(start)
        self._stream.write(value.reshape(-1).view(np.uint8).data)

    def close(self) -> None:
        """Bring the file to the disk."""
        stream = self._stream
        if stream is not None:
            self._try(stream.flush)
            self._try(lambda: os.fsync(stream.fileno()))
            try:
                stream.close()
            except OSError as error:
                self.error = self.error or error


def map_tensor(path: Path, span: tuple[int, int], shape: tuple[int, ...], dtype: str) -> Array:
    """The tensor at `span` of a file, mapped: its pages are read when they are touched."""
    if span[0] == span[1]:
        return np.empty(shape, dtype)
    raw = np.memmap(path, np.uint8, "r", span[0], (span[1] - span[0],))
    return np.asarray(raw).view(dtype).reshape(shape)
