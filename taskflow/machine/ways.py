"""Ways: which links a transfer from one device to another occupies, without a table of all pairs of devices.

A place without which a machine falls into parts (a network that joins hosts) lies on every way from one part to
another. So a way is one within a part, or one out to this place and one in from it.

    part 0 ─ out ─► network ─ in ─► part 1          4,096 devices: 4,096 ways out and in, 512 parts of 8 x 8

`find_ways` finds those of a machine; those of some of its devices are part of these (`Ways.only`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taskflow.core.columns import Array, spread
from taskflow.core.compiling import leaf, tiered
from taskflow.core.grouping import grouped


@dataclass(frozen=True, eq=False)
class LinkColumns:
    """Facts of every link, and behind them of none, which is number -1.

    Attributes:
        latency, bandwidth: seconds, of none 0; bytes/s, of none without limit.
        begin, end: the devices where it begins and ends; -1: that is none.
        door: its number among the links that end where it does.
        kind: of `LINK_KINDS`, by number.
    """

    latency: Array
    bandwidth: Array
    begin: Array
    end: Array
    door: Array
    kind: Array

    def evened(self, load: Array) -> Array:
        """What crosses links, in equal parts on those that are alike: of equal rates, from and to devices or not."""
        mean: Array = (np.bincount(self._alike, load) / np.bincount(self._alike))[self._alike]
        return mean

    @cached_property
    def _alike(self) -> Array:
        """Of every link, a number that those have that are alike."""
        ends = self.begin >= 0, self.end >= 0
        facts = np.stack([*ends, self.latency.view(np.int64), self.bandwidth.view(np.int64)])
        return np.unique(facts[:, :-1], axis=1, return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True, eq=False)
class Ways:
    """See the module. Arrays of links are filled up with -1.

    Attributes:
        part: (devices,) of the machine, numbered from 0.
        place: (devices,) of a device in its part.
        within: (devices, places, n) links to the device at a place of the same part.
        out, into: (devices, n) links to the place between the parts, and from it; n is 0 where there is one part.
        longest: no way has more links.
        link: facts of links.
        memory_bandwidth: (devices,).
        has_doors: (devices,) whether what comes by several links waits in a queue for each.
    """

    part: Array
    place: Array
    within: Array
    out: Array
    into: Array
    longest: int
    link: LinkColumns
    memory_bandwidth: Array
    has_doors: Array

    def links(self, source: Array, target: Array) -> Array:
        """(..., longest) links from some devices to others."""
        source, target = np.broadcast_arrays(source, target)
        is_near = self.part[source] == self.part[target]
        if is_near.all():
            return self._padded(self.within[source, self.place[target]])
        paths = self.across(source, target)
        paths[is_near] = self._padded(self.within[source[is_near], self.place[target[is_near]]])
        return paths

    def across(self, source: Array, target: Array) -> Array:
        """The same by way of the place between the parts, whichever part they are in."""
        source, target = np.broadcast_arrays(source, target)
        paths = self._padded(self.out[source])
        hops = (self.out >= 0).sum(axis=1)[source].reshape(-1)
        flat = paths.reshape(len(hops), self.longest)
        for links in np.moveaxis(self.into[target], -1, 0).reshape(-1, len(hops)):
            pairs = np.flatnonzero((links >= 0) & (hops < self.longest))
            flat[pairs, hops[pairs]] = links[pairs]
            hops += links >= 0
        return paths

    def latency(self, source: Array, target: Array) -> Array:
        """Seconds: those of the links on the way added up."""
        return self.latency_of(self.links(source, target))

    def latency_of(self, links: Array) -> Array:
        """The same of the links of ways."""
        total: Array = self.link.latency[links].sum(axis=-1)
        return total

    def bandwidth(self, source: Array, target: Array) -> Array:
        """Bytes/s of the narrowest link on the way; within a device, of its memory."""
        return self.bandwidth_along(self.links(source, target), source, target)

    def bandwidth_along(self, links: Array, source: Array, target: Array) -> Array:
        """The same, given the links from some devices to others."""
        narrowest = self.bandwidth_of(links)
        return np.where(np.equal(source, target), self.memory_bandwidth[source], narrowest)

    def bandwidth_of(self, links: Array) -> Array:
        """The same of the links of ways, which lead to another device."""
        narrowest: Array = self.link.bandwidth[links].min(axis=-1, initial=np.inf)
        return narrowest

    def doors(self, source: Array, target: Array) -> Array:
        """By which of its links a transfer comes to a device, from 0; 0 if that has one queue."""
        return self.doors_along(self.links(source, target), target)

    def doors_along(self, links: Array, target: Array) -> Array:
        """The same, given the links from some devices to others."""
        if not self.has_doors.any():
            return np.zeros(links.shape[:-1], np.int32)
        last, *others = np.moveaxis(links, -1, 0).copy()
        for hop in others:
            np.copyto(last, hop, where=hop >= 0)
        return np.where(self.has_doors[target], self.link.door[last], np.int32(0))

    def door(self, source: int, target: int) -> int:
        """The same of one transfer between two devices."""
        if not self.has_doors[target]:
            return 0
        is_near = self.part[source] == self.part[target]
        links = self.within[source, self.place[target]] if is_near else self.into[target]
        return int(self.link.door[links[links >= 0][-1]])

    @property
    def most_doors(self) -> int:
        """By so many links transfers come to a device."""
        most = self.doors(*near_pairs(self.part)).max(initial=0)
        if self.into.size:
            last = np.take_along_axis(self.into, (self.into >= 0).sum(axis=1)[:, None] - 1, axis=1)
            most = self.link.door[last[:, 0]][self.has_doors].max(initial=most)
        return 1 + int(most)

    @property
    def least_latency(self) -> float:
        """Seconds: the least of all transfers that have one; without end, if none has."""
        near = self.latency(*near_pairs(self.part))
        kind, first = self.outer_kinds()
        far = self.latency_of(self.across(first[:, None], first))[are_apart(kind, self.part)]
        both = np.concatenate([near, far])
        return float(both.min(initial=np.inf, where=both > 0))

    @property
    def has_relays(self) -> bool:
        """Whether a device passes on what others send to each other."""
        is_passed = self.link.end[self.out] >= 0
        for links in (self.within, self.into):
            ends_there = (self.link.end[links[..., :-1]] >= 0) & (links[..., 1:] >= 0)
            is_passed = np.append(is_passed, ends_there)
        return bool(is_passed.any())

    def outer_kinds(self) -> tuple[Array, Array]:
        """Of every device the kind of its ways out and in, by their links' rates; the first device of each kind."""
        links = np.concatenate([self.out, self.into], axis=1)
        rates = np.concatenate([self.link.latency[links], self.link.bandwidth[links]], axis=1)
        words = np.column_stack([rates.view(np.int64), (links >= 0).sum(axis=1)])
        _, first, kind = np.unique(words, axis=0, return_index=True, return_inverse=True)
        return kind.reshape(-1), first

    def only(self, devices: Array) -> tuple[Ways, Array]:
        """The ways among some devices, which have their places there as numbers, and the links that these take.

        Links are numbered in the order in which pairs of devices first use them; ends and doors count at these devices
        alone. So ways that look alike are equal, wherever their devices are.
        """
        _, first, part = np.unique(self.part[devices], return_index=True, return_inverse=True)
        part = np.argsort(np.argsort(first))[part.reshape(-1)]
        place = place_in(part)
        within = self._within(devices, part, place)
        crossing = [t[devices] if len(first) > 1 else t[devices, :0] for t in (self.out, self.into)]
        rank = np.full(len(self.link.end), -1, np.int32)
        used = np.empty(_rank_links(part, place, within, *crossing, rank), np.int64)
        used[rank[rank >= 0]] = np.flatnonzero(rank >= 0)
        return Ways(
            part,
            place,
            rank[within],
            rank[crossing[0]],
            rank[crossing[1]],
            self.longest,
            self._columns_of(devices, np.append(used, -1)),
            self.memory_bandwidth[devices],
            self.has_doors[devices],
        ), used

    def _within(self, devices: Array, part: Array, place: Array) -> Array:
        """`within` among some devices, of which these are the parts and places."""
        one, other = near_pairs(part)
        within = np.full((len(devices), int(place.max()) + 1, self.within.shape[2]), -1, np.int32)
        within[one, place[other]] = self.within[devices[one], self.place[devices[other]]]
        return within

    def _columns_of(self, devices: Array, links: Array) -> LinkColumns:
        """Facts of some links, the last of which is none, among some devices."""
        number = np.full(len(self.part) + 1, -1)
        number[devices] = np.arange(len(devices))
        begin = number[self.link.begin[links]]
        end = number[self.link.end[links]]
        door = np.where(end >= 0, self.link.door[links], np.int32(0))
        facts = self.link.latency[links], self.link.bandwidth[links]
        return LinkColumns(*facts, begin, end, door, self.link.kind[links])

    def moved(self, devices: Array, by: int) -> Array | None:
        """Of each link of ways among some devices, that of like ways where numbers are by so many more; others: -1.

        None: there are no such devices, or their ways are unlike.
        """
        if not len(devices) or devices.min() + by < 0 or devices.max() + by >= len(self.part):
            return None
        (here, links) = self.only(devices)
        (there, others) = self.only(devices + by)
        if not all(map(np.array_equal, here.columns, there.columns)):
            return None
        twin = np.full(len(self.link.end), -1)
        twin[links] = others
        return twin

    @property
    def columns(self) -> tuple[Array, ...]:
        """All that there is to know of them."""
        tables = self.part, self.place, self.within, self.out, self.into
        return *tables, *vars(self.link).values(), self.memory_bandwidth, self.has_doors

    def _padded(self, links: Array) -> Array:
        padded = np.full((*links.shape[:-1], self.longest), -1, np.int32)
        width = min(self.longest, links.shape[-1])
        padded[..., :width] = links[..., :width]
        return padded


