"""Lowering: the exact rows of small graphs, worked out by hand."""

import numpy as np
import pytest

import taskflow
from taskflow import Executor, Kind, MachineModel, ParallelConfig, lower
from taskflow.lowering import Lowering
from taskflow.tasks.memory import plan_memory
from tests import tiny
from tests.lowered import ITEM, lowered, matrix, network, parameter_bytes, row_text, rows, transfers

# -- rows --------------------------------------------------------------------------------------------------------------


def test_partial_sums_that_all_read_whole_are_all_reduced():
    total = tiny.column_sum(matrix(), "sum")
    graph = tiny.add_row(total.graph.input("y", (2, 4), "float64"), total, "read").graph
    assert rows(graph, {"sum": {"b": 2}, "read": {"b": 2}}, 2) == [
        "0 feed x @0 0[0:2, 0:4] after []",
        "1 feed x @1 1[2:4, 0:4] after []",
        "2 point sum @0 0[0:2, 0:4] 2[0:4] after [0]",
        "3 point sum @1 1[2:4, 0:4] 3[0:4] after [1]",
        "4 all-reduce sum 1->0 3[0:2] 4[0:2] after [3]",
        "5 all-reduce sum 0->1 2[2:4] 5[2:4] after [2]",
        "6 fold sum @0 2[0:2] 2[0:2] 4[0:2] after [2, 4]",
        "7 fold sum @1 3[2:4] 3[2:4] 5[2:4] after [3, 5]",
        "8 all-reduce sum 1->0 3[2:4] 2[2:4] after [2, 3, 5, 7]",
        "9 all-reduce sum 0->1 2[0:2] 3[0:2] after [2, 3, 4, 6]",
        "10 feed y @0 6[0:1, 0:4] after []",
        "11 feed y @1 7[1:2, 0:4] after []",
        "12 point read @0 6[0:1, 0:4] 2[0:4] 8[0:1, 0:4] after [2, 6, 8, 10]",
        "13 point read @1 7[1:2, 0:4] 3[0:4] 9[1:2, 0:4] after [3, 7, 9, 11]",
    ]


def test_partial_sums_that_are_read_by_tiles_are_reduce_scattered():
    graph = tiny.copy(tiny.column_sum(matrix(), "sum"), "read").graph
    assert rows(graph, {"sum": {"b": 2}, "read": {"c": 2}}, 2) == [
        "0 feed x @0 0[0:2, 0:4] after []",
        "1 feed x @1 1[2:4, 0:4] after []",
        "2 point sum @0 0[0:2, 0:4] 4[0:4] after [0]",
        "3 point sum @1 1[2:4, 0:4] 5[0:4] after [1]",
        "4 reduce-scatter sum 1->0 5[0:2] 6[0:2] after [3]",
        "5 reduce-scatter sum 0->1 4[2:4] 7[2:4] after [2]",
        "6 fold sum @0 2[0:2] 4[0:2] 6[0:2] after [2, 4]",
        "7 fold sum @1 3[2:4] 5[2:4] 7[2:4] after [3, 5]",
        "8 point read @0 2[0:2] 8[0:2] after [6]",
        "9 point read @1 3[2:4] 9[2:4] after [7]",
    ]


def test_partial_sums_that_one_device_reads_are_reduced_there():
    graph = tiny.copy(tiny.column_sum(matrix(), "sum"), "read").graph
    assert rows(graph, {"sum": {"b": 2}, "read": {}}, 2) == [
        "0 feed x @0 0[0:2, 0:4] after []",
        "1 feed x @1 1[2:4, 0:4] after []",
        "2 point sum @0 0[0:2, 0:4] 2[0:4] after [0]",
        "3 point sum @1 1[2:4, 0:4] 3[0:4] after [1]",
        "4 reduce sum 1->0 3[0:4] 4[0:4] after [3]",
        "5 fold sum @0 2[0:4] 2[0:4] 4[0:4] after [2, 4]",
        "6 point read @0 2[0:4] 5[0:4] after [5]",
    ]


def outer(x):
    """`read[z, c]` needs all rows of `h` for every z."""
    h = tiny.copy(x, "h")
    z = x.graph.input("z", (2,), "float64")
    return x.graph.launch("read", "b c, z -> z c", [h, z], kernel=tiny._copy).graph


