"""The collective that the copies of a version make up, compiled by numba; people read it, nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import same, volume
from taskflow.lowering.moves import arg_begin
from taskflow.lowering.needs import needs_of
from taskflow.lowering.state import COPY, FOLD, State
from taskflow.tasks.task_graph import COLLECTIVES

ONE_COPY, BROADCAST, SCATTER, GATHER, HALO = np.array(
    [COLLECTIVES.index(name) for name in ("copy", "broadcast", "scatter", "gather", "halo")]
)
REDUCE, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL = np.array(
    [COLLECTIVES.index(name) for name in ("reduce", "all-reduce", "reduce-scatter", "all-gather", "all-to-all")]
)


@inner
def name_copies(s: State, whole: Any) -> None:
    """Name the copies of the version that is being moved."""
    name = classify(s, whole)
    for row in range(s.first, s.rows):
        if is_transfer(s, row):
            s.row[row].collective = name


@leaf
def is_transfer(s: State, row: int) -> bool:
    """Whether the row copies from one device to another."""
    return bool(s.row[row].kind == COPY and s.row[row].source != s.row[row].device)


@inner
def classify(s: State, whole: Any) -> int:
    """The collective that the rows of the version make up."""
    sends, receives = np.zeros(s.devices, np.int64), np.zeros(s.devices, np.int64)
    folds = np.zeros(s.devices, np.int64)
    copies, reducing, sent, is_one_box, lead = 0, 0, 0, True, -1
    for k in range(s.first, s.rows):
        row, begin = s.row[k], arg_begin(s, k)
        if row.kind == FOLD:
            folds[row.device] = 1
            reducing += row.arg_end - begin - 2
        elif is_transfer(s, k):
            copies += 1
            sends[row.source], receives[row.device] = 1, 1
            sent += row.points
            lead = begin if lead < 0 else lead
            is_one_box = is_one_box and same(s.arg_box[lead], s.arg_box[begin])
    senders, receivers, folding = sends.sum(), receives.sum(), folds.sum()
    if not copies:
        return 0
    if folding:
        if copies > reducing or (folding == 1 and receivers > 1):
            return int(ALL_REDUCE)
        return int(REDUCE_SCATTER if folding > 1 else REDUCE)
    if senders == 1:
        return int(ONE_COPY if receivers == 1 else BROADCAST if is_one_box else SCATTER)
    if receivers == 1:
        return int(GATHER)
    return int(classify_exchange(s, whole, receives, sent))


@inner
def classify_exchange(s: State, whole: Any, receives: Any, sent: int) -> int:
    """The collective where several devices copy to several, which are marked in `receives`: so many points in all."""
    needed, is_gather = 0, True
    for k in needs_of(s, s.version):
        needed += volume(s.need_box[k]) if receives[s.need[k].device] else 0
    for k in needs_of(s, s.version):
        if same(s.need_box[k], whole):
            receives[s.need[k].device] = 0
    for device in range(s.devices):
        is_gather = is_gather and receives[device] == 0
    return int(ALL_GATHER if is_gather else HALO if sent * 2 < needed else ALL_TO_ALL)
