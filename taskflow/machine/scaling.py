"""Scaled machines: the same devices and links, faster or slower by factors; what a what-if asks about.

A factor multiplies what its name says: rates (`flops`, `memory_bandwidth`, `network`, `links`), bytes (`memory`) or
seconds (`latency`, `overhead`), so that a factor above 1 makes these two slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from numbers import Real

import numpy as np

from taskflow.core.columns import Array
from taskflow.machine.device import Device
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
    latency, of_class = (
        factors.get("latency", 1.0),
        [factors.get(name, 1.0) for name in ("links", "network")],
    )
    links = tuple(
        replace(
            x,
            bandwidth=x.bandwidth * of_class[is_between],
            latency_seconds=x.latency_seconds * latency,
        )
        for x, is_between in zip(
            machine.links, is_between_hosts(machine).astype(int).tolist(), strict=True
        )
    )
    library = () if factors.keys() & set(OF_LINKS) else machine.library
    return replace(
        machine,
        devices=tuple(_scaled(d, factors) for d in machine.devices),
        links=links,
        library=library,
    )


def scalable(machine: MachineModel) -> list[str]:
    """The scales that the machine has: all but those of links that it lacks."""
    between = is_between_hosts(machine)
    lacking = {"network": not between.any(), "links": between.all(), "latency": not len(between)}
    return [name for name in SCALES if not lacking.get(name)]


def is_between_hosts(machine: MachineModel) -> Array:
    """Whether each link lies on routes from host to host alone."""
    host, is_used = (
        np.array([d.host for d in machine.devices]),
        np.zeros((2, len(machine.links) + 1), bool),
    )
    for is_inside, row in enumerate(is_used):  # the last entry: no link
        row[machine.routes[(host[:, None] == host) == is_inside]] = True
    found: Array = (is_used[0] & ~is_used[1])[:-1]
    return found


def _scaled(device: Device, factors: Mapping[str, float]) -> Device:
    flops, memory = factors.get("flops", 1.0), factors.get("memory", 1.0)
    return replace(
        device,
        flops_per_second=device.flops_per_second * flops,
        rates={dtype: rate * flops for dtype, rate in device.rates.items()},
        memory_bandwidth=device.memory_bandwidth * factors.get("memory_bandwidth", 1.0),
        overhead_seconds=device.overhead_seconds * factors.get("overhead", 1.0),
        memory_bytes=max(round(device.memory_bytes * memory), 1),
    )


def _check(machine: MachineModel, name: str, factor: float) -> None:
    if name not in SCALES:
        raise ValueError(f"scale '{name}': is one of {', '.join(SCALES)}")
    if isinstance(factor, bool) or not isinstance(factor, Real) or not 0 < factor < inf:
        raise ValueError(f"scale '{name}': its factor is a positive number, not {factor!r}")
    if name not in scalable(machine):
        has = f"{len(machine.links)} links and {len(machine.hosts)} hosts"
        raise ValueError(
            f"scale '{name}': multiplies the {SCALES[name]}; machine '{machine.name}' has {has}"
        )
