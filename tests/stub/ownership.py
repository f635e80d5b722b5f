"""What belongs to a device, a stream or a rank: events, workspaces, handles, memory; each was wrong once."""

import gc
import logging

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Executor, Graph, MachineModel, lower
from taskflow.backend.cuda.device import CudaStreams
from taskflow.execute.gpu import replay
from tests.ops.test_precision import MODELS
from tests.ops.test_precision import trained as in_half
from tests.sampling import crossed
from tests.strategies import Model, feeds_of
from tests.stub import stub
from tests.stub.runs import Lines, run


def perceptron(dtype="float32", optimizer=ops.adam):
    graph = Graph()
    x, t = graph.input("x", (8, 16)), graph.input("t", (8,), "int32")
    loss = ops.softmax_cross_entropy(
        ops.linear(ops.relu(ops.linear(x, 32, name="fc1")), 8, name="fc2"), t
    )
    graph = taskflow.precision(graph, dtype, None)
    optimizer(graph.regions[loss.name], lr=0.01)
    return Model(graph, feeds_of(graph))


def rows_of(model, devices):
    machine = MachineModel.uniform(devices)
    return lower(
        model.graph, taskflow.data_parallel(model.graph, machine), machine.with_rates(kind="cuda")
    )


@pytest.fixture(autouse=True)
def no_faults():
    """None but those that a test takes."""
    stub.take_faults()
    yield
    faults = stub.take_faults()
    assert not faults, faults[:10]


@pytest.mark.parametrize(
    "build, precision, devices", crossed(MODELS, ["bfloat16", "float16"], [1, 4, 4, 1])
)
def test_models_in_half_precision(build, precision, devices):
    run(in_half(build, precision), devices)


def test_devices_on_two_gpus_are_timed():
    rows = rows_of(perceptron(), 4)
    with Executor(rows, backend=CudaStreams(), record=True) as step:
        step(perceptron().feeds)
        step(perceptron().feeds)
        assert np.all(step.timeline.end >= step.timeline.start)


def test_regions_of_every_device_are_read_and_written_when_all_gpus_are_done():
    backend, rows = CudaStreams(), rows_of(perceptron(), 2)
    with Executor(rows, backend=backend, record=False) as step:
        for name in step.persistent:
            step.write(name, step.read(name))
        before = stub.count("the host waits for a device")
        step.read("fc1.weight")
        assert stub.count("the host waits for a device") == before + 2


def test_products_of_two_streams_share_no_workspace():
    """Four devices on two GPUs; the stub refuses a workspace that two streams use."""
    rows, backend = rows_of(perceptron(), 4), CudaStreams()
    with Executor(rows, backend=backend, record=False) as step:
        step(perceptron().feeds)
        assert backend.library_bytes(0) == {"the workspace of cuBLAS": 2 * (32 << 20)}


def test_a_part_that_cannot_be_captured_is_issued(monkeypatch):
    plan_events = replay.plan_events

    def without_joins(streams, before, devices):
        return plan_events(streams, [*before[:-1], []], devices)

    monkeypatch.setattr(replay, "plan_events", without_joins)
    log, seen = logging.getLogger("taskflow.execute.gpu.replay"), Lines()
    log.addHandler(seen)
    try:
        with Executor(
            rows_of(perceptron(), 2), backend=CudaStreams(), record=False, allow_nan=True
        ) as step:
            for _ in range(3):
                step(perceptron().feeds)
            assert [part.is_captured for part in step._streamed.replay.segments] == [False]
    finally:
        log.removeHandler(seen)
    (line,) = seen.lines
    assert (
        "calls of a step are issued one by one: they cannot be captured together: cudaErrorStreamCapture"
        in line
    )
    assert set(stub.take_faults()) == {"a stream is not joined at the end of a capture"}


def test_a_product_that_is_refused_is_asked_for_once(monkeypatch):
    monkeypatch.setenv("STUB_REFUSES", "1")
    gc.collect()
    before, held = stub.count("heuristics"), stub.count("descriptions")
    with Executor(
        rows_of(perceptron(), 1), backend=CudaStreams(), record=False, capture=False
    ) as step:
        step(perceptron().feeds)
        asked = stub.count("heuristics")
        assert asked > before
        step(perceptron().feeds)
        assert stub.count("heuristics") == asked and stub.count("descriptions") == held


THINGS = ("streams", "events", "handles", "descriptions", "graphs", "blocks")


def test_nothing_is_left_of_an_executor():
    model, before = perceptron("bfloat16"), {}
    for captures in (True, True, False):  # the first leaves the constants of kernels
        backend = CudaStreams()
        with Executor(rows_of(model, 4), backend=backend, record=False, capture=captures) as step:
            for _ in range(3):
                step(model.feeds)
            assert all(
                stub.count(what) > before.get(what, 0)
                for what in THINGS
                if what != "graphs" or captures
            )
        del step, backend
        gc.collect()
        left = {what: stub.count(what) for what in THINGS}
        before = before or left
        assert left == before and not any(left[what] for what in THINGS if what != "blocks")


@pytest.mark.parametrize("devices", [1, 2])
def test_feeds_on_a_gpu_are_not_copied_by_the_host(devices):
    import cupy

    model, lines = perceptron(), []
    with Executor(rows_of(model, devices), backend=CudaStreams(), record=False) as step:
        step(model.feeds)
        step(model.feeds)
        there = {
            name: cupy.asarray(value) for name, value in model.feeds.items()
        }  # on the first GPU
        size = sum(value.nbytes for value in model.feeds.values())
        with stub.traced(lines):
            step(there, prefetch=there)
            step()
    assert sum(int(line[2]) for line in lines if line[0] == "copy" and line[3] == "in") < size


def test_regions_of_a_gpu_are_lent_without_a_copy():
    """A step is over on all streams when it returns, so whoever takes them waits for nothing."""
    import cupy

    lines = []
    with Executor(rows_of(perceptron(), 1), backend=CudaStreams(), record=False) as step:
        for _ in range(3):
            step(perceptron().feeds)
        waits = stub.count("the host waits for a device")
        with stub.traced(lines):
            lent = {name: step.on_device(name) for name in ("fc1.weight", "loss")}
            taken = {name: cupy.from_dlpack(array) for name, array in lent.items()}
        assert stub.count("the host waits for a device") == waits
        assert not [line for line in lines if line[0] in ("copy", "kernel")]
        for name, array in taken.items():
            assert (array.data.ptr, array.shape) == (lent[name].data.ptr, lent[name].shape)
