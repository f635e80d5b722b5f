"""Collectives as single rows: which groups become one, its exact arguments, and bytes that stay the minimum."""

import numpy as np
import pytest

import taskflow
from taskflow import Kind, MachineModel, collective, lower
from taskflow.collective import gather_of, reduction_of
from taskflow.exchange import Exchange
from taskflow.geometry import Rect, split_evenly
from tests import tiny
from tests.test_lower import ITEM, lowered, matrix, network, parameter_bytes, row_text, transfers


def collectives(task_graph):
    return [row_text(task) for task in task_graph if task.kind == Kind.COLLECTIVE]


def summed(columns=12):
    return tiny.column_sum(matrix(6, columns), "sum")


def test_a_small_sum_that_six_devices_need_is_one_row():
    total = summed()
    graph = tiny.add_row(total.graph.input("y", (6, 12), "float64"), total, "read").graph
    task_graph = lowered(graph, {"sum": {"b": 6}, "read": {"b": 6}}, 6)
    parts = " ".join(f"{6 + d}[0:12]" for d in range(6))
    assert collectives(task_graph) == [
        f"18 all-reduce sum @0 {parts} {parts} 12[0:12] 13[0:12] 14[0:12] after [12, 13, 14, 15, 16, 17]"
    ]
    assert row_text(task_graph[19]) == "19 point read @0 15[0:1, 0:12] 6[0:12] 21[0:1, 0:12] after [6, 18]"
    assert task_graph.bytes_moved == 2 * 5 * 12 * ITEM


def test_a_large_sum_is_cut_among_its_devices(monkeypatch):
    monkeypatch.setattr(collective, "SMALL_BYTES", 0)
    total = summed()
    graph = tiny.add_row(total.graph.input("y", (6, 12), "float64"), total, "read").graph
    task_graph = lowered(graph, {"sum": {"b": 6}, "read": {"b": 6}}, 6)
    parts = " ".join(f"{6 + d}[0:12]" for d in range(6))
    pieces = " ".join(f"{12 + d}[{2 * d}:{2 * d + 2}]" for d in range(6))
    assert collectives(task_graph) == [f"18 all-reduce sum @0 {parts} {parts} {pieces} after [12, 13, 14, 15, 16, 17]"]


def test_a_sum_that_is_read_by_tiles_is_one_row():
    graph = tiny.copy(summed(), "read").graph
    task_graph = lowered(graph, {"sum": {"b": 6}, "read": {"c": 6}}, 6)
    parts = " ".join(f"{12 + d}[0:12]" for d in range(6))
    tiles, scratch = (" ".join(f"{k + d}[{2 * d}:{2 * d + 2}]" for d in range(6)) for k in (6, 18))
    assert collectives(task_graph) == [f"12 reduce-scatter sum @0 {parts} {tiles} {scratch} after [6, 7, 8, 9, 10, 11]"]
    assert task_graph.bytes_moved == 5 * 12 * ITEM


def test_a_sum_that_one_device_reads_is_one_row():
    graph = tiny.copy(summed(), "read").graph
    task_graph = lowered(graph, {"sum": {"b": 6}, "read": {}}, 6)
    parts = " ".join(f"{6 + d}[0:12]" for d in range(6))
    assert collectives(task_graph) == [
        f"12 reduce sum @0 {parts} 6[0:12] 12[0:12] 13[0:12] 14[0:12] after [6, 7, 8, 9, 10, 11]"
    ]
    assert task_graph.bytes_moved == 5 * 12 * ITEM


def gathered(devices, degree):
    x = matrix(12, 2)
    h = tiny.copy(x, "h")
    z = x.graph.input("z", (devices,), "float64")
    graph = x.graph.launch("read", "b c, z -> z c", [h, z], kernel=tiny._copy).graph
    return lowered(graph, {"h": {"b": degree}, "read": {"z": devices}}, devices)


def test_tiles_that_six_devices_need_are_gathered_in_one_row():
    task_graph = gathered(6, 6)
    tiles = " ".join(f"{6 + d}[{2 * d}:{2 * d + 2}, 0:2]" for d in range(6))
    whole = " ".join(f"{6 + d}[0:12, 0:2]" for d in range(6))
    (row,) = collectives(task_graph)
    assert row == f"18 all-gather h @0 {tiles} {whole} after [12, 13, 14, 15, 16, 17]"
    assert task_graph.bytes_moved == 5 * 24 * ITEM
    assert [task_graph.deps(r) for r in range(19, 25)] == [[6 + d, 12 + d, 18] for d in range(6)]


