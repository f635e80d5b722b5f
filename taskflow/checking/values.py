"""Values: every row in turn on versions and parts instead of numbers. Compiled.

A feed gives version 0 of an input, a home version 0 of a persistent region. A point wants complete values of the
versions that program order gives, in the boxes that its pattern gives; an addition takes parts of them, too, and
what it makes is then that part of the sum. What a point writes is a version of its own, partial
where it has a part of a reduced axis. A copy carries what lies in its box. A fold, or a step of a collective, wants
parts of one version and adds them up. At the end homes and fetches hold the last versions.
"""

from __future__ import annotations

from typing import NamedTuple

from taskflow.checking.arguments import (
    COPY,
    FEED,
    FOLD,
    POINT,
    READ_WRITE,
    REDUCE,
    WRITE,
    Machinery,
    PlanColumns,
    StepTables,
    check_movement,
    is_argument,
)
from taskflow.checking.moves import carry, fold, note_parts, run_steps
from taskflow.checking.pieces import Pieces, find, has_token, is_same, meet, overlaps, put, shared
from taskflow.checking.rules import BROKEN, DONE, NO_ROOM, PlanFault, Rule, refuse
from taskflow.checking.terms import (
    GraphTables,
    base_weight,
    measure,
    put_term_box,
    spans_fit,
    summand_factor,
    whole_measure,
)
from taskflow.core.columns import Array, record
from taskflow.core.compiling import leaf, tiered
from taskflow.core.pointers import pointer_to

END = record("instance", "version", "region")


class EndTables(NamedTuple):
    """What lies in instances before the first row, and must after the last.

    Attributes:
        first, first_box: `END` records and boxes: homes with version 0.
        last, last_box: homes and fetches with the last versions.
    """

    first: Array
    first_box: Array
    last: Array
    last_box: Array


@tiered
def follow_values(
    plan: tuple[Array, ...],
    program: tuple[Array, ...],
    steps: tuple[Array, ...],
    ends: tuple[Array, ...],
    pieces: tuple[Array, ...],
    fault: tuple[Array, ...],
) -> int:
    """Pass over all rows; how it ended, see `End`. The arguments are named tuples as plain ones."""
    tables = (
        PlanColumns(*plan),
        GraphTables(*program),
        StepTables(*steps),
        Pieces(*pieces),
        PlanFault(*fault),
    )
    t: Machinery = pointer_to(Machinery(*tables))
    e = EndTables(*ends)
    whole_measure(t.program)
    for k in range(len(e.first)):
        first = e.first[k]
        put(
            t.pieces,
            first.instance,
            e.first_box[k],
            t.plan.instance[first.instance].dims,
            first.version,
            0,
            0,
        )
    for row in range(len(t.plan.row)):
        is_right = check_row(t, row)
        if t.pieces.state[1]:
            return NO_ROOM
        if not is_right:
            return BROKEN
    for k in range(len(e.last)):
        last = e.last[k]
        if not has_value(t, len(t.plan.row) + k, k, last.instance, e.last_box[k], last.version):
            return BROKEN
    return DONE


@leaf
def check_row(t: Machinery, row: int) -> bool:
    """Whether a row does what it should; what it writes is noted."""
    kind = t.plan.row[row].kind
    if kind == POINT:
        return check_point(t, row)
    if not check_movement(t, row):
        return False
    first = t.plan.arg_ptr[row]
    if kind == FEED:
        target = t.plan.arg_instance[first]
        region = t.plan.row[row].region
        version = t.program.fed[region]
        dims = t.plan.instance[target].dims
        put(t.pieces, target, t.plan.arg_box[first], dims, version, 0, 0)
        return True
    if kind == COPY:
        return carry(t, row, first, first + 1, t.plan.arg_box[first], 0)
    if kind == FOLD:
        return fold(t, row, first)
    return run_steps(t, row)


# -- points ------------------------------------------------------------------------------------------------------------


@leaf
def check_point(t: Machinery, row: int) -> bool:
    """A point of an operator."""
    r = t.plan.row[row]
    first = t.plan.arg_ptr[row]
    launch = t.program.launch[r.launch]
    count = launch.inputs + launch.outputs
    if t.plan.arg_ptr[row + 1] - first != count:
        return refuse(t.fault, Rule.ARGUMENTS, row, first)
    if r.point < 0 or r.point >= launch.points or not spans_fit(t.program, r.launch, r.point):
        return refuse(t.fault, Rule.SPAN, row, first)
    for k in range(count):
        if not check_tile(t, row, k, launch.args + k):
            return False
    for k in range(launch.inputs):
        i = t.plan.arg_instance[first + k]
        arg = t.program.arg[launch.args + k]
        box = t.plan.arg_box[first + k]
        is_read = (
            i >= 0 and not arg.adds and not (launch.is_addition and is_part(t, i, box, arg.reads))
        )
        if is_read and not has_value(t, row, first + k, i, box, arg.reads):
            return False
    for k in range(count):
        i = t.plan.arg_instance[first + k]
        arg = t.program.arg[launch.args + k]
        if i >= 0 and arg.makes >= 0 and not check_made(t, row, k, launch.args + k):
            return False
    return True


