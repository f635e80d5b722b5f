"""Rows that move a region, compiled by numba; see `movement` for the rules.

The copies of a version make up a collective; people read its name, nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import put, same, volume
from taskflow.lowering.needs import needs_of
from taskflow.lowering.sorting import bits, sort
from taskflow.lowering.state import (
    COLLECTIVE,
    COPY,
    FOLD,
    READ,
    WRITE,
    State,
    add_instance,
    append,
    note_read,
    note_write,
)
from taskflow.machine.equal import in_order
from taskflow.tasks import all_to_all
from taskflow.tasks.task_graph import COLLECTIVES

ONE_COPY, BROADCAST, SCATTER, GATHER, HALO = np.array(
    [COLLECTIVES.index(name) for name in ("copy", "broadcast", "scatter", "gather", "halo")]
)
REDUCE, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL = np.array(
    [
        COLLECTIVES.index(name)
        for name in ("reduce", "all-reduce", "reduce-scatter", "all-gather", "all-to-all")
    ]
)


relay_of = leaf(all_to_all.relay_of)


@leaf
def add_arg(s: State, instance: int, box: Any, privilege: int) -> None:
    """One more argument of the row that is added next."""
    k = append(s, s.args, len(s.arg))
    if k >= 0:
        s.args += 1
        s.arg[k].instance = instance
        s.arg[k].privilege = privilege
        put(s.arg_box[k], box)


@leaf
def arg_begin(s: State, row: int) -> int:
    """The first argument of a row."""
    return int(s.row[row - 1].arg_end) if row > 0 else 0


@leaf
def add_row(s: State, kind: int, source: int, device: int) -> None:
    """A row with the arguments added since the last one."""
    k = append(s, s.rows, len(s.row))
    if k < 0 or s.is_full:
        return
    s.rows += 1
    row = s.row[k]
    begin = arg_begin(s, k)
    row.kind = kind
    row.source = source
    row.device = device
    row.arg_end = s.args
    row.collective = 0
    row.ordinal = 0
    row.points = volume(s.arg_box[begin]) * (s.args - begin if kind == FOLD else 1)
    for a in range(begin, s.args):
        if s.arg[a].privilege == READ:
            note_read(s, s.arg[a].instance, s.arg_box[a], s.issuer, k - s.first)
    for a in range(begin, s.args):
        if s.arg[a].privilege != READ:
            note_write(s, s.arg[a].instance, s.arg_box[a], s.issuer, k - s.first)


@leaf
def add_collective(s: State, begin: int, middle: int, collective: int, points: int) -> bool:
    """A row with the arguments since `begin`, of which it reads those before `middle`; False where there is no room.

    It stands at the first of their devices. What it writes is noted by the caller.
    """
    k = append(s, s.rows, len(s.row))
    if k < 0 or s.is_full:
        return False
    s.rows += 1
    device = s.devices
    for a in range(begin, s.args):
        if s.arg[a].instance >= 0:
            device = min(device, s.instance[s.arg[a].instance].device)
    row = s.row[k]
    row.kind = COLLECTIVE
    row.source = device
    row.device = device
    row.arg_end = s.args
    row.points = points
    row.collective = collective
    row.ordinal = 0
    for a in range(begin, middle):
        note_read(s, s.arg[a].instance, s.arg_box[a], s.issuer, k - s.first)
    return True


@leaf
def add_copy(s: State, source: int, source_instance: int, device: int, instance: int) -> int:
    """A box that is to be copied; its number in `copy`, or -1."""
    k: int = append(s, s.copies, len(s.copy))
    if k >= 0:
        s.copies += 1
        copy = s.copy[k]
        copy.source = source
        copy.source_instance = source_instance
        copy.device = device
        copy.instance = instance
    return k


@inner
def copy_in_rounds(s: State) -> None:
    """Rows for all copies: in round k the d-th device gets from the one k further on.

    So every device sends and receives one at a time, and all are busy in every round. Copies within a device come
    last, since they may copy what has just arrived.
    """
    key = np.empty(s.copies, np.int64)
    shift = bits(s.copies)
    for k in range(s.copies):
        device = s.copy[k].device
        away = (s.copy[k].source - device) % s.devices
        key[k] = (((s.devices if away == 0 else away) * s.devices + device) << shift) + k
    for packed in sort(key):
        k = packed & ((1 << shift) - 1)
        add_arg(s, s.copy[k].source_instance, s.copy_box[k], READ)
        add_arg(s, s.copy[k].instance, s.copy_box[k], WRITE)
        add_row(s, COPY, s.copy[k].source, s.copy[k].device)


@inner
def exchange_together(s: State, whole: Any) -> None:
    """Rows for the copies between devices, if they are all-to-alls and shall be rows; others stay.

    They are where two devices, or more than a few, all send and receive, of more than two some to several. The first
    copies of every sender to every receiver are a row, the second ones, of another micro-batch, another.
    """
    if s.devices <= s.few_exchanges or s.rows != s.first:
        return
    sends = np.zeros(s.devices, np.int64)
    receives = np.zeros(s.devices, np.int64)
    points = 0
    pairs = np.zeros((s.devices, s.devices), np.int64)
    turn = np.full(s.copies, -1)
    for k in range(s.copies):
        source = s.copy[k].source
        device = s.copy[k].device
        if source != device:
            sends[source] = 1
            receives[device] = 1
            points += volume(s.copy_box[k])
            turn[k] = pairs[source, device]
            pairs[source, device] += 1
    if (
        sends.sum() <= max(s.few_exchanges, 1)
        or 2 < (pairs > 0).sum() == sends.sum()  # each of several sends to one
        or (sends != receives).any()
        or classify_exchange(s, whole, receives, points) != ALL_TO_ALL
    ):
        return
    for t in range(pairs.max()):
        exchange_in_turn(s, turn, t)
    left = 0
    for k in range(s.copies):
        if turn[k] >= -1:
            s.copy[left] = s.copy[k]
            put(s.copy_box[left], s.copy_box[k])
            left += 1
    s.copies = left


@inner
def exchange_in_turn(s: State, turn: Any, t: int) -> None:
    """One row for the copies whose turn is `t`, if all who take part send and receive; their turn is then -2.

    It reads what is copied, by target and source, and writes it; then memory for what is passed on, in that order.
    """
    balance = np.zeros((2, s.devices), np.int64)
    points = 0
    key = np.empty(s.copies, np.int64)
    count = 0
    shift = bits(s.copies)
    for k in range(s.copies):
        if turn[k] == t:
            source = s.copy[k].source
            device = s.copy[k].device
            balance[0, source] = 1
            balance[1, device] = 1
            points += volume(s.copy_box[k])
            key[count] = ((device * s.devices + source) << shift) + k
            count += 1
    if (balance[0] != balance[1]).any():
        return
    order = sort(key[:count]) & ((1 << shift) - 1)
    begin = s.args
    for k in order:
        add_arg(s, s.copy[k].source_instance, s.copy_box[k], READ)
    middle = s.args
    for k in order:
        add_arg(s, s.copy[k].instance, s.copy_box[k], WRITE)
    if s.is_full:  # not all of them are there, and all is done again with more room
        return
    members = members_of(s, begin)
    for k in order if s.has_relays else order[:0]:
        relay = relay_of(s.copy[k].source, s.copy[k].device, members, s.device["host"])
        if relay != s.copy[k].source:
            add_arg(s, add_instance(s, relay, s.copy_box[k], True), s.copy_box[k], WRITE)
    if not add_collective(s, begin, middle, ALL_TO_ALL, points):
        return
    for a in range(middle, s.args):
        note_write(s, s.arg[a].instance, s.arg_box[a], s.issuer, s.rows - 1 - s.first)
    for k in order:
        turn[k] = -2


@inner
def members_of(s: State, begin: int) -> Any:
    """The devices of the arguments from `begin` on, as `Exchange.ring` has them, but for the order of hosts."""
    names = np.empty(s.args - begin, np.int64)
    host = s.device["host"].copy()
    for a in range(begin, s.args):
        names[a - begin] = s.instance[s.arg[a].instance].device
    return in_order(names, (host, host, s.device["kind"].copy()))


@inner
def name_copies(s: State, whole: Any, first: int) -> None:
    """Name the copies of the version that is being moved, from a row on."""
    name = classify(s, whole, first)
    for row in range(first, s.rows):
        if is_transfer(s, row):
            s.row[row].collective = name


@leaf
def is_transfer(s: State, row: int) -> bool:
    """Whether the row copies from one device to another."""
    return bool(s.row[row].kind == COPY and s.row[row].source != s.row[row].device)


@inner
def classify(s: State, whole: Any, first: int) -> int:
    """The collective that the rows of the version make up, from this one on."""
    sends = np.zeros(s.devices, np.int64)
    receives = np.zeros(s.devices, np.int64)
    folds = np.zeros(s.devices, np.int64)
    copies = 0
    reducing = 0
    sent = 0
    is_one_box = True
    lead = -1
    for k in range(first, s.rows):
        row = s.row[k]
        begin = arg_begin(s, k)
        if row.kind == FOLD:
            folds[row.device] = 1
            reducing += row.arg_end - begin - 2
        elif is_transfer(s, k):
            copies += 1
            sends[row.source] = 1
            receives[row.device] = 1
            sent += row.points
            lead = begin if lead < 0 else lead
            is_one_box = is_one_box and same(s.arg_box[lead], s.arg_box[begin])
    senders = sends.sum()
    receivers = receives.sum()
    folding = folds.sum()
    if not copies:
        return 0
    if folding:
        if copies > reducing or (folding == 1 and receivers > 1):
            return int(ALL_REDUCE)
        return int(REDUCE_SCATTER if folding > 1 else REDUCE)
    if receivers == 1:
        return int(ONE_COPY if senders == 1 else GATHER)
    if is_one_box or senders == 1:
        return int(BROADCAST if is_one_box else SCATTER)
    return int(classify_exchange(s, whole, receives, sent))


@inner
def classify_exchange(s: State, whole: Any, receives: Any, sent: int) -> int:
    """The collective where several devices copy to several, which are marked in `receives`: so many points in all."""
    needed = 0
    is_gather = True
    for k in needs_of(s, s.version):
        needed += volume(s.need_box[k]) if receives[s.need[k].device] else 0
    for k in needs_of(s, s.version):
        if same(s.need_box[k], whole):
            receives[s.need[k].device] = 0
    for device in range(s.devices):
        is_gather = is_gather and receives[device] == 0
    return int(ALL_GATHER if is_gather else HALO if sent * 2 < needed else ALL_TO_ALL)
