"""What is known from feeds alone is made before the first layer, so a pipeline may divide by a count of all samples."""

from collections.abc import Callable

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Executor,
    Graph,
    LogicalRegion,
    MachineModel,
    check_plan,
    lower,
    reorder,
    search_schedule,
    single_device,
    stages,
)
from taskflow.schedule import one_f_one_b, zb_v
from taskflow.schedule.pipeline import pipeline_of
from taskflow.schedule.policies import POLICIES
from tests.refusals import assert_refused

SAMPLES, IGNORED = 16, -100
Loss = Callable[[LogicalRegion, LogicalRegion], LogicalRegion]


def is_word(t: LogicalRegion) -> LogicalRegion:
    return ops.cast(ops.not_equal(t, IGNORED), "float64")


def weighted(y: LogicalRegion, t: LogicalRegion) -> LogicalRegion:
    weight = y.graph.input("weight", (5,), "float64")
    return ops.cross_entropy(y, t, IGNORED, 0.1, weight=weight)


def by_constant_weights(y: LogicalRegion, t: LogicalRegion) -> LogicalRegion:
    weight = y.graph.parameter("weight", (5,), 1.5, "float64", trainable=False)
    return ops.nll_loss(ops.log_softmax(y), t, IGNORED, weight=weight)


def masked_mean(y: LogicalRegion, t: LogicalRegion) -> LogicalRegion:
    """A user's own: a quotient of two sums."""
    squares = ops.mean(ops.multiply(y, y), 1)
    return ops.divide(ops.sum(ops.multiply(squares, is_word(t))), ops.sum(is_word(t)))


def mean_of_shares(y: LogicalRegion, t: LogicalRegion) -> LogicalRegion:
    """A user's own: a sum of quotients."""
    squares = ops.multiply(ops.mean(ops.multiply(y, y), 1), is_word(t))
    return ops.sum(ops.divide(squares, ops.sum(is_word(t))))


def centred(y: LogicalRegion, t: LogicalRegion) -> LogicalRegion:
    """Against targets less their mean over all samples."""
    wanted = ops.cast(t, "float64")
    return ops.mse_loss(ops.mean(y, 1), ops.subtract(wanted, ops.mean(wanted)))


LOSSES: dict[str, Loss] = {
    "cross_entropy": lambda y, t: ops.cross_entropy(y, t, IGNORED),
    "cross_entropy of weights": weighted,
    "nll_loss of constant weights": by_constant_weights,
    "masked mean": masked_mean,
    "mean of shares": mean_of_shares,
    "centred targets": centred,
}


def model(loss: Loss) -> Graph:
    graph = Graph()
    h = ops.relu(ops.linear(graph.input("x", (SAMPLES, 3), "float64"), 6, name="fc1"))
    h = ops.relu(ops.linear(h, 6, name="fc2"))
    found = loss(ops.linear(h, 5, name="fc3"), graph.input("t", (SAMPLES,), "int32"))
    ops.sgd(found, lr=0.1, momentum=0.9)
    graph.output("loss", found)
    return graph


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    random, t = np.random.default_rng(0), np.arange(SAMPLES, dtype=np.int32) % 5
    t[[0, 1, 2, 3, 7, 11]] = IGNORED  # none of the first micro-batch counts
    values = {r.name: random.uniform(0.5, 1.5, r.shape) for r in graph.inputs}
    return {**values, "t": t}


def numbers(rows, fed):
    with Executor(rows, seed=0) as step:
        step(fed)
        outputs = step(fed)
        return {**outputs, **{name: step.read(name) for name in step.persistent}}


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_by_a_count_of_all_samples_in_every_schedule(name, devices):
    """As one device, in stages of one and of two devices."""
    graph, machine, one = (
        model(LOSSES[name]),
        MachineModel.uniform(devices),
        MachineModel.uniform(1),
    )
    fed = feeds(graph)
    expected = numbers(lower(graph, single_device(graph, one), one), fed)
    assert np.isfinite(expected["loss"])
    rows, costs = lower(graph, stages(graph, machine, 2, 4), machine), CostModel.analytic(machine)
    orders = [
        policy for policy in POLICIES.values() if policy is not zb_v
    ]  # which wants two stages a device
    for order in (
        [*orders, search_schedule(rows, costs, seconds=0.2)] if devices == 2 else orders[:3]
    ):
        ordered = reorder(rows, costs, order)
        check_plan(graph, ordered)
        for key, value in numbers(ordered, fed).items():
            np.testing.assert_allclose(
                value, expected[key], rtol=1e-10, atol=1e-12, err_msg=f"{key}, {order.name}"
            )


