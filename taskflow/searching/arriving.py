"""What collectives take at least, compiled by numba: no algorithm brings what devices lack faster.

A device that gets a box receives what its own instances lack of it, and so do the devices of a host together: through
the links into them. Of a sum it receives as much as the box holds, if another has a partial
result, since these can be added up on their way; in all, q partial results of a box are q - 1 messages of its size, and
one more for every other device that gets it.
Latencies, folds and who sends are left out, so this is a lower bound of what `collective.price` says, made in
microseconds: most changes that a walk proposes are too slow even so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inner, leaf, tiered
from taskflow.machine import MachineModel
from taskflow.searching.packed import ARG_NUMBERS, SOURCE, TARGET
from taskflow.tasks.streams import StreamTable
from taskflow.tasks.task_graph import COLLECTIVES

SUMS = tuple(COLLECTIVES.index(name) for name in ("all-reduce", "reduce-scatter", "reduce"))
ALL_TO_ALL = COLLECTIVES.index("all-to-all")
GATHERS = ALL_TO_ALL, COLLECTIVES.index("all-gather"), COLLECTIVES.index("broadcast")
ROUNDED = 1.0 - 1e-9  # sums of the same in another order


class Entrances(NamedTuple):
    """By how many bytes/s data comes in, at most.

    Attributes:
        rate: of every device, from others.
        host: of every device, numbered from 0.
        host_rate: of every host, from others.
        adds: (1,) whether it is devices that add what is summed; 0: it may be a switch.
    """

    rate: Array
    host: Array
    host_rate: Array
    adds: Array


def entrances_of(machine: MachineModel, throughput: Array) -> Entrances:
    """See `Entrances`; `throughput`: of transfers, (devices, devices).

    Without limit where a library moves what collectives do: what that takes was measured, and may be anything.
    """
    count, link, table = len(machine.devices), machine.ways.link, StreamTable(machine)
    adds = np.array([not machine.has_library])
    if machine.library:
        unknown = np.full(count, np.inf)
        return Entrances(unknown, np.zeros(count, np.int64), np.full(1, np.inf), adds)
    end, bandwidth = link.end[:-1], link.bandwidth[:-1]
    of_links = np.bincount(end[end >= 0], bandwidth[end >= 0], count)
    one_by_one = np.where(np.eye(count, dtype=np.bool_), 0.0, throughput).max(axis=0)
    rate = np.where(table.arriving >= 0, one_by_one, np.maximum(of_links, one_by_one))
    host = np.unique(table.host_number, return_inverse=True)[1]
    host_rate = [_rate_into(machine, host == k) for k in range(int(host.max()) + 1)]
    return Entrances(rate, host, np.array(host_rate), adds)


def _rate_into(machine: MachineModel, is_here: Array) -> float:
    """Bytes/s of the narrowest links of all ways from other devices to these, of equal ones the last, together."""
    outside, inside = np.flatnonzero(~is_here), np.flatnonzero(is_here)
    if not len(outside):
        return np.inf
    links, bandwidth = machine.ways.links(outside[:, None], inside), machine.ways.link.bandwidth
    narrowest = links.shape[-1] - 1 - np.argmin(bandwidth[links][..., ::-1], axis=-1)
    crossed = np.take_along_axis(links, narrowest[..., None], axis=-1)
    return float(bandwidth[np.unique(crossed)].sum())


@tiered
def least_seconds(pending: Array, arg: Array, entrances: tuple[Array, ...]) -> Array:
    """(collectives,) seconds of OPEN_COLLECTIVE at least; `arg`: see `packed.Packed`."""
    at, seconds = Entrances(*entrances), np.zeros(len(pending))
    for k in range(len(pending)):
        x = pending[k]
        args = arg[x.first : x.first + x.args * x.width].reshape((x.args, x.width))
        if x.name in SUMS:
            seconds[k] = _sum_seconds(args, at)
        elif x.name in GATHERS:
            seconds[k] = _gather_seconds(args, x.name == ALL_TO_ALL, at)
        seconds[k] *= x.itemsize * ROUNDED
    return seconds


@inner
def _gather_seconds(args: Array, is_each: bool, at: Entrances) -> float:
    """Of a byte an element: the longest that a device, or a host, takes to receive what it lacks.

    Args:
        is_each: source k goes to target k alone.
    """
    lacks, far = np.zeros(len(at.rate)), np.zeros(len(at.host_rate))
    targets = 0
    for t in range(len(args)):
        if args[t, 2] != TARGET:
            continue
        device, size = args[t, 0], _overlap(args[t], args[t])
        host = at.host[device]
        lacking, from_far, sources = size, size, 0
        for s in range(len(args)):
            if args[s, 2] != SOURCE:
                continue
            if not is_each or sources == targets:
                there = _overlap(args[t], args[s])
                lacking -= there if args[s, 0] == device else 0.0
                from_far -= there if at.host[args[s, 0]] == host else 0.0
            sources += 1
        targets += 1
        if is_each:
            lacks[device] += lacking
            far[host] += from_far
        else:
            lacks[device] = max(lacks[device], lacking)
            far[host] = max(far[host], from_far)
    return float(max((lacks / at.rate).max(), (far / at.host_rate).max()))


@inner
def _sum_seconds(args: Array, at: Entrances) -> float:
    """Of a byte an element: the longest of what devices, and hosts, take to receive: each, or all on average."""
    alone = np.arange(len(at.rate))
    of_hosts = _summed(args, at.host, at.host_rate, True)
    return max(_summed(args, alone, at.rate, at.adds[0]), of_hosts)


@inner
def _summed(args: Array, place: Array, rate: Array, adds: bool) -> float:
    """The same for places: devices or hosts; `place`: of every device, `rate`: of every place; `adds`: who adds."""
    longest, messages, rates = 0.0, 0.0, 0.0
    is_in = np.zeros(len(rate), np.bool_)
    for t in range(len(args)):
        here = place[args[t, 0]]
        if not is_in[here]:
            is_in[here] = True
            rates += rate[here]
        if args[t, 2] == TARGET:
            size, is_new, is_first = _overlap(args[t], args[t]), True, True
            for k in range(t):
                if args[k, 2] == TARGET and _overlap(args[k], args[t]) == size:
                    is_new = False
                    is_first &= place[args[k, 0]] != here
            holders, is_holding = _holders(args, t, place, len(rate))
            if holders > is_holding:
                longest = max(longest, size / rate[here])
            messages += size * (max(holders - 1, 0) if is_new else is_first)
    return max(longest, messages / rates) if adds else longest


@inner
def _holders(args: Array, t: int, place: Array, places: int) -> tuple[int, bool]:
    """In how many places there are partial results of all of target `t`, and whether there is one where that is."""
    size, has_part = _overlap(args[t], args[t]), np.zeros(places, np.bool_)
    for s in range(len(args)):
        if args[s, 2] == SOURCE and _overlap(args[t], args[s]) == size:
            has_part[place[args[s, 0]]] = True
    return has_part.sum(), has_part[place[args[t, 0]]]


@leaf
def _overlap(one: Array, other: Array) -> float:
    """Points that are in the boxes of both arguments."""
    points = 1.0
    for k in range(ARG_NUMBERS, len(one), 2):
        points *= max(min(one[k + 1], other[k + 1]) - max(one[k], other[k]), 0)
    return points
