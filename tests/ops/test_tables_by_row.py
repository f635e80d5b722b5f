"""Tables that are updated by the rows that a step looks up (`ops.tables.rows`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ops
from taskflow import (
    Executor,
    Graph,
    Kind,
    LogicalRegion,
    MachineModel,
    ParallelConfig,
    Strategy,
    TaskGraph,
    check_plan,
    data_parallel,
    lower,
    random_strategy,
    single_device,
)
from tests import shim
from tests.refusals import assert_refused

from .interpreter import Array

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
ROWS, WIDTH, BATCH, BAG = 60, 6, 8, 3
SAME = {
    "sgd": lambda loss: ops.sgd(loss, 0.1),
    "scheduled": lambda loss: ops.sgd(loss, lambda step: 0.1 / (step + 1)),
    "adagrad": lambda loss: ops.adagrad(loss, 0.1, lr_decay=0.2, initial_accumulator_value=0.5),
}
LAZY: dict[str, Any] = {"lr": 0.1, "betas": (0.8, 0.99), "eps": 1e-6}


@dataclass(frozen=True)
class Tables:
    """A model with a table of bags, and one of which two operators look up rows."""

    graph: Graph
    gradients: dict[LogicalRegion, LogicalRegion]
    by_row: set[str]


def tables(
    optimizer: Callable[[LogicalRegion], Any], rows: int = ROWS, dtype: str = "float64"
) -> Tables:
    graph = Graph()
    bags, one = graph.input("bags", (BATCH, BAG), "int32"), graph.input("one", (BATCH,), "int64")
    bag = ops.embedding_bag(bags, rows, WIDTH, name="bag", mode="mean", dtype=dtype)
    first = ops.embedding(one, rows, WIDTH, name="twice", dtype=dtype)
    other = look_up_again(graph, first, bags)
    y = ops.linear(ops.add(ops.tanh(ops.multiply(bag, first)), ops.sum(other, 1)), 5, name="fc")
    gradients = optimizer(ops.softmax_cross_entropy(y, graph.input("t", (BATCH,), "int32")))
    by_row = {
        op.inputs[0].name for op in graph.operators if op.kernel.function.__name__ == "_update"
    }
    return Tables(graph, gradients, by_row)


def look_up_again(graph: Graph, looked_up: LogicalRegion, indices: LogicalRegion) -> LogicalRegion:
    """Rows of the table that the operator of `looked_up` reads."""
    op = graph.producer(looked_up)
    assert op is not None
    pattern = "b l, v e -> b l e"
    y = graph.launch(
        "again", pattern, [indices, op.inputs[1]], kernel=op.kernel, backward=op.backward
    )
    assert isinstance(y, LogicalRegion)
    return y


DENSE: dict[str, Callable[[LogicalRegion], Any]] = {
    "sgd": lambda loss: ops.sgd(loss, 0.1, clip_norm=1e30),
    "scheduled": lambda loss: ops.sgd(loss, lambda step: 0.1 / (step + 1), clip_norm=1e30),
    "adagrad": lambda loss: ops.adagrad(
        loss, 0.1, 0.2, initial_accumulator_value=0.5, clip_norm=1e30
    ),
}


def feeds(seed: int) -> dict[str, Array]:
    """Rows of a few, so that some are looked up often."""
    random = np.random.default_rng(seed)
    return {
        "bags": random.integers(0, ROWS, (BATCH, BAG)).astype("int32"),
        "one": random.integers(0, 5, BATCH),
        "t": random.integers(0, 5, BATCH).astype("int32"),
    }


def train(
    model: Tables, strategy: Strategy, machine: MachineModel, steps: int = 3, **options: Any
) -> dict[str, Array]:
    with Executor(lower(model.graph, strategy, machine), seed=0, **options) as step:
        for k in range(steps):
            step(feeds(k))
        kept = [r.name for r in model.graph.regions.values() if r.role in ("parameter", "state")]
        return {name: step.read(name) for name in kept}


def differences(a: dict[str, Array], b: dict[str, Array]) -> dict[str, float]:
    assert b.keys() - a.keys() <= {"gradient_norm"}
    return {name: float(np.abs(a[name] - b[name]).max()) for name in a}


@pytest.mark.parametrize("name", SAME)
@given(seed=st.integers(0, 10_000), devices=st.integers(1, 5))
def test_any_strategy_gives_what_whole_gradients_give(name: str, seed: int, devices: int) -> None:
    model, machine = tables(SAME[name]), MachineModel.uniform(devices)
    assert model.by_row == {"bag.weight", "twice.weight"}
    dense = tables(DENSE[name])
    assert not dense.by_row
    wanted = train(dense, single_device(dense.graph, machine), machine)
    strategy = random_strategy(model.graph, machine, seed)
    check_plan(model.graph, lower(model.graph, strategy, machine))
    found = differences(train(model, strategy, machine), wanted)
    assert max(found.values()) < 1e-12, found


def bytes_of(task_graph: TaskGraph) -> dict[str, int]:
    """Region -> bytes that cross between devices."""
    found: dict[str, int] = {}
    for row, _, _, size in task_graph.hops().T.tolist():
        found[task_graph[row].name] = found.get(task_graph[row].name, 0) + size
    return found


@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("bag", [1, 4])
def test_a_row_and_an_index_are_moved_for_every_look_up_and_no_table(
    devices: int, bag: int
) -> None:
    """Under data parallelism: every device gets those of the others, duplicates, too. A bag has one row."""
    graph, machine = Graph(), MachineModel.uniform(devices)
    words = graph.input("words", (64, bag), "int32")
    y = ops.embedding_bag(words, 5000, 16, name="bag", dtype="float64")
    t = graph.input("t", y.shape, "float64")
    ops.sgd(ops.mse_loss(y, t), 0.1)
    rows = graph.operator("bag.weight.sgd").inputs[2].name
    task_graph = lower(graph, data_parallel(graph, machine), machine)
    moved = bytes_of(task_graph)
    assert moved.keys() == {rows, "mse_loss"}
    assert moved[rows] == (devices - 1) * 64 * 16 * 8
    fed = [task.bytes for task in task_graph if task.kind is Kind.FEED and task.name == "words"]
    assert sum(fed) == devices * 64 * bag * 4  # an index is fed to whoever reads it


def test_a_whole_gradient_is_made_where_it_is_wanted() -> None:
    model = tables(SAME["sgd"])
    makers = {"bag.dweight", "twice.dweight", "again.dweight", "twice.weight.sum"}
    assert makers.isdisjoint(op.name for op in model.graph.operators)
    assert makers.isdisjoint(model.graph.regions)
    for name in ("bag", "twice"):
        parameter = model.graph.regions[f"{name}.weight"]
        model.graph.output(name, model.gradients[parameter])
    assert makers <= {op.name for op in model.graph.operators}
    machine = MachineModel.uniform(3)
    task_graph = lower(model.graph, data_parallel(model.graph, machine), machine)
    check_plan(model.graph, task_graph)
    with Executor(task_graph, seed=0) as step:
        before = {name: step.read(f"{name}.weight") for name in ("bag", "twice")}
        values = step(feeds(0))
        for name, was in before.items():
            np.testing.assert_allclose(
                step.read(f"{name}.weight"), was - 0.1 * values[name], rtol=1e-12, atol=1e-15
            )
            assert np.abs(values[name]).max() > 1e-3


def adam_of_rows(p: Array, m: Array, v: Array, g: Array, rows: Array, t: int) -> None:
    """One lazy step on the rows that were looked up."""
    m[rows] = 0.8 * m[rows] + (1 - 0.8) * g[rows]
    v[rows] = 0.99 * v[rows] + (1 - 0.99) * g[rows] ** 2
    p[rows] -= 0.1 / (1 - 0.8**t) * m[rows] / (np.sqrt(v[rows]) / np.sqrt(1 - 0.99**t) + 1e-6)


@pytest.mark.parametrize("rows", [5, ROWS])
def test_lazy_adam_changes_what_is_looked_up(rows: int) -> None:
    """Whether there are fewer look-ups than rows or not."""
    model = tables(lambda loss: ops.adam(loss, sparse=True, **LAZY), rows=rows)
    assert model.by_row == {"bag.weight", "twice.weight"}
    model.graph.output("gradient", model.gradients[model.graph.regions["bag.weight"]])
    machine = MachineModel.uniform(4)
    strategy = data_parallel(model.graph, machine)
    strategy["bag"] = ParallelConfig({"b": 2, "v": 2}, (0, 1, 2, 3))
    with Executor(lower(model.graph, strategy, machine), seed=0) as step:
        p = step.read("bag.weight")
        m, v = np.zeros_like(p), np.zeros_like(p)
        for t in range(1, 5):
            fed = {name: value % rows if name != "t" else value for name, value in feeds(t).items()}
            g = step(fed)["gradient"]
            adam_of_rows(p, m, v, g, np.unique(fed["bags"]), t)
            np.testing.assert_allclose(step.read("bag.weight"), p, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(step.read("bag.weight.adam_m"), m, rtol=1e-12, atol=1e-16)
        np.testing.assert_allclose(step.read("bag.weight.adam_v"), v, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda loss: ops.sgd(loss, 0.1, momentum=0.9),
        lambda loss: ops.sgd(loss, 0.1, weight_decay=0.1),
        lambda loss: ops.sgd(loss, 0.1, clip_norm=1.0),
        lambda loss: ops.adagrad(loss, 0.1, weight_decay=0.1),
        lambda loss: ops.adam(loss),
        lambda loss: ops.rmsprop(loss),
    ],
    ids=["momentum", "decay", "clipped", "adagrad decay", "adam", "rmsprop"],
)
def test_what_changes_all_rows_has_whole_gradients(
    optimizer: Callable[[LogicalRegion], Any],
) -> None:
    assert not tables(optimizer).by_row


def test_few_rows_and_tied_weights_have_whole_gradients() -> None:
    assert tables(SAME["sgd"], rows=BATCH * BAG + 1).by_row == {
        "bag.weight"
    }  # of which others look up more
    assert not tables(SAME["sgd"], rows=BATCH * BAG).by_row
    graph = Graph()
    words = graph.input("words", (4, 2), "int32")
    h = ops.embedding(words, 50, 6, name="words.table", dtype="float64")
    weight = graph.regions["words.table.weight"]
    y = ops.einsum("bse,ve->bsv", h, weight, name="head")
    ops.sgd(ops.softmax_cross_entropy(y, graph.input("t", (4, 2), "int32")), 0.1)
    assert "words.table.dweight" in {op.name for op in graph.operators}


def test_lazy_adam_refuses_what_reaches_all_rows() -> None:
    message = "adam: sparse goes with no clip_norm and no loss scale: these reach all rows"
    assert_refused(message, lambda: tables(lambda loss: ops.adam(loss, sparse=True, clip_norm=1.0)))
    decayed = ops.ParameterGroup("bag.*", weight_decay=0.1)
    message = "adam: 'bag.weight' has weight_decay 0.1, which reaches all rows"
    assert_refused(
        message, lambda: tables(lambda loss: ops.adam(loss, sparse=True, groups=[decayed]))
    )


def test_a_table_without_decay_is_updated_by_rows_beside_others_with_one() -> None:
    bare = ops.ParameterGroup("bag.*", weight_decay=0.0)
    assert tables(lambda loss: ops.sgd(loss, 0.1, weight_decay=0.1, groups=[bare])).by_row == {
        "bag.weight"
    }


@pytest.mark.parametrize("name", SAME)
def test_equal_runs_are_equal_to_the_bit(name: str) -> None:
    machine = MachineModel.uniform(3)
    one, other = (
        train(model, data_parallel(model.graph, machine), machine)
        for model in (tables(SAME[name], dtype="float32") for _ in range(2))
    )
    assert all((one[key] == other[key]).all() for key in one)


@needs_compiler
@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("name", SAME)
def test_kernels_of_gpus_give_the_numbers_of_numpy(name: str, devices: int) -> None:
    model, machine = tables(SAME[name]), MachineModel.uniform(devices)
    wanted = train(model, single_device(model.graph, machine), machine)
    strategy = random_strategy(model.graph, machine, 3)
    backend = shim.ShimStreams()
    found = train(model, strategy, machine.with_rates(kind="cuda"), backend=backend)
    assert max(differences(found, wanted).values()) < 1e-12


def test_the_work_of_a_look_up_is_priced_by_its_rows() -> None:
    graph, machine = Graph(), MachineModel.uniform(2)
    y = ops.embedding(graph.input("words", (8,), "int32"), 1000, 16, name="table")
    ops.sgd(ops.mse_loss(y, graph.input("t", y.shape)), 0.1)
    strategy = data_parallel(graph, machine)
    rows = 4 * 16 * 4  # bytes of those of one device
    priced = {
        task.name: task.bytes for task in lower(graph, strategy, machine) if task.kind is Kind.POINT
    }
    assert priced["table"] == 4 * 4 + 2 * rows
    assert priced["table.weight.sgd"] == 8 * 4 + 2 * 2 * rows + 4
    strategy["table"] = ParallelConfig(
        {"v": 500}, (0,) * 500
    )  # two rows each, of which no more can be touched
    priced = {
        task.name: task.bytes for task in lower(graph, strategy, machine) if task.kind is Kind.POINT
    }
    assert priced["table"] == 8 * 4 + 2 * 64 + 8 * 64
