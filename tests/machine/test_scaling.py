"""Scaled machines: each factor multiplies what its name says, and nothing else."""

import numpy as np
import pytest

from taskflow import Device, MachineModel, scale_machine
from taskflow.machine.library import LibraryTimes
from taskflow.machine.scaling import SCALES, scalable

MACHINE = MachineModel.preset("v100", nodes=2)


def fields(machine):
    """What is multiplied, by the names of the scales."""
    first = machine.devices[0]
    return {
        "network": machine.bandwidth[0, 8],
        "links": machine.bandwidth[0, 1],
        "latency": machine.latency_seconds[0, 8],
        "flops": first.rate("float32"),
        "memory_bandwidth": first.memory_bandwidth,
        "overhead": first.overhead_seconds,
        "memory": first.memory_bytes,
    }


@pytest.mark.parametrize("name", SCALES)
def test_one_factor_multiplies_one_thing(name):
    before, after = fields(MACHINE), fields(scale_machine(MACHINE, {name: 4.0}))
    assert {n: after[n] / before[n] for n in before} == pytest.approx(
        {n: 4.0 if n == name else 1.0 for n in before}
    )


def test_all_dtypes_are_scaled():
    device, scaled = MACHINE.devices[0], scale_machine(MACHINE, {"flops": 3.0}).devices[0]
    for dtype in ("float64", "float16", "float32"):
        assert scaled.rate(dtype) == 3.0 * device.rate(dtype)


def test_links_of_both_classes_together():
    scaled = scale_machine(MACHINE, {"network": 2.0, "links": 2.0})
    np.testing.assert_allclose(
        [k.bandwidth for k in scaled.links], [2 * k.bandwidth for k in MACHINE.links]
    )


def test_a_factor_of_one_is_the_same_machine():
    assert scale_machine(MACHINE, {"network": 1.0, "flops": 1}) is MACHINE


def test_machines_have_what_they_have():
    assert scalable(MACHINE) == list(SCALES)
    assert "network" not in scalable(MachineModel.uniform(2))
    assert not {"network", "links", "latency"} & set(scalable(MachineModel.uniform(1)))
    apart = MachineModel.join(
        [MachineModel((Device(),), (*MACHINE.take(1).links,)) for _ in range(2)]
    )
    assert "network" in scalable(apart)


def test_what_a_library_was_measured_to_take_holds_for_its_links_alone():
    times = LibraryTimes("all-reduce", 1, 2, (1, 2), (1e-6, 2e-6))
    machine = MachineModel(MACHINE.devices, MACHINE.links, library=(times,))
    assert scale_machine(machine, {"flops": 2.0}).library == (times,)
    assert scale_machine(machine, {"network": 2.0}).library == ()