def test_tiles_that_all_read_whole_are_all_gathered():
    assert rows(outer(matrix(4, 2)), {"h": {"b": 2}, "read": {"z": 2}}, 2) == [
        "0 feed x @0 0[0:2, 0:2] after []",
        "1 feed x @1 1[2:4, 0:2] after []",
        "2 point h @0 0[0:2, 0:2] 2[0:2, 0:2] after [0]",
        "3 point h @1 1[2:4, 0:2] 3[2:4, 0:2] after [1]",
        "4 all-gather h 1->0 3[2:4, 0:2] 2[2:4, 0:2] after [3]",
        "5 all-gather h 0->1 2[0:2, 0:2] 3[0:2, 0:2] after [2]",
        "6 feed z @0 4[0:1] after []",
        "7 feed z @1 5[1:2] after []",
        "8 point read @0 2[0:4, 0:2] 4[0:1] 6[0:1, 0:2] after [2, 4, 6]",
        "9 point read @1 3[0:4, 0:2] 5[1:2] 7[1:2, 0:2] after [3, 5, 7]",
    ]


def test_what_one_device_made_and_others_read_whole_is_broadcast():
    assert rows(outer(matrix(4, 2)), {"h": {}, "read": ({"z": 2}, (1, 2))}, 3) == [
        "0 feed x @0 0[0:4, 0:2] after []",
        "1 point h @0 0[0:4, 0:2] 1[0:4, 0:2] after [0]",
        "2 broadcast h 0->2 1[0:4, 0:2] 3[0:4, 0:2] after [1]",
        "3 broadcast h 0->1 1[0:4, 0:2] 2[0:4, 0:2] after [1]",
        "4 feed z @1 4[0:1] after []",
        "5 feed z @2 5[1:2] after []",
        "6 point read @1 2[0:4, 0:2] 4[0:1] 6[0:1, 0:2] after [3, 4]",
        "7 point read @2 3[0:4, 0:2] 5[1:2] 7[1:2, 0:2] after [2, 5]",
    ]


def test_row_tiles_that_are_read_as_column_tiles_go_from_all_to_all():
    graph = tiny.copy(tiny.copy(matrix(), "h"), "read").graph
    assert rows(graph, {"h": {"b": 2}, "read": {"c": 2}}, 2) == [
        "0 feed x @0 0[0:2, 0:4] after []",
        "1 feed x @1 1[2:4, 0:4] after []",
        "2 point h @0 0[0:2, 0:4] 2[0:2, 0:4] after [0]",
        "3 point h @1 1[2:4, 0:4] 5[2:4, 0:4] after [1]",
        "4 all-to-all h 1->0 5[2:4, 0:2] 3[2:4, 0:2] after [3]",
        "5 all-to-all h 0->1 2[0:2, 2:4] 4[0:2, 2:4] after [2]",
        "6 copy h @0 2[0:2, 0:2] 3[0:2, 0:2] after [2]",
        "7 copy h @1 5[2:4, 2:4] 4[2:4, 2:4] after [3]",
        "8 point read @0 3[0:4, 0:2] 6[0:4, 0:2] after [4, 6]",
        "9 point read @1 4[0:4, 2:4] 7[0:4, 2:4] after [5, 7]",
    ]


def test_a_halo_is_its_boundary_rows_beside_the_producers_tile():
    """Instance 4 holds the tile [8:16] that device 1 makes and one row on either side: no copy within the device."""
    graph = tiny.stencil(tiny.copy(matrix(24, 2), "h"), name="read").graph
    assert rows(graph, {"h": {"b": 3}, "read": {"b": 3}}, 3) == [
        "0 feed x @0 0[0:8, 0:2] after []",
        "1 feed x @1 1[8:16, 0:2] after []",
        "2 feed x @2 2[16:24, 0:2] after []",
        "3 point h @0 0[0:8, 0:2] 3[0:8, 0:2] after [0]",
        "4 point h @1 1[8:16, 0:2] 4[8:16, 0:2] after [1]",
        "5 point h @2 2[16:24, 0:2] 5[16:24, 0:2] after [2]",
        "6 halo h 1->0 4[8:9, 0:2] 3[8:9, 0:2] after [4]",
        "7 halo h 2->1 5[16:17, 0:2] 4[16:17, 0:2] after [5]",
        "8 halo h 0->1 3[7:8, 0:2] 4[7:8, 0:2] after [3]",
        "9 halo h 1->2 4[15:16, 0:2] 5[15:16, 0:2] after [4]",
        "10 point read @0 3[0:9, 0:2] 6[0:8, 0:2] after [3, 6]",
        "11 point read @1 4[7:17, 0:2] 7[8:16, 0:2] after [4, 7, 8]",
        "12 point read @2 5[15:24, 0:2] 8[16:24, 0:2] after [5, 9]",
    ]


