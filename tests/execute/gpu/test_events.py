"""Events between streams: all that is needed, and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow.execute.gpu.events import plan_events


@st.composite
def programs(draw):
    """Streams of up to 14 items, the earlier items that each waits for, and the device of each of four streams."""
    count = draw(st.integers(0, 14))
    streams = [draw(st.integers(0, 3)) for _ in range(count)]
    before = [[k for k in range(item) if draw(st.integers(0, 4)) == 0] for item in range(count)]
    return streams, before, [draw(st.integers(0, 1)) for _ in range(4)]


def over_before(streams, waits):
    """Per item the set of items that are over when it starts, if streams keep their order and obey the waits."""
    known = []
    for item, stream in enumerate(streams):
        direct = [k for k in range(item) if streams[k] == stream] + list(waits[item])
        known.append(set(direct).union(*(known[k] for k in direct)))
    return known


@given(programs())
def test_every_item_starts_after_what_it_waits_for(program):
    streams, before, _ = program
    known = over_before(streams, plan_events(*program).waits)
    assert all(set(others) <= known[item] for item, others in enumerate(before))


@given(programs())
def test_no_wait_can_be_left_out(program):
    streams, before, _ = program
    waits = plan_events(*program).waits
    for item, others in enumerate(waits):
        for left_out in others:
            fewer = [
                w if k != item else tuple(o for o in w if o != left_out)
                for k, w in enumerate(waits)
            ]
            known = over_before(streams, fewer)
            assert any(not set(others) <= known[k] for k, others in enumerate(before))


@given(programs())
def test_an_event_is_recorded_again_only_after_its_last_wait(program):
    plan, (streams, _, devices) = plan_events(*program), program
    holder = {}
    for item, others in enumerate(plan.waits):
        assert all(holder[plan.events[other]] == other for other in others)
        if item in plan.events:
            holder[plan.events[item]] = item
    assert all(device == devices[streams[item]] for item, (device, _) in plan.events.items())
    assert set(plan.events) == {other for others in plan.waits for other in others}


@pytest.mark.parametrize(
    "streams, before, waits",
    [
        ([0, 0], [[], [0]], [(), ()]),  # one stream keeps its order
        ([0, 1], [[], [0]], [(), (0,)]),
        ([0, 1, 1], [[], [0], [0]], [(), (0,), ()]),  # waited for already
        ([0, 0, 1], [[], [], [0, 1]], [(), (), (1,)]),  # the later implies the earlier
        ([0, 1, 2], [[], [0], [0, 1]], [(), (0,), (1,)]),  # through another stream
        ([0, 1, 2], [[], [], [0, 1]], [(), (), (0, 1)]),
    ],
)
def test_small_programs(streams, before, waits):
    assert plan_events(streams, before, [0, 0, 0]).waits == tuple(waits)


def test_a_long_chain_between_two_streams_needs_few_events():
    count = 1000
    plan = plan_events(
        [k % 2 for k in range(count)], [[k - 1] if k else [] for k in range(count)], [0, 0]
    )
    assert sum(map(len, plan.waits)) == count - 1
    assert {device for device, _ in plan.events.values()} == {0}
    assert len(set(plan.events.values())) <= 2
