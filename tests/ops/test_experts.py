"""Mixtures of experts under expert parallelism: one device's numbers, an all-to-all and no more, and nothing lost."""

import re
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pytest

import ops
from ops.models import moe
from taskflow import (
    Executor,
    Graph,
    Kind,
    LogicalRegion,
    MachineModel,
    ParallelConfig,
    Strategy,
    check_plan,
    data_parallel,
    even_work,
    lower,
    random_strategy,
    single_device,
)

from ..models.tiny import assert_close, train

EXPERTS, BATCH, SEQUENCE, HIDDEN, CHOICES = 4, 8, 3, 6, 2
MACHINE = MachineModel.uniform(4)


def layer(groups: int = 4, factor: Any = 0.75, gate: Any = None) -> Graph:
    """A layer with a shortcut, behind another one."""
    graph = Graph()
    x, t = (graph.input(n, (BATCH, SEQUENCE, HIDDEN), "float64") for n in "xt")
    x = ops.linear(x, HIDDEN, name="first")
    y, balance = ops.mixture_of_experts(
        x, EXPERTS, 8, CHOICES, factor, groups, name="experts", gate=gate
    )
    loss = ops.mse_loss(ops.add(x, y, name="add"), t, name="error")
    ops.adam(ops.add(loss, ops.multiply(balance, 0.01), name="loss"), 0.01)
    return graph


