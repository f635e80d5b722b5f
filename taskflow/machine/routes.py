"""Routes: a shortest way over links from each device to each other, all at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskflow.core.columns import Array
from taskflow.machine.device import Link

_ENTRIES = 1 << 18  # links x targets that are relaxed together: what a cache holds


def number_places(devices: int, links: Sequence[Link]) -> tuple[Array, dict[int | str, int]]:
    """(links, 2) numbers of the places where links end, and the number of each; those of devices are the first ones."""
    places: dict[int | str, int] = {device: device for device in range(devices)}
    ends = [[places.setdefault(end, len(places)) for end in link.ends] for link in links]
    return np.array(ends, np.int64).reshape(-1, 2), places


def find_routes(devices: int, ends: Array, length: Array) -> Array:
    """(devices, devices, longest) numbers of the links on the way from one device to another, -1 behind the last.

    A route has the fewest links; of those, the ones that pass a megabyte soonest, then the lowest link numbers. Devices
    pass transfers on as switches do, where no shorter way avoids them.

    Distances to every device are relaxed over all links together (Bellman-Ford), then all pairs walk along the best
    link of each place.

    Args:
        devices: how many.
        ends: (links, 2) places; those of devices are the first ones.
        length: of every link, see `link_lengths`.

    Raises:
        ValueError: two devices have no route.
    """
    width = max(1, _ENTRIES // max(len(ends), 1))
    blocks = np.split(np.arange(devices), range(width, devices, width))
    parts = [_routes_to(targets, ends, length, devices) for targets in blocks]
    routes = np.full((devices, devices, max(map(len, parts))), -1, np.int32)
    for targets, part in zip(blocks, parts, strict=True):
        for hop, taken in enumerate(part):
            routes[:, targets, hop] = taken
    return routes


def link_lengths(links: Sequence[Link]) -> Array:
    """What each link adds to the length of a route: 1, and less than 1 on any route for the time that it takes."""
    seconds = np.array([link.latency_seconds + 1e6 / link.rate for link in links])
    lengths: Array = 1.0 + seconds / (1.0 + seconds.sum())
    return lengths


def _routes_to(targets: Array, ends: Array, length: Array, devices: int) -> list[Array]:
    """Per hop the (devices, targets) links taken, -1 where the target is reached."""
    first = first_links(targets, ends, length, max(devices, int(ends.max(initial=0)) + 1))
    place = np.repeat(np.arange(devices)[:, None], len(targets), axis=1)
    hops = []
    while (is_on_the_way := place != targets).any():
        taken = np.where(is_on_the_way, first[place, np.arange(len(targets))], -1)
        for source, target in np.argwhere(is_on_the_way & (taken < 0)).tolist():
            raise ValueError(f"no route from device {source} to device {targets[target]}")
        place = np.where(is_on_the_way, ends[taken, 1], place)
        hops.append(taken)
    return hops


def first_links(targets: Array, ends: Array, length: Array, places: int) -> Array:
    """(places, targets): the link by which a shortest route starts; -1 where there is none."""
    distance = np.full((places, len(targets)), np.inf)
    distance[targets, np.arange(len(targets))] = 0.0
    first = np.full(distance.shape, -1, np.int64)
    if not len(ends):
        return first
    order = np.argsort(ends[:, 0], kind="stable")
    tails, starts, counts = np.unique(ends[order, 0], return_index=True, return_counts=True)
    heads = ends[order, 1]
    length = length[order, None]
    while True:
        through = distance[heads] + length
        nearest = np.minimum.reduceat(through, starts)
        if not (is_nearer := nearest < distance[tails]).any():
            break
        distance[tails] = np.where(is_nearer, nearest, distance[tails])
    is_best = np.isfinite(through) & (through == np.repeat(nearest, counts, axis=0))
    best = np.minimum.reduceat(np.where(is_best, order[:, None], len(ends)), starts)
    first[tails] = np.where(best < len(ends), best, -1)
    return first
