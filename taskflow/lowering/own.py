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


class Own(NamedTuple):
    """What some devices have of a task graph.

    Attributes:
        chosen, found: their points, and their parts of all fragments.
        wholes: the collectives of the sample in which they take part, with all arguments.
        number: of every row as it is found (see `rows`), its number among the rows of all devices.
        place: of every row as it is found, its number among those of its operator, or of its version, on all devices.
        whole: of every row as it is found, which of `wholes` it is; -1: no collective.
    """

    chosen: DistinctPoints
    found: Found
    wholes: Found
    number: Array
    place: Array
    whole: Array


def own_part(
    x: Sample, chosen: DistinctPoints, shift: Array, issue: IssueOrder, is_own: Array
) -> Own:
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
    return Own(
        chosen.only(is_node[: x.points]),
        Found(parts, x.kind, shift),
        Found(wholes, np.arange(len(x.regions)), x.found.shift),
        number,
        place,
        np.where(is_whole[node], pointers(is_whole)[node], -1),
    )


def _numbers(
    x: Sample, chosen: DistinctPoints, issue: IssueOrder, is_node: Array
) -> tuple[Array, Array, Array]:
    """The nodes that are marked, as often as each is found, `Own.number` and `Own.place`.

    Nodes are in lists: the points of an operator, the rows of a version. Of what stands together in the issue order,
    rows of a lower ordinal come first.
    """
    lengths = np.concatenate([chosen.points, x.version_rows])
    begin, nodes = pointers(lengths), len(is_node)
    of_list = np.repeat(np.arange(len(lengths)), lengths)
    ordinal = np.concatenate([chosen.ordinal, x.row["ordinal"]])
    ordinals = int(ordinal.max(initial=0)) + 1
    cell = of_list * ordinals + ordinal
    count = np.bincount(cell, minlength=len(lengths) * ordinals)
    order, rank = np.argsort(cell, kind="stable"), np.empty(nodes, np.int64)
    rank[order] = spread(np.zeros_like(count), count)

    versions = pointers(x.versions)[:-1][x.kind]
    lists = np.concatenate(
        [chosen.which, len(chosen.points) + spread(versions, x.versions[x.kind])]
    )  # of every operator and version, see `IssueOrder`
    place = np.empty(len(lists), np.int64)
    place[issue.numbers] = np.arange(len(lists))
    rows = count.reshape(-1, ordinals)[lists].reshape(-1)
    every = np.arange(len(rows))
    in_order = np.lexsort(
        (place[every // ordinals], every % ordinals, issue.group[every // ordinals])
    )
    start = np.empty_like(rows)
    start[in_order] = np.cumsum(rows[in_order]) - rows[in_order]

    own = np.flatnonzero(is_node)
    ends = np.searchsorted(own, begin)
    node, found = gather([own[a:b] for a, b in pairwise(ends.tolist())], lists)
    which = np.repeat(np.arange(len(lists)), found)
    return node, start[which * ordinals + ordinal[node]] + rank[node], node - begin[of_list[node]]
