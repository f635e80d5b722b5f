"""The rows of a collective, as `execute.expand` makes them, on a group: what they take, wait for, and load of links.

Each move is a copy, which occupies the streams of its two members; one that is added arrives in scratch memory, and a
fold adds it, when all of its message is there. A message has one latency.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array, pointers
from taskflow.core.compiling import leaf, njit
from taskflow.tasks.fair import Loads, fair_pass, turn_round
from taskflow.tasks.moves import Moves, Outline, boxes_of, cut_of, moves_of
from taskflow.tasks.steps import Messages

NONE = -1


class CollectiveRows(NamedTuple):
    """The rows, in order.

    Attributes:
        ptr, before: row k waits for the rows `before[ptr[k] : ptr[k + 1]]`.
        taken: seconds of every row, where it shares nothing.
        loads: of links that several members use at once; None: there are none.
    """

    ptr: Array
    before: Array
    taken: Array
    loads: Loads | None

    def seconds(self) -> float:
        """The end of the last one."""
        if self.loads is None:
            return float(_follow(self.ptr, self.before, self.taken))
        waits = turn_round(len(self.taken), self.before, np.repeat(np.arange(len(self.taken)), np.diff(self.ptr)))
        return float(fair_pass(waits, self.loads, self.taken)[1].max(initial=0.0))


def rows_of(g: Group, outline: Outline, messages: Messages, is_shared: Array) -> CollectiveRows:
    """The rows of a collective by an algorithm that sends so; `is_shared`: see `shared_links`."""
    cut = cut_of(outline, messages.owner)
    boxes = boxes_of(outline, cut)
    moves = moves_of(outline, messages, cut, boxes)
    local, local_bytes = np.array(outline.local, np.int64).reshape(-1, 2).T
    end = pointers((boxes[:, 1] - boxes[:, 0]).prod(axis=1))
    size = (end[moves.last] - end[moves.first]) * outline.unit_bytes
    source, target, adds = moves.source, moves.target, moves.adds
    folded = target[adds]
    is_fold = np.repeat([False, True], [len(source), len(folded)])  # behind the copies of the same message
    place = np.argsort(np.lexsort((is_fold, np.append(moves.message, moves.message[adds])))) + len(local)
    row, fold = place[: len(source)], place[len(source) :]
    latency = np.where(np.diff(moves.message, prepend=NONE), g.latency[source, target], 0.0)
    taken = np.empty(len(local) + len(place))
    taken[: len(local)] = g.fold_seconds[local] + local_bytes / g.memory_bandwidth[local]
    taken[row] = latency + size / g.bandwidth[source, target]
    taken[fold] = g.fold_seconds[folded] + 3 * size[adds] / g.memory_bandwidth[folded]
    waits = _wait(tuple(moves), local, (g.streams, g.doors, g.folding), len(boxes))
    return CollectiveRows(*waits, taken, _loads(g, moves, is_shared, (row, latency), len(taken)))


def _loads(g: Group, moves: Moves, is_shared: Array, copies: tuple[Array, Array], rows: int) -> Loads | None:
    """What copies load of shared links, or None; `copies`: their rows and latencies."""
    if not is_shared.any():
        return None
    source, target = moves.source, moves.target
    links = g.links[source, target]
    links = np.where(is_shared[links], links, NONE)
    if not (links >= 0).any():
        return None
    copy, hop = np.nonzero(links >= 0)
    used, number = np.unique(links[copy, hop], return_inverse=True)
    peak, latency = np.ones(rows), np.zeros(rows)
    row = copies[0]
    peak[row], latency[row] = g.bandwidth[source, target], copies[1]
    ptr = pointers(np.bincount(row[copy], minlength=rows))
    return Loads(ptr, number.reshape(-1), 1.0 / g.link_bandwidth[used][number.reshape(-1)], peak, latency)


def shared_links(g: Group, messages: Messages) -> Array:
    """Whether messages that no stream of a device keeps apart cross a link; the last one: no link."""
    is_used = np.zeros((g.count, g.count), np.bool_)
    is_used[messages.source, messages.target] = True
    source, target = np.nonzero(is_used)
    links = g.links[source, target]
    is_shared = np.ones(len(g.link_bandwidth) + 1, np.bool_)
    is_shared[-1] = False
    for streams in np.moveaxis(g.streams[source, target], 1, 0):
        low, high = np.full(len(is_shared), len(g.streams) ** 2), np.full(len(is_shared), -2)
        np.minimum.at(low, links, streams[:, None])
        np.maximum.at(high, links, streams[:, None])
        is_shared &= (low < high) | (low == NONE)
    return is_shared


@njit
def _wait(moves: tuple[Array, ...], local: Array, group: tuple[Array, ...], pieces: int) -> tuple[Array, Array]:
    """`ptr` and `before` of `CollectiveRows`."""
    source, target, first, last, adds, message, _ = moves
    streams, doors, folding = group
    rows, most = len(local) + len(source) + adds.sum(), len(local) + 6 * len(source) + 2 * (last - first).sum()
    ptr, before, n, row, begun = np.zeros(rows + 1, np.int64), np.empty(most, np.int64), 0, 0, 0
    on = np.full(max(streams.max(), folding.max()) + 1, NONE)  # the last row on every stream
    writer, scratch = np.full((len(folding), pieces), NONE), np.full((len(folding), doors.max() + 1), NONE)
    for member in local:
        n = _add(before, n, on[folding[member]])
        on[folding[member]] = row
        row += 1
        ptr[row] = n
    for k in range(len(source)):
        s, t = source[k], target[k]
        for stream in streams[s, t]:
            if stream >= 0:
                n = _add(before, n, on[stream])
                on[stream] = row
        n = _add_writers(before, n, writer[s], first[k], last[k])
        if adds[k]:
            n = _add(before, n, scratch[t, doors[s, t]])
        else:
            writer[t, first[k] : last[k]] = row
        row += 1
        ptr[row] = n
        if k + 1 < len(source) and message[k + 1] == message[k]:
            continue
        arrived = row - 1
        while begun <= k:
            if adds[begun]:
                n = _add(before, n, arrived)
                n = _add(before, n, on[folding[t]])
                n = _add_writers(before, n, writer[t], first[begun], last[begun])
                writer[t, first[begun] : last[begun]] = row
                on[folding[t]] = scratch[t, doors[s, t]] = row
                row += 1
                ptr[row] = n
            begun += 1
    return ptr, before[:n]


@leaf
def _add(before: Array, n: int, row: int) -> int:
    if row == NONE:
        return n
    before[n] = row
    return n + 1


@leaf
def _add_writers(before: Array, n: int, writer: Array, first: int, last: int) -> int:
    latest = NONE
    for piece in range(first, last):
        if writer[piece] != latest:
            latest = writer[piece]
            n = _add(before, n, latest)
    return n


@njit
def _follow(ptr: Array, before: Array, taken: Array) -> float:
    """The end of the last row."""
    end, last = np.empty(len(taken)), 0.0
    for row in range(len(taken)):
        moment = 0.0
        for k in range(ptr[row], ptr[row + 1]):
            moment = max(moment, end[before[k]])
        end[row] = moment + taken[row]
        last = max(last, end[row])
    return last
