"""Measured costs on GPUs, with fake streams: every row has a time, kept by kernel, tiles and GPU."""

import json

import numpy as np
import pytest

import taskflow
from taskflow import CostModel, Device, Graph, MachineModel, lower, precision, single_device
from taskflow.backend.timing import DeviceClock
from taskflow.execute.rehearsal import can_rehearse
from tests.execute.gpu.test_streamed import network
from tests.fake_gpu.streams import FakeStreams
from tests.strategies import random_strategy


def lowered(kind="cuda"):
    graph, machine = network(), MachineModel.uniform(2, Device(kind=kind))
    return lower(graph, random_strategy(graph, machine, 2), machine)


class CountingStreams(FakeStreams):
    """Counts the calls that are timed."""

    count = 0

    def seconds_between(self, first, second):
        self.count += 1
        return super().seconds_between(first, second)


def test_every_row_of_a_gpu_has_a_time():
    task_graph = lowered()
    costs = CostModel.measured(task_graph.machine, backend=FakeStreams())
    assert np.all(costs.seconds(task_graph) > 0)
    sources = {costs.source(task_graph, row) for row in range(len(task_graph))}
    assert sources == {"link", "measured on fake GPU"}
    assert taskflow.simulate(task_graph, costs).seconds > 0


def test_times_are_kept_by_kernel_tiles_and_gpu(tmp_path):
    task_graph, path = lowered(), tmp_path / "costs.json"
    first = CostModel.measured(task_graph.machine, path, FakeStreams()).seconds(task_graph)
    assert all(key.endswith(" | fake GPU") for key in json.loads(path.read_text())["kernels"])
    backend = CountingStreams()
    points = task_graph.kind == taskflow.Kind.POINT
    again = CostModel.measured(task_graph.machine, path, backend)
    np.testing.assert_array_equal(again._points(task_graph, np.flatnonzero(points)), first[points])
    assert backend.count == 0


@pytest.mark.parametrize("dtype", ["float32", "tf32"])
def test_kernels_are_timed_in_the_precision_of_the_graph(dtype):
    backend, noted, graph = FakeStreams(), set(), Graph()

    def kernel(ctx, x, y):
        noted.add(backend.uses_tf32)

    graph.output(
        "y", graph.launch("y", "b -> b", [graph.input("x", (4,), "float32")], kernel=kernel)
    )
    graph = precision(graph, dtype)
    machine = MachineModel.uniform(1, Device(kind="cuda"))
    task_graph = lower(graph, single_device(graph, machine), machine)
    CostModel.measured(machine, backend=backend).seconds(task_graph)
    assert noted == {dtype == "tf32"} and not backend.uses_tf32


def test_what_cannot_be_captured_is_launched_again_and_again():
    class Refusing(FakeStreams):
        def capture(self, lead, issue):
            raise taskflow.backend.NotCapturable("never")

    calls = []
    seconds = DeviceClock(Refusing(), 0).seconds(lambda: calls.append(1))
    assert 0.9e-6 < seconds < 1.1e-6  # a fake stream counts its calls
    assert len(calls) > 3


def test_arrays_are_legal_for_any_kernel():
    clock = DeviceClock(FakeStreams(), 0)
    big = clock.array((3, 1 << 20), "float32")
    assert big.shape == (3, 1 << 20) and big.min() >= 0.1 and big.max() <= 1
    assert not clock.array((5,), "int32").any()


def test_gpus_have_no_rehearsal():
    assert can_rehearse(lowered("cpu")) and not can_rehearse(lowered())


class WithCache(FakeStreams):
    """A call takes 1 us, and 4 more where its arrays were evicted before it."""

    def __init__(self, size):
        super().__init__()
        self.size, self.is_evicted = size, False

    def l2_bytes(self, device):
        return self.size

    def use(self):
        self._clock += 4 * self.is_evicted
        self.is_evicted = False


@pytest.mark.parametrize("size, seconds", [(1 << 12, 5e-6), (0, 1e-6)])
def test_a_kernel_is_timed_as_a_step_finds_its_arrays(size, seconds):
    backend = WithCache(size)
    clock, copyto = DeviceClock(backend, 0), backend.xp.copyto

    class Evicting:
        """Arrays as large as the cache that are copied evict what is in it."""

        @staticmethod
        def copyto(target, source):
            copyto(target, source)
            backend.is_evicted |= source.nbytes >= size > 0

    backend.xp = Evicting
    assert clock.cold_seconds(backend.use) == pytest.approx(seconds, rel=0.02)
