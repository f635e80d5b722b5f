"""Arguments: whether those of a row are boxes of the right instances, with privileges that fit. Compiled."""

from __future__ import annotations

from typing import NamedTuple

from taskflow.checking.pieces import Pieces, covers, is_same
from taskflow.checking.rules import PlanFault, Rule, refuse
from taskflow.checking.terms import GraphTables
from taskflow.core.columns import Array, record
from taskflow.core.compiling import leaf
from taskflow.tasks.task_graph import Kind, Privilege

ROW = record("kind", "launch", "point", "region", "device", "source", "steps")
INSTANCE = record("region", "device", "dims", "is_partial")
STEP = record(
    "target", "first", "end", "offset"
)  # its parts are `part[first:end]`; `offset`: see `ExchangeStep`

POINT = int(Kind.POINT)
COPY = int(Kind.COPY)
FOLD = int(Kind.FOLD)
FEED = int(Kind.FEED)
READ, WRITE, READ_WRITE, REDUCE = (int(p) for p in Privilege)


class PlanColumns(NamedTuple):
    """The columns of a task graph.

    Attributes:
        row, instance: `ROW` and `INSTANCE` records.
        arg_ptr, arg_instance, arg_privilege, arg_box, instance_box: as in the task graph.
    """

    row: Array
    instance: Array
    instance_box: Array
    arg_ptr: Array
    arg_instance: Array
    arg_privilege: Array
    arg_box: Array


class StepTables(NamedTuple):
    """The steps of collectives, those of equal ones once.

    Attributes:
        ptr: the steps of table k are `step[ptr[k] : ptr[k + 1]]`.
        step: `STEP` records; target and parts are numbers of arguments of the row.
        box: (steps, 2, dimensions).
        part: see `STEP`.
    """

    ptr: Array
    step: Array
    box: Array
    part: Array


class Machinery(NamedTuple):
    """All that a pass over the values reads and writes."""

    plan: PlanColumns
    program: GraphTables
    steps: StepTables
    pieces: Pieces
    fault: PlanFault


@leaf
def is_argument(t: Machinery, row: int, k: int, region: int, device: int) -> bool:
    """Whether an argument is a box within an instance of this region, on this device unless that is -1."""
    i = t.plan.arg_instance[k]
    instance = t.plan.instance[i]
    if instance.region != region:
        return refuse(t.fault, Rule.REGION, row, k)
    if device >= 0 and instance.device != device:
        return refuse(t.fault, Rule.DEVICE, row, k)
    if not covers(t.plan.instance_box[i], t.plan.arg_box[k], instance.dims):
        return refuse(t.fault, Rule.INSTANCE, row, k)
    return True


@leaf
def check_movement(t: Machinery, row: int) -> bool:
    """Whether the arguments of a row that moves data are right, whatever lies in them."""
    r = t.plan.row[row]
    first = t.plan.arg_ptr[row]
    end = t.plan.arg_ptr[row + 1]
    needed = 1 if r.kind == FEED else 2
    if end - first < needed or (r.kind != FOLD and r.steps < 0 and end - first > needed):
        return refuse(t.fault, Rule.ARGUMENTS, row, first)
    is_reading = r.steps >= 0
    for k in range(first, end):
        if t.plan.arg_instance[k] < 0:
            return refuse(t.fault, Rule.ARGUMENTS, row, k)
        device = r.device
        privilege = t.plan.arg_privilege[k]
        reads = privilege == READ
        writes = privilege == WRITE
        if r.kind == COPY:
            device = r.source if k == first else device
            fits = reads if k == first else writes
        elif r.kind == FOLD:
            fits = (writes or privilege == READ_WRITE) if k == first else reads
        elif r.kind == FEED:
            fits = writes
        else:  # a collective reads its sources, then writes
            device = -1
            is_reading = is_reading and reads
            fits = is_reading or writes or privilege == READ_WRITE
        if not fits:
            return refuse(t.fault, Rule.PRIVILEGE, row, k)
        if not is_argument(t, row, k, r.region, device):
            return False
        if r.steps < 0 and not is_same(
            t.plan.arg_box[k], t.plan.arg_box[first], t.plan.instance[t.plan.arg_instance[k]].dims
        ):
            return refuse(t.fault, Rule.BOX, row, k)
    return True
