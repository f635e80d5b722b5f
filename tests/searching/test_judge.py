"""The judge: whatever is proposed and accepted, its times are those of the whole pass, to the last bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, Device, MachineModel, lower, simulate
from taskflow.core import columns
from taskflow.graph.family import Family
from taskflow.machine.topology import torus
from taskflow.searching import packed
from taskflow.searching import packed_judge as judging
from taskflow.searching import pool as pools
from taskflow.searching.judge import Judge
from taskflow.searching.packed_judge import PackedJudge
from taskflow.simulation.simulate import schedule
from taskflow.strategy.rules import leaders, random_config
from taskflow.tasks.memory import plan_memory
from tests import tiny
from tests.lowered import ends_of, network
from tests.strategies import examples, graphs

PROPOSALS = 80  # one after the other: what is left of one must not disturb the next


def judged_from_scratch(graph, strategy, machine, costs):
    task_graph = lower(graph, strategy, machine)
    start, end, total = schedule(task_graph, costs.seconds(task_graph))
    return task_graph, start, end, total


def clusters():
    """Equal devices, hosts with shared links, or devices that send by link, through one door or several."""
    few = st.integers(1, 6).map(MachineModel.uniform)
    hosts = st.sampled_from(["p100", "k80"]).map(lambda name: MachineModel.preset(name, nodes=2))
    return st.one_of(few, hosts, st.sampled_from(["h100", "v100"]).map(MachineModel.preset))


@examples(8)
@given(model=graphs(), machine=clusters(), seed=st.integers(0, 2**32 - 1))
def test_proposals_are_what_lowering_and_simulating_from_scratch_give(model, machine, seed):
    """Row for row, to the last bit of every start, and so is what is accepted under a limit."""
    graph, costs, generator = model.graph, CostModel.analytic(machine), np.random.default_rng(seed)
    judge, strategy = (
        PackedJudge(graph, machine, costs),
        taskflow.random_strategy(graph, machine, seed),
    )
    seconds = judge.start(strategy)
    operators = leaders(graph)
    for _ in range(PROPOSALS):
        changed = generator.choice(
            len(operators), size=min(int(generator.integers(1, 3)), len(operators)), replace=False
        )
        chosen = [operators[k] for k in changed.tolist()]
        changes = {op.name: random_config(Family.of(op), machine, generator) for op in chosen}
        limit = seconds - math.log(1.0 - generator.random()) * seconds / 5
        proposed = strategy.copy()
        proposed.update(changes)
        task_graph, _, end, total = judged_from_scratch(graph, proposed, machine, costs)
        found = judge.propose_all(changes, limit)
        assert (found <= limit) == (total <= limit)
        if found <= limit:
            assert found == total
            judge.accept()
            assert len(ends_of(judge)) == len(task_graph)
            np.testing.assert_array_equal(ends_of(judge), end)
            strategy, seconds = proposed, found


@examples(240)
@given(
    model=graphs(),
    machine=clusters(),
    seed=st.integers(0, 99),
    part=st.sampled_from([0.9, 1.0, 1.5, 4.0, 20.0]),
)
def test_what_is_predicted_is_what_simulate_says(model, machine, seed, part):
    """Waits for memory included, whether it is planned or has so much room that nobody waits."""
    graph, costs = model.graph, CostModel.analytic(machine)
    strategy = taskflow.random_strategy(graph, machine, seed)
    room = int(part * plan_memory(lower(graph, strategy, machine)).peak_bytes.max(initial=0)) + 1
    machine = machine.with_rates(memory_bytes=room)
    timeline = simulate(lower(graph, strategy, machine), costs)
    expected = timeline.seconds if timeline.peak_bytes.max(initial=0) <= room else math.inf
    assert outcome(graph, machine, strategy).seconds == expected


@settings(deadline=None)
@given(seed=st.integers(0, 99))
def test_a_proposal_that_is_not_accepted_leaves_no_trace(seed):
    graph, machine = network(layers=3), MachineModel.uniform(4)
    costs, generator = CostModel.analytic(machine), np.random.default_rng(seed)
    judge, strategy = PackedJudge(graph, machine, costs), taskflow.data_parallel(graph, machine)
    seconds = judge.start(strategy)
    operators = leaders(graph)
    for _ in range(5):
        op = operators[int(generator.integers(len(operators)))]
        judge.propose_all(
            {op.name: random_config(Family.of(op), machine, generator)},
            seconds * generator.random() * 2,
        )
    assert judge.propose_all({"fc0": strategy["fc0"]}) == seconds
    assert judge.propose_all(strategy) == seconds


def test_followers_with_a_configuration_of_their_own_keep_it():
    graph, machine = network(), MachineModel.uniform(2)
    costs = CostModel.analytic(machine)
    strategy = taskflow.data_parallel(graph, machine)
    strategy["fc0.weight.update"] = taskflow.ParallelConfig({"o": 2})
    judge = PackedJudge(graph, machine, costs)
    judge.start(strategy)
    found = judge.propose_all({"fc0": taskflow.ParallelConfig({}, (1,))})
    strategy["fc0"] = taskflow.ParallelConfig({}, (1,))
    assert found == judged_from_scratch(graph, strategy, machine, costs)[-1]


def test_what_follows_a_home_that_is_named_follows_it_here_too():
    graph, machine = taskflow.homes(network()), MachineModel.uniform(2)
    costs = CostModel.analytic(machine)
    strategy = taskflow.fully_sharded(graph, machine)
    judge = PackedJudge(graph, machine, costs)
    assert judge.start(strategy) == judged_from_scratch(graph, strategy, machine, costs)[-1]
    mine = {"mine": strategy}
    found = taskflow.search(graph, machine, costs, proposals=30, seed=0, starts=mine)
    assert simulate(lower(graph, found.strategy, machine), costs).seconds == found.seconds
    assert (
        found.baseline_seconds["mine"] == simulate(lower(graph, strategy, machine), costs).seconds
    )


def test_what_needs_too_much_memory_is_infinitely_slow_but_can_be_left():
    graph = network()
    machine = MachineModel.uniform(2, Device(memory_bytes=13_000))
    costs, alone = CostModel.analytic(machine), taskflow.single_device(graph, machine)
    judge, roomy = (
        PackedJudge(graph, machine, costs, is_roomy=is_roomy) for is_roomy in (False, True)
    )
    halves = {op.name: taskflow.ParallelConfig({"b": 2}) for op in leaders(graph)}
    seconds = judge.start(halves)
    assert judge.propose_all(alone) == math.inf and math.isfinite(roomy.propose_all(alone))
    assert outcome(graph, machine, alone).shortage.startswith("device 0: ")
    assert judge.start(alone) == roomy.propose_all(alone)  # it may stay as large as it is
    assert judge.propose_all(halves) == seconds


def test_what_a_step_takes_besides_its_rows_is_in_every_prediction():
    graph, rates = network(), {"kind": "cuda", "step_seconds": 1e-3}
    machine = MachineModel.uniform(2).with_rates(**rates)
    costs, strategy = CostModel.analytic(machine), taskflow.data_parallel(graph, machine)
    timeline = taskflow.simulate(lower(graph, strategy, machine), costs)
    assert timeline.seconds == timeline.end.max() + 1e-3
    start, judge = (
        PackedJudge(graph, MachineModel.uniform(2).with_rates(kind="cuda"), costs),
        PackedJudge(graph, machine, costs),
    )
    assert judge.start(strategy) == pytest.approx(start.start(strategy) + 1e-3, rel=1e-12)
    emulated = machine.with_rates(kind="emulated")
    assert emulated.step_seconds == 0 < machine.step_seconds


def test_an_illegal_proposal_is_refused_with_its_rule():
    graph, machine = network(), MachineModel.uniform(2)
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.data_parallel(graph, machine))
    assert judge.propose_all({"fc0": taskflow.ParallelConfig({"b": 2}, (0, 7))}) == math.inf
    assert judge.refusal == "operator 'fc0': device 7 is not among the machine's 2 devices"


def test_a_pool_that_is_full_is_emptied(monkeypatch):
    graph, machine = network(), MachineModel.uniform(2)
    costs = CostModel.analytic(machine)
    monkeypatch.setattr(judging, "HELD_BYTES", 0)
    judge, strategy = PackedJudge(graph, machine, costs), taskflow.data_parallel(graph, machine)
    judge.start(strategy)
    for degrees in ({"o": 2}, {"b": 2}):
        judge._most_bytes, pool = 0, judge.pool
        strategy["fc0"] = taskflow.ParallelConfig(degrees)
        assert (
            judge.propose_all({"fc0": strategy["fc0"]})
            == judged_from_scratch(graph, strategy, machine, costs)[-1]
        )
        assert judge.pool is not pool
        judge.accept()
        np.testing.assert_array_equal(
            ends_of(judge), judged_from_scratch(graph, strategy, machine, costs)[2]
        )
    pool = judge.pool
    judge.propose_all({"fc0": taskflow.ParallelConfig({"o": 2})})
    assert judge.pool is pool  # what the strategy itself takes does not count as much


def test_an_interrupted_refill_is_done_once_more(monkeypatch):
    graph, machine = network(), MachineModel.uniform(2)
    judge, config = (
        PackedJudge(graph, machine, CostModel.analytic(machine)),
        taskflow.ParallelConfig({"o": 2}),
    )
    judge.start(taskflow.data_parallel(graph, machine))
    expected, add, judge._most_bytes = judge.propose_all({"fc0": config}), pools.Pool.add_points, 0

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(pools.Pool, "add_points", interrupted)
    with pytest.raises(KeyboardInterrupt):
        judge.propose_all({"fc0": config})
    monkeypatch.setattr(pools.Pool, "add_points", add)
    assert judge.propose_all({"fc0": config}) == expected


def test_columns_that_grow_into_memory_of_any_content(monkeypatch):
    """From one row on; what is behind the data is never read."""

    def poisoned(data):
        return np.concatenate([data, np.full_like(data, 1 << 30)])

    monkeypatch.setattr(columns, "_doubled", poisoned)
    monkeypatch.setattr(pools, "empty", lambda regions, devices: packed.empty(1, devices))
    graph, machine = network(layers=3), MachineModel.uniform(4)
    costs, generator = CostModel.analytic(machine), np.random.default_rng(0)
    judge, strategy = PackedJudge(graph, machine, costs), taskflow.data_parallel(graph, machine)
    seconds = judge.start(strategy)
    for op in leaders(graph) * 2:
        strategy[op.name] = random_config(Family.of(op), machine, generator)
        judge.propose_all(
            {op.name: strategy[op.name]}, seconds
        )  # some without the regions that are to be made
        assert (
            judge.propose_all({op.name: strategy[op.name]})
            == judged_from_scratch(graph, strategy, machine, costs)[-1]
        )
        judge.accept()


def test_an_input_that_nobody_reads_is_passed_over():
    model, machine = network(), MachineModel.uniform(2)
    model.input("unread", (3,))
    costs, strategy = CostModel.analytic(machine), taskflow.data_parallel(model, machine)
    judge = PackedJudge(model, machine, costs)
    seconds = judge.start(strategy)
    np.testing.assert_array_equal(
        ends_of(judge), judged_from_scratch(model, strategy, machine, costs)[2]
    )
    assert judge.propose_all(strategy) == seconds


def test_a_graph_of_one_operator():
    graph, machine = (
        tiny.copy(taskflow.Graph().input("x", (8, 6), "float64"), "h").graph,
        MachineModel.uniform(2),
    )
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    assert math.isfinite(judge.start(taskflow.data_parallel(graph, machine)))


def outcome(graph, machine, strategy):
    """What the judge of whole plans says."""
    return Judge(graph, machine, CostModel.analytic(machine)).judge(taskflow.Plan(strategy))


def test_a_constant_that_all_updates_read_does_not_change_with_one_of_them():
    graph, machine = network(layers=12), MachineModel.uniform(2)
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.data_parallel(graph, machine))
    judge.propose_all({"fc5": taskflow.ParallelConfig({"o": 2})})
    judge.accept()
    changed = {judge.lowering.regions[k].name for k in judge.current.regions}
    assert "fc5.weight" in changed and "learning_rate" not in changed


def test_of_a_device_that_receives_by_several_links_no_arrival_implies_another():
    """A grid of 2 x 3: what comes by different links comes in no order."""
    graph, machine = network(layers=2), torus((2, 3))
    costs, generator = CostModel.analytic(machine), np.random.default_rng(0)
    judge, strategy = PackedJudge(graph, machine, costs), taskflow.data_parallel(graph, machine)
    judge.start(strategy)
    for op in leaders(graph) * 2:
        strategy[op.name] = random_config(Family.of(op), machine, generator)
        judge.propose_all({op.name: strategy[op.name]})
        judge.accept()
        task_graph = lower(graph, strategy, machine)
        np.testing.assert_array_equal(
            ends_of(judge), schedule(task_graph, costs.seconds(task_graph))[1]
        )
