"""Memory of hosts: where a plan keeps what devices need later, and the ways of devices there and back.

A host's memory is a place of the topology that links lead to, as a switch is. Nothing computes there, and strategies
never name it: what a device keeps in it is the device's own, and crosses the links between both.

    device 0 ─ link ─► pcie ─ link ─► host       AWAY: four devices share the second link
    device 0 ◄─ link ─ pcie ◄─ link ─ host       BACK
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.numbers import whole
from taskflow.machine.device import Device, Link
from taskflow.machine.routes import first_links, link_lengths, number_places

AWAY = 0
BACK = 1


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The memory of a host, of which its devices have a share each, as they need.

    Attributes:
        host: its number.
        place: where the links end that lead there; devices do not reach each other by way of it.
        memory_bytes: what instances of all its devices together may take of it.

    Raises:
        ValueError: a number is none.
    """

    host: int
    place: str
    memory_bytes: int

    def __post_init__(self) -> None:
        whole("host memory", "host", self.host, 0)
        whole(f"memory of host {self.host}", "memory_bytes", self.memory_bytes)


class HostWays(NamedTuple):
    """Ways of devices to the memory of their host, in row AWAY, and from there, in row BACK.

    Attributes:
        links: (2, devices, n) numbers of links, -1 behind the last.
        latency, bandwidth: (2, devices) seconds, those of the links added up; bytes/s of the narrowest.
    """

    links: Array
    latency: Array
    bandwidth: Array


def find_host_ways(
    devices: Sequence[Device], links: Sequence[Link], memories: Sequence[HostMemory]
) -> HostWays:
    """The ways of fewest links; of those, the ones that pass a megabyte soonest.

    Raises:
        ValueError: a device has no way to the memory of its host, or none from there.
    """
    ends, places = number_places(len(devices), links)
    target = _targets(devices, memories, places)
    both = _stacked(
        [_walk(way, target, link_lengths(links), len(places)) for way in (ends, ends[:, ::-1])]
    )
    latency = np.array([*(link.latency_seconds for link in links), 0.0])
    rate = np.array([*(link.rate for link in links), np.inf])
    return HostWays(both, latency[both].sum(axis=-1), rate[both].min(axis=-1))


def _targets(
    devices: Sequence[Device], memories: Sequence[HostMemory], places: Mapping[int | str, int]
) -> Array:
    """(devices,) the place of the memory of the host, -1 where there is none."""
    place_of = {memory.host: places.get(memory.place, -1) for memory in memories}
    return np.array([place_of.get(device.host, -1) for device in devices])


def _stacked(ways: Sequence[Array]) -> Array:
    longest = max(way.shape[1] for way in ways)
    stacked = np.full((len(ways), len(ways[0]), longest), -1, np.int32)
    for links, way in zip(stacked, ways, strict=True):
        links[:, : way.shape[1]] = way
    return stacked


def _walk(ends: Array, target: Array, length: Array, places: int) -> Array:
    """(devices, n) links from every device to its target, -1 behind the last."""
    at = np.arange(len(target))
    goals, goal = np.unique(target, return_inverse=True)
    is_lost = target < 0
    first = first_links(np.maximum(goals, 0), ends, length, places)
    hops = []
    while not is_lost.any() and (is_going := at != target).any():
        taken = np.where(is_going, first[at, goal.reshape(-1)], -1)
        is_lost = is_going & (taken < 0)
        hops.append(taken)
        at = np.where(is_going, ends[taken, 1], at)
    if is_lost.any():
        device = int(np.argmax(is_lost))
        raise ValueError(f"no links join device {device} and the memory of its host both ways")
    return np.stack(hops, axis=1)
