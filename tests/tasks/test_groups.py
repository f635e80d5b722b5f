"""Groups without twins say the same of the order of rows, with fewer streams."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import MachineModel, lower
from taskflow.core.columns import pointers
from taskflow.tasks.groups import Groups
from taskflow.tasks.streams import follows
from tests.lowered import network
from tests.strategies import examples

STREAMS = 8
GROUPS = st.lists(st.sets(st.integers(0, STREAMS - 1), min_size=1), min_size=1, max_size=4)


def occupied(groups, rows, alone):
    """Rows and their streams: each of a group, or of a stream alone."""
    streams = [groups.streams_of(k) if k < len(groups) else [alone[k - len(groups)]] for k in rows]
    row = np.repeat(np.arange(len(rows)), [len(s) for s in streams])
    return row, np.array([s for each in streams for s in each], np.int64)


@examples(200)
@given(GROUPS, st.lists(st.integers(0, STREAMS + 2), max_size=3), st.data())
def test_the_same_rows_follow_each_other(streams, alone, data):
    groups = Groups(
        pointers([len(each) for each in streams]),
        np.array([s for each in streams for s in sorted(each)], np.int64),
    )
    rows = data.draw(st.lists(st.integers(0, len(groups) + len(alone) - 1), max_size=12))
    fewer = groups.without_twins(np.unique(np.array(alone, np.int64)))
    assert len(fewer) == len(groups)

    def pairs(groups):
        return set(zip(*map(np.ndarray.tolist, follows(*occupied(groups, rows, alone)))))

    assert pairs(fewer) == pairs(groups)


def test_of_one_group_one_stream_is_left():
    machine = MachineModel.preset("h100", nodes=2)
    graph = network(batch=64)
    rows = lower(graph, taskflow.data_parallel(graph, machine), machine)
    assert len(rows.groups) == 1
    assert len(rows.groups.without_twins(np.zeros(0, np.int64)).streams) == 1
    some = rows.groups.streams[3:4]
    assert len(rows.groups.without_twins(some).streams) == 2
    assert replace(rows, groups=rows.groups.without_twins(some)).streams_of(0) == rows.streams_of(0)
