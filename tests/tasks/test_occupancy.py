"""Bytes in use over time: by hand for a chain, and never more than the arena holds."""

import numpy as np
import pytest

from taskflow import (
    CostModel,
    Device,
    Graph,
    MachineModel,
    data_parallel,
    lower,
    model_parallel,
    simulate,
    stages,
)
from taskflow.tasks.occupancy import bytes_in_use, lives
from tests.lowered import network
from tests.tasks.test_trace import chain, copy


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


def test_what_is_fetched_is_held_to_the_end():
    """The output `early` is there long before `late` begins to be made."""
    graph = Graph()
    early = graph.launch(
        "a", "b -> b", [graph.input("x", (1000,), "float64")], kernel=copy, flops=1.0
    )
    graph.output("early", early)
    graph.output(
        "late",
        graph.launch("b", "b -> b", [graph.input("z", (1000,), "float64")], kernel=copy, flops=1e9),
    )
    machine = MachineModel.uniform(1, Device("emulated"))
    timeline = simulate(
        lower(graph, data_parallel(graph, machine), machine), CostModel.analytic(machine)
    )
    begin, finish = lives(timeline.task_graph, timeline.start, timeline.end)
    for _, instance, _ in (
        places for output in timeline.task_graph.fetches.values() for places in output
    ):
        assert finish[instance] == timeline.seconds
    ((_, held),) = bytes_in_use(timeline.task_graph, begin, finish)
    assert held[-2] >= 16000  # both, until all is over


def test_what_persists_is_held_all_the_step():
    graph, machine = network(batch=32), MachineModel.preset("p100", nodes=1)
    timeline = simulate(
        lower(graph, data_parallel(graph, machine), machine), CostModel.analytic(machine)
    )
    found = bytes_in_use(
        timeline.task_graph, *lives(timeline.task_graph, timeline.start, timeline.end)
    )
    kept = sum(region.size_bytes for region in graph.regions.values() if region.is_persistent)
    for seconds, held in found:
        assert seconds[0] == 0 and held[:-1].min() >= kept


@pytest.mark.parametrize("plan", [data_parallel, model_parallel, lambda g, m: stages(g, m, 2, 4)])
def test_never_more_than_the_arena(plan):
    graph, machine = network(batch=32), MachineModel.preset("p100", nodes=1)
    timeline = simulate(lower(graph, plan(graph, machine), machine), CostModel.analytic(machine))
    found = bytes_in_use(
        timeline.task_graph, *lives(timeline.task_graph, timeline.start, timeline.end)
    )
    for (_, held), peak in zip(found, timeline.peak_bytes.tolist(), strict=True):
        assert max(held.tolist(), default=0) <= peak


def test_instances_that_no_known_row_uses_have_no_life():
    timeline = chain()
    known = timeline.task_graph.device == 0
    start, end = (np.where(known, t, np.nan) for t in (timeline.start, timeline.end))
    begin, finish = lives(timeline.task_graph, start, end)
    np.testing.assert_array_equal(np.isnan(begin), np.isnan(finish))
    assert np.isnan(begin).sum() == 1  # the copy of a on device 1, which b alone reads
    (seconds, _), _ = bytes_in_use(timeline.task_graph, begin, finish)
    assert seconds[-1] == np.nanmax(end)
