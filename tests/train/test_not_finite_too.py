"""More ways in which a step meets what is not finite, or fails: it changes nothing, and what is fine goes on."""

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Graph,
    Kernel,
    data_parallel,
    differentiate,
    lower,
    offload,
    recompute,
    reorder,
    schedule,
    single_device,
    stages,
    update,
)
from tests.train.test_not_finite import (
    LOSS,
    assert_nothing_changes,
    executor,
    feeds,
    network,
    on,
    state,
)

KINDS = ["cpu", "emulated", "cuda"]
X = np.ones((8, 6), np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [recompute, offload])
def test_values_that_are_made_again_or_moved_away(make, kind):
    graph, machine = make(network(), ["norm", "fc2"]), on(2, kind)
    with executor(lower(graph, data_parallel(graph, machine), machine), kind) as step:
        assert_nothing_changes(step, feeds(), feeds(bad=np.nan), LOSS)


@pytest.mark.parametrize("policy", schedule.POLICIES)
def test_every_schedule(policy):
    graph, machine = Graph(), on(2, "cpu")
    h, t = graph.input("x", (8, 6)), graph.input("t", (8,), "int32")
    for k in range(8):
        h = ops.relu(ops.linear(h, 6, name=f"fc{k}"))
    ops.adam(ops.softmax_cross_entropy(h, t), 0.1, clip_norm=1.0)
    groups = {
        "zb_v": [(0,), (1,), (0,)],
        "interleaved": [(0,), (1,), (0,), (1,)],
        "looped_bfs": [(0,), (1,), (0,), (1,)],
    }
    plan = stages(graph, machine, devices=groups.get(policy, [(0,), (1,)]), parts=4)
    rows = reorder(lower(graph, plan, machine), CostModel.analytic(machine), policy)
    with executor(rows) as step:
        assert_nothing_changes(step, feeds(), feeds(bad=np.inf), LOSS)


def _step(ctx, w, gradient):
    w -= 0.1 * gradient


def _count(ctx, x, count, y):
    count += 1
    ctx.xp.copyto(y, x)


def custom():
    """An update of one's own, and a count that the forward pass keeps."""
    graph = Graph()
    x, w, seen = (
        graph.input("x", (8, 6)),
        graph.parameter("w", (6,), 1.0),
        graph.parameter("seen", (), trainable=False),
    )
    y = graph.launch(
        "count",
        "^b ^i, . -> b i",
        [x, seen],
        kernel=_count,
        writes=[seen],
        backward=lambda op, g: (g, None),
    )
    loss = graph.output("loss", ops.mean(ops.multiply(y, w)))
    gradient = differentiate(loss, [w])[w]
    update("own", w, [w, gradient], kernel=Kernel(_step), writes=[w])
    return graph


@pytest.mark.parametrize("kind", ["cpu", "emulated"])
def test_updates_of_ones_own(kind):
    graph, machine = custom(), on(2, kind)
    with executor(lower(graph, single_device(graph, machine), machine), kind) as step:
        assert_nothing_changes(step, {"x": X}, {"x": X * np.nan}, LOSS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_metric_may_be_what_it_is(kind):
    graph = network()
    graph.output("ratio", ops.log(ops.mean(ops.multiply(graph.regions["x"], 0.0))))
    machine = on(2, kind)
    with executor(lower(graph, data_parallel(graph, machine), machine), kind) as step:
        before = state(step)
        assert not np.isfinite(step(feeds())["ratio"]) and step.steps == 1
        assert state(step) != before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fc1.weight", "fc2.bias"])
def test_parameters_that_the_user_made_infinite(kind, name):
    graph, machine = network(), on(2, kind)
    with executor(lower(graph, data_parallel(graph, machine), machine), kind) as step:
        step(feeds())
        kept = step.read(name)
        step.write(name, np.full(kept.shape, np.nan, np.float32))
        before = state(step)
        with pytest.raises(FloatingPointError, match=r"nothing has changed$"):
            step(feeds())
        assert state(step) == before
        step.write(name, kept)
        step(feeds())


@pytest.mark.parametrize("kind", KINDS)
def test_a_norm_that_overflows(kind):
    """Every gradient is finite, the sum of their squares is not."""
    graph, machine = Graph(), on(2, kind)
    w = graph.parameter("w", (6,), 1.0)
    ops.adam(ops.mean(ops.multiply(graph.input("x", (8, 6)), w)), 0.1, clip_norm=1.0)
    with executor(lower(graph, data_parallel(graph, machine), machine), kind) as step:
        step({"x": X})
        before = state(step)
        with pytest.raises(FloatingPointError, match=r"nothing has changed$"):
            step({"x": X * 1e30})
        assert state(step) == before


@pytest.mark.parametrize("rule", [single_device, data_parallel])
@pytest.mark.parametrize("optimizer", [ops.sgd, ops.adam])
def test_a_rate_that_fails(rule, optimizer):
    """A schedule gives what is no rate: nothing is updated, neither by the old rate."""
    graph, machine = (
        network(optimizer, lr=lambda steps: np.nan if steps == 2 else 0.1),
        on(2, "cpu"),
    )
    with executor(lower(graph, rule(graph, machine), machine)) as step:
        step(feeds())
        before = state(step)
        with pytest.raises(ValueError, match=r"schedule: lr\(\d\) is nan"):
            for _ in range(3):
                before = state(step)
                step(feeds())
        assert state(step) == before
