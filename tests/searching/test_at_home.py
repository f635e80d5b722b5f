"""Search at home: what is returned was fastest in rehearsal, whatever kernels take alone."""

import numpy as np
import pytest

from taskflow import (
    CostModel,
    SearchInterrupted,
    Trainer,
    data_parallel,
    explain,
    model_parallel,
    search,
    search_at_home,
    simulate,
    single_device,
)
from taskflow.execute import rehearsal
from taskflow.searching import at_home
from taskflow.searching.budget import Budget
from taskflow.searching.searching import search_on
from tests.fake_home import (
    SAMPLES,
    FakeCosts,
    TrueCosts,
    fake_rehearsals,
    home,
    network,
    slow_samples,
    slow_together,
)

RULES = {
    "single device": single_device,
    "data parallel": data_parallel,
    "model parallel": model_parallel,
}


def true_of(plan, truth):
    costs = TrueCosts(home(), truth)
    return simulate(plan.apply(network(), home(), costs)[1], costs).seconds


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets, in a list."""
    now = [0.0]
    monkeypatch.setattr(Budget, "elapsed", property(lambda self: now[0]))
    return now


def test_one_device_is_the_answer_where_two_are_slower(monkeypatch):
    made, costs = fake_rehearsals(monkeypatch, slow_together), FakeCosts(home())
    alone = search(network(), home(), FakeCosts(home()), proposals=100)
    found = search_at_home(network(), home(), costs, proposals=200)
    assert dict(found.strategy) == dict(single_device(network(), home()))
    assert alone.seconds < found.seconds < true_of(alone.plan, slow_together)
    assert found.idle == (1,) and str(found).endswith("; one device alone is the fastest")
    assert found.rehearsed == len({rows.digest() for rows in made}) >= 5
    assert f", the fastest of {found.rehearsed} plans in rehearsal" in str(found)
    for name, rule in RULES.items():
        seconds = true_of(type(found.plan)(rule(network(), home())), slow_together)
        assert found.baseline_seconds[name] == pytest.approx(seconds)


def test_factors_of_rehearsals_lead_to_what_a_search_by_true_costs_finds(monkeypatch):
    fake_rehearsals(monkeypatch, slow_samples)
    alone = search(network(), home(), FakeCosts(home()), proposals=400)
    found = search_at_home(network(), home(), FakeCosts(home()), proposals=800)
    best = search(network(), home(), TrueCosts(home(), slow_samples), proposals=400)
    assert true_of(alone.plan, slow_samples) > 2 * found.seconds
    assert found.seconds == pytest.approx(
        best.seconds, rel=1e-3
    )  # which may have another order of rows
    assert len(found.history) > 1 and found.history[-1][1] < found.history[0][1]
    assert found.seconds < min(found.baseline_seconds.values())


def test_search_report_and_explain_say_the_same(monkeypatch, capsys):
    fake_rehearsals(monkeypatch, slow_samples)
    costs = FakeCosts(home())
    trainer = Trainer(network(), machine=home(), costs=costs, proposals=100)
    seconds = trainer.found.seconds
    assert (
        trainer.predicted_seconds == seconds == pytest.approx(true_of(trainer.plan, slow_samples))
    )
    assert simulate(trainer.task_graph, costs).seconds == seconds
    assert explain(network(), trainer.plan, home(), costs, alternatives=0).step.seconds == seconds
    trainer.step({"x": np.zeros((SAMPLES, 16))})
    trainer.report()
    said = capsys.readouterr().out
    assert (
        f"search: {seconds * 1e3:.3f} ms" in said
        and f"predicted step time: {seconds * 1e3:.3f} ms" in said
    )


def test_an_order_beside_the_search_is_rehearsed_too(monkeypatch):
    made = fake_rehearsals(monkeypatch, slow_samples)
    trainer = Trainer(
        network(), machine=home(), costs=FakeCosts(home()), strategy=data_parallel, order="gpipe"
    )
    assert made[-1].digest() == trainer.task_graph.digest()
    true = simulate(trainer.task_graph, TrueCosts(home(), slow_samples)).seconds
    assert trainer.predicted_seconds == pytest.approx(true)


def without_clock(transport, problem, budget, *arguments, **options):
    """A search by its proposals alone."""
    budget = Budget(budget.proposals, None)
    return search_on(transport, problem, budget, *arguments, **options)


def test_what_was_late_is_not_rehearsed(monkeypatch, clock):
    """The first plan is, in any case."""
    made = fake_rehearsals(monkeypatch, slow_samples)

    def late_search(*arguments, **options):
        result = without_clock(*arguments, **options)
        clock[0] += 100.0
        return result

    monkeypatch.setattr(at_home, "search_on", late_search)
    found = search_at_home(network(), home(), FakeCosts(home()), proposals=60, seconds=10.0)
    assert len(made) == found.rehearsed == 1 and clock[0] == 100.0
    assert found.seconds == pytest.approx(true_of(found.plan, slow_samples))


def test_no_more_is_rehearsed_than_there_is_time_for(monkeypatch, clock):
    """What was found in 10 ms, one device in 20: six rounds take 0.54 s if they are three times as slow."""
    made = fake_rehearsals(monkeypatch, slow_samples)
    monkeypatch.setattr(at_home, "SHARES", (1.0,))
    monkeypatch.setattr(at_home, "search_on", without_clock)
    counts = []
    for seconds in (1e-9, 0.6, 60.0):
        search_at_home(network(), home(), FakeCosts(home()), proposals=60, seconds=seconds)
        counts.append(len(made))
        made.clear()
    assert counts[0] == 1 <= counts[1] < counts[2] <= 7


def test_searches_get_a_part_of_the_seconds_that_are_left(monkeypatch, clock):
    fake_rehearsals(monkeypatch, slow_samples)
    given = []

    def timed_search(transport, problem, budget, *arguments, **options):
        given.append(budget.seconds)
        clock[0] += 2 * budget.seconds
        return without_clock(transport, problem, budget, *arguments, **options)

    monkeypatch.setattr(at_home, "search_on", timed_search)
    search_at_home(network(), home(), FakeCosts(home()), proposals=400, seconds=80.0)
    assert given in ([20.0, 10.0], [20.0, 10.0, 10.0])  # of 40, 20 and 20


def test_interrupted_the_best_in_rehearsal_is_returned(monkeypatch):
    fake_rehearsals(monkeypatch, slow_samples)
    calls = []

    def interrupted_search(*arguments, **options):
        calls.append(search_on(*arguments, **options))
        if len(calls) > 1:
            raise SearchInterrupted(calls[-1])
        return calls[-1]

    monkeypatch.setattr(at_home, "search_on", interrupted_search)
    with pytest.raises(SearchInterrupted) as stop:
        search_at_home(network(), home(), FakeCosts(home()), proposals=200)
    found = stop.value.result
    assert found.seconds == pytest.approx(true_of(found.plan, slow_samples))
    assert found.seconds <= min(found.baseline_seconds.values())
    assert found.rehearsed > 1 and found.proposals == sum(each.proposals for each in calls)


@pytest.mark.parametrize("why", ["analytic costs", "no memory"])
def test_where_nothing_is_rehearsed_it_is_a_search(monkeypatch, why):
    made = fake_rehearsals(monkeypatch, slow_samples)
    monkeypatch.setattr(rehearsal, "can_rehearse", lambda task_graph: False)
    costs, share = (
        (CostModel.analytic(home()), 1.0) if why == "analytic costs" else (FakeCosts(home()), 0.5)
    )
    found = search_at_home(network(), home(), costs, proposals=100)
    plain = search(network(), home(), costs, proposals=round(100 * share))
    assert (found.plan, found.seconds, found.rehearsed, made) == (plain.plan, plain.seconds, 0, [])
