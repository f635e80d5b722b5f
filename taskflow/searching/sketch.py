"""Sketches of regions, compiled by numba: what their movement takes at least, without finding the movement itself.

A sketch is an entry of a pool, as packing makes it, of fewer rows and dependences. So the pass over it ends no later
than that over the real entry, but for rounding, and whatever is too slow with it is so without it. It is made from the
boxes that points write and read:

* A point waits for points that alone make something that it reads.
* A device receives what its points read and none of its own has made (`receiving`). It is busy with it for so long,
  not before the earliest of the points that make the version. So are those who send, and the links (`sending`).

What is copied within a device, and folds of what has arrived, are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf, njit
from taskflow.lowering.life import Lives
from taskflow.lowering.packing import ENTRY, FITS, ROW, RUN, RUN_PTR, VERSION, WITHIN, Packed
from taskflow.lowering.pointtable import PointTable
from taskflow.lowering.regionlife import load
from taskflow.searching.receiving import Links, Made, Pieces, Played, makers, needing, pieces_of, receive, twin
from taskflow.searching.sending import add_senders

EDGES = 2  # points that one waits for directly: the first and the last of those that make what it reads


@njit
def sketch(
    regions: Any, points_of: Any, all_lives: Any, store: Any, all_links: Any, is_moved: bool, pool: Any, work: Any,
    limit: float,
) -> tuple[int, int, bool]:  # fmt: skip
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
        x = Played(life, points)
        short = lacking_column(x, life.ops, len(links.hosts), links.streams, p)
        if short != FITS:
            return short, number, False
        row = p.length[ROW]
        add_sketch(x, life.ops, is_moved and life.is_fetched == 0, links, p)
        if add_work(work, row, limit, links, p):
            return FITS, number + 1, True
    return FITS, len(regions), False


@leaf
def add_work(work: Any, first: int, limit: float, links: Links, p: Packed) -> bool:
    """Add what rows from `first` on take to the work of their streams; whether one has more than the limit."""
    is_long = False
    for row in range(first, p.length[ROW]):
        queue = p.queue[row]
        if queue >= links.first_stream:
            work[queue - links.first_stream] += p.seconds[row]
            is_long = is_long or work[queue - links.first_stream] > limit
            continue
        for k in range(links.queue_ptr[queue], links.queue_ptr[queue + 1]):
            work[links.queue[k]] += p.seconds[row]
            is_long = is_long or work[links.queue[k]] > limit
    return is_long


@leaf
def lacking_column(x: Played, ops: int, devices: int, streams: int, p: Packed) -> int:
    """A column that has no room for a sketch, or FITS."""
    versions = len(x.life.producer)
    rows = versions * (2 * devices + streams)
    if p.length[ROW] + rows + 1 >= len(p.seconds):
        return ROW
    if p.length[VERSION] + versions > len(p.version):
        return VERSION
    if p.length[RUN_PTR] + ops + versions + 1 > len(p.run_ptr):
        return RUN_PTR
    if p.length[RUN] + rows + (EDGES + 2) * len(x.points.device) > len(p.run):
        return RUN
    return ENTRY if p.length[ENTRY] + 1 > len(p.entry) else FITS


@inner
def add_sketch(x: Played, ops: int, is_moved: bool, links: Links, p: Packed) -> None:
    """Append the sketch of a region that `ops` operators touch."""
    count, devices, first = len(x.points.device), len(links.hosts), p.length[ROW]
    maker, arrival = np.full((count, EDGES), -1, np.int64), np.full((count, 2), -1, np.int64)
    least, most, row_of = np.empty(devices), np.empty(devices), np.empty(devices, np.int64)
    entry, version = p.length[ENTRY], p.length[VERSION]
    p.entry[entry, 0], p.entry[entry, 2], p.entry[entry, 3] = first, version, p.length[RUN_PTR]
    for v in range(len(x.life.producer)):
        begin = p.length[ROW]
        if x.life.producer[v] >= 0:
            needs, readers = needing(x, v)
            made = makers(x, v, devices)
            pieces = pieces_of(x, needs, made)
            find_makers(needs[:readers], pieces, made, maker)
            if is_moved and len(needs):
                seconds, are_copies = receive(x, needs, made, pieces, links)
                add_rows(x, needs, readers, seconds, least, most, row_of, arrival, p)
                if are_copies:
                    add_senders(x, needs, readers, seconds, pieces, links, begin, arrival, p)
        p.version[version + v, 0], p.version[version + v, 1] = begin, p.length[ROW] - begin
    p.entry[entry, 1] = p.length[ROW] - first
    p.within_ptr[p.length[ROW]] = p.length[WITHIN]
    p.bytes[entry] = 0
    p.length[VERSION] += len(x.life.producer)
    p.length[ENTRY] += 1
    add_runs(x, ops, version, maker, arrival, p)


@leaf
def find_makers(needs: Any, pieces: Pieces, made: Made, maker: Any) -> None:
    """The first and the last point, on other devices, that make something of what each of the `needs` reads."""
    for i in range(len(needs)):
        begin, end = pieces.ptr[i], pieces.ptr[i + 1]
        if end > begin:
            maker[needs[i], 0] = pieces.source[begin] - made.begin
        if end > begin + 1:
            maker[needs[i], 1] = pieces.source[end - 1] - made.begin


@leaf
def add_rows(
    x: Played, needs: Any, readers: int, seconds: Any, least: Any, most: Any, row_of: Any, arrival: Any, p: Packed
) -> None:  # fmt: skip
    """One row per device that receives: what the reader lacks that lacks least; a second row: what others lack more.

    least, most, row_of: memory for the least and the most that each device lacks, and for its last row.
    """
    devices, begin = len(least), p.length[ROW]
    for device in range(devices):
        least[device], most[device] = np.inf, 0.0
    for i in range(len(needs)):
        device = x.points.device[needs[i]]
        if seconds[i] > 0.0:
            most[device] = max(most[device], seconds[i])
            least[device] = min(least[device], seconds[i] if i < readers else np.inf)
    for device in range(devices):
        row_of[device] = p.length[ROW] - begin
        if most[device] > 0.0:
            add_row(min(least[device], most[device]), device, devices, p)
        if most[device] > least[device]:
            add_row(most[device] - least[device], device, devices, p)
    for i in range(readers):
        if seconds[i] > 0.0:
            arrival[needs[i], 0] = row_of[x.points.device[needs[i]]]


@leaf
def add_row(seconds: float, device: int, devices: int, p: Packed) -> None:
    """A row in which a device receives."""
    row = p.length[ROW]
    p.seconds[row], p.queue[row], p.within_ptr[row] = seconds, device * devices + device, p.length[WITHIN]
    p.length[ROW] = row + 1


@leaf
def add_runs(x: Played, ops: int, version: int, maker: Any, arrival: Any, p: Packed) -> None:
    """What points, then the rows of versions, wait for; see `packing.pack_edges`."""
    n, at = p.length[RUN], p.length[RUN_PTR]
    for slot in range(ops):
        p.run_ptr[at + slot] = n
        for e in range(len(x.life.event)):
            v = x.life.event[e].version
            if (
                x.life.event[e].issuer != slot
                or v < 0
                or x.life.producer[v] < 0
                or x.life.event[x.life.producer[v]].issuer == slot
            ):
                continue
            like = x.life.event_ptr[twin(x, e)]
            for i in range(x.life.event_ptr[e + 1] - x.life.event_ptr[e]):
                for k in range(2):
                    if arrival[like + i, k] >= 0:
                        n = add_run(i, ops + v, arrival[like + i, k], 0, 1, n, p)
                for k in range(EDGES):
                    if maker[like + i, k] >= 0:
                        n = add_run(i, x.life.event[x.life.producer[v]].issuer, maker[like + i, k], 0, 1, n, p)
    for v in range(len(x.life.producer)):
        p.run_ptr[at + ops + v] = n
        for i in range(p.version[version + v, 1]):
            e = x.life.producer[v]
            n = add_run(i, x.life.event[e].issuer, 0, 1, x.life.event_ptr[e] - x.life.event_ptr[e + 1], n, p)
    p.run_ptr[at + ops + len(x.life.producer)] = n
    p.length[RUN], p.length[RUN_PTR] = n, at + ops + len(x.life.producer) + 1


@leaf
def add_run(waiting: int, slot: int, awaited: int, step: int, count: int, n: int, p: Packed) -> int:
    """Run number `n`; the next number."""
    run = p.run[n]
    run[0], run[1], run[2], run[3], run[4], run[5] = waiting, slot, awaited, 0, step, count
    return n + 1
