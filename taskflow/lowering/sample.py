"""A task graph's kinds of regions, each once, and the part of their fragments that some devices have.

On many devices a graph has few fragments, and each region has one of them. So what the rows of some devices are is
asked of every kind once, and all rows are never made.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, differences, pointers, spread
from taskflow.lowering.fragments import Found
from taskflow.lowering.life import Lives
from taskflow.lowering.movement import Fragment
from taskflow.lowering.rows import DistinctPoints


class Sample(NamedTuple):
    """Every kind of region once: the regions of a kind have one fragment on the same devices.

    Nodes are the points of `chosen`, then the rows that move the regions of the sample.

    Attributes:
        regions: the first of each kind.
        kind: per region of the graph; -1: it is left out.
        by_region: the fragments of `regions`.
        points: how many nodes are points.
        row, rows: those of all fragments, as records, and how many each has.
        version_rows, versions: how many rows each version has, and how many versions each fragment.
        arg_row, arg, args: arguments of rows: whose they are, the arguments as records, how many each fragment has.
        instance_device, instances: of all fragments, and how many each has.
        event_points, events: which of the distinct points every event is of, and how many events each fragment has.
        begin, waiting, awaited, edges: of every edge, the first nodes of the issuers of both ends, and both ends; how
            many edges each fragment has.
    """

    regions: Array
    kind: Array
    by_region: Found
    points: int
    row: Array
    rows: Array
    version_rows: Array
    versions: Array
    arg_row: Array
    arg: Array
    args: Array
    instance_device: Array
    instances: Array
    event_points: Array
    events: Array
    begin: Array
    waiting: Array
    awaited: Array
    edges: Array


def sample_of(
    by_region: Found, chosen: DistinctPoints, lives: Lives, is_kept: Array | None = None
) -> Sample:
    """Every kind of region once; of those that are marked, if some are."""
    regions, kind, fragments = _one_of_each(by_region, is_kept)
    row, rows = fragments.gather(lambda f: f.row)
    device, instances = fragments.gather(lambda f: f.instance_device)
    moving = fragments.version_rows()
    return Sample(
        regions,
        kind,
        fragments,
        int(chosen.points.sum()),
        row,
        rows,
        *moving,
        np.repeat(np.arange(len(row)), differences(row["arg_end"], rows)),
        *fragments.gather(lambda f: f.arg),
        (device + np.repeat(fragments.shift, instances)).astype(np.int32),
        instances,
        *_events(lives, regions, chosen),
        *_edges(fragments, lives, regions, chosen, moving),
    )


def _one_of_each(by_region: Found, is_kept: Array | None) -> tuple[Array, Array, Found]:
    """See `Sample.regions`, `Sample.kind` and `Sample.by_region`."""
    kept = np.arange(len(by_region.which)) if is_kept is None else np.flatnonzero(is_kept)
    first, of_kept = kinds_of(by_region, kept)
    regions = kept[first]
    kind = np.full(len(by_region.which), -1)
    kind[kept] = of_kept
    different, of = np.unique(by_region.which[regions], return_inverse=True)
    fragments = [by_region.fragments[k] for k in different.tolist()]
    return regions, kind, Found(fragments, of, by_region.shift[regions])


def _events(lives: Lives, regions: Array, chosen: DistinctPoints) -> tuple[Array, Array]:
    """See `Sample.event_points`, and how many events each region has."""
    events = np.diff(lives.event_ptr)[regions]
    event = lives.event[spread(lives.event_ptr[regions], events)]
    op = lives.op[np.repeat(lives.op_ptr[regions], events) + event["issuer"]]
    return chosen.which[op], events


def _edges(
    by_region: Found,
    lives: Lives,
    regions: Array,
    chosen: DistinctPoints,
    moving: tuple[Array, Array],
) -> tuple[Array, Array, Array, Array]:
    """See `Sample.begin` and what follows it; `moving` are its `version_rows` and `versions`."""
    base, first_node = _first_nodes(lives, regions, chosen, moving)
    edges, count = by_region.gather(lambda f: f.edges)
    kind = np.repeat(np.arange(len(regions)), count)
    begin = np.stack([first_node[base[kind] + edges[key]] for key in ("issuer", "awaited_issuer")])
    ends = begin[0] + edges["index"], begin[1] + edges["awaited_index"]
    waiting, awaited = (end.astype(np.int32) for end in ends)
    return begin.astype(np.int32), waiting, awaited, count


def _first_nodes(
    lives: Lives, regions: Array, chosen: DistinctPoints, moving: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Where the issuers of every region begin, and the first node of every issuer; `moving`: see `_edges`."""
    version_rows, versions = moving
    ops = np.diff(lives.op_ptr)[regions]
    base = np.cumsum(ops + versions) - (ops + versions)
    first_node = np.empty((ops + versions).sum(), np.int64)
    op = lives.op[spread(lives.op_ptr[regions], ops)]
    first_node[spread(base, ops)] = pointers(chosen.points)[chosen.which[op]]
    first_row = chosen.points.sum() + pointers(version_rows)[:-1]
    first_node[spread(base + ops, versions)] = first_row
    return base, first_node


