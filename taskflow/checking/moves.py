"""Moves: copies, folds and the steps of collectives, on versions and parts instead of numbers. Compiled."""

from __future__ import annotations

from taskflow.checking.arguments import Machinery
from taskflow.checking.pieces import add, clear, covers, find, meet, overlaps, put, shared
from taskflow.checking.rules import Rule, refuse
from taskflow.core.columns import Array
from taskflow.core.compiling import leaf


@leaf
def carry(t: Machinery, row: int, source: int, target: int, box: Array, offset: int) -> bool:
    """Copy `box` from one argument to another; `offset`: see `make_room`."""
    p = t.pieces
    i = t.plan.arg_instance[source]
    j = t.plan.arg_instance[target]
    dims = t.plan.instance[i].dims
    if i == j:
        return True
    at = find(p, i, box, dims)
    if at >= 0:
        piece = p.piece[at]
        make_room(t, target, box, offset)
        put(p, j, box, dims, piece.version, piece.volume, piece.weight)
        return True
    left = shared(box, box, dims)
    make_room(t, target, box, offset)
    at = p.head[i]
    while at >= 0:
        if overlaps(p.box[at], box, dims):
            meet(t.program.tile, p.box[at], box, dims)
            left -= shared(t.program.tile, t.program.tile, dims)
            put(
                p,
                j,
                t.program.tile,
                dims,
                p.piece[at].version,
                p.piece[at].volume,
                p.piece[at].weight,
            )
        at = p.piece[at].next
    return left == 0 or refuse(t.fault, Rule.UNWRITTEN, row, source)


@leaf
def make_room(t: Machinery, target: int, box: Array, offset: int) -> None:
    """Where an instance does not hold `box`, scratch memory does: whatever lay there is gone.

    What lies `offset` elements behind its beginning lies there beside what came before it in the same message.
    """
    i = t.plan.arg_instance[target]
    if offset == 0 and not covers(t.plan.instance_box[i], box, t.plan.instance[i].dims):
        clear(t.pieces, i)


@leaf
def store(t: Machinery, target: int, box: Array, version: int, volume: int, weight: int) -> None:
    """An argument holds this in `box` now."""
    i = t.plan.arg_instance[target]
    make_room(t, target, box, 0)
    put(t.pieces, i, box, t.plan.instance[i].dims, version, volume, weight)


# -- sums --------------------------------------------------------------------------------------------------------------


@leaf
def note_parts(t: Machinery, version: int, volume: int) -> None:
    """Note how much of a sum there is."""
    t.fault.record[0].volume, t.fault.record[0].whole = volume, t.program.version[version].volume


@leaf
def fold(t: Machinery, row: int, first: int) -> bool:
    """A row that adds up its other arguments in its first one."""
    start_sum(t)
    box = t.plan.arg_box[first]
    for k in range(first + 1, t.plan.arg_ptr[row + 1]):
        if not add_part(t, row, k, box, k == first + 1):
            return False
    return end_sum(t, row, first, box)


@leaf
def start_sum(t: Machinery) -> None:
    """The list in which a sum is made, behind those of the instances, is empty."""
    clear(t.pieces, len(t.plan.instance))
    clear(t.pieces, len(t.plan.instance) + 1)


@leaf
def add_part(t: Machinery, row: int, k: int, box: Array, is_first: bool) -> bool:
    """Add what argument `k` holds in `box` to the sum so far."""
    p = t.pieces
    i = t.plan.arg_instance[k]
    dims = t.plan.instance[i].dims
    left = shared(box, box, dims)
    total = len(t.plan.instance)
    at = p.head[i]
    while at >= 0:
        if overlaps(p.box[at], box, dims):
            piece = p.piece[at]
            if piece.volume == 0:
                meet(t.fault.box, p.box[at], box, dims)
                t.fault.record[0].has_box = 1
                return refuse(t.fault, Rule.COMPLETE, row, k)
            meet(t.program.tile, p.box[at], box, dims)
            left -= shared(t.program.tile, t.program.tile, dims)
            if is_first:
                add(p, total, t.program.tile, dims, piece.version, piece.volume, piece.weight)
            elif not add_piece(t, row, k, at, dims):
                return False
        at = p.piece[at].next
    if left:
        return refuse(t.fault, Rule.UNWRITTEN, row, k)
    if not is_first:
        clear(p, total)
        p.head[total] = p.head[total + 1]
        p.head[total + 1] = -1
    return True


