"""Cutting: where the stages of a pipeline begin, and on how many devices each of them is.

Dynamic programming from the last stage on, as Alpa's (Zheng et al., OSDI 2022), but with the memory of the schedule:
in 1F1B the stage that is number s from the end holds min(s, K) of K micro-batches. A step takes the sum of all stages
and K - 1 times the slowest one; of stages that are all faster than some limit, the least sum is found, for the least
limit that there is and for some larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import tiered
from taskflow.searching.joint.cells import Cells

SLACKS = 1.0, 1.03, 1.1, 1.25, 1.6, np.inf  # times the least limit
NONE = -1

Found = list[tuple[int, int, int]]  # way, and first and last atom, of every stage


def best_cuts(cells: Cells, parts: int, most_stages: int, share: float = 1.0) -> Iterator[Found]:
    """For every number of stages, cuts with the least sum below some limits of the slowest stage.

    Args:
        cells: of `parts` micro-batches.
        parts: how many.
        most_stages: of a pipeline.
        share: of the memory of devices that a stage may take.
    """
    limits = np.unique(cells.seconds[np.isfinite(cells.seconds)])
    low, high = 0, len(limits)
    while low < high:
        middle = (low + high) // 2
        least, _ = _table(cells, parts, most_stages, share, limits[middle])
        low, high = (low, middle) if np.isfinite(least[:, 0]).any() else (middle + 1, high)
    for slack in SLACKS if low < len(limits) else ():
        least, choice = _table(cells, parts, most_stages, share, limits[low] * slack)
        for count in range(1, most_stages + 1):
            devices = int(np.argmin(least[count, 0]))
            if np.isfinite(least[count, 0, devices]):
                yield _stages(cells, choice, count, devices)


def _table(
    cells: Cells, parts: int, stages: int, share: float, limit: float
) -> tuple[Array, Array]:
    sizes = np.array([way.devices for way in cells.ways], np.int64)
    columns = (
        cells.at,
        sizes,
        cells.seconds,
        cells.fixed_bytes,
        cells.held_bytes,
        share * cells.room_bytes,
    )
    found: tuple[Array, Array] = _fill(*columns, parts, stages, limit)
    return found


@tiered
def _fill(
    at: Array,
    sizes: Array,
    seconds: Array,
    fixed: Array,
    held: Array,
    room: Array,
    parts: int,
    stages: int,
    limit: float,
) -> tuple[Array, Array]:
    """(stages, first atom, last devices): the least sum, and way and last atom of the first stage as one number."""
    devices, atoms = len(at), seconds.shape[1]
    least = np.full((stages + 1, atoms + 1, devices + 1), np.inf)
    choice = np.full((stages + 1, atoms + 1, devices + 1), NONE)
    least[0, atoms, 0] = 0.0
    for count in range(1, stages + 1):
        flying = min(count, parts)
        for i in range(atoms):
            for w in range(len(sizes)):
                for j in range(i, atoms):
                    if (
                        seconds[w, i, j] > limit
                        or fixed[w, i, j] + flying * held[w, i, j] > room[w]
                    ):
                        break
                    for e in range(sizes[w], devices + 1):
                        found = seconds[w, i, j] + least[count - 1, j + 1, e - sizes[w]]
                        if found < least[count, i, e] and at[devices - e, w]:
                            least[count, i, e], choice[count, i, e] = found, w * atoms + j
    return least, choice


def _stages(cells: Cells, choice: Array, count: int, devices: int) -> Found:
    found, first, atoms = Found(), 0, cells.seconds.shape[1]
    for left in range(count, 0, -1):
        way, last = divmod(int(choice[left, first, devices]), atoms)
        found.append((way, first, last))
        first, devices = last + 1, devices - cells.ways[way].devices
    return found
