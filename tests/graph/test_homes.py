"""Homes of parameters: fully sharded data parallelism in numbers, bytes and memory, and what it composes with."""

from dataclasses import replace

import numpy as np
import pytest

import ops
import taskflow
from taskflow import (
    CostModel,
    Graph,
    Kind,
    MachineModel,
    ParallelConfig,
    fully_sharded,
    homes,
    lower,
    recompute,
)
from taskflow.schedule import gpipe, one_f_one_b, zb_h1
from taskflow.schedule.orders import reorder
from taskflow.strategy.micro_batches import micro_batches
from taskflow.tasks.calls import is_by_library
from taskflow.tasks.memory import plan_memory
from tests import laws, tiny
from tests.lowered import transfers
from tests.simple_costs import SimpleCosts
from tests.strategies import Model, feeds_of

WIDTH, FOUR, FLOAT64 = 64, MachineModel.uniform(4), 8


def network(layers=4, samples=4, dtype="float64", half=None, **options):
    """Linear layers with biases, and Adam; few samples, so that activations are small beside weights."""
    graph = Graph()
    h = graph.input("x", (samples, WIDTH), dtype)
    for k in range(layers):
        h = ops.linear(ops.tanh(h, name=f"tanh{k}"), WIDTH, name=f"fc{k}")
    loss = ops.mean_squared_error(h, graph.input("t", (samples, WIDTH), dtype), name="loss")
    if half:
        graph = taskflow.precision(graph, half)
    ops.adam(graph.regions[loss.name], **options)
    return graph


def kept_bytes(rows):
    """Per device what it keeps between steps: parameters and states of the optimizer."""
    kept = sorted({instance for found in rows.homes.values() for instance, _ in found})
    found = np.bincount(
        rows.instance_device[kept], rows.instance_bytes()[kept], len(rows.machine.devices)
    )
    return found.astype(np.int64)


def transient_bytes(rows):
    """Per device what it needs beside that, with as little memory as will do."""
    tight = replace(rows, machine=rows.machine.with_rates(memory_bytes=1))
    return plan_memory(tight).peak_bytes - kept_bytes(rows)


def assert_one_device(graph, rows, tolerance=1e-12, plain=None):
    model = Model(graph, feeds_of(graph))
    expected = laws.one_device(Model(plain or graph, model.feeds), MachineModel.uniform(1), 3)
    laws.assert_close(laws.run(rows, model.feeds, 3, watch=True), expected, tolerance)


def is_of(name, k):
    """Whether a region is the weight of layer k as its readers see it, or its gradient."""
    return name.startswith(f"fc{k}.weight") or name == f"fc{k}.dweight.0"


def test_fully_sharded_data_parallelism():
    """A quarter of all lives on each device; weights are gathered, gathered again, and their gradients reduced."""
    count = 8
    plain = network(count)
    graph = homes(plain)
    assert not any("home" in op.name for op in plain.operators)
    rows = lower(graph, fully_sharded(graph, FOUR), FOUR)
    assert_one_device(graph, rows, plain=plain)
    whole = kept_bytes(lower(plain, taskflow.single_device(plain, FOUR), FOUR))[0]
    assert (kept_bytes(rows) <= whole * (1 / 4 + 0.02)).all()
    layer, activation = FLOAT64 * (WIDTH * WIDTH + WIDTH), FLOAT64 * WIDTH
    activations = activation * (
        2 * count + 4
    )  # tanh and fc of each layer, the input, the target and two gradients
    gradients = count * layer // 4  # a quarter of each lives until the update
    print(
        f"transient {transient_bytes(rows)}, a layer {layer}, activations {activations}, gradients {gradients}"
    )
    assert (transient_bytes(rows) <= 2 * layer + activations + gradients).all()
    assert (transient_bytes(rows) >= layer + gradients).all()
    weight = FLOAT64 * WIDTH * WIDTH
    sent = {name: size for name, size in transfers(rows).items() if name[0].startswith("fc")}
    assert {kind for _, kind in sent} == {"all-gather", "reduce-scatter"}
    of_weights = [
        sum(size for (name, _), size in sent.items() if is_of(name, k)) for k in range(count)
    ]
    assert of_weights == [3 * 2 * weight] + [3 * 3 * weight] * (
        count - 1
    )  # the input of fc0 needs no gradient
    biases = FLOAT64 * count * WIDTH  # no backward operator reads them
    assert sum(sent.values()) == sum(of_weights) + 3 * 2 * biases
    by_device = rows.bytes_moved_by_device()
    assert by_device.max() - by_device.min() <= 2 * FLOAT64 * 3  # the loss
    assert by_device.sum() == sum(sent.values()) + transfers(rows)["loss", "all-reduce"]


