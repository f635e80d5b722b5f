"""Fair links in `simulate`: as queues where nothing is shared, no link above its bandwidth, paths without gaps."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, Graph, MachineModel, ParallelConfig, Strategy, lower, simulate
from taskflow.collective.algorithms import ALGORITHMS
from taskflow.simulation.sharing import find_tax, hops_of, links_of_exchange
from taskflow.simulation.simulate import schedule
from taskflow.tasks.memory import plan_memory, with_reuse
from taskflow.tasks.task_graph import Kind
from tests.lowered import network
from tests.strategies import examples

CARRIED = ("copies", "ring", "two-level")  # how an all-reduce may be


def copy(ctx, x, y):
    y[...] = x


def step(machine, seed, carried):
    """Task graph and timeline of a random strategy."""
    assert carried == "copies" or carried in ALGORITHMS
    graph, machine = network(batch=32, layers=3), machine.with_collectives({"all-reduce": carried})
    strategy = (
        taskflow.random_strategy(graph, machine, seed)
        if seed
        else taskflow.data_parallel(graph, machine)
    )
    task_graph, costs = lower(graph, strategy, machine), CostModel.analytic(machine)
    return task_graph, costs.seconds(task_graph), simulate(task_graph, costs)


@examples(100)
@given(devices=st.integers(1, 6), seed=st.integers(0, 99), carried=st.sampled_from(CARRIED[:2]))
def test_where_nothing_is_shared_links_might_be_queues(devices, seed, carried):
    """Every two devices have a link of their own."""
    task_graph, seconds, timeline = step(MachineModel.uniform(devices), seed, carried)
    start, end, total = schedule(with_reuse(task_graph, plan_memory(task_graph)), seconds)
    np.testing.assert_array_equal(timeline.start, start)
    np.testing.assert_array_equal(timeline.end, end)
    assert timeline.seconds == total


@examples(100)
@given(
    name=st.sampled_from(["p100", "k80"]), seed=st.integers(0, 99), carried=st.sampled_from(CARRIED)
)
def test_no_link_carries_more_than_it_can_and_the_path_has_no_gaps(name, seed, carried):
    task_graph, seconds, timeline = step(MachineModel.preset(name, nodes=2), seed, carried)
    start, end, machine = timeline.start, timeline.end, task_graph.machine
    assert (end - start >= seconds * (1 - 1e-9)).all()
    taken, is_alone, together = (
        end - start,
        ~task_graph.is_communication,
        (task_graph.kind == Kind.COLLECTIVE) | (task_graph.is_transfer & machine.has_library),
    )
    beside = (start[:, None] < end[together]) & (end[:, None] > start[together])  # on some device
    is_beside, share = beside.any(axis=1) & is_alone, machine.devices[0].collective_share
    np.testing.assert_allclose(taken[is_alone & ~is_beside], seconds[is_alone & ~is_beside])
    assert (taken[is_beside] <= seconds[is_beside] / (1 - share) * (1 + 1e-9)).all()
    path = timeline.critical_path()
    assert start[path[0]] == 0.0 and (start[path[1:]] == end[path[:-1]]).all()
    moments = np.quantile(np.concatenate([start, end]), np.linspace(0, 1, 20), method="nearest")
    row, source, device, size = task_graph.hops()
    latency = np.where(
        task_graph.kind[row] == Kind.COPY, machine.latency_seconds[source, device], 0.0
    )
    for link in range(len(machine.links)):
        is_there = (machine.routes[source, device] == link).any(axis=1)
        begin, finish, carried_bytes = (
            (start[row] + latency)[is_there],
            end[row][is_there],
            size[is_there],
        )
        for low in moments:
            for high in moments[moments > low]:
                inside = carried_bytes[(begin >= low) & (finish <= high)].sum()
                assert inside <= machine.link_bandwidth[link] * (high - low) * (1 + 1e-9)


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
@pytest.mark.parametrize("carried", CARRIED[1:])
def test_a_collective_loads_the_links_of_its_own_steps(tensor, carried):
    """Other groups of devices have others, of the same algorithm."""
    machine = MachineModel.preset("h100", nodes=2).with_collectives({"all-reduce": carried})
    graph = network(batch=32, width=16, layers=3)
    config = ParallelConfig({"b": 16 // tensor, "i": tensor}, range(16))
    strategy = taskflow.data_parallel(graph, machine)
    strategy.update(
        {op.name: config for op in graph.operators if op.name in strategy and "i" in op.extents}
    )
    task_graph = lower(graph, strategy, machine)
    seconds = CostModel.analytic(machine).seconds(task_graph)
    row, link, rate = hops_of(task_graph, seconds)
    for k in np.flatnonzero((task_graph.kind == Kind.COLLECTIVE) & (seconds > 0)).tolist():
        links, parts = links_of_exchange(task_graph.machine, task_graph.exchange(k))
        order = np.argsort(link[row == k])
        np.testing.assert_array_equal(link[row == k][order], np.sort(links))
        pace = task_graph.bytes[k] / seconds[k] * parts
        pace = np.minimum(pace, task_graph.machine.link_bandwidth[links])[np.argsort(links)]
        np.testing.assert_allclose(rate[row == k][order], pace, rtol=1e-12)


def test_what_takes_no_time_or_moves_nothing_loads_no_link():
    machine = MachineModel.preset("p100").with_collectives({"all-reduce": "ring"})
    graph = network(batch=8, width=8)
    rows = lower(graph, taskflow.data_parallel(graph, machine), machine)
    seconds = CostModel.analytic(machine).seconds(rows)
    together = np.flatnonzero(rows.kind == Kind.COLLECTIVE)
    assert len(together) > 1
    found = hops_of(rows, seconds)[0]
    assert np.isin(together, found).all()
    seconds[together[0]] = 0.0
    empty = replace(rows, bytes=np.where(np.arange(len(rows)) == together[1], 0, rows.bytes))
    row, _, rate = hops_of(empty, seconds)
    assert set(found.tolist()) - set(row.tolist()) == set(together[:2].tolist())
    assert np.isfinite(rate).all()


@pytest.mark.parametrize("taxed", [(0,), (1, 3), (0, 1, 2, 3)])
def test_every_task_pays_where_collectives_take_of_its_device(taxed):
    """The first device's as well, and no copy."""
    machine = MachineModel.uniform(4).with_collectives({"all-reduce": "ring"})
    devices = [
        replace(each, collective_share=0.25 * (k in taxed))
        for k, each in enumerate(machine.devices)
    ]
    machine = replace(machine, devices=tuple(devices))
    task_graph, _, _ = step(machine, 0, "ring")
    tax, is_task = find_tax(task_graph), ~task_graph.is_communication
    pays = is_task & np.isin(task_graph.device, taxed)
    assert pays.sum() >= 3 * len(taxed)
    np.testing.assert_array_equal(
        tax.payer[is_task], np.where(pays, task_graph.device, -1)[is_task]
    )
    assert (tax.payer[task_graph.is_communication] == -1).all()


