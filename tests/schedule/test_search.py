"""Schedules that are searched for: published and proven figures, and rules that are kept by random placements."""

from inspect import signature

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Executor, Trainer, search, search_at_home, search_schedule
from taskflow.schedule import Block, find_period, find_schedule, period
from taskflow.schedule.blocks import repeated, table_of
from tests.refusals import assert_refused
from tests.schedule import placements
from tests.schedule.placements import check, k_shape, m_shape, nn_shape, v_shape, x_shape, zbv_shape
from tests.strategies import examples

SECONDS, TRIES = 1.5, 6  # of a search; a loaded machine may need some more

PERIODS = {
    "V, memory for all": (v_shape(), 4, 3, 1),
    "V, memory 3": (v_shape(), 3, 4, 3),
    "V on 8": (v_shape(8), 8, 3, 1),
    "M, memory 4": (m_shape(), 4, 10, 3),
    "M, memory 5": (m_shape(), 5, 9, 1),
    "M, memory 6": (m_shape(), 6, 8, 1),
    "X, memory 4": (x_shape(), 4, 6, 1),
    "NN, memory 8": (nn_shape(), 8, 6, 1),
    "K, memory 3": (k_shape(), 3, 6, 1),
}


@pytest.mark.parametrize("name", PERIODS)
def test_periods_of_known_placements(name):
    """At most what is published or proven (the second figure of each is Tessel's; V with memory 3 takes 6 there)."""
    blocks, memory, known, parts = PERIODS[name]
    tries = (find_period(blocks, memory, SECONDS, seed) for seed in range(TRIES))
    found = next((each for each in tries if each.period <= known), None)
    assert found is not None
    print(
        f"{name}: {found.period:g} a micro-batch, {found.starts.shape[1]} a period, optimal: {found.is_optimal}"
    )
    assert found.period >= max(sum(b.span for b in blocks if d in b.devices) for d in range(4))
    check(blocks, memory, found.starts, found.period)
    assert (found.starts.shape[1] > 1) == (parts > 1)


FINITE = {
    "V, 4 parts": (v_shape(), 4, 4, 21),
    "V, 8 parts": (v_shape(), 4, 8, 33),
    "V on 8, 8 parts": (v_shape(8), 8, 8, 45),
    "V on 8, 16 parts": (v_shape(8), 8, 16, 69),
    "M, 6 parts": (m_shape(), 6, 6, 60),
    "M, 32 parts": (m_shape(), 6, 32, 275),
    "X, two pairs": (x_shape(), 4, 2, 16),
    "X, four pairs": (x_shape(), 4, 4, 28),
    "ZBV, 4 parts, in halves": (zbv_shape(), 8, 4, 27),
}


@pytest.mark.parametrize("name", FINITE)
def test_schedules_of_known_placements(name):
    """At most the proven makespan (M with 32 parts: 330 by hand)."""
    blocks, memory, parts, known = FINITE[name]
    tries = (find_schedule(blocks, memory, parts, SECONDS, seed) for seed in range(TRIES))
    found = next((each for each in tries if each.makespan <= known), None)
    assert found is not None
    print(f"{name}: {found.makespan:g} units, optimal: {found.is_optimal}")
    assert found.makespan == max((found.starts[k] + b.span).max() for k, b in enumerate(blocks))
    check(blocks, memory, found.starts)


@st.composite
def random_placements(draw):
    """Stages on devices of one's choice, one or two branches, a backward pass, and memory for one or more."""
    branches = draw(st.integers(1, 2))
    chains = []
    for _ in range(branches):
        devices = draw(
            st.lists(
                st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True),
                min_size=1,
                max_size=3,
            )
        )
        chains.append(
            placements.there_and_back(devices, draw(st.integers(1, 2)), draw(st.integers(1, 3)))
        )
    return placements.joined(*chains), draw(st.integers(2, 6))


@examples(150)
@given(random_placements(), st.integers(1, 5))
def test_what_is_found_keeps_the_rules(placement, parts):
    blocks, memory = placement
    busiest = max(sum(b.span for b in blocks if d in b.devices) for d in range(3))
    one = find_schedule(blocks, memory, 1, 0.05)
    period, finite = find_period(blocks, memory, 0.05), find_schedule(blocks, memory, parts, 0.05)
    assert (one is None) == (period is None) == (finite is None)
    if one is not None:
        check(blocks, memory, period.starts, period.period)
        check(blocks, memory, finite.starts)
        assert busiest - 1e-9 <= period.period <= one.makespan
        assert parts * busiest - 1e-9 <= finite.makespan <= parts * one.makespan