def test_an_update_in_place_waits_for_those_who_read_the_old_value():
    """Rows 6 and 7 update what 2 and 3 read; rows 8 and 9 overwrite what those read on the other device."""
    x = matrix(2, 4)
    state = x.graph.parameter("state", (4,), dtype="float64", trainable=False)
    tiny.add_row(x, state, "read")
    tiny.decay(state, tiny.column_sum(x, "sum"))
    task_graph = lowered(x.graph, {"read": {"b": 2}, "sum": {}, "decay": {"b": 2}}, 2)
    assert [row_text(task) for task in task_graph] == [
        "0 feed x @0 0[0:2, 0:4] after []",
        "1 feed x @1 1[1:2, 0:4] after []",
        "2 point read @0 0[0:1, 0:4] 2[0:4] 4[0:1, 0:4] after [0]",
        "3 point read @1 1[1:2, 0:4] 3[0:4] 5[1:2, 0:4] after [1]",
        "4 point sum @0 0[0:2, 0:4] 6[0:4] after [0]",
        "5 copy sum 0->1 6[2:4] 7[2:4] after [4]",
        "6 point decay @0 2[0:2] 6[0:2] after [2, 4]",
        "7 point decay @1 3[2:4] 7[2:4] after [3, 5]",
        "8 all-gather state 1->0 3[2:4] 2[2:4] after [2, 7]",
        "9 all-gather state 0->1 2[0:2] 3[0:2] after [3, 6]",
    ]
    assert [p.name for _, _, p in task_graph[6].args] == ["READ_WRITE", "READ"]
    assert [(int(task_graph.instance_device[i]), str(r)) for i, r in task_graph.homes["state"]] == [
        (0, "[0:4]"),
        (1, "[0:4]"),
        (0, "[0:2]"),
        (1, "[2:4]"),
    ]


def test_points_of_one_device_are_folded_there_before_anything_moves():
    graph = tiny.copy(tiny.column_sum(matrix(), "sum"), "read").graph
    assert rows(graph, {"sum": ({"b": 4}, (0, 1, 0, 1)), "read": {"c": 2}}, 2) == [
        "0 feed x @0 0[0:1, 0:4] after []",
        "1 feed x @1 2[1:2, 0:4] after []",
        "2 point sum @0 0[0:1, 0:4] 6[0:4] after [0]",
        "3 point sum @1 2[1:2, 0:4] 8[0:4] after [1]",
        "4 feed x @0 1[2:3, 0:4] after []",
        "5 feed x @1 3[3:4, 0:4] after []",
        "6 point sum @0 1[2:3, 0:4] 7[0:4] after [4]",
        "7 point sum @1 3[3:4, 0:4] 9[0:4] after [5]",
        "8 fold sum @0 6[0:4] 6[0:4] 7[0:4] after [2, 6]",
        "9 fold sum @1 8[0:4] 8[0:4] 9[0:4] after [3, 7]",
        "10 reduce-scatter sum 1->0 8[0:2] 10[0:2] after [9]",
        "11 reduce-scatter sum 0->1 6[2:4] 11[2:4] after [8]",
        "12 fold sum @0 4[0:2] 6[0:2] 10[0:2] after [8, 10]",
        "13 fold sum @1 5[2:4] 8[2:4] 11[2:4] after [9, 11]",
        "14 point read @0 4[0:2] 12[0:2] after [12]",
        "15 point read @1 5[2:4] 13[2:4] after [13]",
    ]


