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
from taskflow.lowering.rows import DistinctPoints, IssueOrder
from taskflow.lowering.sample import Sample, instances_of_arguments, parts_of
from taskflow.lowering.state import COLLECTIVE


class OwnPart(NamedTuple):
    """What some devices have of a task graph.

    Attributes:
        chosen, found: their points, and their parts of all fragments.
        wholes: the collectives of the sample in which they take part, with all arguments.
        number: of every row as it is found (see `rows`), its number among the rows of all devices.
        place: of every row as it is found, its number among those of its operator, or of its version, on all devices.
        whole: of every row as it is found, which of `wholes` it is; -1: no collective.
        node: of every row as it is found, the node of the sample.
    """

    chosen: DistinctPoints
    found: Found
    wholes: Found
    number: Array
    place: Array
    whole: Array
    node: Array


def own_part(
    x: Sample, chosen: DistinctPoints, shift: Array, issue: IssueOrder, is_own: Array
) -> OwnPart:
    """What the devices that are marked have. A collective has no arguments of others: there may be thousands.

    Args:
        x, chosen: of all devices.
        shift: see `Found`.
        issue: the order of all rows.
        is_own: (devices,).
    """
    instance, is_here = instances_of_arguments(x), is_own[x.instance_device]
    is_node = np.concatenate([is_own[chosen.device], np.zeros(len(x.row), np.bool_)])
    is_node[x.points + x.arg_row[is_here[instance]]] = True
    is_whole = is_node & np.append(np.zeros(x.points, np.bool_), x.row["kind"] == COLLECTIVE)
    has_all = is_whole[x.points + x.arg_row]
    is_arg = is_node[x.points + x.arg_row] & (is_here[instance] | ~has_all)
    is_instance, of_wholes = is_here.copy(), np.zeros_like(is_here)
    is_instance[instance[is_arg]], of_wholes[instance[has_all]] = True, True
    parts = parts_of(x, is_node, is_arg, is_instance, is_here)
    wholes = parts_of(x, is_whole, has_all, of_wholes, np.zeros_like(is_here))
    node, number, place = _numbers(x, chosen, issue, is_node)
    return OwnPart(
        chosen.only(is_node[: x.points]),
        Found(parts, x.kind, shift),
        Found(wholes, np.arange(len(x.regions)), x.found.shift),
        number,
        place,
        np.where(is_whole[node], pointers(is_whole)[node], -1),
        node,
    )


def _numbers(
    x: Sample, chosen: DistinctPoints, issue: IssueOrder, is_node: Array
) -> tuple[Array, Array, Array]:
    """The nodes that are marked, as often as each is found, `OwnPart.number` and `OwnPart.place`.

    Nodes stand in lists: the points of an operator, or the rows of a version. Those of a list with one ordinal are a
    cell; in the issue order the rows of a cell follow each other.
    """
    lengths = np.concatenate([chosen.points, x.version_rows])
    begin, list_of = pointers(lengths), np.repeat(np.arange(len(lengths)), lengths)
    ordinal = np.concatenate([chosen.ordinal, x.row["ordinal"]])
    ordinals = int(ordinal.max(initial=0)) + 1
    cell = list_of * ordinals + ordinal
    size = np.bincount(cell, minlength=len(lengths) * ordinals)
    rank = np.empty(len(is_node), np.int64)  # of a node in its cell
    rank[np.argsort(cell, kind="stable")] = spread(np.zeros_like(size), size)

    versions = pointers(x.versions)[:-1][x.kind]
    lists = np.concatenate(
        [chosen.which, len(chosen.points) + spread(versions, x.versions[x.kind])]
    )  # of every operator and version, see `IssueOrder`
    start = _starts(size.reshape(-1, ordinals)[lists], issue)

    marked = np.flatnonzero(is_node)
    ends = np.searchsorted(marked, begin)
    node, count = gather([marked[a:b] for a, b in pairwise(ends.tolist())], lists)
    issuer = np.repeat(np.arange(len(lists)), count)
    return node, start[issuer, ordinal[node]] + rank[node], node - begin[list_of[node]]


def _starts(size: Array, issue: IssueOrder) -> Array:
    """The first row of every operator and version (first axis) with every ordinal (second); `size`: how many rows.

    Operators and versions of one group stand together, those of a lower ordinal first.
    """
    issuers, ordinals = size.shape
    place = np.empty(issuers, np.int64)
    place[issue.numbers] = np.arange(issuers)
    issuer, ordinal = np.divmod(np.arange(size.size), ordinals)
    order = np.lexsort((place[issuer], ordinal, issue.group[issuer]))
    in_order, start = size.reshape(-1)[order], np.empty(size.size, np.int64)
    start[order] = np.cumsum(in_order) - in_order
    return start.reshape(size.shape)