@leaf
def is_part(t: Machinery, i: int, box: Array, version: int) -> bool:
    """Whether a box of an instance holds some parts of this version, the same ones everywhere."""
    at = find(t.pieces, i, box, t.plan.instance[i].dims)
    return at >= 0 and has_token(
        t.pieces, at, version, t.pieces.piece[at].volume, t.pieces.piece[at].weight
    )


@leaf
def added(t: Machinery, row: int) -> tuple[int, int]:
    """Volume and weight of what an addition adds up: of what lies in its inputs."""
    launch = t.program.launch[t.plan.row[row].launch]
    first = t.plan.arg_ptr[row]
    volume = 0
    weight = 0
    for k in range(launch.inputs if launch.is_addition else 0):
        i = t.plan.arg_instance[first + k]
        factor = summand_factor(k)
        at = find(t.pieces, i, t.plan.arg_box[first + k], t.plan.instance[i].dims) if i >= 0 else -1
        is_whole = at < 0 or t.pieces.piece[at].volume == 0
        version = t.program.version[t.program.arg[launch.args + k].reads]
        volume += version.volume if is_whole else t.pieces.piece[at].volume
        weight += factor * (version.weight if is_whole else t.pieces.piece[at].weight)
    return volume, weight


@leaf
def check_made(t: Machinery, row: int, k: int, at: int) -> bool:
    """Note what a point leaves in argument `k`: a value, or a part, perhaps added to what is there."""
    r = t.plan.row[row]
    here = t.plan.arg_ptr[row] + k
    arg = t.program.arg[at]
    i = t.plan.arg_instance[here]
    box = t.plan.arg_box[here]
    version = arg.makes
    volume = 0
    weight = 0
    if k >= t.program.launch[r.launch].inputs or arg.adds:
        volume, weight = added(t, row)
        if not t.program.launch[r.launch].is_addition:
            volume, weight = measure(t.program, r.launch, k, r.point)
        if arg.accumulates and t.plan.arg_privilege[here] == READ_WRITE:
            so_far = find(t.pieces, i, box, t.plan.instance[i].dims)
            if so_far >= 0 and t.pieces.piece[so_far].version == version:
                if t.pieces.piece[so_far].volume == 0:
                    return refuse(t.fault, Rule.COMPLETE, row, here)
                volume += t.pieces.piece[so_far].volume
                weight += t.pieces.piece[so_far].weight
            elif not arg.adds:
                return refuse(t.fault, Rule.UNWRITTEN, row, here)
            elif not has_value(t, row, here, i, box, arg.reads):
                return False
            else:
                volume = volume + 1
                weight = weight + base_weight()
        whole = t.program.version[version]
        if volume > whole.volume or (volume == whole.volume and weight != whole.weight):
            note_parts(t, version, volume)
            return refuse(t.fault, Rule.TWICE, row, here)
        if volume == whole.volume:
            volume = 0
            weight = 0
    put(t.pieces, i, box, t.plan.instance[i].dims, version, volume, weight)
    return True


@leaf
def check_tile(t: Machinery, row: int, k: int, at: int) -> bool:
    """Whether argument `k` of a point is the box that the pattern gives, with the right privilege."""
    r = t.plan.row[row]
    here = t.plan.arg_ptr[row] + k
    arg = t.program.arg[at]
    i = t.plan.arg_instance[here]
    dims, volume = put_term_box(t.program, r.launch, k, r.point)
    if volume < 0 or (i < 0) != (volume == 0):
        return refuse(t.fault, Rule.BOX, row, here)
    if i < 0:
        return True
    if not is_same(t.program.tile, t.plan.arg_box[here], dims):
        return refuse(t.fault, Rule.BOX, row, here)
    privilege = t.plan.arg_privilege[here]
    is_part = arg.privilege == WRITE and (
        privilege == REDUCE or (privilege == READ_WRITE and arg.accumulates != 0)
    )
    if privilege != arg.privilege and not is_part and not (arg.adds and privilege == REDUCE):
        return refuse(t.fault, Rule.PRIVILEGE, row, here)
    return is_argument(t, row, here, arg.region, r.device)


@leaf
def has_value(t: Machinery, row: int, k: int, i: int, box: Array, version: int) -> bool:
    """Whether all of a box of an instance holds this version, complete."""
    p = t.pieces
    dims = t.plan.instance[i].dims
    left = shared(box, box, dims)
    at = p.head[i]
    while at >= 0 and left > 0:
        if overlaps(p.box[at], box, dims):
            if not has_token(p, at, version, 0, 0):
                return refuse_token(t, row, k, i, box, version, at)
            left -= shared(p.box[at], box, dims)
        at = p.piece[at].next
    if left > 0:
        return refuse(t.fault, Rule.UNWRITTEN, row, k)
    return True


@leaf
def refuse_token(t: Machinery, row: int, k: int, i: int, box: Array, version: int, at: int) -> bool:
    """Note what lies where a complete version should."""
    meet(t.fault.box, t.pieces.box[at], box, t.plan.instance[i].dims)
    piece = t.pieces.piece[at]
    is_partial = piece.version == version
    note_parts(t, version if is_partial else piece.version, piece.volume)
    t.fault.record[0].found = piece.version
    t.fault.record[0].wanted = version
    t.fault.record[0].has_box = 1
    return refuse(t.fault, Rule.PARTIAL if is_partial else Rule.VERSION, row, k)
