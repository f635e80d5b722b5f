"""The rows that touch some devices, and their numbers among the rows of all devices, which are never made.

A row touches a device if it has an instance there, so a row of several devices is a row of each. Rows that wait for
each other do so for what is in an instance: both touch its device. So the rows of all devices, one after the other,
have all rows and all dependences of the whole. A row's number follows from how many rows there are of each operator and
each version of a region, which is asked of every kind once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, gather, pointers, spread
from taskflow.lowering.fragments import Found
from taskflow.lowering.life import Lives
from taskflow.lowering.like import likeness_of
from taskflow.lowering.movement import Fragment
from taskflow.lowering.rows import DistinctPoints, IssueOrder
from taskflow.lowering.sample import Sample, instances_of_arguments, kinds_of, parts_of
from taskflow.lowering.state import COLLECTIVE


class OwnPart(NamedTuple):
    """What some devices have of a task graph.

    Attributes:
        chosen, by_region: their points, and their parts of all fragments.
        wholes: the collectives of the sample in which they take part, with all arguments.
        number: of every row as it is found (see `rows`), its number among the rows of all devices.
        place: of every row as it is found, its number among those of its operator, or of its version, on all devices.
        whole: of every row as it is found, which of `wholes` it is; -1: no collective.
        alike: of every row as it is found, which of all rows, as these are found, is that of a representative that
            stands for it, and how many before it are like that one; None where no representatives are given.
    """

    chosen: DistinctPoints
    by_region: Found
    wholes: Found
    number: Array
    place: Array
    whole: Array
    alike: tuple[Array, Array] | None


def regions_near(by_region: Found, chosen: DistinctPoints, lives: Lives, is_own: Array) -> Array:
    """Which regions the devices that are marked touch: they have an instance, or a point of an operator on it.

    The first one always is: what is made of none has no columns.
    """
    first, kind = kinds_of(by_region, np.arange(len(by_region.which)))
    parts = zip(by_region.which[first].tolist(), by_region.shift[first].tolist(), strict=True)
    is_here = [is_own[by_region.fragments[k].instance_device + by].any() for k, by in parts]
    has_point = np.zeros(len(chosen.points), np.bool_)
    has_point[np.repeat(np.arange(len(chosen.points)), chosen.points)[is_own[chosen.device]]] = True
    region = np.repeat(np.arange(len(kind)), np.diff(lives.op_ptr))
    touching = np.bincount(region[has_point[chosen.which[lives.op]]], minlength=len(kind))
    near: Array = np.array(is_here, np.bool_)[kind] | (touching > 0)
    near[0] = True
    return near


def own_part(
    sample: Sample,
    chosen: DistinctPoints,
    by_region: Found,
    issue: IssueOrder,
    is_own: Array,
    representative: Array | None = None,
) -> OwnPart:
    """What the devices that are marked have. A collective has no arguments of others: there may be thousands.

    Args:
        sample: of all devices; it may lack regions that these do not touch.
        chosen, by_region: of all devices.
        issue: the order of all rows.
        is_own: (devices,).
        representative: of every device, the one that stands for it.
    """
    part = part_of(sample, chosen, is_own)
    is_whole = part.is_node & np.append(
        np.zeros(sample.points, np.bool_), sample.row["kind"] == COLLECTIVE
    )
    has_all = is_whole[sample.points + sample.arg_row]
    of_wholes = np.zeros_like(part.is_here)
    of_wholes[part.instance[has_all]] = True
    wholes = parts_of(sample, chosen, is_whole, has_all, of_wholes, np.zeros_like(of_wholes))
    numbers = _Numbers(sample, chosen, by_region, issue)
    node, issuer = numbers.issued(part.is_node)
    alike = None if representative is None else likeness_of(sample, chosen, representative)
    nothing = [_without_all(fragment) for fragment in by_region.fragments]
    which = np.where(sample.kind >= 0, sample.kind, len(part.fragments) + by_region.which)
    return OwnPart(
        chosen.only(part.is_node[: sample.points]),
        Found([*part.fragments, *nothing], which, by_region.shift),
        Found(wholes, np.arange(len(sample.regions)), sample.by_region.shift),
        numbers.of(node, issuer),
        node - numbers.begin[issuer],
        np.where(is_whole[node], pointers(is_whole)[node], -1),
        alike and (numbers.as_found(alike.node[node], issuer), alike.rank[node]),
    )


class MarkedPart(NamedTuple):
    """The part of a sample that some devices have.

    Attributes:
        is_node, is_here: of every node, and of every instance, whether it is on one of the devices.
        instance: of every argument of a row.
        fragments: the parts of all fragments. A collective has no arguments of other devices.
    """

    is_node: Array
    is_here: Array
    instance: Array
    fragments: list[Fragment]

    @property
    def light(self) -> MarkedPart:
        """The same without what is of every argument."""
        return self._replace(instance=self.instance[:0].copy())


def part_of(sample: Sample, chosen: DistinctPoints, is_own: Array) -> MarkedPart:
    """What the devices that are marked have; `chosen`: of all devices."""
    instance = instances_of_arguments(sample)
    is_here = is_own[sample.instance_device]
    is_node = np.concatenate([is_own[chosen.device], np.zeros(len(sample.row), np.bool_)])
    is_node[sample.points + sample.arg_row[is_here[instance]]] = True
    is_together = (sample.row["kind"] == COLLECTIVE)[sample.arg_row]
    is_arg = is_node[sample.points + sample.arg_row] & (is_here[instance] | ~is_together)
    is_instance = is_here.copy()
    is_instance[instance[is_arg]] = True
    fragments = parts_of(sample, chosen, is_node, is_arg, is_instance, is_here)
    return MarkedPart(is_node, is_here, instance, fragments)


def _without_all(f: Fragment) -> Fragment:
    """A fragment with as many versions, of which the devices have nothing."""
    empty = {name: column[:0] for name, column in vars(f).items()}
    return Fragment(**empty | {"version_row": np.zeros_like(f.version_row)})


class _Numbers:
    """The numbers of nodes of a sample among all rows.

    Nodes stand in lists: the points of an operator, or the rows of a version. Those of a list with one ordinal are a
    cell; in the issue order the rows of a cell follow each other. Issuers are all operators, then all versions.

    Attributes:
        begin: of every issuer, the first node of its list; behind all nodes: its region is left out.
    """

    def __init__(
        self, sample: Sample, chosen: DistinctPoints, by_region: Found, issue: IssueOrder
    ) -> None:
        every = Found(by_region.fragments, np.arange(len(by_region.fragments)), by_region.shift)
        row, rows = every.gather(lambda f: f.row["ordinal"])
        version_rows, versions = every.version_rows()
        size, rank = _cells(
            np.concatenate([chosen.points, version_rows]), np.concatenate([chosen.ordinal, row])
        )
        first = pointers(versions)[:-1][by_region.which]
        count = versions[by_region.which]
        lists = np.concatenate([chosen.which, len(chosen.points) + spread(first, count)])
        self._start = _starts(size[lists], issue)
        self._first_found = pointers(size.sum(axis=1)[lists])

        of_sample = spread(pointers(rows)[:-1][by_region.which[sample.regions]], sample.rows)
        self._ordinal = np.concatenate([chosen.ordinal, row[of_sample]])
        self._rank = np.concatenate([rank[: sample.points], rank[sample.points :][of_sample]])
        begin = pointers(np.concatenate([chosen.points, sample.version_rows, [0]]))
        first = np.append(pointers(sample.versions)[:-1], sample.versions.sum())[sample.kind]
        step = np.where(
            sample.kind < 0, 0, 1
        )  # regions that are left out have the empty list at the end
        at = np.repeat(first, count) + spread(np.zeros_like(count), count) * np.repeat(step, count)
        self._lists = np.concatenate([chosen.which, len(chosen.points) + at])
        self._ends = begin
        self.begin = begin[self._lists]

    def issued(self, is_node: Array) -> tuple[Array, Array]:
        """The nodes that are marked, as often as each is found, and their issuers."""
        marked = np.flatnonzero(is_node)
        ends = np.searchsorted(marked, self._ends)
        node, count = gather([marked[a:b] for a, b in pairwise(ends.tolist())], self._lists)
        return node, np.repeat(np.arange(len(self._lists)), count)

    def of(self, node: Array, issuer: Array) -> Array:
        """Which of all rows they are."""
        number: Array = self._start[issuer, self._ordinal[node]] + self._rank[node]
        return number

    def as_found(self, node: Array, issuer: Array) -> Array:
        """Which of all rows they are as these are found."""
        number: Array = self._first_found[issuer] + node - self.begin[issuer]
        return number


def _cells(lengths: Array, ordinal: Array) -> tuple[Array, Array]:
    """How many nodes every list has with every ordinal, and of each node how many stand before it in its cell."""
    ordinals = int(ordinal.max(initial=0)) + 1
    cell = np.repeat(np.arange(len(lengths)), lengths) * ordinals + ordinal
    size = np.bincount(cell, minlength=len(lengths) * ordinals)
    rank = np.empty(len(cell), np.int64)
    rank[np.argsort(cell, kind="stable")] = spread(np.zeros_like(size), size)
    return size.reshape(-1, ordinals), rank


def _starts(size: Array, issue: IssueOrder) -> Array:
    """The first row of every operator and version (first axis) with every ordinal (second); `size`: how many rows.

    Operators and versions of one group stand together, those of a lower ordinal first.
    """
    issuers, ordinals = size.shape
    place = np.empty(issuers, np.int64)
    place[issue.numbers] = np.arange(issuers)
    cell = np.flatnonzero(size)
    issuer, ordinal = np.divmod(cell, ordinals)
    cell = cell[np.lexsort((place[issuer], ordinal, issue.group[issuer]))]
    in_order = size.reshape(-1)[cell]
    start = np.zeros(size.size, np.int64)
    start[cell] = np.cumsum(in_order) - in_order
    return start.reshape(size.shape)
