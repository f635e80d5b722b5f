"""Plans that cannot be, or do not fit, and files that hold none."""

import pytest

import taskflow
from taskflow import MachineModel, Plan, Strategy, Trainer, explain
from taskflow.schedule import by_ordinal
from taskflow.schedule.orders import NAMED
from tests import kept
from tests.refusals import each_refused, of_files

TWO = MachineModel.uniform(2)
COSTS = taskflow.CostModel.analytic(TWO)
KNOWN = f"{', '.join(NAMED)}, searched"
HEAD = {"format": "taskflow-plan", "version": 1, "operators": {}}
FIELDS = (
    "operators, parts, schedule, recomputed, homes, offloaded, gathers_again, collectives, "
    "bucket_bytes, ring"
)
FILES = [
    ("foreign", {"model": "resnet"}, "its format is not 'taskflow-plan'"),
    ("version", HEAD | {"version": 2}, "has version 2, this reads 1"),
    (
        "version of a strategy",
        {"format": "taskflow-strategy", "version": 2},
        "has version 2, this reads 1",
    ),
    (
        "no operators",
        {"format": "taskflow-plan", "version": 1},
        "object missing required field 'operators'",
    ),
    (
        "an operator",
        HEAD | {"operators": {"fc": 3}},
        "operator 'fc': is 3: expected 'object', got 'int'",
    ),
    ("parts", HEAD | {"parts": 0}, "'parts' is 0: expected 'int' >= 1"),
    ("true parts", HEAD | {"parts": True}, "'parts' is true: expected 'int', got 'bool'"),
    (
        "schedule",
        HEAD | {"schedule": 3},
        "'schedule' is 3: expected 'str | object | null', got 'int'",
    ),
    ("name", HEAD | {"schedule": "1f1b"}, f"schedule '1f1b': is none of {KNOWN}"),
    (
        "list",
        HEAD | {"schedule": {"name": "mine", "devices": {"0": [["F", -1, 0]]}}},
        "schedule: device 0: '[0][1]' is -1: expected 'int' >= 0",
    ),
    (
        "device",
        HEAD | {"schedule": {"name": "mine", "devices": {"01": []}}},
        "schedule: device '01' is no number",
    ),
    (
        "names",
        HEAD | {"homes": "fc.weight"},
        "'homes' is \"fc.weight\": expected 'array', got 'str'",
    ),
    ("a name", HEAD | {"recomputed": ["fc", 1]}, "'recomputed[1]' is 1: expected 'str', got 'int'"),
    ("again", HEAD | {"gathers_again": 1}, "'gathers_again' is 1: expected 'bool', got 'int'"),
    (
        "collectives",
        HEAD | {"collectives": {"all-reduce": None}},
        "collective 'all-reduce': is null: expected 'str', got 'null'",
    ),
    (
        "misspelt",
        HEAD | {"part": 2},
        f"object contains unknown field 'part'; the fields are {FIELDS}",
    ),
]


@pytest.fixture
def graph():
    return kept.network()


@pytest.fixture
def strategy(graph):
    return taskflow.data_parallel(graph, TWO)


def mine(task_graph, seconds):
    return by_ordinal(task_graph, seconds)


def applying(machine=TWO, **plan):
    """A call that applies a plan of a strategy that fits to the graph."""
    return lambda graph, strategy: Plan(strategy, **plan).apply(graph, machine, COSTS)


def apply_another(graph, parts):
    wide = taskflow.data_parallel(kept.network(width=9), TWO)
    Plan(wide, parts).apply(graph, TWO, COSTS)


def training(**options):
    """A call that makes a trainer with options beside those of the plan."""

    def call(graph, strategy):
        given = {"strategy": Plan(strategy, 2, "by_ordinal"), **options}
        Trainer(graph, machine=TWO, costs=COSTS, quiet=True, **given)

    return call


BESIDE = "order=: the plan sets schedule itself, to by_ordinal; leave one of both out"
REFUSED = [
    *of_files(Plan.load, "plan file", "p.json", FILES),
    (
        "no parts",
        lambda: Plan(Strategy(), 0),
        "micro-batches: 0 of them; a positive number is needed",
    ),
    (
        "a dictionary as a strategy",
        lambda: Plan({}),
        "plan: strategy is a Strategy, not a dict",
        TypeError,
    ),
    (
        "homes in one text",
        lambda: Plan(Strategy(), homes="all"),
        "plan: homes are names, not one text 'all'",
        TypeError,
    ),
    (
        "an unknown schedule",
        lambda: Plan(Strategy(), schedule="gpip"),
        f"schedule 'gpip': is none of {KNOWN}",
    ),
    (
        "a function in a file",
        lambda tmp_path: Plan(Strategy(), schedule=mine).save(tmp_path / "p.json"),
        "plan: schedule 'mine' is a function; a file holds a Schedule or a name",
    ),
    (
        "an operator that is not there",
        applying(recomputed=["no"]),
        "operator 'no': the graph has no operator of this name",
    ),
    (
        "a parameter that is not there",
        applying(homes=["no"]),
        "homes: the graph has no parameter 'no'",
    ),
    (
        "samples that do not divide",
        applying(parts=5),
        "micro-batches: the 12 samples of 'fc1' do not divide into 5",
    ),
    (
        "too few devices",
        applying(MachineModel.uniform(1), parts=5),
        "operator 'fc1': device 1 is not among the machine's 1 devices",
    ),
    (
        "an unknown collective",
        applying(collectives={"all-to-all": "x"}),
        "machine 'uniform': collectives: 'all-to-all' by 'x': fastest, pairwise, two-level, copies",
    ),
    *(
        (
            f"another graph, in {parts} parts",
            lambda graph, parts=parts: apply_another(graph, parts),
            "strategy: operator 'fc1': axis 'o' is 8 in the graph and 9 in the strategy",
        )
        for parts in (1, 2)
    ),
    (
        "parts beside a plan",
        training(accumulate=3),
        "trainer: accumulate=3: the plan sets parts itself, to 2; leave one of both out",
    ),
    ("an order beside a plan", training(order="gpipe"), f"trainer: {BESIDE}"),
    (
        "an order beside an explained plan",
        lambda graph, strategy: explain(
            graph, Plan(strategy, 2, "by_ordinal"), TWO, COSTS, order="gpipe"
        ),
        f"explain: {BESIDE}",
    ),
    (
        "an unknown rule",
        training(strategy="best"),
        "trainer: strategy is a Strategy, a Plan, a rule or 'search', not 'best'",
    ),
]
test_refused = each_refused(REFUSED)