def test_what_was_gathered_dies_after_its_last_reader():
    """Program order alone gathers in time: a home stands right before the first reader, its clone right before the
    first backward one. Without clones it is kept: fewer bytes are moved, and more held."""
    plain = network()
    again, once = homes(plain), homes(plain, again=False)
    names = [op.name for op in again.operators]
    assert (
        names.index("fc2.weight.home") == names.index("fc2") - 2
    )  # between them is the home of the bias
    assert names.index("fc2.weight.home.again") == names.index("fc2.dx") - 1
    rows = {len(g.operators): lower(g, fully_sharded(g, FOUR), FOUR) for g in (once, again)}
    (kept, many), (gathered, few) = ((transient_bytes(r)[0], r.bytes_moved) for r in rows.values())
    layer = FLOAT64 * WIDTH * WIDTH
    assert kept - gathered > layer and few - many == 3 * 3 * layer
    assert_one_device(once, rows[len(once.operators)], plain=plain)
    assert homes(again).operators == again.operators  # once is enough
    assert [op.name for op in homes(once).operators] == names


def test_a_strategy_serves_the_graph_with_homes():
    """They follow their reader until they are named, and nothing is moved that was not before."""
    plain = network()
    graph = homes(plain)
    for rule in (taskflow.data_parallel, taskflow.model_parallel, taskflow.single_device):
        rows, more = lower(plain, rule(plain, FOUR), FOUR), lower(graph, rule(plain, FOUR), FOUR)
        assert more.bytes_moved == rows.bytes_moved
        assert kept_bytes(more).tolist() == kept_bytes(rows).tolist()
    assert fully_sharded(plain, FOUR) == taskflow.data_parallel(plain, FOUR)


def test_few_and_large_parameters_get_homes():
    graph = network()
    made = {
        op.name
        for op in homes(graph, least_bytes=FLOAT64 * WIDTH + 1).operators
        if op.name.endswith(".home")
    }
    assert made == {f"fc{k}.weight.home" for k in range(4)}
    assert [op.name for op in homes(graph, "fc1.bias").operators if ".home" in op.name] == [
        "fc1.bias.home"
    ]


def test_a_home_is_split_along_the_axis_that_has_equal_parts():
    graph = Graph()
    h = graph.input("x", (8, 12), "float64")
    for k, width in enumerate((10, 3, 1)):
        h = tiny.linear(h, width, f"fc{k}")
    tiny.sgd(tiny.mean_square(h))
    graph = homes(graph)
    strategy = fully_sharded(graph, FOUR)
    found = {
        name: dict(config.degrees) for name, config in strategy.items() if name.endswith(".home")
    }
    assert found == {
        "fc0.weight.home": {"i": 4},
        "fc1.weight.home": {"i": 4},
        "fc2.weight.home": {"i": 3},
    }
    assert_one_device(graph, lower(graph, strategy, FOUR))


@pytest.mark.parametrize("optimizer", [ops.sgd, ops.lamb, ops.rmsprop])
def test_a_weight_of_two_readers_and_clipped_gradients(optimizer):
    """The sum of the gradients, its squares, what is clipped and both operators of LAMB are split as the home is."""
    plain = Graph()
    indices = plain.input("i", (8,), "int32")
    table = ops.embedding(indices, 12, 8, name="table")
    y = ops.matmul(table, ops.transpose(plain.regions["table.weight"], (1, 0)))
    optimizer(ops.softmax_cross_entropy(y, indices, name="loss"), lr=0.1, clip_norm=0.5)
    graph = homes(plain)
    rows = lower(graph, fully_sharded(graph, FOUR), FOUR)
    whole = kept_bytes(lower(plain, taskflow.single_device(plain, FOUR), FOUR))[0]
    assert (kept_bytes(rows) <= whole / 4 + 64).all()
    model = Model(plain, feeds_of(plain, classes=12))
    one = laws.one_device(model, MachineModel.uniform(1), 2)
    laws.assert_close(laws.run(rows, model.feeds, 2, watch=True), one, 1e-4)


