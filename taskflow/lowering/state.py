"""What is known while the events of a region are played, compiled by numba; see `movement` for the rules.

Tables have a capacity; a row beyond it only sets `is_full`, and the caller starts again with more memory. Boxes are
those of `boxes`. A task is named by its issuer and its index among what that issues: operator k of those that touch the
region is issuer k, the movement of version v is issuer `ops + v`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from taskflow.core.columns import record
from taskflow.core.compiling import inner, leaf
from taskflow.core.tables import NUMBER, Tables, viewer
from taskflow.lowering.boxes import covers, overlaps, put, same
from taskflow.tasks.task_graph import Kind, Privilege


class State(Tables):
    """What a fragment consists of, and what is known on the way.

    Numbers:
        width: numbers of a box.
        devices: those that have to do with the region, numbered anew (see `moving.play_region`).
        few_sums, few_gathers, few_exchanges: so many devices sum, gather, and exchange all to all, row by row.
        has_relays: whether all-to-alls have memory for what is passed on.
        doors: how many messages can arrive at a device at once.
        is_queued: whether what arrives at a device, and what is copied within it, is in one stream.
        room_bytes: of a sum, so much can arrive at once where it is added, and one part for each device at least.
        piece_bytes: a sum of more, in a row of its own that many read whole, is several rows; 0: it is one.
        itemsize, is_scalar: of the region; a scalar has no dimension, its boxes have one of one point.
        is_brief: whether edges that the order of streams implies may be left out.
        version, issuer, first: the version that is being moved, its issuer, and its first row.
        instances, accesses, ...: rows of the tables in use.
        is_full: whether a table had too little room.
        lost: 1 + the first need that nobody can serve, or 0.

    Tables; `next` of the last one is -1, and so is every first or latest one that there is not:
        device: its host, its kind (see `machine.equal`), its instances that hold values, in order, and of these the one
            that was found last.
        version: its needs, in order.
        instance: its device, whether it holds a partial result, and `next` of those of its device that hold values;
            the latest of those who wrote and of those who read since; what of the version is valid in it, in order.
        access: a task that read or wrote an instance, and the access before.
        edge: a task, and one that it awaits.
        row: kind, source and device; the end of its arguments; points moved; number of its collective; ordinal.
        arg: instance and privilege of an argument.
        held: an instance and its device, where a box is valid; in order of becoming so.
        need: a version, a device that needs a box of it, `next` of the version, and the one before in its slot.
        need_slot: by a hash of version, device and box, the latest of those needs.
        copy: device and instance from which and to which a box is copied in rows to come.
        sum: a device that sums a box, and the end of the instances that it sums, in `summand`.
        work, spare: boxes that are being cut up.
    """

    numbers: ClassVar = (
        *(
            "width",
            "devices",
            "few_sums",
            "few_gathers",
            "few_exchanges",
            "has_relays",
            "doors",
            "is_queued",
            "room_bytes",
        ),
        *("piece_bytes", "itemsize", "is_scalar", "is_brief", "version", "issuer", "first"),
        *(
            "instances",
            "accesses",
            "edges",
            "rows",
            "args",
            "held_boxes",
            "needs",
            "copies",
            "sums",
            "summands",
        ),
        *("is_full", "lost"),
    )
    tables: ClassVar = {
        "device": record("host", "kind", "first_value", "last_value", "found"),
        "version_needs": record("first", "last"),
        "instance": record(
            "device", "is_partial", "next", "latest_write", "latest_read", "first_held", "last_held"
        ),
        "instance_box": "width",
        "access": record("issuer", "index", "before"),
        "access_box": "width",
        "edge": record("issuer", "index", "awaited_issuer", "awaited_index"),
        "row": record("kind", "source", "device", "arg_end", "points", "collective", "ordinal"),
        "arg": record("instance", "privilege"),
        "arg_box": "width",
        "held": record("device", "instance", "next"),
        "held_box": "width",
        "need": record("version", "device", "next", "before"),
        "need_slot": NUMBER,
        "need_box": "width",
        "copy": record("source", "source_instance", "device", "instance"),
        "copy_box": "width",
        "sum": record("device", "end"),
        "sum_box": "width",
        "summand": NUMBER,
        "work": "width",
        "spare": "width",
    }


state_in = viewer(State)

# Numbers of NumPy: for every member of an enum that is passed on, numba would compile a function once more.
COPY, FOLD, FEED, COLLECTIVE = np.array([Kind.COPY, Kind.FOLD, Kind.FEED, Kind.COLLECTIVE])
READ, WRITE, READ_WRITE = np.array([Privilege.READ, Privilege.WRITE, Privilege.READ_WRITE])

MANY = 4  # accesses, edges, arguments and copies are so many times as many as instances, rows and needs
_SIZE, _MANY_TIMES, _DEVICES, _VERSIONS = range(4)
_ROWS = {"device": _DEVICES, "version_needs": _VERSIONS}
_ROWS |= dict.fromkeys(
    ("access", "access_box", "edge", "arg", "arg_box", "copy", "copy_box", "summand"), _MANY_TIMES
)
_ROWS_OF = np.array([_ROWS.get(name, _SIZE) for name in State.tables])
_WIDTH = -1
_COLUMNS = -2
_ROW_OF = np.array(
    [
        {"width": _WIDTH, "devices": _COLUMNS}[row]
        if isinstance(row, str)
        else row.itemsize // NUMBER.itemsize
        for row in State.tables.values()
    ]
)
_HEADS = len(State.numbers)  # behind the numbers stands where the tables begin
_HEADER = _HEADS + 2 * len(State.tables)


@inner
def lay_out(memory: Any, size: int, width: int, devices: int, versions: int) -> int:
    """Say in `memory` where the tables begin, with room for `size` instances, rows and needs; the int64s they take.

    The memory may be too short for the tables, and even for saying so.
    """
    end = _HEADER
    rows = (size, MANY * size, devices, versions)
    heads = np.empty((len(_ROWS_OF), 2), np.int64)
    for t in range(len(_ROWS_OF)):
        row = width if _ROW_OF[t] == _WIDTH else devices if _ROW_OF[t] == _COLUMNS else _ROW_OF[t]
        heads[t, 0], heads[t, 1] = end, rows[_ROWS_OF[t]]
        end += rows[_ROWS_OF[t]] * row
    if len(memory) >= _HEADER:
        memory[_HEADS:_HEADER] = heads.reshape(-1)
    return end


@leaf
def clear(s: State, memory: Any, width: int, hosts: Any, kinds: Any) -> None:
    """Nothing is there yet; host and kind of every device."""
    for k in range(_HEADS):
        memory[k] = 0
    s.width = width
    s.devices = len(hosts)
    for d in range(s.devices):
        at = s.device[d]
        at.host = hosts[d]
        at.kind = kinds[d]
        at.first_value = -1
        at.last_value = -1
        at.found = -1
    for v in range(len(s.version_needs)):
        at = s.version_needs[v]
        at.first = -1
        at.last = -1
    for k in range(len(s.need_slot)):
        s.need_slot[k] = -1


@leaf
def append(s: State, used: int, room: int) -> int:
    """The number of a new row of a table of which so many are in use; -1 where there is no room."""
    if used >= room:
        s.is_full = 1
        return -1
    return used


# -- instances and what is known of them -----------------------------------------------------------------------------


@leaf
def add_instance(s: State, device: int, box: Any, is_partial: bool) -> int:
    """A new instance."""
    k: int = append(s, s.instances, len(s.instance))
    if k >= 0:
        s.instances += 1
        new = s.instance[k]
        new.device = device
        new.is_partial = is_partial
        new.next = -1
        new.latest_write = -1
        new.latest_read = -1
        new.first_held = -1
        new.last_held = -1
        put(s.instance_box[k], box)
    return k


@leaf
def find_instance(s: State, device: int, box: Any) -> int:
    """The first instance on `device` that holds values and covers the box, or -1.

    Points come in order, so one is looked for where another was found, and behind it. One that is the box is the first
    that covers it: it would not have been made otherwise.
    """
    at = s.device[device]
    k: int = at.found
    for _ in range(2):
        if k >= 0 and same(s.instance_box[k], box):
            at.found = k
            return k
        k = s.instance[k].next if k >= 0 else -1
    k = at.first_value
    while k >= 0 and not covers(s.instance_box[k], box):
        k = s.instance[k].next
    at.found = k
    return k


@leaf
def add_edge(s: State, issuer: int, index: int, access: int) -> None:
    """A task waits for the one of an access, if that is another."""
    awaited = s.access[access]
    if awaited.issuer == issuer and awaited.index == index:
        return
    k = append(s, s.edges, len(s.edge))
    if k >= 0:
        s.edges += 1
        edge = s.edge[k]
        edge.issuer = issuer
        edge.index = index
        edge.awaited_issuer = awaited.issuer
        edge.awaited_index = awaited.index


@leaf
def wait_for(s: State, latest: int, box: Any, issuer: int, index: int) -> None:
    """Edges to all accesses, latest first, that overlap the box.

    Of what arrives in an instance in one stream the latest is enough, where edges may be left out.
    """
    k = latest
    is_told = False
    while k >= 0:
        if overlaps(s.access_box[k], box):
            arrives = s.is_brief > 0 and s.is_queued > 0 and is_arrival(s, k)
            if not (arrives and is_told):
                add_edge(s, issuer, index, k)
            is_told = is_told or arrives
        k = s.access[k].before


@leaf
def is_arrival(s: State, access: int) -> bool:
    """Whether it is by a copy or a fold of the version that is being moved."""
    task = s.access[access]
    if task.issuer != s.issuer:
        return False
    kind = s.row[s.first + task.index].kind
    return bool(kind == COPY or kind == FOLD)  # noqa: SIM109


@leaf
def take_over(s: State, latest: int, box: Any, issuer: int, index: int) -> int:
    """Edges to all accesses that overlap the box; those that lie within it are dropped. The latest one that is left."""
    later = -1
    k = latest
    while k >= 0:
        before = s.access[k].before
        is_covered = False
        if overlaps(s.access_box[k], box):
            add_edge(s, issuer, index, k)
            is_covered = covers(box, s.access_box[k])
        if not is_covered:
            later = k
        elif later < 0:
            latest = before
        else:
            s.access[later].before = before
        k = before
    return latest


@leaf
def remember(s: State, latest: int, box: Any, issuer: int, index: int) -> int:
    """One more access, behind the latest one; the latest one from now on."""
    k: int = append(s, s.accesses, len(s.access))
    if k < 0:
        return latest
    s.accesses += 1
    put(s.access_box[k], box)
    new = s.access[k]
    new.issuer = issuer
    new.index = index
    new.before = latest
    return k


@leaf
def note_read(s: State, instance: int, box: Any, issuer: int, index: int) -> None:
    """A task reads the box: it waits for those who wrote any of it. (There is no instance only if there is no room.)"""
    if instance < 0:
        return
    at = s.instance[instance]
    wait_for(s, at.latest_write, box, issuer, index)
    at.latest_read = remember(s, at.latest_read, box, issuer, index)


@leaf
def note_write(s: State, instance: int, box: Any, issuer: int, index: int) -> None:
    """A task writes the box: it waits for those who read or wrote any of it."""
    if instance < 0:
        return
    at = s.instance[instance]
    at.latest_read = take_over(s, at.latest_read, box, issuer, index)
    latest = take_over(s, at.latest_write, box, issuer, index)
    at.latest_write = remember(s, latest, box, issuer, index)


@leaf
def hold(s: State, device: int, instance: int, box: Any) -> None:
    """The box is valid in the instance from now on."""
    k = append(s, s.held_boxes, len(s.held))
    if k < 0:
        return
    s.held_boxes += 1
    if instance < 0:
        return
    new = s.held[k]
    at = s.instance[instance]
    new.device = device
    new.instance = instance
    new.next = -1
    put(s.held_box[k], box)
    if at.first_held < 0:
        at.first_held = k
    else:
        s.held[at.last_held].next = k
    at.last_held = k
