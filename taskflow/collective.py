"""Collectives: who sums which part of partial results, which devices do so in one row, and what transfers are called.

Among a few devices an all-reduce is no operation of its own: it is what folds at several owners and copies to the
others make up. Among more it is one row, and `exchange` says how it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskflow.exchange import summing, tree_order
from taskflow.fragment import Need, Version
from taskflow.geometry import Rect, split_evenly, subtract_all
from taskflow.region import LogicalRegion
from taskflow.task import Kind

FEW = 4  # so many devices exchange row by row, which orders can then overlap; p devices need 2 p (p - 1) rows for a sum

# A sum of less goes up a tree: 2 log2(p) messages of n bytes instead of 2 (p - 1) of n / p. With 2 us a message and
# 5 GB/s, 8 devices break even at 19 kB, more devices later.
SMALL_BYTES = 16384

Place = tuple[int, int, Rect]  # device, instance, box


@dataclass(frozen=True)
class Group:
    """What becomes one row.

    Attributes:
        name: of `task.COLLECTIVES`.
        sources: device, instance and box of what is summed or gathered.
        targets: device and box of every place that gets it.
        summed: device and box of every place where something is added; each needs memory for what arrives.
        volume: elements that cross between devices.
    """

    name: str
    sources: Sequence[Place]
    targets: Sequence[Need]
    summed: Sequence[Need]
    volume: int


def reduction_of(
    rect: Rect,
    partials: Sequence[Mapping[int, int]],
    needs: Mapping[Need, None],
    hosts: Sequence[int],
    itemsize: int,
) -> Group | None:
    """The sum of the tile `rect` as one row; None where a few devices do it or no such row moves the least.

    `partials`: per partial result the devices that hold it, with their instances.
    """
    wanted = [(d, n) for d, n in needs if n.overlaps(rect)]
    needers = dict.fromkeys(sorted(d for d, _ in wanted))
    chosen = {next((d for d in held if d in needers), next(iter(held))): held for held in partials}
    if not needers or len(chosen) < len(partials) or len(chosen.keys() | needers.keys()) <= FEW:
        return None
    sources = [(d, chosen[d][d], rect) for d in sorted(chosen)]
    owned = owners(rect, [{d: held[d]} for d, held in chosen.items()], needs)
    is_whole = all(n.covers(rect) for _, n in wanted)
    if not is_whole and any(d in held for d, _ in owned if d not in chosen for held in partials):
        return None  # a replica of a partial result is there already
    targets, summed = owned, owned
    volume = sum((len(chosen) - (d in chosen)) * piece.volume for d, piece in owned)
    if is_whole:
        if rect.volume * itemsize <= SMALL_BYTES:
            owned = [(owned[0][0], rect)]
            volume = (len(chosen) - (owned[0][0] in chosen)) * rect.volume
        targets = [(d, rect) for d in needers]
        volume += (len(needers) - 1) * rect.volume
    if len(owned) == 1:
        root, piece = owned[0]
        summed = [(d, piece) for d in summing(tree_order(root, list(chosen), hosts))]
    name = "reduce" if len(targets) == 1 else "all-reduce" if is_whole else "reduce-scatter"
    return Group(name, sources, targets, summed, volume)


def gather_of(
    box: Rect, places: Sequence[tuple[int, int, Sequence[Rect]]], held: Sequence[Place], hosts: Sequence[int]
) -> Group | None:
    """One row that brings `box` to all `places` (device, instance, missing boxes); None where that is no such row.

    It is one where more than a few lack it, `held` has it in disjoint tiles, and each place has some of these or none.
    """
    if len(places) <= FEW:
        return None
    holders = _tiles(box, held)
    if sum(tile.volume for tile in holders) != box.volume or subtract_all(box, holders):
        return None
    here = {(d, k, tile) for tile, holding in holders.items() for d, k in holding}
    for device, instance, missing in places:
        own = sum(tile.volume for tile in holders if (device, instance, tile) in here)
        if own + sum(m.volume for m in missing) != box.volume:
            return None
    sources, volume = [], 0
    for tile, holding in holders.items():
        nearest = [_nearest(d, holding, hosts) for d, _, _ in places]
        sources += [(d, k, tile) for d, k in sorted(set(nearest))]
        volume += sum(d != n for (d, _, _), (n, _) in zip(places, nearest, strict=True)) * tile.volume
    name = "broadcast" if len(holders) == 1 else "all-gather"
    return Group(name, sources, sorted((d, box) for d, _, _ in places), (), volume)


def _nearest(device: int, holding: Sequence[tuple[int, int]], hosts: Sequence[int]) -> tuple[int, int]:
    """The holder from which `device` takes a tile, as `Exchange.distance` has it."""
    if len(holding) == 1:
        return holding[0]
    return min(holding, key=lambda h: (hosts[h[0]] != hosts[device], (h[0] - device) % len(hosts)))


def _tiles(box: Rect, held: Sequence[Place]) -> dict[Rect, list[tuple[int, int]]]:
    """The parts of `box` that lie somewhere, with their places; where somebody has all of it, that alone."""
    tiles: dict[Rect, list[tuple[int, int]]] = {}
    for device, instance, rect in held:
        if rect.overlaps(box):
            tiles.setdefault(rect.intersect(box), []).append((device, instance))
    return {box: tiles[box]} if box in tiles else tiles


def owners(rect: Rect, partials: Sequence[dict[int, int]], needs: Mapping[Need, None]) -> list[tuple[int, Rect]]:
    """Which device sums which part of the tile `rect`.

    The tile is cut at the borders of the needed boxes; a piece that one device needs is summed there, one that several
    need is shared out among them, those first that hold a partial result already.
    """
    wanted = [(d, n.intersect(rect)) for d, n in needs if n.overlaps(rect)]
    if not wanted:
        return []
    pieces = [rect]
    for box in dict.fromkeys(n for _, n in wanted):
        pieces = [q for p in pieces for q in ([p.intersect(box)] if p.overlaps(box) else []) + p.subtract(box)]
    holders = dict.fromkeys(d for group in partials for d in group)
    owned: list[tuple[int, Rect]] = []
    for piece in pieces:
        needers = list(dict.fromkeys(d for d, n in wanted if n.covers(piece)))
        able = sorted(d for d in needers if d in holders) or sorted(needers)
        if able:
            cut = split_evenly(piece, len(able))
            owned += [(d, part) for d, part in zip(able, cut, strict=True) if not part.is_empty]
    return owned


def classify(version: Version, region: LogicalRegion) -> str:
    """The name of the collective that the rows of a version make up; for people and for library collectives."""
    copies = [m for m in version.moves if m.kind is Kind.COPY and m.source != m.device]
    if not copies:
        return ""
    folds = any(m.kind is Kind.FOLD for m in version.moves)
    targets, sources = {m.device for m in copies}, {m.source for m in copies}
    if folds:
        scattered = {m.device for m in version.moves if m.kind is Kind.FOLD}
        reducing = sum(1 for m in version.moves if m.kind is Kind.FOLD for _ in m.args[2:])
        if len(copies) > reducing or (len(scattered) == 1 and len(targets) > 1):
            return "all-reduce"
        return "reduce-scatter" if len(scattered) > 1 else "reduce"
    if len(sources) == len(targets) == 1:
        return "copy"
    if len(sources) == 1:
        whole = {m.args[0][1] for m in copies}
        return "broadcast" if len(whole) == 1 else "scatter"
    if len(targets) == 1:
        return "gather"
    if targets <= {d for d, n in version.needs if n == region.rect}:
        return "all-gather"
    sent = sum(m.args[0][1].volume for m in copies)
    needed = sum(n.volume for d, n in version.needs if d in targets)
    return "halo" if sent * 2 < needed else "all-to-all"
