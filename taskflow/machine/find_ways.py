"""Finding the ways of a machine: its parts, and the routes within each; equal parts find theirs once.

place without which there are parts ─► parts ─► routes of each, this place being one more device ─► `Ways`
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.grouping import grouped
from taskflow.machine.device import LINK_KINDS, Device, Link
from taskflow.machine.routes import find_routes, link_lengths
from taskflow.machine.ways import LinkColumns, Ways, are_apart


def find_ways(
    devices: Sequence[Device], links: Sequence[Link], barred: Collection[int | str] = ()
) -> Ways:
    """The ways of a machine, none of which leads over a place that is barred.

    A way has the fewest links; of those, it is the one that passes a megabyte soonest, then the one of the lowest link
    numbers. Devices pass transfers on as switches do, where no shorter way avoids them.

    Raises:
        ValueError: two devices have no way.
    """
    kept = [k for k, link in enumerate(links) if not {*link.ends} & {*barred}]
    if len(kept) < len(links):
        ways = find_ways(devices, [links[k] for k in kept])
        number = np.array([*kept, -1], np.int32)
        tables = {name: number[getattr(ways, name)] for name in ("within", "out", "into")}
        return replace(
            ways, **tables, link=_link_columns(links, *_ends_of(len(devices), links), len(devices))
        )
    count = len(devices)
    ends, places = _ends_of(count, links)
    length = link_lengths(links)
    parts = _parts(count, ends, places)
    try:
        within, out, into, place = _tables(parts, ends, length)
    except ValueError:
        # It names two devices by their places in a part; without parts it names them by their numbers.
        within, out, into, place = _tables(_one_part(count, places), ends, length)
    part = parts.of[:count]
    longest = int((within >= 0).sum(axis=2).max(initial=0))
    if out.size:
        longest = max(longest, _longest(part, out, into))
    return Ways(
        part,
        place,
        within,
        out,
        into,
        longest,
        _link_columns(links, ends, places, count),
        np.array([d.memory_bandwidth for d in devices]),
        np.array([d.sends_by_link for d in devices]) & (count > 1),
    )


def _ends_of(devices: int, links: Sequence[Link]) -> tuple[Array, int]:
    """(links, 2) places, those of devices first, and how many there are."""
    places: dict[int | str, int] = {device: device for device in range(devices)}
    ends = [[places.setdefault(end, len(places)) for end in link.ends] for link in links]
    return np.array(ends, np.int64).reshape(-1, 2), len(places)


class Parts(NamedTuple):
    """What a machine falls into without its centre.

    Attributes:
        of: (places,) the part of a place, numbered from 0; -1: the centre.
        centre: a place; -1: there is none, and one part.
        devices: how many; they are the first places.
    """

    of: Array
    centre: int
    devices: int


def _parts(devices: int, ends: Array, places: int) -> Parts:
    """The parts without the place that has the most links, if devices are in several then; else there is one part."""
    links = np.bincount(ends.reshape(-1), minlength=places)
    links[:devices] = -1
    centre = int(np.argmax(links))
    begin, end = ends[(ends != centre).all(axis=1)].T
    label = np.arange(places)
    before = np.full_like(label, -1)
    while (label != before).any():
        before = label.copy()
        least = np.minimum(label[begin], label[end])
        np.minimum.at(label, begin, least)
        np.minimum.at(label, end, least)
        label = label[label]
    label[centre] = -1 if centre >= devices else label[centre]
    if centre < devices or len(np.unique(label[:devices])) == 1:
        return _one_part(devices, places)
    _, of = np.unique(label, return_inverse=True)
    return Parts(of.reshape(-1) - 1, centre, devices)


def _one_part(devices: int, places: int) -> Parts:
    return Parts(np.zeros(places, np.int64), -1, devices)


def _tables(parts: Parts, ends: Array, length: Array) -> tuple[Array, Array, Array, Array]:
    """`within`, `out`, `into` and `place` of `Ways`."""
    of_link = parts.of[np.where(ends[:, 0] == parts.centre, ends[:, 1], ends[:, 0])]
    place_ptr, places = grouped(parts.of + 1, int(parts.of.max()) + 2)
    link_ptr, links = grouped(of_link, int(parts.of.max()) + 1)
    number = np.full(len(parts.of), -1)
    place = np.zeros(parts.devices, np.int64)
    routes_of = dict[bytes, Array]()
    routes = list[tuple[Array, Array, Array]]()
    for (a, b), (c, d) in zip(
        pairwise(place_ptr[1:].tolist()), pairwise(link_ptr.tolist()), strict=True
    ):
        members = places[a:b]
        inside = links[c:d]
        devices = members[members < parts.devices]
        order = [*devices, *([parts.centre] if parts.centre >= 0 else []), *members[len(devices) :]]
        number[order], place[devices] = np.arange(len(order)), np.arange(len(devices))
        shape = len(devices), number[ends[inside]], length[inside]
        key = b" ".join(np.asarray(column).tobytes() for column in shape)
        if key not in routes_of:
            routes_of[key] = find_routes(len(devices) + (parts.centre >= 0), *shape[1:])
        routes.append((devices, inside, routes_of[key]))
    return *_joined(parts, routes), place


def _joined(
    parts: Parts, routes: Sequence[tuple[Array, Array, Array]]
) -> tuple[Array, Array, Array]:
    """`within`, `out` and `into`, of the devices and links of every part, and its routes in numbers of these links."""
    most, hops = max(len(d) for d, *_ in routes), max(r.shape[2] for *_, r in routes)
    within = np.full((parts.devices, most, hops), -1, np.int32)
    out, into = (np.full((parts.devices, hops * (parts.centre >= 0)), -1, np.int32) for _ in "oi")
    for devices, links, route in routes:
        named = np.append(links, -1)[route]
        count = len(devices)
        width = route.shape[2]
        within[devices, :count, :width] = named[:count, :count]
        if parts.centre >= 0:
            out[devices, :width], into[devices, :width] = named[:count, count], named[count, :count]
    return within, out, into


def _longest(part: Array, out: Array, into: Array) -> int:
    """The most links on the way from one part to another."""
    hops = np.stack([(out >= 0).sum(axis=1), (into >= 0).sum(axis=1)])
    kinds, kind = np.unique(hops, axis=1, return_inverse=True)
    both = kinds[0][:, None] + kinds[1]
    return int(both[are_apart(kind.reshape(-1), part)].max())


def _link_columns(links: Sequence[Link], ends: Array, places: int, devices: int) -> LinkColumns:
    ptr, by_end = grouped(ends[:, 1], places)
    door = np.zeros(len(links) + 1, np.int32)
    door[by_end] = np.arange(len(links)) - ptr[ends[by_end, 1]]
    begin, end = np.append(np.where(ends < devices, ends, -1), [[-1, -1]], axis=0).T
    return LinkColumns(
        np.array([*(link.latency_seconds for link in links), 0.0]),
        np.array([*(link.rate for link in links), np.inf]),
        begin,
        end,
        door,
        np.array([*(LINK_KINDS.index(link.kind) for link in links), 0], np.int8),
    )
