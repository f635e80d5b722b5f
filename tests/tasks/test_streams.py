"""Streams: what a row of a search occupies, without the links that other streams imply."""

import numpy as np

from taskflow import MachineModel
from taskflow.tasks.streams import StreamSets, StreamTable


def streams_of(sets, number):
    ptr, streams, _, _ = sets.columns
    return set(streams[ptr[number] : ptr[number + 1]].tolist())


def links_of(sets, number):
    _, _, ptr, hop = sets.columns
    return hop[ptr[number] : ptr[number + 1]]


def test_a_link_with_one_sender_is_implied_by_its_sending_stream():
    table = StreamTable(MachineModel.preset("p100", nodes=2).with_rates(sends_by_link=False))
    sets = StreamSets(table)
    assert streams_of(sets, 0 * 8 + 1) == {int(table.sending[0]), int(table.receiving[1])}
    assert streams_of(sets, 0 * 8 + 4) == {int(table.sending[0]), int(table.receiving[4])}
    assert len(links_of(sets, 0 * 8 + 1)) == 0
    across = links_of(sets, 0 * 8 + 4)  # those that other devices of the hosts use as well
    assert len(across) and set(across["link"].tolist()) <= set(table.routes(0, 4).tolist())
    bandwidth = table.machine.link_bandwidth[across["link"] - table.first_link]
    np.testing.assert_allclose(across["part"] * bandwidth, table.machine.bandwidth[0, 4])
    assert (across["latency"] == table.machine.latency_seconds[0, 4]).all()


def test_a_group_occupies_what_its_collectives_do_but_for_implied_links():
    table = StreamTable(MachineModel.preset("p100", nodes=2).with_rates(sends_by_link=False))
    sets = StreamSets(table)
    group = (0, 1, 4, 5)
    links = np.unique(table.machine.routes[np.ix_(group, group)])[1:]
    number = sets.of_group(group, links, np.full(len(links), 0.5))
    assert streams_of(sets, number) == {
        int(s[d]) for d in group for s in (table.sending, table.receiving)
    }
    found = links_of(sets, number)
    assert (
        0 < len(found) < len(links) and (found["part"] == 0.5).all() and not found["latency"].any()
    )
    assert set(found["link"].tolist()) <= set((table.first_link + links).tolist())
    assert sets.of_group(group, links, np.full(len(links), 0.5)) == number
    assert sets.of_group(group, links, np.full(len(links), 0.25)) != number


def test_links_between_cpus_stay_where_no_stream_implies_them():
    """A CPU has no sending stream; all that one receives occupies its one thread."""
    table = StreamTable(MachineModel.uniform(3))
    sets = StreamSets(table)
    assert streams_of(sets, 0 * 3 + 1) == {int(table.compute[1])} | ({int(table.sending[0])} - {-1})
