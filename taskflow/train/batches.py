"""Batches: arrays cut into the feeds of steps, by index, so that every rank loads only the rows that its tiles need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from taskflow.core.arrays import check_plain
from taskflow.core.columns import Array
from taskflow.core.geometry import Rect
from taskflow.core.numbers import flag, whole

Feeds = Mapping[str, Any]


class Batches:
    """Arrays cut into batches of equal size, shuffled by a seed; an incomplete last one is dropped, or not.

    Args:
        arrays: input name -> array or anything that `array[indices]` reads, examples along dimension 0.
        size: examples a batch.
        shuffle: whether the order changes from epoch to epoch (a function of `seed` and the epoch).
        seed: of the order.
        drop_last: whether the last batch is left out where it has fewer examples.

    Raises:
        ValueError: the arrays have different lengths, or fewer examples than a batch.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
    ) -> None:
        size = whole("batches", "size", size)
        seed = whole("batches", "seed", seed, 0)
        shuffle = flag("batches", "shuffle", shuffle)
        drop_last = flag("batches", "drop_last", drop_last)
        if not arrays:
            raise ValueError("batches: there are no arrays")
        for name, array in arrays.items():
            check_plain(f"batches: '{name}'", array)
        lengths = {name: len(a) for name, a in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"batches: the arrays have different lengths: {lengths}")
        self.arrays = dict(arrays)
        self.size = size
        self.shuffle = shuffle
        self.seed = seed
        self.examples = next(iter(lengths.values()))
        self.drop_last = drop_last
        if size < 1 or self.examples < size:
            raise ValueError(f"batches: {self.examples} examples do not make a batch of {size}")

    def __len__(self) -> int:
        return self.examples // self.size if self.drop_last else -(-self.examples // self.size)

    def sizes(self) -> list[int]:
        """The examples of every batch of an epoch."""
        return [min(self.size, self.examples - k * self.size) for k in range(len(self))]

    def epoch(self, number: int) -> Iterator[Feeds]:
        """Feeds of every batch of an epoch: functions that load only the box a device needs."""
        order = np.arange(self.examples)
        if self.shuffle:
            order = np.random.default_rng([self.seed, number]).permutation(self.examples)
        for k in range(len(self)):
            rows = order[k * self.size : (k + 1) * self.size]
            yield {name: partial(_load, array, rows) for name, array in self.arrays.items()}


def _load(array: Array, rows: Array, rect: Rect) -> Array:
    """The box `rect` of the batch that consists of `rows` of `array`."""
    part: Array = array[rows[rect.lo[0] : rect.hi[0]]]
    return part[(slice(None), *rect.slices()[2:])] if len(rect.lo) > 1 else part
