"""Files of events as TensorBoard reads them: scalars by name and step.

A file is a sequence of records: length, checksum of that, data, checksum of that; the data are a protobuf `Event`. Both
formats are written here by hand, which takes less than the packages that do so.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from itertools import count
from pathlib import Path

_CASTAGNOLI = 0x82F63B78  # the reversed polynomial of CRC-32C
_MASK = 0xA282EAD8


class EventFile:
    """A file in a folder, to which scalars are appended."""

    def __init__(self, folder: Path, clock: float | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time() if clock is None else clock
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}"
        paths = (folder / f"{name}.{k}.taskflow" for k in count())
        self.path = next(path for path in paths if _is_made(path))
        self._table = _crc_table()
        self._append(_double(1, now) + _bytes(3, b"brain.Event:2"))

    def scalar(self, name: str, value: float, step: int) -> None:
        """One number at a step."""
        told = _bytes(1, name.encode()) + _key(2, 5) + struct.pack("<f", value)
        self._append(
            _double(1, time.time()) + _key(2, 0) + _varint(step) + _bytes(5, _bytes(1, told))
        )

    def _append(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        with open(self.path, "ab") as file:
            file.write(length + self._checksum(length) + data + self._checksum(data))

    def _checksum(self, data: bytes) -> bytes:
        """CRC-32C, turned and shifted as the format asks for."""
        crc = 0xFFFFFFFF
        for byte in data:
            crc = self._table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        crc ^= 0xFFFFFFFF
        return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF)


def _is_made(path: Path) -> bool:
    """Whether there was no such file, which is there now."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_CASTAGNOLI if byte & 1 else 0)
        table.append(byte)
    return table


# -- protobuf ----------------------------------------------------------------------------------------------------------


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _bytes(number: int, value: bytes) -> bytes:
    return _key(number, 2) + _varint(len(value)) + value


def _double(number: int, value: float) -> bytes:
    return _key(number, 1) + struct.pack("<d", value)
