"""Which devices do the same, found from fragments and points, of which a graph of many devices has few.

Devices are in one orbit where all that touches them is equal, in order: points, instances, arguments of rows. Then what
touches a device is like what touches its representative, at the same place. Where a row would be like one row by one of
its devices and like another row by another one, partners do not match, and the digits in which these two differ are
parted. At last all rows must wait for rows that are like those for which the row waits that they are like. What is
found is checked to the last row, nothing is only likely; where it does not hold, every device is an orbit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, distinct, pointers
from taskflow.core.grouping import grouped
from taskflow.lowering.movement import Fragment
from taskflow.lowering.rows import DistinctPoints
from taskflow.lowering.sample import Sample
from taskflow.machine import MachineModel
from taskflow.strategy.mesh import rates_of_devices
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.task_graph import TaskGraph

ROW_ARGUMENTS = 2  # among the touches
MIXING = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing


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
            orbits = _refined(self.x, self._touches, orbits)
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
    """Things of a kind that touch devices, by device.

    Attributes:
        ptr: where those of every device begin.
        device, columns: of every thing its device, and how it touches it.
        node: what nodes they are, or are arguments of; none, if it is neither.
    """

    ptr: Array
    device: Array
    columns: list[Array]
    node: Array


def _touches(x: Sample, chosen: DistinctPoints, ways: Array, devices: int) -> list[Touch]:
    """All that touches devices: points, instances, arguments of rows and of points.

    `ways`: (n, rows) how the rows are carried out.
    """
    kinds, first = np.arange(len(x.regions)), pointers(x.instances)[:-1]
    instances = _touch(x.instance_device, devices, [])
    rank = np.empty(len(x.instance_device), np.int64)  # of an instance on its device
    order = grouped(x.instance_device, devices)[1]
    rank[order] = np.arange(len(order)) - instances.ptr[instances.device]
    size, _ = x.found.gather(
        lambda f: np.prod(f.instance_box[:, :, 1] - f.instance_box[:, :, 0], axis=1)
    )
    flags, _ = x.found.gather(_flags)
    version, row = (
        np.repeat(np.arange(len(x.version_rows)), x.version_rows)[x.arg_row],
        x.row[x.arg_row],
    )
    instance = first[np.repeat(kinds, x.args)] + x.arg["instance"]
    of_row = [row[name] for name in ("kind", "collective", "ordinal", "points")]
    of_row += [version, rank[instance], x.arg["privilege"], *ways[:, x.arg_row]]
    of_event = np.where(
        x.event_instance < 0, -1, rank[np.maximum(first[x.event_kind] + x.event_instance, 0)]
    )
    number = np.repeat(np.arange(len(chosen.points)), chosen.points)
    of_point = [number, chosen.bytes, chosen.flops.view(np.int64), chosen.ordinal]
    return [
        _touch(chosen.device, devices, of_point, np.arange(x.points)),
        _touch(x.instance_device, devices, [np.repeat(kinds, x.instances), size, flags]),
        _touch(x.instance_device[instance], devices, of_row, x.points + x.arg_row),
        _touch(chosen.device[x.node], devices, [x.event, of_event]),
    ]


def _touch(device: Array, devices: int, columns: list[Array], node: Array | None = None) -> Touch:
    ptr, order = grouped(device, devices)
    nodes = order[:0] if node is None else node[order]
    return Touch(ptr, device[order], [column[order] for column in columns], nodes)


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


def _refined(x: Sample, touches: list[Touch], orbits: Orbits) -> Orbits:
    """Devices that are touched in other ways are apart, and those on whose rows are devices of other orbits."""
    for touch in touches:
        orbits = orbits.refine(_code(touch, touch.columns))
    rows, before = touches[ROW_ARGUMENTS], -1
    while len(orbits) > before:
        before, together = len(orbits), np.zeros(x.points + len(x.row), np.uint64)
        np.add.at(together, rows.node, _mixed(orbits.of[rows.device].astype(np.uint64), []))
        orbits = orbits.refine(_code(rows, [together[rows.node].view(np.int64)]))
    return orbits


def _match(touches: list[Touch], orbits: Orbits, nodes: Array) -> Matched | None:
    """What the nodes are like; None: what touches a device is not what touches its representative."""
    first, like, pairs = orbits.representative[orbits.of], nodes.copy(), list[Array]()
    by = np.full(len(nodes), -1)  # the device by which a node is like another
    for ptr, device, columns, node in touches:
        there = np.arange(len(device)) + (ptr[:-1][first] - ptr[:-1])[device]
        if not all((column == column[there]).all() for column in columns):
            return None
        if len(node):
            is_new = by[node] < 0
            like[node[is_new]], by[node[is_new]] = node[there[is_new]], device[is_new]
            other = like[node] != node[there]
            pairs.append(np.stack([by[node[other]], device[other]]))
    return Matched(like, *np.concatenate(pairs, axis=1))


def _code(touch: Touch, columns: list[Array]) -> Array:
    """Of every device a number that follows from what touches it, in order."""
    code = _mixed(
        (np.arange(len(touch.device)) - touch.ptr[touch.device]).astype(np.uint64), columns
    )
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(code, dtype=np.uint64)])
    found: Array = (total[touch.ptr[1:]] - total[touch.ptr[:-1]]).view(np.int64)
    return found


def _mixed(code: Array, columns: list[Array]) -> Array:
    """Numbers that look like random ones, equal where all is equal."""
    for column in (np.zeros(len(code), np.int64), *columns):
        code = (code ^ column.astype(np.int64).view(np.uint64)) * MIXING
        code ^= code >> np.uint64(29)
    return code


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
