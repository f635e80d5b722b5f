"""Orbits, read from patterns and configurations alone: the devices of one have alike points, and grids few orbits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import Device, MachineModel, ParallelConfig, Strategy
from taskflow.searching.grids import Grids
from taskflow.strategy.micro_batches import micro_batches
from taskflow.strategy.orbits import Orbits, orbits_of
from taskflow.strategy.partition import partition
from taskflow.strategy.sharded import shard_state
from taskflow.strategy.strategy import completed, effective_config
from tests import tiny
from tests.lowered import matrix, network
from tests.strategies import examples, graphs, random_strategy, whole

MACHINE = MachineModel.uniform(8)


def of(graph, configs, machine=MACHINE):
    """The orbit of every device; what has no configuration is on all devices, split by none."""
    every = {
        op.name: ParallelConfig({"replicas": len(machine.devices)})
        for op in graph.operators
        if not op.follows
    }
    return orbits_of(graph, Strategy.of_graph(graph, every | configs), machine).of.tolist()


def test_a_partition_of_devices():
    orbits = Orbits.of_equal(np.array([5, 3, 5, 3, 9, 9]))
    assert orbits.of.tolist() == [0, 1, 0, 1, 2, 2]
    assert orbits.representative.tolist() == [0, 1, 4] and orbits.size.tolist() == [2, 2, 2]
    finer = orbits.refine(np.array([7, 7, 0, 7, 0, 0]))
    assert finer.of.tolist() == [0, 1, 2, 1, 3, 3]
    assert len(finer) == 4 and repr(finer) == "Orbits(4 of 6 devices)"


def test_equal_parts_are_alike():
    graph = tiny.tanh(matrix(16, 4)).graph
    assert of(graph, {"tanh": ParallelConfig({"b": 8})}) == [0] * 8


def test_devices_that_are_not_used_are_apart():
    graph = tiny.tanh(matrix(16, 4)).graph
    assert of(graph, {"tanh": ParallelConfig({"b": 4})}) == [0] * 4 + [1] * 4
    assert of(graph, {"tanh": ParallelConfig({"b": 4}, (4, 5, 6, 7))}) == [0] * 4 + [1] * 4
    assert of(graph, {"tanh": ParallelConfig({"b": 4}, (1, 3, 5, 7))}) == [0, 1] * 4


def test_parts_of_unequal_sizes_are_apart():
    graph = tiny.tanh(matrix(17, 4)).graph
    assert of(graph, {"tanh": ParallelConfig({"b": 8})}) == [0] * 7 + [1]
    graph = tiny.tanh(matrix(10, 4)).graph
    assert of(graph, {"tanh": ParallelConfig({"b": 4, "replicas": 2})}) == [0, 0, 1, 1] * 2


def test_operators_that_name_an_axis_otherwise_cut_alike():
    x = matrix(17, 2, 3, 3)
    graph = tiny.linear(tiny.flatten(tiny.conv(x, 2, 1)), 4, "fc").graph
    found = of(
        graph,
        {
            "conv": ParallelConfig({"n": 8}),
            "flat": ParallelConfig({"n": 8}),
            "fc": ParallelConfig({"b": 8}),
        },
    )
    assert found == [0] * 7 + [1]


def test_a_halo_tells_all_apart():
    graph = tiny.stencil(matrix(16, 4), 0).graph
    assert of(graph, {"stencil": ParallelConfig({"b": 8})}) == list(range(8))
    assert of(graph, {"stencil": ParallelConfig({"b": 4, "replicas": 2})}) == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]


def test_axes_in_two_orders_and_across_each_other():
    graph = tiny.tanh(tiny.tanh(matrix(16, 8), "first")).graph
    turned = tuple(np.arange(8).reshape(2, 4).T.reshape(-1).tolist())
    rows = {"first": ParallelConfig({"b": 8})}
    assert of(graph, rows | {"tanh": ParallelConfig({"b": 8}, turned)}) == list(range(8))
    across = ParallelConfig({"b": 2, "replicas": 4}, turned)
    assert of(graph, {"first": ParallelConfig({"b": 4, "replicas": 2}), "tanh": across}) == [
        *([0, 0, 1, 1, 2, 2, 3, 3])
    ]


def test_what_is_no_grid_makes_every_device_an_orbit():
    graph = tiny.tanh(matrix(16, 4)).graph
    for config in (
        ParallelConfig({"b": 4}, (0, 1, 3, 2)),
        ParallelConfig({"b": (0.5, 0.25, 0.25)}),
        ParallelConfig({"b": 3}, (5, 6, 7)),
    ):
        assert of(graph, {"tanh": config}) == list(range(8))


def test_micro_batches_are_parts_on_one_device():
    graph = network(batch=64)
    strategy = micro_batches(graph, taskflow.data_parallel(graph, MACHINE), 4)
    assert len(orbits_of(graph, strategy, MACHINE)) == 1


def test_unequal_machines():
    graph = tiny.tanh(matrix(16, 4)).graph
    config = {"tanh": ParallelConfig({"b": 8})}
    slow = replace(MACHINE.devices[0], flops_per_second=1e9)
    one = replace(MACHINE, devices=(*MACHINE.devices[:7], slow))
    assert of(graph, config, one) == [0] * 7 + [1]
    for hosts, expected in (
        ([0] * 4 + [1] * 4, [0] * 8),
        ([0] * 4 + [1] * 2 + [2] * 2, [0, 0, 1, 1, 2, 2, 3, 3]),
        ([0, 1] * 4, list(range(8))),
    ):
        machine = replace(MACHINE, devices=tuple(Device(host=h) for h in hosts))
        assert of(graph, config, machine) == expected


def test_a_slower_link_is_seen_from_all_that_it_leads_to():
    graph = tiny.tanh(matrix(64, 4)).graph
    config = {"tanh": ParallelConfig({"b": 8})}
    machine = MachineModel.preset("p100", nodes=2)
    assert of(graph, config, machine) == [0] * 8
    first, *others = machine.links
    slow = replace(machine, links=(replace(first, bandwidth=first.bandwidth / 2), *others))
    assert len(set(of(graph, config, slow))) > 1


@pytest.mark.parametrize("devices", [64, 1024])
def test_the_grids_of_experts_have_few_orbits(devices):
    machine = MachineModel.preset("h100", nodes=devices // 8)
    graph = network(batch=2 * devices, width=64)
    for tensor in (1, 2, 8):
        strategy = Grids(graph).strategy(range(devices), tensor)
        for each in (strategy, shard_state(graph, strategy)):
            assert len(orbits_of(graph, each, machine)) <= 12


def test_pipelines_have_an_orbit_for_every_stage():
    machine = MachineModel.preset("h100", nodes=8)
    graph = network(batch=256, layers=8)
    strategy = taskflow.stages(graph, machine, count=4, parts=4)
    assert orbits_of(graph, strategy, machine).of.tolist() == np.repeat(range(4), 16).tolist()


def points_by_device(op, config, devices):
    """What a device has to do of an operator: the shapes of the boxes of its points, and which of them are partial."""
    points = partition(op, config)
    shapes = [[] for _ in range(devices)]
    for k, device in enumerate(points.device.tolist()):
        boxes = points.boxes[k]
        shapes[device].append((boxes[:, 1] - boxes[:, 0]).tolist())
    return [sorted(each) for each in shapes]


@examples(100)
@given(graphs(), st.integers(0, 999), st.sampled_from([2, 3, 4, 6, 8, 12]), st.booleans())
def test_devices_of_one_orbit_have_alike_points(model, seed, devices, is_regular):
    graph, machine = model.graph, MachineModel.uniform(devices)
    strategy = random_strategy(graph, machine, seed)
    if is_regular:
        strategy = taskflow.data_parallel(graph, machine)
    orbits = orbits_of(graph, strategy, machine)
    assert orbits.size.sum() == devices
    for op in graph.operators:
        config, _ = effective_config(op, completed(graph, strategy))
        found = points_by_device(op, config, devices)
        for device, orbit in enumerate(orbits.of.tolist()):
            assert found[device] == found[orbits.representative[orbit]]


def test_a_whole_graph_on_one_device():
    graph = network()
    assert orbits_of(graph, whole(graph), MachineModel.uniform(1)).of.tolist() == [0]
    assert orbits_of(graph, whole(graph, 3), MACHINE).of.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
