"""Collectives as single rows: which groups become one, its exact arguments, and bytes that stay the minimum."""

import numpy as np
import pytest

import taskflow
from taskflow import Kind, MachineModel, lower
from taskflow.collective import price
from taskflow.tasks import moves
from tests import tiny
from tests.collectives import by_copies
from tests.lowered import ITEM, lowered, matrix, network, parameter_bytes, row_text, transfers


def collectives(task_graph):
    return [row_text(task) for task in task_graph if task.kind == Kind.COLLECTIVE]


def summed(columns=12):
    return tiny.column_sum(matrix(6, columns), "sum")


def test_a_small_sum_that_six_devices_need_is_one_row():
    total = summed()
    graph = tiny.add_row(total.graph.input("y", (6, 12), "float64"), total, "read").graph
    task_graph = lowered(graph, {"sum": {"b": 6}, "read": {"b": 6}}, 6)
    parts, scratch = (" ".join(f"{k + d}[0:12]" for d in range(6)) for k in (6, 12))
    assert collectives(task_graph) == [
        f"12 all-reduce sum @0 {parts} {parts} {scratch} after [6, 7, 8, 9, 10, 11]"
    ]
    assert (
        row_text(task_graph[19])
        == "19 point read @0 18[0:1, 0:12] 6[0:12] 24[0:1, 0:12] after [12, 13]"
    )
    assert task_graph.bytes_moved == 2 * 5 * 12 * ITEM


def test_a_large_sum_is_cut_among_its_devices(monkeypatch):
    monkeypatch.setattr(moves, "ROOM_BYTES", 0)
    total = summed()
    graph = tiny.add_row(total.graph.input("y", (6, 12), "float64"), total, "read").graph
    task_graph = lowered(graph, {"sum": {"b": 6}, "read": {"b": 6}}, 6)
    parts = " ".join(f"{6 + d}[0:12]" for d in range(6))
    pieces = " ".join(f"{12 + d}[0:2]" for d in range(6))
    assert collectives(task_graph) == [
        f"12 all-reduce sum @0 {parts} {parts} {pieces} after [6, 7, 8, 9, 10, 11]"
    ]


def test_a_sum_that_is_read_by_tiles_is_one_row():
    graph = tiny.copy(summed(), "read").graph
    task_graph = lowered(graph, {"sum": {"b": 6}, "read": {"c": 6}}, 6)
    parts = " ".join(f"{12 + d}[0:12]" for d in range(6))
    tiles, scratch = (
        " ".join(f"{6 + d}[{2 * d}:{2 * d + 2}]" for d in range(6)),
        " ".join(f"{18 + d}[0:12]" for d in range(6)),
    )
    assert collectives(task_graph) == [
        f"12 reduce-scatter sum @0 {parts} {tiles} {scratch} after [6, 7, 8, 9, 10, 11]"
    ]
    assert task_graph.bytes_moved == 5 * 12 * ITEM


def test_who_reads_a_sum_whole_reads_its_tiles_there_too():
    total = summed()
    tiny.copy(total, "tiles")
    graph = tiny.add_row(total.graph.input("y", (6, 12), "float64"), total, "read").graph
    task_graph = lowered(graph, {"sum": {"b": 6}, "read": {"b": 6}, "tiles": {"c": 6}}, 6)
    (row,) = [task for task in task_graph if task.kind == Kind.COLLECTIVE]
    assert row.collective == "all-reduce" and row.bytes == 2 * 5 * 12 * ITEM


def test_tiles_of_one_device_are_summed_with_all_algorithms(monkeypatch):
    """Twelve tiles on six devices, in turn: what arrives lies in memory as large as both tiles of a device, or more."""
    monkeypatch.setattr(moves, "ROOM_BYTES", 0)
    graph = tiny.copy(summed(24), "read").graph
    machine = MachineModel.uniform(6).with_collectives({"reduce-scatter": "ring"})
    in_turn = taskflow.ParallelConfig({"c": 12}, [k % 6 for k in range(12)])
    strategy = taskflow.Strategy.of_graph(
        graph, {"sum": taskflow.ParallelConfig({"b": 6}), "read": in_turn}
    )
    task_graph = lower(graph, strategy, machine)
    (row,) = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)
    x = task_graph.exchange(row)
    assert x.is_regular and task_graph.ways[task_graph.algorithm[row]].algorithm == "ring"
    assert [x.boxes[k].volume for k in x.scratch] == [4] * 6
    sent = [step.follows for step in x.steps() if len(step.parts) == 1]
    assert sent == [False, True] * 5 * 6


