"""The rows of representatives are those of all rows that touch them, and say of a step what all rows say."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import (
    CostModel,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    check_plan,
    lower,
    reorder,
    simulate,
)
from taskflow.machine import Link
from taskflow.schedule.orders import NAMED
from taskflow.searching.grids import Grids
from taskflow.strategy.orbits import Orbits, orbits_of
from taskflow.strategy.sharded import shard_state
from taskflow.tasks.task_graph import STREAMS, Kind
from tests import tiny
from tests.lowered import matrix, network
from tests.strategies import examples, graphs, hosted, offloadable, plans_in_time, random_strategy

COLUMNS = (
    *("kind", "launch", "point", "region", "device", "source", "ordinal"),
    *("collective", "bytes", "flops"),
)
CARRIED = {}, {"all-reduce": "copies"}, {"all-reduce": "ring"}


def stand_in(orbits):
    return orbits.representative[orbits.of]


def touched(rows, device):
    """The rows that touch a device, in order."""
    row = np.repeat(np.arange(len(rows)), np.diff(rows.arg_ptr))
    used = rows.arg_instance >= 0
    there = (rows.device == device) & (rows.kind == Kind.POINT)
    there[row[used][rows.instance_device[rows.arg_instance[used]] == device]] = True
    return np.flatnonzero(there)


def numbers(found, rows):
    """Which of all rows the rows of representatives are: those that touch these, in order."""
    devices = found.peers.orbits.representative.tolist()
    return np.unique(np.concatenate([touched(rows, device) for device in devices]))


def assert_rows(found, rows):
    """Those that touch representatives, in order, and of every orbit as many as there are."""
    number = numbers(found, rows)
    assert len(found) == len(number)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(found, name), getattr(rows, name)[number], name)
    assert found.peers.count.sum() == len(rows)


def assert_alike(timeline, expected, rows):
    """Every device does when its representative does, to the digit, the same kinds of rows."""
    orbits = timeline.task_graph.peers.orbits
    number = numbers(timeline.task_graph, rows)
    np.testing.assert_array_equal(timeline.start, expected.start[number])
    np.testing.assert_array_equal(timeline.end, expected.end[number])
    for device, first in enumerate(stand_in(orbits).tolist()):
        here, there = touched(rows, device), touched(rows, first)
        for name in ("kind", "launch", "region", "ordinal", "collective", "bytes", "flops"):
            column = getattr(rows, name)
            np.testing.assert_array_equal(column[here], column[there], name)
        np.testing.assert_array_equal(expected.start[here], expected.start[there])
        np.testing.assert_array_equal(expected.end[here], expected.end[there])


def assert_busy(found, expected, machine):
    """Devices to the digit; of links seconds are added in another order."""
    assert found == pytest.approx(expected, rel=1e-12)
    of_devices = [s for s in expected if s < STREAMS * len(machine.devices)]
    assert [found[s] for s in of_devices] == [expected[s] for s in of_devices]


def assert_equal(graph, strategy, machine, orbits=None):
    """Of all rows, and of those of representatives of orbits; the timeline of these."""
    machine = machine.with_rates(joules_per_flop=2.0, joules_per_byte=3.0, watts=5.0)
    orbits = orbits or orbits_of(graph, strategy, machine)
    costs = CostModel.analytic(machine)
    rows = lower(graph, strategy, machine)
    found = lower(graph, strategy, machine, devices=orbits)
    assert_rows(found, rows)
    expected, timeline = simulate(rows, costs), simulate(found, costs)
    assert timeline.seconds == expected.seconds
    np.testing.assert_array_equal(timeline.peak_bytes, expected.peak_bytes)
    assert timeline.shortage == expected.shortage
    assert timeline.bytes_moved == expected.bytes_moved
    assert timeline.class_bytes() == expected.class_bytes()
    assert timeline.link_bytes() == expected.link_bytes()
    assert timeline.joules == pytest.approx(expected.joules, rel=1e-12)
    np.testing.assert_array_equal(
        timeline.task_graph.bytes_moved_by_device(), rows.bytes_moved_by_device()
    )
    assert_busy(timeline.busy_seconds(), expected.busy_seconds(), machine)
    assert_rows(timeline.task_graph, rows)
    assert_alike(timeline, expected, rows)
    return timeline


HOSTS = {"h100": 2, "p100": 3, "v100": 2, "k80": 2, "laptop": 8}


@st.composite
def machines(draw):
    name = draw(st.sampled_from(["uniform", "unequal hosts", *sorted(HOSTS)]))
    if name == "uniform":
        machine = MachineModel.uniform(draw(st.integers(2, 9)))
    elif name == "unequal hosts":
        hosts = MachineModel.preset("v100"), MachineModel.preset("k80")
        machine = MachineModel.join([hosts[0], hosts[1].take(4)])
    else:
        machine = MachineModel.preset(name, nodes=draw(st.integers(1, HOSTS[name])))
    machine = machine.with_collectives(draw(st.sampled_from(CARRIED)))
    return draw(st.sampled_from([hosted, on_switches]))(machine)


def on_switches(machine):
    """The same, where two devices share a way to the memory of their host."""
    near = [
        ((d, s := f"pcie{d // 2}@{x.host}"), (s, f"host@{x.host}"))
        for d, x in enumerate(machine.devices)
    ]
    ends = dict.fromkeys(end for ways in near for way in ways for end in (way, way[::-1]))
    links = tuple(Link(end, 1e9, 1e-6) for end in ends)
    memories = hosted(machine).memories
    return replace(machine, links=(*machine.links, *links), memories=memories)


@st.composite
def cases(draw):
    """A graph, a strategy and a machine."""
    machine = draw(machines())
    kind = draw(
        st.sampled_from(
            ["data", "grid", "stages", "grid", "stages", "halo", "graph", "time", "random"]
        )
    )
    count = len(machine.devices)
    if kind == "time":
        model, _, strategy = draw(plans_in_time(draw(graphs(steps=2)), machine))
        return model.graph, strategy, machine
    if kind in ("graph", "random"):
        graph = draw(graphs(steps=3)).graph
    else:
        batch = count * draw(st.sampled_from([2, 4])) + draw(st.sampled_from([0, 0, 0, 1, 5]))
        width = draw(st.sampled_from([8, 17, 32]))
        graph = network(batch, width, draw(st.integers(1, 3)))
    if draw(st.booleans()):
        with suppress(ValueError):  # it is updated in place
            names = offloadable(graph, np.random.default_rng(draw(st.integers(0, 999))))
            graph = taskflow.offload(graph, names)
    strategy = taskflow.data_parallel(graph, machine)
    if kind == "random":
        strategy = random_strategy(graph, machine, draw(st.integers(0, 999)))
    elif kind == "grid":
        degree = draw(st.sampled_from([d for d in (2, 4, 8) if count % d == 0] or [1]))
        strategy = Grids(graph).strategy(range(count), degree) or strategy
    elif kind == "stages":
        stages = draw(st.sampled_from([d for d in (2, 3, 4) if count % d == 0] or [1]))
        with suppress(ValueError):  # samples do not divide
            strategy = taskflow.stages(graph, machine, stages, draw(st.sampled_from([1, 2])))
    elif kind == "halo":
        graph = halo(count, draw(st.integers(0, 1)))
        strategy = Strategy.of_graph(
            graph,
            {op.name: ParallelConfig({"b": count}) for op in graph.operators if not op.follows},
        )
    if draw(st.booleans()):
        strategy = shard_state(graph, strategy)
    return graph, strategy, machine


def halo(count, extra):
    """Every device reads what its neighbours have."""
    x = matrix(2 * count + extra, 4)
    tiny.stencil(tiny.tanh(x), 0)
    return x.graph


@examples(300)
@given(cases())
def test_representatives_say_what_all_rows_say(case):
    assert_equal(*case)


@examples(100)
@given(cases())
def test_orbits_that_are_too_coarse_are_refined(case):
    graph, strategy, machine = case
    one = Orbits.of_equal(np.zeros(len(machine.devices), np.int64))
    assert_equal(graph, strategy, machine, one)


@pytest.mark.parametrize("devices", [64, 128])
@pytest.mark.parametrize("batch", [1, 1.1])
def test_many_devices(devices, batch):
    machine = MachineModel.preset("h100", nodes=devices // 8)
    graph = network(int(batch * 2 * devices), 32, layers=1)
    data = taskflow.data_parallel(graph, machine)
    tensor = Grids(graph).strategy(range(devices), 8)
    for strategy in (data, shard_state(graph, data), tensor):
        assert_equal(graph, strategy, machine)


def test_a_pipeline_of_many_devices():
    machine = MachineModel.preset("h100", nodes=8)
    graph = network(256, 16, layers=4)
    within = Grids(graph).strategy(range(16), 2)
    strategy = taskflow.stages(graph, machine, count=4, parts=4, within=within)
    timeline = assert_equal(graph, strategy, machine)
    assert len(timeline.task_graph.peers.orbits) <= 32
    placed = {kind.by for kind in timeline.task_graph.peers.kinds}
    assert placed == {0, 32}  # the third and fourth stage have kinds of the first and second


def test_a_stage_behind_a_slow_link_has_its_own_kinds():
    machine = MachineModel.preset("p100", nodes=2)
    first, *others = machine.links
    slow = replace(first, bandwidth=first.bandwidth / 3)
    graph = network(64, 16, layers=2)
    for links, placed in (machine.links, {0, 4}), ((slow, *others), {0}):
        strategy = taskflow.stages(graph, machine, count=2, parts=2)
        timeline = assert_equal(graph, strategy, replace(machine, links=links))
        assert {kind.by for kind in timeline.task_graph.peers.kinds} == placed


@pytest.mark.parametrize("within", [1, 8])
def test_collectives_of_a_stage_load_the_links_of_its_members_alike(within):
    """Trees and what is left over of even pieces told apart the hosts from which stages send to each other."""
    machine = MachineModel.preset("h100", nodes=16)
    graph = network(256, 16, layers=4)
    within = Grids(graph).strategy(range(64), within)
    strategy = taskflow.stages(graph, machine, count=2, parts=2, within=within)
    rows = lower(graph, strategy, machine, devices=orbits_of(graph, strategy, machine))
    timeline = assert_equal(graph, strategy, machine)
    assert len(timeline.task_graph.peers.orbits) == len(rows.peers.orbits) <= 24


@examples(200)
@given(cases(), st.sampled_from(sorted(NAMED)))
def test_in_every_order_representatives_say_what_all_rows_say(case, order):
    graph, strategy, machine = case
    costs = CostModel.analytic(machine)
    rows = lower(graph, strategy, machine)
    found = lower(graph, strategy, machine, devices=orbits_of(graph, strategy, machine))
    try:
        expected = simulate(reorder(rows, costs, order), costs)
    except ValueError:  # a barrier, or what no schedule of stages knows
        with pytest.raises(ValueError):
            reorder(found, costs, order)
        return
    timeline = simulate(reorder(found, costs, order), costs)
    assert timeline.seconds == expected.seconds
    np.testing.assert_array_equal(timeline.peak_bytes, expected.peak_bytes)


def test_a_device_that_is_slower_is_an_orbit_of_its_own():
    """Whether the seed has seen it or the costs do."""
    machine = MachineModel.preset("h100", nodes=2)
    first, *others = machine.devices
    slow = replace(first, flops_per_second=first.flops_per_second / 3)
    machine = replace(machine, devices=(slow, *others))
    graph = network(batch=64, width=64)
    strategy = taskflow.data_parallel(graph, machine)
    for orbits in (None, Orbits.of_equal(np.zeros(16, np.int64))):
        timeline = assert_equal(graph, strategy, machine, orbits)
        assert (timeline.task_graph.peers.orbits.of == 0).tolist() == [True] + [False] * 15


@pytest.mark.parametrize("preset", ["p100", "v100"])
def test_rows_that_share_a_link_stand_for_each_other(preset):
    """From every device of a host to one of the next host, over one network card."""
    machine = MachineModel.preset(preset, nodes=2).with_collectives({"all-reduce": "ring"})
    size = len(machine.devices) // 2
    graph = network(batch=8 * size, width=16, layers=2)
    strategy = taskflow.stages(graph, machine, count=2, parts=2)
    rows = lower(graph, strategy, machine, devices=orbits_of(graph, strategy, machine))
    assert len(rows.peers.orbits) == 2
    timeline = assert_equal(graph, strategy, machine)
    assert len(timeline.task_graph.peers.orbits) == 2


def test_a_task_that_begins_when_a_collective_does():
    """Whichever of both the simulation begins first: that depends on the numbers of rows."""
    machine = MachineModel.preset("v100").with_collectives({"all-reduce": "ring"})
    x = tiny.embedding(Graph().input("t", (4,), "int32"), 5, 3)
    tiny.sgd(tiny.mean_square(tiny.tanh(tiny.tanh(tiny.tanh(x)))), lr=0.02)
    timeline = assert_equal(x.graph, taskflow.data_parallel(x.graph, machine), machine)
    assert len(timeline.task_graph.peers.orbits) == 2


def test_costs_that_know_rows_are_refused():
    machine = MachineModel.uniform(2)
    graph = network()
    strategy = taskflow.data_parallel(graph, machine)
    rows = lower(graph, strategy, machine, devices=orbits_of(graph, strategy, machine))
    with pytest.raises(ValueError, match=r"^simulate: these are the rows of representatives"):
        simulate(rows, CostModel.measured(machine))
    with pytest.raises(ValueError, match=r"^check_plan: these are the rows of some devices alone"):
        check_plan(graph, rows)
