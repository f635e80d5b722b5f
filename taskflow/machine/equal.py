"""Equal devices: any two can change places, and no transfer takes another time.

Decides in which order devices stand for whoever has to tell equal ones apart. Their numbers never do: equal devices,
and equal hosts, stand in the order in which they are named; unequal ones in the order of their numbers, since
neighbours in a mesh have numbers side by side. So other names of equal devices change names and nothing else.

    names 5 2 4, hosts (0 1) (2 3) (4 5), all equal   ->   5 4 | 2

Devices are compared by hashes of 64 bits. What is equal always is found to be; what is found to be equal by chance
stands in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers, spread
from taskflow.core.compiling import tiered
from taskflow.core.grouping import group, grouped
from taskflow.machine.device import Device, Link
from taskflow.machine.routes import number_places
from taskflow.machine.ways import Ways, near_pairs, place_in


class Equals(NamedTuple):
    """Which devices are equal; (devices,) each.

    Attributes:
        host: the host of a device, numbered from 0.
        host_kind: the first host that equals its host.
        kind: the first device that equals it, by its place on the host; the same on equal hosts.
    """

    host: Array
    host_kind: Array
    kind: Array


@tiered
def in_order(names: Array, equals: tuple[Array, Array, Array]) -> Array:
    """The devices that are named, each once, those of a host side by side; see the module for their order."""
    host, host_kind, kind = equals
    is_named = np.zeros(len(host), np.bool_)
    host_number = np.full(host.max() + 1, -1, np.int64)
    devices = np.empty(len(names), np.int64)
    count = 0
    hosts = 0
    for device in names:
        if is_named[device]:
            continue
        is_named[device] = True
        devices[count] = device
        count += 1
        if host_number[host[device]] < 0:
            host_number[host[device]] = hosts
            hosts += 1
    devices = devices[:count]
    devices = devices[group(kind[devices], kind.max() + 1)[1]]
    devices = devices[group(host_number[host[devices]], hosts)[1]]
    return devices[group(host_kind[devices], host_kind.max() + 1)[1]]


class _Hashed(NamedTuple):
    """Hashes of ways between devices: `across` by the kinds of both, and `more` of pairs in one part of the machine.

    Attributes:
        alone: of every device, its hash.
        kind: of every device, that of its ways out of its part.
        across: (kinds, kinds).
        one, other, more: pairs of devices, and what theirs is besides `across`.
    """

    alone: Array
    kind: Array
    across: Array
    one: Array
    other: Array
    more: Array


def find_equals(devices: Sequence[Device], ways: Ways) -> Equals:
    """Which devices are equal.

    Hashes of ways are summed over all pairs. Of devices in different parts of the machine they depend on the ways out
    and in alone, which are of few kinds; so only pairs within a part are looked at one by one.
    """
    host = np.unique([d.host for d in devices], return_inverse=True)[1].reshape(-1)
    place = place_in(host)
    of_host, of_place, of_source = _odd_numbers(3, len(devices))
    hashed = _hash_ways(devices, ways)
    way = _ways_of_hosts(hashed, host, of_source[place], of_place[place])
    code = of_host[: len(way)]
    kind = _kinds_on_hosts(ways, hashed, host, of_host[host] * of_place[place])
    return Equals(host, _kinds(way, way @ code, code)[host], kind)


def _hash_ways(devices: Sequence[Device], ways: Ways) -> _Hashed:
    alone = _hashes_of(devices)
    kind, first = ways.outer_kinds()
    across = _both(ways, first[:, None], first, ways.across)
    one, other = near_pairs(ways.part)
    more = _way(ways, alone, one, other) - across[kind[one], kind[other]]
    return _Hashed(alone, kind, across, one, other, more)


def _kinds_on_hosts(ways: Ways, hashed: _Hashed, host: Array, code: Array) -> Array:
    """Of every device the place of the first one of its host that equals it, by their codes; see `_kinds`."""
    total = (hashed.across @ _sums(hashed.kind, code))[hashed.kind] + _sums(
        hashed.one, hashed.more * code[hashed.other]
    )
    ptr, order = grouped(host, int(host.max()) + 1)
    size = np.diff(ptr)
    kind = np.empty(len(code), np.int64)
    sizes = np.repeat(size, size)
    one = np.repeat(order, sizes)
    other = order[spread(np.repeat(ptr[:-1], size), sizes)]
    tables = np.split(_way(ways, hashed.alone, one, other), pointers(size**2)[1:-1])
    for members, table in zip(np.split(order, ptr[1:-1]), tables, strict=True):
        kind[members] = _kinds(table.reshape(len(members), -1), total[members], code[members])
    return kind


def _ways_of_hosts(hashed: _Hashed, host: Array, sent: Array, got: Array) -> Array:
    """(hosts, hosts) the ways from one to another, times the codes of their devices."""
    hosts = int(host.max()) + 1
    kinds = len(hashed.across)
    cell = host * kinds + hashed.kind
    source, target = (
        _sums(cell, code, hosts * kinds).reshape(hosts, kinds) for code in (sent, got)
    )
    pairs = host[hashed.one] * hosts + host[hashed.other]
    near = _sums(pairs, hashed.more * sent[hashed.one] * got[hashed.other], hosts * hosts)
    way: Array = source @ hashed.across @ target.T + near.reshape(hosts, hosts)
    return way


def _sums(key: Array, values: Array, count: int = 0) -> Array:
    """The sums of the values of every key, modulo 2^64."""
    sums = np.zeros(max(count, int(key.max()) + 1), np.uint64)
    np.add.at(sums, key, values)
    return sums


def _way(ways: Ways, alone: Array, one: Array, other: Array) -> Array:
    """Hashes of the ways between pairs of devices, in both directions; of a device and itself, of the device."""
    hashes = _both(ways, one, other, ways.links)
    is_own = one == other
    hashes[is_own] = alone[one[is_own]] * (_odd_numbers(3)[2] + np.uint64(1))
    return hashes


def _both(ways: Ways, one: Array, other: Array, links_of: Callable[[Array, Array], Array]) -> Array:
    """Hashes of the ways between pairs of devices, in both directions."""
    a, b, c = _odd_numbers(3)
    there = _hashes(ways, links_of(one, other), a, b)
    both: Array = there + c * _hashes(ways, links_of(other, one), a, b)
    return both


def _hashes(ways: Ways, links: Array, a: np.uint64, b: np.uint64) -> Array:
    """Of the latency and the bandwidth of ways."""
    way = ways.latency_of(links).view(np.uint64) * a + ways.bandwidth_of(links).view(np.uint64) * b
    way = (way ^ (way >> np.uint64(32))) * a  # so that all bits count
    mixed: Array = way ^ (way >> np.uint64(29))
    return mixed


def _odd_numbers(*shape: int) -> Array:
    """Always the same."""
    return np.random.default_rng(0).integers(0, 1 << 63, shape, np.uint64) * 2 + 1


def _kinds(way: Array, total: Array, code: Array) -> Array:
    """Of every place the first one that can change places with it.

    Two can where their ways to each other are alike, and so are those to any third one: where these are summed by
    codes of the others, the sums differ by what stands at their own codes alone.

    Args:
        way: (n, n) what tells one from another, and on the diagonal what tells it.
        total: (n,) of all ways, those to places beyond the n included, times their codes.
        code: (n,).
    """
    itself = way.diagonal()
    left = way[~np.eye(len(way), dtype=np.bool_)]
    kinds = np.arange(len(way))
    while len(left):
        alike = total + code * (left[0] - itself) + itself * itself
        _, first, number = np.unique(alike, return_index=True, return_inverse=True)
        kinds = np.minimum(kinds, first[number.reshape(-1)])
        left = left[left != left[0]]
    return kinds


def _hashes_of(devices: Sequence[Device]) -> Array:
    """Of all but their hosts."""
    hash_of = dict[tuple[object, ...], int]()
    hashes = np.empty(len(devices), np.uint64)
    for k, device in enumerate(devices):
        if (key := device.alone) not in hash_of:
            text = repr(replace(device, host=0)).encode()
            hash_of[key] = int.from_bytes(blake2b(text, digest_size=8).digest())
        hashes[k] = hash_of[key]
    return hashes


def find_colours(devices: Sequence[Device], links: Sequence[Link]) -> Array:
    """Numbers of the devices, equal where these and all that their links lead to have equal rates.

    Colour refinement: places are apart where links of other rates, or places of other colours, are around them.
    """
    ends, places = number_places(len(devices), links)
    ends = np.concatenate([ends, ends[:, ::-1]])
    way = 2 * _numbered([(link.rate, link.latency_seconds, link.kind) for link in links])
    way = np.append(way, way + 1)
    colour = np.full(len(places), -1)
    colour[: len(devices)] = rates_of(devices)
    count = 0
    while (colours := len(np.unique(colour))) > count:
        count = colours
        colour = _refined(colour, ends, way)
    return colour[: len(devices)]


def _refined(colour: Array, ends: Array, way: Array) -> Array:
    """Colours by which places differ, too, whose `way` out leads to places of others."""
    order = np.lexsort((colour[ends[:, 1]], way, ends[:, 0]))
    seen = np.stack([way[order], colour[ends[order, 1]]], axis=1)
    begin = np.searchsorted(ends[order, 0], np.arange(len(colour) + 1)).tolist()
    around = [seen[a:b].tobytes() for a, b in pairwise(begin)]
    return _numbered(list(zip(colour.tolist(), around, strict=True)))


def rates_of(devices: Sequence[Device]) -> Array:
    """(devices,) numbers, equal where all of devices but their hosts is."""
    return _numbered([device.alone for device in devices])


def _numbered(values: Sequence[object]) -> Array:
    """Equal values have the same number."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
