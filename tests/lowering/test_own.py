"""The rows of some devices are those of the whole that touch them; of all devices together, the whole (law 13)."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import (
    CostModel,
    Device,
    Executor,
    Graph,
    MachineModel,
    Window,
    check_plan,
    data_parallel,
    lower,
    reorder,
    simulate,
)
from taskflow.lowering import lowering
from tests.collectives import by_copies
from tests.lowered import network
from tests.ops.strategies import operator_graphs
from tests.own import assert_part, edges
from tests.refusals import assert_refused
from tests.strategies import examples, graphs, hosted, plans_in_time, random_strategy


def assert_parts(graph, strategy, machine, owners):
    """Ranks with these devices have all rows and all edges."""
    whole = lower(graph, strategy, machine)
    rows, found = set(), set()
    for devices in owners:
        own = lower(graph, strategy, machine, devices=devices)
        found |= assert_part(own, whole, devices)
        rows |= set(own.numbers.tolist())
    assert rows == set(range(len(whole)))
    assert found == edges(whole, np.arange(len(whole)))


MACHINES = {
    "copies": MachineModel.uniform(4),
    "hosts": MachineModel(
        tuple(Device(host=d // 3) for d in range(5)), MachineModel.uniform(5).links
    ),
    "collectives": by_copies(MachineModel.uniform(4), 1),
}


@examples(60)
@given(st.one_of(graphs(), operator_graphs()), st.sampled_from(list(MACHINES)), st.data())
def test_all_devices_together_have_the_whole(model, name, data):
    machine = MACHINES[name]
    count = len(machine.devices)
    strategy = random_strategy(model.graph, machine, data.draw(st.integers(0, 999)))
    owner = np.array(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    assert_parts(
        model.graph, strategy, machine, [np.flatnonzero(owner == k).tolist() for k in range(3)]
    )


@examples(30)
@given(graphs(), st.data())
def test_with_micro_batches_and_schedules(model, data):
    machine = hosted(MachineModel.uniform(4))
    placed, _, strategy = data.draw(plans_in_time(model, machine))
    assert_parts(placed.graph, strategy, machine, [[d] for d in range(4)])


def test_a_region_of_which_nothing_is_read():
    graph, machine = Graph(), MachineModel.uniform(2)
    x = graph.input("x", (4,), "float64")
    beyond = Window("b", padding=9)
    graph.launch("y", "w -> b", [x], kernel=print, sizes={"b": 2}, windows={"w": beyond})
    assert_parts(graph, data_parallel(graph, machine), machine, [[0], [1]])


def test_regions_that_a_device_does_not_touch_are_left_out():
    """Those of another stage, of which there are as many again."""
    graph, machine = network(), MachineModel.uniform(2)
    strategy = taskflow.stages(graph, machine, count=2)
    with mock.patch.object(lowering, "sample_of", wraps=lowering.sample_of) as sample:
        rows = lower(graph, strategy, machine, devices=[0])
    *_, is_kept = sample.call_args.args
    assert is_kept.sum() < len(graph.regions)
    assert {*np.flatnonzero(is_kept).tolist()} - {0} <= {*rows.instance_region.tolist()}


def test_what_a_device_lacks_is_no_device():
    graph, machine = network(), MachineModel.uniform(2)
    for wrong in (2, -1, 0.5, True):
        with pytest.raises(ValueError, match=f"^lower: devices name device {wrong!r} of 2$"):
            lower(graph, data_parallel(graph, machine), machine, devices=[wrong])
    none = lower(graph, data_parallel(graph, machine), machine, devices=[])
    assert len(none) == 0


@examples(60)
@given(graphs(), st.sampled_from(list(MACHINES)), st.data())
def test_what_all_ranks_must_agree_on_has_one_hash(model, name, data):
    """The rows of any devices have the same; other rows of the whole have another."""
    machine = MACHINES[name]
    first, second = (
        random_strategy(model.graph, machine, data.draw(st.integers(0, 999))) for _ in range(2)
    )

    def agreed(strategy):
        rows = [lower(model.graph, strategy, machine, devices=[d]) for d in range(2)]
        assert rows[0].own.agreed == rows[1].own.agreed
        return rows[0].own.agreed

    one, other = (lower(model.graph, strategy, machine).digest() for strategy in (first, second))
    assert (agreed(first) == agreed(second)) == (one == other)


def test_the_choice_of_collectives_is_in_the_hash():
    graph = network()
    machine = by_copies(MachineModel.uniform(4), 1)
    strategy = data_parallel(graph, machine)
    hashes = {
        lower(graph, strategy, machine, {"all-reduce": name}, devices=[0]).own.agreed
        for name in ("ring", "tree", "halving-doubling")
    }
    assert len(hashes) == 3


def test_a_rank_needs_the_rows_of_all_devices_of_its_host():
    graph, machine = network(), MachineModel.uniform(3)
    strategy = data_parallel(graph, machine)
    some = lower(graph, strategy, machine, devices=[0, 2])
    rule = (
        "executor: a rank runs the rows of its host's devices [0, 1, 2]; these are the rows of [0, 2] "
        "(`lower(devices=)`), which lack device 1"
    )
    assert_refused(rule, lambda: Executor(some))
    everywhere = lower(graph, strategy, machine, devices=range(3))
    assert everywhere.is_complete
    Executor(everywhere).close()


def test_what_needs_all_rows_refuses_those_of_some_devices():
    graph, machine = network(), MachineModel.uniform(2)
    rows, costs = (
        lower(graph, data_parallel(graph, machine), machine, devices=[0]),
        CostModel.analytic(machine),
    )
    needs = {
        "simulate": lambda: simulate(rows, costs),
        "costs": lambda: reorder(rows, costs),
        "check_plan": lambda: check_plan(graph, rows),
    }
    for where, call in needs.items():
        with pytest.raises(ValueError, match=f"^{where}: these are the rows of some devices alone"):
            call()
