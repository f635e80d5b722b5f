"""Factors: how many times as long rows take in a step as alone, as rehearsals have shown.

A row has the factor of those like it (equal kernel and tiles, equal bytes), else that of its kind (equal kernel, or the
same link), else that of all computing or moving. A factor is a ratio of sums, so long rows count for more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from taskflow.cost.samples import kernel_key, launch_key
from taskflow.tasks.task_graph import Array, Kind, TaskGraph

Key = tuple[str, str, str]  # from the closest to the widest


def row_keys(task_graph: TaskGraph, rows: Array) -> list[Key]:
    """What the factors of rows that are no collectives depend on."""
    is_transfer = task_graph.is_transfer.tolist()
    return [_key(task_graph, row, is_transfer[row]) for row in rows.tolist()]


def _key(task_graph: TaskGraph, row: int, is_transfer: bool) -> Key:
    kind = int(task_graph.kind[row])
    size = int(task_graph.bytes[row])
    if kind == Kind.POINT:
        launch = task_graph.launches[int(task_graph.launch[row])]
        return kernel_key(task_graph, launch, row), launch_key(launch), "point"
    link = (
        f" from {task_graph.source[row]} to {task_graph.device[row]}, {task_graph.algorithm[row]}"
        * is_transfer
    )
    name = f"move {kind}{link}"
    return f"{name}: {size} bytes", name, "transfer" if is_transfer else "move"


class Factors:
    """See the module.

    Args:
        keys: of rows.
        rehearsed, alone: their seconds; what is not finite and positive counts for nothing.
    """

    def __init__(
        self, keys: Sequence[Key] = (), rehearsed: Sequence[float] = (), alone: Sequence[float] = ()
    ) -> None:
        sums: dict[str, tuple[float, float]] = {}
        for key, longer, shorter in zip(keys, rehearsed, alone, strict=True):
            if 0 < longer < math.inf and 0 < shorter < math.inf:
                for name in key:
                    so_far = sums.get(name, (0.0, 0.0))
                    sums[name] = so_far[0] + longer, so_far[1] + shorter
        self._factors = {name: longer / shorter for name, (longer, shorter) in sums.items()}

    def of(self, task_graph: TaskGraph, rows: Array) -> Array:
        """The factors of rows that are no collectives."""
        if not self._factors:
            return np.ones(len(rows))
        factors = (
            next((self._factors[n] for n in key if n in self._factors), 1.0)
            for key in row_keys(task_graph, rows)
        )
        return np.fromiter(factors, float, len(rows))
