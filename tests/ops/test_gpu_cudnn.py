"""Operators that ask cuDNN first, on a stand-in of it that computes with NumPy: law 1, and the ways back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ops
import taskflow
from ops.cuda.convolution import fit
from taskflow import Graph, MachineModel, Window, lower
from tests import laws, shim
from tests.fake_cudnn import WORKSPACE, CudnnStreams
from tests.strategies import Model, feeds_of, strategies

TOLERANCE = {"float32": 1e-5, "bfloat16": 0.05, "float16": 0.01}
CONVOLUTION = {"conv", "conv bias", "dgrad", "wgrad"}

pytestmark = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def images(shape=(3, 4, 9, 7), precision="float32", **conv):
    """Two convolutions and a loss, with its gradients."""
    graph = Graph()
    x = graph.input("x", shape)
    y = ops.conv2d(ops.relu(ops.conv2d(x, 6, **{"kernel_size": 3, "padding": 1, **conv})), 4, 1)
    return trained(graph, y, precision)


def trained(graph, y, precision="float32"):
    loss = ops.mse_loss(y, graph.input("wanted", y.shape))
    graph = taskflow.precision(graph, precision)
    for parameter, gradient in ops.sgd(graph.regions[loss.name], lr=0.01).items():
        graph.output(f"gradient of {parameter.name}", gradient)
    return Model(graph, feeds_of(graph))


def run(model, backend, machine=None, strategy=None, steps=3):
    machine = (machine or MachineModel.uniform(1)).with_rates(kind="cuda")
    strategy = strategy or taskflow.single_device(model.graph, machine)
    return laws.run(
        lower(model.graph, strategy, machine), model.feeds, steps, backend=backend, record=False
    )


def on_numpy(model, steps=3):
    return laws.one_device(model, MachineModel.uniform(1), steps)


def done(backend):
    return {kind for kind, _ in backend.cudnn.executed}


@pytest.mark.parametrize("precision", TOLERANCE)
def test_convolutions_go_by_cudnn(precision):
    if precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    model, backend = images(precision=precision), CudnnStreams()
    laws.assert_close(run(model, backend), on_numpy(model), TOLERANCE[precision])
    assert done(backend) == CONVOLUTION - {"conv"}
    assert {graph.type for graph in backend.cudnn.plans} == {precision}


@pytest.mark.parametrize(
    "conv",
    [
        {"stride": 2},
        {"stride": (3, 2), "padding": 0},
        {"kernel_size": 2, "stride": 3, "padding": 0},
        {"dilation": 2, "padding": (2, 0)},
        {"padding": 2, "bias": False},
        {"groups": 2},
    ],
    ids=str,
)
def test_windows_of_any_kind(conv):
    model, backend = images(**conv), CudnnStreams()
    laws.assert_close(run(model, backend), on_numpy(model), 1e-5)
    assert {"dgrad", "wgrad"} <= done(backend)


def test_convolution_of_sequences():
    graph = Graph()
    y = ops.conv1d(
        ops.relu(ops.conv1d(graph.input("x", (3, 4, 9)), 6, 3, padding=1)), 5, 2, stride=2
    )
    model, backend = trained(graph, y), CudnnStreams()
    laws.assert_close(run(model, backend), on_numpy(model), 1e-5)
    assert done(backend) == CONVOLUTION - {"conv"}


@pytest.mark.parametrize(
    "refused",
    [{"conv bias"}, {"dgrad"}, {"wgrad"}, CONVOLUTION],
    ids=["bias", "dgrad", "wgrad", "all"],
)
def test_what_is_refused_goes_the_other_way(refused):
    model, backend = images(), CudnnStreams(refused=refused)
    laws.assert_close(run(model, backend), on_numpy(model), 1e-5)
    expected = CONVOLUTION - refused - ({"conv"} if "conv bias" not in refused else set())
    assert done(backend) == expected


def test_plans_are_made_before_the_first_step_and_workspace_is_accounted_for():
    model, backend = images(), CudnnStreams()
    machine = MachineModel.uniform(1).with_rates(kind="cuda")
    task_graph = lower(model.graph, taskflow.single_device(model.graph, machine), machine)
    with taskflow.Executor(
        task_graph, backend=backend, record=False, allow_nan=True
    ) as step:  # one graph
        plans, taken = len(backend.cudnn.plans), backend.memory(0)
        assert plans == 5  # the first image needs no gradient
        assert step._streamed.ledger.taken[0]["scratch memory"] >= WORKSPACE
        for _ in range(4):
            step(model.feeds)
        assert len(backend.cudnn.plans) == plans and backend.memory(0) == taken
        assert [part.is_captured for part in step._streamed.replay.segments] == [True]


def test_cudnn_can_be_switched_off():
    model, backend = images(), CudnnStreams()
    backend.uses_cudnn = False
    laws.assert_close(run(model, backend), on_numpy(model), 1e-5)
    assert not backend.cudnn.executed


@pytest.mark.slow
@settings(max_examples=max(1, settings().max_examples // 8))
@given(data=st.data(), seed=st.integers(0, 99))
def test_any_strategy_gives_the_numbers_of_numpy(data, seed):
    numbers = st.integers(1, 3)
    conv = {
        "kernel_size": data.draw(numbers),
        "stride": data.draw(numbers),
        "dilation": data.draw(st.integers(1, 2)),
    }
    model = images((data.draw(numbers), 4, 9, 7), padding=data.draw(st.integers(0, 2)), **conv)
    machine, strategy = data.draw(strategies(model.graph, 4))
    laws.assert_close(run(model, CudnnStreams(seed), machine, strategy), on_numpy(model), 1e-4)


@given(
    size=st.integers(1, 4),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    outputs=st.integers(1, 5),
    extent=st.integers(1, 12),
    corner=st.integers(-6, 6),
)
def test_where_windows_lie(size, stride, dilation, outputs, extent, corner):
    """What every output reads is what it reads of the part that was chosen, and there are as many outputs."""
    found = fit(Window("h", size, stride, 0, dilation), outputs, extent, corner)
    reads = corner + np.arange(outputs)[:, None] * stride + np.arange(size) * dilation
    if found is None:
        first, last = corner, corner + (outputs - 1) * stride + (size - 1) * dilation
        assert last < 0 or first >= extent
        return
    part = np.arange(extent)[found.points]
    points = np.concatenate([np.full(found.before, -1), part, np.full(found.after, -1)])
    span = (size - 1) * dilation + 1
    assert found.before >= 0 and found.after >= 0 and (len(points) - span) // stride + 1 == outputs
    seen = points[np.arange(outputs)[:, None] * stride + np.arange(size) * dilation]
    np.testing.assert_array_equal(seen, np.where((reads >= 0) & (reads < extent), reads, -1))
