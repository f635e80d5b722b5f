"""Training in half precision: law 1 within its tolerance, near float32, and what loss scaling does."""

import numpy as np
import pytest

import ops
import taskflow
from taskflow import (
    Executor,
    Graph,
    LossScale,
    MachineModel,
    ParallelConfig,
    Strategy,
    lower,
    single_device,
)
from tests import laws
from tests.strategies import Model, feeds_of, random_strategy

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2}  # a few roundings of 2**-11 and 2**-8


@pytest.fixture(params=["float16", "bfloat16"])
def half(request):
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return request.param


def perceptron(g):
    x, t = g.input("x", (8, 12)), g.input("t", (8,), "int32")
    h = ops.dropout(ops.layer_norm(ops.gelu(ops.linear(x, 10, name="fc1"))), 0.2)
    return ops.softmax_cross_entropy(ops.linear(h, 6, name="fc2"), t)


def convolutions(g):
    x, t = g.input("x", (6, 3, 8, 8)), g.input("t", (6,), "int32")
    h = ops.max_pool2d(ops.relu(ops.batch_norm(ops.conv2d(x, 5, 3, padding=1, name="conv"))), 2)
    h = ops.avg_pool2d(ops.relu(ops.conv2d(h, 4, 3, padding=1, name="conv_2")), 2)
    return ops.cross_entropy(ops.linear(ops.flatten(h), 4), t)


def transformer(g):
    tokens, t = g.input("tokens", (4, 6), "int32"), g.input("t", (4, 6), "int32")
    h = ops.embedding(tokens, 7, 8, name="table")
    h = ops.add(h, ops.multihead_attention(ops.layer_norm(h), 2, is_causal=True))
    h = ops.rms_norm(ops.add(h, ops.linear(ops.silu(ops.linear(h, 12)), 8)))
    return ops.softmax_cross_entropy(ops.linear(h, 7), t)


def recurrent(g):
    x, y = g.input("x", (4, 5, 6)), g.input("y", (4, 5, 7))
    return ops.mse_loss(ops.lstm(x, 7)[0], y)


def bags(g):
    words, y = g.input("words", (6, 3), "int32"), g.input("y", (6, 1))
    pooled = ops.embedding_bag(words, 9, 5)
    return ops.binary_cross_entropy_with_logits(
        ops.linear(ops.mean(ops.unsqueeze(pooled, 1), 1), 1), ops.sigmoid(y)
    )


MODELS = [perceptron, convolutions, transformer, recurrent, bags]


def trained(build, dtype, optimizer=ops.sgd, loss_scale="default", **options):
    graph = Graph()
    loss = build(graph)
    graph = taskflow.precision(graph, dtype, loss_scale)
    optimizer(graph.regions[loss.name], **{"lr": 0.05, **options})
    return Model(graph, feeds_of(graph))


def run(model, strategy=None, devices=4, steps=3, **options):
    machine = MachineModel.uniform(devices)
    strategy = strategy or single_device(model.graph, machine)
    return laws.run(lower(model.graph, strategy, machine), model.feeds, steps, **options)


@pytest.fixture(
    params=[(perceptron, "bfloat16"), (transformer, "bfloat16"), *((m, "float16") for m in MODELS)]
)
def build_and_half(request):
    """Every model in float16, two of them in bfloat16."""
    build, half = request.param
    if half == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return build, half


def test_any_strategy_is_one_device(build_and_half):
    build, half = build_and_half
    model = trained(build, half)
    expected, machine = run(model), MachineModel.uniform(4)
    for strategy in (
        taskflow.data_parallel(model.graph, machine),
        taskflow.model_parallel(model.graph, machine),
        *(random_strategy(model.graph, machine, seed) for seed in range(1)),
    ):
        laws.assert_close(run(model, strategy), expected, TOLERANCE[half])


def test_training_is_near_float32(build_and_half):
    build, half = build_and_half
    wide, narrow = run(trained(build, "float32")), run(trained(build, half))
    wide = {name: value for name, value in wide.items() if name in narrow}
    narrow = {name: value for name, value in narrow.items() if name in wide}
    laws.assert_close(narrow, wide, 2 * TOLERANCE[half])


def test_kernels_keep_to_their_privileges(build_and_half):
    build, half = build_and_half
    model = trained(build, half, ops.adam)
    laws.assert_equal(run(model, watch=True), run(model))


def test_wide_operators_compute_in_float32(half):
    """What they read is cast to float32 first, and what they make stays; the gradient is half again."""
    graph = Graph()
    x = graph.input("x", (4, 6))
    h = ops.linear(x, 8, name="fc")
    loss = ops.mean(ops.log_softmax(ops.linear(h, 5, name="head"), name="loss.levels"), name="loss")
    graph.output("loss", loss)
    made = taskflow.precision(graph, half, None, wide=["loss*"])
    ops.sgd(made.outputs["loss"], lr=0.1)
    dtypes = {op.name: {r.dtype for r in op.args} for op in made.operators}
    assert dtypes["head"] == {half} and dtypes["loss.levels"] == {"float32"} == dtypes["loss"]
    assert dtypes["loss.levels.dx"] == {"float32"} and dtypes["head.dx"] == {half}


def test_runs_are_the_same_to_the_bit(half):
    model = trained(transformer, half)
    machine = MachineModel.uniform(4)
    laws.runs_are_the_same(model, machine, random_strategy(model.graph, machine, 1))
    laws.any_order_is_the_same(model, machine, random_strategy(model.graph, machine, 2), 2)


