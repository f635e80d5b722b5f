"""Machines: devices, the links between them, and routes over the links.

A `MachineModel` is what strategies are judged on; it need not be the machine at hand. It comes from a preset, from a
file (`machinefile` says how one is written), from measurements, or from other machines that are joined.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taskflow.backend import find_gpus
from taskflow.core.columns import Array
from taskflow.core.files import naming, read_text, replace_file
from taskflow.core.numbers import is_whole
from taskflow.core.system import sharing, world_size
from taskflow.machine.device import Device, Link
from taskflow.machine.equal import Equals, find_colours, find_equals, rates_of
from taskflow.machine.find_ways import find_ways
from taskflow.machine.hostmemory import HostMemory, HostWays, find_host_ways
from taskflow.machine.library import LibraryTimes
from taskflow.machine.machinefile import (
    LARGEST_BYTES,
    MachineParts,
    move_place,
    preset_text,
    read_machine,
    write_machine,
)
from taskflow.machine.protocol import BEHIND, NCCL, OWN, UNDER, Protocol, check_library
from taskflow.machine.routes import link_lengths
from taskflow.machine.ways import Ways

if TYPE_CHECKING:
    import networkx as nx  # a fifth of a second that most programs need not wait for

DIRECT_DEVICES = 4
_PCIE = 5e10  # bytes/s of PCIe 5.0 x16, measured 53e9 on an H200's host


def _gpu_device(gpus: Sequence[Any], count: int) -> Device:
    """The device that stands for each of `count`; those of one host share its GPUs if these are fewer."""
    return Device(
        kind="cuda",
        memory_bytes=int(min(g.memory_bytes for g in gpus) * 0.9) // sharing(count, len(gpus)),
        flops_per_second=min(g.flops_per_second for g in gpus),
        memory_bandwidth=min(g.memory_bandwidth for g in gpus),
        overhead_seconds=1.2e-6,  # of a kernel in a captured graph (measured on an H200)
        step_seconds=25e-6,  # of the launch of a graph by the host of an H200, 2026-11-27
    )


@dataclass(frozen=True, repr=False)
class MachineModel:
    """Devices and directed links; a transfer takes the route of fewest links, of those the fastest.

    Links are streams: transfers whose routes have a link in common pass it one after the other. So whatever several
    devices share, a host's network card say, is one link behind a switch.

    Up to four devices sum and gather by copies to one another, which orders can overlap; p devices need 2 p (p - 1) of
    them for a sum. More of them do it together, in collectives, by the algorithm that is the fastest. `collectives`
    says otherwise: name -> algorithm, or `copies`; see `with_collectives`.

    `collectives_by` says what moves them: `own`, the steps of these algorithms, or `nccl`, calls of that library on
    GPUs, as few devices as there may be; `protocols` are its figures, where they are not the published ones. What no
    call of the library does goes in steps. `library`: what its calls were measured to take, which is taken for certain;
    on a machine by `own` each is one more algorithm, `library`.

    `overlap` says what the system that is modelled does: collectives travel `under` compute, so that gradients are
    summed under the backward pass, as FSDP and taskflow itself do it; or `behind` it: while one is under way nothing is
    computed on its devices, as in Megatron without --overlap-grad-reduce.

    `jitter`: the quantiles of how many times as long kernels take, (share, factor) both ascending, a line between;
    `CostModel.with_jitter` draws.

    `memories`: of hosts, where plans keep what is offloaded; see `with_host_memory`.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    name: str = "machine"
    collectives: Mapping[str, str] = field(default_factory=dict, hash=False)
    library: tuple[LibraryTimes, ...] = ()
    jitter: tuple[tuple[float, float], ...] = ()
    collectives_by: str = OWN
    protocols: tuple[Protocol, ...] = ()
    overlap: str = UNDER
    memories: tuple[HostMemory, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.devices)
        if not count:
            raise ValueError(f"machine '{self.name}': has no device")
        for link in self.links:
            for end in link.ends:
                if isinstance(end, int) and not 0 <= end < count:
                    raise ValueError(
                        f"machine '{self.name}': link {link.ends} ends at device {end} of {count}"
                    )
        self._check_twins()
        hosts = [memory.host for memory in self.memories]
        if len({*hosts}) < len(hosts):
            raise ValueError(f"machine '{self.name}': a host has several memories")
        if not isinstance(self.collectives, Mapping):
            raise ValueError(
                f"machine '{self.name}': collectives are algorithms by name, not {self.collectives!r}"
            )
        check_library(f"machine '{self.name}'", self.collectives_by, self.overlap)

        quantiles = np.array(self.jitter, float).reshape(-1, 2)
        if (
            not ((quantiles >= 0) & (quantiles < np.inf)).all()
            or (np.diff(quantiles, axis=0) < 0).any()
            or (quantiles[:, 0] > 1).any()
        ):
            rule = "is pairs of a share in [0, 1] and a factor from 0, both ascending"
            raise ValueError(f"machine '{self.name}': jitter {rule}, not {self.jitter}")

    def _check_twins(self) -> None:
        """Refuse what a route, or a price, would take one of and leave out in silence."""
        for (first, second), count in Counter(link.ends for link in self.links).items():
            if count > 1:
                raise ValueError(
                    f"machine '{self.name}': {count} links go from {first} to {second}; one link stands for all that "
                    "join two places, with their bandwidth together"
                )
        for (what, hosts, devices), count in Counter(
            (t.collective, t.hosts, t.devices) for t in self.library
        ).items():
            if count > 1:
                raise ValueError(
                    f"machine '{self.name}': library: {what} among {devices} devices on {hosts} hosts stands there "
                    f"{count} times"
                )

    def __repr__(self) -> str:
        return f"MachineModel('{self.name}', {len(self.devices)} devices, {len(self.links)} links)"

    @staticmethod
    def uniform(
        devices: int,
        device: Device | None = None,
        bandwidth: float = 5e9,
        latency_seconds: float = 2e-6,
        name: str = "uniform",
    ) -> MachineModel:
        """`devices` equal devices with a link of their own between every ordered pair."""
        if not is_whole(devices):
            raise ValueError(f"machine '{name}': has at least one device, not {devices}")
        return _uniform(devices, device or Device(), bandwidth, latency_seconds, name)

    @staticmethod
    def local(devices: int | None = None, kind: str | None = None) -> MachineModel:
        """The machine at hand: one device for each rank under mpirun, or `devices` of them.

        They are GPUs where CuPy finds any, in turn if those are fewer, else (or if `kind` is `cpu`) the CPU. The rates
        of GPUs are by their own account; those of a CPU are cautious defaults, which `taskflow.measure_machine`
        replaces by measured ones.

        Raises:
            ValueError: `kind` is neither None, `cpu` nor `cuda`, or there is no GPU.
        """
        if kind not in (None, "cpu", "cuda"):
            raise ValueError(f"local machine: kind is 'cpu' or 'cuda', not '{kind}'")
        if devices is not None and not is_whole(devices):
            raise ValueError(f"local machine: has at least one device, not {devices!r}")
        gpus = () if kind == "cpu" else find_gpus()
        if kind == "cuda" and not gpus:
            raise ValueError("local machine: CuPy is not installed or finds no GPU and driver")
        count = devices or world_size(default=0)
        if gpus:
            count = count or len(gpus)
            return MachineModel.uniform(count, _gpu_device(gpus, count), _PCIE, name="local")
        count = count or 1
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // count
        return MachineModel.uniform(count, Device(memory_bytes=memory), name="local")

    @staticmethod
    def preset(name: str, nodes: int = 1) -> MachineModel:
        """A machine of published figures: `nodes` equal hosts of k80, p100, v100, l4, a100, h100, h200, b200 or laptop.

        The files in `taskflow/machine/presets` name their sources.

        Raises:
            ValueError: there is no such preset, or no host.
        """
        text = preset_text(name)
        if not is_whole(nodes):
            raise ValueError(f"machine preset '{name}': nodes is a positive number, not {nodes}")
        return _preset(name, text, nodes)

    @staticmethod
    def load(path: str | Path, nodes: int | None = None) -> MachineModel:
        """Read a TOML machine file.

        Args:
            path: of the file.
            nodes: so many hosts instead of those that the file says; it describes one of them (`hosts`).

        Raises:
            ValueError: there is no file, or what is wrong in it.
        """
        if nodes is not None and not is_whole(nodes):
            raise ValueError(f"machine file '{path}': nodes is a positive number, not {nodes!r}")
        if not Path(path).is_file():
            raise ValueError(f"machine file '{path}': there is no such file")
        with naming(f"machine file '{path}'"):
            machine = MachineModel(*read_machine(read_text(path, LARGEST_BYTES), nodes))
            _ = machine.ways  # all devices reach each other
        return machine

    def save(self, path: str | Path) -> None:
        """Write a TOML machine file that loads equal, atomically."""
        parts = MachineParts(*(getattr(self, name) for name in MachineParts._fields))
        replace_file(path, write_machine(parts), LARGEST_BYTES)

    @staticmethod
    def join(machines: Sequence[MachineModel], name: str = "") -> MachineModel:
        """One machine of several, unequal ones say: devices and hosts are numbered on.

        Places of a host (`pcie@0`) stay apart; those of the same name (`network` in the presets) become one, and that
        is what joins the machines; equal links between these become one, too. `collectives`, what moves them and
        `jitter` are those of the first; no `library` was measured on all.
        `MachineModel.join([MachineModel.preset("v100"), MachineModel.preset("k80")])`.
        """
        devices: list[Device] = []
        links: list[Link] = []
        memories: list[HostMemory] = []
        for machine in machines:
            behind = len(devices), 1 + max((device.host for device in devices), default=-1)
            links += _moved_links(machine.links, *behind)
            memories += _moved_memories(machine.memories, *behind)
            devices += [replace(d, host=d.host + behind[1]) for d in machine.devices]
        return replace(
            machines[0],
            devices=tuple(devices),
            links=tuple(dict.fromkeys(links)),
            name=name or " + ".join(machine.name for machine in machines),
            library=(),
            memories=tuple(memories),
        )

    def take(self, count: int) -> MachineModel:
        """The machine of the first `count` devices; switches stay.

        Raises:
            ValueError: it has not so many.
        """
        if not is_whole(count) or count > len(self.devices):
            raise ValueError(f"machine '{self.name}': has {len(self.devices)} devices, not {count}")
        hosts = {device.host for device in self.devices[:count]}
        return replace(
            self,
            devices=self.devices[:count],
            links=tuple(
                link
                for link in self.links
                if all(isinstance(end, str) or end < count for end in link.ends)
            ),
            memories=tuple(memory for memory in self.memories if memory.host in hosts),
        )

    def with_rates(self, **rates: Any) -> MachineModel:
        """The same machine with the given fields of every device replaced; those of links, as `bandwidth`, too.

        What both have, `joules_per_byte`, is replaced in both.
        """
        names = {f.name for f in fields(Link)} - {"ends", "kind"}
        of_links = {name: rates[name] for name in rates if name in names}
        only_of_links = names - {f.name for f in fields(Device)}
        of_devices = {name: rates[name] for name in rates if name not in only_of_links}
        return replace(
            self,
            devices=tuple(replace(d, **of_devices) for d in self.devices),
            links=tuple(replace(link, **of_links) for link in self.links),
        )

    def with_collectives(self, collectives: Mapping[str, str]) -> MachineModel:
        """The same machine, on which collectives are carried out so.

        Args:
            collectives: `all-reduce`, `reduce-scatter`, `reduce`, `all-gather`, `broadcast`, `all-to-all` -> algorithm,
                such as `ring`, or `fastest`; what is not named is chosen by cost. `library` serves groups of which
                there is a measurement, see `LibraryTimes`. `copies` for `all-reduce` or
                `all-gather`: all sums or gathers, of any number of devices, are copies and folds that orders can
                overlap; anything else there: none is. An `all-to-all` is copies unless it is named: `pairwise`,
                `two-level` (gathered within each host first, so that few messages cross) or `fastest`.
        """
        return (
            replace(self, collectives={**self.collectives, **collectives}) if collectives else self
        )

    def with_host_memory(
        self, memory_bytes: int, bandwidth: float, latency_seconds: float = 2e-6
    ) -> MachineModel:
        """The same machine, whose hosts have memory for what is offloaded, which nothing else uses.

        Args:
            memory_bytes: of each host, for all of its devices.
            bandwidth: bytes/s of a link for each device there, and of one back.
            latency_seconds: of both.

        Raises:
            ValueError: there are such memories already, or a number is none.
        """
        if self.memories:
            raise ValueError(f"machine '{self.name}': its hosts have memories already")
        ways = [(number, f"host@{device.host}") for number, device in enumerate(self.devices)]
        return replace(
            self,
            links=(
                *self.links,
                *(Link(e, bandwidth, latency_seconds) for way in ways for e in (way, way[::-1])),
            ),
            memories=tuple(
                HostMemory(host, f"host@{host}", memory_bytes)
                for host in sorted({device.host for device in self.devices})
            ),
        )

    def with_library(self, name: str) -> MachineModel:
        """The same machine, whose collectives are moved by `own` steps, or by `nccl`."""
        return replace(self, collectives_by=name, overlap=self.overlap if name == NCCL else UNDER)

    def with_overlap(self, name: str) -> MachineModel:
        """The same machine, whose collectives travel `under` compute, or `behind` it."""
        return replace(self, overlap=name)

    @cached_property
    def has_library(self) -> bool:
        """Whether calls of a library move its collectives: NCCL is for GPUs, and their emulation."""
        return self.collectives_by == NCCL and all(d.kind != "cpu" for d in self.devices)

    @property
    def holds_compute(self) -> bool:
        """Whether a collective keeps its devices from computing."""
        return self.overlap == BEHIND

    def shares(self, devices: Sequence[int]) -> tuple[float, ...] | None:
        """The part of some work that each of these devices does in equal time, by flop/s; None: they are equal."""
        rates = [(d := self.devices[k]).compute_efficiency * d.flops_per_second for k in devices]
        return tuple(r / sum(rates) for r in rates) if len(set(rates)) > 1 else None

    def few(self, name: str) -> int:
        """So many devices exchange by copies instead of in a collective of this name."""
        algorithm = self.collectives.get(name)
        few = 1 if self.has_library else DIRECT_DEVICES
        return {None: few, "copies": len(self.devices)}.get(algorithm, 1)

    @cached_property
    def step_seconds(self) -> float:
        """What a step takes besides its tasks, by the slowest host of a GPU."""
        return max((d.step_seconds for d in self.devices if d.kind == "cuda"), default=0.0)

    @cached_property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """The device numbers of every host that has devices, in the order of hosts."""
        numbers = sorted({d.host for d in self.devices})
        return tuple(
            tuple(k for k, d in enumerate(self.devices) if d.host == host) for host in numbers
        )

    @cached_property
    def equals(self) -> Equals:
        """Which devices, and hosts, are equal."""
        return find_equals(self.devices, self.ways)

    @cached_property
    def colours(self) -> Array:
        """(devices,) numbers, equal where devices and all that their links lead to have equal rates."""
        return find_colours(self.devices, self.links)

    @cached_property
    def rate_kinds(self) -> Array:
        """(devices,) numbers, equal where all of devices but their hosts is."""
        return rates_of(self.devices)

    @cached_property
    def graph(self) -> nx.DiGraph:
        """The topology: vertices are device numbers and switch names, edges carry `link`, its number, and `length`."""
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.devices)))
        for k, (link, length) in enumerate(zip(self.links, link_lengths(self.links), strict=True)):
            graph.add_edge(*link.ends, link=k, length=float(length))
        return graph

    @cached_property
    def ways(self) -> Ways:
        """The links of any pairs of devices, and what follows from these; no table of all pairs is made.

        Raises:
            ValueError: two devices have no route.
        """
        try:
            return find_ways(self.devices, self.links, {m.place for m in self.memories})
        except ValueError as error:
            raise ValueError(f"machine '{self.name}': {error}") from error

    @cached_property
    def host_ways(self) -> HostWays:
        """The ways of devices to the memory of their hosts, and back.

        Raises:
            ValueError: a device has none.
        """
        try:
            return find_host_ways(self.devices, self.links, self.memories)
        except ValueError as error:
            raise ValueError(f"machine '{self.name}': {error}") from error

    @cached_property
    def routes(self) -> Array:
        """(devices, devices, longest) numbers of the links from one device to another, -1 behind the last.

        This table and those below are for machines of which all pairs are looked at.
        """
        return self.ways.links(*self._pairs)

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Numbers of the links from one device to another."""
        links = self.ways.links(np.array(source), np.array(target))
        return tuple(int(k) for k in links if k >= 0)

    @cached_property
    def latency_seconds(self) -> Array:
        """(devices, devices) latency of a transfer, those of the links on its way added up."""
        return self.ways.latency(*self._pairs)

    @cached_property
    def doors(self) -> Array:
        """(devices, devices) by which of its links a transfer comes to a device, from 0; 0 if that has one queue."""
        return self.ways.doors(*self._pairs)

    @cached_property
    def bandwidth(self) -> Array:
        """(devices, devices) bytes/s of the narrowest link on the way; within a device, of its memory."""
        return self.ways.bandwidth(*self._pairs)

    @property
    def _pairs(self) -> tuple[Array, Array]:
        number = np.arange(len(self.devices))
        return number[:, None], number

    @cached_property
    def link_bandwidth(self) -> Array:
        """(links + 1,) bytes/s of every link, and behind them of none (-1 in `routes`): no limit."""
        return self.ways.link.bandwidth


# Machines are made again and again, and what is found out about one is kept with it.


@lru_cache(maxsize=32)
def _uniform(
    devices: int, device: Device, bandwidth: float, latency_seconds: float, name: str
) -> MachineModel:
    links = (Link(pair, bandwidth, latency_seconds) for pair in permutations(range(devices), 2))
    return MachineModel((device,) * devices, tuple(links), name)


def _moved_links(links: Iterable[Link], devices: int, hosts: int) -> Iterator[Link]:
    """Links behind so many devices and hosts of other machines."""
    for link in links:
        first, second = (move_place(end, devices, hosts) for end in link.ends)
        yield replace(link, ends=(first, second))


def _moved_memories(
    memories: Iterable[HostMemory], devices: int, hosts: int
) -> Iterator[HostMemory]:
    for memory in memories:
        place = str(move_place(memory.place, devices, hosts))
        yield replace(memory, host=memory.host + hosts, place=place)


@lru_cache(maxsize=32)
def _preset(name: str, text: str, nodes: int) -> MachineModel:
    parts = read_machine(text, nodes)
    return MachineModel(*parts._replace(name=name if nodes == 1 else f"{nodes} x {name}"))
