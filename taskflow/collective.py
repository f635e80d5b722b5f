"""Collectives: who sums which part of partial results, and what a group of transfers is called.

An all-reduce is not an operation of its own here: it is what folds at several owners and copies to the others make up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskflow.fragment import Need, Version
from taskflow.geometry import Rect, split_evenly
from taskflow.region import LogicalRegion
from taskflow.task import Kind


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
