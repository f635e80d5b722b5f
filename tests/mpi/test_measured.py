"""The machine at hand under mpirun: ranks that measure other speeds get other rates, and all know all of them."""

from itertools import pairwise

import pytest

from taskflow import MachineModel, measure_machine
from taskflow.comm.transport import connect
from taskflow.cost import measure

pytestmark = pytest.mark.two_ranks  # with more it takes no other way


def test_a_slow_rank_is_a_slow_device(comm, monkeypatch):
    """Each rank makes four times the calls of the one before."""
    true, times = measure.calls_per_second, 4**comm.rank
    monkeypatch.setattr(
        measure, "calls_per_second", lambda call: true(lambda: [call() for _ in range(times)])
    )
    machine = measure_machine(MachineModel.local(comm.size))
    for name in ("flops_per_second", "memory_bandwidth"):
        speeds = [getattr(d, name) for d in machine.devices]
        assert all(2.5 * slow < fast < 6 * slow for fast, slow in pairwise(speeds))
    assert connect().gather(machine) == [machine] * comm.size
