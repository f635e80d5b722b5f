"""Finding the ways of a machine: its parts, and the routes within each; equal parts find theirs once.

place without which there are parts ─► parts ─► routes of each, this place being one more device ─► `Ways`
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.grouping import grouped
from taskflow.machine.device import LINK_KINDS, Device, Link
from taskflow.machine.routes import find_routes, link_lengths, number_places
from taskflow.machine.ways import LinkColumns, Ways, are_apart, place_in


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
    if len(kept) == len(links):
        return _ways_of(devices, links)
    ways = _ways_of(devices, [links[k] for k in kept])
    number = np.array([*kept, -1], np.int32)
    return replace(
        ways,
        within=number[ways.within],
        out=number[ways.out],
        into=number[ways.into],
        link=_link_columns(links, number_places(len(devices), links)[0], len(devices)),
    )


def _ways_of(devices: Sequence[Device], links: Sequence[Link]) -> Ways:
    ends, places = number_places(len(devices), links)
    parts = _parts(len(devices), ends, len(places))
    try:
        tables = _tables(parts, ends, link_lengths(links))
    except ValueError:
        # It names two devices by their places in a part; without parts it names them by their numbers.
        tables = _tables(_one_part(len(devices), len(places)), ends, link_lengths(links))
    part = parts.of[: len(devices)]
    longest = int((tables.within >= 0).sum(axis=2).max(initial=0))
    if tables.out.size:
        longest = max(longest, _longest(part, tables.out, tables.into))
    return Ways(
        part,
        *tables,
        longest,
        _link_columns(links, ends, len(devices)),
        np.array([d.memory_bandwidth for d in devices]),
        np.array([d.sends_by_link for d in devices]) & (len(devices) > 1),
    )


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


class _WayTables(NamedTuple):
    """These columns of `Ways`."""

    place: Array
    within: Array
    out: Array
    into: Array


def _parts(devices: int, ends: Array, places: int) -> Parts:
    """The parts without the place that has the most links, if devices are in several then; else there is one part."""
    links = np.bincount(ends.reshape(-1), minlength=places)
    links[:devices] = -1
    centre = int(np.argmax(links))
    label = _components(ends[(ends != centre).all(axis=1)], places)
    label[centre] = -1 if centre >= devices else label[centre]
    if centre < devices or len(np.unique(label[:devices])) == 1:
        return _one_part(devices, places)
    _, of = np.unique(label, return_inverse=True)
    return Parts(of.reshape(-1) - 1, centre, devices)


def _components(ends: Array, places: int) -> Array:
    """Numbers of places, equal where links join them."""
    begin, end = ends.T
    label = np.arange(places)
    before = np.full_like(label, -1)
    while (label != before).any():
        before = label.copy()
        least = np.minimum(label[begin], label[end])
        np.minimum.at(label, begin, least)
        np.minimum.at(label, end, least)
        label = label[label]
    return label


def _one_part(devices: int, places: int) -> Parts:
    return Parts(np.zeros(places, np.int64), -1, devices)


def _tables(parts: Parts, ends: Array, length: Array) -> _WayTables:
    """The routes of every part, those of equal ones found once: its devices come first, then the centre."""
    number = place_in(parts.of + 1)
    number[parts.devices :] += parts.centre >= 0
    routes_of = dict[tuple[int, bytes, bytes], Array]()
    routes = list[tuple[Array, Array, Array]]()
    for devices, inside in _by_part(parts, ends):
        number[parts.centre] = len(devices) if parts.centre >= 0 else number[parts.centre]
        shape = number[ends[inside]], length[inside]
        key = len(devices), shape[0].tobytes(), shape[1].tobytes()
        if key not in routes_of:
            routes_of[key] = find_routes(len(devices) + (parts.centre >= 0), *shape)
        routes.append((devices, inside, routes_of[key]))
    return _WayTables(number[: parts.devices], *_joined(parts, routes))


def _by_part(parts: Parts, ends: Array) -> Iterator[tuple[Array, Array]]:
    """The devices and the links of every part."""
    count = int(parts.of.max()) + 1
    of_link = parts.of[np.where(ends[:, 0] == parts.centre, ends[:, 1], ends[:, 0])]
    device_ptr, devices = grouped(parts.of[: parts.devices], count)
    link_ptr, links = grouped(of_link, count)
    yield from zip(
        np.split(devices, device_ptr[1:-1]), np.split(links, link_ptr[1:-1]), strict=True
    )


def _joined(
    parts: Parts, routes: Sequence[tuple[Array, Array, Array]]
) -> tuple[Array, Array, Array]:
    """`within`, `out` and `into`, of the devices and links of every part, and its routes in numbers of these links."""
    most = max(len(devices) for devices, *_ in routes)
    hops = max(route.shape[2] for *_, route in routes)
    within = np.full((parts.devices, most, hops), -1, np.int32)
    out = np.full((parts.devices, hops * (parts.centre >= 0)), -1, np.int32)
    into = out.copy()
    for devices, links, route in routes:
        named = np.append(links, -1)[route]
        count = len(devices)
        width = route.shape[2]
        within[devices, :count, :width] = named[:count, :count]
        if parts.centre >= 0:
            out[devices, :width] = named[:count, count]
            into[devices, :width] = named[count, :count]
    return within, out, into


def _longest(part: Array, out: Array, into: Array) -> int:
    """The most links on the way from one part to another."""
    hops = np.stack([(out >= 0).sum(axis=1), (into >= 0).sum(axis=1)])
    kinds, kind = np.unique(hops, axis=1, return_inverse=True)
    both = kinds[0][:, None] + kinds[1]
    return int(both[are_apart(kind.reshape(-1), part)].max())


def _link_columns(links: Sequence[Link], ends: Array, devices: int) -> LinkColumns:
    begin, end = np.append(np.where(ends < devices, ends, -1), [[-1, -1]], axis=0).T
    return LinkColumns(
        np.array([*(link.latency_seconds for link in links), 0.0]),
        np.array([*(link.rate for link in links), np.inf]),
        begin,
        end,
        np.append(place_in(ends[:, 1]), 0).astype(np.int32),
        np.array([*(LINK_KINDS.index(link.kind) for link in links), 0], np.int8),
    )
