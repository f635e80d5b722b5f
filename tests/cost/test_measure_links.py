"""Machines made of measured links."""

from taskflow import Device, MachineModel
from taskflow.comm.transport import LocalTransport
from taskflow.cost.measure_links import LinkRate, measure_links, on_hosts

INSIDE = [LinkRate(1e-6, 8e9), LinkRate(2e-6, 6e9), LinkRate(3e-6, 9e9)]
BETWEEN = {(0, 1): LinkRate(2e-5, 1e9), (0, 2): LinkRate(4e-5, 2e8), (1, 2): LinkRate(4e-5, 2e8)}


def test_devices_of_a_host_share_its_card(tmp_path):
    machine = on_hosts(MachineModel.uniform(5, Device()), [0, 0, 1, 1, 2], INSIDE, BETWEEN)
    assert machine.hosts == ((0, 1), (2, 3), (4,))
    rates = {
        pair: machine.bandwidth[pair] for pair in ((0, 1), (3, 2), (0, 2), (3, 1), (0, 4), (4, 3))
    }
    assert rates == {(0, 1): 8e9, (3, 2): 6e9, (0, 2): 1e9, (3, 1): 1e9, (0, 4): 2e8, (4, 3): 2e8}
    assert set(machine.route(0, 2)) & set(machine.route(1, 3)) and not set(
        machine.route(0, 2)
    ) & set(machine.route(2, 0))
    assert (
        abs(machine.latency_seconds[0, 3] - 2e-5) < 1e-12 and machine.latency_seconds[2, 3] == 2e-6
    )
    machine.save(tmp_path / "m.toml")
    assert MachineModel.load(tmp_path / "m.toml") == machine


def test_one_process_has_the_rate_of_a_copy():
    machine = measure_links(MachineModel.uniform(3), LocalTransport(), LinkRate(1e-7, 5e10))
    assert {(link.bandwidth, link.latency_seconds) for link in machine.links} == {(5e10, 1e-7)}