def test_partial_results_of_overlapping_groups_of_replicas_lie_apart():
    """Part 0 of `b` is on devices 0 and 1, part 1 on 0 and 2: device 0 holds both, neither where the sum will be."""
    x = matrix()
    total = tiny.column_sum(tiny.linear(x, 4, "fc"), "sum")
    with x.graph.following("fc"):
        x.graph.launch("part", "b o -> o", [x.graph.regions["fc"]], kernel=tiny._column_sum)
    x.graph.output("total", total)
    tiny.add_row(x, x.graph.output("part", x.graph.regions["part"]), "read")
    configs = {"fc": ({"b": 2, "i": 2}, (0, 1, 0, 2)), "sum": {}, "read": {"b": 2}}
    task_graph = lowered(x.graph, configs, 3)
    made = [
        (t.device, t.args[1][0]) for t in task_graph if t.name == "part" and t.kind == Kind.POINT
    ]
    assert [device for device, _ in made] == [0, 1, 2, 0]
    assert len({instance for _, instance in made}) == 4
    values = np.arange(16.0).reshape(4, 4)
    with Executor(task_graph) as step:
        found = step({"x": values})
    np.testing.assert_allclose(found["part"], found["total"])


def test_replicas_are_computed_once_a_device():
    graph = tiny.column_sum(matrix(), "sum").graph
    with graph.following("sum"):
        tiny.copy(graph.regions["sum"], "after")
    task_graph = lowered(graph, {"sum": ({"b": 4}, (0, 1, 0, 1))}, 2)
    assert [
        (t.name, t.device) for t in task_graph if t.kind == Kind.POINT and t.name == "after"
    ] == [
        ("after", 0),
        ("after", 1),
    ]


def test_boxes_that_overlap_on_a_device_are_sent_to_it_once():
    """Device 1 reads [0:5] and [3:8]; [3:5] goes over the link once and is copied there."""
    graph = tiny.stencil(tiny.copy(matrix(1, 8), "h"), 1, name="read").graph
    task_graph = lowered(graph, {"h": {}, "read": ({"c": 2}, (1, 1))}, 2)
    assert task_graph.bytes_moved == 8 * ITEM
    assert [str(t.args[0][1]) for t in task_graph if t.name == "h" and t.kind == Kind.COPY] == [
        "[0:1, 0:5]",
        "[0:1, 5:8]",
        "[0:1, 3:5]",
    ]


def test_partial_maxima_are_combined_as_maxima():
    graph = tiny.copy(tiny.row_max(matrix(), "max"), "read").graph
    task_graph = lowered(graph, {"max": {"c": 2}, "read": {}}, 2)
    assert transfers(task_graph) == {("max", "reduce"): 4 * ITEM}
    assert [
        task_graph.combine[int(r)] for r in task_graph.region[task_graph.kind == Kind.FOLD]
    ] == ["max"]


def test_a_region_that_nobody_reads_moves_nowhere():
    graph = tiny.column_sum(matrix(), "sum").graph
    assert [row_text(t) for t in lowered(graph, {"sum": {"b": 2}}, 2)][2:] == [
        "2 point sum @0 0[0:2, 0:4] 2[0:4] after [0]",
        "3 point sum @1 1[2:4, 0:4] 3[0:4] after [1]",
    ]


def test_a_parameter_that_nobody_reads_still_lives_somewhere():
    graph = matrix().graph
    tiny.part(tiny.parameter(graph, "half read", (6,)), 0, 4, 6)
    tiny.parameter(graph, "unread", (3,))
    task_graph = lowered(graph, {"part": ({}, (1,))}, 2)
    homes = {
        n: [(int(task_graph.instance_device[i]), str(r)) for i, r in h]
        for n, h in task_graph.homes.items()
    }
    assert homes == {"half read": [(1, "[4:6]"), (1, "[0:4]")], "unread": [(1, "[0:3]")]}


# -- memory, caches and columns ----------------------------------------------------------------------------------------


