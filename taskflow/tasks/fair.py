"""The fair pass: when rows start and end where transfers share links, as switches and network cards let them.

Streams of devices are in-order queues; links are none. Transfers that cross a link at the same time share it max-min
fairly: all get the same bytes per second, and what one cannot use, since another link or its own pace holds it, the
others get. A transfer loads its links when its latency is over. Tasks beside a collective may be slower (`tasks.tax`).
All other rows take their seconds, whatever else runs, so they need no events in the order of time.

Source: Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2 (max-min flow control).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, record, records
from taskflow.core.compiling import inner, leaf, tiered
from taskflow.core.grouping import grouped
from taskflow.tasks.agenda import NONE, Agenda, pop, put
from taskflow.tasks.tax import Tax, begin_or_end, has_event, no_tax

ALMOST = 1 + 1e-12  # levels of one link and of one flow that differ by less are the same
FLOW = records(
    [("row", np.int64), ("is_new", np.int64), ("pace", np.float64), ("level", np.float64)]
)
HOP = record("before", "after")


class Successors(NamedTuple):
    """What every row waits for, turned round.

    Attributes:
        ptr, row: the rows that wait for row k are `row[ptr[k] : ptr[k + 1]]`, each as often as it does.
        missing: for how many rows each one waits.
    """

    ptr: Array
    row: Array
    missing: Array


class Loads(NamedTuple):
    """What rows load.

    Attributes:
        ptr, link: row k shares the links `link[ptr[k] : ptr[k + 1]]`, numbered from 0.
        part: of these, the part of the link that one byte per second takes.
        peak: bytes per second of every row at its full pace, when it takes its seconds.
        latency: seconds before a row loads its links.
    """

    ptr: Array
    link: Array
    part: Array
    peak: Array
    latency: Array


class FlowTimes(NamedTuple):
    """When rows begin and end; of those under way the end at their present pace."""

    start: Array
    end: Array


class Crossing(NamedTuple):
    """Who crosses which link now.

    Attributes:
        head: of every link the first of its hops, entries of `Loads.link`.
        hop: `HOP` records, a list per link.
        row: of every entry.
        flow: number of the flow that a row is, or NONE.
        flows: `FLOW` records; `row` is NONE where there is none.
        free: a stack of numbers of flows; `used[0]`: its height.
        stale: links where something began or ended, `used[1]` of them; `is_stale`: which they are.
        rated: flows that are to be rated, `used[2]` of them; `near` and `used[3]`: their links.
        room, taken, left: of links under rating: what is left of them, the part that a level of one byte per second
            more takes, and how many of their flows have no level yet.
        used: see there.
    """

    head: Array
    hop: Array
    row: Array
    flow: Array
    flows: Array
    free: Array
    stale: Array
    is_stale: Array
    rated: Array
    near: Array
    room: Array
    taken: Array
    left: Array
    used: Array


def fair_pass(
    waits: Successors, loads: Loads, seconds: Array, tax: Tax | None = None
) -> tuple[Array, Array]:
    """Start and end of every row.

    Args:
        waits: for other rows, those before it on streams of devices included; no cycle.
        loads: of shared links.
        seconds: of every row where it shares nothing, latency included.
        tax: on tasks beside collectives, before any row has begun.
    """
    moments, crossing, agenda = no_flows(loads)
    tax = tax or no_tax(len(seconds))
    missing = waits.missing.copy()
    plain = (
        tuple(columns)
        for columns in (waits._replace(missing=missing), loads, moments, crossing, agenda, tax)
    )
    _follow(*plain, np.asarray(seconds, float), np.empty(len(seconds), np.int64))
    return moments


def no_flows(loads: Loads) -> tuple[FlowTimes, Crossing, Agenda]:
    """The state in which no row has begun."""
    times, crossing, agenda = _no_flows(loads.ptr, loads.link)
    return FlowTimes(*times), Crossing(*crossing), Agenda(*agenda)


@tiered
def _no_flows(
    ptr: Array, link: Array
) -> tuple[tuple[Array, ...], tuple[Array, ...], tuple[Array, ...]]:
    """Columns of `FlowTimes`, `Crossing` and `Agenda`."""
    rows = len(ptr) - 1
    links = 0
    flows = 0
    row = np.empty(len(link), np.int64)
    for k in range(rows):
        flows += ptr[k] < ptr[k + 1]
        row[ptr[k] : ptr[k + 1]] = k
    for k in range(len(link)):
        links = max(links, link[k] + 1)
    free = np.arange(flows)[::-1].copy()
    used = np.zeros(4, np.int64)
    used[0] = flows
    stale, near, left = np.zeros((3, links), np.int64)
    listed = (
        np.full(links, NONE),
        np.zeros(len(link), HOP),
        row,
        np.full(rows, NONE),
        np.zeros(flows, FLOW),
        free,
    )
    rating = stale, np.zeros(links, np.bool_), np.zeros(flows, np.int64), near
    agenda = np.zeros(rows), np.zeros(rows, np.int64), np.full(rows, NONE), np.zeros(1, np.int64)
    return (
        (np.zeros(rows), np.zeros(rows)),
        (*listed, *rating, np.zeros(links), np.zeros(links), left, used),
        agenda,
    )


def turn_round(rows: int, before: Array, after: Array) -> Successors:
    """`Successors` of pairs: row `after[k]` waits for row `before[k]`."""
    ptr, order = grouped(before, rows)
    return Successors(ptr, after[order], np.bincount(after, minlength=rows))


@tiered
def _follow(
    waits: tuple[Array, ...],
    loads: tuple[Array, ...],
    moments: tuple[Array, ...],
    crossing: tuple[Array, ...],
    agenda: tuple[Array, ...],
    tax: tuple[Array, ...],
    seconds: Array,
    ready: Array,
) -> None:
    """See `fair_pass`; the arguments are named tuples as plain ones, and room for a stack of rows."""
    w, x, m, c, a = (
        Successors(*waits),
        Loads(*loads),
        FlowTimes(*moments),
        Crossing(*crossing),
        Agenda(*agenda),
    )
    t = Tax(*tax)
    height = 0
    for row in range(len(seconds)):
        if w.missing[row] == 0:
            ready[height] = row
            height += 1
    _begin(w, x, m, a, t, seconds, ready, height)
    while a.size[0]:
        now = a.moment[0]
        while a.size[0] and a.moment[0] <= now:
            row = pop(a)
            is_over = _turn(x, c, row) if _is_flow(x, row, seconds) else False
            if has_event(t, row):
                is_over = begin_or_end(t, m.end, a, row, now)
                if not (is_over or _is_flow(x, row, seconds)):
                    put(a, row, m.end[row])
            if is_over:
                _begin(w, x, m, a, t, seconds, ready, _release(w, m, row, ready, 0))
        _rate_all(x, c, m, a, now)


@tiered
def pass_events(
    loads: tuple[Array, ...],
    moments: tuple[Array, ...],
    crossing: tuple[Array, ...],
    agenda: tuple[Array, ...],
    new: Array,
    last: float,
) -> None:
    """Pass what begins and ends up to the moment `last`; `new` rows have begun, for which nothing waits."""
    x, m, c, a = Loads(*loads), FlowTimes(*moments), Crossing(*crossing), Agenda(*agenda)
    for row in new:
        put(a, row, m.start[row] + x.latency[row])
    while a.size[0] and a.moment[0] <= last:
        now = a.moment[0]
        while a.size[0] and a.moment[0] <= now:
            _turn(x, c, pop(a))
        _rate_all(x, c, m, a, now)


@leaf
def _turn(x: Loads, c: Crossing, row: int) -> bool:
    """A row begins to load its links, or is over; whether it is over."""
    is_over = c.flow[row] != NONE
    if is_over:
        _leave(x, c, row)
    else:
        _join(x, c, row)
    return bool(is_over)


@leaf
def _rate_all(x: Loads, c: Crossing, m: FlowTimes, a: Agenda, now: float) -> None:
    """All that can be reached over common links goes on at its new pace."""
    _rate(x, c)
    for k in range(c.used[2]):
        _go_on(x, c, m, a, c.rated[k], now)


@leaf
def _is_flow(x: Loads, row: int, seconds: Array) -> bool:
    """Whether a row shares links at all."""
    return bool(x.ptr[row] < x.ptr[row + 1] and seconds[row] > x.latency[row])


@inner
def _begin(
    w: Successors,
    x: Loads,
    m: FlowTimes,
    a: Agenda,
    t: Tax,
    seconds: Array,
    ready: Array,
    height: int,
) -> None:
    """Begin `height` rows that wait for nothing more, and those that wait for nothing else."""
    while height:
        height -= 1
        row = ready[height]
        m.end[row] = m.start[row] + seconds[row]
        if _is_flow(x, row, seconds):
            put(a, row, m.start[row] + x.latency[row])
        elif has_event(t, row):
            put(a, row, m.start[row])
        else:
            height = _release(w, m, row, ready, height)


@leaf
def _release(w: Successors, m: FlowTimes, row: int, ready: Array, height: int) -> int:
    """A row has its end: put those that waited for it alone on the stack; its height."""
    for k in range(w.ptr[row], w.ptr[row + 1]):
        other = w.row[k]
        m.start[other] = max(m.start[other], m.end[row])
        w.missing[other] -= 1
        if w.missing[other] == 0:
            ready[height] = other
            height += 1
    return height


# -- who crosses what --------------------------------------------------------------------------------------------------


@leaf
def _join(x: Loads, c: Crossing, row: int) -> None:
    """A row begins to load its links."""
    c.used[0] -= 1
    number = c.free[c.used[0]]
    c.flow[row] = number
    f = c.flows[number]
    f.row = row
    f.is_new = 1
    f.pace = 1.0
    f.level = 0.0
    for k in range(x.ptr[row], x.ptr[row + 1]):
        link = x.link[k]
        first = c.head[link]
        c.hop[k].before = NONE
        c.hop[k].after = first
        if first != NONE:
            c.hop[first].before = k
        c.head[link] = k
        _mark(c, link)


@leaf
def _leave(x: Loads, c: Crossing, row: int) -> None:
    """A row is over."""
    c.free[c.used[0]] = c.flow[row]
    c.used[0] += 1
    c.flow[row] = NONE
    for k in range(x.ptr[row], x.ptr[row + 1]):
        before = c.hop[k].before
        after = c.hop[k].after
        if before == NONE:
            c.head[x.link[k]] = after
        else:
            c.hop[before].after = after
        if after != NONE:
            c.hop[after].before = before
        _mark(c, x.link[k])


@leaf
def _mark(c: Crossing, link: int) -> None:
    if not c.is_stale[link]:
        c.is_stale[link] = True
        c.stale[c.used[1]] = link
        c.used[1] += 1


# -- paces -------------------------------------------------------------------------------------------------------------


@leaf
def _rate(x: Loads, c: Crossing) -> None:
    """Find the level, in bytes per second, of every flow that what began or ended can reach over common links."""
    _find(x, c)
    left = c.used[2]
    while left:
        level = np.inf
        settled = 0
        for k in range(c.used[3]):
            here = c.near[k]
            if c.left[here] and c.room[here] < level * c.taken[here]:
                level = c.room[here] / c.taken[here]
        for k in range(c.used[2]):  # who needs less than its share is content
            f = c.flows[c.rated[k]]
            if f.level == 0.0 and x.peak[f.row] <= level * ALMOST:
                settled += _settle(x, c, c.rated[k], x.peak[f.row])
        for k in range(
            0 if settled else c.used[3]
        ):  # all links that are as narrow: where devices are alike, many
            here = c.near[k]
            if c.left[here] and c.room[here] / c.taken[here] == level:
                settled += _settle_all(x, c, here, level)
        left -= settled


@leaf
def _find(x: Loads, c: Crossing) -> None:
    """Find the flows and links that are to be rated, and make all of their links free."""
    links = 0
    flows = 0
    for k in range(c.used[1]):
        c.near[k] = c.stale[k]
    near = c.used[1]
    while links < near:
        link = c.near[links]
        c.room[link] = 1.0
        c.taken[link] = 0.0
        c.left[link] = 0
        hop = c.head[link]
        while hop != NONE:
            row = c.row[hop]
            number = c.flow[row]
            f = c.flows[c.flow[row]]
            if f.level >= 0.0:
                f.level = -1.0
                c.rated[flows] = number
                flows += 1
                for k in range(x.ptr[row], x.ptr[row + 1]):
                    if not c.is_stale[x.link[k]]:
                        c.is_stale[x.link[k]] = True
                        c.near[near] = x.link[k]
                        near += 1
            hop = c.hop[hop].after
        links += 1
    for k in range(near):
        c.is_stale[c.near[k]] = False
    for k in range(flows):
        f = c.flows[c.rated[k]]
        f.level = 0.0
        for hop in range(x.ptr[f.row], x.ptr[f.row + 1]):
            c.taken[x.link[hop]] += x.part[hop]
            c.left[x.link[hop]] += 1
    c.used[1] = 0
    c.used[2] = flows
    c.used[3] = near


@leaf
def _settle_all(x: Loads, c: Crossing, link: int, level: float) -> int:
    """Give all flows over a link that have no level yet this one; how many."""
    settled = 0
    hop = c.head[link]
    while hop != NONE:
        number = c.flow[c.row[hop]]
        if c.flows[number].level == 0.0:
            settled += _settle(x, c, number, level)
        hop = c.hop[hop].after
    return settled


@leaf
def _settle(x: Loads, c: Crossing, number: int, level: float) -> int:
    """Give a flow its level."""
    f = c.flows[number]
    f.level = level
    for k in range(x.ptr[f.row], x.ptr[f.row + 1]):
        link = x.link[k]
        c.room[link] = max(0.0, c.room[link] - level * x.part[k])
        c.taken[link] -= x.part[k]
        c.left[link] -= 1
    return 1


@leaf
def _go_on(x: Loads, c: Crossing, m: FlowTimes, a: Agenda, number: int, now: float) -> None:
    """A flow goes on at its new pace."""
    f = c.flows[number]
    pace = f.level / x.peak[f.row]
    if pace != f.pace:
        m.end[f.row] = now + (m.end[f.row] - now) * (f.pace / pace)
        f.pace = pace
    if f.is_new or m.end[f.row] != a.moment[a.place[f.row]]:
        put(a, f.row, m.end[f.row])
    f.is_new = 0
