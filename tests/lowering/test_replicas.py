"""Partial sums of which there are replicas: all that have some share out the sum, and no device is special."""

from dataclasses import replace

import numpy as np
import pytest

from taskflow import (
    CostModel,
    Device,
    Executor,
    Kind,
    MachineModel,
    ParallelConfig,
    Strategy,
    check_plan,
    lower,
    simulate,
)
from taskflow.strategy.orbits import orbits_of
from tests import tiny
from tests.lowered import matrix

HOSTS = MachineModel.preset("h100", nodes=8)


def summed(parts, replicas, within, columns=64, machine=HOSTS, axis="b", readers=None, **options):
    """The graph, strategy and rows of a sum that all devices need; along `axis` "c" each needs a tile of it.

    `within`: what is on the devices of one host, "replicas" or "parts". `readers`: other devices that need the sum.
    """
    count = parts * replicas
    total = tiny.column_sum(matrix(parts, columns), "sum")
    y = total.graph.input("y", (count, columns), "float64")
    graph = total.graph
    graph.output("read", tiny.add_row(y, total, "read"))
    devices = np.arange(count).reshape(parts, replicas)
    if within == "parts":
        devices = np.arange(count).reshape(replicas, parts).T
    configs = {
        "sum": ParallelConfig({"b": parts, "replicas": replicas}, devices.ravel().tolist()),
        "read": ParallelConfig({axis: count}, readers),
    }
    strategy = Strategy.of_graph(graph, configs)
    return graph, strategy, lower(graph, strategy, machine, **options)


def collectives(rows):
    """Name, members and elements of the box of every collective."""
    found = []
    for task in rows:
        if task.kind == Kind.COLLECTIVE and task.name == "sum":
            x = rows.exchange(task.row)
            assert x.is_regular
            found.append((task.collective, sorted(x.members), x.boxes[x.sources].volume))
    return found


def orbits(graph, strategy):
    peers = lower(graph, strategy, HOSTS, devices=orbits_of(graph, strategy, HOSTS)).peers
    return len(peers.orbits)


def test_replicas_on_a_host_sum_a_piece_each_and_the_host_gathers_them():
    graph, strategy, rows = summed(8, 8, "replicas")
    sums = [("all-reduce", list(range(k, 64, 8)), 8) for k in range(8)]
    gathers = [("all-gather", list(range(k, k + 8)), 64) for k in range(0, 64, 8)]
    assert collectives(rows) == sums + gathers
    assert orbits(graph, strategy) == 1


def test_replicas_on_other_hosts_sum_all_of_it():
    graph, strategy, rows = summed(8, 8, "parts")
    assert collectives(rows) == [("all-reduce", list(range(k, k + 8)), 64) for k in range(0, 64, 8)]
    assert orbits(graph, strategy) == 1


def test_replicas_sum_for_others_each_for_as_many():
    graph, strategy, rows = summed(8, 4, "parts", readers=range(32, 64))
    teams = [[*range(k, k + 8), *range(32 + k, 40 + k)] for k in range(0, 32, 8)]
    assert collectives(rows) == [("all-reduce", team, 64) for team in teams]
    assert orbits(graph, strategy) == 2
    few, costs = orbits_of(graph, strategy, HOSTS), CostModel.analytic(HOSTS)
    own = lower(graph, strategy, HOSTS, devices=few)
    assert simulate(own, costs).seconds == simulate(rows, costs).seconds
    *_, rows = summed(8, 3, "parts", readers=range(32, 56))
    assert [len(members) for _, members, _ in collectives(rows)] == [16] * 3
    *_, rows = summed(8, 4, "parts", readers=[*range(31), 40])  # some have a part themselves
    assert [len(members) for _, members, _ in collectives(rows)] == [32]


def test_where_there_are_more_replicas_than_elements_several_sum_the_same():
    *_, rows = summed(8, 8, "replicas", columns=4)
    found = collectives(rows)
    assert found[:8] == [("all-reduce", list(range(k, 64, 8)), 1) for k in range(8)]


@pytest.mark.parametrize("within", ["replicas", "parts"])
def test_where_each_needs_a_tile_rows_grow_as_replicas(within):
    """ZeRO beside tensor parallelism, whose norms are replicas: each owner fetched from each holder, one by one."""
    graph, strategy, rows = summed(8, 8, within, axis="c")
    teams = [range(k, 64, 8) if within == "replicas" else range(8 * k, 8 * k + 8) for k in range(8)]
    assert collectives(rows) == [("reduce-scatter", list(team), 1) for team in teams]
    assert not [task for task in rows if task.name == "sum" and task.kind in (Kind.COPY, Kind.FOLD)]
    assert orbits(graph, strategy) == 1


def test_pieces_are_of_all():
    *_, rows = summed(8, 8, "replicas", piece_bytes=1 << 20)
    assert [(name, len(members)) for name, members, _ in collectives(rows)] == [("all-reduce", 64)]


def test_a_named_algorithm_sums():
    *_, rows = summed(8, 8, "replicas", collectives={"all-reduce": "ring"})
    algorithm = rows.algorithm[[t.row for t in rows if t.collective == "all-reduce"]]
    assert [rows.ways[k].algorithm for k in algorithm] == ["ring"] * 8


@pytest.mark.parametrize(("columns", "axis"), [(1, "b"), (5, "b"), (12, "b"), (12, "c"), (29, "c")])
@pytest.mark.parametrize("within", ["replicas", "parts"])
def test_the_sum_is_right(within, columns, axis):
    parts, replicas = (3, 4) if within == "replicas" else (4, 3)
    machine = MachineModel.uniform(24)
    machine = replace(machine, devices=tuple(Device(host=d // 4) for d in range(24)))
    readers = range(12, 24) if columns == 5 else None
    graph, _, rows = summed(parts, replicas, within, columns, machine, axis, readers)
    check_plan(graph, rows)
    random = np.random.default_rng(0)
    x, y = random.random((parts, columns)), random.random((12, columns))
    with Executor(rows) as step:
        np.testing.assert_allclose(step({"x": x, "y": y})["read"], y + x.sum(0), 1e-12)