def test_units_do_not_matter():
    """Spans and memory in other units, and spans that have no common unit."""
    plain = find_period(v_shape(), 4, 1.0)
    scaled = [b._replace(span=b.span * 0.0125, memory=b.memory * 1e9) for b in v_shape()]
    found = find_period(scaled, 4e9, 1.0)
    assert (
        found.period == pytest.approx(plain.period * 0.0125, rel=1e-12)
        and found.is_optimal == plain.is_optimal
    )
    rough = [b._replace(span=b.span * np.pi + k * 1e-4) for k, b in enumerate(v_shape())]
    coarse = find_period(rough, 4, 1.0)
    check(rough, 4, coarse.starts, coarse.period)
    assert 3 * np.pi <= coarse.period <= 1.02 * (3 * np.pi + 8e-4)
    assert not coarse.is_optimal  # spans were rounded up


def test_memory_of_each_device():
    """The last stage of a pipeline holds one micro-batch, the first as many as there are stages."""
    found = find_period(v_shape(), [4, 3, 2, 1], 1.0)
    assert found.period == 3 and found.is_optimal
    assert find_period(v_shape(), [3, 4, 4, 4], 1.0).period > 3


def test_without_a_limit_of_memory():
    found = find_period(v_shape(), None, 1.0)
    assert found.period == 3 and found.is_optimal
    assert find_schedule(v_shape(), None, 4, 1.0).makespan == 21


def test_too_little_memory_for_one_micro_batch():
    blocks = placements.there_and_back([(0,), (1,), (0,)], 1, 2)
    assert find_period(blocks, 1, 0.1) is None and find_schedule(blocks, 1, 3, 0.1) is None
    assert find_period(blocks, 2, 0.1) is not None


def test_two_branches_wait_for_each_other_where_memory_is_short():
    """The short branch has to start later than it could, by more than a period."""
    blocks = [
        Block(1, 1, (0,)),
        *(Block(3, 0, (1,), (k,)) for k in range(3)),
        Block(1, 1, (2,)),
        Block(1, -1, (0,), (3, 4)),
        Block(1, -1, (2,), (5,)),
    ]
    found = find_period(blocks, [4, 0, 1], 1.0)
    check(blocks, None, found.starts, found.period)
    assert found.period == 9 and found.is_optimal


