"""Micro-batches and orders in a trainer: numbers of one step on one device, memory of one micro-batch."""

import numpy as np
import pytest

import ops
from taskflow import (
    Batches,
    CostModel,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    Trainer,
    data_parallel,
    lower,
    model_parallel,
    random_strategy,
    single_device,
    stages,
)
from taskflow.comm.transport import world_size
from taskflow.schedule import Policy, one_f_one_b, zb_h1
from taskflow.schedule.pipeline import pipeline_of
from taskflow.strategy.micro_batches import micro_batches
from taskflow.tasks.memory import plan_memory

BATCH, WIDTH = 64, 16


def network(training=True, parts=8, batch=BATCH):
    """Dropout's masks, running statistics, momentum."""
    graph = Graph()
    h = graph.input("x", (batch, WIDTH), "float64")
    for k in range(3):
        h = ops.linear(h, WIDTH, name=f"fc{k}")
        if parts:
            h = ops.batch_norm(h, training, parts=parts, name=f"bn{k}")
        h = ops.dropout(ops.relu(ops.layer_norm(h)), 0.2, training=training)
    loss = ops.softmax_cross_entropy(h, graph.input("t", (batch,), "int32"), name="loss")
    graph.output("loss", loss)
    if training:
        ops.sgd(loss, 0.1, momentum=0.9)
    return graph


def batches(seed=1):
    random = np.random.default_rng(seed)
    feeds = {
        "x": random.standard_normal((3 * BATCH, WIDTH)),
        "t": random.integers(0, WIDTH, 3 * BATCH),
    }
    return Batches(
        {
            name: value.astype("int32" if name == "t" else "float64")
            for name, value in feeds.items()
        },
        BATCH,
    )


def trained(strategy, devices=4, **options):
    """A trainer, and what three steps and an evaluation give."""
    machine = MachineModel.uniform(max(devices, world_size()))
    options = {"quiet": True, "seed": 3, "proposals": 30} | options
    trainer = Trainer(
        network(), machine=machine, strategy=strategy, costs=CostModel.analytic(machine), **options
    )
    history = trainer.fit(batches(), 1, validation=(network(training=False), batches(2)))
    found = {name: trainer.step.read(name) for name in trainer.step.persistent}
    return trainer, found | {
        "loss": history.outputs["loss"],
        "validation": history.validation["loss"],
    }


@pytest.fixture(scope="module")
def expected():
    return trained(single_device)[1]


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-10, err_msg=name)


def drawn(graph, machine):
    return random_strategy(graph, machine, 5)


def uneven(graph, machine):
    """Unequal parts of the samples."""
    found = data_parallel(graph, machine)
    found["fc1"] = ParallelConfig({"b": (0.5, 0.25, 0.25)}, (0, 1, 2))
    return found


def sharded(graph, machine):
    """Updates with configurations of their own."""
    updates = [op for op in graph.operators if op.name.endswith(".sgd") and op.split_axes]
    own = {op.name: ParallelConfig({op.split_axes[0]: 2}) for op in updates}
    return Strategy.of_graph(graph, {**data_parallel(graph, machine), **own})


RULES = [single_device, data_parallel, model_parallel, sharded, uneven, "search", data_parallel]


@pytest.mark.parametrize(
    ("rule", "parts"), [(rule, 2 + 2 * (k % 2)) for k, rule in enumerate(RULES)]
)
def test_micro_batches_change_no_number(rule, parts, expected):
    trainer, found = trained(rule, accumulate=parts)
    assert_same(found, expected)
    pipeline = pipeline_of(trainer.task_graph)
    assert pipeline.parts >= parts
    changes = np.diff(trainer.task_graph.ordinal[pipeline.stage >= 0])
    assert np.count_nonzero(changes < 0) == 0 or rule == "search"  # one micro-batch after the other


def test_any_strategy_in_any_order(expected):
    assert_same(trained(drawn, accumulate=2, order="program")[1], expected)


@pytest.mark.parametrize(
    "order",
    ["one_f_one_b", zb_h1, "searched", Policy.schedule],
    ids=("named", "policy", "searched", "list"),
)
def test_a_pipeline_is_trained(order, expected):
    def rule(graph, machine):
        return stages(graph, machine, 2, 4)

    if order is Policy.schedule:
        machine, graph = MachineModel.uniform(max(4, world_size())), network()
        order = one_f_one_b.schedule(pipeline_of(lower(graph, rule(graph, machine), machine)))
    assert_same(trained(rule, order=order)[1], expected)


def test_the_report_says_the_order(capsys):
    trainer, _ = trained(single_device, 1, accumulate=2, quiet=False)
    trainer.report()
    if trainer.transport.rank == 0:
        assert "plan: 2 micro-batches; schedule by_ordinal\n" in capsys.readouterr().out


def trainer_of(graph, strategy=single_device, devices=1, **options):
    machine = MachineModel.uniform(max(devices, world_size()))
    return Trainer(
        graph,
        machine=machine,
        strategy=strategy,
        costs=CostModel.analytic(machine),
        quiet=True,
        **options,
    )


@pytest.mark.parametrize("order", [None, "one_f_one_b"])
def test_memory_holds_one_micro_batch_and_gradients(order):
    def peak(batch, **options):
        graph = network(parts=0, batch=batch)
        gradients = sum(r.size_bytes for r in graph.parameters if r.role == "parameter")
        return plan_memory(trainer_of(graph, **options).task_graph).peak_bytes[0], gradients

    whole, _ = peak(1024)
    (found, gradients), (part, _) = peak(1024, accumulate=16, order=order), peak(64)
    print(f"{whole} bytes whole, {found} in 16 micro-batches, {part} of one")
    assert (
        found <= part + gradients + WIDTH**2 * 8 < 0.2 * whole
    )  # the last: of a part, about to be added
    assert peak(1024, accumulate=16, order="program")[0] > 0.5 * whole  # the order does it


def test_configurations_of_micro_batches():
    graph, machine = network(), MachineModel.uniform(4)
    found = micro_batches(graph, data_parallel(graph, machine), 4)
    assert found["fc0"] == ParallelConfig({"b": 16}, (0, 1, 2, 3) * 4)
    assert found["bn0"] == ParallelConfig({"m": 8, "b": 2}, (0, 1, 2, 3) * 4)
    turned = Strategy(
        {**single_device(graph, machine), "fc0": ParallelConfig({"o": 2, "b": 2}, (0, 1, 2, 3))}
    )
    assert micro_batches(graph, turned, 2)["fc0"] == ParallelConfig(
        {"b": 4, "o": 2}, (0, 2, 1, 3) * 2
    )
    assert micro_batches(graph, turned, 1) == turned
