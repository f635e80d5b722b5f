"""Machines: devices with rates and memory, links with bandwidth and latency, and routes between devices.

A `MachineModel` is what strategies are judged on; it need not be the machine at hand. Rates are in flop/s and bytes/s,
times in seconds, sizes in bytes.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx


@dataclass(frozen=True, slots=True)
class Device:
    """A place that holds instances and runs tasks.

    Attributes:
        kind: `cpu`, `cuda` or `emulated`.
        host: number of the machine that it sits in; devices of one host may share memory.
        memory_bytes: what instances may take.
        flops_per_second: reached by a large matrix product in float32 (float64: half of it).
        memory_bandwidth: bytes/s read or written by one kernel.
        overhead_seconds: fixed cost of one task.
    """

    kind: str = "cpu"
    host: int = 0
    memory_bytes: int = 8 << 30
    flops_per_second: float = 5e10
    memory_bandwidth: float = 1e10
    overhead_seconds: float = 2e-6

    def __post_init__(self) -> None:
        if self.kind not in ("cpu", "cuda", "emulated"):
            raise ValueError(f"device: kind is cpu, cuda or emulated, not '{self.kind}'")
        for name in ("memory_bytes", "flops_per_second", "memory_bandwidth"):
            if getattr(self, name) <= 0:
                raise ValueError(f"device: {name} is positive, not {getattr(self, name)}")
        if self.overhead_seconds < 0:
            raise ValueError(f"device: overhead_seconds is not negative, not {self.overhead_seconds}")


@dataclass(frozen=True, slots=True)
class Link:
    """A directed connection that transfers occupy one after the other.

    Attributes:
        ends: the two places it joins: device numbers, or names of switches.
        bandwidth: bytes/s.
        latency_seconds: of one transfer.
    """

    ends: tuple[int | str, int | str]
    bandwidth: float
    latency_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.bandwidth <= 0 or self.latency_seconds < 0:
            raise ValueError(
                f"link {self.ends}: bandwidth is positive and latency not negative, "
                f"not {self.bandwidth} and {self.latency_seconds}"
            )


@dataclass(frozen=True)
class MachineModel:
    """Devices and directed links; a transfer takes the route of fewest links, ties by lowest latency."""

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    name: str = "machine"

    def __post_init__(self) -> None:
        count = len(self.devices)
        if not count:
            raise ValueError(f"machine '{self.name}': has no device")
        for link in self.links:
            for end in link.ends:
                if isinstance(end, int) and not 0 <= end < count:
                    raise ValueError(f"machine '{self.name}': link {link.ends} ends at device {end} of {count}")

    @staticmethod
    def uniform(
        devices: int,
        device: Device | None = None,
        bandwidth: float = 5e9,
        latency_seconds: float = 2e-6,
        name: str = "uniform",
    ) -> MachineModel:
        """`devices` equal devices with a link of their own between every ordered pair."""
        if devices < 1:
            raise ValueError(f"machine '{name}': has at least one device, not {devices}")
        links = tuple(
            Link((a, b), bandwidth, latency_seconds) for a in range(devices) for b in range(devices) if a != b
        )
        return MachineModel((device or Device(),) * devices, links, name)

    @staticmethod
    def local(devices: int | None = None) -> MachineModel:
        """The machine at hand: one CPU device for each rank under mpirun, or `devices` of them.

        Rates are cautious defaults; `taskflow.measure_machine` replaces them by measured ones.
        """
        count = devices or int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE") or 1)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // count
        return MachineModel.uniform(count, Device(memory_bytes=memory), name="local")

    @staticmethod
    def load(path: str | Path) -> MachineModel:
        """Read a TOML machine file; ValueError names the file and what is wrong in it."""
        try:
            table = tomllib.loads(Path(path).read_text())
            return _from_table(table)
        except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"machine file '{path}': {error}") from error

    def with_rates(self, **rates: Any) -> MachineModel:
        """The same machine with the given fields of every device replaced; `bandwidth`, `latency_seconds`: links."""
        of_links = {k: rates.pop(k) for k in ("bandwidth", "latency_seconds") if k in rates}
        return replace(
            self,
            devices=tuple(replace(d, **rates) for d in self.devices),
            links=tuple(replace(link, **of_links) for link in self.links),
        )

    @cached_property
    def graph(self) -> nx.DiGraph:
        """The topology: nodes are device numbers and switch names, edges carry the number of their link."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.devices)))
        for k, link in enumerate(self.links):
            graph.add_edge(*link.ends, link=k, hop=1.0 + link.latency_seconds)
        return graph

    @cached_property
    def routes(self) -> Mapping[tuple[int, int], tuple[int, ...]]:
        """(source, target) -> numbers of the links on the way.

        Raises:
            ValueError: two devices have no route.
        """
        count = len(self.devices)
        found: dict[tuple[int, int], tuple[int, ...]] = {}
        for a in range(count):
            paths = nx.single_source_dijkstra_path(self.graph, a, weight="hop")
            for b in range(count):
                if b not in paths:
                    raise ValueError(f"machine '{self.name}': no route from device {a} to device {b}")
                nodes = paths[b]
                found[a, b] = tuple(self.graph.edges[u, v]["link"] for u, v in pairwise(nodes))
        return found

    def transfer_seconds(self, source: int, target: int, size_bytes: float) -> float:
        """Time of one transfer on an idle machine: the latencies on the way plus the narrowest link's time."""
        links = [self.links[k] for k in self.routes[source, target]]
        if not links:
            return size_bytes / self.devices[source].memory_bandwidth
        return sum(link.latency_seconds for link in links) + size_bytes / min(link.bandwidth for link in links)


def _from_table(table: Mapping[str, Any]) -> MachineModel:
    """Tables `[[device]]` (with `count`) and `[[link]]` (with `ends`, both directions unless `directed`)."""
    devices: list[Device] = []
    for entry in table["device"]:
        fields = dict(entry)
        count = int(fields.pop("count", 1))
        devices += [Device(**fields)] * count
    links: list[Link] = []
    for entry in table.get("link", []):
        a, b = _ends(entry["ends"])
        rest = {k: v for k, v in entry.items() if k not in ("ends", "directed")}
        links.append(Link((a, b), **rest))
        if not entry.get("directed", False):
            links.append(Link((b, a), **rest))
    return MachineModel(tuple(devices), tuple(links), str(table.get("name", "machine")))


def _ends(value: Sequence[Any]) -> tuple[int | str, int | str]:
    if len(value) != 2:
        raise ValueError(f"link: has two ends, not {value}")
    return value[0], value[1]
