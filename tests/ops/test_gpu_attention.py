"""Fused attention on a GPU: by a stand-in of cuDNN, and by own kernels as C++, some queries at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ops
from ops.attention import linear_attention
from ops.cuda import attention as gpu_attention
from ops.cuda import flash
from taskflow import Graph, ParallelConfig, ring, single_device
from tests import laws, shim
from tests.fake_cudnn import CudnnStreams
from tests.ops.test_gpu_cudnn import TOLERANCE, done, on_numpy, run, trained
from tests.strategies import Model, strategies

pytestmark = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def heads(
    queries=6, keys=6, is_causal=True, precision="float32", dtype="float32", width=8, alibi=False
):
    """Attention of two heads between two layers that learn, and a loss."""
    graph = Graph()
    x, m = graph.input("x", (2, queries, 8), dtype), graph.input("m", (2, keys, 8), dtype)
    k, v = (ops.reshape(ops.linear(m, width), (2, keys, 2, width // 2)) for _ in range(2))
    q = ops.reshape(ops.linear(x, width), (2, queries, 2, width // 2))
    y = ops.fused_attention(q, k, v, is_causal, name="a", alibi=alibi)
    return trained(graph, ops.linear(ops.reshape(y, (2, queries, width)), 3), precision)


@pytest.mark.parametrize(
    "queries, keys, is_causal", [(6, 6, False), (6, 6, True), (7, 5, True), (5, 7, True)]
)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_attention_goes_by_cudnn(precision, queries, keys, is_causal):
    if precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    model, backend = heads(queries, keys, is_causal, precision), CudnnStreams()
    laws.assert_close(run(model, backend), on_numpy(model), TOLERANCE[precision])
    assert [len(graph.tensors) for graph in backend.cudnn.plans] == [5, 9]
    kinds = [kind for kind, _ in backend.cudnn.executed]
    assert set(kinds) == {"sdpa"} and len(kinds) == 2 * 4  # in the trial and three steps


def test_what_cudnn_sees_of_heads_that_lie_beside_each_other():
    model, backend = heads(precision="float16"), CudnnStreams()
    run(model, backend)
    forward, backward = backend.cudnn.plans
    point, row = ([2, 2, 6, 4], [48, 4, 8, 1]), ([2, 2, 6, 1], [12, 6, 1, 1])
    assert [(t.dim, t.stride) for t in forward.tensors] == [point, point, point, point, row]
    assert [(t.dim, t.stride) for t in backward.tensors] == [point, point, row, *[point] * 6]
    assert {t.data_type for t in forward.tensors[:4]} == {"float16"} and forward.tensors[
        4
    ].data_type == "float32"


@pytest.mark.parametrize("degrees", [{"c": 3}, {"h": 2, "n": 2}, {"c": 2, "h": 2}], ids=str)
def test_a_part_of_the_queries_sees_the_keys_up_to_it(degrees):
    """Queries behind the first ones: the last of them sees all keys that are passed."""
    model, backend = heads(precision="float16"), CudnnStreams()
    machine = laws.MachineModel.uniform(4)
    strategy = single_device(model.graph, machine)
    names = dict(zip("nch", model.graph.operator("a").outputs[0].axes))
    count = int(np.prod(list(degrees.values())))
    axes = {names[axis]: n for axis, n in degrees.items()}
    strategy["a"] = ParallelConfig(axes, devices=tuple(range(count)))
    laws.assert_close(run(model, backend, machine, strategy), on_numpy(model), TOLERANCE["float16"])
    assert done(backend) == {"sdpa"}


@pytest.mark.parametrize("precision, is_causal", [("float16", True), ("float32", False)])
def test_rounds_around_a_ring_go_by_cudnn_or_own_kernels(precision, is_causal):
    """Of two parts on two devices, one of which has a block from each end where there is a mask."""
    plain = heads(8, 8, is_causal, precision)
    model, backend = Model(ring(plain.graph, 2), plain.feeds), CudnnStreams()
    machine = laws.MachineModel.uniform(2)
    strategy = single_device(model.graph, machine)
    axis = model.graph.operator("a").split_axes[1]
    devices = (0, 1, 1, 0) if is_causal else (0, 1)
    strategy["a"] = ParallelConfig({axis: len(devices)}, devices)
    numbers = run(model, backend, machine, strategy)
    laws.assert_close(numbers, on_numpy(plain), TOLERANCE[precision])
    assert ("sdpa" in done(backend)) == (precision == "float16")


@pytest.mark.parametrize("block_bytes", [1, 400, 1 << 20])
@pytest.mark.parametrize(
    "queries, keys, is_causal, precision",
    [
        (6, 6, True, "float16"),
        (5, 7, False, "bfloat16"),
        *((q, k, q > k, "float32") for q, k in ((7, 5), (5, 7))),
    ],
)
def test_some_queries_at_a_time(queries, keys, is_causal, precision, block_bytes, monkeypatch):
    """Of heads that no kernel of its own takes."""
    if precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    monkeypatch.setattr(gpu_attention, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(flash, "_MOST_FEATURES", 0)
    model = heads(queries, keys, is_causal, precision)
    laws.assert_close(run(model, shim.ShimStreams()), on_numpy(model), TOLERANCE[precision])


@pytest.mark.parametrize("queries, keys, is_causal", [(6, 6, True), (5, 7, False)])
def test_linear_biases_go_by_neither_cudnn_nor_flash(queries, keys, is_causal, monkeypatch):
    """Some queries at a time, on devices that have a part of the heads and queries."""
    monkeypatch.setattr(gpu_attention, "_BLOCK_BYTES", 200)
    model, backend = heads(queries, keys, is_causal, "float16", alibi=True), CudnnStreams()
    machine = laws.MachineModel.uniform(4)
    strategy = single_device(model.graph, machine)
    _, c, h, _ = model.graph.operator("a").outputs[0].axes
    strategy["a"] = ParallelConfig({c: 2, h: 2}, devices=(0, 1, 2, 3))
    laws.assert_close(run(model, backend, machine, strategy), on_numpy(model), TOLERANCE["float16"])
    assert "sdpa" not in done(backend)
    plain = on_numpy(heads(queries, keys, is_causal, "float16"))
    with pytest.raises(AssertionError):  # the biases are no rounding
        laws.assert_close(on_numpy(model), plain, TOLERANCE["float16"])


def test_linear_biases_of_scores_on_a_gpu():
    """Of three heads, of which one device has the last; the numbers are those of NumPy."""
    graph = Graph()
    q, k, v = (graph.input(n, (2, 5, 3, 4), "float32") for n in "qkv")
    y = ops.scaled_dot_product_attention(ops.linear(q, 4), k, v, True, name="a", alibi=True)
    model = trained(graph, ops.reshape(y, (2, 60)), "float32")
    machine = laws.MachineModel.uniform(2)
    strategy = single_device(model.graph, machine)
    strategy["a"] = ParallelConfig({q.axes[2]: 2}, devices=(0, 1))
    laws.assert_close(run(model, shim.ShimStreams(), machine, strategy), on_numpy(model), 1e-5)


@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_heads_are_moved_in_vectors_where_they_are_wide_enough(precision, monkeypatch):
    monkeypatch.setattr(flash, "_MOST_FEATURES", 0)
    launched = []
    plain = shim.ShimStreams.kernel
    monkeypatch.setattr(
        shim.ShimStreams,
        "kernel",
        lambda self, source, name: launched.append(name) or plain(self, source, name),
    )
    model = heads(5, 7, False, precision, width=32)
    laws.assert_close(run(model, shim.ShimStreams()), on_numpy(model), TOLERANCE[precision])
    assert {name for name in launched if "gather" in name or "scatter" in name} == {
        f"{kind}_8_{precision}" for kind in ("gather_heads", "scatter_heads", "scatter_sums")
    }


def test_float32_is_refused_and_goes_the_other_way(caplog):
    model, backend = heads(), CudnnStreams()
    laws.assert_close(run(model, backend), on_numpy(model), 1e-5)
    assert not done(backend) and len(caplog.records) == 2


@pytest.mark.slow
@settings(max_examples=max(1, settings().max_examples // 8))
@given(data=st.data(), seed=st.integers(0, 99), precision=st.sampled_from(["float16", "float32"]))
def test_any_strategy_gives_the_numbers_of_numpy(data, seed, precision):
    queries, keys = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    model = heads(queries, keys, data.draw(st.booleans()), precision)
    machine, strategy = data.draw(strategies(model.graph, 4))
    laws.assert_close(
        run(model, CudnnStreams(seed), machine, strategy), on_numpy(model), TOLERANCE[precision] * 4
    )


def test_the_numpy_kernels_take_some_queries_at_a_time(monkeypatch):
    model = heads(dtype="float64")
    whole = on_numpy(model)
    monkeypatch.setattr(linear_attention, "_BLOCK_BYTES", 1)
    laws.assert_close(on_numpy(model), whole)


def test_a_fused_operator_does_the_work_of_two_products():
    """2 for the scores, 2 for the weighted sum, times the features; 5 products for the gradient; causal ones half."""
    model = heads(precision="float32")
    found = {op.name: op.total_flops for op in model.graph.operators}
    scores = 2 * 2 * (6 * 7 // 2)  # of every query with the keys up to its own
    assert found["a"] == pytest.approx(2 * scores * (4 + 4))
    assert found["a.dx"] == pytest.approx(5 * scores * (4 + 4))
