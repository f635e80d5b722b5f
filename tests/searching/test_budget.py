"""A budget is honoured by what comes before the first proposal: rules, starts, predictions and their orders."""

import os
import signal

import pytest

from taskflow import CostModel, MachineModel, SearchInterrupted, Space, search
from taskflow.core.errors import NoRoomError
from taskflow.searching.bound import lower_bound
from taskflow.searching.budget import Budget
from taskflow.searching.judge import Judge
from taskflow.searching.starts import rule_starts
from tests.lowered import network

FOUR = MachineModel.uniform(4)
COSTS = CostModel.analytic(FOUR)


def test_rules_are_made_when_they_are_asked_for():
    rules = rule_starts(network(), FOUR)
    assert next(rules)[0] == "data parallel" and len(list(rules)) > 2


def test_a_budget_that_is_spent_takes_one_start(judged):
    result = search(network(), FOUR, COSTS, seconds=1e-6)
    assert result.proposals == len(judged) == 1
    assert result.seconds == min(result.baseline_seconds.values())


@pytest.mark.parametrize("most, is_tried", [(0.0, True), (1e9, False)])
def test_starts_by_other_rules_are_judged_where_none_may_take_all_the_time(
    monkeypatch, most, is_tried
):
    """Of 1,024 devices a strategy in which no two are alike may take minutes: shapes come first."""
    monkeypatch.setattr(Judge, "seconds_of_judging", lambda judge, plan: 0.0 if plan else most)
    result = search(network(), FOUR, COSTS, proposals=20, seconds=1e6)
    assert {"data parallel", "data"} <= set(result.baseline_seconds)
    assert ("operator placement" in result.baseline_seconds) == is_tried


def test_a_first_interrupt_among_the_starts_takes_one_plan_more(judged, monkeypatch):
    judge_it = Judge.judge

    def press(judge, plan):
        if len(judged) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return judge_it(judge, plan)

    monkeypatch.setattr(Judge, "judge", press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SearchInterrupted) as caught:
            search(network(), FOUR, COSTS, proposals=1000)
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.result.proposals == len(judged) <= 3


@pytest.fixture
def judged(monkeypatch):
    """The plans that a judge was asked for."""
    found, judge_it = [], Judge.judge

    def spy(judge, plan):
        found.append(plan)
        return judge_it(judge, plan)

    monkeypatch.setattr(Judge, "judge", spy)
    return found


def nothing_fits(**options):
    return search(network(), FOUR.with_rates(memory_bytes=64), COSTS, **options)


def test_where_nothing_fits_some_plans_are_tried_behind_the_budget(judged):
    with pytest.raises(NoRoomError):
        nothing_fits(proposals=1)
    assert 20 < len(judged) < 200


@pytest.mark.parametrize("number", [0, 2, 30])
def test_an_interrupt_where_nothing_fits_is_no_shortage(number, judged, monkeypatch):
    """Nothing to return: it is what ended the search."""
    judge_it = Judge.judge

    def press(judge, plan):
        if len(judged) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return judge_it(judge, plan)

    monkeypatch.setattr(Judge, "judge", press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            nothing_fits(proposals=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not isinstance(caught.value, SearchInterrupted)
    assert len(judged) <= number + 2


@pytest.mark.parametrize("calls", [0, 3, 40, 400, 10**9])
def test_a_bound_that_is_late_is_a_smaller_bound(calls):
    left, space = iter(range(calls)), Space(network(), FOUR)
    whole = lower_bound(space, COSTS)
    found = lower_bound(space, COSTS, lambda: next(left, None) is None)
    assert 0 <= found <= whole and (found > 0) == (calls > 0) and (found == whole or calls < 10**9)


def test_what_comes_behind_a_budget_takes_a_tenth_of_it():
    assert Budget(None, 1e-9).behind()()
    assert not Budget(None, 1e9).behind()() and not Budget(7, None).behind()()
    interrupted = Budget(7, None)
    interrupted.interrupt()
    assert interrupted.behind()()
