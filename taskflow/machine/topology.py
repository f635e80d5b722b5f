"""Topologies: machines of equal devices on well-known networks, and on any graph.

On the command line `torus:8x8`, `mesh:4x4x4`, `fat_tree:8x8`, `bigraph:4x2` or `dragonfly:5x4x2` (`of_name`); such a
machine is saved to a file as any other is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from math import prod

from taskflow.core.numbers import whole
from taskflow.machine.device import Device, Link
from taskflow.machine.machinefile import MOST_DEVICES
from taskflow.machine.model import MachineModel

Place = int | str
NODE = Device(
    "cuda", sends_by_link=True
)  # of a direct network: all its links are busy at the same time
END = Device("cuda")  # of a switched network: it has one link


def of_edges(
    name: str,
    devices: int,
    edges: Iterable[tuple[Place, Place, float]],
    device: Device = NODE,
    bandwidth: float = 25e9,
    latency_seconds: float = 1e-6,
) -> MachineModel:
    """A machine whose links are edges, in both directions; each with a factor of `bandwidth`.

    Edges end at device numbers or names of switches; of a networkx graph: `graph.edges(data="width", default=1)`.
    """
    devices = whole(f"machine '{name}'", "devices", devices)
    links = [
        Link(ends, bandwidth * w, latency_seconds) for a, b, w in edges for ends in ((a, b), (b, a))
    ]
    return MachineModel((device,) * devices, tuple(links), name)


def torus(
    extents: Sequence[int], device: Device = NODE, bandwidth: float = 25e9, latency: float = 1e-6
) -> MachineModel:
    """A grid of any dimensions whose ends are joined; devices are numbered row-major."""
    extents = _wholes("torus", extents)
    return of_edges(
        f"torus {_text(extents)}", prod(extents), _grid(extents, True), device, bandwidth, latency
    )


def mesh(
    extents: Sequence[int], device: Device = NODE, bandwidth: float = 25e9, latency: float = 1e-6
) -> MachineModel:
    """A grid of any dimensions; devices are numbered row-major."""
    extents = _wholes("mesh", extents)
    return of_edges(
        f"mesh {_text(extents)}", prod(extents), _grid(extents, False), device, bandwidth, latency
    )


def fat_tree(
    leaves: int, each: int, device: Device = END, bandwidth: float = 25e9, latency: float = 1e-6
) -> MachineModel:
    """`each` devices on every leaf switch; the links up are as wide as those of the leaf's devices together."""
    leaves, each = _wholes("fat tree", (leaves, each))
    edges = [(d, f"leaf{d // each}", 1.0) for d in range(leaves * each)]
    up = [(f"leaf{k}", "core", float(each)) for k in range(leaves)] if leaves > 1 else []
    return of_edges(
        f"fat tree {leaves}x{each}", leaves * each, [*edges, *up], device, bandwidth, latency
    )


def bigraph(
    switches: int, each: int, device: Device = END, bandwidth: float = 25e9, latency: float = 1e-6
) -> MachineModel:
    """Two layers of so many switches, every two of different layers joined, `each` devices on every switch.

    Source: Dong et al., "EFLOPS: algorithm and system co-design for a high performance distributed training platform",
    HPCA 2020.
    """
    switches, each = _wholes("bigraph", (switches, each))
    names = [f"{layer}{k}" for layer in ("upper", "lower") for k in range(switches)]
    edges = [(d, names[d // each], 1.0) for d in range(2 * switches * each)]
    between = [(a, b, 1.0) for a, b in product(names[:switches], names[switches:])]
    return of_edges(
        f"bigraph {switches}x{each}", len(edges), [*edges, *between], device, bandwidth, latency
    )


def dragonfly(
    groups: int,
    switches: int,
    each: int,
    device: Device = END,
    bandwidth: float = 25e9,
    latency: float = 1e-6,
) -> MachineModel:
    """Groups of switches, all of a group joined, `each` devices on every switch; one link between every two groups.

    Source: Kim et al., "Technology-driven, highly-scalable dragonfly topology", ISCA 2008.
    """
    groups, switches, each = _wholes("dragonfly", (groups, switches, each))
    count = groups * switches * each
    edges: list[tuple[Place, Place, float]] = [(d, f"switch{d // each}", 1.0) for d in range(count)]
    for group in range(groups):
        inside = range(group * switches, (group + 1) * switches)
        edges += [(f"switch{a}", f"switch{b}", 1.0) for a, b in combinations(inside, 2)]
    for a, b in combinations(
        range(groups), 2
    ):  # the links of a group go out of its switches in turn
        ends = (
            f"switch{a * switches + (b - 1) % switches}",
            f"switch{b * switches + a % switches}",
        )
        edges.append((*ends, 1.0))
    return of_edges(
        f"dragonfly {groups}x{switches}x{each}", count, edges, device, bandwidth, latency
    )


def of_name(name: str) -> MachineModel:
    """The machine of a name such as `torus:8x8`: a function of this module and its first arguments.

    Raises:
        ValueError: there is no such topology, or its numbers are others.
    """
    kind, _, text = name.partition(":")
    numbers = [int(n) if n.isdecimal() else 0 for n in text.split("x")]
    if kind not in TOPOLOGIES:
        raise ValueError(f"machine '{name}': topologies are {', '.join(TOPOLOGIES)}")
    make, count = TOPOLOGIES[kind]
    if min(numbers) < 1 or (count and len(numbers) != count) or prod(numbers) > MOST_DEVICES:
        rule = f"{count} numbers" if count else "the extents"
        raise ValueError(
            f"machine '{name}': {kind} takes {rule} from 1, with an x between, at most {MOST_DEVICES} devices"
        )
    return make(*numbers) if count else make(numbers)


TOPOLOGIES: dict[
    str, tuple[Callable[..., MachineModel], int]
] = {  # name -> function, how many numbers it takes (0: any)
    "torus": (torus, 0),
    "mesh": (mesh, 0),
    "fat_tree": (fat_tree, 2),
    "bigraph": (bigraph, 2),
    "dragonfly": (dragonfly, 3),
}


def _grid(extents: Sequence[int], is_closed: bool) -> list[tuple[Place, Place, float]]:
    edges: list[tuple[Place, Place, float]] = []
    for number, place in enumerate(product(*map(range, extents))):
        for k, extent in enumerate(extents):
            step = prod(extents[k + 1 :])
            if place[k] + 1 < extent:
                edges.append((number, number + step, 1.0))
            elif is_closed and extent > 2:
                edges.append((number, number - (extent - 1) * step, 1.0))
    return edges


def _wholes(kind: str, numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(whole(f"machine '{kind}'", "an extent", number) for number in numbers)


def _text(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents))
