"""Protocols: what the calls of a library (NCCL) take that nobody measured, by its own published model of itself.

A library says for each of its algorithms and protocols what a call takes at all, what a hop takes by the class of its
link, and which share of the links it reaches. It carries out a collective by the one that is fastest by these figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from msgspec import Struct, defstruct, structs

from taskflow.core.files import fit, parse_toml, read_text
from taskflow.core.numbers import real
from taskflow.machine.device import LINK_KINDS, check_positive
from taskflow.machine.library import COLLECTIVES

ALGORITHMS = "ring", "tree", "nvls", "nvls-tree"
NAMES = "LL", "LL128", "Simple"
OWN = "own"
NCCL = "nccl"
LIBRARIES = OWN, NCCL
UNDER = "under"
BEHIND = "behind"  # compute, whatever it is that collectives travel
HOST_COUNTS = 3  # one, two, more: bandwidths differ
_LONGEST_SECONDS = 1.0
_MOST_SIZES = 64
PUBLISHED = Path(__file__).with_name("nccl.toml")


@dataclass(frozen=True)
class Protocol:
    """One way in which a library carries out collectives.

    Attributes:
        algorithm, protocol: of `ALGORITHMS`, of `NAMES`.
        collectives: that it serves; none: it is not allowed.
        seconds: of every call.
        hop_seconds: class of link -> of one hop; it cannot go over classes that are not named.
        share: of what the links carry, on one, two and more hosts.
        most: bytes/s that it reaches at most, likewise; (): no limit.
        by_size: times so much of that for sums of 64 bytes, 128, ...; 1 for larger ones.
        chunk_bytes: a sum passes in pieces of so much at most, and so many at once; 0: its stages overlap wholly.
        channels: at once for every member.
        hop_factor: a hop takes so many times longer than `hop_seconds`, by which the library chooses.
    """

    algorithm: str
    protocol: str
    collectives: tuple[str, ...]
    seconds: float
    hop_seconds: Mapping[str, float] = field(hash=False)
    share: tuple[float, ...]
    most: tuple[float, ...] = ()
    by_size: tuple[float, ...] = ()
    chunk_bytes: int = 0
    channels: int = 1
    hop_factor: float = 1.0

    def __post_init__(self) -> None:
        where = f"protocol: {self.algorithm} {self.protocol}"
        for name, value, able in (
            ("algorithm", self.algorithm, ALGORITHMS),
            ("protocol", self.protocol, NAMES),
            *(("a collective", collective, COLLECTIVES) for collective in self.collectives),
            *(("a class of link", link, LINK_KINDS) for link in self.hop_seconds),
        ):
            if value not in able:
                raise ValueError(f"{where}: {name} is one of {', '.join(able)}, not '{value}'")
        for seconds in (self.seconds, *self.hop_seconds.values()):
            real(where, "a time", seconds, 0.0, _LONGEST_SECONDS)
        if len(self.share) != HOST_COUNTS or len(self.most) not in (0, HOST_COUNTS):
            raise ValueError(f"{where}: share and most are of one, two and more hosts")
        for share in (*self.share, *self.by_size):
            real(where, "a share", share, 0.0, 1.0, above=True)
        for rate in self.most:
            check_positive(where, "most", rate)
        if len(self.by_size) > _MOST_SIZES:
            raise ValueError(f"{where}: by_size has at most {_MOST_SIZES} entries")
        real(where, "chunk_bytes", self.chunk_bytes, 0)
        real(where, "channels", self.channels, 1)
        check_positive(where, "hop_factor", self.hop_factor)


_DEFAULTS = {f.name: f.default for f in fields(Protocol) if f.default is not MISSING}
_KINDS = get_type_hints(Protocol)
ProtocolTable = defstruct(
    "ProtocolTable",
    [
        *((name, kind) for name, kind in _KINDS.items() if name not in _DEFAULTS),
        *((name, _KINDS[name], default) for name, default in _DEFAULTS.items()),
    ],
    forbid_unknown_fields=True,
)


class LibraryFile(Struct, forbid_unknown_fields=True):
    """The file of published figures.

    Attributes:
        call_seconds: that a call takes besides.
        hop_factor: that of protocols which are not `Simple`.
        protocol: entries.
    """

    call_seconds: float
    hop_factor: float
    protocol: list[dict[str, Any]]


@cache
def published() -> LibraryFile:
    """What NCCL says of itself."""
    return fit(parse_toml(read_text(PUBLISHED)), LibraryFile)


def read_protocols(entries: Sequence[Mapping[str, Any]] = ()) -> tuple[Protocol, ...]:
    """The published protocols, but for the fields that entries of a machine file give anew.

    Raises:
        ValueError: what is wrong in which entry.
    """
    fields_of = {_key(entry): _with_factor(entry) for entry in published().protocol}
    for k, entry in enumerate(entries):
        merged = fields_of.get(_key(entry), {}) | dict(entry)
        fields_of[_key(entry)] = merged
        _protocol(merged, f"protocol entry {k}")
    return tuple(_protocol(entry) for entry in fields_of.values())


def check_library(where: str, name: object, overlap: object) -> None:
    """Refuse what moves no collectives, and an overlap that nobody could run."""
    for what, value, able in (
        ("collectives_by", name, LIBRARIES),
        ("overlap", overlap, (UNDER, BEHIND)),
    ):
        if value not in able:
            raise ValueError(f"{where}: {what} is one of {', '.join(able)}, not {value!r}")
    if overlap == BEHIND and name == OWN:
        rule = f"steps go beside compute; overlap '{BEHIND}' is for collectives_by '{NCCL}'"
        raise ValueError(f"{where}: {rule}")


def _with_factor(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of the published ones: by LL and LL128 one hop waits for the other."""
    waits = entry["protocol"] != "Simple"
    return {"hop_factor": published().hop_factor if waits else 1.0, **entry}


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return str(entry.get("algorithm")), str(entry.get("protocol"))


def _protocol(entry: Mapping[str, Any], where: str = "") -> Protocol:
    return Protocol(**structs.asdict(fit(entry, ProtocolTable, where)))