@pytest.mark.parametrize("build", [perceptron, transformer])
def test_messages_are_half_as_large(build):
    moved = []
    for dtype in ("float32", "float16"):
        model, machine = trained(build, dtype, loss_scale=None), MachineModel.uniform(4)
        task_graph = lower(model.graph, taskflow.data_parallel(model.graph, machine), machine)
        moved.append(task_graph.bytes[task_graph.is_communication].sum())
    assert moved[1] < 0.7 * moved[0]  # biases, norms and embeddings have float32 gradients


# -- loss scaling ------------------------------------------------------------------------------------------------------

OPTIMIZERS = [
    (ops.sgd, {}),
    (ops.sgd, {"momentum": 0.9}),
    (ops.adam, {"clip_norm": 0.1}),
    (ops.adamw, {}),
    (ops.adagrad, {}),
    (ops.rmsprop, {"momentum": 0.9}),
    (ops.lamb, {}),
]


@pytest.mark.parametrize("optimizer, options", OPTIMIZERS)
def test_a_step_with_an_overflow_changes_the_scale_alone(optimizer, options):
    model = trained(perceptron, "float16", optimizer, LossScale(2.0**40), **options)
    before, after = run(model, steps=0), run(model, steps=1)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"loss_scale"}
    assert after["loss_scale"] == 2.0**39


def test_a_guarded_step_with_an_overflow_is_a_matter_of_the_scale():
    model, machine = (
        trained(perceptron, "float16", ops.adam, LossScale(2.0**40)),
        MachineModel.uniform(1),
    )
    with Executor(lower(model.graph, single_device(model.graph, machine), machine), seed=3) as step:
        step.guard_updates()
        step(model.feeds)
        assert not step.is_skipped and step.read("loss_scale") == 2.0**39


@pytest.mark.parametrize("optimizer, options", OPTIMIZERS)
def test_all_devices_skip_the_same_steps(optimizer, options):
    model = trained(
        perceptron,
        "float16",
        optimizer,
        LossScale(2.0**40, backoff=2.0**-32, interval=2),
        **options,
    )
    machine = MachineModel.uniform(4)
    expected = run(model, steps=6)
    for seed in range(2):
        found = run(model, random_strategy(model.graph, machine, seed), steps=6)
        laws.assert_close(found, expected, 5 * TOLERANCE["float16"])
        assert found["loss_scale"] == expected["loss_scale"]
    assert expected["loss_scale"] == 2.0**10  # once down, twice up


def test_the_scale_grows_after_finite_steps():
    model = trained(perceptron, "float16", loss_scale=LossScale(2.0, interval=3))
    machine = MachineModel.uniform(1)
    with Executor(lower(model.graph, single_device(model.graph, machine), machine)) as step:
        scales = [float(step.read("loss_scale")) for _ in range(7) if step(model.feeds)]
    assert scales == [2, 2, 4, 4, 4, 8, 8]


def test_a_fixed_scale_stays_and_gradients_are_clipped_without_it():
    plain = trained(perceptron, "bfloat16", loss_scale=None, clip_norm=0.1)
    scaled = trained(perceptron, "bfloat16", loss_scale=1024, clip_norm=0.1)
    expected, found = run(plain), run(scaled)
    assert found.pop("loss_scale") == 1024
    assert found.pop("finite_steps") == 3  # steps since the scale was changed
    laws.assert_equal(found, expected)  # 1024 is a power of two


def test_tiny_gradients_survive_by_the_scale():
    def build(g):
        return ops.multiply(perceptron(g), 1e-7)

    lost, kept = (
        trained(build, "float16", loss_scale=None),
        trained(build, "float16", loss_scale=2.0**20),
    )
    for model, is_changed in ((lost, False), (kept, True)):
        model.graph.output(
            "g",
            next(r for n, r in model.graph.regions.items() if n.startswith("fc1.weight.gradient")),
        )
        assert bool(np.any(run(model, steps=1)["g in step 0"])) == is_changed


def test_updates_and_casts_can_have_a_configuration_of_their_own(half):
    """Sharded masters: every device casts its tile, and the half tiles are gathered."""
    model, machine = trained(perceptron, half, ops.adam), MachineModel.uniform(2)
    strategy = taskflow.data_parallel(model.graph, machine)
    tiles = ParallelConfig({"o": 2}, (0, 1))
    own = [f"fc1.weight.{half}", "fc1.weight.gradient", "fc1.weight.adam"]
    own += ["fc1.weight.unscaled"] if half == "float16" else []
    strategy = Strategy({**strategy, **dict.fromkeys(own, tiles)})
    laws.assert_close(run(model, strategy, 2), run(model), TOLERANCE[half])


@pytest.mark.parametrize("optimizer", [ops.sgd, ops.adam, ops.lamb, ops.rmsprop])
@pytest.mark.parametrize("build", [perceptron, convolutions])
def test_the_norm_of_gradients_that_overflow_is_infinite_under_any_plan(build, optimizer):
    """Not that of the elements that are left, of which each plan has others."""
    model, machine = (
        trained(build, "float16", optimizer, LossScale(2.0**40), clip_norm=0.1),
        MachineModel.uniform(4),
    )
    strategies = [
        single_device(model.graph, machine),
        *(random_strategy(model.graph, machine, k) for k in range(3)),
    ]
    for strategy in strategies:
        with Executor(lower(model.graph, strategy, machine), seed=3) as step:
            assert step(model.feeds)["gradient_norm"] == np.inf
