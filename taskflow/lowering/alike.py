"""Which devices do the same, found from fragments and points, of which a graph of many devices has few.

Devices are in one orbit where all that touches them is equal, in order: points, instances, arguments of rows. Then what
touches a device is like what touches its representative, at the same place. Where a row would be like one row by one of
its devices and like another row by another one, partners do not match, and the digits in which these two differ are
parted. At last all rows must wait for rows that are like those for which the row waits that they are like. What is
found is checked to the last row, nothing is only likely; where it does not hold, every device is an orbit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.columns import Array, distinct, pointers
from taskflow.core.compiling import leaf, tiered
from taskflow.core.grouping import grouped, ranks
from taskflow.lowering.movement import Fragment
from taskflow.lowering.rows import DistinctPoints
from taskflow.lowering.sample import Sample, instances_of_arguments
from taskflow.machine import MachineModel
from taskflow.strategy.mesh import rates_of_devices
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.task_graph import TaskGraph

ROW_ARGUMENTS = 2  # among the touches
NO_NODE = -1
PRIME, BASE = (1 << 31) - 1, 1_103_515_245  # of a polynomial hash: products fit into 63 bits


class AlikeFinder:
    """Refines orbits until the rows of representatives stand for all.

    Args:
        x, chosen: see `sample_of`.
        rows: those of `x`, with algorithms.
    """

    def __init__(self, x: Sample, chosen: DistinctPoints, rows: TaskGraph) -> None:
        machine = rows.machine
        port, self.x = _ports(x, machine), x
        is_ordered = (np.diff([d.host for d in machine.devices]) >= 0).all()
        self.nodes = np.arange(x.points + len(x.row))
        self._rates = rates_of_devices(machine)
        self._touches: list[Touch] = []
        if port is not None and is_ordered:
            ways = np.stack([port, _algorithms(rows)])
            self._touches = _touches(x, chosen, ways, len(machine.devices))

    def find(self, orbits: Orbits) -> tuple[Orbits, Array]:
        """The orbits, refined, and the node of representatives that every node is like.

        Devices of one orbit have equal rates.
        """
        orbits = orbits.refine(self._rates)
        while len(orbits) < len(orbits.of) and self._touches:
            orbits = _refined(self._touches, orbits)
            matched = _match(self._touches, orbits, self.nodes)
            if matched is None:  # by chance
                break
            if not len(matched.some):
                if _is_kept(self.x, matched.like):
                    return orbits, matched.like
                break
            finer = orbits.part(matched.some, matched.others)
            if len(finer) == len(orbits):
                break
            orbits = finer
        return Orbits.of_equal(np.arange(len(orbits.of)), strides=orbits.strides), self.nodes


class Matched(NamedTuple):
    """Nodes that are like those of representatives.

    Attributes:
        like: of every node, the node that it is like.
        some, others: pairs of devices of one node, by which it would be like two nodes.
    """

    like: Array
    some: Array
    others: Array


class Touch(NamedTuple):
    """Things of a kind that touch devices, in order; of n touches:

    Attributes:
        device: whom.
        rank: how many touched it before.
        thing: by what.
        facts: (columns, things) of all things.
        more: (columns, n) how.
        first_node: the node that is thing 0; NO_NODE: they are none.
    """

    device: Array
    rank: Array
    thing: Array
    facts: Array
    more: Array
    first_node: int


def _touches(x: Sample, chosen: DistinctPoints, ways: Array, devices: int) -> list[Touch]:
    """All that touches devices: points, instances, arguments of rows and of points.

    `ways`: (n, rows) how the rows are carried out.
    """
    kinds, first = np.arange(len(x.regions)), pointers(x.instances)[:-1]
    rank = ranks(x.instance_device, devices)  # of an instance on its device
    size, _ = x.found.gather(
        lambda f: np.prod(f.instance_box[:, :, 1] - f.instance_box[:, :, 0], axis=1)
    )
    flags, _ = x.found.gather(_flags)
    version = np.repeat(np.arange(len(x.version_rows)), x.version_rows)
    instance = instances_of_arguments(x)
    of_row = [x.row[name] for name in ("kind", "collective", "ordinal", "points")]
    of_event = np.where(
        x.event_instance < 0, -1, rank[np.maximum(first[x.event_kind] + x.event_instance, 0)]
    )
    number = np.repeat(np.arange(len(chosen.points)), chosen.points)
    of_point = [number, chosen.bytes, chosen.flops.view(np.int64), chosen.ordinal]
    none = np.zeros((0, len(rank)), np.int64)
    held = [np.repeat(kinds, x.instances), size, flags]
    events = [x.event, of_event]
    return [
        _touch(chosen.device, devices, of_point, 0),
        Touch(x.instance_device, rank, np.arange(len(rank)), np.stack(held), none, NO_NODE),
        _touch(
            x.instance_device[instance],
            devices,
            [*of_row, version, *ways],
            x.points,
            x.arg_row,
            np.stack([rank[instance], x.arg["privilege"]]),
        ),
        _touch(chosen.device[x.node], devices, events, NO_NODE),
    ]


def _touch(
    device: Array,
    devices: int,
    facts: list[Array],
    first_node: int,
    thing: Array | None = None,
    more: Array | None = None,
) -> Touch:
    """By one thing each, if it is not said by which."""
    count = len(device)
    return Touch(
        device,
        ranks(device, devices),
        np.arange(count) if thing is None else thing,
        np.stack(facts),
        np.zeros((0, count), np.int64) if more is None else more,
        first_node,
    )


def _flags(fragment: Fragment) -> Array:
    """Of every instance, whether it is partial, a home, fetched."""
    found = fragment.instance_partial.astype(np.int64)
    found[fragment.homes] += 2
    found[fragment.fetches[:, 1]] += 4
    return found


def _algorithms(rows: TaskGraph) -> Array:
    """Per row a number of the algorithm's name; 0: none."""
    names = ["", *(way.algorithm for way in rows.ways)]
    number = np.unique(names, return_inverse=True)[1].reshape(-1)
    found: Array = number[np.maximum(rows.algorithm, -1) + 1]
    return found


