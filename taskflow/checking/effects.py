"""Effects: what a collective does, proven once for all rows that have the same steps. Compiled.

The steps of a collective are followed on lists in which nothing lies but its sources, each of them one piece with a
part of its own. What they leave behind is the sum of all sources, each once, or copies of sources: boxes of targets.
Every other row with these steps, whose sources are single pieces of one version, does the same and is not followed. A
collective that leaves anything else has no effect here: each of its rows is followed by `moves`, as is one in which
anything is wrong, which says what.
"""

from __future__ import annotations

from taskflow.checking.arguments import READ, Machinery, check_movement
from taskflow.checking.moves import run_steps
from taskflow.checking.pieces import add, clear, covers, find, is_same, put
from taskflow.checking.rules import forget
from taskflow.checking.terms import scattered
from taskflow.core.compiling import leaf

PUT, CLEAR = 0, 1  # the volume of a piece in an effect; its version is the number of the argument


@leaf
def effect_list(t: Machinery, row: int) -> int:
    """The list in which the effect of a collective is."""
    found: int = len(t.plan.instance) + 2 + t.plan.row[row].steps
    return found


@leaf
def note_effects(t: Machinery) -> None:
    """The effects of all collectives; the lists of all instances are empty before, and after."""
    for table in range(len(t.steps.collective)):
        row = t.steps.collective[table].row
        if not (check_movement(t, row) and has_room(t, row) and note_effect(t, row)):
            clear(t.pieces, effect_list(t, row))
        for k in range(t.plan.arg_ptr[row], t.plan.arg_ptr[row + 1]):
            clear(t.pieces, t.plan.arg_instance[k])
        forget(t.fault)


@leaf
def has_room(t: Machinery, row: int) -> bool:
    """Whether what a collective writes lies in its instances, scratch memory excepted."""
    first, table = t.plan.arg_ptr[row], t.plan.row[row].steps
    for s in range(t.steps.ptr[table], t.steps.ptr[table + 1]):
        i = t.plan.arg_instance[first + t.steps.step[s].target]
        instance = t.plan.instance[i]
        if not (
            instance.is_partial or covers(t.plan.instance_box[i], t.steps.box[s], instance.dims)
        ):
            return False
    return True


@leaf
def note_effect(t: Machinery, row: int) -> bool:
    """Follow the steps of a collective and note what they leave; whether it is an effect."""
    p, first, end = t.pieces, t.plan.arg_ptr[row], t.plan.arg_ptr[row + 1]
    own, weight, k = len(t.program.version) - 1, 0, first
    while k < end and t.plan.arg_privilege[k] == READ:
        i, part = t.plan.arg_instance[k], scattered(0, k - first + 1)
        put(p, i, t.plan.arg_box[k], t.plan.instance[i].dims, own, 1, part)
        weight, k = weight + part, k + 1
    volume = k - first
    t.program.version[own].volume = volume + 1  # so that no sum is complete
    if not run_steps(t, row):
        return False
    for arg in range(first, end):
        part = scattered(0, arg - first + 1) if arg < k else 0
        if not note_target(t, row, arg, part, volume, weight):
            return False
    return True


@leaf
def note_target(t: Machinery, row: int, k: int, part: int, volume: int, weight: int) -> bool:
    """Note what an argument holds after all steps, unless it is its own `part` alone; False if that is no effect.

    Parts may be left over in scratch memory, and in sources that are all of an instance: these are spent.
    """
    p, first, i = t.pieces, t.plan.arg_ptr[row], t.plan.arg_instance[k]
    is_sum, dims = t.steps.collective[t.plan.row[row].steps].is_sum != 0, t.plan.instance[i].dims
    at, is_spent = p.head[i], t.plan.instance[i].is_partial != 0
    if at < 0 or (p.piece[at].next < 0 and p.piece[at].volume == 1 and p.piece[at].weight == part):
        return True
    while at >= 0:
        piece = p.piece[at]
        if piece.volume == volume and piece.weight == weight if is_sum else piece.volume == 1:
            add(p, effect_list(t, row), p.box[at], dims, k - first, PUT, 0)
        else:
            is_spent = True
        at = p.piece[at].next
    clear(p, i)  # who has the same instance has nothing more to note
    if is_spent:  # this comes first in the list
        add(p, effect_list(t, row), t.plan.arg_box[k], dims, k - first, CLEAR, 0)
    whole = is_same(t.plan.arg_box[k], t.plan.instance_box[i], dims)
    return not is_spent or t.plan.instance[i].is_partial != 0 or (part != 0 and whole)


@leaf
def apply_effect(t: Machinery, row: int) -> bool:
    """What a row with a known effect does; False, and nothing is done, where it has none or its sources do not fit."""
    p, first, at = t.pieces, t.plan.arg_ptr[row], t.pieces.head[effect_list(t, row)]
    is_sum = t.steps.collective[t.plan.row[row].steps].is_sum != 0
    version, volume, weight, k = -1, 0, 0, first
    while at >= 0 and k < t.plan.arg_ptr[row + 1] and t.plan.arg_privilege[k] == READ:
        i = t.plan.arg_instance[k]
        source = find(p, i, t.plan.arg_box[k], t.plan.instance[i].dims)
        if source < 0:
            return False
        piece = p.piece[source]
        if (k > first and piece.version != version) or (piece.volume > 0) != is_sum:
            return False
        version, volume, weight, k = (
            piece.version,
            volume + piece.volume,
            weight + piece.weight,
            k + 1,
        )
    if version < 0:
        return False
    whole = t.program.version[version]
    if volume == whole.volume and weight == whole.weight:
        volume, weight = 0, 0
    if volume >= whole.volume:
        return False
    while at >= 0:
        i = t.plan.arg_instance[first + p.piece[at].version]
        if p.piece[at].volume == CLEAR:
            clear(p, i)
        else:
            put(p, i, p.box[at], t.plan.instance[i].dims, version, volume, weight)
        at = p.piece[at].next
    return True
