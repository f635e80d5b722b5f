"""The fair pass equals a slow one that goes from event to event, conserves every link, and is the plain pass alone."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow.core.columns import pointers
from taskflow.tasks.fair import Loads, fair_pass, turn_round
from taskflow.tasks.tax import make_tax
from tests.strategies import examples

MOST_ROWS = 24
PACE = np.array([0.75, 0.5])  # of two devices beside a collective


def slow_pass(pairs, hops, peak, latency, seconds, capacity, payer=(), slowed=()):
    """Start and end of every row: dictionaries, events, and levels that rise in steps.

    Row r computes on the device `payer[r]`, or on none: -1; and slows those of `slowed[r]`.
    """
    waits = {row: {b for b, a in pairs if a == row} for row in range(len(seconds))}
    start, end, left, now = {}, {}, {}, 0.0
    while len(end) < len(seconds):
        for row in [
            r
            for r in waits
            if r not in start and all(end.get(b, math.inf) <= now for b in waits[r])
        ]:
            start[row] = now
            left[row] = seconds[row] - latency[row]
        moving = [r for r in start if r not in end and now >= start[r] + latency[r] - 1e-12]
        pace = max_min({r: hops[r] for r in moving}, peak, capacity)
        held = {device for r in moving for device in slowed[r : r + 1] for device in device}
        pace |= {r: PACE[payer[r]] for r in moving if payer[r : r + 1] and payer[r] in held}
        events = [start[r] + latency[r] - now for r in start if r not in end and r not in moving]
        events += [left[r] / pace[r] for r in moving]
        step = min(events)
        now += step
        for r in moving:
            left[r] -= pace[r] * step
        end.update({r: now for r in moving if left[r] <= 1e-12})
    return start, end


def max_min(hops, peak, capacity):
    """The pace of every flow, 1 if it goes as fast as it can."""
    level, open_ = {}, set(hops)
    while open_:
        room = {}
        for link, whole in enumerate(capacity):
            used = sum(level[r] * w for r in level for l, w in hops[r] if l == link)
            wants = sum(w for r in open_ for l, w in hops[r] if l == link)
            if wants:
                room[link] = (whole - used) / wants
        least = min([*room.values(), *(peak[r] for r in open_)])
        full = {link for link in room if room[link] <= least * (1 + 1e-9)}
        done = {
            r
            for r in open_
            if peak[r] <= least * (1 + 1e-9) or any(link in full for link, _ in hops[r])
        }
        level.update(dict.fromkeys(done, least))
        open_ -= done
    return {r: level[r] / peak[r] for r in level}


@st.composite
def programs(draw, is_shared=True):
    """Rows that wait for earlier ones; some load links, each in full where it has only one kind of bytes."""
    rows, links = draw(st.integers(1, MOST_ROWS)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    pairs = [(b, a) for a in range(rows) for b in range(a) if random.random() < 0.15]
    capacity = random.choice([1.0, 2.0, 5.0], links)
    hops, peak, latency, seconds = (
        [],
        np.zeros(rows),
        np.zeros(rows),
        random.choice([0.5, 1.0, 2.0], rows),
    )
    for row in range(rows):
        which = np.flatnonzero(random.random(links) < 0.4) if is_shared else np.zeros(0, int)
        weight = np.where(
            random.random(len(which)) < 0.8, 1.0, 0.5
        )  # a collective loads some links less
        hops.append(list(zip(which.tolist(), weight.tolist(), strict=True)))
        peak[row] = min(capacity[which] / weight, default=1.0)
        latency[row] = random.choice([0.0, 0.25]) if hops[row] else 0.0
    return pairs, hops, peak, latency, seconds, capacity


@st.composite
def taxed_programs(draw):
    """Programs in which rows that load no link compute on one of two devices, one after the other, or on none."""
    pairs, hops, *rest = draw(programs())
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    payer = [-1 if each else int(random.integers(-1, 2)) for each in hops]
    slowed = [np.flatnonzero(random.random(2) < (p < 0) * 0.5).tolist() for p in payer]
    for device in (0, 1):
        own = [r for r, p in enumerate(payer) if p == device]
        pairs = pairs + list(itertools.pairwise(own))
    return pairs, hops, *rest, payer, slowed


def run(pairs, hops, peak, latency, seconds, capacity, payer=None, slowed=()):
    link = np.array([link for each in hops for link, _ in each], np.int64)
    part = np.array([w / capacity[link] for each in hops for link, w in each])
    loads = Loads(pointers([len(each) for each in hops]), link, part, peak, latency)
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    devices = np.array([device for each in slowed for device in each], np.int64)
    tax = payer and make_tax(
        pointers([len(each) for each in slowed]), devices, np.array(payer), PACE
    )
    return fair_pass(turn_round(len(seconds), before, after), loads, seconds, tax)


@examples(200)
@given(programs())
def test_the_pass_equals_a_slow_one_and_conserves_every_link(program):
    _, hops, peak, latency, seconds, capacity = program
    start, end = run(*program)
    expected = slow_pass(*program)
    for row in range(len(seconds)):
        assert start[row] == pytest.approx(expected[0].get(row, 0.0), rel=1e-9, abs=1e-9)
        assert end[row] == pytest.approx(expected[1][row], rel=1e-9, abs=1e-9)
        assert end[row] >= start[row] + seconds[row] - 1e-9
    moments = sorted({*start.tolist(), *end.tolist()})
    for link, whole in enumerate(capacity):
        of = {
            r: (seconds[r] - latency[r]) * peak[r] * w
            for r, each in enumerate(hops)
            for l, w in each
            if l == link
        }
        for low in moments:
            for high in moments:
                inside = sum(
                    size
                    for r, size in of.items()
                    if start[r] + latency[r] >= low and end[r] <= high
                )
                assert inside <= whole * max(high - low, 0.0) + 1e-9


@examples(200)
@given(taxed_programs())
def test_tasks_beside_a_collective_are_slower_and_it_is_not(program):
    for found, expected in zip(run(*program), slow_pass(*program), strict=True):
        assert found.tolist() == pytest.approx(
            [expected[row] for row in range(len(found))], rel=1e-9, abs=1e-9
        )


def test_a_task_pays_while_the_collective_is_under_way():
    """Two plain seconds, a collective for four at a pace of 0.75, so 5 of 10 are done after 6, and a task after it."""
    pairs, nothing = [(0, 1), (2, 3)], [[]] * 4
    seconds = np.array([2.0, 4.0, 10.0, 1.0])
    _, end = run(
        pairs, nothing, np.ones(4), np.zeros(4), seconds, [1.0], [-1, -1, 0, 0], [[], [0], [], []]
    )
    assert end.tolist() == [2.0, 6.0, 11.0, 12.0]


@examples(100)
@given(programs(is_shared=False))
def test_rows_that_share_nothing_take_their_seconds_to_the_bit(program):
    pairs, _, _, _, seconds, _ = program
    start, end = run(*program)
    for row in range(len(seconds)):
        assert start[row] == max((end[b] for b, a in pairs if a == row), default=0.0)
        assert end[row] == start[row] + seconds[row]


def test_two_that_share_take_twice_as_long_and_a_third_gets_what_they_leave():
    whole, half = [(0, 1.0)], [(0, 1.0), (1, 1.0)]
    _, end = run([], [whole, half], np.array([4.0, 1.0]), np.zeros(2), np.ones(2), [4.0, 1.0])
    assert end.tolist() == [
        pytest.approx(1.25),
        1.0,
    ]  # 3 of 4 bytes per second for a second, then all of them
    _, end = run([], [whole, whole], np.array([4.0, 4.0]), np.array([0.0, 0.5]), np.ones(2), [4.0])
    assert end.tolist() == [pytest.approx(1.5), pytest.approx(1.5)]
