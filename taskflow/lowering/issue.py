"""The issue order: which row everything becomes, and what every row waits for.

Feeds and what is kept from the step before come first, then the operators in program order, the movement of each
version of a region right behind the operator that makes it. That is so whatever the configurations, which only say how
many rows there are of each.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from taskflow.core.columns import Array, pointers, spread
from taskflow.lowering.fragments import Found
from taskflow.lowering.life import Lives


class IssueOrder:
    """The order of the operators and the versions of a graph. Version v of all regions in turn is number `ops + v`.

    Args:
        lives: of all regions.
        args: per operator, the number of its arguments.
    """

    def __init__(self, lives: Lives, args: Array) -> None:
        self.lives, self._args, self._ops = lives, args, len(args)
        regions = np.arange(len(lives.region))
        self._region_of_op, self._region_of_version, self._region_of_event = (
            np.repeat(regions, np.diff(ptr)) for ptr in (lives.op_ptr, lives.producer_ptr, lives.event_ptr)
        )

    @cached_property
    def numbers(self) -> Array:
        """Operators and versions, by number, in row order."""
        lives, region = self.lives, self._region_of_version
        event = np.maximum(lives.event_ptr[region] + lives.producer, 0)
        behind = np.where(lives.producer < 0, -1, 2 * self._op_of(region, lives.event["issuer"][event]) + 1)
        found: Array = np.argsort(np.concatenate([2 * np.arange(self._ops), behind]), kind="stable")
        return found

    @cached_property
    def sequence(self) -> list[tuple[int, int, int]]:
        """(operator, -1, -1) and (-1, region, version) in row order."""
        version = np.maximum(self.numbers - self._ops, 0)
        region = self._region_of_version[version]
        columns = (a.tolist() for a in (self.numbers, region, version - self.lives.producer_ptr[region]))
        return [(k, -1, -1) if k < self._ops else (-1, r, v) for k, r, v in zip(*columns, strict=True)]

    def starts(self, rows: Array) -> Array:
        """The first row of operators and versions, of which these are the numbers of rows."""
        start, in_order = np.empty_like(rows), rows[self.numbers]
        start[self.numbers] = np.cumsum(in_order) - in_order
        return start

    def dependences(self, found: Found, start: Array, rows: int) -> tuple[Array, Array]:
        """All edges of all fragments as CSR, each once, sorted.

        Args:
            start: see `starts`.
            rows: of the task graph.
        """
        edges, count = found.gather(lambda f: f.edges)
        first = start[self._issuers]
        base = np.repeat((self.lives.op_ptr + self.lives.producer_ptr)[:-1], count)
        waiting = first[base + edges["issuer"]] + edges["index"]
        awaited = first[base + edges["awaited_issuer"]] + edges["awaited_index"]
        key = np.unique(waiting * rows + awaited)
        return pointers(np.bincount(key // rows, minlength=rows)), key % rows

    def instances(self, found: Found, points: Array, first_instance: Array) -> Array:
        """The instances of the arguments of all points, operator after operator; -1: an empty box.

        Args:
            points: per operator, how many.
            first_instance: of every region.
        """
        local, locals_ = found.gather(lambda f: f.event_instance)
        op = self._op_of(self._region_of_event, self.lives.event["issuer"])
        total, count = self._args * points, points[op]
        at = np.repeat((np.cumsum(total) - total)[op] + self.lives.event["argument"], count)
        at += spread(np.zeros_like(count), count) * np.repeat(self._args[op], count)
        instance = np.empty(total.sum(), np.int64)
        instance[at] = np.where(local < 0, -1, local + np.repeat(first_instance, locals_))
        return instance

    def _op_of(self, region: Array, issuer: Array) -> Array:
        """The operators that are these issuers of these regions."""
        found: Array = self.lives.op[np.minimum(self.lives.op_ptr[region] + issuer, len(self.lives.op) - 1)]
        return found

    @cached_property
    def _issuers(self) -> Array:
        """The issuers of every region in turn (see `Fragment`), as numbers of operators and versions."""
        numbers = np.concatenate([self.lives.op, self._ops + np.arange(len(self._region_of_version))])
        region = np.concatenate([self._region_of_op, self._region_of_version])
        found: Array = numbers[np.argsort(region, kind="stable")]
        return found
