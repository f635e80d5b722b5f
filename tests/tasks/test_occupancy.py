"""Bytes in use over time: by hand for a chain, and never more than the arena holds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taskflow import CostModel, lower, simulate
from taskflow.tasks.occupancy import bytes_in_use, lives
from tests.strategies import examples, graphs, strategies
from tests.tasks.test_trace import chain


def test_a_chain():
    """x and a lie on device 0, the copy of a and b on device 1, b's copy, which is fetched, on device 0."""
    timeline = chain()
    begin, finish = lives(timeline.task_graph, timeline.start, timeline.end)
    (at0, held0), (_, held1) = bytes_in_use(timeline.task_graph, begin, finish)
    assert max(held0.tolist()) == 16000 and max(held1.tolist()) == 16000
    ends = [timeline.end[row] for row in (1, 2)]  # x is read by a; a is sent by the copy
    assert held0[np.searchsorted(at0, ends[0])] == 8000
    assert held0[np.searchsorted(at0, ends[0], side="right") - 1] == 8000
    assert at0[-1] == timeline.seconds and held0[-1] == 0


@examples(60)
@given(data=st.data())
def test_bytes_in_use_are_those_of_what_lives(data):
    """What persists is held all the step, and what is fetched to its end; never more than the arena has."""
    model = data.draw(graphs())
    machine, strategy = data.draw(strategies(model.graph))
    rows = lower(model.graph, strategy, machine)
    timeline = simulate(rows, CostModel.analytic(machine))
    begin, finish = lives(timeline.task_graph, timeline.start, timeline.end)
    used = {i: [] for i in range(len(begin))}
    for row in range(len(rows)):
        for instance, _, _ in (each for each in rows.args(row) if each[0] >= 0):
            used[instance].append(row)
    fetched = {i for places in rows.fetches.values() for _, i, _ in places}
    kept = {i for homes in rows.homes.values() for i, _ in homes}
    for i, users in used.items():
        if i in kept or users:
            last = timeline.seconds if i in kept | fetched else timeline.end[users].max()
            assert (begin[i], finish[i]) == (0 if i in kept else timeline.start[users].min(), last)
    found = bytes_in_use(timeline.task_graph, begin, finish)
    size, device = rows.instance_bytes(), rows.instance_device
    for number, (seconds, held) in enumerate(found):
        assert np.all(np.diff(seconds) > 0) and held[-1:].sum() == 0
        at_once = [
            size[(device == number) & (begin <= at) & (at < finish)].sum()
            for at in seconds.tolist()
        ]
        assert held.tolist() == at_once
        assert max(at_once, default=0) <= timeline.peak_bytes[number]


def test_instances_that_no_known_row_uses_have_no_life():
    timeline = chain()
    known = timeline.task_graph.device == 0
    start, end = (np.where(known, t, np.nan) for t in (timeline.start, timeline.end))
    begin, finish = lives(timeline.task_graph, start, end)
    np.testing.assert_array_equal(np.isnan(begin), np.isnan(finish))
    assert np.isnan(begin).sum() == 1  # the copy of a on device 1, which b alone reads
    (seconds, _), _ = bytes_in_use(timeline.task_graph, begin, finish)
    assert seconds[-1] == np.nanmax(end)