def test_homes_in_a_pipeline_with_micro_batches_and_recomputation():
    """Stages of two devices: a home has no samples, so it runs once a step, and a gathered weight serves them all."""
    plain = network(layers=4, samples=16)
    for again in (False, True):
        graph = homes(recompute(plain, "auto"), again=again)
        strategy = fully_sharded(graph, FOUR, taskflow.stages(graph, FOUR, 2, 4))
        assert strategy["fc0.weight.home"].devices == (0, 1) and strategy[
            "fc3.weight.home"
        ].devices == (2, 3)
        rows = lower(graph, strategy, FOUR)
        whole = kept_bytes(lower(plain, taskflow.stages(plain, FOUR, 2, 4), FOUR))
        assert (kept_bytes(rows) <= whole * 0.52).all()
        gathers = {
            n: size
            for (n, kind), size in transfers(rows).items()
            if kind == "all-gather" and "weight" in n
        }
        assert set(gathers.values()) == {
            FLOAT64 * WIDTH * WIDTH
        }  # half to each of two, whatever the micro-batches
        assert len(gathers) == (8 if again else 4)
        for order in (gpipe, one_f_one_b, zb_h1):
            assert_one_device(graph, reorder(rows, SimpleCosts(FOUR), order), plain=plain)


def test_a_table_of_the_first_and_the_last_stage_that_a_library_gathers_for_both_at_once():
    """It is held back for no layer of the last stage: that one is behind the first, whatever their lists say."""
    machine = MachineModel.preset("h100").take(4)
    plain = ops.models.gpt.build(
        batch=8, sequence=4, layers=3, hidden=8, heads=2, vocabulary=16, dropout=0.0, fused=True
    )
    graph = homes(plain, parts=4)
    cut = taskflow.stages(graph, machine, parts=4, cuts=["layer2.norm1"])
    rows = lower(graph, fully_sharded(graph, machine, cut), machine)
    both = [
        k for k in np.flatnonzero(rows.kind == Kind.COLLECTIVE) if stages_that_read(rows, k) == 2
    ]
    assert both
    ordered = reorder(rows, CostModel.analytic(machine), one_f_one_b)
    taskflow.check_plan(graph, ordered)


