"""A budget is honoured by what comes before the first proposal: rules, starts, predictions and their orders."""

import os
import signal

import pytest

from taskflow import CostModel, MachineModel, SearchInterrupted, search
from taskflow.searching.budget import Budget
from taskflow.searching.judge import Judge
from taskflow.searching.starts import rule_starts
from tests.lowered import network

FOUR = MachineModel.uniform(4)
COSTS = CostModel.analytic(FOUR)


@pytest.fixture
def predicted(monkeypatch):
    """The orders in which strategies were predicted, as they are asked for."""
    found, timelines = [], Judge.timelines

    def spy(judge, strategy, orders):
        for order, timeline in zip(orders, timelines(judge, strategy, orders), strict=True):
            found.append(order)
            yield timeline

    monkeypatch.setattr(Judge, "timelines", spy)
    return found


def test_rules_end_with_the_budget():
    assert list(rule_starts(network(), FOUR, Budget(None, 1e-9))) == ["single device", "data parallel"]
    assert len(rule_starts(network(), FOUR, Budget(None, 1e9))) == len(rule_starts(network(), FOUR)) > 4


def test_a_budget_that_starts_spend_takes_one_prediction(predicted):
    result = search(network(), FOUR, COSTS, seconds=1e-6)
    assert result.proposals == 0 and predicted == [None]
    assert result.seconds == min(result.baseline_seconds.values())


def test_a_first_interrupt_among_the_starts_takes_one_prediction(predicted, monkeypatch):
    seconds, judged = Judge.seconds, []

    def press(judge, strategy):
        judged.append(strategy)
        if len(judged) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return seconds(judge, strategy)

    monkeypatch.setattr(Judge, "seconds", press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SearchInterrupted) as caught:
            search(network(), FOUR, COSTS, proposals=1000)
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.result.proposals == 0 and len(judged) <= 3 and len(predicted) <= 2
