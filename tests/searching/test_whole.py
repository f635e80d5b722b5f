"""Strategies as wholes: their outcomes, from representatives of devices, are what `simulate` says of all rows."""

import math

import pytest

from taskflow import (
    CostModel,
    MachineModel,
    ParallelConfig,
    Plan,
    data_parallel,
    lower,
    reorder,
    search,
    simulate,
    single_device,
)
from taskflow.lowering import limits, movement
from taskflow.searching import problem as problems
from taskflow.searching.judge import Judge
from taskflow.searching.pool import Pool
from tests.searching.test_grids import transformer

HOSTS = MachineModel.preset("p100", nodes=8)
COSTS = CostModel.analytic(HOSTS)


def graph():
    return transformer(2, 32, "float32").graph


def judge_on(machine):
    return Judge(graph(), machine, CostModel.analytic(machine))


def test_it_says_what_simulate_says():
    judge = judge_on(HOSTS)
    strategy = data_parallel(judge.graph, HOSTS)
    rows = lower(judge.graph, strategy, HOSTS)
    for order in (None, "critical_path"):
        said = simulate(rows if order is None else reorder(rows, COSTS, order), COSTS)
        plan = Plan(strategy, schedule=order)
        assert not judge.is_known(plan)
        outcome = judge.judge(plan)
        peak = int(said.peak_bytes.max())
        assert outcome.figures == (said.seconds, said.bytes_moved, peak) and outcome.fits
        assert outcome.plan == plan and judge.is_known(plan)
        assert judge.judge(plan) is outcome
    assert judge.seconds_of_judging(Plan(single_device(judge.graph, HOSTS))) > 0


def test_a_strategy_that_changes_afterwards_is_another_one():
    judge = judge_on(HOSTS)
    strategy, alone = data_parallel(judge.graph, HOSTS), single_device(judge.graph, HOSTS)
    before = judge.judge(Plan(strategy))
    strategy.update({name: alone[name] for name in list(alone)[:3]})
    after = judge.judge(Plan(strategy))
    assert after.seconds == simulate(lower(judge.graph, strategy, HOSTS), COSTS).seconds
    assert after.seconds != before.seconds


def test_what_does_not_fit_or_is_illegal_is_short_of_something():
    judge = judge_on(HOSTS.with_rates(memory_bytes=1000))
    strategy = data_parallel(judge.graph, judge.machine)
    outcome = judge.judge(Plan(strategy))
    assert outcome.seconds == math.inf and math.isfinite(outcome.with_room)
    assert not outcome.fits and ": the task graph needs " in outcome.shortage
    strategy.update({"words": ParallelConfig({}, [40])})
    outcome = judge.judge(Plan(strategy))
    assert outcome.with_room == math.inf and outcome.shortage.startswith("operator 'words': ")


def test_a_search_without_memory_for_all_rows_finds_no_less_than_the_best_start(monkeypatch):
    monkeypatch.setattr(problems, "check_room", no_room)
    model, few = graph(), MachineModel.preset("p100").take(2)
    costs = CostModel.analytic(few)
    found = search(model, few, costs, proposals=200)
    assert {"data parallel", "single device"} <= set(found.baseline_seconds)
    assert any(name.startswith("tensor 2") for name in found.baseline_seconds)
    assert found.seconds <= min(found.baseline_seconds.values())
    assert found.seconds == simulate(found.plan.apply(model, few, costs)[1], costs).seconds
    assert 0 < found.proposals <= 200


def no_room(rows):
    raise MemoryError(f"{rows} rows")


def test_what_needs_more_memory_than_is_free_is_refused_before_it_is_taken(monkeypatch):
    model = graph()
    strategy = data_parallel(model, MachineModel.preset("p100"))
    monkeypatch.setattr(limits, "free_bytes", lambda: 1000)
    monkeypatch.setattr(limits, "unused_bytes", lambda: 1000)
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


def test_a_search_goes_on_where_there_is_no_memory_for_all_rows(monkeypatch):
    """Not even where that is seen late: what moves is packed only when a plan is asked about."""

    def refuse(*_):
        raise MemoryError("what moves does not fit into memory")

    monkeypatch.setattr(Pool, "add_fragments", refuse)
    result = search(graph(), HOSTS, COSTS, proposals=600)
    assert result.seconds <= min(result.baseline_seconds.values()) < math.inf
    assert not result.is_locally_optimal and result.proposals > 1
