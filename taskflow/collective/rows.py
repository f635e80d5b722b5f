"""The rows of a collective, as `execute.expand` makes them, on a group: what they take, wait for, and load of links.

Each move is a copy, which occupies the streams of its two members; one that is added arrives in scratch memory, and a
fold adds it, when all of its message is there. A message has one latency.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.collective.group import Group, Sent, sent_in
from taskflow.core.columns import Array, pointers
from taskflow.core.compiling import inlined, inner, tiered
from taskflow.tasks.fair import Loads, fair_pass, turn_round
from taskflow.tasks.moves import Moves, Outline, boxes_of, cut_of, moves_of
from taskflow.tasks.steps import Messages

NONE = -1
NOBODY = -2


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
    latest = (
        np.full(g.stream_count, NONE),
        np.full((g.count, len(end) - 1), NONE, np.int32),  # by NumPy, which asks for huge pages
        np.full((g.count, g.most_doors), NONE),
    )
    sent = Sent(*(column[moves.number] for column in sent))
    folding = g.folding, g.fold_seconds, g.memory_bandwidth
    ptr, before, taken, load, *loads = _write(
        tuple(moves), end, local, tuple(sent), folding, g.link_bandwidth, is_shared, latest
    )
    return CollectiveRows(ptr, before, taken, load, Loads(*loads) if len(loads[1]) else None)


@tiered
def _shared(streams: Array, links: Array, count: int) -> Array:
    """See `Sending`. A stream keeps apart what crosses a link if all of that occupies it."""
    is_shared = np.ones(count + 1, np.bool_)
    user = np.empty(count + 1, np.int64)
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
    streams = g.stream_count
    count = last - first

    def total(at: Array, length: int, values: Array) -> Array:
        """The values by where they are, which is (messages, n); -1: nowhere."""
        sums: Array = np.bincount((at + 1).ravel(), np.repeat(values, at.shape[1]), length + 1)[1:]
        return sums

    folding = g.folding[target][:, None]
    fixed = total(sent.streams, streams, sent.latency)
    fixed += total(folding, streams, np.where(adds, g.fold_seconds[target], 0.0))
    per_piece = total(sent.streams, streams, count / sent.bandwidth)
    per_piece += total(
        folding, streams, np.where(adds, 3 * count / g.memory_bandwidth[target], 0.0)
    )
    per_link = total(sent.links, len(g.link_bandwidth), count) / g.link_bandwidth
    return np.concatenate([fixed, np.zeros_like(per_link)]), np.concatenate([per_piece, per_link])


# -- rows one by one ---------------------------------------------------------------------------------------------------


class _RowColumns(NamedTuple):
    """Columns of `CollectiveRows` and of its `Loads`, with room for all of them."""

    ptr: Array
    before: Array
    taken: Array
    waiting: Array
    peak: Array
    load: Array
    hop_ptr: Array
    hop: Array


class _Folding(NamedTuple):
    """Of every member: the stream, the fixed seconds and the bytes/s of its folds."""

    stream: Array
    seconds: Array
    bandwidth: Array


class _Latest(NamedTuple):
    """The last rows: on every stream, which wrote each part at each member, and arrived by each door of each member."""

    on: Array
    writer: Array
    scratch: Array


@inner
def _no_rows(local: Array, moves: Moves, sent: Sent, links: int) -> _RowColumns:
    """With room for all of them."""
    count = len(local) + len(moves.source)
    waits = count + 5 * len(moves.source) + 2 * (moves.last - moves.first).sum()
    rows = count + moves.adds.sum()
    return _RowColumns(
        np.zeros(rows + 1, np.int64),
        np.empty(waits, np.int64),
        np.empty(rows),
        np.zeros(rows),
        np.ones(rows),
        np.zeros(links + 1),
        np.zeros(rows + 1, np.int64),
        np.empty(sent.links.size, np.int64),
    )


@inner
def _written(rows: _RowColumns, n: int, bandwidth: Array) -> tuple[Array, ...]:
    """Columns of `CollectiveRows`, then of its `Loads`, without the room that is left."""
    hop = rows.hop[: rows.hop_ptr[-1]].copy()
    loads = rows.hop_ptr, hop, 1.0 / bandwidth[hop], rows.peak, rows.waiting
    return rows.ptr, rows.before[:n].copy(), rows.taken, rows.load, *loads


@tiered
def _write(
    move_columns: tuple[Array, ...],
    end: Array,
    local: Array,
    sent_columns: tuple[Array, ...],
    folding_columns: tuple[Array, ...],
    bandwidth: Array,
    is_shared: Array,
    latest_columns: tuple[Array, ...],
) -> tuple[Array, ...]:
    """Columns of `CollectiveRows`, of its `Loads` too: folds of what members have, then message by message.

    Args:
        move_columns: `Moves`.
        end: bytes of all parts before one.
        local: members that fold parts of their own, and the bytes.
        sent_columns: `Sent`, of all moves.
        folding_columns: `_Folding`.
        bandwidth: of links.
        is_shared: see `Sending`.
        latest_columns: memory for `_Latest`, NONE in all of it.
    """
    moves, sent = Moves(*move_columns), Sent(*sent_columns)
    folding, latest = _Folding(*folding_columns), _Latest(*latest_columns)
    rows = _no_rows(local, moves, sent, len(bandwidth))
    row = n = begun = 0
    for member, size in local:
        n = _occupy(rows, n, row, latest.on, folding.stream[member])
        rows.taken[row] = folding.seconds[member] + size / folding.bandwidth[member]
        row += 1
        rows.ptr[row] = n
    for k in range(len(moves.source)):
        rows.hop_ptr[row + 1] = rows.hop_ptr[row]
        is_first = k == 0 or moves.message[k] != moves.message[k - 1]
        n = _move(rows, n, row, moves, k, end, sent, is_shared, latest, is_first)
        row += 1
        rows.ptr[row] = n
        if k + 1 < len(moves.source) and moves.message[k + 1] == moves.message[k]:
            continue
        arrived = row - 1
        for other in range(begun, k + 1):
            if moves.adds[other]:
                n = _fold(rows, n, row, moves, other, end, folding, latest, arrived)
                latest.scratch[moves.target[k], sent.door[k]] = row
                row += 1
                rows.ptr[row], rows.hop_ptr[row] = n, rows.hop_ptr[row - 1]
        begun = k + 1
    return _written(rows, n, bandwidth)


@inlined
def _move(
    rows: _RowColumns,
    n: int,
    row: int,
    moves: Moves,
    k: int,
    end: Array,
    sent: Sent,
    is_shared: Array,
    latest: _Latest,
    is_first: bool,
) -> int:
    """Move number `k`; the first of a message waits for its latency. See `_wait` for `n`."""
    target = moves.target[k]
    first = moves.first[k]
    last = moves.last[k]
    for stream in sent.streams[k]:
        if stream >= 0:
            n = _occupy(rows, n, row, latest.on, stream)
    n = _wait_for_writers(rows, n, latest.writer[moves.source[k]], first, last)
    if moves.adds[k]:
        n = _wait(rows, n, latest.scratch[target, sent.door[k]])
    else:
        latest.writer[target, first:last] = row
    if is_first:
        rows.waiting[row] = sent.latency[k]
    size = end[last] - end[first]
    rows.taken[row] = rows.waiting[row] + size / sent.bandwidth[k]
    rows.peak[row] = sent.bandwidth[k]
    rows.load[-1] += size
    for link in sent.links[k]:
        if link >= 0:
            rows.load[link] += size
            if is_shared[link]:
                rows.hop[rows.hop_ptr[row + 1]] = link
                rows.hop_ptr[row + 1] += 1
    return n


@inlined
def _fold(
    rows: _RowColumns,
    n: int,
    row: int,
    moves: Moves,
    k: int,
    end: Array,
    folding: _Folding,
    latest: _Latest,
    arrived: int,
) -> int:
    """The sum of what move number `k` brought, once row `arrived`, the last of its message, is over."""
    target = moves.target[k]
    first = moves.first[k]
    last = moves.last[k]
    n = _wait(rows, n, arrived)
    n = _occupy(rows, n, row, latest.on, folding.stream[target])
    n = _wait_for_writers(rows, n, latest.writer[target], first, last)
    latest.writer[target, first:last] = row
    size = end[last] - end[first]
    rows.taken[row] = folding.seconds[target] + 3 * size / folding.bandwidth[target]
    return n


@inlined
def _wait(rows: _RowColumns, n: int, row: int) -> int:
    """Note that the row waits for another one; `n` waits are noted, before and then in all."""
    if row == NONE:
        return n
    rows.before[n] = row
    return n + 1


@inlined
def _occupy(rows: _RowColumns, n: int, row: int, on: Array, stream: int) -> int:
    n = _wait(rows, n, on[stream])
    on[stream] = row
    return n


@inlined
def _wait_for_writers(rows: _RowColumns, n: int, writer: Array, first: int, last: int) -> int:
    latest = NONE
    for part in range(first, last):
        if writer[part] != latest:
            latest = writer[part]
            n = _wait(rows, n, latest)
    return n


@tiered
def _follow(ptr: Array, before: Array, taken: Array) -> float:
    """The end of the last row."""
    end = np.empty(len(taken))
    last = 0.0
    for row in range(len(taken)):
        moment = 0.0
        for k in range(ptr[row], ptr[row + 1]):
            moment = max(moment, end[before[k]])
        end[row] = moment + taken[row]
        last = max(last, end[row])
    return last
