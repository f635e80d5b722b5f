"""Sequences beyond the table of cases: steps that share weights, masks of tiles, and what is refused."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import ops
from ops.attention import linear_attention
from taskflow import (
    Constant,
    Graph,
    LogicalRegion,
    MachineModel,
    ParallelConfig,
    Strategy,
    data_parallel,
    differentiate,
    lower,
)

from .cases_sequences import slopes_of_heads
from .interpreter import first_values, run
from .test_operators import slopes

# -- one gradient of shared weights ------------------------------------------------------------------------------------


def unrolled(steps: int = 4) -> tuple[Graph, LogicalRegion]:
    graph = Graph()
    hs, _ = ops.lstm_steps([graph.input(f"x{t}", (4, 3), "float64") for t in range(steps)], 2)
    return graph, ops.sum(ops.multiply(ops.concat(hs, 1), ops.concat(hs, 1)), name="loss")


def test_one_operator_makes_the_gradient_of_all_steps() -> None:
    graph, loss = unrolled()
    ops.sgd(loss, 0.1)
    names = [op.name for op in graph.operators if op.name.startswith("lstm.l0.d")]
    assert names == ["lstm.l0.dweight_ih", "lstm.l0.dweight_hh", "lstm.l0.dbias"]


def test_data_parallel_sums_each_gradient_once() -> None:
    graph, loss = unrolled()
    ops.sgd(loss, 0.1)
    machine = MachineModel.uniform(2)
    task_graph = lower(graph, data_parallel(graph, machine), machine)
    gradients = (
        sum(r.size_bytes for r in graph.parameters) - graph.regions["lstm.l0.bias_hh"].size_bytes
    )
    assert (
        task_graph.bytes_moved - 2 * gradients <= 4 * 8
    )  # besides, scalars: loss, its gradient, the learning rate


def test_gradients_are_right_after_another_differentiation() -> None:
    """The first one, of a late input, visits late steps only and leaves their parts behind."""
    graph, loss = unrolled()
    early = ops.sum(graph.regions["lstm.l0.t1.cell.0"], name="early")
    differentiate(loss, [graph.regions["x2"]])
    count = len(graph.operators)
    gradients = differentiate(early, graph.parameters)
    values = first_values(graph)
    results = run(graph, values)
    for region, gradient in gradients.items():
        expected = slopes(graph, values, "early", region.name, count)
        np.testing.assert_allclose(
            results[gradient.name], expected, rtol=1e-6, atol=1e-7, err_msg=region.name
        )


@pytest.mark.parametrize("way", [{}, {"fused": True}])
def test_the_last_cell_state_alone_may_be_differentiated(way: dict[str, bool]) -> None:
    graph = Graph()
    x = graph.input("x", (2, 3, 2), "float64")
    _, [(_, c)] = ops.lstm(x, 2, **way)
    for name in ("once", "again"):  # the second time, nothing is left of the first
        loss = ops.sum(c, name=name)
        count = len(graph.operators)
        gradients = differentiate(loss, graph.parameters)
        values = first_values(graph)
        results = run(graph, values)
        for region, gradient in gradients.items():
            expected = slopes(graph, values, name, region.name, count)
            np.testing.assert_allclose(
                results[gradient.name], expected, rtol=1e-6, atol=1e-7, err_msg=region.name
            )


def test_weights_shared_by_two_sequences_that_start_from_one_state() -> None:
    graph = Graph()
    x, h, c = (graph.input(name, (3, 2), "float64") for name in "xhc")
    weights = ops.recurrent_weights(graph, "shared", 4, 2, 2, dtype="float64")
    state = ops.lstm_cell(x, h, c, weights)
    ends = [ops.lstm_cell(ops.multiply(x, factor), *state, weights)[0] for factor in (0.5, -2.0)]
    loss = ops.sum(ops.multiply(*ends), name="loss")
    count = len(graph.operators)
    gradients = differentiate(loss, [x, *graph.parameters])
    values = first_values(graph)
    results = run(graph, values)
    for region, gradient in gradients.items():
        expected = slopes(graph, values, "loss", region.name, count)
        np.testing.assert_allclose(
            results[gradient.name], expected, rtol=1e-6, atol=1e-7, err_msg=region.name
        )


def test_keywords_of_older_releases_warn() -> None:
    graph = Graph()
    with pytest.warns(FutureWarning, match=r"lstm\(ahead=\.\.\.\) .* fused=True"):
        made, _ = ops.lstm(graph.input("x", (2, 3, 2)), 2, ahead=True)
    assert made.shape == (2, 3, 2)
    image, ones = graph.input("image", (2, 3, 4, 4)), Constant(1.0)
    with pytest.warns(FutureWarning, match="use weight_init= and bias_init="):
        ops.conv_transpose2d(image, 2, 3, name="up", inits=(ones, None))
    assert graph.regions["up.weight"].init == ones
    assert graph.regions["up.bias"].init != ones


def test_steps_of_a_group_follow_the_first() -> None:
    graph = Graph()
    ops.lstm(graph.input("x", (2, 5, 3)), 2, group=2)
    follows = {op.name: op.follows for op in graph.operators if op.name.startswith("lstm.l0.t")}
    assert {name: leader for name, leader in follows.items() if not name.endswith("cell")} == {
        "lstm.l0.t0": None,
        "lstm.l0.t1": "lstm.l0.t0",
        "lstm.l0.t2": None,
        "lstm.l0.t3": "lstm.l0.t2",
        "lstm.l0.t4": None,
    }
    assert follows["lstm.l0.t3.cell"] == "lstm.l0.t2"


def test_a_hidden_split_gives_every_device_all_gates_of_its_units() -> None:
    graph = Graph()
    ops.lstm_cell(*(graph.input(name, (2, 6)) for name in "xhc"), name="cell")
    machine = MachineModel.uniform(2)
    task_graph = lower(graph, Strategy({"cell.t0": ParallelConfig({"h": 2})}), machine)
    held = [rect.shape for _, rect in task_graph.homes["cell.weight_ih"]]
    assert held == [(4, 3, 6)] * 2


# -- attention ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "degrees", [{"s": 3}, {"s": 2, "k": 2}, {"t": 3, "d": 2}, {"s": 5, "t": 5}], ids=str
)
def test_the_mask_knows_no_partition(degrees: dict[str, int]) -> None:
    graph = Graph()
    x = graph.input("x", (2, 5, 4), "float64")
    ops.multihead_attention(ops.multiply(x, 1.0), 2, is_causal=True, name="a")
    values = first_values(graph)
    whole, split = run(graph, values), run(graph, values, {"a.scores": ParallelConfig(degrees)})
    assert np.isneginf(whole["a.scores"]).sum() == 2 * 2 * 10
    for name in whole:
        np.testing.assert_allclose(split[name], whole[name], rtol=1e-12, atol=1e-12, err_msg=name)


def test_published_slopes_of_linear_biases() -> None:
    """Of 8 and 12 heads, as Press et al. and their `get_slopes` have them."""
    eight = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    between = [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    np.testing.assert_array_equal(ops.alibi_slopes(8), eight)
    np.testing.assert_allclose(ops.alibi_slopes(12), eight + between, rtol=1e-15)
    for heads in range(1, 40):
        np.testing.assert_allclose(ops.alibi_slopes(heads), slopes_of_heads(heads), rtol=1e-13)


@pytest.mark.parametrize(
    "attend",
    [
        ops.scaled_dot_product_attention,
        ops.memory_linear_attention,
        ops.fused_attention,
        partial(ops.packed_attention, lengths=(2, 3)),
    ],
)
def test_linear_biases_know_no_partition(attend: Callable[..., LogicalRegion]) -> None:
    """Splits of every axis, and of heads with each: samples, queries, keys, and features as partial sums."""
    graph, is_packed = Graph(), isinstance(attend, partial)
    shape = (5, 3, 4) if is_packed else (2, 5, 3, 4)
    q, k, v = (graph.input(name, shape, "float64") for name in "qkv")
    y = attend(q, k, v, is_causal=True, name="a", alibi=True)
    differentiate(ops.sum(ops.multiply(y, y)), [q, k, v])
    values = first_values(graph)
    whole = run(graph, values)
    heads, axes = q.axes[-2], graph.operator("a").split_axes
    for degrees in ({heads: 3} | {axis: 2} for axis in axes):
        split = run(graph, values, {"a": ParallelConfig(degrees)})
        for name in whole:
            np.testing.assert_allclose(split[name], whole[name], 1e-12, 1e-12, err_msg=name)


@pytest.mark.parametrize("degrees", [{"s": 3}, {"t": 2, "s": 2}, {"t": 5, "h": 2}], ids=str)
def test_some_queries_at_a_time_are_all_queries(
    degrees: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph()
    q, k, v = (graph.input(name, (2, 5, 2, 3), "float64") for name in "qkv")
    y = ops.memory_linear_attention(q, k, v, is_causal=True)
    differentiate(ops.sum(ops.multiply(y, y)), [q, k, v])
    values = first_values(graph)
    whole = run(graph, values)
    monkeypatch.setattr(linear_attention, "_BLOCK_BYTES", 1)
    leader = graph.operator("attention")
    names = dict(zip(("n", "s", "h"), leader.outputs[1].axes, strict=True))
    split = run(
        graph,
        values,
        {"attention": ParallelConfig({names.get(a, a): n for a, n in degrees.items()})},
    )
    for name in whole:
        np.testing.assert_allclose(split[name], whole[name], rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_gru_makes_the_gradient_of_its_weights_once_for_all_steps() -> None:
    graph = Graph()
    hs, _ = ops.gru_steps([graph.input(f"x{t}", (4, 3), "float64") for t in range(4)], 2)
    loss = ops.sum(ops.multiply(hs[3], hs[1]), name="loss")
    early = ops.sum(hs[1], name="early")
    differentiate(loss, [graph.regions["x3"]])  # visits the last step only
    count = len(graph.operators)
    gradients = differentiate(early, graph.parameters)
    names = [
        op.name
        for op in graph.operators[count:]
        if ".d" in op.name and op.name.startswith("gru.l0.d")
    ]
    assert names == ["gru.l0.dweight_hh", "gru.l0.dbias_hh", "gru.l0.dweight_ih", "gru.l0.dbias_ih"]
    values = first_values(graph)
    results = run(graph, values)
    for region, gradient in gradients.items():
        expected = slopes(graph, values, "early", region.name, count)
        np.testing.assert_allclose(
            results[gradient.name], expected, rtol=1e-6, atol=1e-7, err_msg=region.name
        )


# -- refused -----------------------------------------------------------------------------------------------------------


def regions() -> dict[str, Any]:
    graph = Graph()
    return {
        "x": graph.input("x", (5, 3)),
        "cube": graph.input("cube", (2, 5, 3)),
        "image": graph.input("image", (2, 3, 5, 5)),
        "i": graph.input("i", (5, 2), "int32"),
        "scalar": graph.input("scalar", ()),
        "n": graph.input("n", (), "int32"),
    }


REFUSED: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (
        lambda r: ops.matmul(r["x"], r["x"]),
        "matmul 'matmul': 'x' is (5, 3) and 'x' is (5, 3), which do not agree",
    ),
    (
        lambda r: ops.matmul(r["x"], r["scalar"]),
        "matmul 'matmul': 'scalar' has shape (), at least two dimensions are needed",
    ),
    (
        lambda r: ops.bmm(r["x"], r["cube"]),
        "bmm 'bmm': 'x' has shape (5, 3), 3 dimensions are needed",
    ),
    (
        lambda r: ops.einsum("bi,bi", r["x"], r["x"]),
        "einsum 'einsum': 'bi,bi' is not an equation of two operands, such as 'bij,bjk->bik'",
    ),
    (
        lambda r: ops.einsum("bi,bj->b", r["x"], r["x"]),
        "einsum 'einsum': 'i' stands in one term of 'bi,bj->b' only",
    ),
    (
        lambda r: ops.slice(r["x"], 1, 2, 4, name="s"),
        "slice 's': the section 2:4 is empty or outside of 'x', (5, 3)",
    ),
    (
        lambda r: ops.split(r["x"], [1, 1], 1),
        "split 'split': sections (1, 1) do not add up to dim 1 of 'x', (5, 3)",
    ),
    (
        lambda r: ops.split(r["x"], 0),
        "split 'split': split_size is 0, a positive integer is needed",
    ),
    (lambda r: ops.sum(r["x"], 2), "sum 'sum': dim is 2, the region has 2 dimensions"),
    (
        lambda r: ops.mean(r["x"], (1, -1)),
        "mean 'mean': dim (1, -1) names a dimension of 'x' twice",
    ),
    (
        lambda r: ops.global_avg_pool2d(r["x"]),
        "global_avg_pool2d 'global_avg_pool2d': 'x' has shape (5, 3), 4 dimensions are needed",
    ),
    (
        lambda r: ops.embedding_bag(r["n"], 3, 2),
        "embedding_bag 'embedding_bag': 'n' has shape (), at least one dimension is needed",
    ),
    (
        lambda r: ops.gather_rows(r["cube"], r["i"]),
        "gather_rows 'gather_rows': 'cube' is (2, 5, 3) and 'i' is (5, 2), not (batch, picks)",
    ),
    (
        lambda r: ops.position_embedding(r["scalar"]),
        "position_embedding 'position_embedding': 'scalar' has shape (), at least two dimensions are needed",
    ),
    (
        lambda r: ops.binary_cross_entropy_with_logits(r["x"], r["scalar"], name="loss"),
        "binary_cross_entropy_with_logits 'loss': 'x' is (5, 3) and 'scalar' is ()",
    ),
    (
        lambda r: ops.perplexity(r["x"]),
        "perplexity 'perplexity': 'x' has shape (5, 3), it is a scalar",
    ),
    (
        lambda r: ops.dot_interaction([r["x"]]),
        "dot_interaction 'dot_interaction': at least two regions are needed",
    ),
    (
        lambda r: ops.lstm_cell(r["x"], r["cube"], r["cube"]),
        "lstm_cell 'lstm_cell': 'x' is (5, 3), 'cube' is (2, 5, 3) and 'cube' is (2, 5, 3)",
    ),
    (
        lambda r: ops.lstm_cell(
            r["x"], r["x"], r["x"], ops.recurrent_weights(r["x"].graph, "w", 4, 3, 4)
        ),
        "lstm_cell 'w': the weights are for 3 inputs and 4 hidden units, 'x' is (5, 3) and 'x' is (5, 3)",
    ),
    (lambda r: ops.lstm_steps([], 4), "lstm 'lstm': 0 steps and 0 states were given for 1 layers"),
    (lambda r: ops.lstm(r["x"], 4), "lstm 'lstm': 'x' has shape (5, 3), 3 dimensions are needed"),
    (
        lambda r: ops.lstm(r["cube"], 0),
        "lstm 'lstm': hidden_size is 0, a positive integer is needed",
    ),
    (
        lambda r: ops.lstm(r["cube"], 4, group=2, fused=True),
        "lstm 'lstm': group is 2, but fused steps are one operator",
    ),
    (
        lambda r: ops.multihead_attention(r["cube"], 2),
        "multihead_attention 'attention': 3 features do not divide into 2 heads",
    ),
    (
        lambda r: ops.scaled_dot_product_attention(r["image"], r["image"], r["cube"]),
        "scaled_dot_product_attention 'attention': 'cube' has shape (2, 5, 3), 4 dimensions are needed",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refused(build: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(message)}$"):
        build(regions())