def test_devices_hold_tiles_only():
    """An MLP under {"o": 2}: each device holds half of every parameter, gradient and momentum."""
    graph = network(width=16)
    task_graph = lowered(graph, {"fc0": {"o": 2}, "fc1": {"o": 2}, "loss": {"o": 2}}, 2)
    names = [task_graph.regions[int(r)].name for r in task_graph.instance_region]
    for name in ("fc0.weight", "fc0.dweight", "fc0.weight.momentum"):
        sizes = [
            int(s) for s, n in zip(task_graph.instance_bytes(), names, strict=True) if n == name
        ]
        assert sizes == [16 * 16 * ITEM // 2] * 2
    assert (
        plan_memory(task_graph).persistent_bytes.tolist() == [2 * parameter_bytes(graph) // 2] * 2
    )


def test_a_changed_operator_lowers_itself_and_its_neighbours_again():
    graph = network(layers=4)
    machine = MachineModel.uniform(2)
    lowering = Lowering(graph, machine)
    strategy = taskflow.data_parallel(graph, machine)
    regions, used = list(graph.regions.values()), [np.arange(2)]

    def fragments():
        found = lowering.fragments.find(lowering.numbers(strategy), used)
        assert not found.shift.any()
        return [found.fragments[k] for k in found.which]

    before = fragments()
    strategy["fc3"] = ParallelConfig({"o": 2})
    changed = {
        r.name for r, old, new in zip(regions, before, fragments(), strict=True) if old is not new
    }
    assert changed == {
        "fc2", "fc3", "fc3.weight", "fc3.dx", "fc3.dweight", "fc3.weight.momentum", "loss.dx",
    }  # fmt: skip
    again = lowering.lower(strategy)
    assert again.digest() == lower(graph, strategy, machine).digest()


def test_rows_repeat():
    graph, machine = network(), MachineModel.uniform(3)
    strategy = taskflow.random_strategy(graph, machine, 5)
    assert lower(graph, strategy, machine).digest() == lower(graph, strategy, machine).digest()
    other = taskflow.random_strategy(graph, machine, 6)
    assert lower(graph, strategy, machine).digest() != lower(graph, other, machine).digest()


def test_a_task_is_readable():
    task_graph = lowered(
        tiny.copy(tiny.copy(matrix(), "h"), "read").graph, {"h": {"b": 2}, "read": {"c": 2}}, 2
    )
    task = task_graph[-1]
    assert (task.name, task.point, task.device, task.kind, task.flops) == (
        "read",
        1,
        1,
        Kind.POINT,
        8.0,
    )
    assert task.bytes == 2 * 8 * ITEM
    assert str(task_graph[4]) == "4: all-to-all h[0] 1->0 32 B, after [3]"
    assert str(task) == "9: point read[1] @1 128 B, after [5, 7]"


def test_a_reordered_graph_has_the_same_rows():
    task_graph = lowered(
        tiny.copy(tiny.copy(matrix(), "h"), "read").graph, {"h": {"b": 2}, "read": {"c": 2}}, 2
    )
    order = [1, 0, 3, 2, 5, 4, 7, 6, 9, 8]
    again = task_graph.reordered(order)
    assert [(t.name, t.device, t.args) for t in again] == [
        (t.name, t.device, t.args) for t in (task_graph[k] for k in order)
    ]
    assert row_text(again[8]) == "8 point read @1 4[0:4, 2:4] 7[0:4, 2:4] after [4, 6]"
    again.check()


def test_no_bytes_move_on_one_device():
    graph = network()
    task_graph = lower(
        graph, taskflow.single_device(graph, machine := MachineModel.uniform(4), 2), machine
    )
    assert task_graph.bytes_moved == 0
    assert task_graph.devices_used == (2,)
    with Executor(task_graph) as step:
        assert np.isfinite(step({"x": np.ones((24, 12))})["loss"])


def test_room_that_one_region_asked_for_is_not_asked_for_others():
    """For more int64s than there are addresses."""
    graph, machine = network(), MachineModel.uniform(4)
    lowering, strategy = Lowering(graph, machine), taskflow.data_parallel(graph, machine)
    lowering.mover.room, lowering.mover.asking = 1 << 40, 0
    with pytest.raises(MemoryError):  # for the region that asked
        lowering.lower(strategy)
    expected = Lowering(graph, machine).lower(strategy).digest()
    assert lowering.lower(strategy).digest() == expected
    other = Lowering(graph, machine)
    other.mover.room, other.mover.asking = 1 << 40, len(other.mover.lives)
    assert other.lower(strategy).digest() == expected
