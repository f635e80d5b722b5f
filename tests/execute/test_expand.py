"""Expansion: the rows that run instead of a in the memory that was planned for it, with its numbers."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, Device, Executor, Kind, MachineModel, lower, reorder, simulate
from taskflow.execute.expand import expand, expand_plan, spell_out
from taskflow.schedule import critical_path, first_ready, program
from taskflow.tasks import moves
from taskflow.tasks.exchange import Exchange
from taskflow.tasks.memory import plan_memory
from taskflow.tasks.task_graph import JOINED
from tests import laws
from tests.collectives import by_copies
from tests.lowered import network, row_text
from tests.lowering.test_collective import gathered
from tests.own import arguments, edges, touching
from tests.strategies import examples, feeds_of, graphs, random_strategy


def machine_of(devices, each=8, kind="cpu", direct=4):
    """`each` devices a host."""
    device = [Device(kind, host=d // each, overhead_seconds=1e-5) for d in range(devices)]
    return by_copies(MachineModel(tuple(device), MachineModel.uniform(devices).links), direct)


@pytest.fixture
def always(monkeypatch):
    """Sums and gathers of however little are collectives."""
    monkeypatch.setattr(moves, "ROOM_BYTES", 0)


def trained(devices, each=8, width=24, kind="cpu"):
    """Data parallel, but one update is split: reduce-scatter and all-gather besides all-reduce."""
    graph = network(batch=24, width=width, own=("fc0.weight",))
    machine = machine_of(devices, each, kind)
    strategy = taskflow.data_parallel(graph, machine)
    strategy["fc0.weight.update"] = taskflow.ParallelConfig({"b": devices})
    return graph, lower(graph, strategy, machine)


def test_a_broadcast_becomes_the_copies_of_its_algorithm():
    task_graph = gathered(6, 1)
    assert [way.algorithm for way in task_graph.ways] == ["straight"]  # sending costs CPUs nothing
    expanded = expand(task_graph)
    assert [row_text(t) for t in expanded.task_graph if t.name == "h" and t.kind == Kind.COPY] == [
        f"{1 + k} broadcast h 0->{k} 1[0:12, 0:2] {1 + k}[0:12, 0:2] after [1]" for k in range(1, 6)
    ]
    assert expanded.origin.tolist() == [*range(2), *[2] * 5, *range(3, 15)]


def test_without_collectives_nothing_changes():
    _, task_graph = trained(4)
    assert expand(task_graph).task_graph is task_graph


@pytest.mark.parametrize("model", ["network", "gather"])
def test_dependences_are_those_of_lowering(model):
    """Found again from what the rows touch."""
    task_graph = trained(3)[1] if model == "network" else gathered(4, 4)
    again = spell_out(task_graph, np.zeros(0, np.int64)).task_graph
    np.testing.assert_array_equal(again.dep_ptr, task_graph.dep_ptr)
    np.testing.assert_array_equal(again.dep_row, task_graph.dep_row)
    assert again.digest() == task_graph.digest()


@pytest.mark.parametrize("each", [8, 4, 3])
@pytest.mark.parametrize("devices", [5, 6, 8])
def test_bytes_and_memory_are_those_of_the_collectives(always, devices, each):
    _, task_graph = trained(devices, each)
    expansion = expand(task_graph)
    rows = expansion.task_graph
    rows.check()
    assert not np.any(rows.kind == Kind.COLLECTIVE)
    assert rows.bytes_moved == task_graph.bytes_moved
    assert rows.bytes_moved_by_device().tolist() == task_graph.bytes_moved_by_device().tolist()
    plan = plan_memory(task_graph)
    expanded = expand_plan(plan, expansion)
    assert (
        simulate(task_graph, CostModel.analytic(task_graph.machine)).peak_bytes.tolist()
        == plan.peak_bytes.tolist()
    )
    ends, here = expanded.offset + expanded.size, rows.instance_device
    assert all(ends[here == d].max() <= plan.peak_bytes[d] for d in range(devices))
    touched = np.repeat(np.arange(len(rows)), np.diff(rows.arg_ptr)), rows.arg_instance
    assert np.all(expanded.first[touched[1]] <= touched[0]) and np.all(
        touched[0] <= expanded.last[touched[1]]
    )


@pytest.mark.parametrize("order", [program, first_ready, critical_path])
@pytest.mark.parametrize("small", [0, 1 << 20])
@pytest.mark.parametrize("each", [8, 4])
def test_eight_devices_train_as_one(monkeypatch, each, small, order):
    monkeypatch.setattr(moves, "ROOM_BYTES", small)
    graph, task_graph = trained(8, each)
    assert {t.collective for t in task_graph if t.kind == Kind.COLLECTIVE} == {
        "all-reduce",
        "all-gather",
        "reduce-scatter",
    }
    task_graph = reorder(task_graph, CostModel.analytic(task_graph.machine), order)
    feeds = feeds_of(graph)
    found = laws.run(task_graph, feeds, 2)
    one = lower(graph, taskflow.single_device(graph, task_graph.machine), task_graph.machine)
    laws.assert_close(found, laws.run(one, feeds, 2))
    laws.assert_equal(laws.run(task_graph, feeds, 2, watch=True), found)


def test_the_measured_timeline_has_the_rows_of_the_task_graph():
    graph, task_graph = trained(6)
    with Executor(task_graph, record=True) as step:
        step(feeds_of(graph))
        timeline = step.timeline
    assert len(timeline.start) == len(task_graph)
    assert np.all(timeline.end >= timeline.start)
    assert timeline.peak_bytes.tolist() == step.plan.peak_bytes.tolist()


def test_emulated_devices_take_about_as_long_as_predicted():
    graph, task_graph = trained(6, kind="emulated")
    with Executor(task_graph, record=True) as step:
        step(feeds_of(graph))
        step(feeds_of(graph))
        assert (
            step.timeline.seconds
            >= 0.5 * simulate(task_graph, CostModel.analytic(task_graph.machine)).seconds
        )


def ends(rows, row, devices):
    """What a row touches on these devices, whatever the numbers of instances."""
    return [each for each in arguments(rows, row) if each[0] is None or each[0][1] in devices]


@examples(40)
@given(graphs(), st.integers(2, 6), st.integers(1, 4), st.data())
def test_rows_of_some_devices_become_the_steps_that_touch_them(model, devices, each, data):
    machine = machine_of(devices, each, direct=1)
    strategy = random_strategy(model.graph, machine, data.draw(st.integers(0, 999)))
    here = data.draw(st.lists(st.integers(0, devices - 1), min_size=1, unique=True))
    whole = expand(lower(model.graph, strategy, machine)).task_graph
    with mock.patch.object(Exchange, "steps", side_effect=AssertionError("of all devices")):
        own = expand(lower(model.graph, strategy, machine, devices=here)).task_graph
    kept = np.flatnonzero(touching(whole, here))
    for name in ("kind", "point", "device", "source", "collective", "bytes"):
        np.testing.assert_array_equal(getattr(own, name), getattr(whole, name)[kept], name)
    assert (own.algorithm == JOINED).tolist() == (whole.algorithm[kept] == JOINED).tolist()
    for row, at in enumerate(kept.tolist()):
        assert ends(own, row, here) == ends(whole, at, here)
    assert edges(own, kept) <= edges(whole, np.arange(len(whole)))


@pytest.mark.slow
@examples(40)
@given(data=st.data())
def test_laws_hold_for_collectives_of_any_size(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moves, "ROOM_BYTES", data.draw(st.sampled_from([0, 40, 200])))
        devices, each, direct = (
            data.draw(values) for values in (*[st.integers(2, 8)] * 2, st.sampled_from([1, 4, 8]))
        )
        model, machine = (
            data.draw(graphs()),
            machine_of(devices, each, direct=devices if direct == 8 else direct),
        )
        strategy = random_strategy(model.graph, machine, data.draw(st.integers(0, 2**32 - 1)))
        laws.any_strategy_is_one_device(model, machine, strategy, steps=2, watch=True)
        laws.any_order_is_the_same(model, machine, strategy, orders=3)
        laws.runs_are_the_same(model, machine, strategy)