def test_what_one_device_has_and_five_others_need_is_broadcast_in_one_row():
    task_graph = gathered(6, 1)
    whole = " ".join(f"{k}[0:12, 0:2]" for k in range(2, 7))
    assert [r.split(" after")[0] for r in collectives(task_graph)] == [f"8 broadcast h @0 1[0:12, 0:2] {whole}"]
    assert task_graph.bytes_moved == 5 * 24 * ITEM


@pytest.mark.parametrize("devices", [3, 4])
def test_a_few_devices_exchange_row_by_row(devices):
    graph = network()
    machine = MachineModel.uniform(devices)
    assert not collectives(lower(graph, taskflow.data_parallel(graph, machine), machine))
    assert not collectives(gathered(devices, devices))


def test_four_others_are_told_row_by_row():
    assert not collectives(gathered(5, 1))


@pytest.mark.parametrize("small", [0, 1 << 20])
@pytest.mark.parametrize("devices", [5, 6, 7, 8])
def test_data_parallel_moves_the_least(monkeypatch, devices, small):
    monkeypatch.setattr(collective, "SMALL_BYTES", small)
    graph = network(batch=840, width=840, layers=1)
    task_graph = lowered(graph, {op.name: {"b": devices} for op in graph.operators if not op.follows}, devices)
    moved = {k: v for k, v in transfers(task_graph).items() if k[0] != "loss"}
    assert set(moved) == {("fc0.dweight", "all-reduce")}
    assert sum(moved.values()) == 2 * (devices - 1) * parameter_bytes(graph)
    if not small:  # every device sends 2 (p - 1) / p of the gradient
        hops = np.array([h for h in task_graph.hops().T.tolist() if task_graph.name(h[0]) == "fc0.dweight"]).T
        sent = np.bincount(hops[1], hops[3])
        assert sent.tolist() == [2 * (devices - 1) * parameter_bytes(graph) // devices] * devices


REPLICAS = [{0: 10, 1: 11}, {2: 12, 3: 13}, {4: 14, 5: 15}]  # three partial results, each on two devices


def test_of_replicas_of_a_partial_result_one_is_summed():
    whole = Rect.of_shape((12,))
    group = reduction_of(whole, REPLICAS, dict.fromkeys((d, whole) for d in range(1, 6)), (0,) * 6, ITEM)
    assert [(d, k) for d, k, _ in group.sources] == [(1, 11), (2, 12), (4, 14)]  # device 0 needs no sum
    assert [d for d, _ in group.targets] == [1, 2, 3, 4, 5]
    assert group.volume == 2 * 12 + 4 * 12


def test_a_replica_at_the_owner_of_a_piece_makes_no_row():
    """Device 1 holds a partial result: one row would have device 0 send it."""
    whole, tiles = Rect.of_shape((12,)), split_evenly(Rect.of_shape((12,)), 6)
    assert reduction_of(whole, REPLICAS, dict.fromkeys(enumerate(tiles)), (0,) * 6, ITEM) is None


def test_tiles_come_from_the_holder_on_the_same_host():
    box = Rect.of_shape((12,))
    left, right = split_evenly(box, 2)
    held = [(0, 10, left), (1, 11, right), (4, 14, left), (5, 15, right)]
    own = {0: [right], 1: [left], 4: [right], 5: [left]}
    places = [(d, 10 + d, own.get(d, [box])) for d in range(8)]
    group = gather_of(box, places, held, (0, 0, 0, 0, 1, 1, 1, 1))
    assert group.sources == [(0, 10, left), (4, 14, left), (1, 11, right), (5, 15, right)]
    assert group.volume == 8 * 12 - 4 * 6
    instances = [k for _, k, _ in group.sources] + [k for _, k, _ in places]
    boxes = [b for _, _, b in group.sources] + [box] * 8
    devices = [k - 10 for k in instances]
    steps = Exchange("all-gather", (0, 0, 0, 0, 1, 1, 1, 1), devices, instances, boxes, 4, 8).steps()
    assert all(devices[s.parts[0]] // 4 == devices[s.target] // 4 for s in steps)


def test_boxes_that_overlap_make_no_gather():
    box = Rect.of_shape((12,))
    held = [(0, 10, Rect((0,), (7,))), (1, 11, Rect((5,), (12,)))]
    assert gather_of(box, [(d, 10 + d, [box]) for d in range(2, 8)], held, (0,) * 8) is None