@pytest.mark.parametrize("name", LOSSES)
def test_in_a_v_of_stages(name):
    graph, machine, one = model(LOSSES[name]), MachineModel.uniform(2), MachineModel.uniform(1)
    plan = stages(graph, machine, cuts=["fc2", "fc3"], parts=4, devices=[(0,), (1,), (0,)])
    expected = numbers(lower(graph, single_device(graph, one), one), fed := feeds(graph))
    found = numbers(reorder(lower(graph, plan, machine), CostModel.analytic(machine), zb_v), fed)
    for key, value in found.items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-10, atol=1e-12, err_msg=key)


def test_only_what_is_awaited_is_made_early():
    """The mask of each micro-batch that its own loss reads, and an input that is cast, stay in their stage."""
    graph = Graph()
    x = ops.cast(graph.input("x", (SAMPLES, 3)), "float64", name="cast")
    y, t = ops.linear(x, 5, name="fc"), graph.input("t", (SAMPLES,), "int32")
    ops.sgd(ops.cross_entropy(y, t, IGNORED, name="loss"), lr=0.1)
    machine = MachineModel.uniform(1)
    rows = lower(graph, stages(graph, machine, 1, 4), machine)
    pipeline = pipeline_of(rows)
    early = {
        rows.name(k)
        for k in np.flatnonzero((rows.kind == 0) & (pipeline.stage < 0))
        if rows.ordinal[k] > 0
    }
    assert early == {"loss.count"}


# -- what is refused ---------------------------------------------------------------------------------------------------


def mixture(**options: int) -> Graph:
    graph = Graph()
    h = ops.linear(graph.input("x", (SAMPLES, 3), "float64"), 6, name="fc1")
    y, balance = ops.mixture_of_experts(h, 4, 5, k=1, name="experts", **options)
    y = ops.linear(ops.add(h, y), 5, name="fc2")
    loss = ops.softmax_cross_entropy(y, graph.input("t", (SAMPLES,), "int32"), name="words")
    ops.sgd(loss := ops.add(loss, ops.multiply(balance, 0.01)), lr=0.1)
    graph.output("loss", loss)
    return graph


@pytest.mark.parametrize("groups", [4, 8])
@pytest.mark.parametrize("parts", [4, 8])
def test_experts_of_groups_and_parts_make_a_pipeline(groups, parts):
    graph, machine, one = (
        mixture(groups=groups, parts=parts),
        MachineModel.uniform(2),
        MachineModel.uniform(1),
    )
    fed = {
        "x": np.random.default_rng(0).standard_normal((SAMPLES, 3)),
        "t": np.arange(SAMPLES, dtype=np.int32) % 5,
    }
    expected = numbers(lower(graph, single_device(graph, one), one), fed)
    rows, costs = (
        lower(graph, stages(graph, machine, cuts=["fc2"], parts=4), machine),
        CostModel.analytic(machine),
    )
    for order in (policy for policy in POLICIES.values() if policy is not zb_v):
        for key, value in numbers(reorder(rows, costs, order), fed).items():
            np.testing.assert_allclose(
                value, expected[key], rtol=1e-10, atol=1e-12, err_msg=f"{key}, {order.name}"
            )


def refused(graph: Graph, cut: str) -> Callable[[], object]:
    machine = MachineModel.uniform(2)
    rows = lower(graph, stages(graph, machine, cuts=[cut], parts=4), machine)
    return lambda: reorder(rows, CostModel.analytic(machine), one_f_one_b)


def test_the_message_is_made_for_the_case():
    order = "or an order that knows no stages, such as taskflow.schedule.program"
    assert_refused(
        "schedule 'one_f_one_b': 'experts.slots' needs all 4 micro-batches of 'experts.top' before its first point; "
        f"use ops.mixture_of_experts(..., groups=4, parts=4), {order}",
        refused(mixture(), "fc2"),
    )
    assert_refused(
        "schedule 'one_f_one_b': devices wait for each other: device 1 at F of stage 1 for micro-batch 2; device 0 at "
        "I of stage 0 for micro-batch 0; 'experts.balance.mean.dx' needs all 4 micro-batches of "
        "'experts.balance.load': "
        f"use ops.mixture_of_experts(..., groups=4, parts=4), {order}",
        refused(mixture(groups=4), "fc2"),
    )
    own = model(
        lambda y, t: ops.sum(
            ops.divide(ops.mean(ops.multiply(y, y), 1), ops.sum(ops.abs(y), name="level"))
        )
    )
    assert_refused(
        "schedule 'one_f_one_b': 'divide' needs all 4 micro-batches of 'level' before its first point; use an order "
        "that knows no stages, such as taskflow.schedule.program",
        refused(own, "fc2"),
    )
