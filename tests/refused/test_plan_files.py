"""Plans that cannot be, or do not fit, and files that hold none."""

import json

import pytest

import taskflow
from taskflow import MachineModel, Plan, Strategy, Trainer, explain
from taskflow.schedule import by_ordinal
from taskflow.schedule.orders import NAMED
from tests import kept
from tests.refusals import assert_refused

TWO = MachineModel.uniform(2)
COSTS = taskflow.CostModel.analytic(TWO)
KNOWN = f"{', '.join(NAMED)}, searched"
HEAD = {"format": "taskflow-plan", "version": 1, "operators": {}}
FIELDS = "operators, parts, schedule, recomputed, homes, gathers_again, collectives"
FILES = {
    "foreign": ({"model": "resnet"}, "its format is not 'taskflow-plan'"),
    "version": (HEAD | {"version": 2}, "has version 2, this reads 1"),
    "version of a strategy": (
        {"format": "taskflow-strategy", "version": 2},
        "has version 2, this reads 1",
    ),
    "no operators": (
        {"format": "taskflow-plan", "version": 1},
        "object missing required field 'operators'",
    ),
    "an operator": (
        HEAD | {"operators": {"fc": 3}},
        "operator 'fc': is 3: expected 'object', got 'int'",
    ),
    "parts": (HEAD | {"parts": 0}, "'parts' is 0: expected 'int' >= 1"),
    "true parts": (HEAD | {"parts": True}, "'parts' is true: expected 'int', got 'bool'"),
    "schedule": (
        HEAD | {"schedule": 3},
        "'schedule' is 3: expected 'str | object | null', got 'int'",
    ),
    "name": (HEAD | {"schedule": "1f1b"}, f"schedule '1f1b': is none of {KNOWN}"),
    "list": (
        HEAD | {"schedule": {"name": "mine", "devices": {"0": [["F", -1, 0]]}}},
        "schedule: device 0: '[0][1]' is -1: expected 'int' >= 0",
    ),
    "device": (
        HEAD | {"schedule": {"name": "mine", "devices": {"01": []}}},
        "schedule: device '01' is no number",
    ),
    "names": (
        HEAD | {"homes": "fc.weight"},
        "'homes' is \"fc.weight\": expected 'array', got 'str'",
    ),
    "a name": (HEAD | {"recomputed": ["fc", 1]}, "'recomputed[1]' is 1: expected 'str', got 'int'"),
    "again": (HEAD | {"gathers_again": 1}, "'gathers_again' is 1: expected 'bool', got 'int'"),
    "collectives": (
        HEAD | {"collectives": {"all-reduce": None}},
        "collective 'all-reduce': is null: expected 'str', got 'null'",
    ),
    "misspelt": (
        HEAD | {"part": 2},
        f"object contains unknown field 'part'; the fields are {FIELDS}",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_plan(case, tmp_path):
    content, message = FILES[case]
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    assert_refused(f"plan file '{path}': {message}", lambda: Plan.load(path))


def test_a_plan_that_cannot_be(tmp_path):
    assert_refused(
        "micro-batches: 0 of them; a positive number is needed", lambda: Plan(Strategy(), 0)
    )
    assert_refused("plan: strategy is a Strategy, not a dict", lambda: Plan({}), TypeError)
    assert_refused(
        "plan: homes are names, not one text 'all'",
        lambda: Plan(Strategy(), homes="all"),
        TypeError,
    )
    assert_refused(
        f"schedule 'gpip': is none of {KNOWN}", lambda: Plan(Strategy(), schedule="gpip")
    )

    def mine(task_graph, seconds):
        return by_ordinal(task_graph, seconds)

    message = "plan: schedule 'mine' is a function; a file holds a Schedule or a name"
    assert_refused(message, lambda: Plan(Strategy(), schedule=mine).save(tmp_path / "p.json"))


@pytest.fixture
def graph():
    return kept.network()


@pytest.fixture
def strategy(graph):
    return taskflow.data_parallel(graph, TWO)


def test_a_plan_that_does_not_fit(graph, strategy):
    for message, plan, machine in (
        (
            "operator 'no': the graph has no operator of this name",
            Plan(strategy, recomputed=["no"]),
            TWO,
        ),
        ("homes: the graph has no parameter 'no'", Plan(strategy, homes=["no"]), TWO),
        (
            "micro-batches: the 12 samples of 'fc1' do not divide into 5",
            Plan(strategy, 5),
            MachineModel.uniform(2),
        ),
        (
            "operator 'fc1': device 1 is not among the machine's 1 devices",
            Plan(strategy, 5),
            MachineModel.uniform(1),
        ),
        (
            "machine 'uniform': collectives: 'all-to-all' by 'x': fastest, pairwise, two-level, copies",
            Plan(strategy, collectives={"all-to-all": "x"}),
            TWO,
        ),
    ):
        assert_refused(
            message, lambda plan=plan, machine=machine: plan.apply(graph, machine, COSTS)
        )
    wide = taskflow.data_parallel(kept.network(width=9), TWO)
    message = "strategy: operator 'fc1': axis 'o' is 8 in the graph and 9 in the strategy"
    for parts in (1, 2):
        assert_refused(message, lambda parts=parts: Plan(wide, parts).apply(graph, TWO, COSTS))


def test_what_a_plan_sets_is_not_given_beside_it(graph, strategy):
    options = {"machine": TWO, "costs": COSTS, "quiet": True}
    plan = Plan(strategy, 2, "by_ordinal")
    assert_refused(
        "trainer: accumulate=3: the plan sets parts itself, to 2; leave one of both out",
        lambda: Trainer(graph, strategy=plan, accumulate=3, **options),
    )
    message = "order=: the plan sets schedule itself, to by_ordinal; leave one of both out"
    assert_refused(
        f"trainer: {message}", lambda: Trainer(graph, strategy=plan, order="gpipe", **options)
    )
    assert_refused(f"explain: {message}", lambda: explain(graph, plan, TWO, COSTS, order="gpipe"))
    assert_refused(
        "trainer: strategy is a Strategy, a Plan, a rule or 'search', not 'best'",
        lambda: Trainer(graph, strategy="best", **options),
    )
