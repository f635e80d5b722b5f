"""Machine files: TOML <-> devices and links.

```toml
name = "two GPUs a host"
direct_devices = 4         # so many exchange by copies to one another, more in collectives
hosts = 4                  # the rest describes one host of four alike; device numbers count within a host
shared = ["network"]       # places that all hosts have in common; other names are places of each host, `pcie@3`

[[device]]
count = 2                  # this many alike; all other keys are the fields of `Device`
kind = "cuda"
rates = { float64 = 5.3e12 }

[[link]]                   # both directions, unless `directed = true`
ends = [[0, 1], "pcie"]    # a link for every device of the list
bandwidth = 16e9
latency_seconds = 1e-6
```
Without `hosts` every name is a place of the whole machine and `host` is a field of the devices like the others.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from taskflow.machine.device import Device, Link

Place = int | str
DIRECT_DEVICES = 4  # by default

PRESETS = Path(__file__).with_name("presets")


def read_machine(text: str, hosts: int | None = None) -> tuple[str, tuple[Device, ...], tuple[Link, ...], int]:
    """Name, devices, links and `direct_devices` of a machine file; `hosts` overrides the number that it gives.

    Raises:
        ValueError: what is wrong in which entry.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is not TOML: {error}") from error
    _check_keys("the file", table, ("name", "direct_devices", "hosts", "shared", "device", "link"), ("device",))
    has_hosts = "hosts" in table
    count = hosts or table.get("hosts", 1)
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"hosts is a positive number, not {count!r}")
    template = [d for k, entry in enumerate(_entries(table, "device")) for d in _devices(k, entry, has_hosts)]
    pairs = [pair for k, entry in enumerate(_entries(table, "link")) for pair in _links(k, entry, len(template))]
    devices = tuple(Device(**entry | ({"host": h} if has_hosts else {})) for h in range(count) for entry in template)
    shared = table.get("shared", [])
    links = tuple(
        Link((_place(a, h, len(template), shared, has_hosts), _place(b, h, len(template), shared, has_hosts)), **rates)
        for h in range(count)
        for a, b, rates in pairs
    )
    return str(table.get("name", "machine")), devices, links, table.get("direct_devices", DIRECT_DEVICES)


def write_machine(name: str, devices: Sequence[Device], links: Sequence[Link], direct_devices: int) -> str:
    """The text of a machine file that reads back equal."""
    lines = [f"name = {json.dumps(name)}", f"direct_devices = {direct_devices}"]
    for device, group in groupby(devices):
        lines += ["", "[[device]]", f"count = {len(list(group))}"]
        lines += [f"{f.name} = {_value(getattr(device, f.name))}" for f in fields(Device)]
    for link, is_both in _paired(links):
        lines += ["", "[[link]]", f"ends = {_value(link.ends)}"]
        lines += [f"{n} = {_value(getattr(link, n))}" for n in ("bandwidth", "latency_seconds")]
        lines += [] if is_both else ["directed = true"]
    return "\n".join(lines) + "\n"


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
    return (PRESETS / f"{name}.toml").read_text()


def move_place(place: Place, devices: int, hosts: int) -> Place:
    """A place behind `devices` devices and `hosts` hosts of other machines; places without a host stay."""
    if isinstance(place, int):
        return place + devices
    name, at, host = place.rpartition("@")
    return f"{name}@{int(host) + hosts}" if at and host.isdecimal() else place


def _place(place: Place, host: int, devices: int, shared: Sequence[str], has_hosts: bool) -> Place:
    if isinstance(place, int):
        return place + host * devices
    return f"{place}@{host}" if has_hosts and place not in shared else place


def _entries(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"'{key}' is written as [[{key}]] tables")
    return found


def _devices(number: int, entry: Mapping[str, Any], has_hosts: bool) -> list[dict[str, Any]]:
    """The fields of the devices of one entry."""
    known = [f.name for f in fields(Device) if not (has_hosts and f.name == "host")]
    _check_keys(f"device entry {number}", entry, ("count", *known), ())
    rest = dict(entry)
    count = rest.pop("count", 1)
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"device entry {number}: count is a positive number, not {count!r}")
    return [rest] * count


def _links(number: int, entry: Mapping[str, Any], devices: int) -> Iterator[tuple[Place, Place, dict[str, Any]]]:
    """Ends and rates of the links of one entry."""
    where = f"link entry {number}"
    known = [f.name for f in fields(Link)]
    _check_keys(where, entry, (*known, "directed"), [f.name for f in fields(Link) if f.default is MISSING])
    rates = {k: v for k, v in entry.items() if k not in ("ends", "directed")}
    ends = entry["ends"]
    if not isinstance(ends, list) or len(ends) != 2:
        raise ValueError(f"{where}: ends are two places, not {ends!r}")
    first, second = ([*e] if isinstance(e, list) else [e] for e in ends)
    for place in (*first, *second):
        if not isinstance(place, int | str) or isinstance(place, bool):
            raise ValueError(f"{where}: an end is the number of a device or the name of a switch, not {place!r}")
        if isinstance(place, int) and not 0 <= place < devices:
            raise ValueError(f"{where}: ends at device {place} of {devices}")
    for a in first:
        for b in second:
            yield a, b, rates
            if not entry.get("directed", False):
                yield b, a, rates


def _check_keys(where: str, entry: Mapping[str, Any], known: Sequence[str], required: Sequence[str]) -> None:
    for key in entry:
        if key not in known:
            raise ValueError(f"{where}: there is no key '{key}'; the keys are {', '.join(known)}")
    for key in required:
        if key not in entry:
            raise ValueError(f"{where}: '{key}' is missing")


def _paired(links: Sequence[Link]) -> Iterator[tuple[Link, bool]]:
    """Every link, and whether it stands for the next one too, its other direction, which is left out."""
    k = 0
    while k < len(links):
        back = Link(links[k].ends[::-1], links[k].bandwidth, links[k].latency_seconds)
        is_both = k + 1 < len(links) and links[k + 1] == back
        yield links[k], is_both
        k += 1 + is_both


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    return json.dumps(value) if isinstance(value, str) else repr(value.item() if hasattr(value, "item") else value)
