"""Orders: permutations that keep dependences, give the numbers of program order, and shorten what they should."""

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Device,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    data_parallel,
    lower,
    recompute,
    reorder,
    simulate,
    single_device,
)
from taskflow.schedule import (
    by_ordinal,
    critical_path,
    depth_first,
    first_ready,
    forward_first,
    program,
)
from taskflow.schedule.orders import bottom_levels, first_readers
from taskflow.simulation.simulate import schedule
from taskflow.tasks.memory import plan_memory
from taskflow.tasks.task_graph import Kind
from tests.schedule.cells import CellCosts, chain


def copy(ctx, x, y):
    y[...] = x + 1


def total(ctx, *arrays):
    arrays[-1][...] = sum(arrays[:-1])


def diamond() -> tuple[Graph, Strategy]:
    """Two chains on two devices, the long one launched last, joined at the end."""
    graph = Graph()
    x = graph.input("x", (8,), "float64")
    short = graph.launch("short", "b -> b", [x], kernel=copy)
    long = x
    for k in range(3):
        long = graph.launch(f"long{k}", "b -> b", [long], kernel=copy)
    graph.output("y", graph.launch("join", "b, b -> b", [short, long], kernel=total))
    places = {"short": 1, "long0": 1, "long1": 0, "long2": 1, "join": 0}
    return graph, Strategy({n: ParallelConfig({}, (d,)) for n, d in places.items()})


MACHINE = MachineModel.uniform(2, Device("emulated", overhead_seconds=1e-3), latency_seconds=1e-4)


def test_critical_path_starts_the_long_chain_first() -> None:
    graph, strategy = diamond()
    costs = CostModel.analytic(MACHINE)
    task_graph = lower(graph, strategy, MACHINE)
    reordered = reorder(task_graph, costs)
    names = [reordered[k].name for k in range(len(reordered)) if reordered[k].kind == 0]
    assert names.index("long0") < names.index("short")
    assert simulate(reordered, costs).seconds < simulate(task_graph, costs).seconds


def test_first_ready_is_the_event_driven_timeline() -> None:
    graph, strategy = diamond()
    task_graph = lower(graph, strategy, MACHINE)
    seconds = CostModel.analytic(MACHINE).seconds(task_graph)
    order = first_ready(task_graph, seconds)
    start, _, _ = schedule(task_graph.reordered(order), seconds[order])
    ready = [
        max([0.0, *(_end(task_graph, seconds, order, start, d) for d in task_graph.deps(r))])
        for r in order
    ]
    assert ready == sorted(ready)


def _end(task_graph, seconds, order, start, row) -> float:
    place = int(np.flatnonzero(order == row)[0])
    return float(start[place] + seconds[row])


def test_bottom_level_is_the_longest_way_to_the_end() -> None:
    graph, strategy = diamond()
    task_graph = lower(graph, strategy, MACHINE)
    level = bottom_levels(task_graph, np.ones(len(task_graph)))
    names = [task_graph[k].name for k in range(len(task_graph))]
    assert (
        level[names.index("join")] == 2.0
    )  # itself and the copy of the output to the other device
    assert (
        level.max() == level[names.index("x")] == 9.0
    )  # feed, three long tasks, three copies, join, copy


def test_an_order_that_breaks_a_dependence_is_refused() -> None:
    graph, strategy = diamond()
    task_graph = lower(graph, strategy, MACHINE)
    with pytest.raises(
        ValueError, match=r"order: row \d+ stands before row \d+, for which it waits"
    ):
        reorder(
            task_graph,
            CostModel.analytic(MACHINE),
            lambda task_graph, seconds: np.arange(len(seconds))[::-1],
        )
    with pytest.raises(ValueError, match=r"order: is no permutation of \d+ rows"):
        reorder(
            task_graph,
            CostModel.analytic(MACHINE),
            lambda task_graph, seconds: np.zeros(len(seconds), np.int64),
        )


def in_pieces():
    """Partial sums of two devices, an operator in three pieces on each that reads the sums, and who reads all of it."""
    graph = Graph()
    x = graph.parameter("x", (2,), trainable=False)
    y = graph.launch("partial", "d -> n", [x], kernel=total, sizes={"n": 6000})
    graph.launch(
        "whole", "^n, d -> d", [graph.launch("each", "n -> n", [y], kernel=copy), x], kernel=total
    )
    config, machine = ParallelConfig({"d": 2}), MachineModel.uniform(2)
    strategy = Strategy(
        {"partial": config, "each": ParallelConfig({"n": 6}, (0, 0, 0, 1, 1, 1)), "whole": config}
    )
    return lower(graph, strategy, machine), CostModel.analytic(machine)


def test_depth_first_takes_piece_by_piece_what_critical_path_takes_step_by_step() -> None:
    task_graph, costs = in_pieces()
    for order, kinds in ((depth_first, "p" + 3 * "cfpc" + "p"), (critical_path, "pcccfffpcpcpcp")):
        rows = reorder(task_graph, costs, order)
        for device in range(2):
            found = rows.kind[rows.device == device]
            assert (
                "".join("pcf"[[Kind.POINT, Kind.COPY, Kind.FOLD].index(kind)] for kind in found)
                == kinds
            ), order


