"""Reuse of memory as an order: whoever takes over bytes waits for all who use them, by what the task graph says."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.models import alexnet, lenet
from taskflow import (
    CostModel,
    Device,
    Executor,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    data_parallel,
    lower,
    reorder,
    simulate,
)
from taskflow.execute.expand import expand, expand_plan
from taskflow.execute.progress import foldable_in_place
from taskflow.simulation.simulate import schedule
from taskflow.tasks import moves
from taskflow.tasks.memory import needed_bytes, plan_memory, with_reuse
from taskflow.tasks.timeline import RowsBefore
from tests import laws, tiny
from tests.checking.reuse import tight, with_memory
from tests.collectives import by_copies
from tests.strategies import examples, graphs, strategies

FAST = {"flops_per_second": 1e15, "memory_bandwidth": 1e15, "overhead_seconds": 0.0}


def emulated(machine):
    """The machine with devices of four streams, that take no time."""
    return replace(
        machine, devices=tuple(replace(d, kind="emulated", **FAST) for d in machine.devices)
    )


def users_of(task_graph, lies_in, in_place):
    """Instance -> its rows, folds that read the source of a copy themselves included."""
    users = [set() for _ in range(len(lies_in))]
    for row in range(len(task_graph)):
        for k, (instance, _, _) in enumerate(task_graph.args(row)):
            if instance >= 0:
                users[lies_in[instance]] |= {row, in_place.get(row, row)} if k == 0 else {row}
    return users


def rows_over(task_graph, in_place):
    """(row, other): whether `other` is over when `row` starts, by dependences and streams of one device alone.

    A copy whose source a fold reads in its place is over when that fold is.
    """
    latest, over = {}, np.zeros((len(task_graph), len(task_graph)), np.bool_)
    for row in range(len(task_graph)):
        stream = int(task_graph.streams[row, 0])
        local = (
            [] if task_graph.is_communication[row] else [latest[stream]] if stream in latest else []
        )
        deps = task_graph.deps(row)
        for other in {*deps, *local, *(in_place[d] for d in deps if d in in_place)} - {row}:
            over[row] |= over[other]
            over[row, other] = True
        if not task_graph.is_communication[row]:  # messages between devices arrive in any order
            latest[stream] = row
    return over


def assert_memory_is_in_order(task_graph, plan, lies_in=None):
    lies_in = np.arange(len(plan.offset)) if lies_in is None else lies_in
    waiting = with_reuse(task_graph, plan)
    in_place = {copy: fold for copy, (fold, _) in foldable_in_place(waiting).items()}
    over, users = rows_over(waiting, in_place), users_of(task_graph, lies_in, in_place)
    alive = [i for i in range(len(users)) if users[i]]
    shared = [(a, b) for a in alive for b in alive if a < b and plan.share_bytes(task_graph, a, b)]
    taken_over = set()
    for a, b in shared:
        first, second = (a, b) if plan.last[a] < plan.first[b] else (b, a)
        assert plan.last[first] < plan.first[second]
        taken_over.update(product(users[second], users[first]))
    assert all(over[row, other] for row, other in taken_over)
    return taken_over


def assert_edges_are_needed(task_graph, plan, taken_over):
    """Each is of who takes over memory and who used it, once, and is said by no dependence and no stream."""
    for row in range(len(task_graph)):
        edges = plan.reuse_rows[plan.reuse_ptr[row] : plan.reuse_ptr[row + 1]].tolist()
        assert len(set(edges)) == len(edges) and not set(edges) & {row, *task_graph.deps(row)}
        for other in edges:
            assert (row, other) in taken_over
            local = [r for r in (row, other) if not task_graph.is_communication[r]]
            assert len(local) < 2 or task_graph.streams[row, 0] != task_graph.streams[other, 0]


@examples(60)
@given(data=st.data(), is_cpu=st.booleans(), small=st.sampled_from([0, 1 << 20]))
def test_who_takes_over_memory_comes_after_all_who_use_it(data, is_cpu, small):
    model = data.draw(graphs())
    machine, strategy = data.draw(strategies(model.graph))
    machine = by_copies(machine if is_cpu else emulated(machine), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moves, "ROOM_BYTES", small)
        task_graph = lower(model.graph, strategy, machine)
    order = laws.random_order(task_graph, np.random.default_rng(data.draw(st.integers(0, 9))))
    for rows in (task_graph, tight(task_graph), tight(task_graph.reordered(order))):
        plan = plan_memory(rows)
        assert_edges_are_needed(rows, plan, assert_memory_is_in_order(rows, plan))
        expansion = expand(rows)
        expanded = expand_plan(plan, expansion)
        assert_memory_is_in_order(expansion.task_graph, expanded, expansion.lies_in)


def chains(count=4, kind="emulated", extent=1000):
    """`count` inputs, each doubled on device 0 and doubled again on device 1."""
    graph, configs = Graph(), {}
    for k in range(count):
        y = tiny.tanh(graph.input(f"x{k}", (extent,), "float64"), f"here{k}")
        graph.output(f"y{k}", tiny.tanh(y, f"there{k}"))
        configs |= {f"here{k}": ParallelConfig({}, (0,)), f"there{k}": ParallelConfig({}, (1,))}
    machine = MachineModel.uniform(2, Device(kind, 0, 1 << 30, 1e9, 1e9, 1e-3), 1e9, 1e-3)
    return graph, lower(graph, Strategy(configs), machine)


def test_edges_of_two_chains_by_hand():
    """Rows 0 to 4 and 5 to 9 are a feed, here, its copy to device 1, there, and its copy to device 0."""
    task_graph = tight(chains(2)[1])
    assert [f"{t.name} {t.source}{t.device}" for t in task_graph][1:5] == [
        "here0 00",
        "here0 01",
        "there0 11",
        "there0 10",
    ]
    # The second feed lies where row 1 has read the first. Row 6 computes where row 2 was sent from.
    for rows in (task_graph, task_graph.reordered(np.roll(np.arange(10), 5))):  # either chain first
        plan = plan_memory(rows)
        edges = [e.tolist() for e in np.split(plan.reuse_rows, plan.reuse_ptr[1:-1])]
        assert edges == [[]] * 5 + [[1], [2]] + [[]] * 3
    plan = plan_memory(task_graph)
    used = [task_graph.args(row)[k][0] for row, k in ((1, 0), (5, 0), (2, 0), (6, 1))]
    assert plan.share_bytes(task_graph, np.array(used[::2]), np.array(used[1::2])).all()


def test_who_follows_on_the_same_stream_waits_for_nobody_of_it():
    """One device computes two sums one after the other; only the second feed waits, for who reads the first."""
    graph = Graph()
    for name in ("first", "second"):
        made = tiny.tanh(graph.input(f"x of {name}", (8, 8)), f"{name}.tanh")
        graph.output(name, tiny.column_sum(made, name))
    machine = emulated(MachineModel.uniform(1))
    rows = tight(lower(graph, data_parallel(graph, machine), machine))
    plan = plan_memory(rows)
    waiting = np.repeat(np.arange(len(rows)), np.diff(plan.reuse_ptr))
    names = [(rows[row].name, rows[by].name) for row, by in zip(waiting, plan.reuse_rows)]
    assert names == [("x of second", "first.tanh")]


def test_who_follows_the_first_row_does_not_wait_for_it():
    """What it makes is not read, and the next row, on the same stream, has its memory."""
    graph = Graph()
    weight = tiny.parameter(graph, "weight", (8, 8))
    tiny.tanh(weight, "unread")
    graph.output("sum", tiny.column_sum(tiny.tanh(weight, "read"), "sum"))
    machine = emulated(MachineModel.uniform(1))
    rows = tight(lower(graph, data_parallel(graph, machine), machine))
    assert [row.name for row in rows] == ["unread", "read", "sum"]
    plan = plan_memory(rows)
    made = [rows.args(row)[1][0] for row in (0, 1)]
    assert plan.offset[made[0]] == plan.offset[made[1]]
    assert not len(plan.reuse_rows)


@examples(60)
@given(data=st.data(), is_cpu=st.booleans(), seed=st.integers(0, 99))
def test_nobody_waits_for_memory_while_there_is_enough(data, is_cpu, seed):
    """Whatever rows take; and at most half of what a tight plan leaves is taken for that, on CPUs nothing."""
    model, generator = data.draw(graphs()), np.random.default_rng(seed)
    machine, strategy = data.draw(strategies(model.graph))
    task_graph = lower(model.graph, strategy, machine if is_cpu else emulated(machine))
    task_graph = task_graph.reordered(laws.random_order(task_graph, generator))
    plan, seconds = plan_memory(task_graph), generator.exponential(size=len(task_graph))
    least = plan_memory(with_memory(task_graph, 1)).peak_bytes
    if is_cpu:
        assert np.array_equal(plan.peak_bytes, least)
        return
    for found, expected in zip(
        schedule(with_reuse(task_graph, plan), seconds), schedule(task_graph, seconds)
    ):
        np.testing.assert_array_equal(found, expected)
    room = 1 + int(generator.uniform(0.5, 3.0) * least.max(initial=1))
    some = with_memory(task_graph, room)  # some of its devices may have tight plans, others not
    plan = plan_memory(some)
    assert np.all(plan.peak_bytes <= np.maximum(least, (least + room) // 2))
    assert_memory_is_in_order(some, plan)
    predicted = plan_memory(some, is_predicted=True)
    np.testing.assert_array_equal(predicted.offset, plan.offset)
    for found, expected in zip(
        schedule(with_reuse(some, predicted), seconds), schedule(with_reuse(some, plan), seconds)
    ):
        np.testing.assert_array_equal(found, expected)


def test_a_simulation_leaves_out_what_nobody_waits_for():
    """Of devices that have enough memory; of those that have not, nothing."""
    graph, machine = lenet.build(batch=8), MachineModel.preset("p100").take(2)
    roomy = lower(graph, data_parallel(graph, machine), machine)
    for rows, is_empty in ((roomy, True), (tight(roomy), False)):
        predicted, full = (
            plan_memory(rows, is_predicted=flag).reuse_rows for flag in (True, False)
        )
        assert len(full)
        assert len(predicted) == (0 if is_empty else len(full))


def test_the_more_memory_there_is_the_shorter_are_waits():
    """Between a tight plan and one without waits bytes are needed some rows later."""
    graph, machine = alexnet.build(batch=32), MachineModel.preset("p100").take(2)
    costs = CostModel.analytic(machine)
    rows = reorder(lower(graph, data_parallel(graph, machine), machine), costs, "first_ready")
    least = needed_bytes(tight(rows), plan_memory(tight(rows))).max()
    shares = (1, 1.06, 2)
    some = [simulate(with_memory(rows, int(n * least)), costs).seconds for n in shares]
    assert some[0] > 1.02 * some[1] > 1.15 * some[2]


def test_waits_for_memory_are_simulated_and_on_the_critical_path():
    task_graph = tight(chains(8)[1])
    costs = CostModel.analytic(task_graph.machine)
    without = schedule(task_graph, costs.seconds(task_graph))[2]
    timeline = simulate(task_graph, costs)
    assert timeline.seconds > 1.3 * without
    path = timeline.critical_path()
    waited = {
        (row, other) for row, other in zip(path[1:], path) if other not in task_graph.deps(row)
    }
    assert any(other in timeline.task_graph.deps(row) for row, other in waited)


@examples(60)
@given(data=st.data(), seed=st.integers(0, 99))
def test_any_order_that_the_waits_allow_gives_the_same_numbers(data, seed):
    """Rows of one process, made in a random order that keeps to dependences and streams, in the memory of the plan."""
    model = data.draw(graphs())
    machine, strategy = data.draw(strategies(model.graph))
    task_graph = lower(model.graph, strategy, emulated(machine))
    assert_any_order(model, tight(task_graph) if seed % 2 else task_graph, seed)


def assert_any_order(model, task_graph, seed, is_waiting=True):
    with Executor(task_graph, seed=3, allow_nan=True) as step:
        replay, rows = (
            step.program.calls[0],
            step._rows if is_waiting else expand(task_graph).task_graph,
        )
        previous, before = RowsBefore(rows), np.zeros((len(rows), len(rows)), np.bool_)
        for row in range(len(rows)):
            before[row, [*rows.deps(row), *previous.of(row)]] = True
        generator, order, is_left = np.random.default_rng(seed), [], np.ones(len(rows), np.bool_)
        while is_left.any():
            order.append(int(generator.choice(np.flatnonzero(is_left & ~before.any(axis=1)))))
            is_left[order[-1]], before[:, order[-1]] = False, False
        step.program.calls[0] = lambda: [replay.calls[row]() for row in order]
        step.record = False
        found = step(model.feeds) | {name: step.read(name) for name in step.persistent}
    with Executor(task_graph, seed=3, allow_nan=True) as step:
        expected = step(model.feeds) | {name: step.read(name) for name in step.persistent}
    laws.assert_equal(found, expected)


def test_without_its_waits_a_plan_gives_other_numbers():
    graph, task_graph = chains(4)
    task_graph = tight(task_graph)
    feeds = {f"x{k}": np.full(1000, 0.1 * k) for k in range(4)}
    model = type("Fed", (), {"graph": graph, "feeds": feeds})
    for seed in range(5):
        assert_any_order(model, task_graph, seed)
    with pytest.raises(AssertionError):
        for seed in range(5):
            assert_any_order(model, task_graph, seed, is_waiting=False)
