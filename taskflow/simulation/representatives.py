"""Links under the rows of representatives: who loads which, and where rows that are like each other load them unalike.

A transfer loads the links on its way, and rows of representatives stand for rows on other links. Links that the same
kinds of rows load alike have one number: none is ever fuller than another, so one of them stands for all. Rows that are
like each other and load one link do so at once: the row that stands for them loads it as often. What is known of a kind
of region is kept, by costs and orbits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskflow.core.columns import Array, pointers, spread
from taskflow.cost.model import CostModel
from taskflow.simulation.kindloads import (
    HostLoads,
    KindLoads,
    LinkNumbers,
    LoadsAmong,
    LoadsUnder,
    TableLoads,
)
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.fair import Loads
from taskflow.tasks.peers import Peers
from taskflow.tasks.task_graph import TaskGraph


def loads_of(peers: Peers[TaskGraph], costs: CostModel) -> tuple[list[KindLoads], Array]:
    """What the rows of every kind load, and the seconds of the rows of all tables in turn."""
    for table in peers.tables:
        if costs not in table.known:
            table.known[costs] = TableLoads(table.rows, costs)
    loads = [kind.table.known[costs].of(kind) for kind in peers.kinds]
    return loads, np.concatenate([table.known[costs].seconds for table in peers.tables])


def with_alike_loads(task_graph: TaskGraph, costs: CostModel) -> tuple[TaskGraph, Loads, Array]:
    """Rows of representatives, made anew where rows that are like each other take other seconds or load links unalike.

    Also what these rows load, and the seconds of the rows of all tables in turn.
    """
    peers = task_graph.peers
    assert peers is not None, "rows of representatives"
    kinds, table_seconds = loads_of(peers, costs)
    orbits, loads = find_loads(task_graph, kinds)
    while len(orbits) > len(peers.orbits):
        task_graph = peers.lower(orbits)
        peers = task_graph.peers
        assert peers is not None, "rows of finer orbits"
        orbits, loads = find_loads(task_graph, kinds)
    return task_graph, loads, table_seconds


def find_loads(task_graph: TaskGraph, loads: Sequence[KindLoads]) -> tuple[Orbits, Loads]:
    """The orbits in which rows that are like each other load links alike; and what the rows load.

    Where the orbits are finer than those of the peers, the loads are of no use.

    Args:
        task_graph: rows of representatives.
        loads: of the kinds of their regions.
    """
    peers = task_graph.peers
    assert peers is not None, "rows of representatives"
    orbits = peers.orbits
    likes = [(kind.like, kind.begin) for kind in peers.kinds]
    if (task_graph.crossing >= 0).any():
        first = 2 * orbits.representative[orbits.of]
        likes.append((np.stack([first, first + 1], axis=1).reshape(-1), 0))
        loads = [*loads, HostLoads(task_graph.machine)]
    under = [of.under(*like, orbits) for of, like in zip(loads, likes, strict=True)]
    numbers = _number_links(under, _are_shared(peers, loads))
    among = [of_kind.among(numbers) for of_kind in under]
    finer = orbits
    is_alike = all(of_kind.is_alike for of_kind in among)
    if not is_alike:
        seen = np.zeros(len(orbits.of), np.int64)
        for weight, of_kind in zip(_weights(len(among)), among, strict=True):
            seen += of_kind.seen * weight
        finer = finer.refine(seen)
        if len(finer) == len(orbits):
            finer = Orbits.of_equal(np.arange(len(orbits.of)), strides=orbits.strides)
    return finer, _of_rows(task_graph, among, loads)


def _weights(count: int) -> Array:
    """Odd numbers."""
    return np.random.default_rng(0).integers(1 << 62, size=count) | 1


def _are_shared(peers: Peers[TaskGraph], loads: Sequence[KindLoads]) -> Array:
    """Whether several sending and several receiving streams use a link; per link."""
    links = len(loads[0].machine.links) if loads else 0
    regions = [kind.regions for kind in peers.kinds] + [1]
    are_shared = np.ones(links, np.bool_)
    for end in range(2):
        low = np.full(links, np.iinfo(np.int64).max)
        high = np.full(links, -1)
        alone = np.zeros(links, np.int64)
        for of, count in zip(loads, regions, strict=False):
            users = of.users[end]
            at = users.links
            if not len(at):
                continue
            low[at] = np.minimum(low[at], users.low)
            high[at] = np.maximum(high[at], users.high)
            alone[at] += users.alone * min(count, 2)
        are_shared &= (low < high) | (alone > 1) | ((alone > 0) & (high >= 0))
    return are_shared


def _number_links(under: Sequence[LoadsUnder], are_shared: Array) -> LinkNumbers:
    """Links that the same kinds of rows load alike have one number, in the order of the links."""
    code = np.zeros(len(are_shared), np.int64)
    weights = _weights(len(under))
    for weight, of_kind in zip(weights, under, strict=True):
        code[of_kind.links] += (of_kind.number + 1) * weight
    used = np.zeros(len(are_shared), np.bool_)
    for of_kind in under:
        used[of_kind.links] = True
    at = np.flatnonzero(used & are_shared)
    _, first, number = np.unique(code[at], return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    number, first = order[number.reshape(-1)], at[first[number.reshape(-1)]]
    numbers = np.full(len(code), -1)
    for of_kind in under:
        numbers[of_kind.links] = of_kind.number
        is_one = not len(of_kind.links) or (numbers[at] == numbers[first]).all()
        numbers[of_kind.links] = -1
        if not is_one:  # by chance
            number = np.arange(len(at))
            break
    of_links = np.full(len(code), -1)
    of_links[at] = number
    return LinkNumbers(of_links, of_links.tobytes())


def _of_rows(
    task_graph: TaskGraph, among: Sequence[LoadsAmong], loads: Sequence[KindLoads]
) -> Loads:
    """What the rows of representatives load, of links by their numbers."""
    peers = task_graph.peers
    assert peers is not None
    of_kinds = [of_kind.span.stop - of_kind.span.start for of_kind in loads]
    first = pointers(of_kinds)
    begin = np.array([kind.begin for kind in peers.kinds], np.int64)
    none = int(first[-1])  # behind all rows: a point, which loads nothing
    row = np.where(peers.kind < 0, none, first[peers.kind] + peers.number - begin[peers.kind])
    crossing = task_graph.crossing
    crossed = np.flatnonzero(crossing >= 0)
    row[crossed] = first[-2] + 2 * task_graph.device[crossed] + crossing[crossed]
    entries = np.concatenate([a.row + f for a, f in zip(among, first.tolist(), strict=False)])
    ptr = pointers(np.bincount(entries, minlength=none + 1))
    width = ptr[row + 1] - ptr[row]
    at = spread(ptr[row], width)
    number, part = (
        np.concatenate([getattr(a, name) for a in among])[at] for name in ("number", "part")
    )
    peak, latency = (
        np.append(np.concatenate([getattr(of_kind, name) for of_kind in loads]), 0.0)[row]
        for name in ("peak", "latency")
    )
    return Loads(pointers(width), number, part, peak, latency)
