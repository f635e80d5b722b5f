"""Which rows are alike: of every row the one of a representative that stands for it, among kinds of regions.

What touches a device is like what touches its representative, at the same place (see `alike`, which makes sure of it).
So an order of the rows of representatives is one of all rows: those that are like one row follow each other there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers, spread
from taskflow.core.errors import InternalError
from taskflow.core.grouping import grouped, ranks
from taskflow.core.told import digest_of_bytes
from taskflow.lowering.fragments import Found
from taskflow.lowering.rows import DistinctPoints, IssueOrder
from taskflow.lowering.sample import Sample, instances_of_arguments
from taskflow.tasks.task_graph import TaskGraph


class RowOrder(NamedTuple):
    """The order of all rows, said by those of representatives.

    Attributes:
        representative: of every device, the one that stands for it.
        row: of every row of representatives, in their order, which of all rows it is as these are found.
        begin: of every one of them, where the rows that are like it begin among all rows in order.
    """

    representative: Array
    row: Array
    begin: Array

    @property
    def digest(self) -> bytes:
        """A hash of it, on which ranks must agree."""
        return digest_of_bytes(b"".join(column.tobytes() for column in self))

    def place(self, like: Array, rank: Array) -> Array:
        """Which of all rows in order rows are; `like`: one of `row` for each, `rank`: see `Likeness`."""
        by_number = np.argsort(self.row)
        at = np.searchsorted(self.row, like, sorter=by_number)
        place: Array = self.begin[by_number[at]] + rank
        return place


class Likeness(NamedTuple):
    """What the nodes of a sample are like.

    Attributes:
        node: of every node, that of a representative.
        rank: of every node, how many before it are like the same one.
    """

    node: Array
    rank: Array


def likeness_of(sample: Sample, chosen: DistinctPoints, representative: Array) -> Likeness:
    """What the nodes of a sample are like; `representative`: of every device.

    Raises:
        InternalError: these do not do the same.
    """
    point = np.repeat(np.arange(len(chosen.points)), chosen.points)
    points = _at_representative(point, chosen.device, representative)
    region = np.repeat(np.arange(len(sample.regions)), sample.args)
    touched = sample.instance_device[instances_of_arguments(sample)]
    of_args = sample.arg_row[_at_representative(region, touched, representative)]
    rows = np.arange(len(sample.row))
    rows[sample.arg_row] = of_args
    if (rows[sample.arg_row] != of_args).any():
        raise InternalError("a row is like two rows of representatives")
    node = np.concatenate([points, sample.points + rows])
    return Likeness(node, ranks(node, len(node)))


def _at_representative(group: Array, device: Array, representative: Array) -> Array:
    """Of every item, that at its place among those of its group, on the representative of its device."""
    devices = len(representative)
    key = group * devices + device
    wanted = group * devices + representative[device]
    count = int(max(key.max(initial=-1), wanted.max(initial=-1))) + 1
    ptr, order = grouped(key, count)
    at = ptr[wanted] + ranks(key, count)
    if (at >= ptr[wanted + 1]).any():
        raise InternalError("a device lacks what its representative has")
    matching: Array = order[at]
    return matching


def numbers_as_found(rows: TaskGraph, chosen: DistinctPoints, by_region: Found) -> Array:
    """Of every row of representatives, which of all rows it is as these are found: points, then what moves regions.

    Args:
        rows: of representatives.
        chosen, by_region: of all devices.
    """
    peers = rows.peers
    assert peers is not None, "rows of representatives"
    points = pointers(chosen.points[chosen.which])
    moves = np.array([len(fragment.row) for fragment in by_region.fragments], np.int64)[
        by_region.which
    ]
    first = points[-1] + pointers(moves)
    begin = np.array([kind.begin for kind in peers.kinds], np.int64)
    moved = first[rows.region] + peers.number - begin[peers.kind]
    numbers: Array = np.where(rows.launch >= 0, points[rows.launch] + rows.point, moved)
    return numbers


def all_numbers_as_found(chosen: DistinctPoints, by_region: Found, issue: IssueOrder) -> Array:
    """The same of all rows, in program order."""
    moves, _ = by_region.version_rows()
    ordinal, _ = by_region.gather(lambda f: f.row["ordinal"])
    which = chosen.which
    points = chosen.points[chosen.which]
    of_points = chosen.ordinal[spread(pointers(chosen.points)[:-1][which], points)]
    row = issue.rows(np.concatenate([points, moves]), np.concatenate([of_points, ordinal]))
    numbers = np.empty_like(row)
    numbers[row] = np.arange(len(row))
    return numbers
