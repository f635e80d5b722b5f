"""Who waits for whom among ranks: whatever their pace, everything happens in order, and no wait is needless."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import ops
from taskflow import (
    CostModel,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    Window,
    data_parallel,
    lower,
    reorder,
    schedule,
)
from taskflow.execute.expand import expand, expand_plan
from taskflow.execute.program import messages
from taskflow.execute.progress import (
    BEGIN,
    Runners,
    copied_by_folds,
    foldable_in_place,
    handed_on,
    order_between_ranks,
)
from taskflow.tasks.memory import plan_memory, with_reuse
from taskflow.tasks.task_graph import Privilege
from tests import laws
from tests.strategies import examples, graphs, strategies


def waiting(task_graph):
    return with_reuse(task_graph, plan_memory(task_graph))


def play(task_graph, generator, count, host_count=1, hands_all=False):
    """Run a step with ranks of random pace that keep to the order, and assert that nobody comes too early.

    The devices are dealt out to `count` ranks, in runs, and these to hosts. Transfers are handed on where `handed_on`
    says so, or all that can be.
    """
    devices = len(task_graph.machine.devices)
    rank, hosts = (
        np.arange(devices) * count // devices,
        [k * host_count // count for k in range(count)],
    )
    expansion = expand(task_graph)
    plan = expand_plan(plan_memory(task_graph), expansion)
    task_graph = with_reuse(expansion.task_graph, plan)
    is_sent = Runners(task_graph, rank, hosts).messages
    over_in = {
        copy: fold for copy, (fold, _) in foldable_in_place(task_graph).items() if not is_sent[copy]
    }
    over_in |= {
        copy: fold
        for copy, fold in copied_by_folds(task_graph, over_in).items()
        if not is_sent[copy]
    }
    handed = (
        set(np.flatnonzero(task_graph.is_transfer).tolist())
        if hands_all
        else handed_on(task_graph, rank)
    )
    handed = {row for row in handed if not is_sent[row] and row not in over_in}
    ends = Runners(task_graph, rank, hosts, over_in, handed)
    every = np.arange(len(plan.size))
    clashing = plan.share_bytes(task_graph, every[:, None], every) & (every[:, None] != every)
    order = order_between_ranks(task_graph, over_in, rank, hosts, plan.receive, handed)
    queues = [acts_of(task_graph, ends, order, over_in, d) for d in range(count)]
    cell: list[int | None] = [None] * count  # nobody has begun
    deps = [set(task_graph.deps(row)) for row in range(len(task_graph))]
    of = {
        row: [row, *(copy for copy, fold in over_in.items() if fold == row)]
        for row in range(-1, len(deps))
    }
    begun: dict[int, set[str]] = {
        row: set() for row, sent in enumerate(is_sent) if sent
    }  # ends of messages
    over: set[int] = set()
    ended: set[int] = set()

    def may_go(d):
        if cell[d] is None:
            return True
        act, row = queues[d][0] if queues[d] else ("end", -1)
        awaited = order.at_end.get(d, ()) if act == "end" else order.before.get((row, d), ())
        if act == "await":
            return len(begun[row]) == 2
        before = (
            begun.keys()
            if act == "end"
            else begun.keys() & set().union(*(deps[task] for task in of[row]))
        )
        own = [m for m in before - later(d) if d in (ends.source[m], ends.device[m])]
        return all(len(begun[m]) == 2 for m in own) and all(
            cell[k] is not None and cell[k] >= r for k, r in awaited
        )

    def later(d):
        """Messages of which a rank has yet to begin its end: what it posts early may depend on them elsewhere."""
        return {row for act, row in queues[d] if act in ("post", "send")}

    while len(ended) < count:
        able = [d for d in range(count) if d not in ended and may_go(d)]
        assert able, "deadlock"
        d = int(generator.choice(able))
        if cell[d] is None:
            cell[d] = BEGIN
        elif queues[d]:
            act, row = queues[d].pop(0)
            tasks = of[row]
            if act != "await":
                assert_in_order(
                    task_graph, clashing, ends, (d, hosts[d], rank), tasks, (over, later(d)), cell
                )
            if act in ("post", "send"):
                begun[row].add(act)
                over |= {row} if len(begun[row]) == 2 else set()
                continue
            over.update(tasks)
            if (row, d) in order.published:
                cell[d] = row
        else:
            touched = [
                r
                for r in np.flatnonzero(task_graph.is_transfer)
                if d in (ends.source[r], ends.device[r])
            ]
            assert over.issuperset(touched), "others still use the memory when the step ends"
            ended.add(d)


def acts_of(task_graph, ends, order, over_in, d):
    """What a rank does in a step: `run`, or `post` and `await`, or `send` (and `await`) a message."""
    acts = []
    for row in range(len(task_graph)):
        acts += [("post", m) for m, at in order.posts.items() if at == row and ends.device[m] == d]
        if ends.messages[row]:
            acts += [("send", row)] * (ends.source[row] == d) + [("await", row)] * (
                (row, d) in order.awaited
            )
        elif ends.runs[row] == d and row not in over_in:
            acts.append(("run", row))
    return acts


def assert_in_order(task_graph, clashing, ends, here, tasks, done, cell):
    """`tasks` (a row and the copies that it makes needless), or an end of a message, may go after those in `done`."""
    (rank, host, ranks), (over, later) = here, done
    count = task_graph.arg_ptr[tasks[0]]
    used, how = task_graph.arg_instance[:count], task_graph.arg_privilege[:count]
    rows = np.repeat(np.arange(tasks[0]), np.diff(task_graph.arg_ptr[: tasks[0] + 1]))
    is_under_way = ~np.isin(rows, [*over, *tasks]) & (used >= 0)
    for task in tasks:
        deps = {r for r in task_graph.deps(task) if ends.runner(r, host) is not None} - later
        assert over.union(tasks).issuperset(deps), task_graph[task]
        assert not ends.crossing[task] or all(
            end == rank or cell[end] is not None for end in (ends.source[task], ends.device[task])
        ), "the other end may not have ended its last step"
        assert task == tasks[0] or task not in over, "done twice"
        for instance, _, privilege in task_graph.args(task):
            if instance >= 0 and ends.hosts[ranks[task_graph.instance_device[instance]]] == host:
                writers = how[is_under_way] != Privilege.READ
                clash = clashing[instance, used[is_under_way]] & (
                    writers | (privilege != Privilege.READ)
                )
                assert not clash.any(), (
                    f"{task_graph[task]} takes memory that an earlier row still uses"
                )


@examples(100)
@given(
    data=st.data(),
    seed=st.integers(0, 99),
    several=st.booleans(),
    hosts=st.integers(1, 3),
    hands_all=st.booleans(),
)
def test_no_pace_of_the_ranks_breaks_the_order(data, seed, several, hosts, hands_all):
    model = data.draw(graphs())
    machine, strategy = data.draw(strategies(model.graph))
    task_graph = lower(model.graph, strategy, machine)
    generator = np.random.default_rng(seed)
    devices = len(machine.devices)
    count = -(-devices // 2) if several else devices
    play(task_graph, generator, count, hosts, hands_all)
    play(
        task_graph.reordered(laws.random_order(task_graph, generator)),
        generator,
        count,
        hosts,
        hands_all,
    )


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
    assert order.before == {
        (4 * k + 2 + d, d): ((1 - d, 4 * k + 1 - d),) for k in range(3) for d in range(2)
    }
    assert order.at_end == {0: ((1, 11),), 1: ((0, 10),)}
    assert {row for row, _ in order.published} == {0, 1, 4, 5, 8, 9, 10, 11}


def all_reduce(ranks):
    """Partial sums of every device, read whole by every device."""
    graph = Graph()
    x = graph.parameter("x", (ranks,), trainable=False)
    y = graph.launch("partial", "d -> n", [x], kernel=nothing, sizes={"n": 8 * ranks})
    graph.launch("whole", "^n, d -> d", [y, x], kernel=nothing)
    config = ParallelConfig({"d": ranks})
    return lower(graph, Strategy({"partial": config, "whole": config}), MachineModel.uniform(ranks))


def test_an_all_reduce_is_a_fold_on_every_rank_and_one_wait_before_and_after_it():
    task_graph = all_reduce(
        2
    )  # rows 0 and 1: partial; 2, 3: copies; 4, 5: folds; 6, 7: copies; 8, 9: whole
    read = {copy: fold for copy, (fold, _) in foldable_in_place(task_graph).items()}
    assert read == {2: 4, 3: 5}
    written = copied_by_folds(task_graph, read)
    assert {copy: int(task_graph.source[copy]) for copy in written} == {6: 1, 7: 0}
    assert written == {6: 5, 7: 4}
    order = order_between_ranks(waiting(task_graph), read | written, np.arange(2))
    assert order.before == {
        (4, 0): ((1, 1),),
        (5, 1): ((0, 0),),
        (8, 0): ((1, 5),),
        (9, 1): ((0, 4),),
    }
    assert order.at_end == {0: (), 1: ()}


def test_a_rank_hands_on_the_part_of_a_parameter_that_it_has_just_updated():
    graph = Graph()
    h = ops.linear(graph.input("x", (2, 8)), 8, bias=False, name="fc")
    ops.adam(ops.mean_squared_error(h, graph.input("t", (2, 8)), name="loss"))
    machine = MachineModel.uniform(2)
    strategy, update = (
        data_parallel(graph, machine),
        next(op for op in graph.operators if op.name.endswith(".adam")),
    )
    strategy[update.name] = ParallelConfig({update.split_axes[0]: 4}, (0, 0, 1, 1))
    costs = CostModel.analytic(machine)
    task_graph = reorder(lower(graph, strategy, machine), costs, schedule.depth_first)
    moved = np.flatnonzero(task_graph.is_transfer).tolist()
    weights = {
        row for row in moved if task_graph.regions[task_graph.region[row]].name == "fc.weight"
    }
    assert len(weights) == 4 < len(moved)  # gradients are moved, too, but not handed on
    assert handed_on(task_graph, np.arange(2)) == weights
    assert handed_on(task_graph, np.zeros(2, int)) == set()
    late = [*(row for row in range(len(task_graph)) if row not in weights), *sorted(weights)]
    # Behind all updates the first ones read what is no longer the latest: their targets copy it, and the last are late.
    assert handed_on(task_graph.reordered(late), np.arange(2)) == set()


def test_a_fold_copies_its_result_only_where_it_has_waited_for_the_memory():
    task_graph = all_reduce(2)
    assert copied_by_folds(task_graph, {2: 4}) == {
        7: 4
    }  # fold 5 does not wait for the partial sums of device 0
    assert copied_by_folds(task_graph, {}) == {}


def test_small_transfers_that_follow_each_other_are_one_message():
    task_graph = rows_of_columns(rows=2, width=4, distances=(-2, 0, 2))
    assert np.flatnonzero(task_graph.is_transfer).tolist() == [
        2,
        3,
        6,
        7,
    ]  # those of each point behind it
    task_graph = task_graph.reordered([0, 1, 4, 5, 2, 6, 3, 7, 8, 9, 10, 11])
    assert messages(task_graph, 32) == {4: [4, 5], 5: [4, 5], 6: [6, 7], 7: [6, 7]}
    assert messages(task_graph, 31) == {r: [r] for r in range(4, 8)}
    order = [0, 1, 2, 3, 4, 6, 5, 7, 8, 9, 10, 11]
    assert messages(task_graph.reordered(order), 32) == {r: [r] for r in range(4, 8)}
