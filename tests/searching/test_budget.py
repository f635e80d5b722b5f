"""A budget is honoured by what comes before the first proposal: rules, starts, predictions and their orders."""

import os
import signal

import pytest

from taskflow import CostModel, MachineModel, Plan, SearchInterrupted, Space, Strategy, search
from taskflow.core.errors import NoRoomError
from taskflow.searching.bound import lower_bound
from taskflow.searching.budget import Budget
from taskflow.searching.judge import Judge
from taskflow.searching.pipelines import Pipelines
from taskflow.searching.starts import RANDOM_STARTS, rule_starts
from taskflow.searching.variants import Variant
from tests.lowered import network

FOUR = MachineModel.uniform(4)
COSTS = CostModel.analytic(FOUR)


@pytest.fixture
def predicted(monkeypatch):
    """The orders in which strategies were judged, each once, as they are asked for."""
    found, outcomes = [], Judge.outcomes

    def spy(judge, strategy, orders):
        for order in orders:
            found.extend([order] * (not judge.is_known(strategy, order)))
            yield from outcomes(judge, strategy, [order])

    monkeypatch.setattr(Judge, "outcomes", spy)
    return found


def test_rules_end_with_the_budget():
    assert list(rule_starts(network(), FOUR, Budget(None, 1e-9))) == [
        "single device",
        "data parallel",
    ]
    assert (
        len(rule_starts(network(), FOUR, Budget(None, 1e9)))
        == len(rule_starts(network(), FOUR))
        > 4
    )


def test_a_budget_that_starts_spend_takes_one_prediction(predicted):
    result = search(network(), FOUR, COSTS, seconds=1e-6)
    assert result.proposals == 0 and predicted == [None]
    assert result.seconds == min(result.baseline_seconds.values())


def test_a_first_interrupt_among_the_starts_takes_one_prediction(predicted, monkeypatch):
    judge_it, judged = Judge.judge, []

    def press(judge, strategy):
        judged.append(strategy)
        if len(judged) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return judge_it(judge, strategy)

    monkeypatch.setattr(Judge, "judge", press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SearchInterrupted) as caught:
            search(network(), FOUR, COSTS, proposals=1000)
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.result.proposals == 0 and len(judged) <= 3 and len(predicted) <= 2


@pytest.fixture
def judged(monkeypatch):
    """The strategies that a judge was asked for."""
    found, judge_it = [], Judge.judge

    def spy(judge, strategy):
        found.append(strategy)
        return judge_it(judge, strategy)

    monkeypatch.setattr(Judge, "judge", spy)
    return found


def nothing_fits(**options):
    return search(network(), FOUR.with_rates(memory_bytes=64), COSTS, **options)


def test_where_nothing_fits_no_strategy_is_drawn_behind_the_budget(judged):
    with pytest.raises(NoRoomError):
        nothing_fits(seconds=1e-6)
    few = len(judged)
    with pytest.raises(NoRoomError):
        nothing_fits(proposals=1)
    assert few <= 2 and len(judged) - few > RANDOM_STARTS


@pytest.mark.parametrize("number", [0, 2, 30])
def test_an_interrupt_where_nothing_fits_is_no_shortage(number, judged, monkeypatch):
    """Nothing to return: it is what ended the search."""
    judge_it = Judge.judge

    def press(judge, strategy):
        if len(judged) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return judge_it(judge, strategy)

    monkeypatch.setattr(Judge, "judge", press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            nothing_fits(proposals=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not isinstance(caught.value, SearchInterrupted) and len(judged) <= number + RANDOM_STARTS


def test_pipelines_take_no_time_that_is_gone():
    budget = Budget(None, 1e-6)
    first = Variant(network(), FOUR, COSTS, Plan(Strategy({})), None)
    pipes = Pipelines(first, [], budget)
    pipes._can_be = True
    pipes.search(1.0)
    assert len(pipes._known) <= 1


@pytest.mark.parametrize("calls", [0, 3, 40, 400, 10**9])
def test_a_bound_that_is_late_is_a_smaller_bound(calls):
    left, space = iter(range(calls)), Space(network(), FOUR)
    whole = lower_bound(space, COSTS)
    found = lower_bound(space, COSTS, lambda: next(left, None) is None)
    assert 0 <= found <= whole and (found > 0) == (calls > 3) and (found == whole or calls < 10**9)


def test_what_comes_behind_a_budget_takes_a_tenth_of_it():
    assert Budget(None, 1e-9).behind()()
    assert not Budget(None, 1e9).behind()() and not Budget(7, None).behind()()
    interrupted = Budget(7, None)
    interrupted.interrupt()
    assert interrupted.behind()()
