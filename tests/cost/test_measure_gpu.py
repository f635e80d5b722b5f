"""Micro-benchmarks of GPUs on fake streams: every rate is found, and the machine that results is a sound one."""

import pytest

from taskflow import Device, MachineModel, measure_machine
from taskflow.backend.timing import DeviceClock
from taskflow.cost import measure_gpu
from taskflow.cost.measure_gpu import measure_host_link, product_seconds
from tests.fake_gpu.streams import FakeStreams


class ModelStreams(FakeStreams):
    """A GPU that takes 2 us to launch, 1e14 flop/s for products (4e14 in TF32) and 1e12 bytes/s for everything else.

    What fits into its cache is copied three times as fast.
    """

    def __init__(self, cache_bytes=0):
        super().__init__()
        self.xp = self
        self._passed, self._cache_bytes = 0.0, cache_bytes

    def matmul(self, a, b, out):
        self._passed += 2e-6 + 2 * len(a) ** 3 / (4e14 if self.uses_tf32 else 1e14)

    def copyto(self, target, source):
        rate = 3e12 if 2 * source.nbytes <= self._cache_bytes else 1e12
        self._passed += 2e-6 + 2 * source.nbytes / rate

    def add(self, a, b, out):
        self._passed += 2e-6

    def copy(self, target, source):
        return lambda: self.copyto(target, source)

    def _stamp(self, event):
        event.time = self._passed * 1e6


@pytest.mark.slow
@pytest.mark.parametrize("cache_bytes", [0, 60 << 20, 128 << 20])
def test_rates_are_those_of_the_device(cache_bytes):
    """Of its memory, not of its cache."""
    machine = measure_machine(MachineModel.uniform(2, Device("cuda")), ModelStreams(cache_bytes))
    device = machine.devices[1]
    assert device.kind == "cuda"
    assert device.overhead_seconds == pytest.approx(2e-6, rel=0.01)
    assert device.flops_per_second * device.compute_efficiency == pytest.approx(1e14, rel=0.05)
    assert device.memory_bandwidth * device.memory_efficiency == pytest.approx(1e12, rel=0.05)
    assert device.rates["float64"] == pytest.approx(1e14, rel=0.05)
    assert device.rates["tf32"] == pytest.approx(4e14, rel=0.05)
    assert machine.links[0].bandwidth == pytest.approx(0.5e12, rel=0.05)
    assert machine.links[0].latency_seconds == pytest.approx(2e-6, rel=0.01)


def test_copies_from_and_to_the_host():
    link = measure_host_link(ModelStreams())
    assert link.to_device_bandwidth == pytest.approx(0.5e12, rel=0.01)
    assert link.to_host_bandwidth == pytest.approx(0.5e12, rel=0.01)
    assert link.to_device_seconds == pytest.approx(2e-6, rel=0.01)


@pytest.mark.parametrize("before", [False, True])
def test_products_are_in_the_precision_that_is_asked_for(before):
    """Whatever the backend was set to, and so it stays."""
    backend = ModelStreams()
    backend.uses_tf32 = before
    seconds = [
        product_seconds(DeviceClock(backend, 0), backend, 1024, dtype)
        for dtype in ("float32", "tf32")
    ]
    assert seconds == pytest.approx([2e-6 + 2 * 1024**3 / rate for rate in (1e14, 4e14)])
    assert backend.uses_tf32 == before


class DisturbedStreams(ModelStreams):
    """What is timed takes so many times as long while others run there: during some of every ten measurements."""

    def __init__(self, disturbed, times):
        super().__init__()
        self._disturbed, self._times, self._count = disturbed, times, 0

    def seconds_between(self, first, second):
        self._count += 1
        slow = self._times if self._count % 10 in self._disturbed else 1.0
        return super().seconds_between(first, second) * slow


@pytest.mark.parametrize(
    "disturbed, times", [((3,), 1000.0), ((0, 7), 50.0), ((1, 2, 4), 3.0), ((5,), 0.0)]
)
def test_what_others_do_meanwhile_decides_nothing(disturbed, times):
    link = measure_host_link(DisturbedStreams(disturbed, times))
    assert link.to_device_bandwidth == pytest.approx(0.5e12, rel=0.1)
    assert link.to_host_bandwidth == pytest.approx(0.5e12, rel=0.1)
    assert link.to_device_seconds == pytest.approx(2e-6, rel=0.1)
    backend = DisturbedStreams(disturbed, times)
    overhead = measure_gpu._launch_seconds(DeviceClock(backend, 0), backend)
    assert overhead == pytest.approx(2e-6, rel=0.1)
