"""Sketches: with them in place of the fragments of regions a step never takes longer, whatever the machine."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, Device, Graph, MachineModel, ParallelConfig
from taskflow.graph.family import Family
from taskflow.searching import packed_judge as judging
from taskflow.searching.packed_judge import SLACK, PackedJudge
from taskflow.strategy.rules import leaders, random_config
from tests import tiny
from tests.lowered import network
from tests.strategies import examples, graphs


def sketched_and_true(judge, changes):
    """Seconds of the current strategy with these changes: with sketches of what is missing, and as they are."""
    found = {}

    def look(p, limit, missing):
        judge._simulate(p, math.inf)
        work = p.work.copy()
        assert judge.pool.sketch(missing, judge.index.proposed.points, work, math.inf)
        found["sketched"] = judge._simulate(p, math.inf)
        assert (work <= p.work + SLACK * work.max()).all()  # equal regions have one sketch
        judge.pool.drop_sketches()
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "_is_hopeless", look)
        true = judge.propose_all(changes, 1e300)
    return found.get("sketched", 0.0), true


@st.composite
def machines(draw):
    """Hosts of unequal devices, behind links of unequal rates; groups of few devices and of many."""
    kind = draw(st.sampled_from(["cpu", "emulated"]))
    preset = draw(st.sampled_from(["p100", "k80", None]))
    machine = (
        MachineModel.preset(preset, nodes=3)
        if preset
        else MachineModel.uniform(draw(st.integers(2, 9)))
    )
    rates = st.sampled_from([0.25, 1.0, 3.0])
    devices = [
        replace(d, kind=kind, memory_bandwidth=d.memory_bandwidth * draw(rates))
        for d in machine.devices
    ]
    links = [replace(link, bandwidth=link.bandwidth * draw(rates)) for link in machine.links]
    exchanges = {"all-to-all": draw(st.sampled_from(["copies", "pairwise", "two-level"]))}
    return replace(machine, devices=tuple(devices), links=tuple(links), collectives=exchanges)


def assert_below(graph, machine, seed, proposals):
    generator, costs = np.random.default_rng(seed), CostModel.analytic(machine)
    judge, operators = PackedJudge(graph, machine, costs), leaders(graph)
    judge.start(taskflow.random_strategy(graph, machine, seed))
    for _ in range(proposals):
        chosen = generator.choice(
            len(operators), size=min(2, len(operators)), replace=False
        ).tolist()
        changes = {
            operators[k].name: random_config(Family.of(operators[k]), machine, generator)
            for k in chosen
        }
        sketched, true = sketched_and_true(judge, changes)
        assert sketched <= true * (1 + SLACK)
        if generator.random() < 0.3 and judge._proposed is not None:
            judge.accept()


@examples(25)
@given(model=graphs(), machine=machines(), seed=st.integers(0, 2**32 - 1))
def test_below_the_true_seconds(model, machine, seed):
    assert_below(model.graph, machine, seed, 20)


@pytest.mark.parametrize(("seed", "hosts"), [(0, 2), (1, 4), (2, 4)])
def test_below_the_true_seconds_of_a_network_that_moves_much(seed, hosts):
    assert_below(network(layers=3), MachineModel.preset("p100", nodes=hosts), seed, 40)


def two_layers(batch=64, width=512):
    graph = Graph()
    tiny.linear(tiny.linear(graph.input("x", (batch, width), "float32"), width), width)
    return graph


SLOW = {"bandwidth": 1e6, "latency_seconds": 0.0}


def test_copies_count_in_full():
    """Halves of a batch that lie on two devices, read by a third: nothing else takes noticeable time."""
    graph, machine = two_layers(), MachineModel.uniform(3, Device(kind="emulated"), **SLOW)
    first, second = (op.name for op in leaders(graph))
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.single_device(graph, machine, 2))
    sketched, true = sketched_and_true(
        judge, {first: ParallelConfig({"b": 2}), second: ParallelConfig({}, (2,))}
    )
    assert true > 64 * 512 * 4 / 1e6
    assert sketched == pytest.approx(true, rel=1e-2)


def test_a_sender_serves_one_after_the_other():
    """Eight parts that lie on one device: the last of those who read them waits for all."""
    graph, machine = two_layers(), MachineModel.uniform(9, Device(kind="emulated"), **SLOW)
    first, second = (op.name for op in leaders(graph))
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.single_device(graph, machine))
    changes = {first: ParallelConfig({}, (8,)), second: ParallelConfig({"b": 8})}
    sketched, true = sketched_and_true(judge, changes)
    assert true > 64 * 512 * 4 / 1e6
    assert sketched == pytest.approx(true, rel=1e-2)


def test_the_link_of_a_host_serves_one_after_the_other():
    """Tiles on two hosts change places between rows and columns; what crosses has one link each way."""
    graph, machine = two_layers(), MachineModel.preset("p100", nodes=2)
    slow = [
        replace(k, bandwidth=1e6 if "network" in map(str, k.ends) else k.bandwidth)
        for k in machine.links
    ]
    machine = replace(machine, links=tuple(slow))
    first, second = (op.name for op in leaders(graph))
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.single_device(graph, machine))
    changes = {first: ParallelConfig({"b": 8}), second: ParallelConfig({"i": 8})}
    sketched, true = sketched_and_true(judge, changes)
    assert true > 64 * 512 * 4 / 4 / 1e6
    assert 0.9 * true < sketched <= true * (1 + SLACK)


def test_a_sum_counts_half_at_least():
    """Eight partial sums, read whole by all of these devices."""
    graph, machine = two_layers(), MachineModel.uniform(8, Device(kind="emulated"), **SLOW)
    first, second = (op.name for op in leaders(graph))
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.data_parallel(graph, machine))
    sketched, true = sketched_and_true(
        judge, {first: ParallelConfig({"i": 8}), second: ParallelConfig({"o": 8})}
    )
    assert true / 2 <= sketched <= true


def test_what_is_hopeless_is_not_made(monkeypatch):
    monkeypatch.setattr(judging, "CALL_ROWS", 0)  # even for so small a graph
    graph, machine = two_layers(), MachineModel.uniform(3, Device(kind="emulated"), **SLOW)
    first, second = (op.name for op in leaders(graph))
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    seconds = judge.start(taskflow.single_device(graph, machine, 2))
    fragments = judge.pool.fragments
    changes = {first: ParallelConfig({"b": 2}), second: ParallelConfig({}, (2,))}
    assert judge.propose_all(changes, seconds) == math.inf and judge.pool.fragments == fragments
    assert math.isfinite(judge.propose_all(changes)) and judge.pool.fragments > fragments


def test_sketches_end_with_the_region_that_gives_a_stream_too_much_work():
    graph, machine = two_layers(), MachineModel.uniform(3, Device(kind="emulated"), **SLOW)
    judge = PackedJudge(graph, machine, CostModel.analytic(machine))
    first, second = (op.name for op in leaders(graph))
    judge.start(
        taskflow.Strategy({first: ParallelConfig({"b": 2}), second: ParallelConfig({}, (2,))})
    )
    regions, streams = np.arange(len(judge.layout.kind)), judge.pool.sets.count

    def sketched(limit):
        work = np.zeros(streams)
        is_short = judge.pool.sketch(regions, judge.index.current.points, work, limit)
        made = judge.pool.fragments - fragments
        judge.pool.drop_sketches()
        return is_short, work, made

    fragments = judge.pool.fragments
    is_short, work, made = sketched(math.inf)
    assert is_short and made == len(regions)
    most = work.max()
    assert sketched(most * (1 + SLACK))[0] and not sketched(most * (1 - SLACK))[0]
    is_short, work, made = sketched(0.0)
    assert not is_short and work.max() > 0 and 0 < made < len(regions)


def test_costs_that_are_not_those_of_rates_have_sketches_without_rows():
    graph, machine = two_layers(), MachineModel.local(2, "cpu")
    judge = PackedJudge(graph, machine, CostModel.measured(machine))
    judge.start(taskflow.data_parallel(graph, machine))
    work = np.zeros(judge.pool.sets.count)
    judge.pool.sketch(np.arange(len(judge.layout.kind)), judge.index.current.points, work, 0.0)
    first, end = judge.pool._sketched_from["fragments"][0], judge.pool.packed.filled["fragments"][0]
    assert end - first == len(judge.layout.kind)
    assert (judge.pool.packed.fragment["rows"][first:end] == 0).all() and not work.any()
