"""The machine at hand under mpirun: ranks that measure other speeds get other rates, and all know all of them."""

from itertools import pairwise

from taskflow import MachineModel, measure_machine
from taskflow.comm.transport import connect
from taskflow.cost import measure


def test_a_slow_rank_is_a_slow_device(comm, monkeypatch):
    """Each rank finds its calls as many times slower as its number says."""
    true, times = measure.time_call, 4**comm.rank
    monkeypatch.setattr(measure, "time_call", lambda call: true(call) * times)
    machine = measure_machine(MachineModel.local(comm.size))
    speeds = [d.flops_per_second for d in machine.devices]
    assert all(fast > 1.5 * slow for fast, slow in pairwise(speeds))
    assert connect().gather(machine) == [machine] * comm.size
