"""Sketches of regions, compiled by numba: what their movement takes at least, without finding the movement itself.

A sketch is a fragment of a pool, as packing makes it, of fewer rows and dependences. So the pass over it ends no later
than that over the real one, but for rounding, and whatever is too slow with it is so without it. It is made from the
boxes that points write and read:

* A point waits for points that alone make something that it reads.
* A device receives what its points read and none of its own has made (`receiving`). It is busy with it for so long,
  not before the earliest of the points that make the version.
* So are those who send, and the links. A copy occupies the stream in which its target receives, that in which its
  source sends, and the links between them. One sender, or the link of a host, may serve many devices. The order of the
  copies is known (`moves.copy_in_rounds`), so whoever is served last waits for all of them.

What is copied within a device, and folds of what has arrived, are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.columns import Array, records
from taskflow.core.compiling import inner, leaf, tiered
from taskflow.core.start_rule import work_of
from taskflow.lowering.life import Lives, load
from taskflow.lowering.pointtable import PointTable
from taskflow.searching.packed import FITS, Packed
from taskflow.searching.packing import lacking_column, put_run
from taskflow.searching.receiving import (
    LackingParts,
    Links,
    LoadedRegion,
    Made,
    lacking_parts,
    makers,
    needing,
    receive,
    twin,
)

# Points that one waits for directly: the first and the last of those that make what it reads.
EDGES = 2
# What a stream has to send: seconds of all copies, how many, the round of the last one and its target as one number.
SENDER = records([("seconds", np.float64), ("copies", np.int64), ("last", np.int64)])


@tiered
def sketch(
    regions: Array,
    points_of: Array,
    all_lives: tuple[Array, ...],
    store: tuple[Array, ...],
    all_links: tuple[Any, ...],
    is_moved: bool,
    pool: tuple[Array, ...],
    work: Array,
    limit: float,
) -> tuple[int, int, bool]:
    """Append sketches of regions, until a stream works above the limit.

    Args:
        regions: by number.
        points_of: number of the points of every operator.
        all_lives, store, all_links: `Lives`, `PointTable` and `Links` as plain tuples.
        is_moved: whether rows take what `links` says; else sketches have none.
        pool: `Packed` as a plain tuple.
        work: seconds that every stream has to do in all, without these regions; what the sketches take is added.
        limit: of that, in seconds.

    Returns:
        FITS, else the column of `p` that has too little room; of how many there are sketches; whether a stream does.
    """
    lives, table, links, p = Lives(*all_lives), PointTable(*store), Links(*all_links), Packed(*pool)
    for number in range(len(regions)):
        life, points = load(regions[number], lives, points_of, table)
        x = LoadedRegion(life, points)
        versions = len(life.producer)
        rows, issuers = versions * (2 * len(links.hosts) + links.streams), life.ops + versions
        short = lacking_column(
            p, rows, (0, 0), 0, versions, issuers, rows + (EDGES + 2) * len(points.device)
        )
        if short != FITS:
            return short, number, False
        row = p.filled[0].rows
        add_sketch(x, life.ops, is_moved and life.is_fetched == 0, links, p)
        if add_work(work, row, limit, links, p):
            return FITS, number + 1, True
    return FITS, len(regions), False


@leaf
def add_work(work: Array, first: int, limit: float, links: Links, p: Packed) -> bool:
    """Add what rows from `first` on take to the work of their streams; whether one has more than the limit."""
    is_long = False
    for row in range(first, p.filled[0].rows):
        streams = p.streams[row]
        if streams >= links.first_stream:
            work[streams - links.first_stream] += p.seconds[row]
            is_long = is_long or work[streams - links.first_stream] > limit
            continue
        for k in range(links.set_ptr[streams], links.set_ptr[streams + 1]):
            work[links.stream[k]] += p.seconds[row]
            is_long = is_long or work[links.stream[k]] > limit
        for k in range(links.hop_ptr[streams], links.hop_ptr[streams + 1]):
            work[links.hop[k].link] += work_of(links.hop[k], p.seconds[row])
            is_long = is_long or work[links.hop[k].link] > limit
    return is_long


@inner
def add_sketch(x: LoadedRegion, ops: int, is_moved: bool, links: Links, p: Packed) -> None:
    """Append the sketch of a region that `ops` operators touch."""
    count, devices, first = len(x.points.device), len(links.hosts), p.filled[0].rows
    maker, arrival = np.full((count, EDGES), -1, np.int64), np.full((count, 2), -1, np.int64)
    least, most, row_of = np.empty(devices), np.empty(devices), np.empty(devices, np.int64)
    version = p.filled[0].versions
    fragment = p.fragment[p.filled[0].fragments]
    fragment.row, fragment.version, fragment.run_ptr = first, version, p.filled[0].run_ptrs
    for v in range(len(x.life.producer)):
        begin = p.filled[0].rows
        if x.life.producer[v] >= 0:
            needs, readers = needing(x, v)
            made = makers(x, v, devices)
            parts = lacking_parts(x, needs, made)
            find_makers(needs[:readers], parts, made, maker)
            if is_moved and len(needs):
                seconds, are_copies = receive(x, needs, made, parts, links)
                add_rows(x, needs, readers, seconds, least, most, row_of, arrival, links, p)
                if are_copies:
                    add_senders(x, needs, readers, seconds, parts, links, begin, arrival, p)
        p.version[version + v].first, p.version[version + v].count = begin, p.filled[0].rows - begin
        p.version[version + v].parts = 1
    fragment.rows = p.filled[0].rows - first
    p.within_ptr[p.filled[0].rows] = p.filled[0].within
    p.bytes[p.filled[0].fragments] = 0
    p.filled[0].versions += len(x.life.producer)
    p.filled[0].fragments += 1
    add_runs(x, ops, version, maker, arrival, p)


@leaf
def find_makers(needs: Array, parts: LackingParts, made: Made, maker: Array) -> None:
    """The first and the last point, on other devices, that make something of what each of the `needs` reads."""
    for i in range(len(needs)):
        begin, end = parts.ptr[i], parts.ptr[i + 1]
        if end > begin:
            maker[needs[i], 0] = parts.source[begin] - made.begin
        if end > begin + 1:
            maker[needs[i], 1] = parts.source[end - 1] - made.begin


@leaf
def add_rows(
    x: LoadedRegion,
    needs: Array,
    readers: int,
    seconds: Array,
    least: Array,
    most: Array,
    row_of: Array,
    arrival: Array,
    links: Links,
    p: Packed,
) -> None:
    """One row per device that receives: what the reader lacks that lacks least; a second row: what others lack more.

    least, most, row_of: memory for the least and the most that each device lacks, and for its last row.
    """
    devices, begin = len(least), p.filled[0].rows
    for device in range(devices):
        least[device], most[device] = np.inf, 0.0
    for i in range(len(needs)):
        device = x.points.device[needs[i]]
        if seconds[i] > 0.0:
            most[device] = max(most[device], seconds[i])
            least[device] = min(least[device], seconds[i] if i < readers else np.inf)
    for device in range(devices):
        row_of[device] = p.filled[0].rows - begin
        if most[device] > 0.0:
            add_row(min(least[device], most[device]), links.receiving[device], p)
        if most[device] > least[device]:
            add_row(most[device] - least[device], links.receiving[device], p)
    for i in range(readers):
        if seconds[i] > 0.0:
            arrival[needs[i], 0] = row_of[x.points.device[needs[i]]]


@leaf
def add_row(seconds: float, streams: int, p: Packed) -> None:
    """A row on that set of streams, in which a device receives."""
    row = p.filled[0].rows
    p.seconds[row], p.streams[row], p.within_ptr[row] = seconds, streams, p.filled[0].within
    p.filled[0].rows = row + 1


@leaf
def add_runs(
    x: LoadedRegion, ops: int, version: int, maker: Array, arrival: Array, p: Packed
) -> None:
    """What points, then the rows of versions, wait for; see `packing.pack_edges`."""
    n, at = p.filled[0].runs, p.filled[0].run_ptrs
    for issuer in range(ops):
        p.run_ptr[at + issuer] = n
        for e in range(len(x.life.event)):
            v = x.life.event[e].version
            if x.life.event[e].issuer == issuer and v >= 0 and x.life.producer[v] >= 0:
                n = add_runs_of_event(x, e, ops + v, maker, arrival, n, p)
    for v in range(len(x.life.producer)):
        p.run_ptr[at + ops + v] = n
        e = x.life.producer[v]
        for i in range(p.version[version + v].count):
            put_run(
                p.run[n],
                i,
                x.life.event[e].issuer,
                0,
                1,
                x.life.event_ptr[e] - x.life.event_ptr[e + 1],
            )
            n += 1
    p.run_ptr[at + ops + len(x.life.producer)] = n
    p.filled[0].runs, p.filled[0].run_ptrs = n, at + ops + len(x.life.producer) + 1


@leaf
def add_runs_of_event(
    x: LoadedRegion, e: int, issuer: int, maker: Array, arrival: Array, n: int, p: Packed
) -> int:
    """What the points of an event wait for: rows of the version that it reads, which is an issuer, and its makers."""
    producer = x.life.event[x.life.producer[x.life.event[e].version]].issuer
    if producer == x.life.event[e].issuer:
        return n
    like = x.life.event_ptr[twin(x, e)]
    for i in range(x.life.event_ptr[e + 1] - x.life.event_ptr[e]):
        for k in range(2):
            if arrival[like + i, k] >= 0:
                put_run(p.run[n], i, issuer, arrival[like + i, k], 0, 1)
                n += 1
        for k in range(EDGES):
            if maker[like + i, k] >= 0:
                put_run(p.run[n], i, producer, maker[like + i, k], 0, 1)
                n += 1
    return n


# -- senders ---------------------------------------------------------------------------------------------------------


@inner
def add_senders(
    x: LoadedRegion,
    needs: Array,
    readers: int,
    seconds: Array,
    parts: LackingParts,
    links: Links,
    begin: int,
    arrival: Array,
    p: Packed,
) -> None:
    """One row for every stream that several copies occupy; the point that the last one is for has it in `arrival`.

    Of each device the need counts that takes longest.
    """
    need, sender = np.full(len(links.hosts), -1, np.int64), np.zeros(links.streams, SENDER)
    find_slowest(x, needs, seconds, need)
    for device in range(len(need)):
        if need[device] >= 0:
            count_copies(x, need[device], device, parts, links, sender)
    put_senders(needs, readers, links, begin, arrival, p, need, sender)


@leaf
def find_slowest(x: LoadedRegion, needs: Array, seconds: Array, need: Array) -> None:
    """Per device, which of its needs takes longest; those of which none takes any time keep -1."""
    for i in range(len(needs)):
        device = x.points.device[needs[i]]
        if seconds[i] > 0.0 and (need[device] < 0 or seconds[i] > seconds[need[device]]):
            need[device] = i


@leaf
def put_senders(
    needs: Array,
    readers: int,
    links: Links,
    begin: int,
    arrival: Array,
    p: Packed,
    need: Array,
    sender: Array,
) -> None:
    """The rows of `add_senders`."""
    for stream in range(links.streams):
        if sender[stream].copies > 1:
            row, taken = p.filled[0].rows, sender[stream].seconds
            p.seconds[row], p.streams[row] = taken, links.first_stream + stream
            p.within_ptr[row] = p.filled[0].within
            p.filled[0].rows = row + 1
            i = need[sender[stream].last % len(need)]
            at = needs[i]
            before = begin + arrival[at, 1]
            if i < readers and (before < begin or taken > p.seconds[before]):
                arrival[at, 1] = row - begin


@leaf
def count_copies(
    x: LoadedRegion, i: int, device: int, parts: LackingParts, links: Links, sender: Array
) -> None:
    """Add the copies that need number `i` waits for to all streams that they occupy but the first, which receives."""
    devices = len(links.hosts)
    for part in range(parts.ptr[i], parts.ptr[i + 1]):
        source = x.points.device[parts.source[part]]
        streams, turn = (
            source * devices + device,
            source - device if source > device else source - device + devices,
        )
        for k in range(links.set_ptr[streams] + 1, links.set_ptr[streams + 1]):
            add_copy(sender[links.stream[k]], parts.seconds[part], turn * devices + device)
        for k in range(links.hop_ptr[streams], links.hop_ptr[streams + 1]):
            add_copy(
                sender[links.hop[k].link],
                work_of(links.hop[k], parts.seconds[part]),
                turn * devices + device,
            )


@leaf
def add_copy(of_stream: np.record, seconds: float, turn: int) -> None:
    """A stream works so much longer."""
    of_stream.seconds += seconds
    of_stream.last = max(of_stream.last, turn)
    of_stream.copies += 1
