"""The least memory that a strategy takes, compiled by numba: what its points tell, before anything is moved."""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import tiered
from taskflow.lowering.boxes import volume
from taskflow.lowering.life import Lives, load
from taskflow.lowering.pointtable import PointTable
from taskflow.tasks.memory import ALIGNMENT


@tiered
def least_bytes(
    of_lives: tuple[Array, ...], store: tuple[Array, ...], points_of: Array, devices: int
) -> Array:
    """(regions, devices) bytes of every region on every device: those of the largest box that a point there touches.

    Args:
        of_lives, store: `Lives` and `PointTable` as plain tuples.
        points_of: number of the points of every operator.
        devices: of the machine.
    """
    lives, table = Lives(*of_lives), PointTable(*store)
    found = np.zeros((len(lives.region), devices), np.int64)
    for region in range(len(found)):
        life, points = load(region, lives, points_of, table)
        for p in range(len(points.device)):
            size = -(-volume(points.box[p]) * life.itemsize // ALIGNMENT) * ALIGNMENT
            found[region, points.device[p]] = max(found[region, points.device[p]], size)
    return found
