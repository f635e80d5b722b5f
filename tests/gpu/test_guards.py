"""Guards on a GPU: memory that is short is missed with numbers, steps allocate nothing; costs and rates."""

import gc

import numpy as np
import pytest

import ops
import taskflow
from taskflow import CostModel, Device, Executor, Graph, MachineModel, lower, measure_machine
from taskflow.backend import make_backend
from taskflow.cost.measure_gpu import measure_host_link
from tests.execute.gpu.test_streamed import feeds, network
from tests.gpu.streams import backend
from tests.gpu.test_laws import perceptron


def on_one(model, **device):
    machine = MachineModel.uniform(1, Device("cuda", **device))
    return lower(model.graph, taskflow.single_device(model.graph, machine), machine)


def test_memory_that_is_short_is_missed_before_the_first_step():
    streams = backend()
    _, total = streams.memory(0)
    graph = Graph()
    graph.output(
        "p", ops.multiply(graph.parameter("p", (total,), 0.0), 2.0)
    )  # eight times the memory
    machine = MachineModel.uniform(1, Device("cuda", memory_bytes=1 << 60))
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    with pytest.raises(
        ValueError,
        match=r"device 0: no room for \d+ bytes of instances; this executor holds nothing",
    ):
        Executor(task_graph, backend=streams)


def test_what_is_held_is_known_to_the_byte(held):
    before, found = held(), [backend().zeros(0, size) for size in (1 << 20, 3, 12 << 20)]
    assert held() - before == sum(array.nbytes for array in found)
    found.pop()
    assert held() - before == (1 << 20) + 3
    cupy = pytest.importorskip("cupy")
    found += [cupy.empty(5 << 20, np.uint8)]  # as a kernel would that takes no scratch memory
    assert held() - before >= (6 << 20) + 3


@pytest.mark.parametrize("captures", [True, False])
def test_an_executor_gives_its_memory_back(held, captures):
    streams, task_graph, after = backend(), on_one(perceptron()), []
    for _ in range(5):
        with Executor(task_graph, backend=streams, record=False, capture=captures) as step:
            step(perceptron().feeds)
            assert held() > min(after, default=0)
        del step
        gc.collect()
        after.append(held())
    assert len(set(after)) == 1, "what the first one leaves to its backend, others leave nothing"


@pytest.mark.parametrize("captures", [True, False])
def test_steps_allocate_nothing(held, captures):
    streams = backend()
    with Executor(on_one(perceptron()), backend=streams, record=False, capture=captures) as step:
        step(perceptron().feeds)
        step(perceptron().feeds)
        before = held()
        for _ in range(10):
            step(perceptron().feeds)
        assert held() == before


def test_kernels_are_timed():
    task_graph = on_one(perceptron())
    costs = CostModel.measured(task_graph.machine, backend=backend())
    seconds = costs.seconds(task_graph)
    assert np.all(seconds > 0) and np.all(seconds < 1e-2)
    assert "measured on NVIDIA" in costs.source(
        task_graph, int(np.argmax(task_graph.kind == taskflow.Kind.POINT))
    )


def test_rates_are_plausible():
    machine = measure_machine(MachineModel.local(1, "cuda"))
    device, link = machine.devices[0], measure_host_link(make_backend())
    assert 1e12 < device.flops_per_second < 1e15 and 1e11 < device.memory_bandwidth < 1e13
    assert 1e-7 < device.overhead_seconds < 1e-5
    assert 1e9 < link.to_device_bandwidth < 1e12 and 1e9 < link.to_host_bandwidth < 1e12


def test_a_profiler_sees_items(monkeypatch):
    monkeypatch.setenv("TASKFLOW_CUDA", "profiled")
    graph, machine = network(), MachineModel.uniform(1, Device("cuda"))
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    with Executor(task_graph, record=False, allow_nan=True) as step:
        for feed in feeds():
            step(feed)
        assert [part.is_captured for part in step._streamed.replay.segments] == [False]