def batches(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(5)
    return [
        {n: random.standard_normal((BATCH, SEQUENCE, HIDDEN)) for n in "xt"} for _ in range(count)
    ]


def by_hand(graph: Graph, **degrees: dict[str, int]) -> Strategy:
    strategy = moe.expert_parallel(graph, MACHINE)
    strategy.update(
        {name.replace("_", "."): ParallelConfig(split) for name, split in degrees.items()}
    )
    return strategy


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_expert_parallel_trains_as_one_device_does(groups: int) -> None:
    graph = layer(groups)
    alone = train(graph, single_device(graph, MACHINE), MACHINE, batches(5))
    assert_close(train(graph, moe.expert_parallel(graph, MACHINE), MACHINE, batches(5)), alone)


@pytest.mark.parametrize(
    "degrees",
    [
        {"experts_dispatch": {"b": 3}},
        {"experts_dispatch": {"s": 3}},
        {"experts_dispatch": {"e": 4}},
        {"experts_dispatch": {"e": 2, "c": 2}, "experts_up": {"e": 2, "h": 2}},
        {"experts_up": {"c": 4}, "experts_down": {"e": 4}},
        {"experts_combine": {"e": 2, "b": 2}, "experts_slots": {"b": 4}},
    ],
    ids=str,
)
def test_any_split_of_one_group_trains_as_one_device_does(
    degrees: dict[str, dict[str, int]],
) -> None:
    graph = layer(groups=1)
    alone = train(graph, single_device(graph, MACHINE), MACHINE, batches(2))
    assert_close(train(graph, by_hand(graph, **degrees), MACHINE, batches(2)), alone)


SPARSE = partial(
    ops.dense_to_sparse_gate, k=3, temperature=lambda done: 1 / (1 + done), threshold=0.2
)
BY_ROWS: list[dict[str, Any]] = [
    {"groups": 2, "factor": None},
    {"groups": 1, "factor": None, "gate": SPARSE},
    {"groups": 1, "factor": (0.5, 2.0, 1.0, 0.25)},
]


@pytest.mark.parametrize("options", BY_ROWS, ids=["groups", "sparse gate", "factors"])
def test_rows_of_experts_train_as_on_one_device(options: dict[str, Any]) -> None:
    graph = layer(**options)
    alone = train(graph, single_device(graph, MACHINE), MACHINE, batches(3))
    plans = [moe.expert_parallel, even_work] if options["factor"] is None else [even_work]
    strategies = [plan(graph, MACHINE) for plan in plans]
    row = "n" if options["groups"] == 1 else "g"
    for degrees in ({row: 2}, {"h": 2, row: 2}):
        strategies.append(
            by_hand(graph) if options["factor"] is None else single_device(graph, MACHINE)
        )
        strategies[-1]["experts.up"] = strategies[-1]["experts.down"] = ParallelConfig(degrees)
    for strategy in (*strategies, *(random_strategy(graph, MACHINE, seed) for seed in range(4))):
        check_plan(graph, lower(graph, strategy, MACHINE))
        assert_close(train(graph, strategy, MACHINE, batches(3)), alone)


def test_cold_gates_choose_the_likeliest_and_dense_ones_are_mixtures() -> None:
    graph = Graph()
    scores = graph.input("scores", (64, 8), "float64")
    for name, k, options in (
        ("cold", 8, {"temperature": 1e-7}),
        ("all", 8, {"threshold": 0.0}),
    ):
        gate = ops.dense_to_sparse_gate(scores, k, noisy=False, name=name, **options)
        for part, region in zip(("weights", "choices", "probabilities"), gate, strict=True):
            graph.output(f"{name} {part}", region)
    for part, region in zip(("weights", "choices"), ops.top_k_gate(scores, 1), strict=True):
        graph.output(f"top {part}", region)
    given = np.random.default_rng(0).random((64, 8))
    with Executor(lower(graph, single_device(graph, MACHINE), MACHINE)) as step:
        values = step({"scores": given})
    for part in ("weights", "choices"):
        assert (values[f"cold {part}"][:, :1] == values[f"top {part}"]).all()
    assert (values["cold choices"][:, 1:] == -1).all() and not values["cold weights"][:, 1:].any()
    softmax = np.exp(given) / np.exp(given).sum(-1, keepdims=True)
    dense = np.zeros_like(softmax)
    np.put_along_axis(dense, values["all choices"], values["all weights"], 1)
    np.testing.assert_allclose(dense, softmax, rtol=0, atol=1e-10)


def test_noise_is_gumbel_new_in_each_step_and_the_same_again() -> None:
    graph = Graph()
    graph.output("y", ops.gumbel(graph.input("x", (100, 100), "float64")))
    drawn = []
    for devices in (1, 4):
        machine = MachineModel.uniform(devices)
        with Executor(lower(graph, data_parallel(graph, machine), machine), seed=1) as step:
            drawn += [step({"x": np.zeros((100, 100))})["y"] for _ in range(2)]
    assert (drawn[0] == drawn[2]).all() and (drawn[1] == drawn[3]).all()
    assert (drawn[0] != drawn[1]).all()
    assert abs(drawn[0].mean() - 0.5772) < 0.04 and abs(drawn[0].var() - 1.645) < 0.15


def test_work_follows_what_experts_have_room_for() -> None:
    """Equal numbers of experts wait for the busiest; with rooms of their own they are cut by work."""
    graph = layer(1, (3.0, 0.5, 0.25, 0.25))
    even = single_device(graph, MACHINE)
    even["experts.up"] = ParallelConfig({"n": 4})
    weights = [op for op in graph.operators if op.name == "experts.up.dweight"]
    assert [op.total_flops for op in weights] == [graph.operator("experts.up").total_flops]
    rows = lower(graph, even, MACHINE)
    of_layer = [rows.launches[k].name == "experts.up" if k >= 0 else False for k in rows.launch]
    work = rows.flops[of_layer]
    assert len(work) == 4 and work.max() <= 1.1 * work.mean()
    split = single_device(graph, MACHINE)
    split["experts.up.dweight"] = ParallelConfig({"e": 4})
    rows = lower(graph, split, MACHINE)
    of_layer = [
        rows.launches[k].name == "experts.up.dweight" if k >= 0 else False for k in rows.launch
    ]
    work = rows.flops[of_layer]
    assert work.max() == pytest.approx(work.sum() * 2 / 3, rel=0.1)


def test_tokens_in_groups_move_by_all_to_all_alone() -> None:
    graph = layer(groups=4)
    task_graph = lower(graph, moe.expert_parallel(graph, MACHINE), MACHINE)
    moved = [
        k
        for k in np.flatnonzero(task_graph.kind == Kind.COPY).tolist()
        if is_between_devices(task_graph, k)
    ]
    tokens = [k for k in moved if len(task_graph.regions[int(task_graph.region[k])].shape) == 3]
    capacity = ceil(0.75 * CHOICES * BATCH * SEQUENCE / 4 / EXPERTS)
    slots_bytes = EXPERTS * 4 * capacity * HIDDEN * 8
    of_activations = {task_graph.regions[int(task_graph.region[k])].name for k in tokens}
    assert of_activations == {
        "experts.dispatch",
        "experts.down",
        "experts.combine.dx",
        "experts.up.dx",
    }
    assert sum(int(task_graph.bytes[k]) for k in tokens) == 4 * slots_bytes * 3 // 4


def is_between_devices(task_graph: Any, row: int) -> bool:
    return bool(task_graph.source[row] != task_graph.device[row])


@pytest.mark.parametrize(("factor", "groups"), [(0.5, 1), (0.5, 4), (1.0, 1), (None, 2)])
def test_every_choice_has_a_slot_or_is_counted(factor: float | None, groups: int) -> None:
    graph = layer(groups, factor)
    graph.output("slots", graph.regions["experts.slots" if factor else "experts.slots.0"])
    graph.output("y", graph.regions["experts.combine"])
    for rule in (single_device, moe.expert_parallel):
        with Executor(lower(graph, rule(graph, MACHINE), MACHINE), seed=3) as step:
            values = step(batches(1)[0])
        kept = values["slots"][values["slots"] >= 0]
        assert len(set(kept.tolist())) == kept.size  # nobody shares a slot
        assert kept.size + values["experts.dropped"] == BATCH * SEQUENCE * CHOICES
        assert (values["experts.dropped"] == 0) == (factor is None)
        lost = (values["slots"] < 0).all(-1)
        assert (values["y"][lost] == 0).all() and (values["y"][~lost] != 0).all()


REFUSED: list[tuple[Callable[[LogicalRegion, LogicalRegion], object], str]] = [
    (
        lambda x, i: ops.mixture_of_experts(x, 4, 3, k=5),
        "top_k_gate 'experts.top': k is 5, and 'experts.softmax' has shape (8, 4)",
    ),
    (
        lambda x, i: ops.mixture_of_experts(x, 4, 0),
        "mixture_of_experts 'experts': hidden_features is 0, a positive integer is needed",
    ),
    (
        lambda x, i: ops.mixture_of_experts(x, 4, 3, capacity_factor=0),
        "mixture_of_experts 'experts': capacity_factor is 0, a positive finite number is needed",
    ),
    (
        lambda x, i: ops.mixture_of_experts(x, 4, 3, groups=3),
        "expert_slots 'experts.slots': 'experts.top.1' is (8, 2), its dimension 0 does not divide into 3 groups",
    ),
    (
        lambda x, i: ops.expert_slots(x, 4, 3),
        "expert_slots 'expert_slots': choices 'x' is float32, an integer dtype is needed",
    ),
    (lambda x, i: ops.dispatch(x, i, 4, 3), "dispatch 'dispatch': 'x' is (8, 6) and 'i' is (3, 2)"),
    (
        lambda x, i: ops.combine(x, i, x),
        "combine 'combine': 'x' is (8, 6) in 1 groups, 'i' is (3, 2) and 'x' is (8, 6)",
    ),
    (
        lambda x, i: ops.expert_linear(x, 3),
        "expert_linear 'expert_linear': 'x' has shape (8, 6), 3 dimensions are needed",
    ),
    (
        lambda x, i: ops.load_balance_loss(x, i),
        "load_balance_loss 'balance': 'x' is (8, 6) and 'i' is (3, 2)",
    ),
    (
        lambda x, i: ops.mixture_of_experts(x, 4, 3, parts=3),
        "expert_load 'experts.balance.load': 'experts.top.1' is (8, 2), its dimension 0 does not divide into 3 parts",
    ),
    (
        lambda x, i: ops.expert_load(i, 4, parts=0),
        "expert_load 'expert_load': parts is 0, a positive integer is needed",
    ),
    (
        lambda x, i: ops.rotary_embedding(x),
        "rotary_embedding 'rotary_embedding': 'x' has shape (8, 6), at least three dimensions and an even extent of "
        "the last are needed",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refused(build: Callable[[LogicalRegion, LogicalRegion], object], message: str) -> None:
    graph = Graph()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build(graph.input("x", (8, 6)), graph.input("i", (3, 2), "int32"))