def test_a_sum_that_one_device_reads_is_one_row():
    graph = tiny.copy(summed(), "read").graph
    task_graph = lowered(graph, {"sum": {"b": 6}, "read": {}}, 6)
    parts, scratch = (" ".join(f"{k + d}[0:12]" for d in range(6)) for k in (6, 12))
    assert collectives(task_graph) == [
        f"12 reduce sum @0 {parts} 6[0:12] {scratch} after [6, 7, 8, 9, 10, 11]"
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
    assert row == f"12 all-gather h @0 {tiles} {whole} after [6, 7, 8, 9, 10, 11]"
    assert task_graph.bytes_moved == 5 * 24 * ITEM
    assert [task_graph.deps(r) for r in range(19, 25)] == [[6 + d, 12, 13 + d] for d in range(6)]


def test_a_machine_may_have_its_devices_exchange_directly_or_all_together():
    graph = network(batch=24)

    def collective_rows(devices, direct):
        machine = by_copies(MachineModel.uniform(devices), direct)
        return len(collectives(lower(graph, taskflow.data_parallel(graph, machine), machine)))

    assert collective_rows(6, 6) == collective_rows(4, 4) == 0
    assert collective_rows(6, 4) > 0
    assert collective_rows(2, 1) > 0


def test_what_one_device_has_and_five_others_need_is_broadcast_in_one_row():
    task_graph = gathered(6, 1)
    whole = " ".join(f"{k}[0:12, 0:2]" for k in range(2, 7))
    assert [r.split(" after")[0] for r in collectives(task_graph)] == [
        f"2 broadcast h @0 1[0:12, 0:2] {whole}"
    ]
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
    monkeypatch.setattr(moves, "ROOM_BYTES", small)
    graph = network(batch=840, width=840, layers=1)
    task_graph = lowered(
        graph, {op.name: {"b": devices} for op in graph.operators if not op.follows}, devices
    )
    moved = {k: v for k, v in transfers(task_graph).items() if k[0] != "loss"}
    assert set(moved) == {("fc0.dweight", "all-reduce")}
    assert sum(moved.values()) == 2 * (devices - 1) * parameter_bytes(graph)
    if not small:  # every device sends 2 (p - 1) / p of the gradient
        hops = np.array(
            [h for h in task_graph.hops().T.tolist() if task_graph.name(h[0]) == "fc0.dweight"]
        ).T
        sent = np.bincount(hops[1], hops[3])
        assert sent.tolist() == [2 * (devices - 1) * parameter_bytes(graph) // devices] * devices


def resharded(collectives):
    """From rows to columns, on two hosts of three devices."""
    graph = tiny.copy(tiny.copy(matrix(12, 12), "h"), "read").graph
    machine = MachineModel(
        tuple(taskflow.Device(host=d // 3) for d in range(6)), MachineModel.uniform(6).links
    )
    strategy = taskflow.Strategy.of_graph(
        graph,
        {
            "h": taskflow.ParallelConfig({"b": 6}, range(6)),
            "read": taskflow.ParallelConfig({"c": 6}, range(6)),
        },
    )
    return lower(graph, strategy, machine, collectives=collectives)


@pytest.mark.parametrize(
    ("algorithm", "crossing", "steps"), [("pairwise", 18, 30), ("two-level", 6, 42)]
)
def test_an_all_to_all_is_one_row_of_the_algorithm_that_is_named(algorithm, crossing, steps):
    """Of two-level one message a device crosses, of three tiles, two of which were gathered from others of its host."""
    task_graph = resharded({"all-to-all": algorithm})
    (row,) = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)
    x, hosts = task_graph.exchange(row), [device.host for device in task_graph.machine.devices]
    assert task_graph.ways[task_graph.algorithm[row]].algorithm == algorithm
    found = [(x.devices[step.parts[0]], x.devices[step.target], step.follows) for step in x.steps()]
    assert len(found) == steps and task_graph.bytes[row] == 30 * 4 * ITEM
    assert sum(hosts[a] != hosts[b] and not follows for a, b, follows in found) == crossing
    assert not [t for t in task_graph if t.kind == Kind.COPY and t.source != t.device]


def test_two_devices_are_enough_for_an_all_to_all():
    graph = tiny.copy(tiny.copy(matrix(4, 4), "h"), "read").graph
    configs = {"h": taskflow.ParallelConfig({"b": 2}), "read": taskflow.ParallelConfig({"c": 2})}
    strategy = taskflow.Strategy.of_graph(graph, configs)
    for algorithm, rows in (("pairwise", ["all-to-all"]), ("copies", [])):
        found = lower(
            graph, strategy, MachineModel.uniform(2), collectives={"all-to-all": algorithm}
        )
        assert [task.collective for task in found if task.kind == Kind.COLLECTIVE] == rows


def test_an_all_to_all_is_chosen_by_cost_unless_it_is_copies():
    seconds = {}
    for each in ("pairwise", "two-level", "fastest"):
        task_graph = resharded({"all-to-all": each})
        (row,) = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)
        seconds[each] = taskflow.CostModel.analytic(task_graph.machine).seconds(task_graph)[row]
    assert (
        seconds["fastest"] == min(seconds.values()) and seconds["pairwise"] != seconds["two-level"]
    )
    default = resharded({})
    (row,) = np.flatnonzero(default.kind == Kind.COLLECTIVE)
    costs = taskflow.CostModel.analytic(default.machine)
    assert costs.seconds(default)[row] == seconds["fastest"]
    assert not collectives(resharded({"all-to-all": "copies"}))


def test_many_members_have_an_all_to_all_too(monkeypatch):
    """Where algorithms are left out without a price, the one whose busiest link takes least is taken."""
    named = [resharded({"all-to-all": each}) for each in ("pairwise", "two-level")]
    monkeypatch.setattr(price, "MANY", 4)
    (way,) = resharded({"all-to-all": "fastest"}).ways
    costs = taskflow.CostModel.analytic(named[0].machine)
    least = min(named, key=lambda g: costs.seconds(g)[np.flatnonzero(g.kind == Kind.COLLECTIVE)][0])
    assert way.algorithm == least.ways[0].algorithm


def stage_to_stage(first, second):
    """Four micro-batches of rows on some devices, read by columns on others."""
    graph = tiny.copy(tiny.copy(matrix(16, 16), "h"), "read").graph
    configs = {
        "h": taskflow.ParallelConfig({"b": 8}, [d for d in first for _ in range(4)]),
        "read": taskflow.ParallelConfig({"c": 8}, [d for d in second for _ in range(4)]),
    }
    machine = MachineModel.preset("h100").take(4)
    return lower(graph, taskflow.Strategy.of_graph(graph, configs), machine)


def test_what_one_stage_sends_to_another_is_no_all_to_all():
    assert not collectives(stage_to_stage((0, 1), (2, 3)))


def test_every_micro_batch_has_an_all_to_all_of_its_own():
    """Rows to columns, twice: a micro-batch waits for nothing of the other."""
    graph = tiny.copy(tiny.copy(matrix(16, 4), "h"), "read").graph
    configs = {
        "h": taskflow.ParallelConfig({"b": 4}, (0, 1, 0, 1)),
        "read": taskflow.ParallelConfig({"b": 2, "c": 2}, (0, 1, 0, 1)),
    }
    machine = MachineModel.preset("h100").take(2)
    task_graph = lower(graph, taskflow.Strategy.of_graph(graph, configs), machine)
    rows = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)
    assert [task_graph[row].collective for row in rows.tolist()] == ["all-to-all"] * 2
    assert not {rows[0]} & set(task_graph.deps(int(rows[1])))


REPLICAS = [
    {0: 10, 1: 11},
    {2: 12, 3: 13},
    {4: 14, 5: 15},
]  # three partial results, each on two devices