def sent_at_once(count):
    """`count` devices of one host each send what they made to a device of another host."""
    graph, configs = Graph(), {}
    for k in range(count):
        h = graph.launch(
            f"a{k}", "b -> b", [graph.input(f"x{k}", (1 << 20,), "float64")], kernel=copy
        )
        graph.launch(f"b{k}", "b -> b", [h], kernel=copy)
        configs |= {f"a{k}": ParallelConfig({}, (k,)), f"b{k}": ParallelConfig({}, (4 + k,))}
    machine = MachineModel.preset("p100", nodes=2)
    task_graph, costs = lower(graph, Strategy(configs), machine), CostModel.analytic(machine)
    timeline = simulate(task_graph, costs)
    host = np.array([d.host for d in machine.devices])
    crosses = (
        task_graph.is_transfer & (host[task_graph.source] == 0) & (host[task_graph.device] == 1)
    )
    return crosses, costs.seconds(task_graph), timeline


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_those_that_send_through_one_network_card_share_it(count):
    crosses, seconds, timeline = sent_at_once(count)
    alone = seconds[crosses]
    latency = timeline.task_graph.machine.latency_seconds[0, 4]
    assert crosses.sum() == count
    expected = latency + count * (alone - latency)
    np.testing.assert_allclose((timeline.end - timeline.start)[crosses], expected, rtol=1e-9)
    assert np.ptp(timeline.start[crosses]) == pytest.approx(0.0, abs=1e-12)