@leaf
def add_piece(t: Machinery, row: int, k: int, at: int, dims: int) -> bool:
    """Add piece `at`, within the box in `tile`, to what the sum so far has there."""
    p = t.pieces
    total = len(t.plan.instance)
    so_far = p.head[total]
    while so_far >= 0:
        if overlaps(p.box[so_far], t.program.tile, dims):
            meet(t.fault.box, p.box[so_far], t.program.tile, dims)
            old = p.piece[so_far]
            new = p.piece[at]
            volume = old.volume + new.volume
            weight = old.weight + new.weight
            t.fault.record[0].has_box = 1
            if old.version != new.version:
                return refuse(t.fault, Rule.MIXED, row, k)
            whole = t.program.version[old.version]
            if volume > whole.volume or (volume == whole.volume and weight != whole.weight):
                note_parts(t, old.version, volume)
                return refuse(t.fault, Rule.TWICE, row, k)
            t.fault.record[0].has_box = 0
            add(p, total + 1, t.fault.box, dims, old.version, volume, weight)
        so_far = p.piece[so_far].next
    return True


@leaf
def end_sum(t: Machinery, row: int, target: int, box: Array) -> bool:
    """The target holds the sum."""
    p = t.pieces
    total = len(t.plan.instance)
    i = t.plan.arg_instance[target]
    make_room(t, target, box, 0)
    at = p.head[total]
    while at >= 0:
        version = p.piece[at].version
        volume = p.piece[at].volume
        weight = p.piece[at].weight
        if volume == t.program.version[version].volume:
            volume = 0
            weight = 0
        put(p, i, p.box[at], t.plan.instance[i].dims, version, volume, weight)
        at = p.piece[at].next
    return True


@leaf
def run_steps(t: Machinery, row: int) -> bool:
    """The copies and folds of a collective."""
    table = t.plan.row[row].steps
    first = t.plan.arg_ptr[row]
    for s in range(t.steps.ptr[table], t.steps.ptr[table + 1]):
        step = t.steps.step[s]
        box = t.steps.box[s]
        target = first + step.target
        is_copy = step.end - step.first == 1
        if not holds(t, row, target, box, step.offset if is_copy else 0):
            return False
        if is_copy:
            if not carry(t, row, first + t.steps.part[step.first], target, box, step.offset):
                return False
            continue
        if step.end - step.first == 2 and add_two(t, first, step.first, target, box):
            continue
        start_sum(t)
        for n in range(step.first, step.end):
            k = first + t.steps.part[n]
            if (
                t.plan.instance[t.plan.arg_instance[k]].device
                != t.plan.instance[t.plan.arg_instance[target]].device
            ):
                return refuse(t.fault, Rule.DEVICE, row, k)
            if not add_part(t, row, k, box, n == step.first):
                return False
        end_sum(t, row, target, box)
    return True


@leaf
def add_two(t: Machinery, first: int, n: int, target: int, box: Array) -> bool:
    """Add parts `n` and `n + 1` of a step, where each is one piece and all is right: the most frequent case."""
    p = t.pieces
    i = t.plan.arg_instance[target]
    one = t.plan.arg_instance[first + t.steps.part[n]]
    other = t.plan.arg_instance[first + t.steps.part[n + 1]]
    device = t.plan.instance[i].device
    dims = t.plan.instance[i].dims
    a = find(p, one, box, dims)
    b = find(p, other, box, dims)
    if (
        a < 0
        or b < 0
        or t.plan.instance[one].device != device
        or t.plan.instance[other].device != device
    ):
        return False
    x = p.piece[a]
    y = p.piece[b]
    if x.version != y.version or x.volume == 0 or y.volume == 0:
        return False
    whole = t.program.version[x.version]
    volume = x.volume + y.volume
    weight = x.weight + y.weight
    if volume == whole.volume and weight == whole.weight:
        volume = 0
        weight = 0
    elif volume >= whole.volume:
        return False
    store(t, target, box, x.version, volume, weight)
    return True


@leaf
def holds(t: Machinery, row: int, k: int, box: Array, offset: int) -> bool:
    """Whether a box lies in an argument of a collective, or fits `offset` behind the beginning of scratch memory."""
    i = t.plan.arg_instance[k]
    dims = t.plan.instance[i].dims
    argument = t.plan.arg_box[k]
    held = t.plan.instance_box[i]
    if (offset == 0 and covers(argument, box, dims)) or offset + shared(box, box, dims) <= shared(
        held, held, dims
    ):
        return True
    return refuse(t.fault, Rule.INSTANCE, row, k)
