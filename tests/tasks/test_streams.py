"""Streams: what a row of a search occupies, without the links that other streams imply."""

from taskflow import MachineModel
from taskflow.tasks.streams import StreamSets, StreamTable


def streams_of(sets, number):
    ptr, streams = sets.columns
    return set(streams[ptr[number] : ptr[number + 1]].tolist())


def test_a_link_with_one_sender_is_implied_by_its_sending_stream():
    table = StreamTable(MachineModel.preset("p100", nodes=2).with_rates(sends_by_link=False))
    sets = StreamSets(table)
    inside, across = streams_of(sets, 0 * 8 + 1), streams_of(sets, 0 * 8 + 4)
    assert inside == {int(table.sending[0]), int(table.receiving[1])}
    links = across - {int(table.sending[0]), int(table.receiving[4])}
    assert links and links <= set(table.routes[0, 4].tolist())  # those that other devices of the hosts use as well


def test_a_group_occupies_what_its_collectives_do_but_for_implied_links():
    table = StreamTable(MachineModel.preset("p100", nodes=2).with_rates(sends_by_link=False))
    sets = StreamSets(table)
    group = (0, 1, 4, 5)
    found, all_of_them = streams_of(sets, sets.of_group(group)), set(table.of_group(group).tolist())
    assert found < all_of_them
    assert {int(table.sending[d]) for d in group} | {int(table.receiving[d]) for d in group} <= found


def test_links_between_cpus_stay_where_no_stream_implies_them():
    """A CPU has no sending stream; all that one receives occupies its one thread."""
    table = StreamTable(MachineModel.uniform(3))
    sets = StreamSets(table)
    assert streams_of(sets, 0 * 3 + 1) == {int(table.compute[1])} | ({int(table.sending[0])} - {-1})
