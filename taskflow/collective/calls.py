"""Calls of a library (NCCL) that nobody measured: what a group takes by each of its algorithms and protocols.

    group -> `Fabric`, what rings of its members reach -> `Call` of every protocol -> `Curve`, the one that it chooses

The library has a ring for every network card of a host, so a host sends by all of them; trees for sums, pipelined, up
and down; sums in the switch (NVLS), alone or as the leaves of a tree. It chooses by what it expects, which leaves out
what `machine/nccl.toml` says of calls and hops; what a call takes is with that.
Source: ncclTopoTuneModel and ncclTopoGetAlgoTime in NCCL's src/graph/tuning.cc; pieces of NVLS: calcCollChunking in its
src/enqueue.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.collective.group import Group
from taskflow.collective.ring import find_rings
from taskflow.core.columns import Array
from taskflow.machine.device import LINK_KINDS
from taskflow.machine.library import Curve
from taskflow.machine.protocol import HOST_COUNTS, Protocol, published

SIZES = 2.0 ** np.arange(0, 41, 0.5)  # bytes at which a curve is known
NVLINK = LINK_KINDS.index("nvlink")
# Of the way between hosts for which the hops of a network are published, InfiniBand as in p100.toml; what another
# network takes more is added to every hop, twice where the receiver's memory must be flushed.
NETWORK_SECONDS = 6.5e-6
POST_SECONDS = 1e-6
POSTS = {"Simple": 3}  # a message of the network is posted: getNetOverhead
SMALLEST = 64  # bytes, the first of `Protocol.by_size`
# Pieces of sums in a switch are halved where fewer pass one behind the other: (pieces, bytes that are left).
FEWER_PIECES = ((64, 1 << 16), (8, 1 << 15), (2, 1 << 14))
STAGES = 3  # of a sum in a switch: into its memory, the sum, and out of it


class Fabric(NamedTuple):
    """What a library knows of a group.

    Attributes:
        members, hosts, on_host: how many; on the fullest host.
        within: bytes/s of all rings within a host; between: of all cards of a host.
        kind: class of the links within a host.
        network_seconds: that a hop between hosts takes more than one of InfiniBand.
    """

    members: int
    hosts: int
    on_host: int
    within: float
    between: float
    kind: str
    network_seconds: float


class Call(NamedTuple):
    """What a call takes by one protocol, by size: `expected` by the library, and `seconds`."""

    protocol: Protocol
    expected: Array
    seconds: Array


# -- groups ------------------------------------------------------------------------------------------------------------


def fabric_of(group: Group, part: Callable[[tuple[int, ...]], Group]) -> Fabric:
    """The fabric of a group; `part`: some of its members as a group."""
    begin = group.host_begin.tolist()
    hosts = len(begin) - 1
    on_host = np.diff(group.host_begin)
    several = [tuple(range(a, b)) for a, b in pairwise(begin) if b - a > 1]
    parts = {host.key: host for host in map(part, several)}
    rings = [_ring_rate(host) for host in parts.values()]
    between, latency = _between(group) if hosts > 1 else (np.inf, 0.0)
    is_nvlink = all(_is_nvlink(host) for host in parts.values())
    return Fabric(
        group.count,
        hosts,
        int(on_host.max()),
        min(rings, default=np.inf),
        between,
        "nvlink" if is_nvlink else "pci",
        max(latency - NETWORK_SECONDS, 0.0),
    )


def neighbours(group: Group) -> Array:
    """(p, hops) links from every member to the next, round."""
    member = np.arange(group.count)
    return group.ways.links(member, np.roll(member, -1))


def _ring_rate(group: Group) -> float:
    """Bytes/s of all rings of one host: along direct links, both ways round, or else by number."""
    rings = find_rings(group)
    if rings:
        return float(2 * len(rings) * group.link_bandwidth.min())
    links = neighbours(group)
    crossed = np.bincount(links[links >= 0], minlength=len(group.link_bandwidth))
    return float((group.link_bandwidth[crossed > 0] / crossed[crossed > 0]).min())


def _is_nvlink(group: Group) -> bool:
    links = neighbours(group)
    return bool((group.ways.link.kind[links[links >= 0]] == NVLINK).all())


def _between(group: Group) -> tuple[float, float]:
    """Bytes/s into the host that gets the least; seconds of the longest way.

    Each member gets from one of the next host. Of the links that are as many from the end of its way, those of all
    members of a host are used together; the narrowest of these cuts counts.
    """
    begin = group.host_begin
    member = np.arange(group.count)
    host = np.array(group.hosts)
    size = np.diff(begin)
    following = (host + 1) % (len(begin) - 1)
    source = begin[following] + (member - begin[host]) % size[following]
    links = group.ways.links(source, member)
    hops = (links >= 0).sum(axis=1)
    rate = np.inf
    for back in range(1, int(hops.min()) + 1):
        user, used = np.unique(np.stack([host, links[member, hops - back]]), axis=1)
        rate = min(rate, np.bincount(user, group.link_bandwidth[used]).min())
    return float(rate), float(group.ways.latency_of(links).max())


# -- calls -------------------------------------------------------------------------------------------------------------


def calls(fabric: Fabric, protocols: Sequence[Protocol], name: str, size: Array) -> list[Call]:
    """All protocols that can carry out a collective of so many bytes in all."""
    exposed = {
        p.protocol: p.hop_seconds["network"]
        for p in protocols
        if p.algorithm == "tree" and "network" in p.hop_seconds
    }
    return [_call(p, fabric, name, size, exposed) for p in protocols if _is_able(p, fabric, name)]


def curve(fabric: Fabric, protocols: Sequence[Protocol], name: str) -> Curve | None:
    """What the library takes by size, each by the protocol that it expects to be the fastest; None: it cannot."""
    able = calls(fabric, protocols, name, SIZES)
    if not able:
        return None
    chosen = np.argmin([call.expected for call in able], axis=0)
    seconds = np.choose(chosen, [call.seconds for call in able])
    return Curve(SIZES, seconds)


def _is_able(p: Protocol, f: Fabric, name: str) -> bool:
    """Whether it serves the collective, and has hops for all classes of links."""
    needed = {f.kind} if f.on_host > 1 else set()
    needed |= {"network"} if f.hosts > 1 else set()
    is_for = {"nvls": f.hosts == 1, "nvls-tree": f.hosts > 1 and f.on_host > 1}
    return (
        name in p.collectives and needed <= p.hop_seconds.keys() and is_for.get(p.algorithm, True)
    )


def _call(p: Protocol, f: Fabric, name: str, size: Array, exposed: dict[str, float]) -> Call:
    within, between = _hops(p, f, name)
    figures = published()
    flushes = 2 if p.protocol == "Simple" else 1
    hop = p.hop_seconds.get(f.kind, 0.0)
    far = p.hop_seconds.get("network", 0.0)
    if f.on_host == 1:
        far = exposed.get(p.protocol, far)
    elif f.hosts > 1 and p.algorithm == "ring":
        hop = max(hop, POST_SECONDS * POSTS.get(p.protocol, 1))
    hops = within * hop + between * far
    network = between * f.network_seconds * flushes
    sent = size / (_rate(p, f, name) * _share_at(p, size))
    first = figures.call_seconds + p.seconds + p.hop_factor * hops + network
    return Call(p, p.seconds + hops + network + sent, first + sent * _filling(p, f, size))


def _hops(p: Protocol, f: Fabric, name: str) -> tuple[int, int]:
    """How many are within hosts, and between them, one behind the other."""
    if p.algorithm == "ring":
        between = f.hosts - 1 if f.hosts > 1 else 0
        between *= 2 if name == "all-reduce" else 1
        return _steps(f, name) - between, between
    up = int(f.hosts).bit_length() - 1
    return (2 * (f.on_host - 1) if p.algorithm == "tree" else 1), 2 * up


def _steps(f: Fabric, name: str) -> int:
    """Of a ring."""
    rounds = {"all-reduce": 2 * (f.members - 1), "reduce": f.members, "broadcast": f.members}
    return rounds.get(name, f.members - 1)


def _rate(p: Protocol, f: Fabric, name: str) -> float:
    """Bytes/s of what is summed, gathered or sent."""
    at = min(f.hosts, HOST_COUNTS) - 1
    steps = _steps(f, name)
    most = p.most[at] if p.most else np.inf
    if p.algorithm == "ring":
        return min(p.share[at] * min(f.within, f.between), most) * f.members / steps
    between = f.between * (2 if f.hosts == 2 else 1)  # no host passes on what it gets
    if p.algorithm == "tree":
        return min(p.share[at] * min(f.within, between), most) / 2
    # A switch takes the whole from each member, and gives it the whole and the sum of its part.
    switched = 2 * (f.on_host - 1) / (f.on_host + 1) * p.share[at] * f.within
    return min(min(switched, between, most) * f.members / steps, f.between)


def _share_at(p: Protocol, size: Array) -> Array:
    """See `Protocol.by_size`."""
    table = np.array([*p.by_size, 1.0])
    at = np.floor(np.log2(np.maximum(size, 1) / SMALLEST)).astype(np.int64)
    return np.where(at < 0, 1.0, table[np.clip(at, 0, len(table) - 1)])


def _filling(p: Protocol, f: Fabric, size: Array) -> Array:
    """How many times longer a sum takes since its stages do not overlap in the first and last pieces."""
    if not p.chunk_bytes:
        return np.ones(np.shape(size))
    together = p.channels * f.on_host
    piece = np.full(np.shape(size), float(p.chunk_bytes))
    for fewer, left in FEWER_PIECES:
        piece = np.where(size < fewer * together * piece, np.minimum(piece, left), piece)
    pieces = np.maximum(size / (together * piece), 1.0)
    times: Array = 1.0 + (STAGES - 1) / pieces
    return times
