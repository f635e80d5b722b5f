"""What devices receive of a version of a region at least, compiled by numba; see `sketch`.

Where points each make a part of their own, and few devices read a box, each part is copied from where it is made, as
`deliver` does. What more devices read alike may be gathered in one row, and what they sum is one (`collective`): its
seconds are those of the best algorithm, and every algorithm of `collective.price` takes at least

    (bytes moved in all) / (devices that take part) / (the fastest transfer of the machine).

Where it is not certain which rows there will be, nothing is said to be received.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inner, leaf
from taskflow.cost.model import Rates
from taskflow.lowering.boxes import overlaps, same, volume
from taskflow.lowering.life import RegionLife
from taskflow.lowering.tiles import Points, by_number, tiles_of
from taskflow.searching.cases import arrival_rates
from taskflow.tasks.streams import StreamSets


class Links(NamedTuple):
    """What transfers take.

    Attributes:
        hosts: of every device.
        few_sums, few_gathers: so many devices sum, and gather, row by row.
        exchanges: whether copies may be one row, of any algorithm.
        latency, throughput: (devices, devices).
        least_latency, best: per device, of all that it can receive from.
        fastest: throughput of all transfers.
        set_ptr, stream, hop_ptr, hop, first_stream: see `streams.StreamSets`; streams: how many there are.
        receiving: of every device, the set of the stream in which it receives.
    """

    hosts: Array
    few_sums: int
    few_gathers: int
    exchanges: int
    latency: Array
    throughput: Array
    least_latency: Array
    best: Array
    fastest: float
    set_ptr: Array
    stream: Array
    hop_ptr: Array
    hop: Array
    first_stream: int
    streams: int
    receiving: Array


def links_of(
    rates: Rates, hosts: Array, few: tuple[int, int, int], sets: StreamSets, of_device: Array
) -> Links:
    """See `Links` and `StreamTable.of_device`.

    Where a device sends by link, several links bring what it needs, and nothing is certain.
    """
    compute, receiving, _, sending, _ = of_device
    if ((sending < 0) & (receiving != compute)).any():
        rates = rates._replace(
            latency=0 * rates.latency, throughput=np.full_like(rates.throughput, np.inf)
        )
    (ptr, stream, hop_ptr, hop), first = sets.columns, sets.first_stream
    least, best = arrival_rates(rates)
    of_links = rates.latency, rates.throughput, least, best, float(best.max())
    occupied = ptr[: first + 1].copy(), stream[: ptr[first]].copy()
    loaded = hop_ptr[: first + 1].copy(), hop[: hop_ptr[first]].copy()
    return Links(
        hosts,
        few[0],
        few[1],
        few[2],
        *of_links,
        *occupied,
        *loaded,
        first,
        sets.count,
        first + receiving,
    )


class LoadedRegion(NamedTuple):
    """The life of a region and the points of all its events (see `life.load`)."""

    life: RegionLife
    points: Points


class Made(NamedTuple):
    """The points that make a version: first and last, in order of devices, and whether no two make the same part."""

    begin: int
    end: int
    order: Array
    first: Array
    is_unique: bool
    is_summed: bool


class LackingParts(NamedTuple):
    """What the needs lack, and who makes it.

    Attributes:
        lack: elements that no point on the same device makes.
        ptr, source, size: per need, the points on other devices that make something of it, in order, and how many
            elements; only where no two make the same part.
        seconds: memory for how long a copy of each takes, see `copies`.
    """

    lack: Array
    ptr: Array
    source: Array
    size: Array
    seconds: Array


@leaf
def shared(a: Array, b: Array) -> int:
    """Number of points that two boxes share."""
    points = 1
    for k in range(0, len(a), 2):
        extent = min(a[k + 1], b[k + 1]) - max(a[k], b[k])
        if extent <= 0:
            return 0
        points *= extent
    return points


@leaf
def twin(x: LoadedRegion, e: int) -> int:
    """The first event that reads the same boxes of the same version on the same devices, or `e` itself."""
    count = x.life.event_ptr[e + 1] - x.life.event_ptr[e]
    for other in range(e):
        is_same = (
            x.life.event[other].version == x.life.event[e].version
            and x.life.event_ptr[other + 1] - x.life.event_ptr[other] == count
        )
        a, b = x.life.event_ptr[other], x.life.event_ptr[e]
        for i in range(count if is_same else 0):
            is_same = is_same and x.points.device[a + i] == x.points.device[b + i]
        for i in range(count if is_same else 0):
            is_same = is_same and same(x.points.box[a + i], x.points.box[b + i])
        if is_same:
            return other
    return e


@inner
def needing(x: LoadedRegion, v: int) -> tuple[Array, int]:
    """The points that read version `v`, but for twins; behind them those where the last version is kept."""
    found, n, readers = np.empty(len(x.points.device), np.int64), 0, 0
    is_last = x.life.is_persistent and v == len(x.life.producer) - 1
    for kept in range(2 if is_last and v > 0 else 1):
        for e in range(len(x.life.event)):
            if x.life.event[e].version == (0 if kept else v) and twin(x, e) == e:
                for a in range(x.life.event_ptr[e], x.life.event_ptr[e + 1]):
                    if volume(x.points.box[a]) > 0:
                        found[n] = a
                        n += 1
        readers = n if kept == 0 else readers
    return found[:n], readers


@inner
def makers(x: LoadedRegion, v: int, devices: int) -> Made:
    """See `Made`."""
    e, total, colours = x.life.producer[v], 0, 1
    begin, end = x.life.event_ptr[e], x.life.event_ptr[e + 1]
    for q in range(begin, end):
        total += volume(x.points.box[q])
        colours = max(colours, x.points.colour[q] + 1 if x.life.is_partial[e] else 1)
    order, first = by_number(x.points.device[begin:end], devices)
    return Made(
        begin, end, order + begin, first, total == colours * volume(x.life.whole), colours > 1
    )


@inner
def lacking_parts(x: LoadedRegion, needs: Array, made: Made) -> LackingParts:
    """See `LackingParts`; what is made on the device itself is found first, since often that is all."""
    most = len(needs) * (made.end - made.begin) if made.is_unique else 0
    ptr, lack, n = np.zeros(len(needs) + 1, np.int64), np.empty(len(needs), np.int64), 0
    source, size = np.empty(most, np.int64), np.empty(most, np.int64)
    for i in range(len(needs)):
        a = needs[i]
        lack[i] = volume(x.points.box[a])
        device = x.points.device[a]
        for k in range(made.first[device], made.first[device + 1]):
            lack[i] -= shared(x.points.box[made.order[k]], x.points.box[a])
        if made.is_unique and (lack[i] > 0 or made.is_summed):
            n = add_parts(x, a, made, source, size, n)
        ptr[i + 1] = n
    return LackingParts(lack, ptr, source, size, np.empty(n))


@leaf
def add_parts(x: LoadedRegion, a: int, made: Made, source: Array, size: Array, n: int) -> int:
    """Append the parts of a need; their number."""
    for q in range(made.begin, made.end):
        if x.points.device[q] != x.points.device[a]:
            points = shared(x.points.box[q], x.points.box[a])
            if points > 0:
                source[n], size[n] = q, points
                n += 1
    return n


@inner
def receive(
    x: LoadedRegion, needs: Array, made: Made, parts: LackingParts, links: Links
) -> tuple[Array, bool]:
    """Seconds for which the device of each of the `needs` receives what that point lacks, at least.

    And whether these are of copies, which are known one by one.
    """
    if made.is_summed:
        return (sums(x, needs, made, links) if made.is_unique else np.zeros(len(needs))), False
    seconds = np.zeros(len(needs))
    if parts.lack.max() <= 0:
        return seconds, False
    group, count = alike(x, needs)
    if count.max() > links.few_gathers:
        return gathers(x, needs, parts, group, count, made, links), False
    copy_all(x, needs, parts, made, links, seconds)
    return seconds, made.is_unique and not links.exchanges


@leaf
def copy_all(
    x: LoadedRegion, needs: Array, parts: LackingParts, made: Made, links: Links, seconds: Array
) -> None:
    """See `copies`, for all needs that lack something."""
    for i in range(len(needs)):
        if parts.lack[i] > 0:
            seconds[i] = copies(x, needs[i], i, parts, made, links)


@leaf
def copies(x: LoadedRegion, a: int, i: int, parts: LackingParts, made: Made, links: Links) -> float:
    """Seconds of the copies that bring a point, need number `i`, what it lacks."""
    device, seconds = x.points.device[a], 0.0
    if not made.is_unique or links.exchanges:
        return float(
            links.least_latency[device] + parts.lack[i] * x.life.itemsize / links.best[device]
        )
    for k in range(parts.ptr[i], parts.ptr[i + 1]):
        source, size = x.points.device[parts.source[k]], parts.size[k] * x.life.itemsize
        parts.seconds[k] = links.latency[source, device] + size / links.throughput[source, device]
        seconds += parts.seconds[k]
    return float(seconds)


@inner
def alike(x: LoadedRegion, needs: Array) -> tuple[Array, Array]:
    """Per need the first one of the same box, and how many are the same as that."""
    group, count = np.empty(len(needs), np.int64), np.zeros(len(needs), np.int64)
    for i in range(len(needs)):
        j = 0
        while (count[j] == 0 and j < i) or not same(x.points.box[needs[i]], x.points.box[needs[j]]):
            j += 1
        group[i] = j
        count[j] += 1
    return group, count


@inner
def gathers(
    x: LoadedRegion,
    needs: Array,
    parts: LackingParts,
    group: Array,
    count: Array,
    made: Made,
    links: Links,
) -> Array:
    """What is needed alike by many, who need nothing else, may be gathered; of the rest nothing is certain."""
    seconds, on, lack = np.zeros(len(needs)), np.zeros(len(links.hosts), np.int64), parts.lack
    for a in needs:
        on[x.points.device[a]] += 1
    if on.max() > 1:
        return seconds
    for i in range(len(needs)):
        if lack[i] > 0 and count[group[i]] <= links.few_gathers:
            seconds[i] = copies(x, needs[i], i, parts, made, links)
    for g in range(len(needs)):
        if count[g] <= links.few_gathers:
            continue
        least, lacking, involved = np.int64(0), 0, 0
        for q in range(made.begin, made.end):
            involved += overlaps(x.points.box[q], x.points.box[needs[g]])
        size = volume(x.points.box[needs[g]])
        for i in range(len(needs)):
            if group[i] == g and lack[i] > 0:
                least = lack[i] if lacking == 0 else min(least, lack[i])
                lacking += 1
                involved += lack[i] == size
        for i in range(len(needs)):
            if group[i] == g and lack[i] > 0:
                seconds[i] = least * x.life.itemsize * lacking / involved / links.fastest
    return seconds


@inner
def sums(x: LoadedRegion, needs: Array, made: Made, links: Links) -> Array:
    """Sums, tile by tile."""
    seconds = np.zeros(len(needs))
    order, ptr = tiles_of(x.points.box, made.begin, made.end)
    for t in range(len(ptr) - 1):
        has, summands = np.zeros(len(links.hosts), np.bool_), 0
        for k in range(ptr[t], ptr[t + 1]):
            summands += not has[x.points.device[order[k]]]
            has[x.points.device[order[k]]] = True
        if summands > 1:
            add_sum(x, needs, order[ptr[t]], has, summands, seconds, links)
    return seconds


@inner
def add_sum(
    x: LoadedRegion,
    needs: Array,
    tile: int,
    has: Array,
    summands: int,
    seconds: Array,
    links: Links,
) -> None:
    """Add what each need receives of the sum of a tile, of which so many devices, which `has` marks, made a part.

    Where many take part it is one row if all of them need the whole tile; of other rows nothing is certain.
    """
    box, size = x.points.box, volume(x.points.box[tile])
    wants, gets_all, targets, involved = (
        np.zeros(len(has), np.bool_),
        np.zeros(len(has), np.bool_),
        0,
        summands,
    )
    for a in needs:
        points, device = shared(box[a], box[tile]), x.points.device[a]
        if points > 0:
            targets += not wants[device]
            involved += not wants[device] and not has[device]
            wants[device] = True
            gets_all[device] |= points == size
    is_whole = (gets_all == wants).all()
    # bytes over devices, see the module; up a tree, to one device, every step has all of the tile
    together = 1.0 * size if targets == 1 else size * (targets + summands - 2) / involved
    for i in range(len(needs)):
        points, device = shared(box[needs[i]], box[tile]), x.points.device[needs[i]]
        if points > 0 and involved <= links.few_sums:
            seconds[i] += (
                links.least_latency[device] + points * x.life.itemsize / links.best[device]
            )
        elif points > 0 and is_whole:
            seconds[i] += together * x.life.itemsize / links.fastest