def co_sharded(parts, samples, is_recomputed=True):
    """A feed-forward block on one device, its hidden units in parts."""
    graph, machine = Graph(), MachineModel.uniform(1)
    h = ops.linear(graph.input("x", (samples, 4)), 64, name="fc1")
    h = ops.linear(ops.relu(h, name="relu"), 4, name="fc2")
    ops.sgd(ops.mean_squared_error(h, graph.input("t", (samples, 4)), name="loss"), lr=0.1)
    strategy, here = single_device(graph, machine), (0,) * parts
    strategy["fc1"] = strategy["relu"] = ParallelConfig({"o": parts}, here)
    strategy["fc2"] = ParallelConfig({"i": parts}, here)
    return lower(recompute(graph, ["fc1", "relu"]) if is_recomputed else graph, strategy, machine)


def test_by_ordinal_takes_part_by_part_what_stands_between_barriers() -> None:
    """All parts are needed by the loss; an update has parts of its own, and that of a bias without any goes last."""
    rows = reorder(co_sharded(2, 8), CellCosts(), by_ordinal)
    points = [row for row in range(len(rows)) if rows.kind[row] == Kind.POINT]
    back = "fc2.dx fc1.again relu.again fc2.dweight relu.dx fc1.dweight fc2.weight.sgd"
    forward = ["fc10", "relu0", "fc20", "loss.one0", "fc11", "relu1", "fc21"]
    loss = ["loss0", "loss.dx0"]
    own = "fc1.weight.sgd", "fc1.bias.sgd"
    first, second = (
        [f"{name}{part}" for name in names]
        for part, names in enumerate([(*back.split(), *own)] * 2)
    )
    second.insert(-2, "fc2.bias.sgd0")
    assert [f"{rows.name(row)}{rows.ordinal[row]}" for row in points] == [
        *forward,
        *loss,
        *first,
        *second,
    ]


@pytest.mark.parametrize("parts", [4, 8])
def test_by_ordinal_keeps_one_part_alive(parts) -> None:
    """Co-shard: a part of the hidden units, before and after the activation, and its gradients; others keep more."""
    samples, costs = 4096, CostModel.analytic(MachineModel.uniform(1))
    rows = co_sharded(parts, samples)
    part_bytes = samples * 64 * 4 // parts
    peaks = {}
    for order in (by_ordinal, program, critical_path, depth_first):
        peaks[order] = int(plan_memory(reorder(rows, costs, order)).peak_bytes[0]) / part_bytes
    passed_on = 4 * parts / 16  # x, y, t and gradients of these: 1/16 of all hidden units each
    kept = peaks.pop(by_ordinal)
    assert 3 <= kept <= 3.1 + passed_on
    assert kept < min(peaks.values()) <= parts + 1 < peaks[program]


def test_by_ordinal_goes_back_with_a_micro_batch_before_the_next() -> None:
    """Accumulated gradients: what is kept is that of one micro-batch."""
    graph, machine, parts = chain(6, 8), MachineModel.uniform(1), 8
    config = ParallelConfig({"b": parts}, (0,) * parts)
    strategy = Strategy(dict.fromkeys(single_device(graph, machine), config))
    rows = lower(graph, strategy, machine)
    ordered = reorder(rows, CellCosts(), by_ordinal)
    ordinals = [
        ordered.ordinal[k] for k in range(len(ordered)) if ordered.name(k) in ("cell5", "cell5.dx")
    ]
    assert ordinals == [part for part in range(parts) for _ in range(2)]


def layers(repeat):
    """Four ranks; the last layer's gradient, 8 pieces of it, is there first, and the next step needs it last."""
    graph = Graph()
    h = graph.input("x", (8, 32))
    for name in ("first", "second", "third", "fourth"):
        h = ops.linear(h, 32, bias=False, name=name)
    y = ops.linear(h, 128, bias=False, name="last")
    ops.sgd(ops.softmax_cross_entropy(y, graph.input("t", (8,), "int32")), lr=0.1)
    machine = MachineModel.uniform(4, Device("emulated", 0, 1 << 30, 3e7, 1e12), 2e7, 1e-6)
    ring = {"all-reduce": "ring"}
    return lower(
        graph, data_parallel(graph, machine), machine, ring, repeat, 2048
    ), CostModel.analytic(machine)


def test_the_first_readers_of_gradients_are_in_the_next_step() -> None:
    task_graph, _ = layers(repeat=2)
    tasks = [task_graph[k] for k in range(len(task_graph))]
    row = {task.name: task.row for task in reversed(tasks) if task.kind == 0}
    sums = [
        t
        for t in tasks
        if t.collective == "all-reduce" and t.name.startswith(("first.dweight", "last.dweight"))
    ]
    found: dict[str, set[int]] = {}
    for task in sums:
        found.setdefault(task.name, set()).add(int(first_readers(task_graph)[task.row]))
    assert found == {
        "last.dweight": {row["last@1"]},
        "first.dweight": {row["first@1"]},
        "last.dweight@1": {len(tasks) + row["last"]},
        "first.dweight@1": {len(tasks) + row["first"]},
    }


def test_what_the_next_forward_pass_reads_first_passes_the_rest() -> None:
    """Between pieces, as soon as it is there; first-in-first-out it waits for all of them."""
    task_graph, costs = layers(repeat=4)
    behind = {}
    for order in (first_ready, forward_first):
        rows = reorder(task_graph, costs, order)
        sums = [
            rows[k].name
            for k in range(len(rows))
            if rows[k].collective == "all-reduce" and rows[k].bytes > 1000
        ]
        behind[order] = sums[sums.index("first.dweight") :].count("last.dweight")
    assert behind[first_ready] == 0 and 0 < behind[forward_first] < 8
    fifo, first = (
        simulate(reorder(task_graph, costs, order), costs).seconds
        for order in (first_ready, forward_first)
    )
    assert first < 0.97 * fifo
