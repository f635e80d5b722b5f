"""Operators that `taskflow.fuse` makes one of: which, and that the numbers are those of the graph before."""

from math import prod

import pytest

import ops
import taskflow
from taskflow import Graph, MachineModel, lower, single_device
from tests import laws, shim
from tests.ops.test_precision import TOLERANCE
from tests.sampling import IS_THOROUGH, crossed
from tests.strategies import Model, feeds_of, random_strategy

KINDS = ["float64", "float32", "float16", "bfloat16"]


def transformer(g, dtype):
    """Two residual layers behind layer norms; the first one reads its norm three times."""
    x, t = g.input("x", (4, 6, 8), dtype), g.input("t", (4, 6), "int32")
    h = ops.linear(x, 8, name="embed")
    for k in range(2):
        h = ops.add(h, attended(ops.layer_norm(h, name=f"norm{k}a"), k), name=f"add{k}a")
        a = ops.gelu(
            ops.linear(ops.layer_norm(h, name=f"norm{k}b"), 12, name=f"up{k}"), name=f"gelu{k}"
        )
        h = ops.add(h, ops.linear(a, 8, name=f"down{k}"), name=f"add{k}b")
    return ops.softmax_cross_entropy(
        ops.linear(ops.layer_norm(h, name="norm"), 7, name="fc"), t, name="loss"
    )


def attended(x, k):
    q, r, s = (ops.linear(x, 8, name=f"{name}{k}") for name in "qrs")
    return ops.linear(
        ops.multiply(ops.add(q, r, name=f"both{k}"), s, name=f"gate{k}"), 8, name=f"out{k}"
    )


def images(g, dtype):
    """A basic block of a ResNet."""
    x, t = g.input("x", (4, 3, 6, 6), dtype), g.input("t", (4,), "int32")
    h = ops.relu(normed(x, "stem"), name="stem.relu")
    y = ops.relu(normed(h, "a"), name="a.relu")
    h = ops.relu(ops.add(normed(y, "b"), h, name="add"), name="relu")
    return ops.softmax_cross_entropy(
        ops.linear(ops.global_avg_pool2d(h), 5, name="fc"), t, name="loss"
    )


def windows(g, dtype):
    """Convolutions and affine maps with their activations behind them, the last one with what its gradient reads."""
    x, t = g.input("x", (4, 3, 6, 6), dtype), g.input("t", (4,), "int32")
    h = ops.relu(ops.conv2d(x, 4, 3, padding=1, name="conv1"), name="relu1")
    h = ops.max_pool2d(ops.relu(ops.conv2d(h, 4, 3, 2, bias=False, name="conv2"), name="relu2"), 2)
    h = ops.relu(ops.linear(ops.flatten(h), 8, name="fc1"), name="relu3")
    h = ops.gelu(ops.linear(h, 8, name="fc2"), "tanh", name="gelu")
    return ops.softmax_cross_entropy(ops.linear(h, 5, name="fc"), t, name="loss")


def tied(g, dtype):
    """Words by a table that scores them, too: its gradients come from two operators."""
    x, t = g.input("x", (4, 6), "int32"), g.input("t", (4, 6), "int32")
    h = ops.layer_norm(ops.embedding(x, 7, 8, name="embed", dtype=dtype), name="norm")
    y = ops.einsum("bse,ve->bsv", h, g.regions["embed.weight"], name="fc")
    return ops.softmax_cross_entropy(y, t, name="loss")


def recurrent(g, dtype):
    """An LSTM and a GRU step by step: what comes from above is added to what comes from the next step."""
    x, y = g.input("x", (4, 5, 6), dtype), g.input("y", (4, 5, 7), dtype)
    h = ops.lstm(x, 7, name="lstm", group=1)[0]
    return ops.mse_loss(ops.gru(h, 7, name="gru", group=1)[0], y, name="loss")


def normed(x, name):
    return ops.batch_norm(
        ops.conv2d(x, 4, 3, padding=1, bias=False, name=name), name=f"{name}.norm"
    )


BUILDS = [transformer, images, windows, tied, recurrent]


def model_of(build, kind, optimizer=ops.adamw, **options):
    """A training graph whose losses are not scaled."""
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    graph = Graph()
    loss = build(graph, kind if kind == "float64" else "float32")
    graph = graph if kind == "float64" else taskflow.precision(graph, kind, None)
    optimizer(graph.regions[loss.name], **{"lr": 0.01, **options})
    return Model(graph, feeds_of(graph))


def fused(model):
    return Model(taskflow.fuse(model.graph), model.feeds)


def run(model, strategy=None, devices=1, steps=3, **options):
    machine = MachineModel.uniform(devices)
    strategy = strategy or single_device(model.graph, machine)
    return laws.run(lower(model.graph, strategy, machine), model.feeds, steps, **options)


def members(model):
    return {op.name: op.members for op in model.graph.operators if op.members}


def test_sums_before_and_behind_layer_norms_are_in_them():
    found = members(fused(model_of(transformer, "float32")))
    ends = [(f"add{k}a", f"norm{k}b") for k in range(2)] + [("add0b", "norm1a"), ("add1b", "norm")]
    assert {norm: found[norm] for _, norm in ends} == {norm: (add, norm) for add, norm in ends}
    gradients = {
        f"{add}.sum": (f"{norm}.sums", f"{norm}.dx", f"{add}.sum") for add, norm in ends[:-1]
    }
    assert {name: found[name] for name in gradients} == gradients
    assert found["norm1a.0.sum_2"] == ("norm1a.0.sum", "norm1a.0.sum_2"), (
        "of the three that read the norm"
    )
    graph = fused(model_of(transformer, "float32")).graph
    op = graph.operator("norm0b")
    assert [r.name for r in op.outputs][-1] == "add0a" and op.outputs[-1] in graph.operator(
        "norm1a"
    ).inputs


