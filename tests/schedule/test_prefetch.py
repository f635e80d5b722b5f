"""Gathers a layer ahead, and what list scheduling puts off."""

from functools import cache

import numpy as np
import pytest

import ops
import taskflow
from taskflow import CostModel, MachineModel, Plan, lower, reorder, simulate
from taskflow.schedule import critical_path, depth_first, first_ready, forward_first, prefetch
from taskflow.schedule.orders import named
from taskflow.schedule.put_off import gathers
from tests import refusals

LAYERS, DEVICES = 6, 8
LISTED = (critical_path, first_ready, depth_first, forward_first)


@cache
def sharded(again=False):
    """Fully sharded layers of two products each, lowered; and costs."""
    graph = taskflow.Graph()
    h = graph.input("x", (4096 * DEVICES, 256))
    for k in range(LAYERS):
        wide = ops.gelu(ops.linear(h, 1024, name=f"layer{k}.up"), name=f"layer{k}.gelu")
        h = ops.linear(wide, 256, name=f"layer{k}.down")
    ops.adam(ops.mse_loss(h, graph.input("t", h.shape)), lr=1e-3)
    if again:
        names = [f"layer{k}.{name}" for k in range(LAYERS) for name in ("up", "gelu")]
        graph = taskflow.recompute(graph, names)
    graph = taskflow.homes(graph)
    machine = MachineModel.preset("h100").with_rates(reserved_bytes=0, communicator_bytes=0)
    rows = lower(graph, taskflow.fully_sharded(graph, machine), machine)
    return rows, CostModel.analytic(machine)


def visits(rows):
    """(gathers, 2) of every gather its row and its layer, counted through both passes; and where each layer begins."""
    found = gathers(rows, np.arange(len(rows)))
    is_gather = rows.is_communication[found.row]
    launches = [rows.launches[k] for k in rows.launch[found.reader[is_gather]].tolist()]
    layers = [(launch.leader.split(".")[0], launch.phase > 0) for launch in launches]
    names = list(dict.fromkeys(layers))
    which = np.array([names.index(layer) for layer in layers])
    begin = np.full(len(names), len(rows))
    np.minimum.at(begin, which, found.reader[is_gather])
    return np.stack([found.row[is_gather], which], axis=1), begin


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_gathers_are_issued_so_many_layers_ahead(layers):
    rows = reorder(*sharded(), prefetch(layers))
    gathers_of, begin = visits(rows)
    assert len(begin) == 2 * LAYERS
    for row, layer in gathers_of.tolist():
        assert row < begin[max(layer - layers, 0)]
        assert layer <= layers or row > begin[layer - layers - 1]


def test_one_layer_ahead_is_faster_and_takes_little_more_memory():
    rows, costs = sharded()
    lowered, ahead = simulate(rows, costs), simulate(reorder(rows, costs, prefetch(1)), costs)
    assert ahead.seconds < 0.95 * lowered.seconds
    assert max(ahead.peak_bytes) < 1.1 * max(lowered.peak_bytes)


@pytest.mark.parametrize("order", [*LISTED, prefetch(1)])
def test_orders_keep_what_recomputation_saves(order):
    rows, costs = sharded(again=True)
    kept = max(simulate(sharded()[0], costs).peak_bytes)
    lowered = max(simulate(rows, costs).peak_bytes)
    peak = max(simulate(reorder(rows, costs, order), costs).peak_bytes)
    assert lowered < 0.8 * kept
    assert peak <= 1.15 * lowered  # critical_path took 1.8 times as much before


def test_pieces_of_an_operator_follow_each_other_and_hide_what_they_move():
    """Tensor parallel products in four pieces: sums and gathers of a piece travel under the next one's product."""
    graph = taskflow.Graph()
    h = graph.input("x", (65536, 2048), "float16")
    for k in range(3):
        wide = ops.linear(ops.relu(h, name=f"layer{k}.in"), 8192, name=f"layer{k}.up")
        h = ops.linear(wide, 2048, name=f"layer{k}.down")
    ops.adam(ops.mse_loss(h, graph.input("t", h.shape, "float16")), lr=1e-3)
    machine = MachineModel.preset("h100")
    costs = CostModel.analytic(machine)
    seconds = []
    for parts, order in ((1, "prefetch"), (4, "prefetch"), (4, "pieces")):
        plan = taskflow.grid(graph, machine, tensor=8, parts=parts, schedule=order)
        _, rows = plan.apply(graph, machine, costs)
        seconds.append(simulate(rows, costs).seconds)
    own = np.flatnonzero((rows.device == 0) & (rows.kind == taskflow.Kind.POINT))
    at = [k for k, row in enumerate(own.tolist()) if rows.name(row) == "layer1.up"]
    assert at == list(range(at[0], at[0] + 4)) and rows.ordinal[own[at]].tolist() == [0, 1, 2, 3]
    assert seconds[2] < 0.95 * seconds[0] < seconds[1]


@pytest.mark.parametrize("name", ["prefetch:2", "pieces:2", "pieces"])
def test_a_plan_file_holds_the_number_of_layers(name, tmp_path):
    plan = Plan(taskflow.Strategy(), schedule=named(name))
    assert plan.schedule == name
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert named("prefetch:2") == prefetch(2) != named("pieces:2") == prefetch(2, in_pieces=True)
    assert named("prefetch") == prefetch()
    assert named("prefetch:x") is None


def test_a_number_of_layers_is_whole():
    message = "prefetch: layers is -1, a whole number from 0 is needed"
    refusals.assert_refused(message, lambda: prefetch(-1))
