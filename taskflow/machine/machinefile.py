"""Machine files: TOML <-> devices and links.

```toml
version = 1                # of this format; may be left out
name = "two GPUs a host"
collectives = { all-reduce = "ring" }  # algorithms; what is not named is chosen by cost
collectives_by = "own"     # what moves collectives: the steps of such algorithms, or the library `nccl`
overlap = "under"          # collectives travel under compute; or `behind` it, see `MachineModel`
jitter = [[0.5, 1.0], [0.99, 1.2]]  # of kernels: [share, factor], see `MachineModel.jitter`
hosts = 4                  # the rest describes one host of four alike; device numbers count within a host
shared = ["network"]       # places that all hosts have in common; other names are places of each host, `pcie@3`

[[device]]
count = 2                  # this many alike; all other keys are the fields of `Device`
kind = "cuda"
rates = { float64 = 5.3e12 }
slowdown = 1.1             # all that it does takes so many times as long; may be left out

[[link]]                   # both directions, unless `directed = true`
ends = [[0, 1], "pcie"]    # a link for every device of the list
bandwidth = 16e9
latency_seconds = 1e-6
kind = "pci"               # or `nvlink`, `network`
efficiency = 0.75          # the share of the bandwidth that large transfers reach
joules_per_byte = 1e-10    # with those of devices: the energy of a step; may be left out
load = 0.3                 # share of the bandwidth that others take all the time; may be left out

[[memory]]                 # of the host, where plans keep what devices need later; see `HostMemory`
place = "host"             # links lead there
memory_bytes = 1_099_511_627_776  # that plans may use

[[protocol]]               # of the library: what is given here instead of the published figures; see `Protocol`
algorithm = "ring"
protocol = "LL"
most = [141e9, 39e9, 20.4e9]

[[library]]                # what a collective of NCCL was measured to take; see `LibraryTimes`
collective = "all-reduce"
hosts = 4
devices = 8                # in all
bytes = [1024, 1048576]
seconds = [2e-5, 3e-4]
```
Without `hosts` every name is a place of the whole machine and `host` is a field of the devices like the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

from msgspec import Meta, Struct, defstruct, structs

from taskflow.core.files import check_version, fit, parse_toml
from taskflow.core.numbers import MIB
from taskflow.machine.device import SLOWED, Device, Link, slowed
from taskflow.machine.hostmemory import HostMemory
from taskflow.machine.library import LibraryTimes
from taskflow.machine.protocol import OWN, UNDER, Protocol, read_protocols

VERSION = 1
LARGEST_BYTES = 16 * MIB
MOST_DEVICES = 1 << 12
MOST_LINKS = 1 << 20  # the routes of 4,096 devices take half a GiB

Place = int | str
Count = Annotated[int, Meta(ge=1, lt=1 << 31)]

PRESETS = Path(__file__).with_name("presets")


class MemoryTable(Struct, forbid_unknown_fields=True):
    """The memory of a host, or of all equal ones."""

    place: str
    memory_bytes: Annotated[int, Meta(ge=1, lt=1 << 60)]
    host: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


class MachineTable(Struct, forbid_unknown_fields=True):
    """A machine file."""

    device: list[dict[str, Any]]
    version: int = VERSION
    name: str = "machine"
    collectives: dict[str, str] = {}
    collectives_by: str = OWN
    overlap: str = UNDER
    hosts: Count | None = None
    shared: list[str] = []
    link: list[dict[str, Any]] = []
    library: list[dict[str, Any]] = []
    protocol: list[dict[str, Any]] = []
    jitter: list[tuple[float, float]] = []
    memory: list[MemoryTable] = []


class LinkTable(Struct, forbid_unknown_fields=True):
    """An entry of links; what its numbers may be says `Link`."""

    ends: tuple[Place | list[Place], Place | list[Place]]
    bandwidth: float
    latency_seconds: float = 0.0
    kind: str = "pci"
    efficiency: float = 1.0
    joules_per_byte: float | None = None
    directed: bool = False
    load: Annotated[float, Meta(ge=0, lt=1)] = 0.0

    @property
    def facts(self) -> dict[str, Any]:
        """Of every link that it stands for, without its ends."""
        facts = {name: getattr(self, name) for name in LINK_FACTS}
        return {**facts, "bandwidth": self.bandwidth * (1 - self.load)}


LINK_FACTS = tuple(f.name for f in fields(Link) if f.name != "ends")
_FIELDS = [(name, kind, None) for name, kind in get_type_hints(Device).items()]
_MORE = [("count", Count, 1), ("slowdown", Annotated[float, Meta(gt=0)], 1.0)]
DeviceTable = defstruct("DeviceTable", [*_MORE, *_FIELDS], forbid_unknown_fields=True)
LibraryTable = defstruct(
    "LibraryTable", [*get_type_hints(LibraryTimes).items()], forbid_unknown_fields=True
)


class MachineParts(NamedTuple):
    """What a machine file says; see `MachineModel`."""

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    name: str
    collectives: dict[str, str]
    library: tuple[LibraryTimes, ...]
    jitter: tuple[tuple[float, float], ...]
    collectives_by: str
    protocols: tuple[Protocol, ...]
    overlap: str
    memories: tuple[HostMemory, ...]


def read_machine(text: str, hosts: int | None = None) -> MachineParts:
    """A machine file; `hosts` overrides the number that it gives.

    Raises:
        ValueError: what is wrong in which entry.
    """
    table = fit(parse_toml(text), MachineTable)
    check_version(table.version, VERSION)
    count = hosts or table.hosts or 1
    if count > 1 and table.hosts is None:
        raise ValueError(f"describes all devices; a file of {count} equal hosts says 'hosts'")
    devices = _all_devices(table, count)
    return MachineParts(
        devices,
        _all_links(table, count, len(devices) // count),
        table.name,
        table.collectives,
        tuple(
            LibraryTimes(**structs.asdict(fit(entry, LibraryTable, f"library entry {k}")))
            for k, entry in enumerate(table.library)
        ),
        tuple(table.jitter),
        table.collectives_by,
        read_protocols(table.protocol) if table.protocol else (),
        table.overlap,
        tuple(
            HostMemory(
                host + memory.host, str(_place(memory.place, host, 0, table)), memory.memory_bytes
            )
            for host in range(count)
            for memory in table.memory
        ),
    )


def _all_devices(table: MachineTable, hosts: int) -> tuple[Device, ...]:
    has_hosts = table.hosts is not None
    of_host: list[dict[str, Any]] = []
    for k, entry in enumerate(table.device):
        of_host += _devices(k, entry, has_hosts)
        _check_count("devices", hosts * len(of_host), MOST_DEVICES)
    return tuple(
        Device(**facts | ({"host": host} if has_hosts else {}))
        for host in range(hosts)
        for facts in of_host
    )


def _all_links(table: MachineTable, hosts: int, devices: int) -> tuple[Link, ...]:
    """Links of equal hosts with so many devices each."""
    place = partial(_place, devices=devices, table=table)
    of_host = _links_of_host(table, hosts, devices)
    return tuple(
        Link((place(a, host), place(b, host)), **facts)
        for host in range(hosts)
        for (a, b), facts in of_host
    )


def _links_of_host(
    table: MachineTable, hosts: int, devices: int
) -> list[tuple[tuple[Place, Place], dict[str, Any]]]:
    links: list[tuple[tuple[Place, Place], dict[str, Any]]] = []
    for k, entry in enumerate(table.link):
        links += _links(k, entry, devices)
        _check_count("links", hosts * len(links), MOST_LINKS)
    places = {end for ends, _ in links for end in ends}
    _check_shared(table.shared, places, 0 if table.hosts is None else hosts)
    return links


def _check_shared(shared: Sequence[str], places: set[Place], hosts: int) -> None:
    """Refuse shared places that are none, or have the name of a place of one of so many equal hosts."""
    for name in shared:
        if name not in places:
            raise ValueError(f"shared: no link ends at '{name}'")
        plain, _, host = name.rpartition("@")
        if plain in places - set(shared) and host in map(str, range(hosts)):
            raise ValueError(
                f"shared: '{name}' is the name of '{plain}' of host {host}; give one of them another"
            )


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise ValueError(f"has {count} {what}, at most {most} are possible")


def write_machine(parts: MachineParts) -> str:
    """The text of a machine file that reads back equal."""
    lines = [f"version = {VERSION}"]
    for key in ("name", "collectives", "collectives_by", "overlap"):
        lines.append(f"{key} = {_value(getattr(parts, key))}")
    if parts.jitter:
        lines.append(f"jitter = {_value(parts.jitter)}")
    for device, group in groupby(parts.devices):
        lines += ["", "[[device]]", f"count = {len(list(group))}", *_fields_of(device)]
    lines += _link_lines(parts.links)
    for entry in (*parts.library, *parts.protocols, *parts.memories):
        lines += ["", f"[[{_HEADS[type(entry)]}]]", *_fields_of(entry)]
    return "\n".join(lines) + "\n"


_HEADS = {LibraryTimes: "library", Protocol: "protocol", HostMemory: "memory"}


def _link_lines(links: Sequence[Link]) -> Iterator[str]:
    for (first, facts, is_both), alike in groupby(_paired(links), key=lambda pair: pair[:3]):
        yield from ("", "[[link]]")
        yield f"ends = {_value((first, tuple(second for *_, second in alike)))}"
        yield from _facts(dict(zip(LINK_FACTS, facts, strict=True)))
        if not is_both:
            yield "directed = true"


def preset_names() -> list[str]:
    """The machines that come with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def preset_text(name: str) -> str:
    """The file of a preset.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in (names := preset_names()):
        raise ValueError(f"machine preset '{name}': there are {', '.join(names)}")
    return (PRESETS / f"{name}.toml").read_text(encoding="utf-8")


def move_place(place: Place, devices: int, hosts: int) -> Place:
    """A place behind `devices` devices and `hosts` hosts of other machines; places without a host stay."""
    if isinstance(place, int):
        return place + devices
    name, at, host = place.rpartition("@")
    return f"{name}@{int(host) + hosts}" if at and host.isdecimal() else place


def _place(place: Place, host: int, devices: int, table: MachineTable) -> Place:
    """A place of one of equal hosts with so many devices each."""
    if isinstance(place, int):
        return place + host * devices
    return place if table.hosts is None or place in table.shared else f"{place}@{host}"


def _devices(number: int, entry: Mapping[str, Any], has_hosts: bool) -> list[dict[str, Any]]:
    """The fields of the devices of one entry."""
    where = f"device entry {number}"
    table: Any = fit(entry, DeviceTable, where)
    if has_hosts and "host" in entry:
        raise ValueError(f"{where}: 'host' is for files without 'hosts'")
    _check_count("devices", table.count, MOST_DEVICES)
    keys = {name: getattr(table, name) for name in entry if name not in ("count", "slowdown")}
    if table.slowdown != 1:
        slow = slowed(Device(**keys), table.slowdown)
        keys |= {name: getattr(slow, name) for name in SLOWED}
    return [keys] * table.count


def _links(
    number: int, entry: Mapping[str, Any], devices: int
) -> Iterator[tuple[tuple[Place, Place], dict[str, Any]]]:
    """Ends of the links of one entry, and the rest of each."""
    table = fit(entry, LinkTable, f"link entry {number}")
    first, second = (end if isinstance(end, list) else [end] for end in table.ends)
    _check_count("links", len(first) * len(second), MOST_LINKS)
    for place in (*first, *second):
        if isinstance(place, int) and not 0 <= place < devices:
            raise ValueError(f"link entry {number}: ends at device {place} of {devices}")
    for ends in product(first, second):
        yield ends, table.facts
        if not table.directed:
            yield ends[::-1], table.facts


def _paired(links: Sequence[Link]) -> Iterator[tuple[Place, tuple[Any, ...], bool, Place]]:
    """Every link: first end, facts, whether it stands for the next one too, its other direction, and second end."""
    k = 0
    while k < len(links):
        link = links[k]
        is_both = k + 1 < len(links) and links[k + 1] == replace(link, ends=link.ends[::-1])
        facts = tuple(getattr(link, name) for name in LINK_FACTS)
        yield link.ends[0], facts, is_both, link.ends[1]
        k += 1 + is_both


def _fields_of(entry: Any) -> list[str]:
    return _facts({field.name: getattr(entry, field.name) for field in fields(entry)})


def _facts(facts: Mapping[str, Any]) -> list[str]:
    """Lines of an entry; what is not known has none."""
    return [f"{name} = {_value(value)}" for name, value in facts.items() if value is not None]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in value.items()) + " }"
            if value
            else "{}"
        )
    if isinstance(value, tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value.item() if hasattr(value, "item") else value)
