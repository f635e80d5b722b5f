"""Timelines: busy times, bytes per link, and the critical path of a predicted step."""

from dataclasses import replace

import numpy as np
import pytest

import taskflow
from taskflow import (
    CostModel,
    Device,
    Graph,
    Link,
    MachineModel,
    ParallelConfig,
    Strategy,
    lower,
    simulate,
)
from taskflow.tasks.streams import count_streams, describe_stream
from tests.lowered import network
from tests.lowering.test_collective import gathered


def copy(ctx, x, y):
    y[...] = x


@pytest.fixture
def timeline():
    """a on device 0, then b on device 1: feed, a, copy, b, and the output's copy back."""
    graph = Graph()
    x = graph.input("x", (1000,), "float64")
    a = graph.launch("a", "b -> b", [x], kernel=copy)
    graph.output("y", graph.launch("b", "b -> b", [a], kernel=copy))
    strategy = Strategy({"a": ParallelConfig({}, (0,)), "b": ParallelConfig({}, (1,))})
    device = Device("emulated", memory_bandwidth=1e9, overhead_seconds=0.0)
    machine = MachineModel.uniform(2, device, bandwidth=1e6, latency_seconds=1e-3)
    return simulate(lower(graph, strategy, machine), CostModel.analytic(machine))


def test_seconds_are_the_chain(timeline):
    feed, point, transfer = 8e-6, 16e-6, 1e-3 + 8e-3
    assert timeline.seconds == pytest.approx(feed + 2 * point + 2 * transfer)
    assert timeline.bytes_moved == 16000


def test_what_has_many_rows_prints_as_one_line(timeline):
    assert repr(timeline) == f"Timeline({timeline.seconds * 1e3:.3f} ms, 5 rows, 16000 bytes moved)"
    assert repr(timeline.task_graph) == "TaskGraph(5 rows on 2 devices, 16000 bytes moved)"
    assert repr(timeline.task_graph.machine) == "MachineModel('uniform', 2 devices, 2 links)"


def test_busy_seconds_of_streams_and_bytes_of_links(timeline):
    busy = timeline.busy_seconds()
    assert busy[0] == pytest.approx(16e-6)  # device 0 computes a
    assert busy[12] == busy[2] == pytest.approx(9e-3)  # link 0->1 carries a, device 0 sends it
    assert timeline.link_bytes() == {0: 8000, 1: 8000}


def test_joules_are_of_flops_of_bytes_once_a_link_and_of_watts():
    graph = Graph()
    x = graph.input("x", (1000,), "float64")
    a = graph.launch("a", "b -> b", [x], kernel=copy, flops=3)
    graph.output("y", graph.launch("b", "b -> b", [a], kernel=copy, flops=5))
    strategy = Strategy({"a": ParallelConfig({}, (0,)), "b": ParallelConfig({}, (1,))})
    device = Device("emulated", joules_per_flop=2e-9, joules_per_byte=3e-9, watts=5.0)
    devices = (device, replace(device, watts=11.0))
    links = (Link((0, "s"), 1e6, joules_per_byte=7e-9), Link(("s", 1), 1e6, joules_per_byte=1e-9))
    links += tuple(replace(link, ends=link.ends[::-1]) for link in links)
    machine = MachineModel(devices, links)

    def predicted(machine):
        return simulate(lower(graph, strategy, machine), CostModel.analytic(machine))

    timeline = predicted(machine)
    flops = 2 * 1000 * (3 + 5) * 2e-9  # float64 at half of float32's rate
    memory = 8000 * (1 + 2 + 2) * 3e-9  # a feed, and what each point reads and writes
    network = 2 * 8000 * (7e-9 + 1e-9)  # to `b`, and its result back
    expected = flops + memory + network + 16 * timeline.seconds
    assert timeline.joules == pytest.approx(expected, rel=1e-12)
    assert predicted(machine.with_rates(joules_per_byte=None)).joules is None
    silent = replace(machine, links=tuple(replace(k, joules_per_byte=None) for k in links))
    assert predicted(silent).joules is None
    assert predicted(machine.with_rates(watts=None)).joules is None


def test_bytes_by_class_of_link():
    graph, machine = network(batch=32), MachineModel.preset("p100", nodes=2)
    timeline = simulate(
        lower(graph, taskflow.data_parallel(graph, machine), machine), CostModel.analytic(machine)
    )
    within, between = timeline.class_bytes().values()
    assert within + between == timeline.bytes_moved
    assert within > 0 and between > 0


def test_what_every_row_waited_for(timeline):
    assert timeline.awaited().tolist() == [-1, 0, 1, 2, 3]
    unknown = replace(timeline, end=np.where(np.arange(5) == 2, np.nan, timeline.end))
    assert unknown.awaited().tolist() == [-1, 0, 1, -1, 3]
    assert unknown.critical_path() == [3, 4]


def test_critical_path_is_every_row(timeline):
    names = [timeline.task_graph[row].name for row in timeline.critical_path()]
    assert names == ["x", "a", "a", "b", "b"]


def names_of(machine):
    """Of every stream, with its device."""
    for device, name in (
        describe_stream(machine, stream) for stream in range(count_streams(machine))
    ):
        yield f"device {device} {name}" if device < len(machine.devices) else name


def test_a_collective_occupies_its_whole_ring():
    task_graph = gathered(6, 6)
    timeline = simulate(task_graph, CostModel.analytic(task_graph.machine))
    (row,) = [t.row for t in task_graph if t.collective]
    links = [f"link {d}->{(d + 1) % 6}" for d in range(6)]
    names = dict(enumerate(names_of(task_graph.machine)))
    assert [names[s] for s in task_graph.streams_of(row)] == [
        *(f"device {d} compute" for d in range(6)),
        *links,
    ]
    lasts = timeline.end[row] - timeline.start[row]
    busy = {names[s]: seconds for s, seconds in timeline.busy_seconds().items()}
    assert [busy[link] for link in links] == pytest.approx([lasts] * 6)
    assert timeline.start[row + 1 :].min() >= timeline.end[row]  # devices of one thread
    assert sum(timeline.link_bytes().values()) == timeline.bytes_moved
    assert row in timeline.critical_path()


def test_a_group_is_known_by_its_devices():
    first, second = gathered(6, 6), gathered(6, 1)
    assert len(first.groups) == len(second.groups) == 1
    np.testing.assert_array_equal(first.groups.streams, second.groups.streams)
    assert first.groups.devices_of(0) == tuple(range(6))
