"""Who waits for whom among ranks: whatever their pace, everything happens in order, and no wait is needless."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from taskflow import Graph, MachineModel, ParallelConfig, Strategy, Window, lower
from taskflow.execute.program import messages
from taskflow.execute.progress import BEGIN, copied_by_folds, foldable_in_place, order_between_ranks
from taskflow.tasks.memory import plan_memory, with_reuse
from tests import laws
from tests.strategies import graphs, strategies


def waiting(task_graph):
    return with_reuse(task_graph, plan_memory(task_graph))


def play(task_graph, generator, count):
    """Run a step with ranks of random pace that keep to the order, and assert that nobody comes too early.

    The devices are dealt out to `count` ranks, in runs.
    """
    devices = len(task_graph.machine.devices)
    rank = np.arange(devices) * count // devices
    plan, device = plan_memory(task_graph), rank[task_graph.device].tolist()
    task_graph = with_reuse(task_graph, plan)
    over_in = {copy: fold for copy, (fold, _) in foldable_in_place(task_graph).items()}
    over_in |= copied_by_folds(task_graph, over_in)
    order = order_between_ranks(task_graph, over_in, rank)
    queues = [[r for r in range(len(task_graph)) if device[r] == d and r not in over_in] for d in range(count)]
    cell: list[int | None] = [None] * count  # nobody has begun
    over: set[int] = set()
    ended: set[int] = set()

    def may_go(awaited):
        return all(cell[d] is not None and cell[d] >= row for d, row in awaited)

    while len(ended) < count:
        able = [
            d
            for d in range(count)
            if d not in ended
            and (
                cell[d] is None or may_go(order.before.get(queues[d][0], ()) if queues[d] else order.at_end.get(d, ()))
            )
        ]
        assert able, "deadlock"
        d = int(generator.choice(able))
        if cell[d] is None:
            cell[d] = BEGIN
        elif queues[d]:
            row = queues[d].pop(0)
            tasks = [row, *(copy for copy, fold in over_in.items() if fold == row)]
            assert_in_order(task_graph, plan, rank, tasks, over, cell)
            over.update(tasks)
            if row in order.published:
                cell[d] = row
        else:
            ends = rank[task_graph.source], rank[task_graph.device]
            touched = np.flatnonzero(task_graph.is_transfer & (ends[0] != ends[1]) & ((ends[0] == d) | (ends[1] == d)))
            assert over.issuperset(touched.tolist()), "others still use the memory when the step ends"
            ended.add(d)


def assert_in_order(task_graph, plan, rank, tasks, over, cell):
    """`tasks` (a row and the copies that it makes needless) may run when those in `over` have run."""
    row = tasks[0]
    here = int(rank[task_graph.device[row]])
    for task in tasks:
        assert over.union(tasks).issuperset(task_graph.deps(task)), task_graph[task]
        for end in (task_graph.source[task], task_graph.device[task]):
            assert rank[end] == here or cell[int(rank[end])] is not None, (
                "the other end may not have ended its last step"
            )
        for instance, _, _ in task_graph.args(task):
            assert task < row or plan.first[instance] <= row or instance < 0, "the memory is not yet the instance's"
    unread = [
        task_graph.args(t)[0][0]
        for t in np.flatnonzero(task_graph.is_transfer & (rank[task_graph.source] == here)).tolist()
        if t not in over and t < row
    ]
    assert not {t for t in tasks if t != row and t in over}, "done twice"
    for instance, _, _ in task_graph.args(row):
        if instance >= 0 and rank[task_graph.instance_device[instance]] == here:
            for other in unread:
                assert instance == other or not plan.share_bytes(task_graph, instance, other), task_graph[row]


@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 99), several=st.booleans())
def test_no_pace_of_the_ranks_breaks_the_order(data, seed, several):
    model = data.draw(graphs())
    machine, strategy = data.draw(strategies(model.graph))
    task_graph = lower(model.graph, strategy, machine)
    generator = np.random.default_rng(seed)
    devices = len(machine.devices)
    count = -(-devices // 2) if several else devices
    play(task_graph, generator, count)
    play(task_graph.reordered(laws.random_order(task_graph, generator)), generator, count)


def nothing(ctx, *arrays):
    """Only the dependences count."""


def rows_of_columns(rows, width, distances):
    """Rows of columns on two devices, where each column reads those at the given distances of the row before."""
    graph, configs, x = Graph(), {}, None
    for k in range(rows):
        windows = {f"r{j}": Window("w", padding=-d) for j, d in enumerate(distances)} if k else {}
        x = graph.launch(
            f"row{k}",
            ", ".join(f"{name} i" for name in windows) + " -> w i",
            [x] * len(windows),
            kernel=nothing,
            sizes={"w": width, "i": 4},
            windows=windows,
            dtype="int64",
        )
        configs[f"row{k}"] = ParallelConfig({"w": width}, [c * 2 // width for c in range(width)])
    return lower(graph, Strategy(configs), MachineModel.uniform(2))


def test_a_rank_waits_only_for_what_it_does_not_know():
    task_graph = waiting(rows_of_columns(rows=4, width=2, distances=(-1, 0, 1)))
    order = order_between_ranks(task_graph, {}, np.arange(2))
    # Rows 4k and 4k + 1 are points, 4k + 2 copies from device 1 to 0 and 4k + 3 back. The memory of row k is taken over
    # in row k + 2, when each device has heard of the other's row k + 1 and so of its copies of row k.
    assert order.before == {4 * k + 2 + d: ((1 - d, 4 * k + 1 - d),) for k in range(3) for d in range(2)}
    assert order.at_end == {0: ((1, 11),), 1: ((0, 10),)}
    assert order.published == {0, 1, 4, 5, 8, 9, 10, 11}


def all_reduce(ranks):
    """Partial sums of every device, read whole by every device."""
    graph = Graph()
    x = graph.parameter("x", (ranks,), trainable=False)
    y = graph.launch("partial", "d -> n", [x], kernel=nothing, sizes={"n": 8 * ranks})
    graph.launch("whole", "^n, d -> d", [y, x], kernel=nothing)
    config = ParallelConfig({"d": ranks})
    return lower(graph, Strategy({"partial": config, "whole": config}), MachineModel.uniform(ranks))


def test_an_all_reduce_is_a_fold_on_every_rank_and_one_wait_before_and_after_it():
    task_graph = all_reduce(2)  # rows 0 and 1: partial; 2, 3: copies; 4, 5: folds; 6, 7: copies; 8, 9: whole
    read = {copy: fold for copy, (fold, _) in foldable_in_place(task_graph).items()}
    assert read == {2: 4, 3: 5}
    written = copied_by_folds(task_graph, read)
    assert {copy: int(task_graph.source[copy]) for copy in written} == {6: 1, 7: 0}
    assert written == {6: 5, 7: 4}
    order = order_between_ranks(waiting(task_graph), read | written, np.arange(2))
    assert order.before == {4: ((1, 1),), 5: ((0, 0),), 8: ((1, 5),), 9: ((0, 4),)}
    assert order.at_end == {0: (), 1: ()}


def test_a_fold_copies_its_result_only_where_it_has_waited_for_the_memory():
    task_graph = all_reduce(2)
    assert copied_by_folds(task_graph, {2: 4}) == {7: 4}  # fold 5 does not wait for the partial sums of device 0
    assert copied_by_folds(task_graph, {}) == {}


def test_small_transfers_that_follow_each_other_are_one_message():
    task_graph = rows_of_columns(rows=2, width=4, distances=(-2, 0, 2))
    assert np.flatnonzero(task_graph.is_transfer).tolist() == [4, 5, 6, 7]
    assert messages(task_graph, 32) == {4: [4, 5], 5: [4, 5], 6: [6, 7], 7: [6, 7]}
    assert messages(task_graph, 31) == {r: [r] for r in range(4, 8)}
    order = [0, 1, 2, 3, 4, 6, 5, 7, 8, 9, 10, 11]
    assert messages(task_graph.reordered(order), 32) == {r: [r] for r in range(4, 8)}