def _ports(x: Sample, machine: MachineModel) -> Array | None:
    """Per row, by which of its source's ports a transfer leaves; None where sources share a port."""
    shift = np.repeat(x.found.shift, x.rows)
    source, device = x.row["source"] + shift, x.row["device"] + shift
    sends_by_link = np.array([d.sends_by_link and d.kind != "cpu" for d in machine.devices])
    moved, port = (
        np.flatnonzero((source != device) & sends_by_link[source]),
        np.zeros(len(source), np.int64),
    )
    links = len(machine.links)
    leaving = source[moved] * links + machine.ways.links(source[moved], device[moved])[:, 0]
    pairs, which = np.unique(leaving, return_inverse=True)
    if len(np.unique(pairs % links)) < len(pairs):
        return None
    port[moved] = (np.arange(len(pairs)) - np.searchsorted(pairs // links, pairs // links))[which]
    return port


def _refined(touches: list[Touch], orbits: Orbits) -> Orbits:
    """Devices that are touched in other ways are apart, and those on whose rows are devices of other orbits."""
    devices = len(orbits.of)
    for touch in touches:
        seen = _seen_by_devices(touch.device, touch.thing, touch.facts, touch.more, devices)
        orbits = orbits.refine(seen)
    rows, before = touches[ROW_ARGUMENTS], -1
    weight = np.random.default_rng(0).integers(0, PRIME, devices)
    while len(orbits) > before:
        before = len(orbits)
        together = _together(rows.device, rows.thing, weight[orbits.of], rows.facts.shape[1])
        orbits = orbits.refine(
            _seen_by_devices(rows.device, rows.thing, together[None], rows.more[:0], devices)
        )
    return orbits


def _match(touches: list[Touch], orbits: Orbits, nodes: Array) -> Matched | None:
    """What the nodes are like; None: what touches a device is not what touches its representative."""
    like, by, pairs = nodes.copy(), np.full(len(nodes), -1), list[Array]()
    is_first = np.isin(np.arange(len(orbits.of)), orbits.representative)
    for touch in touches:
        own = np.flatnonzero(is_first[touch.device])
        ptr, order = grouped(orbits.of[touch.device[own]], len(orbits))
        count = np.bincount(touch.device, minlength=len(orbits.of))
        if (count != np.diff(ptr)[orbits.of]).any():
            return None
        unlike = np.zeros(len(touch.device), np.bool_)
        if not _liken(tuple(touch), orbits.of, ptr, own[order], like, by, unlike):
            return None
        of_unlike = by[touch.first_node + touch.thing[unlike]]
        pairs.append(np.stack([of_unlike, touch.device[unlike]]))
    return Matched(like, *np.concatenate(pairs, axis=1))


@tiered
def _liken(
    touch: Any,
    orbit: Array,
    ptr: Array,
    own: Array,
    like: Array,
    by: Array,
    unlike: Array,
) -> bool:
    """Whether every touch is like that of the representative at the same place; what nodes are like then.

    Args:
        touch: a `Touch` as a plain tuple.
        orbit: of every device.
        ptr, own: the touches of the representative of orbit k are `own[ptr[k] : ptr[k + 1]]`.
        like, by: of every node the one that it is like, and the device by which it is; -1: none so far.
        unlike: becomes True where a node would be like another one.
    """
    device, rank, thing, facts, more, first_node = touch
    for k in range(len(device)):
        there = own[ptr[orbit[device[k]]] + rank[k]]
        one, other = thing[k], thing[there]
        for column in range(len(facts)):
            if facts[column, one] != facts[column, other]:
                return False
        for column in range(len(more)):
            if more[column, k] != more[column, there]:
                return False
        if first_node >= 0:
            node = first_node + one
            if by[node] < 0:
                like[node], by[node] = first_node + other, device[k]
            unlike[k] = like[node] != first_node + other
    return True


@tiered
def _seen_by_devices(device: Array, thing: Array, facts: Array, more: Array, devices: int) -> Array:
    """Of every device a number that follows from what touches it, in order; for the arguments see `Touch`."""
    found = np.zeros(devices, np.int64)
    for k in range(len(device)):
        code = _hashed(found[device[k]], 1)
        for column in range(len(facts)):
            code = _hashed(code, facts[column, thing[k]])
        for column in range(len(more)):
            code = _hashed(code, more[column, k])
        found[device[k]] = code
    return found


@tiered
def _together(device: Array, thing: Array, weight: Array, things: int) -> Array:
    """Of every thing a number that follows from the weights of the devices that it touches."""
    found = np.zeros(things, np.int64)
    for k in range(len(device)):
        found[thing[k]] = (found[thing[k]] + weight[device[k]]) % PRIME
    return found


@leaf
def _hashed(code: int, value: int) -> int:
    """A number below `PRIME` that follows from another one and a value."""
    return (code * BASE + (value & PRIME) + ((value >> 31) & PRIME)) % PRIME


def _is_kept(x: Sample, like: Array) -> bool:
    """Whether rows wait for those that are like those for which the row waits that they are like."""
    nodes = len(like)
    is_first = like == np.arange(nodes)
    kind = x.edge_kind * nodes
    every = distinct((kind + x.waiting) * nodes + like[x.awaited])
    here = is_first[x.waiting] & is_first[x.awaited]
    own = distinct((kind + x.waiting)[here] * nodes + x.awaited[here])
    mapped = (
        every // nodes // nodes * nodes + like[every // nodes % nodes]
    ) * nodes + every % nodes
    if not len(own):
        return not len(every)
    at = np.minimum(np.searchsorted(own, mapped), len(own) - 1)
    many = np.bincount(like, minlength=nodes)[
        own // nodes % nodes
    ]  # nodes that are like the one that waits
    return bool((own[at] == mapped).all() and (np.bincount(at, minlength=len(own)) == many).all())
