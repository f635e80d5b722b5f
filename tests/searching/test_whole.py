"""A search on so many devices that no rows are held: every strategy is lowered and simulated as a whole."""

import gc
import math

import numpy as np
import pytest

from taskflow import (
    CostModel,
    MachineModel,
    ParallelConfig,
    data_parallel,
    lower,
    search,
    simulate,
    single_device,
)
from taskflow.lowering import limits, movement
from taskflow.searching import packed_judge
from taskflow.searching.judge import Judge
from taskflow.searching.packed_judge import PackedJudge, judge_of
from tests.searching.test_grids import transformer

HOSTS = MachineModel.preset("p100", nodes=8)
COSTS = CostModel.analytic(HOSTS)


def graph():
    return transformer(2, 32, "float32").graph


def test_the_judge_is_by_how_many_rows_it_would_hold(monkeypatch):
    few = graph()
    assert type(judge_of(few, HOSTS, COSTS)) is PackedJudge
    monkeypatch.setattr(packed_judge, "HELD_ROWS", len(few.operators) * 32 - 1)
    assert type(judge_of(few, HOSTS, COSTS)) is Judge


def test_it_says_what_simulate_says():
    judge = Judge(graph(), HOSTS, COSTS)
    strategy, alone = data_parallel(judge.graph, HOSTS), single_device(judge.graph, HOSTS)
    said = simulate(lower(judge.graph, strategy, HOSTS), COSTS)
    assert judge.start(strategy) == judge.seconds(strategy) == said.seconds
    assert judge.seconds(strategy, said.seconds / 2) == math.inf
    timeline = next(judge.timelines(strategy, [None]))
    assert not timeline.shortage and timeline.bytes_moved == said.bytes_moved
    np.testing.assert_array_equal(timeline.peak_bytes, said.peak_bytes)
    changes = {name: alone[name] for name in list(alone)[:3]}
    both = strategy.copy()
    both.update(changes)
    seconds = judge.propose_all(changes)
    assert seconds == simulate(lower(judge.graph, both, HOSTS), COSTS).seconds
    judge.accept()
    assert dict(judge.strategy) == dict(both)
    strategy.update(changes)  # who owns it changes it
    assert judge.seconds(strategy) == seconds != said.seconds


def test_what_does_not_fit_or_is_none_is_refused():
    tight = HOSTS.with_rates(memory_bytes=1000)
    judge = Judge(graph(), tight, CostModel.analytic(tight))
    strategy = data_parallel(judge.graph, tight)
    assert (
        judge.seconds(strategy) == math.inf
        and judge.last_excess > 0
        and "device" in judge.last_refusal
    )
    assert math.isfinite(judge.seconds_with_room(strategy))
    strategy.update({"words": ParallelConfig({}, [40])})
    assert judge.seconds(strategy) == math.inf and "'words'" in judge.last_refusal


def test_a_search_finds_no_less_than_the_best_start(monkeypatch):
    monkeypatch.setattr(packed_judge, "HELD_ROWS", 0)
    monkeypatch.setattr(
        gc, "collect", int
    )  # of all tests' objects, once a strategy, it would take long
    model, few = graph(), MachineModel.preset("p100").take(2)
    costs = CostModel.analytic(few)
    found = search(model, few, costs, proposals=20)
    assert {"data parallel", "single device"} <= set(found.baseline_seconds)
    assert any(name.startswith("tensor 2") for name in found.baseline_seconds)
    assert found.seconds <= min(found.baseline_seconds.values())
    assert found.seconds == simulate(found.plan.apply(model, few, costs)[1], costs).seconds
    assert 0 < found.proposals <= 20


def test_what_needs_more_memory_than_is_free_is_refused_before_it_is_taken(monkeypatch):
    model = graph()
    strategy = data_parallel(model, MachineModel.preset("p100"))
    monkeypatch.setattr(limits, "free_bytes", lambda: 1000)
    with pytest.raises(MemoryError) as caught:
        lower(model, strategy, MachineModel.preset("p100"))
    assert "rows take 0 GB, and 0 are free" in str(caught.value)
    monkeypatch.undo()
    monkeypatch.setattr(movement, "free_bytes", lambda: 0)
    monkeypatch.setattr(movement.Mover, "make_room", _crowded(movement.Mover.make_room))
    with pytest.raises(MemoryError) as caught:
        lower(model, strategy, MachineModel.preset("p100"))
    assert "does not fit into memory" in str(caught.value)


def _crowded(make_room):
    """As if every region needed more room."""
    from taskflow.lowering import moving

    return lambda mover, number, end, more: make_room(
        mover, number, moving.NO_STATE if end == moving.DONE else end, more
    )