def test_what_is_behind_a_batch_norm_is_in_it():
    found = members(fused(model_of(images, "float32")))
    assert found["stem.relu"] == ("stem.norm", "stem.relu") and found["a.relu"] == (
        "a.norm",
        "a.relu",
    )
    assert found["relu"] == ("b.norm", "add", "relu")


def test_activations_are_in_what_they_are_behind():
    graph = fused(model_of(windows, "float32")).graph
    ends = [("conv1", "relu1"), ("conv2", "relu2"), ("fc1", "relu3"), ("fc2", "gelu")]
    assert [graph.operator(name).members for _, name in ends] == ends
    conv, relu = (model_of(windows, "float32").graph.operator(name) for name in ends[0])
    points = {op.name: prod(op.extents.values()) for op in (conv, relu)}
    work = conv.flops * points["conv1"] + relu.flops * points["relu1"]
    assert graph.operator("relu1").flops * points["conv1"] == pytest.approx(work)
    assert set(graph.operator("relu1").split_axes) == {*"nohw"}, "a part of a sum has no activation"
    assert [r.name for r in graph.operator("gelu").outputs] == ["gelu", "fc2"]


@pytest.mark.parametrize("build", [transformer, images, windows])
def test_casts_of_gradients_are_in_updates(build):
    model = fused(model_of(build, "float16"))
    found = members(model)
    names = [op.name for op in model.graph.operators]
    weights = [
        n.removesuffix(".adamw") for n in names if n.endswith(".weight.adamw") and "norm" not in n
    ]
    assert len(weights) > 3
    for name in weights:
        assert found[f"{name}.adamw"] == (f"{name}.gradient", f"{name}.adamw")
        assert model.graph.operator(f"{name}.adamw").inputs[1].dtype == "float16"


def test_a_sum_of_two_gradients_and_their_cast_are_in_the_update():
    """Words are looked up in the half copy that the product has, too."""
    name = "embed.weight"
    assert members(fused(model_of(tied, "float16")))[f"{name}.adamw"] == (
        *(f"{name}.{end}" for end in ("float16.sum", "gradient", "adamw")),
    )


def test_sums_of_gradients_are_in_those_of_cells():
    found = members(fused(model_of(recurrent, "float32")))
    assert found["lstm.l0.t0.cell.dx"] == ("lstm.l0.t0.cell.0.sum", "lstm.l0.t0.cell.dx")
    assert found["gru.l0.t0.cell.dx"] == tuple(
        f"gru.l0.t0.cell.{end}" for end in ("sum", "sum_2", "dx")
    )


def test_clipping_is_in_updates():
    found = members(fused(model_of(transformer, "float32", clip_norm=0.5)))
    assert found["fc.weight.adamw"] == ("fc.weight.clipped", "fc.weight.adamw")


@pytest.mark.parametrize(
    "build, kind, options",
    crossed(BUILDS, ["float64", "float32"], [{}, {}, {"clip_norm": 0.5}]),
)
def test_the_same_bits_under_any_strategy(build, kind, options):
    model, machine = model_of(build, kind, **options), MachineModel.uniform(4)
    other = fused(model)
    laws.assert_equal(run(other, watch=True), run(model))
    strategy = taskflow.data_parallel(model.graph, machine)
    shared = run(other, taskflow.data_parallel(other.graph, machine), 4)
    if build is tied:  # its gradients are added before they are summed, but not within an operator
        laws.assert_close(shared, run(model, strategy, 4), 1e-6)
    else:
        laws.assert_equal(shared, run(model, strategy, 4))
    for seed in range(2) if kind == "float64" else ():
        laws.any_strategy_is_one_device(
            other, machine, random_strategy(other.graph, machine, seed), 2
        )


@pytest.mark.parametrize("build, kind", crossed(BUILDS, [*TOLERANCE]))
@pytest.mark.slow
def test_in_half_there_are_fewer_roundings_under_any_strategy(build, kind):
    model = model_of(
        build, kind, ops.sgd
    )  # others divide gradients by their size, and so roundings
    other, machine = fused(model), MachineModel.uniform(4)
    found = run(other)
    laws.assert_close(found, run(model), TOLERANCE[kind])
    for seed in range(2 if IS_THOROUGH else 1):
        laws.assert_close(
            run(other, random_strategy(other.graph, machine, seed), 4), found, TOLERANCE[kind]
        )


def test_updates_alone_give_the_same_bits_in_half():
    def mlp(g, dtype):
        x, t = g.input("x", (6, 8), dtype), g.input("t", (6,), "int32")
        return ops.softmax_cross_entropy(
            ops.linear(ops.linear(x, 5, name="fc1"), 4, name="fc2"), t, name="loss"
        )

    for optimizer in (ops.sgd, ops.adam, ops.adamw):
        model = model_of(mlp, "float16", optimizer)
        assert members(fused(model))
        laws.assert_equal(run(fused(model)), run(model))


@pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
@pytest.mark.parametrize("build, kind", crossed(BUILDS, KINDS))
def test_on_a_gpu_they_give_the_numbers_of_numpy(build, kind):
    """The graph before on NumPy, the fused one by the kernels as C++."""
    tolerance = TOLERANCE.get(kind) or {"float64": 1e-10, "float32": 3e-4}[kind]
    model, machine = model_of(build, kind), MachineModel.uniform(1).with_rates(kind="cuda")
    other, backend = fused(model), shim.ShimStreams()
    rows = lower(other.graph, single_device(other.graph, machine), machine)
    found = laws.run(rows, model.feeds, 3, backend=backend, record=False)
    laws.assert_close(found, run(model), tolerance)
