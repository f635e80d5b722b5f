"""Micro-benchmarks of GPUs on fake streams: every rate is found, and the machine that results is a sound one."""

import pytest

from taskflow import Device, MachineModel, measure_machine
from taskflow.cost.measure_gpu import measure_host_link
from tests.fake_gpu.streams import FakeStreams


class ModelStreams(FakeStreams):
    """A GPU that takes 2 us to launch, 1e14 flop/s for products (4e14 in TF32) and 1e12 bytes/s for everything else."""

    def __init__(self):
        super().__init__()
        self.xp = self
        self._passed = 0.0

    def matmul(self, a, b, out):
        self._passed += 2e-6 + 2 * len(a) ** 3 / (4e14 if self.uses_tf32 else 1e14)

    def copyto(self, target, source):
        self._passed += 2e-6 + 2 * source.nbytes / 1e12

    def add(self, a, b, out):
        self._passed += 2e-6

    def copy(self, target, source):
        return lambda: self.copyto(target, source)

    def _stamp(self, event):
        event.time = self._passed * 1e6


def test_rates_are_those_of_the_device():
    machine = measure_machine(MachineModel.uniform(2, Device("cuda")), ModelStreams())
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
