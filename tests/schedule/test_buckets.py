"""Collectives that are put together in an order, and are one call of a library."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Executor,
    Graph,
    MachineModel,
    Plan,
    check_plan,
    data_parallel,
    grid,
    lower,
    reorder,
    simulate,
)
from taskflow.graph.phases import Phase
from taskflow.schedule import critical_path, prefetch, program
from taskflow.tasks.calls import calls_of, is_by_library, whole_bytes, with_calls
from tests.strategies import feeds_of

LAYERS = 4
H100 = MachineModel.preset("h100").with_rates(reserved_bytes=0, communicator_bytes=0)


def layers(samples, width, optimizer=ops.sgd):
    graph = Graph()
    h = graph.input("x", (samples, width))
    for k in range(LAYERS):
        wide = ops.tanh(ops.linear(h, width, name=f"layer{k}.up"), name=f"layer{k}.tanh")
        h = ops.linear(wide, width, name=f"layer{k}.down")
    optimizer(ops.mse_loss(h, graph.input("t", h.shape)), lr=1e-3)
    return graph


@cache
def planned(sharded, order, bucket_bytes):
    graph = layers(8192, 512)
    plan = replace(grid(graph, H100, sharded=sharded), schedule=order, bucket_bytes=bucket_bytes)
    return graph, plan, *plan.apply(graph, H100, CostModel.analytic(H100))


def calls(rows):
    """The rows of every call with some, and the names of their regions' layers."""
    first, last = calls_of(rows)
    heads = np.unique(first[first < last])
    found = [np.flatnonzero(first == head) for head in heads]
    return [(call, {rows.name(r).split(".")[0] for r in call.tolist()}) for call in found]


@pytest.mark.parametrize("order", [program, critical_path, prefetch(1)])
def test_gathers_and_gradients_of_a_layer_are_one_call(order):
    _, _, lowered, rows = planned("parameters", order, 1 << 30)
    found = calls(rows)
    is_called = np.zeros(len(rows), np.bool_)
    is_called[np.concatenate([call for call, _ in found])] = True
    assert is_called[is_by_library(rows)].mean() > 0.8
    kinds = [rows.collective[call[0]] for call, names in found if len(names) == 1]
    assert len(kinds) >= 3 * LAYERS - 1  # gathered in both passes, but for the last, and summed
    check_plan(lowered, rows)


def test_gradients_fill_buckets_across_layers():
    size = 5 * 512 * 512 * 4
    _, _, _, rows = planned("", None, size)
    found = calls(rows)
    held = [whole_bytes(rows)[call].sum() for call, _ in found]
    assert max(held) <= size < min(held[:-1]) + 512 * 512 * 4
    assert any(len(names) > 1 for _, names in found)


@pytest.mark.parametrize("sharded", ["", "parameters"])
def test_a_call_takes_what_all_the_bytes_take(sharded):
    graph, plan, _, rows = planned(sharded, "prefetch", 1 << 30)
    costs = CostModel.analytic(H100)
    alone = simulate(planned(sharded, "prefetch", None)[3], costs)
    timeline = simulate(rows, costs)
    assert timeline.seconds < alone.seconds
    assert plan.predict(graph, H100, costs).seconds == pytest.approx(timeline.seconds, rel=1e-9)
    of_rows = costs.seconds(rows)
    for call, _ in calls(rows):
        taken = timeline.end[call[-1]] - timeline.start[call[0]]
        assert of_rows[call].max() <= taken < of_rows[call].sum()


def test_a_call_begins_when_all_may_and_is_over_as_a_whole():
    rows = planned("", None, 1 << 30)[3]
    timeline = simulate(rows, CostModel.analytic(H100))
    (call, _), *_ = calls(rows)
    awaited = np.concatenate([rows.deps(r) for r in call.tolist()])
    assert timeline.start[call[0]] >= timeline.end[awaited].max() - 1e-12
    readers = [r for r in range(len(rows)) if set(rows.deps(r)) & set(call.tolist())]
    assert readers and timeline.start[readers].min() >= timeline.end[call[-1]] - 1e-12
    assert {rows.launches[rows.launch[r]].phase for r in readers} == {Phase.UPDATE}


def test_memory_of_a_call_is_held_until_all_of_it_is_over():
    rows = planned("parameters", "prefetch", 1 << 30)[3]
    timeline = simulate(rows, CostModel.analytic(H100))
    waiting = timeline.task_graph
    again = with_calls(waiting)
    assert len(again.dep_row) == len(np.unique(waiting.waiting_row * len(rows) + waiting.dep_row))


@pytest.mark.parametrize("sharded", ["", "parameters"])
def test_emulated_devices_run_calls_with_the_same_bits(sharded):
    machine = H100.with_rates(kind="emulated")
    graph, costs = layers(64, 8, ops.adam), CostModel.analytic(machine)
    plan = grid(graph, machine, sharded=sharded, schedule="prefetch")
    feeds, found = feeds_of(graph), []
    for bucket_bytes in (None, 4096):
        _, rows = replace(plan, bucket_bytes=bucket_bytes).apply(graph, machine, costs)
        with Executor(rows, seed=3, record=True) as step:
            losses = [step(feeds)["loss"].tobytes() for _ in range(3)]
            found.append((losses, [step.read(r.name).tobytes() for r in graph.parameters]))
            assert step.timeline.seconds >= simulate(rows, costs).seconds * (1 - 1e-6)
    assert found[0] == found[1]


def test_steps_of_own_algorithms_stay_one_after_the_other():
    own, graph = H100.with_library("own"), layers(8192, 512)
    costs, strategy = CostModel.analytic(own), data_parallel(graph, own)
    rows, bucketed = (
        reorder(lower(graph, strategy, own, bucket_bytes=size), costs, program)
        for size in (None, 1 << 30)
    )
    assert simulate(bucketed, costs).seconds == simulate(rows, costs).seconds
    assert not calls(bucketed)


def test_a_plan_file_holds_the_size_of_buckets(tmp_path):
    plan = planned("", None, 1 << 20)[1]
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").bucket_bytes == 1 << 20