def kinds_of(by_region: Found, regions: Array) -> tuple[Array, Array]:
    """The first of each kind among some regions, and the kind of each: what they have and where are the same."""
    pairs = np.stack([by_region.which, by_region.shift], axis=1)[regions]
    _, first, kind = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    return first, kind.reshape(-1)


def instances_of_arguments(sample: Sample) -> Array:
    """Of every argument of a row, the instance of the sample."""
    instance: Array = (
        np.repeat(pointers(sample.instances)[:-1], sample.args) + sample.arg["instance"]
    )
    return instance


def parts_of(
    sample: Sample,
    chosen: DistinctPoints,
    is_node: Array,
    is_arg: Array,
    is_instance: Array,
    is_here: Array,
) -> list[Fragment]:
    """The fragments of a sample with some of their rows, and the instances that these take.

    Args:
        sample, chosen: the sample, and its points.
        is_node: of every node, whether it stays.
        is_arg: of every argument of a row, whether it stays; its row and its instance do then.
        is_instance: of every instance, whether it stays.
        is_here: of every instance, whether it stays a home, and is fetched.
    """
    before = pointers(is_node)
    index = before[np.stack([sample.waiting, sample.awaited])] - before[sample.begin]
    is_edge = is_node[sample.waiting] & is_node[sample.awaited]
    is_row = is_node[sample.points :]
    is_point = [is_node[points] for points in _spans(chosen.points)]
    counts = sample.rows, sample.args, sample.instances, sample.events, sample.edges
    parts = []
    for k, spans in enumerate(zip(*map(_spans, counts), strict=True)):
        rows, args, instances, events, edges = spans
        of_events = [is_point[n] for n in sample.event_points[events].tolist()]
        parts.append(
            _part(
                sample.by_region.fragments[sample.by_region.which[k]],
                is_instance[instances],
                is_here[instances],
                is_row[rows],
                sample.arg_row[args] - rows.start,
                is_arg[args],
                np.concatenate([is_node[:0], *of_events]),
                is_edge[edges],
                index[:, edges],
            )
        )
    return parts


def _spans(count: Array) -> list[slice]:
    """Where so many of each are, one after the other."""
    return [slice(begin, end) for begin, end in pairwise(pointers(count).tolist())]


def _part(
    f: Fragment,
    is_instance: Array,
    here: Array,
    kept: Array,
    arg_row: Array,
    args: Array,
    is_point: Array,
    is_edge: Array,
    index: Array,
) -> Fragment:
    """A fragment with some instances, rows, arguments, points and edges, of which the indices are new."""
    number = np.where(is_instance, np.cumsum(is_instance) - 1, -1)
    row = f.row[kept].copy()
    arg = f.arg[args].copy()
    edges = f.edges[is_edge].copy()
    row["arg_end"] = np.cumsum(np.bincount(arg_row[args], minlength=len(kept))[kept])
    arg["instance"] = number[arg["instance"]]
    edges["index"], edges["awaited_index"] = index[:, is_edge]
    event = f.event_instance[is_point]
    is_home = here[f.homes]
    fetches = f.fetches[here[f.fetches[:, 1]]]
    return Fragment(
        f.instance_device[is_instance],
        f.instance_box[is_instance],
        f.instance_partial[is_instance],
        row,
        arg,
        f.arg_box[args],
        pointers(kept)[f.version_row],
        np.append(number, -1)[event],  # of an empty box -1 stays
        edges,
        number[f.homes[is_home]],
        f.home_box[is_home],
        np.stack([fetches[:, 0], number[fetches[:, 1]]], axis=1),
    )
