"""Offload: the same bits, less memory where it is computed, more where it is kept, back in time."""

import pytest

import ops
import taskflow
from taskflow import Graph, MachineModel, ParallelConfig, homes, lower, offload, recompute
from tests import laws
from tests.graph.test_homes import FLOAT64, transient_bytes
from tests.lowered import transfers
from tests.strategies import Model, feeds_of

TWO, WIDTH, SAMPLES = MachineModel.uniform(2), 16, 512
SIZE = FLOAT64 * SAMPLES * WIDTH  # of an activation
LAYERS = 8


@pytest.fixture(scope="module")
def plain():
    graph = Graph()
    h = graph.input("x", (SAMPLES, WIDTH), "float64")
    for k in range(LAYERS):
        h = ops.relu(ops.linear(h, WIDTH, name=f"fc{k}"), name=f"relu{k}")
    ops.adam(ops.mean_squared_error(h, graph.input("t", (SAMPLES, WIDTH), "float64"), name="loss"))
    return graph


def on_host(graph, strategy):
    """With what is offloaded on device 1, which plays the host."""
    away = [op.name for op in graph.operators if op.name.endswith(".away")]
    strategy.update({name: ParallelConfig({}, (1,)) for name in away})
    return strategy


def test_activations_are_kept_elsewhere(plain):
    names = [f"relu{k}" for k in range(LAYERS - 1)]
    graph = offload(plain, names)
    assert not any(op.name.endswith(".away") for op in plain.operators)
    strategy = on_host(graph, taskflow.single_device(graph, TWO))
    assert len(strategy) == len(taskflow.single_device(graph, TWO)) + LAYERS - 1
    before, rows = (
        lower(plain, taskflow.single_device(plain, TWO), TWO),
        lower(graph, strategy, TWO),
    )
    (device, _), (less, host) = transient_bytes(before), transient_bytes(rows)
    print(f"transient {device}, with offload {less} and {host} on the host")
    assert device >= LAYERS * SIZE and less <= 4.5 * SIZE and host >= (LAYERS - 1) * SIZE
    sent = {name: size for (name, _), size in transfers(rows).items() if name != "loss"}
    assert sent == {name: SIZE for k in range(LAYERS - 1) for name in (f"relu{k}", f"relu{k}.back")}
    model = Model(plain, feeds_of(plain))
    laws.assert_equal(laws.run(rows, model.feeds, 2, watch=True), laws.run(before, model.feeds, 2))


def test_it_comes_back_right_before_it_is_read(plain):
    """What no backward operator reads stays; until the strategy names it, all stays."""
    graph = offload(plain, ["relu3", "fc3"])
    names = [op.name for op in graph.operators]
    assert names.index("relu3.away") == names.index("relu3") + 1
    assert names.index("relu3.back") == names.index("fc4.dweight") - 1
    assert "fc3.away" not in names
    rows = lower(graph, taskflow.single_device(graph, TWO), TWO)
    assert rows.bytes_moved == 0


def test_it_composes(plain):
    graph = homes(
        offload(
            recompute(plain, [f"fc{k}" for k in range(LAYERS)]), [f"relu{k}" for k in range(LAYERS)]
        )
    )
    machine = MachineModel.uniform(4)
    strategy = taskflow.fully_sharded(graph, machine, taskflow.stages(graph, machine, 2, 4))
    for op in graph.operators:
        if op.name.endswith(".away"):
            strategy[op.name] = ParallelConfig({"b": 4}, (3, 2, 1, 0))
    model = Model(plain, feeds_of(plain))
    expected = laws.one_device(model, MachineModel.uniform(1), 2)
    found = laws.run(lower(graph, strategy, machine), model.feeds, 2, watch=True)
    laws.assert_close(found, expected, 1e-12)
