"""What is known while the events of a region are played, compiled by numba; see `movement` for the rules.

All state is arrays. What grows has a capacity; an append beyond it only raises `n[FULL]`, and the caller starts again
with larger arrays. Boxes are `(dimensions, 2)`, a scalar has one dimension of one point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf, njit
from taskflow.lowering.boxes import covers, overlaps, put

# Numbers of NumPy: for every number of Python that is passed on, numba compiles a function once more.
READ, WRITE, READ_WRITE = np.arange(3)  # of task.Privilege
COPY, FOLD, FEED, COLLECTIVE = np.arange(1, 5)  # of task.Kind
UPDATES = np.int64(1)  # of movement.READS, UPDATES, WRITES

# Places at the start of `m`: lengths of tables, whether one is full and what is lost; whether edges that the order of
# streams implies may be left out; the slot and the first row of the version that is being moved.
INSTANCES, ACCESSES, EDGES, ROWS, ARGS, HELD, NEEDS, FULL, LOST, BRIEF, SLOT, FIRST = np.arange(12)


class State(NamedTuple):
    """What a fragment consists of, and what is known on the way: tables in one flat memory.

    Passed on to small functions some hundred times a row, so it is short: `m` says itself where its tables begin.
    """

    m: Any
    w: int  # numbers of a box
    devices: int
    size: int  # rows of most tables; of accesses, edges and arguments MANY times as many


class Tables(NamedTuple):
    """Where in `m` stands where each table begins; its rows have the columns named."""

    inst_device: int  # instances
    inst_box: int
    inst_partial: int
    inst_next: int  # those of a device that hold values, in order
    value_first: int
    value_last: int
    access_box: int  # last writers and the readers since, per instance
    access_task: int  # slot, index
    access_next: int
    writers: int
    readers: int
    edge: int  # waiting slot, index, awaited slot, index
    row: int  # kind, source, device, end of its arguments, points moved, collective
    arg: int  # instance, privilege
    arg_box: int
    held: int  # device, instance: boxes that are valid, in order of becoming so
    held_box: int
    held_next: int  # of the same instance
    held_first: int
    held_last: int
    need: int  # device, next of its version, next of its version and device
    need_box: int
    need_first: int
    need_last: int
    need_at: int  # version, device
    work: int  # boxes being cut up
    spare: int


COUNTS = 16  # numbers at the start of `m`; where the tables begin stands behind them
AT = Tables(*range(COUNTS, COUNTS + len(Tables._fields)))
HEADER = COUNTS + len(Tables._fields)
MANY = 4  # accesses, edges and arguments are so many times as many as instances, rows and needs


@njit
def words(size: int, w: int, devices: int, versions: int) -> int:
    """Numbers that a state with room for `size` instances, rows and needs takes."""
    boxes = w * size * (5 + 2 * MANY)
    return HEADER + 19 * size + 9 * MANY * size + boxes + (2 + versions) * devices + 2 * versions


def place_tables(m: Any, size: int, w: int, devices: int, versions: int) -> State:
    """The tables of a state in `m`, which has at least `words(...)` numbers; see `clear`."""
    many = MANY * size
    value_first = HEADER
    value_last = value_first + devices
    need_first = value_last + devices
    need_last = need_first + versions
    need_at = need_last + versions
    inst_device = need_at + versions * devices
    inst_partial = inst_device + size
    inst_next = inst_partial + size
    writers = inst_next + size
    readers = writers + size
    held_next = readers + size
    held_first = held_next + size
    held_last = held_first + size
    held = held_last + size
    need = held + 2 * size
    row = need + 3 * size
    access_next = row + 6 * size
    access_task = access_next + many
    edge = access_task + 2 * many
    arg = edge + 4 * many
    inst_box = arg + 2 * many
    held_box = inst_box + w * size
    need_box = held_box + w * size
    work = need_box + w * size
    spare = work + w * size
    access_box = spare + w * size
    arg_box = access_box + w * many
    m[AT.inst_device] = inst_device
    m[AT.inst_box] = inst_box
    m[AT.inst_partial] = inst_partial
    m[AT.inst_next] = inst_next
    m[AT.value_first] = value_first
    m[AT.value_last] = value_last
    m[AT.access_box] = access_box
    m[AT.access_task] = access_task
    m[AT.access_next] = access_next
    m[AT.writers] = writers
    m[AT.readers] = readers
    m[AT.edge] = edge
    m[AT.row] = row
    m[AT.arg] = arg
    m[AT.arg_box] = arg_box
    m[AT.held] = held
    m[AT.held_box] = held_box
    m[AT.held_next] = held_next
    m[AT.held_first] = held_first
    m[AT.held_last] = held_last
    m[AT.need] = need
    m[AT.need_box] = need_box
    m[AT.need_first] = need_first
    m[AT.need_last] = need_last
    m[AT.need_at] = need_at
    m[AT.work] = work
    m[AT.spare] = spare
    return State(m, w, devices, size)


tables = inner(place_tables)


@leaf
def clear(s: State) -> None:
    """Nothing is there yet."""
    for k in range(COUNTS):
        s.m[k] = 0
    for k in range(HEADER, s.m[AT.inst_device]):
        s.m[k] = -1


@leaf
def append(s: State, what: int, capacity: int) -> int:
    """The next free place, or -1 where there is none."""
    place: int = s.m[what]
    if place >= capacity:
        s.m[FULL] = 1
        return -1
    s.m[what] = place + 1
    return place


# -- instances and what is known of them -----------------------------------------------------------------------------


@leaf
def add_instance(s: State, device: int, boxes: Any, i: int, partial: bool) -> int:
    """A new instance."""
    k: int = append(s, INSTANCES, s.size)
    if k >= 0:
        s.m[s.m[AT.inst_device] + k], s.m[s.m[AT.inst_partial] + k], s.m[s.m[AT.inst_next] + k] = device, partial, -1
        s.m[s.m[AT.writers] + k], s.m[s.m[AT.readers] + k], s.m[s.m[AT.held_first] + k], s.m[s.m[AT.held_last] + k] = (
            -1,
            -1,
            -1,
            -1,
        )
        put(s.m, s.m[AT.inst_box] + k * s.w, boxes, i, s.w)
    return k


@leaf
def find_instance(s: State, device: int, boxes: Any, i: int) -> int:
    """The first instance on `device` that holds values and covers the box, or -1."""
    k: int = s.m[s.m[AT.value_first] + device]
    while k >= 0 and not covers(s.m, s.m[AT.inst_box] + k * s.w, boxes, i, s.w):
        k = s.m[s.m[AT.inst_next] + k]
    return k


@leaf
def add_edge(s: State, slot: int, index: int, access: int) -> None:
    """A task waits for the one of an access, if that is another."""
    task = s.m[AT.access_task] + 2 * access
    if s.m[task] == slot and s.m[task + 1] == index:
        return
    e = append(s, EDGES, MANY * s.size)
    if e >= 0:
        at = s.m[AT.edge] + 4 * e
        s.m[at], s.m[at + 1], s.m[at + 2], s.m[at + 3] = slot, index, s.m[task], s.m[task + 1]


@leaf
def wait_for(s: State, head: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """Edges to all accesses of a chain, latest first, that overlap the box.

    What arrives in an instance arrives in one stream: of that the latest is enough, where edges may be left out.
    """
    k, is_told = head, False
    while k >= 0:
        if overlaps(s.m, s.m[AT.access_box] + k * s.w, boxes, i, s.w):
            arrives = s.m[BRIEF] > 0 and is_arrival(s, k)
            if not (arrives and is_told):
                add_edge(s, slot, index, k)
            is_told = is_told or arrives
        k = s.m[s.m[AT.access_next] + k]


@leaf
def is_arrival(s: State, access: int) -> bool:
    """Whether it is by a copy or a fold of the version that is being moved."""
    task = s.m[AT.access_task] + 2 * access
    if s.m[task] != s.m[SLOT]:
        return False
    kind = s.m[s.m[AT.row] + 6 * (s.m[FIRST] + s.m[task + 1])]
    return bool(kind == COPY or kind == FOLD)  # noqa: SIM109


@leaf
def take_over(s: State, heads: int, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """Edges to all accesses of a chain that overlap the box; those that lie within it are dropped."""
    before, k = -1, s.m[heads + instance]
    while k >= 0:
        after, at, is_covered = s.m[s.m[AT.access_next] + k], s.m[AT.access_box] + k * s.w, False
        if overlaps(s.m, at, boxes, i, s.w):
            add_edge(s, slot, index, k)
            is_covered = covers(boxes, i, s.m, at, s.w)
        if not is_covered:
            before = k
        elif before < 0:
            s.m[heads + instance] = after
        else:
            s.m[s.m[AT.access_next] + before] = after
        k = after


@leaf
def remember(s: State, heads: int, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """Put an access in front of a chain."""
    k = append(s, ACCESSES, MANY * s.size)
    if k >= 0:
        put(s.m, s.m[AT.access_box] + k * s.w, boxes, i, s.w)
        s.m[s.m[AT.access_task] + 2 * k], s.m[s.m[AT.access_task] + 2 * k + 1] = slot, index
        s.m[s.m[AT.access_next] + k] = s.m[heads + instance]
        s.m[heads + instance] = k


@leaf
def note_read(s: State, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """A task reads the box: it waits for those who wrote any of it. (There is no instance only if there is no room.)"""
    if instance < 0:
        return
    wait_for(s, s.m[s.m[AT.writers] + instance], boxes, i, slot, index)
    remember(s, s.m[AT.readers], instance, boxes, i, slot, index)


@leaf
def note_write(s: State, instance: int, boxes: Any, i: int, slot: int, index: int) -> None:
    """A task writes the box: it waits for those who read or wrote any of it."""
    if instance < 0:
        return
    take_over(s, s.m[AT.readers], instance, boxes, i, slot, index)
    take_over(s, s.m[AT.writers], instance, boxes, i, slot, index)
    remember(s, s.m[AT.writers], instance, boxes, i, slot, index)


@leaf
def hold(s: State, device: int, instance: int, boxes: Any, i: int) -> int:
    """The box is valid in the instance from now on."""
    k: int = append(s, HELD, s.size)
    if k >= 0 and instance >= 0:
        s.m[s.m[AT.held] + 2 * k], s.m[s.m[AT.held] + 2 * k + 1], s.m[s.m[AT.held_next] + k] = device, instance, -1
        put(s.m, s.m[AT.held_box] + k * s.w, boxes, i, s.w)
        if s.m[s.m[AT.held_first] + instance] < 0:
            s.m[s.m[AT.held_first] + instance] = k
        else:
            s.m[s.m[AT.held_next] + s.m[s.m[AT.held_last] + instance]] = k
        s.m[s.m[AT.held_last] + instance] = k
    return k
