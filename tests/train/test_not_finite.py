"""A step on what is not finite changes nothing, whoever runs it: parameters, moments, statistics and steps stay."""

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Device,
    Executor,
    Graph,
    LossScale,
    MachineModel,
    data_parallel,
    fully_sharded,
    homes,
    lower,
    precision,
    reorder,
    schedule,
    single_device,
    stages,
)
from tests import kept
from tests.fake_gpu.streams import FakeStreams
from tests.refusals import assert_refused
from tests.sampling import crossed
from tests.train.test_on_nan import eager_rows

KINDS = ["cpu", "emulated", "cuda"]


def network(optimizer=ops.adamw, batch=8, **options):
    """With a batch norm, whose statistics are updated in the forward pass."""
    graph = Graph()
    x, t = graph.input("x", (batch, 6)), graph.input("t", (batch,), "int32")
    h = ops.relu(ops.batch_norm(ops.linear(x, 8, name="fc1"), name="norm"))
    h = ops.relu(ops.linear(h, 8, name="fc2"))
    optimizer(ops.softmax_cross_entropy(ops.linear(h, 4, name="fc3"), t), **{"lr": 0.01, **options})
    return graph


def feeds(seed=0, batch=8, bad=None):
    random = np.random.default_rng(seed)
    x = random.standard_normal((batch, 6)).astype(np.float32)
    if bad is not None:
        x[batch // 2, 3] = bad
    return {"x": x, "t": random.integers(0, 4, batch).astype(np.int32)}


def state(step):
    return {name: step.read(name).tobytes() for name in step.persistent} | {"steps": step.steps}


def executor(rows, kind="cpu", **options):
    return Executor(
        rows, seed=1, **({"backend": FakeStreams()} if kind == "cuda" else {}), **options
    )


def assert_nothing_changes(step, good, bad, message):
    """A good step, a bad one that is refused with this message, and a good one again, which changes something."""
    step(good)
    before = state(step)
    assert_refused(message, lambda: step(bad), FloatingPointError)
    assert state(step) == before
    step(good)
    assert state(step) != before


def on(count, kind):
    return MachineModel.uniform(count, Device(kind=kind))


LOSS = "step 1: the loss is nan; nothing has changed"


@pytest.mark.parametrize(
    "optimizer, value, kind",
    crossed(
        [ops.sgd, ops.adam, ops.lamb, ops.rmsprop] * 3,
        [np.nan, np.inf, -np.inf],
        [*KINDS, "cuda", "cpu"],
    ),
)
def test_feeds(kind, value, optimizer):
    graph, machine = network(optimizer), on(2, kind)
    with executor(lower(graph, data_parallel(graph, machine), machine), kind) as step:
        assert_nothing_changes(step, feeds(), feeds(bad=value), LOSS)


@pytest.mark.parametrize(
    "options", [{"capture": False}, {"record": True}, {"record": False}, {"watch": True}]
)
def test_ways_to_run_on_a_gpu(options):
    graph, machine = network(), on(2, "cuda")
    with executor(lower(graph, data_parallel(graph, machine), machine), "cuda", **options) as step:
        step(feeds())  # captured after it
        assert_nothing_changes(step, feeds(), feeds(bad=np.nan), LOSS.replace("1", "2"))


@pytest.mark.parametrize("kind", KINDS)
def test_sharded_states(kind):
    graph, machine = homes(network()), on(4, kind)
    with executor(lower(graph, fully_sharded(graph, machine), machine), kind) as step:
        assert_nothing_changes(step, feeds(), feeds(bad=np.nan), LOSS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [schedule.gpipe, schedule.one_f_one_b, schedule.first_ready])
def test_pipelines(kind, order):
    graph, machine = Graph(), on(2, kind)
    h, t = graph.input("x", (8, 6)), graph.input("t", (8,), "int32")
    for k in range(4):
        h = ops.relu(ops.linear(h, 6, name=f"fc{k}"))
    ops.adam(ops.softmax_cross_entropy(h, t), 0.1)
    plan = stages(graph, machine, count=2, parts=4)
    rows = reorder(lower(graph, plan, machine), CostModel.analytic(machine), order)
    with executor(rows, kind) as step:
        assert_nothing_changes(step, feeds(), feeds(bad=np.nan), LOSS)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_in_one(kind):
    """All of a call are given up, though the first of them was fine."""
    graph, machine = network(), on(2, kind)
    rows = lower(graph, data_parallel(graph, machine), machine, repeat=3)

    def several(*bad):
        each = [feeds(k, bad=value) for k, value in enumerate(bad)]
        return {name: np.stack([one[name] for one in each]) for name in ("x", "t")}

    with executor(rows, kind) as step:
        step(several(None, None, None))
        for bad in ((None, None, np.nan), (np.nan, None, None), (None, np.inf, None)):
            before = state(step)
            with pytest.raises(
                FloatingPointError, match=r"^step 3: the loss is \[.*\]; nothing has changed$"
            ):
                step(several(*bad))
            assert state(step) == before
        step(several(None, None, None))
        assert step.steps == 6


@pytest.mark.parametrize("kind", KINDS)
def test_updates_before_all_gradients_are_there(kind):
    rows, x = eager_rows(kind)
    with executor(rows, kind) as step:
        assert_nothing_changes(step, {"x": x}, {"x": x * np.nan}, LOSS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_alone(kind):
    """The loss is finite, and the gradient of a square root at 0 is not."""
    graph, machine = Graph(), on(2, kind)
    w, b = graph.parameter("w", (3,), 1.0), graph.parameter("b", (3,), 1.0)
    roots = ops.sqrt(ops.multiply(graph.input("x", (4, 3)), w))
    ops.adam(ops.mean(ops.multiply(roots, b)), 0.01)
    good, message = (
        np.ones((4, 3), np.float32),
        "step 1: the gradient of 'w' is not finite; nothing has changed",
    )
    bad = good.copy()
    bad[2, 1] = 0.0
    with executor(lower(graph, data_parallel(graph, machine), machine), kind) as step:
        assert_nothing_changes(step, {"x": good}, {"x": bad}, message)


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_two_losses(kind):
    graph, machine = Graph(), on(2, kind)
    x, y = graph.input("x", (4, 3)), graph.input("y", (4, 3))
    ops.sgd(ops.mean(ops.linear(x, 2, name="one")), 0.1, parameters="one.*", name="first")
    ops.adam(ops.mean(ops.linear(y, 2, name="two")), 0.1, parameters="two.*", name="second")
    good, message = (
        np.ones((4, 3), np.float32),
        "step 1: the second.loss is nan; nothing has changed",
    )
    with executor(lower(graph, data_parallel(graph, machine), machine), kind) as step:
        assert_nothing_changes(
            step, {"x": good, "y": good}, {"x": good, "y": good * np.nan}, message
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_scaled_loss_that_is_not_finite(kind):
    """Not even the scale changes; a gradient that overflows alone is a matter of the scale."""
    graph, machine = Graph(), on(1, kind)
    x, t = graph.input("x", (8, 6)), graph.input("t", (8,), "int32")
    loss = ops.softmax_cross_entropy(ops.linear(ops.batch_norm(x, name="norm"), 4, name="fc"), t)
    half = precision(graph, "float16", LossScale(2.0**8))
    ops.adam(half.regions[loss.name], 0.01)
    with executor(lower(half, single_device(half, machine), machine), kind) as step:
        assert_nothing_changes(step, feeds(), feeds(bad=np.nan), LOSS)


def test_who_allows_nan_gets_it():
    graph, machine = network(), on(1, "cpu")
    with executor(lower(graph, single_device(graph, machine), machine), allow_nan=True) as step:
        assert np.isnan(step(feeds(bad=np.nan))["loss"]) and np.isnan(step.read("fc1.weight")).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_a_trainer(kind):
    trainer = kept.trainer(
        machine=on(2, kind), executor={"backend": FakeStreams()} if kind == "cuda" else {}
    )
    good = next(iter(kept.batches().epoch(0)))
    bad = good | {"x": lambda rect: np.full(rect.shape, np.nan, np.float32)}
    assert_nothing_changes(trainer.step, good, bad, LOSS)
    trainer.fit(kept.batches(), 1)
    assert_nothing_changes(trainer.step, good, bad, LOSS.replace("1", str(trainer.step.steps + 1)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [2, 4])
def test_moments_of_micro_batches(kind, parts):
    """AdamA adds to its moments while gradients are made, on several devices to the same ones."""
    graph, machine = Graph(), on(2, kind)
    h, t = graph.input("x", (8, 6)), graph.input("t", (8,), "int32")
    h = ops.relu(ops.linear(h, 8, name="fc1"))
    ops.adama(ops.softmax_cross_entropy(ops.linear(h, 4, name="fc2"), t), parts, 0.01)
    with executor(
        lower(graph, stages(graph, machine, count=1, parts=parts // 2), machine), kind
    ) as step:
        assert_nothing_changes(step, feeds(), feeds(bad=np.nan), LOSS)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_that_are_updated_by_rows(kind):
    graph, machine = Graph(), on(2, kind)
    x, t, i = (
        graph.input("x", (8, 6)),
        graph.input("t", (8,), "int32"),
        graph.input("i", (8,), "int32"),
    )
    h = ops.concat([x, ops.embedding(i, 64, 6, name="table")], 1)
    ops.sgd(ops.softmax_cross_entropy(ops.linear(h, 4, name="fc"), t), 0.1)
    indices = {"i": np.arange(8, dtype=np.int32)}
    with executor(lower(graph, data_parallel(graph, machine), machine), kind) as step:
        assert_nothing_changes(step, feeds() | indices, feeds(bad=np.nan) | indices, LOSS)
