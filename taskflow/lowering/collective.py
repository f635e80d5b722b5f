"""Sums among many devices, compiled by numba: which are one row, and what that row is.

Among a few devices an all-reduce is no operation of its own: it is what folds at several owners and copies to the
others make up. Among more it is one row, and `exchange` says how it is carried out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import covers, overlaps, put, volume
from taskflow.lowering.line import Line, near
from taskflow.lowering.moves import (
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    add_arg,
    add_collective,
)
from taskflow.lowering.needs import owners_of
from taskflow.lowering.sorting import bits, sort
from taskflow.lowering.state import (
    READ,
    READ_WRITE,
    WRITE,
    State,
    add_instance,
    find_instance,
    hold,
    note_write,
)
from taskflow.lowering.tiles import Points, Tile
from taskflow.tasks import exchange, moves

cut_dimension = leaf(exchange.cut_dimension)
parts_of = leaf(moves.parts_of)

# -- sums as one row ---------------------------------------------------------------------------------------------------


@inner
def reduce_together(s: State, tile: Tile, p: Points, needs: Line) -> bool:
    """The sum of a tile as one row; False where a few devices do it or no such row moves the least.

    `needs`: of the version.
    """
    box = p.box[tile.kept[0]]
    needers = np.zeros(s.devices, np.bool_)
    has_whole = np.zeros(s.devices, np.bool_)
    for k in near(needs, box):
        if overlaps(s.need_box[k], box):
            needers[s.need[k].device] = True
            has_whole[s.need[k].device] |= covers(s.need_box[k], box)
    source, count = choose_sources(tile, p, needers)
    target = numbers(needers)
    involved = 0
    is_whole = (has_whole == needers).all()
    for device in range(s.devices):
        involved += needers[device] or source[device] >= 0
    if not count or not len(target) or involved <= s.few_sums:
        return False
    if not is_whole and has_replica(owners_of(s, box, source >= 0, needs)[0], source, tile, p):
        return scatter_by_replicas(s, box, tile, p, needs)
    if (
        is_whole
        and not s.piece_bytes
        and (
            sum_by_replicas(s, box, tile, p, needers, needs)
            or sum_for_others(s, box, tile, p, needers)
        )
    ):
        return True
    pieces = pieces_of(s, box) if is_whole and len(target) > 1 else repeated(box, 1)
    for i in range(len(pieces)):
        owner, owned = owners_of(s, pieces[i], source >= 0, needs)
        sum_in_row(s, pieces[i], is_whole, source, target, involved, owner, owned)
    return True


@inner
def pieces_of(s: State, box: Any) -> Any:
    """A box cut into pieces of at most `piece_bytes`, as far as one dimension allows."""
    return cut_in(box, -(-volume(box) * s.itemsize // s.piece_bytes) if s.piece_bytes else 1)


@inner
def cut_in(box: Any, count: int) -> Any:
    """A box cut into so many pieces, as far as one dimension allows."""
    d = 2 * cut_dimension((box[1::2] - box[::2]), count)
    lo = box[d]
    extent = box[d + 1] - box[d]
    pieces = repeated(box, max(1, min(count, extent)))
    for i in range(len(pieces)):
        pieces[i, d], pieces[i, d + 1] = (
            lo + i * extent // len(pieces),
            lo + (i + 1) * extent // len(pieces),
        )
    return pieces


@inner
def sum_in_row(
    s: State,
    box: Any,
    is_whole: bool,
    source: Any,
    target: Any,
    involved: int,
    owner: Any,
    owned: Any,
) -> None:
    """A row that sums the partial results of a box; `owner`, `owned`: who sums what of it."""
    count = (source >= 0).sum()
    written = owned
    points = 0
    if is_whole:
        written = repeated(box, len(target))
        points = (len(target) - 1) * volume(box)
    else:
        target = owner
    for i in range(len(owner)):
        points += (count - (source[owner[i]] >= 0)) * volume(owned[i])
    if is_whole or len(owner) == 1:
        owner, owned = adding(s, box if is_whole else owned[0], target, source, involved)
    else:
        owner, owned = arriving(s, box, owner, owned, source)
    name = REDUCE if len(target) == 1 else ALL_REDUCE if is_whole else REDUCE_SCATTER
    begin = s.args
    read_sources(s, source, box)
    middle = s.args
    write_sums(s, source, target, written, owner, owned)
    if add_collective(s, begin, middle, name, points):
        for a in range(middle, s.args):
            note_write(s, s.arg[a].instance, s.arg_box[a], s.issuer, s.rows - 1 - s.first)


@leaf
def read_sources(s: State, source: Any, box: Any) -> None:
    """Arguments: the partial results of a box, by device."""
    for device in range(s.devices):
        if source[device] >= 0:
            add_arg(s, source[device], box, READ)


@inner
def write_sums(s: State, source: Any, target: Any, written: Any, owner: Any, owned: Any) -> None:
    """Arguments: the sums, and memory for what arrives at every device that adds something."""
    scratch = np.empty(len(owner) * s.doors, np.int64)
    for i in range(len(scratch)):
        scratch[i] = add_instance(s, owner[i // s.doors], owned[i // s.doors], True)
    for i in range(len(target)):
        k = find_instance(s, target[i], written[i])
        add_arg(s, k, written[i], READ_WRITE if source[target[i]] == k else WRITE)
        hold(s, target[i], k, written[i])
    for i in range(len(scratch)):
        add_arg(s, scratch[i], owned[i // s.doors], WRITE)


@inner
def adding(s: State, box: Any, target: Any, source: Any, involved: int) -> tuple[Any, Any]:
    """The devices that may add something to a sum of a box, and the box of what arrives at once."""
    able = source >= 0
    part = box.copy()
    for device in target:
        able[device] = True
    owner = numbers(able)
    parts = parts_of(
        volume(box) * s.itemsize, s.room_bytes, len(target) if len(target) > 1 else involved
    )
    if parts > 1 and not s.is_scalar:
        cut = 2 * cut_dimension((box[1::2] - box[::2]), involved)
        part[cut + 1] = box[cut] + -(-(box[cut + 1] - box[cut]) // parts)
    return owner, repeated(part, len(owner))


@inner
def arriving(s: State, box: Any, owner: Any, owned: Any, source: Any) -> tuple[Any, Any]:
    """The devices that may add something to tiles of a box, and boxes as large as what arrives at once.

    That is all that one device owns, at least. Any piece may come to any device that has a partial result; the others
    add nothing.
    """
    points = np.zeros(len(source), np.int64)
    best = 0
    for i in range(len(owner)):
        points[owner[i]] += volume(owned[i])
        if volume(owned[i]) > volume(owned[best]):
            best = i
    devices = numbers(source >= 0)
    room = owned[best].copy()
    least = max(
        points.max(),
        -(-volume(box) // parts_of(volume(box) * s.itemsize, s.room_bytes, len(devices))),
    )
    if least > volume(room):
        put(room, box)
        cut = 2 * cut_dimension((box[1::2] - box[::2]), len(devices))
        extent = box[cut + 1] - box[cut]
        room[cut + 1] = box[cut] - (-least * extent // volume(box))
    return devices, repeated(room, len(devices))


@inner
def numbers(flags: Any) -> Any:
    """Which of the flags are set."""
    marked = np.empty(len(flags), np.int64)
    n = 0
    for k in range(len(flags)):
        if flags[k]:
            marked[n] = k
            n += 1
    return marked[:n]


@inner
def repeated(box: Any, count: int) -> Any:
    """A box so many times."""
    boxes = np.empty((count, len(box)), np.int64)
    for k in range(count):
        put(boxes[k], box)
    return boxes


@inner
def sum_by_replicas(s: State, box: Any, tile: Tile, p: Points, needers: Any, needs: Line) -> bool:
    """The sum of a tile by all that have replicas of its parts, which share it out; False where this is not so.

    Of the teams on the same hosts each sums a piece, and who lacks the others gathers them; a team on other hosts sums
    all of it for itself.
    """
    teams = teams_of(tile, p, needers)
    number, like, size = np.empty((3, len(teams)), np.int64)
    for k in range(len(teams)):
        first = 0
        while first < k and not are_near(s, p, teams[first], teams[k]):
            first += 1
        size[k] = 0
        number[k] = size[first]
        like[k] = first
        size[first] += 1
    for k in range(len(teams)):
        source = np.full(s.devices, -1, np.int64)
        pieces = cut_in(box, size[like[k]])
        for point in teams[k]:
            source[p.device[point]] = p.instance[point]
        target = numbers(source >= 0)
        piece = pieces[number[k] % len(pieces)]
        owner, owned = owners_of(s, piece, source >= 0, needs)
        sum_in_row(s, piece, True, source, target, len(target), owner, owned)
    return len(teams) > 0


@inner
def sum_for_others(s: State, box: Any, tile: Tile, p: Points, needers: Any) -> bool:
    """The sum of a tile by all that have replicas of its parts, each team for as many of those who need it; False where
    some of these have a part themselves, or there are not as many for every team.
    """
    teams = teams_of(tile, p, np.ones(s.devices, np.bool_))
    target = numbers(needers)
    share = len(target) // max(1, len(teams))
    if not share or share * len(teams) < len(target):
        return False
    for k in range(len(teams)):
        for point in teams[k]:
            if needers[p.device[point]]:
                return False
    for k in range(len(teams)):
        source = np.full(s.devices, -1, np.int64)
        receivers = target[k * share : (k + 1) * share]
        for point in teams[k]:
            source[p.device[point]] = p.instance[point]
        sum_in_row(
            s, box, True, source, receivers, len(teams[k]) + share, receivers[:1], repeated(box, 1)
        )
    return True


@inner
def scatter_by_replicas(s: State, box: Any, tile: Tile, p: Points, needs: Line) -> bool:
    """The sums of what each device needs of a tile, in a row for every team; False where there are no teams, or one
    who needs some has no part.
    """
    teams = teams_of(tile, p, np.ones(s.devices, np.bool_))
    holds = np.zeros(s.devices, np.bool_)
    for k in range(len(teams)):
        for point in teams[k]:
            holds[p.device[point]] = True
    owner, owned = owners_of(s, box, holds, needs)
    if not len(teams) or not holds[owner].all():
        return False
    for k in range(len(teams)):
        source = np.full(s.devices, -1, np.int64)
        for point in teams[k]:
            source[p.device[point]] = p.instance[point]
        of_team = numbers(source[owner] >= 0)
        if len(of_team):
            sum_in_row(s, box, False, source, owner[of_team], 0, owner[of_team], owned[of_team])
    return True


@inner
def teams_of(tile: Tile, p: Points, needers: Any) -> Any:
    """(teams, parts) points: in team k the k-th replica of every part; no team where not all need the sum, or there is
    one of each.
    """
    ptr = tile.ptr
    leader = tile.leader
    none = np.empty((0, 0), np.int64)
    count = ptr[leader[0] + 1] - ptr[leader[0]]
    shift = bits(len(p.device))
    teams = np.empty((count, len(leader)), np.int64)
    is_in = np.zeros(len(needers), np.bool_)
    for g in range(len(leader)):
        points = tile.kept[ptr[leader[g]] : ptr[leader[g] + 1]]
        key = sort((p.device[points] << shift) + points) & ((1 << shift) - 1)
        if count < 2 or len(key) != count:
            return none
        for k in range(count):
            device = p.device[key[k]]
            if is_in[device] or not needers[device]:
                return none
            is_in[device], teams[k, g] = True, key[k]
    return teams


@leaf
def are_near(s: State, p: Points, one: Any, other: Any) -> bool:
    """Whether every point of one team is on the host of that of the other."""
    for g in range(len(one)):  # noqa: SIM110 - compiled
        if s.device[p.device[one[g]]].host != s.device[p.device[other[g]]].host:
            return False
    return True


@inner
def choose_sources(tile: Tile, points: Points, needers: Any) -> tuple[Any, int]:
    """Per device the instance of the partial result that it contributes, or -1, and how many; 0 if one gave two.

    Of the devices that hold the same partial result one that needs the sum is chosen.
    """
    source = np.full(len(needers), -1, np.int64)
    kept = tile.kept
    ptr = tile.ptr
    for c in tile.leader:
        pick = -1
        for i in range(ptr[c], ptr[c + 1]):
            if pick < 0 and needers[points.device[kept[i]]]:
                pick = i
        p = kept[ptr[c] if pick < 0 else pick]
        if source[points.device[p]] >= 0:
            return source, 0
        source[points.device[p]] = points.instance[p]
    return source, len(tile.leader)


@leaf
def has_replica(owner: Any, source: Any, tile: Tile, p: Points) -> bool:
    """True where an owner that contributes nothing has a replica of a partial result all the same."""
    for device in owner:
        if source[device] < 0:
            for c in tile.leader:
                for i in range(tile.ptr[c], tile.ptr[c + 1]):
                    if p.device[tile.kept[i]] == device:
                        return True
    return False