def place_in(group: Array) -> Array:
    """Of everything its place among what is in its group, of which these are the numbers."""
    ptr, members = grouped(group, int(group.max(initial=0)) + 1)
    place = np.empty(len(group), np.int64)
    place[members] = np.arange(len(group)) - ptr[group[members]]
    return place


def near_pairs(part: Array) -> tuple[Array, Array]:
    """All pairs of devices of one part, ascending; `part`: of every device, numbered from 0."""
    ptr, by_part = grouped(part, int(part.max()) + 1)
    size = np.diff(ptr)[part]
    return np.repeat(np.arange(len(part)), size), by_part[spread(ptr[part], size)]


def are_apart(kind: Array, part: Array) -> Array:
    """(kinds, kinds) whether there are two devices of these kinds in different parts."""
    is_there = np.zeros((int(kind.max()) + 1, int(part.max()) + 1), np.int64)
    is_there[kind, part] = 1
    together = is_there @ is_there.T
    parts = is_there.sum(axis=1)
    apart: Array = (parts[:, None] > 1) | (parts > 1) | (together == 0)
    return apart


@tiered
def _rank_links(
    part: Array, place: Array, within: Array, out: Array, into: Array, rank: Array
) -> int:
    """Set the ranks of links, which are -1, by their first use of all pairs of devices; how many there are."""
    count = 0
    is_seen = np.zeros(len(part), np.bool_)
    for source in range(len(part)):
        is_out = False
        for target in range(len(part)):
            if part[source] == part[target]:
                count = _rank(within[source, place[target]], rank, count)
                continue
            if not is_out:
                count = _rank(out[source], rank, count)
                is_out = True
            if not is_seen[target]:
                count = _rank(into[target], rank, count)
                is_seen[target] = True
    return count


@leaf
def _rank(links: Array, rank: Array, count: int) -> int:
    for link in links:
        if link >= 0 and rank[link] < 0:
            rank[link] = count
            count += 1
    return count
