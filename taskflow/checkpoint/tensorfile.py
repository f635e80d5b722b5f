"""Safetensors files, laid out by hand.

Header and offsets follow from names, shapes and dtypes alone, so regions are streamed to their offsets one by one and
read back as maps; the library's writer wants all of them in memory. The format: 8 bytes of little-endian header size, a
JSON header padded with spaces, then the data (https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BufferedRandom
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.files import blaming

Tensor = tuple[str, tuple[int, ...], str]  # name, shape, dtype

_BITS = 8, 16, 32, 64
CODES = {"bool": "BOOL", "bfloat16": "BF16"}
CODES |= {
    f"{kind}{bits}": f"{kind[0].upper()}{bits}"
    for kind in ("float", "int", "uint")
    for bits in _BITS
}
del CODES["float8"]  # of which there are several
_NOTES = "__metadata__"
_ITEM_BYTES = {
    name: 1 if name == "bool" else int(code.lstrip("BFIU")) // 8 for name, code in CODES.items()
}


@dataclass(frozen=True)
class FileLayout:
    """The first bytes of a file, where each tensor lies in it (name -> start, end; in file order), and its size."""

    header: bytes
    spans: dict[str, tuple[int, int]]
    size_bytes: int


def lay_out(tensors: Iterable[Tensor]) -> FileLayout:
    """The layout of a file: tensors of large elements first, so that all are aligned, then by name.

    Raises:
        ValueError: the format has no code for a dtype, or keeps a name for itself.
    """
    table: dict[str, Any] = {}
    end = 0
    tensors = list(tensors)
    for name, _, dtype in tensors:
        if dtype not in CODES:
            raise ValueError(f"region '{name}': safetensors has no dtype {dtype}")
        if name == _NOTES:
            raise ValueError(
                f"region '{name}': safetensors keeps notes under this name; give it another one"
            )
    for name, shape, dtype in sorted(tensors, key=lambda t: (-_ITEM_BYTES[t[2]], t[0])):
        start = end
        end = end + prod(shape) * _ITEM_BYTES[dtype]
        table[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    spans = {n: tuple(len(header) + o for o in entry["data_offsets"]) for n, entry in table.items()}
    return FileLayout(header, spans, len(header) + end)


def digest_of(data: bytes | Array) -> str:
    """The BLAKE2b digest (16 bytes) of raw bytes, or of an array's bytes in row-major order."""
    raw = (
        data
        if isinstance(data, bytes)
        else np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    )
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


class TensorWriter:
    """A file while it is written, its tensors in any order.

    A failure is kept in `error`, not raised: a rank whose disk is full still has to take part in gathering regions.
    """

    def __init__(self, path: Path, tensors: Iterable[Tensor]) -> None:
        self.path = path
        self.layout = lay_out(tensors)
        self.error: OSError | None = None
        self.is_finite = True  # all that was put
        self._digests: dict[str, str] = {}
        self._stream: BufferedRandom | None = None
        if self.layout.spans:
            self._try(self._open)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            if self.error is None:
                with blaming(self.path):
                    act()
        except OSError as error:
            self.error = error

    def _open(self) -> None:
        self._stream = self.path.open("x+b")
        if hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(
                self._stream.fileno(), 0, self.layout.size_bytes
            )  # a full disk is found out now
        self._stream.write(self.layout.header)

    def put(self, name: str, tensor: Array) -> str:
        """Write a tensor at its offset; gives its digest."""
        tensor = np.ascontiguousarray(tensor)
        self.is_finite = self.is_finite and (
            tensor.dtype.kind in "biu" or bool(np.isfinite(tensor).all())
        )
        self._try(lambda: self._put(self.layout.spans[name][0], tensor))
        self._digests[name] = digest_of(tensor)
        return self._digests[name]

    def _put(self, start: int, value: Array) -> None:
        assert self._stream is not None
        self._stream.seek(start)
        self._stream.write(value.reshape(-1).view(np.uint8).data)

    def close(self) -> None:
        """Bring the file to the disk and read it back."""
        stream = self._stream
        if stream is not None:
            self._try(lambda: self._finish(stream))
            try:
                stream.close()
            except OSError as error:
                self.error = self.error or error

    def _finish(self, stream: BufferedRandom) -> None:
        stream.flush()
        os.fsync(stream.fileno())
        if hasattr(os, "posix_fadvise"):  # read the disk, not what was just written
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        data: Array = np.asarray(np.memmap(stream, np.uint8, "r"))
        for name, (start, end) in self.layout.spans.items():
            if digest_of(data[start:end]) != self._digests[name]:
                raise OSError(errno.EIO, f"region '{name}' reads back altered")
