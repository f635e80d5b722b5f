"""Batch statistics in micro-batches: told from a graph what the rows of a plan say, and of nothing else."""

import pytest

import ops
from taskflow import CostModel, Graph, MachineModel, ParallelConfig, Plan, stages
from taskflow.schedule.batches import check_batches
from taskflow.strategy.strategy import Strategy

MACHINE = MachineModel.uniform(2)


def network(normalize, is_trained=True):
    graph = Graph()
    h = normalize(ops.linear(graph.input("x", (16, 4), "float64"), 6, name="fc1"), name="norm")
    h = ops.linear(ops.relu(h, name="relu"), 5, name="fc2")
    loss = ops.softmax_cross_entropy(h, graph.input("t", (16,), "int32"), name="loss")
    if is_trained:
        ops.sgd(loss, lr=0.1)
    graph.output("loss", loss)
    return graph


def in_stages(graph):
    return stages(graph, MACHINE, cuts=["fc2"])


def refusal(check, *args):
    with pytest.raises(ValueError) as refused:
        check(*args)
    return str(refused.value)


def test_what_a_graph_says_is_what_rows_say():
    graph = network(ops.batch_norm)
    for schedule in ("one_f_one_b", "zb_h1"):
        plan = Plan(in_stages(graph), 4, schedule)
        told = refusal(check_batches, graph, plan)
        assert "'norm.var' needs all 4 micro-batches of 'norm.mean'" in told
        assert refusal(plan.predict, graph, MACHINE, CostModel.analytic(MACHINE)).startswith(told)


@pytest.mark.parametrize(
    "normalize, is_trained, parts, schedule",
    [
        (ops.layer_norm, True, 4, "one_f_one_b"),
        (ops.batch_norm, True, 1, None),
        (ops.batch_norm, True, 4, "by_ordinal"),
        (ops.batch_norm, False, 4, "one_f_one_b"),
    ],
)
def test_other_plans_are_for_rows_to_judge(normalize, is_trained, parts, schedule):
    """Statistics of feeds alone are known beforehand; orders that know no stages run all."""
    graph = network(normalize, is_trained)
    check_batches(graph, Plan(in_stages(graph), parts, schedule))


def test_several_points_a_device_are_for_rows_to_judge():
    graph = network(ops.batch_norm)
    strategy = Strategy({**in_stages(graph).data, "norm": ParallelConfig({"n": 2}, [0, 0])})
    check_batches(graph, Plan(strategy, 4, "one_f_one_b"))
