"""Plans as values and files: what is saved comes back, and what is applied is what its parts say one by one."""

import pytest

import taskflow
from taskflow import CostModel, MachineModel, Plan, Strategy, lower, reorder, schedule
from taskflow.schedule.pipeline import pipeline_of
from taskflow.strategy.micro_batches import micro_batches
from tests import kept

MACHINE = MachineModel.uniform(2)
COSTS = CostModel.analytic(MACHINE)


@pytest.fixture
def graph():
    return kept.network()


def everything(graph):
    """A plan that sets all there is, on the devices of MACHINE."""
    fields = {"recomputed": ["relu"], "homes": ["fc1.weight", "fc2.weight"], "gathers_again": False}
    changed = Plan(taskflow.single_device(graph, MACHINE), **fields).transform(graph)
    strategy = taskflow.fully_sharded(changed, MACHINE)
    return Plan(strategy, 2, "by_ordinal", **fields, collectives={"all-reduce": "ring"})


def test_what_is_saved_comes_back(graph, tmp_path):
    plan = everything(graph)
    rows = lower(graph, taskflow.stages(graph, MACHINE, parts=2), MACHINE)
    listed = schedule.gpipe.schedule(pipeline_of(rows))
    for each in (
        plan,
        Plan(plan.strategy),
        Plan(plan.strategy, schedule=listed),
        Plan(plan.strategy, 3, "searched"),
    ):
        each.save(tmp_path / "plan.json")
        assert Plan.load(tmp_path / "plan.json") == each
        known = plan.strategy.signatures
        assert Plan.load(tmp_path / "plan.json").strategy.signatures == {
            name: known[name] for name in plan.strategy
        }


def test_a_strategy_file_is_a_plan(graph, tmp_path):
    strategy = taskflow.data_parallel(graph, MACHINE)
    strategy.save(tmp_path / "s.json")
    assert (
        Plan.load(tmp_path / "s.json") == Plan(Strategy.load(tmp_path / "s.json")) == Plan(strategy)
    )


def test_a_known_order_becomes_its_name():
    assert Plan(Strategy(), schedule=schedule.one_f_one_b) == Plan(
        Strategy(), schedule="one_f_one_b"
    )
    own = schedule.Policy(lambda place: ())
    assert Plan(Strategy(), schedule=own).schedule is own


def test_what_is_applied(graph):
    plan = everything(graph)
    again = taskflow.homes(
        taskflow.recompute(graph, ["relu"]), ["fc1.weight", "fc2.weight"], again=False
    )
    strategy = micro_batches(again, plan.strategy, 2)
    rows = reorder(
        lower(again, strategy, MACHINE, {"all-reduce": "ring"}), COSTS, schedule.by_ordinal
    )
    found_graph, found = plan.apply(graph, MACHINE, COSTS)
    assert [op.name for op in found_graph.operators] == [op.name for op in again.operators]
    assert found.digest() == rows.digest() != lower(again, strategy, MACHINE).digest()
    assert (
        Plan(plan.strategy, homes=plan.homes).apply(graph, MACHINE, COSTS)[1].digest()
        != found.digest()
    )


@pytest.mark.parametrize(("batch", "parts"), [(12, 4), (9, 3), (7, 1)])
def test_the_plan_of_an_evaluation_graph(batch, parts):
    """Homes of the parameters that are there, no clone, and as many micro-batches as the samples divide into."""
    training, evaluation = taskflow.Graph(), taskflow.Graph()
    for graph, samples in ((training, 8), (evaluation, batch)):
        h = kept.ops.linear(graph.input("x", (samples, 4)), 4, name="fc")
        kept.ops.mean_squared_error(h, graph.input("t", (samples, 4)), name="loss")
    head = kept.ops.linear(training.regions["fc"], 2, name="head")
    kept.ops.sgd(
        kept.ops.mean_squared_error(head, training.input("u", (8, 2)), name="aside"), lr=0.1
    )
    fields = {"recomputed": ["fc"], "homes": ["fc.weight", "head.weight"]}
    changed = Plan(Strategy(), **fields).transform(training)
    plan = Plan(taskflow.single_device(changed, MACHINE), 4, "one_f_one_b", **fields)
    plan.strategy["fc.weight.home"] = taskflow.ParallelConfig({"o": 2})
    found = plan.for_graph(evaluation)
    assert (found.parts, found.schedule) == (parts, "by_ordinal" if parts > 1 else None)
    assert (found.recomputed, found.homes) == ((), ("fc.weight",))
    assert found.strategy["fc.weight.home"] == taskflow.ParallelConfig({"o": 2})
    graph, rows = found.apply(evaluation, MACHINE, COSTS)
    assert len(rows.homes["fc.weight"]) == 2
    taskflow.check_plan(graph, rows)
