"""Collectives that look alike share what is found of one: outlines, whatever their devices and boxes are."""

import numpy as np
import pytest
from hypothesis import given

import taskflow
from taskflow import MachineModel, lower
from taskflow.collective.price import CollectiveCosts
from taskflow.collective.twins import twins
from taskflow.searching.grids import Grids
from taskflow.tasks.task_graph import Kind
from tests.lowered import network
from tests.lowering.test_peers import cases
from tests.strategies import examples


def collectives(task_graph):
    return np.flatnonzero(task_graph.kind == Kind.COLLECTIVE).tolist()


@examples(100)
@given(cases())
def test_what_looks_alike_has_one_outline(case):
    graph, strategy, machine = case
    task_graph = lower(graph, strategy, machine)
    costs, boxes, of_twins = CollectiveCosts(machine), {}, {}
    rows = collectives(task_graph)
    _, kinds, places = twins(task_graph, np.array(rows, np.int64))
    for row, *twin in zip(rows, kinds.tolist(), places, strict=True):
        look, exchange = costs.look(task_graph, row), task_graph.exchange(row)
        itemsize = task_graph.regions[int(task_graph.region[row])].itemsize
        expected = tuple(exchange.members), exchange.outline(itemsize), exchange.is_regular
        assert tuple(costs._asked(task_graph, look)) == expected
        drawn = exchange.name, exchange.devices, exchange.boxes, exchange.sources, itemsize
        assert boxes.setdefault((look.named.number, look.place, look.digest), drawn) == drawn
        known = look.named.number, look.digest
        assert of_twins.setdefault(tuple(twin), (*known, look.place)) == (*known, look.place)
        assert of_twins.setdefault(twin[0], known) == known
    assert len(of_twins) == len(boxes) + len(set(kinds.tolist()))


@pytest.mark.parametrize("devices", [32, 64])
def test_groups_on_other_hosts_look_alike(devices):
    """So their number does not count: each host sums what its devices have."""
    machine = MachineModel.preset("h100", nodes=devices // 8)
    graph = network(batch=2 * devices, width=64)
    strategy = Grids(graph).strategy(range(devices), 8) or taskflow.data_parallel(graph, machine)
    task_graph, costs = lower(graph, strategy, machine), CollectiveCosts(machine)
    looks = [costs.look(task_graph, row) for row in collectives(task_graph)]
    within = [look for look in looks if len(look.named.members) == 8]
    assert len({look.named.number for look in within}) >= devices // 8
    assert len({look.digest for look in within}) <= len(within) * 8 // devices