def stages_that_read(rows, row):
    """Of two devices each."""
    return len({int(d) // 2 for d in rows.device[rows.waiting_row[rows.dep_row == row]]})


def test_what_reads_after_an_update_reads_what_was_updated():
    graph = Graph()
    x = graph.input("x", (4, 3), "float64")
    w = tiny.parameter(graph, "w", (3,))
    graph.output("before", tiny.add_row(x, w, "before"))
    tiny.decay(w, tiny.column_sum(x))
    graph.output("after", tiny.add_row(x, w, "after"))
    other = homes(graph)
    read = [[r.name for r in other.operator(name).inputs] for name in ("before", "decay", "after")]
    assert read == [["x", "w.home"], ["w", "columns"], ["x", "w"]]
    assert_one_device(graph, lower(other, fully_sharded(other, FOUR), FOUR))


def test_inference_and_homes_before_the_optimizer():
    graph = Graph()
    y = ops.linear(graph.input("x", (4, WIDTH), "float64"), WIDTH, name="fc")
    graph.output("loss", ops.sum(y, (0, 1)))
    inference = homes(graph)
    rows = lower(inference, fully_sharded(inference, FOUR), FOUR)
    assert_one_device(graph, rows)
    assert (kept_bytes(rows) == FLOAT64 * (WIDTH * WIDTH + WIDTH) // 4).all()
    ops.sgd(inference.regions["sum"], lr=0.1, momentum=0.9)
    assert inference.operator("fc.weight.sgd").beside == "fc.weight"
    rows = lower(inference, fully_sharded(inference, FOUR), FOUR)
    assert {kind for (name, kind), _ in transfers(rows).items() if "dweight" in name} == {
        "reduce-scatter"
    }
    assert_one_device(inference, rows)


# -- under a precision policy ------------------------------------------------------------------------------------------


def half_bytes(graph, name):
    """Of a parameter in half precision."""
    return graph.regions[name].size_bytes // 2


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_casts_follow_the_update(clip_norm):
    """ZeRO by naming updates: the float32 master lives in quarters, and half of its bytes are gathered."""
    graph = network(samples=8, dtype="float32", half="bfloat16", clip_norm=clip_norm)
    strategy = taskflow.data_parallel(graph, FOUR)
    whole = kept_bytes(lower(graph, strategy, FOUR))[0]
    for op in graph.operators:
        if op.name.endswith(".adam"):
            strategy[op.name] = ParallelConfig({"o": 4})
    rows = lower(graph, strategy, FOUR)
    assert (kept_bytes(rows) <= whole * (1 / 4 + 0.02)).all()
    half = half_bytes(graph, "fc1.weight")
    sent = {
        kind: size
        for (name, kind), size in transfers(rows).items()
        if name in ("fc1.weight.bfloat16", "fc1.dweight.0")
    }
    assert sent == {"all-gather": 3 * half, "reduce-scatter": 3 * half}
    strategy["fc1.weight.bfloat16"] = ParallelConfig({}, (0,))  # what is named itself stays
    assert ("fc1.weight", "all-gather") not in transfers(rows)
    assert kept_bytes(lower(graph, strategy, FOUR))[0] > kept_bytes(rows)[0]


def test_the_cast_of_a_parameter_is_its_home():
    plain = network(samples=8, dtype="float32", half="bfloat16")
    graph = homes(plain)
    assert (
        len(graph.operators) == len(plain.operators) + 3
    )  # clones of the casts of weights, but for the first
    assert graph.operator("fc1.weight.home").outputs[0].name == "fc1.weight.bfloat16"
    rows = lower(graph, fully_sharded(graph, FOUR), FOUR)
    half = half_bytes(graph, "fc1.weight")
    sent = [
        size
        for (name, _), size in transfers(rows).items()
        if name.startswith(("fc1.weight", "fc1.dweight.0"))
    ]
    assert sent == [3 * half] * 3
    whole = kept_bytes(lower(plain, taskflow.data_parallel(plain, FOUR), FOUR))[0]
    assert (kept_bytes(rows) <= whole * (1 / 4 + 0.02)).all()
    feeds, strategy = feeds_of(plain), fully_sharded(graph, FOUR)
    found = laws.run(rows, feeds, 1, watch=True)
    expected = laws.run(lower(plain, taskflow.data_parallel(plain, FOUR), FOUR), feeds, 1)
    laws.assert_close(found, expected, 1e-3)
    assert strategy["fc1.weight.home"] == ParallelConfig({"o": 4})


def test_homes_are_slices_that_a_library_gathers_in_one_call():
    """A norm's vectors are cut as well, and of a wide matrix the slowest dimension, not the largest."""
    plain = Graph()
    x = plain.input("x", (8, 4 * WIDTH), "float64")
    h = ops.layer_norm(ops.linear(x, WIDTH, name="fc"), name="norm")
    ops.adam(ops.mean_squared_error(h, plain.input("t", h.shape, "float64")))
    graph, machine = homes(plain), MachineModel.preset("h100")
    strategy = fully_sharded(graph, machine)
    assert strategy["fc.weight.home"] == ParallelConfig({"o": 8})
    assert strategy["norm.weight.home"] == ParallelConfig({"o": 8})
    rows = lower(graph, strategy, machine)
    assert is_by_library(rows)[rows.kind == Kind.COLLECTIVE].all()
    assert (kept_bytes(rows) == kept_bytes(rows)[0]).all()
    assert_one_device(graph, lower(graph, fully_sharded(graph, FOUR), FOUR), plain=plain)
    sharded = taskflow.shard_state(plain, taskflow.data_parallel(plain, machine))
    assert sharded["fc.weight.adam"] == ParallelConfig({"o": 8})


@pytest.mark.parametrize("order", ["prefetch", "critical_path"])
def test_each_micro_batch_gathers_and_drops(order):
    """What is gathered is then that of two layers, and a quarter of all beside; else all, twice, until the last."""
    layers, parts, costs = 6, 3, SimpleCosts(FOUR)
    plain = network(layers, samples=12)
    found = []
    for gathers in (1, parts):
        graph = homes(plain, parts=gathers)
        strategy = micro_batches(graph, fully_sharded(graph, FOUR), parts)
        rows = reorder(lower(graph, strategy, FOUR), costs, order)
        taskflow.check_plan(graph, rows)
        assert_one_device(graph, rows, plain=plain)
        found.append((transient_bytes(rows)[0], gathered_bytes(rows)))
    (kept, few), (dropped, many) = found
    layer = FLOAT64 * (WIDTH * WIDTH + WIDTH)
    assert many == parts * few
    assert kept - dropped > layers * layer


def gathered_bytes(rows):
    """Bytes that bring parameters to other devices."""
    return sum(size for (name, kind), size in transfers(rows).items() if kind == "all-gather")


def test_a_plan_says_whether_each_micro_batch_gathers():
    plain, names = network(samples=8), [f"fc{k}.weight" for k in range(4)]
    plan = taskflow.Plan(
        taskflow.data_parallel(plain, FOUR), parts=2, schedule="prefetch", homes=names
    )
    graph = plan.transform(plain)
    plan = replace(plan, strategy=fully_sharded(graph, FOUR))
    each = gathered_bytes(plan.lower(plain, FOUR)[1])
    by_operator = [replace(plan, schedule=order) for order in (None, "program", "pieces:2")]
    for once in (replace(plan, gathers_again=False), *by_operator):
        graph = once.transform(plain)
        assert {op.gathers for op in graph.operators} == {1}
    assert each == 2 * gathered_bytes(replace(plan, schedule=None).lower(plain, FOUR)[1])
    assert_one_device(
        plan.transform(plain), plan.apply(plain, FOUR, SimpleCosts(FOUR))[1], plain=plain
    )
