"""The rows of a collective, as `execute.expand` makes them, on a group: what they take, wait for, and load of links.

Each move is a copy, which occupies the streams of its two members; one that is added arrives in scratch memory, and a
fold adds it, when all of its message is there. A message has one latency.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.collective.group import Group, Sent, sent_in
from taskflow.core.columns import Array, pointers
from taskflow.core.compiling import leaf, tiered
from taskflow.tasks.fair import Loads, fair_pass, turn_round
from taskflow.tasks.moves import Outline, boxes_of, cut_of, moves_of
from taskflow.tasks.steps import Messages

NONE, NOBODY = -1, -2


class CollectiveRows(NamedTuple):
    """The rows, in order.

    Attributes:
        ptr, before: row k waits for the rows `before[ptr[k] : ptr[k + 1]]`.
        taken: seconds of every row, where it shares nothing.
        load: bytes that cross every link; the last one: that are sent in all.
        loads: of links that several members use at once; None: there are none.
    """

    ptr: Array
    before: Array
    taken: Array
    load: Array
    loads: Loads | None

    def seconds(self) -> float:
        """The end of the last one."""
        if self.loads is None:
            return float(_follow(self.ptr, self.before, self.taken))
        waits = turn_round(
            len(self.taken), self.before, np.repeat(np.arange(len(self.taken)), np.diff(self.ptr))
        )
        return float(fair_pass(waits, self.loads, self.taken)[1].max(initial=0.0))


class Sending(NamedTuple):
    """The messages of an algorithm in a group.

    Attributes:
        messages: between members.
        sent: what they take.
        is_shared: whether messages that no stream of a device keeps apart cross a link; the last one: no link.
    """

    messages: Messages
    sent: Sent
    is_shared: Array


def sending(g: Group, messages: Messages) -> Sending:
    """What messages take in a group."""
    sent = sent_in(g, messages.source, messages.target)
    return Sending(messages, sent, _shared(sent.streams, sent.links, len(g.link_bandwidth)))


def rows_of(g: Group, outline: Outline, sends: Sending) -> CollectiveRows:
    """The rows of a collective by an algorithm that sends so."""
    messages, sent, is_shared = sends
    cut = cut_of(outline, messages.owner, messages.together)
    boxes = boxes_of(outline, cut)
    moves = moves_of(outline, messages, cut, boxes)
    end = pointers((boxes[:, 1] - boxes[:, 0]).prod(axis=1)) * outline.unit_bytes
    local = np.array(outline.local, np.int64).reshape(-1, 2)
    last = (
        np.full(g.stream_count, NONE),
        np.full((g.count, len(end) - 1), NONE, np.int32),  # by NumPy, which asks for huge pages
        np.full((g.count, g.most_doors), NONE),
    )
    sent = Sent(*(column[moves.number] for column in sent))
    columns = g.link_bandwidth, g.folding, g.fold_seconds, g.memory_bandwidth
    ptr, before, taken, load, *loads = _rows(
        tuple(moves), end, local, tuple(sent), columns, is_shared, last
    )
    return CollectiveRows(ptr, before, taken, load, Loads(*loads) if len(loads[1]) else None)


@tiered
def _shared(streams: Array, links: Array, count: int) -> Array:
    """See `Sending`. A stream keeps apart what crosses a link if all of that occupies it."""
    is_shared, user = np.ones(count + 1, np.bool_), np.empty(count + 1, np.int64)
    is_shared[-1] = False
    for column in range(streams.shape[1]):
        user[:], is_apart = NOBODY, np.ones(count + 1, np.bool_)
        for k in range(len(links)):
            stream = streams[k, column]
            for link in links[k]:
                is_apart[link] &= stream != NONE and (user[link] == NOBODY or user[link] == stream)
                user[link] = stream
        is_shared &= ~is_apart
    return is_shared


def work_of(sends: Sending, g: Group, has_folds: bool) -> tuple[Array, Array]:
    """Per stream, then per link, the fixed seconds of all messages, and the seconds for each byte of a piece."""
    (_, _, target, first, last, adds, _), sent, _ = sends
    adds = adds & has_folds
    streams, count = g.stream_count, last - first

    def total(at: Array, length: int, values: Array) -> Array:
        """The values by where they are, which is (messages, n); -1: nowhere."""
        found: Array = np.bincount((at + 1).ravel(), np.repeat(values, at.shape[1]), length + 1)[1:]
        return found

    folding = g.folding[target][:, None]
    fixed = total(sent.streams, streams, sent.latency)
    fixed += total(folding, streams, np.where(adds, g.fold_seconds[target], 0.0))
    per_piece = total(sent.streams, streams, count / sent.bandwidth)
    per_piece += total(
        folding, streams, np.where(adds, 3 * count / g.memory_bandwidth[target], 0.0)
    )
    per_link = total(sent.links, len(g.link_bandwidth), count) / g.link_bandwidth
    return np.concatenate([fixed, np.zeros_like(per_link)]), np.concatenate([per_piece, per_link])


@tiered
def _rows(
    moves: tuple[Array, ...],
    end: Array,
    local: Array,
    sent: tuple[Array, ...],
    group: tuple[Array, ...],
    is_shared: Array,
    last_rows: tuple[Array, ...],
) -> tuple[Array, ...]:
    """Columns of `CollectiveRows`, of its `Loads` too.

    Args:
        end: bytes of all parts before one.
        sent: `Sent`, of all moves.
        group: bandwidth of links; the stream, fixed seconds and bytes/s of folds of every member.
        last_rows: memory for the last row on every stream, that which wrote each part at each member, and that which
            arrived by each door of each member; NONE in all of it.
    """
    source, target, first, last, adds, message, _, _ = moves
    streams, links, latency, bandwidth, door = sent
    link_bandwidth, folding, fold_seconds, memory_bandwidth = group
    rows, most = (
        len(local) + len(source) + adds.sum(),
        len(local) + 6 * len(source) + 2 * (last - first).sum(),
    )
    ptr, before, n, row, begun = np.zeros(rows + 1, np.int64), np.empty(most, np.int64), 0, 0, 0
    taken, waiting, peak, load = (
        np.empty(rows),
        np.zeros(rows),
        np.ones(rows),
        np.zeros(len(link_bandwidth) + 1),
    )
    hop_ptr, hop, hops = (
        np.zeros(rows + 1, np.int64),
        np.empty(len(source) * links.shape[1], np.int64),
        0,
    )
    on, writer, scratch = last_rows
    for member, size in local:
        n = _add(before, n, on[folding[member]])
        taken[row] = fold_seconds[member] + size / memory_bandwidth[member]
        on[folding[member]] = row
        row += 1
        ptr[row] = n
    for k in range(len(source)):
        s, t = source[k], target[k]
        for stream in streams[k]:
            if stream >= 0:
                n = _add(before, n, on[stream])
                on[stream] = row
        n = _add_writers(before, n, writer[s], first[k], last[k])
        if adds[k]:
            n = _add(before, n, scratch[t, door[k]])
        else:
            writer[t, first[k] : last[k]] = row
        if k == 0 or message[k] != message[k - 1]:
            waiting[row] = latency[k]
        moved = end[last[k]] - end[first[k]]
        taken[row], peak[row] = waiting[row] + moved / bandwidth[k], bandwidth[k]
        load[-1] += moved
        for link in links[k]:
            if link >= 0:
                load[link] += moved
                if is_shared[link]:
                    hop[hops] = link
                    hops += 1
        row += 1
        ptr[row], hop_ptr[row] = n, hops
        if k + 1 < len(source) and message[k + 1] == message[k]:
            continue
        arrived = row - 1
        while begun <= k:
            if adds[begun]:
                n = _add(before, n, arrived)
                n = _add(before, n, on[folding[t]])
                n = _add_writers(before, n, writer[t], first[begun], last[begun])
                writer[t, first[begun] : last[begun]] = row
                on[folding[t]] = scratch[t, door[k]] = row
                size = end[last[begun]] - end[first[begun]]
                taken[row] = fold_seconds[t] + 3 * size / memory_bandwidth[t]
                row += 1
                ptr[row], hop_ptr[row] = n, hops
            begun += 1
    hop = hop[:hops].copy()
    return (
        ptr,
        before[:n].copy(),
        taken,
        load,
        hop_ptr,
        hop,
        1.0 / link_bandwidth[hop],
        peak,
        waiting,
    )


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


@tiered
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
