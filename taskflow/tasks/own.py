"""Own rows: what the rows of some devices know of the rows of all, which are not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.geometry import Rect
from taskflow.core.told import digest_of_bytes

Rows = TypeVar("Rows")  # the task graph that collectives are rows of


@dataclass(frozen=True, eq=False)
class Own(Generic[Rows]):
    """The rows of some devices, among those of all.

    Attributes:
        number: of every row, which of the rows of all devices it is.
        devices: whose rows these are; None: those of representatives (see `tasks.peers`).
        agreed: a hash of what decides the rows of all.
        homes, fetches: those of all devices, see `tasks.everywhere`; None: they are in the task graph.
        wholes, whole: collectives with all their arguments, and of every row which of these it is, -1: none. A row of
            which `whole` says so has only the arguments on these devices. None: all have all.
    """

    number: Array
    devices: tuple[int, ...] | None = None
    agreed: str = ""
    homes: Mapping[str, tuple[tuple[int, Rect], ...]] | None = None
    fetches: Mapping[str, tuple[int, tuple[int, ...]]] | None = None
    wholes: Rows | None = None
    whole: Array | None = None

    def only(self, rows: Array) -> Own[Rows]:
        """Of some rows, in this order."""
        whole = None if self.whole is None else self.whole[rows]
        return replace(self, number=self.number[rows], whole=whole)

    def reordered(self, order: Array) -> Own[Rows]:
        """Of the rows in another order, on which ranks must agree, too."""
        agreed = digest_of_bytes(self.agreed.encode() + order.tobytes()).hex()
        return replace(self.only(order), agreed=self.agreed and agreed)

    def in_order_of_all(self, number: Array, order: bytes) -> Own[Rows]:
        """Of the rows in an order of all rows, in which they have these numbers; `order`: a hash of it."""
        agreed = digest_of_bytes(self.agreed.encode() + order).hex()
        return replace(self.only(np.argsort(number)), number=np.sort(number), agreed=agreed)

    def spelled(self, origin: Array) -> Own[Rows]:
        """Of rows without collectives, each of which comes from one of these."""
        return replace(self, number=self.number[origin], wholes=None, whole=None)
