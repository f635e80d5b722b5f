"""Scaled machines: the same devices and links, faster or slower by factors; what a what-if asks about.

A factor multiplies what its name says: rates (`flops`, `memory_bandwidth`, `network`, `links`), bytes (`memory`) or
seconds (`latency`, `overhead`), so that a factor above 1 makes these two slower. A name with a colon is of one of
them: `device:3` multiplies the seconds of all that device 3 does, `link:0-switch` the bandwidth of the link between
these two places, both ways: 0.7 is what others leave of it who load it by 30 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, prod
from numbers import Real

import numpy as np

from taskflow.core.columns import Array
from taskflow.machine.device import Device, Link, slowed
from taskflow.machine.model import MachineModel

SCALES = {  # name -> what is multiplied
    "network": "bandwidth of links between hosts",
    "links": "bandwidth of links within hosts",
    "latency": "latency of all links",
    "flops": "flop/s of every dtype",
    "memory_bandwidth": "bytes/s of the devices' memory",
    "overhead": "seconds to launch a task",
    "memory": "bytes of the devices' memory",
}
OF_LINKS = "network", "links", "latency"
DEVICE = "device"
LINK = "link"  # what a name with a colon is of


def scale_machine(machine: MachineModel, factors: Mapping[str, float]) -> MachineModel:
    """The machine with what `factors` name multiplied, see `SCALES`; factors of 1 change nothing.

    A library's collectives were measured on the links as they are: where links change, they are left out.

    Raises:
        ValueError: there is no such scale, a factor is no positive number, or the machine has no such link.
    """
    for name, factor in factors.items():
        _check(machine, name, factor)
    factors = {name: float(factor) for name, factor in factors.items() if factor != 1}
    if not factors:
        return machine
    links = _scaled_links(machine, factors)
    library = () if any(map(is_of_links, factors)) else machine.library
    devices = tuple(
        slowed(_scaled(d, factors), factors.get(f"{DEVICE}:{k}", 1.0))
        for k, d in enumerate(machine.devices)
    )
    return replace(machine, devices=devices, links=links, library=library)


def is_of_links(name: str) -> bool:
    """Whether a scale multiplies what links do."""
    return name in OF_LINKS or name.startswith(f"{LINK}:")


def _scaled_links(machine: MachineModel, factors: Mapping[str, float]) -> tuple[Link, ...]:
    latency = factors.get("latency", 1.0)
    of_class = [factors.get(name, 1.0) for name in ("links", "network")]
    return tuple(
        replace(
            link,
            bandwidth=link.bandwidth
            * of_class[is_between]
            * prod(factors.get(name, 1.0) for name in _names(link)),
            latency_seconds=link.latency_seconds * latency,
        )
        for link, is_between in zip(
            machine.links, is_between_hosts(machine).astype(int).tolist(), strict=True
        )
    )


def _names(link: Link) -> tuple[str, str]:
    """What its scale may be called: the ends in either order."""
    first, second = link.ends
    return f"{LINK}:{first}-{second}", f"{LINK}:{second}-{first}"


def scalable(machine: MachineModel) -> list[str]:
    """The scales that the machine has: all but those of links that it lacks."""
    between = is_between_hosts(machine)
    lacking = {"network": not between.any(), "links": between.all(), "latency": not len(between)}
    return [name for name in SCALES if not lacking.get(name)]


def is_between_hosts(machine: MachineModel) -> Array:
    """Whether each link lies on routes from host to host alone."""
    host = np.array([d.host for d in machine.devices])
    is_used = np.zeros((2, len(machine.links) + 1), bool)
    for is_inside, row in enumerate(is_used):  # the last entry: no link
        row[machine.routes[(host[:, None] == host) == is_inside]] = True
    is_between: Array = (is_used[0] & ~is_used[1])[:-1]
    return is_between


def _scaled(device: Device, factors: Mapping[str, float]) -> Device:
    flops = factors.get("flops", 1.0)
    memory = factors.get("memory", 1.0)
    return replace(
        device,
        flops_per_second=device.flops_per_second * flops,
        rates={dtype: rate * flops for dtype, rate in device.rates.items()},
        memory_bandwidth=device.memory_bandwidth * factors.get("memory_bandwidth", 1.0),
        overhead_seconds=device.overhead_seconds * factors.get("overhead", 1.0),
        memory_bytes=max(round(device.memory_bytes * memory), 1),
    )


def _is_one(machine: MachineModel, name: str) -> bool:
    """Whether a name is that of a device or link of the machine."""
    kind, _, what = name.partition(":")
    if kind == DEVICE:
        return what in map(str, range(len(machine.devices)))
    return kind == LINK and any(name in _names(link) for link in machine.links)


def _check(machine: MachineModel, name: str, factor: float) -> None:
    if ":" in name and not _is_one(machine, name):
        raise ValueError(f"scale '{name}': machine '{machine.name}' has no such device or link")
    if ":" not in name and name not in SCALES:
        scales = ", ".join(SCALES)
        raise ValueError(f"scale '{name}': is one of {scales}, device:NUMBER or link:END-END")
    if isinstance(factor, bool) or not isinstance(factor, Real) or not 0 < factor < inf:
        raise ValueError(f"scale '{name}': its factor is a positive number, not {factor!r}")
    if name in SCALES and name not in scalable(machine):
        has = f"{len(machine.links)} links and {len(machine.hosts)} hosts"
        raise ValueError(
            f"scale '{name}': multiplies the {SCALES[name]}; machine '{machine.name}' has {has}"
        )