REFUSED = {
    "none": ([], "blocks: there are none"),
    "span": ([Block(-1, 0, (0,))], "block 0: span -1 and memory 0 must be finite, span >= 0"),
    "devices": ([Block(1, 0, ())], "block 0: devices are []; it needs one or more, from 0 on"),
    "after": ([Block(1, 0, (0,), (1,))], "block 0: waits for block 1 of 1"),
    "zero": ([Block(0, 0, (0,))], "blocks: every span is 0"),
    "circle": (
        [Block(1, 0, (0,), (1,)), Block(1, 0, (0,), (0,))],
        "blocks: wait for each other in a circle: 0 after 1 after 0",
    ),
    "memory": (
        [Block(1, 2, (0, 1)), Block(1, -2, (1,), (0,))],
        "device 0: a micro-batch takes memory and gives back; 2 are left over",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_blocks(name):
    blocks, message = REFUSED[name]
    for find in (find_period, find_schedule):
        assert_refused(message, lambda find=find: find(blocks))


def test_seeds_are_zero_by_default():
    """Whoever names none repeats the run of whoever names 0."""
    seeded = find_period, find_schedule, search_schedule, search, search_at_home, Executor, Trainer
    for each in seeded:
        assert signature(each).parameters["seed"].default == 0, each
    found, named = find_schedule(v_shape(), 4), find_schedule(v_shape(), 4, seed=0)
    np.testing.assert_array_equal(found.starts, named.starts)
    period, named = find_period(v_shape(), 4), find_period(v_shape(), 4, seed=0)
    np.testing.assert_array_equal(period.starts, named.starts)


def test_no_micro_batches():
    assert_refused("parts: 0 micro-batches; at least one", lambda: find_schedule(v_shape(), 4, 0))


@st.composite
def small_placements(draw, most):
    """Blocks on two devices, of which the first takes memory and the last gives it back."""
    blocks = []
    for number in range(draw(st.integers(2, most))):
        after = draw(st.lists(st.integers(0, number - 1), unique=True)) if number else []
        devices = draw(st.sampled_from([(0,), (1,), (0, 1)]))
        blocks.append(Block(draw(st.integers(1, 3)), 0, devices, after))
    last = blocks[-1]
    blocks[-1] = last._replace(memory=-1, devices=blocks[0].devices, after=[*{0, *last.after}])
    return [blocks[0]._replace(memory=1), *blocks[1:]], draw(st.integers(1, 2))


def is_possible(table, period):
    """Whether any starts keep the rules, of all that are up to a period before the first block and two after it."""
    others = [np.arange(-period, 2 * period)] * (len(table.span) - 1)
    starts = np.stack([grid.ravel() for grid in np.meshgrid(0, *others, indexing="ij")])
    fits = np.ones(starts.shape[1], bool)
    for a, b in np.argwhere(table.after):
        fits &= starts[a] >= starts[b] + table.span[b]
    for a, b in np.argwhere(np.triu(table.on.astype(int) @ table.on.T, 1)):
        gap = (starts[b] - starts[a]) % period
        fits &= (gap >= table.span[a]) & (gap <= period - table.span[b])
    for device, limit in enumerate(table.limit):
        memory = table.memory * table.on[:, device]
        for taker in np.flatnonzero(memory > 0):
            fits &= memory @ ((starts[taker] - starts) // period + 1) <= limit
    return bool(fits.any())


@pytest.mark.parametrize("parts", [1, 2])
@examples(60)
@given(data=st.data())
def test_no_period_is_shorter_than_the_optimum(parts, data):
    blocks, memory = data.draw(small_placements(6 - 2 * parts))
    table, unit = table_of(blocks, memory)
    least = period._search(table, parts, int(table.span.sum()) * parts, 60.0, 0)
    assert least.is_optimal
    check(blocks, memory, least.starts * unit, least.period * unit / parts)
    many = repeated(table, parts)
    assert is_possible(many, int(least.period))
    assert not is_possible(many, int(least.period) - 1)


@pytest.mark.parametrize("changes", [0, 50, 300])
def test_a_search_ends_where_it_has_no_room_for_its_changes(monkeypatch, changes):
    """What it finds then keeps the rules all the same."""
    monkeypatch.setattr(period, "CHANGES", changes)
    found = find_period(m_shape(), 5, 0.1)
    if found is not None:
        check(m_shape(), 5, found.starts, found.period)
    assert find_period(v_shape(), 4, 0.1).period == 3


def turning():
    """Two chains that turn together on both devices, where a micro-batch fills the memory: 25 units, 22 of work."""
    chains = {1: [(1,), (1,), (1,), (0,)], 2: [(0, 1), (0, 1), (0,), (0,)]}
    forward = [placements.chain([span] * 4, way, [1] * 4) for span, way in chains.items()]
    blocks = [*placements.joined(*forward), Block(1, 0, (0, 1), (3, 7))]
    before = 8
    for devices in reversed(chains[1]):  # gradients of weights are apart
        blocks.append(Block(2, 0, devices, (before,)))
        before = len(blocks) - 1
        blocks.append(Block(2, -1, devices, (before,)))
    before = 8
    for devices in reversed(chains[2]):
        blocks.append(Block(1, -1, devices, (before,)))
        before = len(blocks) - 1
    return blocks


PROVEN = {
    "another waits while memory is full": (turning(), 5, 25),
    "every two share a device": (
        placements.there_and_back([(1, 2), (0, 1), (0, 2), (0, 1)], 2, 2),
        9,
        16,
    ),
}


@pytest.mark.parametrize("name", PROVEN)
def test_few_choices_prove_a_period(name):
    """Periods that the work of one device does not explain: they took millions of places of blocks, and no proof."""
    blocks, memory, shortest = PROVEN[name]
    table, unit = table_of(blocks, memory)
    least = period._search(table, 1, int(table.span.sum()), 60.0, 0)
    assert (least.period * unit, least.is_optimal) == (shortest, True)
    assert least.nodes < 50_000
