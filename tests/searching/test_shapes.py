"""Plans that are laid out by a rule: grids and pipelines of experts are what `simulate` says, and right."""

import math
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest

import taskflow
from taskflow import CostModel, MachineModel, Plan, Strategy, lower, simulate
from taskflow.core.errors import NoRoomError
from taskflow.lowering import Lowering
from taskflow.searching.moves.again import change_again
from taskflow.searching.moves.buckets import BUCKET_BYTES, change_buckets
from taskflow.searching.moves.shape import _others, next_shape, plan_of
from taskflow.searching.moves.stages import change_groups, change_parts, move_cut
from taskflow.searching.problem import SearchProblem
from taskflow.searching.shapes import PARTS, SCHEDULES, PlanShape
from taskflow.strategy.stages import level_cuts
from tests.laws import assert_close, one_device, run
from tests.searching.test_grids import transformer

HOSTS = MachineModel.preset("p100", nodes=2)
V = "zb_v", 2


def problem_of(graph, machine=HOSTS):
    return SearchProblem(graph, machine, CostModel.analytic(machine))


def seconds_of(plan, graph, machine=HOSTS):
    costs = CostModel.analytic(machine)
    return simulate(plan.apply(graph, machine, costs)[1], costs)


def hosts_of(plan, name):
    return {device // 4 for device in plan.strategy[name].devices}


def test_buckets_are_begun_with_and_doubled_or_halved_and_judged_as_simulate_says():
    graph, machine = transformer(2, 32, "float32").graph, MachineModel.preset("h100", nodes=1)
    problem, generator = problem_of(graph, machine), np.random.default_rng(0)
    plan = plan_of(PlanShape(), problem)
    alone = problem.judge.judge(plan)
    bucketed = change_buckets(plan, problem, generator)
    assert bucketed.bucket_bytes == BUCKET_BYTES
    assert problem.judge.judge(bucketed).seconds == seconds_of(bucketed, graph, machine).seconds
    assert problem.judge.judge(bucketed).seconds < alone.seconds
    others = {change_buckets(bucketed, problem, generator).bucket_bytes for _ in range(9)}
    assert others == {2 * BUCKET_BYTES, BUCKET_BYTES // 2}
    own = MachineModel.uniform(4)  # calls no library
    assert change_buckets(plan, problem_of(graph, own), generator) is None


def test_pipelines_have_a_stage_for_each_group_and_are_what_simulate_says():
    graph = transformer(2, 32, "float32").graph
    problem = problem_of(graph)
    for tensor, schedule, parts in product((2, 1), SCHEDULES[:3], PARTS):
        plan = plan_of(PlanShape(tensor, groups=2, parts=parts, schedule=schedule), problem)
        outcome = problem.judge.judge(plan)
        assert outcome.fits or schedule[0] == "interleaved", outcome.shortage
        assert not outcome.fits or outcome.seconds == seconds_of(plan, graph).seconds
        assert hosts_of(plan, "words") == {0} and plan.parts == 2 * parts
        assert hosts_of(plan, "head") == ({0} if schedule == V else {1})


@pytest.mark.parametrize("groups, tensor", [(3, 1), (2, 8), (8, 2)])
def test_there_are_no_unequal_groups(groups, tensor):
    assert plan_of(PlanShape(tensor, groups=groups), problem_of(transformer(2, 32).graph)) is None


def squares(work, cuts):
    return sum(sum(work[a:b]) ** 2 for a, b in pairwise([0, *cuts, len(work)]))


@pytest.mark.parametrize("count", range(1, 8))
def test_level_stages_have_the_least_sum_of_squares(count):
    random = np.random.default_rng(count)
    for _ in range(20):
        work = random.exponential(size=7).tolist()
        cuts = level_cuts(work, count)
        every = [squares(work, each) for each in combinations(range(1, 7), count - 1)]
        assert len(cuts) == count - 1 and cuts == sorted({*cuts}) and {*cuts} <= {*range(1, 7)}
        assert squares(work, cuts) == pytest.approx(min(every), rel=1e-12)


def test_level_stages_take_more_equal_times():
    """Than those of equal work (`grid`)."""
    problem, spread = problem_of(transformer(4, 32, "float32").graph), []
    variant = problem.variant(Plan(Strategy({})))
    level = plan_of(PlanShape(groups=2, schedule=("interleaved", 2)), problem)
    even = taskflow.grid(problem.graph, problem.machine, stages=(2, 2), parts=level.parts)
    for plan in (even, level):
        hosts = [min(hosts_of(plan, name)) for name in variant.space.names]
        at = [k for k, (a, b) in enumerate(pairwise(hosts), 1) if a != b]
        bounds = [0, *at, len(hosts)]
        taken = [sum(variant.family_seconds[a:b]) for a, b in pairwise(bounds)]
        spread.append(max(taken) / min(taken))
    assert 1.0 <= spread[1] < spread[0]


def test_one_thing_changes_after_the_other_until_all_near_ones_were_judged():
    problem = problem_of(transformer(2, 8, "float32").graph, HOSTS.take(4))
    first, names = plan_of(PlanShape(), problem), set()
    while (plan := next_shape(first, problem, np.random.default_rng(0))) is not None:
        problem.judge.judge(plan)
        names.add(problem.shapes[id(plan)].name)
    assert {"tensor 2, replicas", "data, sharded state", "data, sharded parameters"} <= names
    assert "data, computed again" in names and any("2 stages" in name for name in names)


def all_near(shape, problem):
    """The rules of all plans that the move makes of one."""
    shapes = list[PlanShape]()
    first = plan_of(shape, problem)
    while (plan := next_shape(first, problem, np.random.default_rng(0))) is not None:
        problem.judge.refuse(plan, "not of interest here")
        shapes.append(problem.shapes[id(plan)])
    return shapes


def test_pipelines_are_near_where_a_device_has_one_sample():
    """Of as many micro-batches as there can be, with any number of stages a group, on twice as many groups."""
    problem = problem_of(transformer(8, 8, "float32").graph)
    near = {(shape.groups, shape.parts) for shape in all_near(PlanShape(), problem)}
    assert {(2, 1)} <= near and (2, 2) not in near
    interleaved = PlanShape(groups=2, schedule=("interleaved", 2))
    near = {(shape.groups, *shape.schedule) for shape in all_near(interleaved, problem)}
    assert {(2, "interleaved", 3), (2, "interleaved", 4), (4, "interleaved", 2)} <= near


def test_with_less_tensor_parallelism_a_device_has_as_many_samples_of_a_micro_batch():
    problem = problem_of(transformer(4, 16, "float32").graph)
    shape = PlanShape(tensor=2, groups=2, parts=4)
    near = {(other.tensor, other.groups, other.parts) for other in all_near(shape, problem)}
    assert (1, 2, 2) in near and (1, 2, 4) not in near


def test_behind_a_pipeline_that_is_slower_there_is_none_of_more_groups(monkeypatch):
    """Of 2 groups 4 are judged next, and 8 only where these are not slower."""
    machine = MachineModel.preset("p100", nodes=8)
    problem = problem_of(transformer(8, 32, "float32").graph, machine)
    shape = PlanShape(groups=2, schedule=("interleaved", 2))
    outcomes = {2: 2.0, 4: 3.0}
    said = problem.judge.said
    monkeypatch.setattr(
        problem.judge,
        "said",
        lambda plan: (
            (outcome := said(plan))
            and replace(outcome, with_room=outcomes[problem.shapes[id(plan)].groups])
        ),
    )
    for groups in outcomes:
        problem.judge.judge(plan_of(shape._replace(groups=groups), problem))
    near = {other.groups for _, other in _others(shape, problem) if other.tensor == 1}
    assert {1, 4} <= near and 8 not in near
    outcomes[4] = 1.0
    assert 8 in {other.groups for _, other in _others(shape, problem) if other.tensor == 1}


def test_what_gained_most_of_late_is_tried_first():
    problem = problem_of(transformer(2, 8, "float32").graph, HOSTS.take(4))
    shape = PlanShape(2)
    every = all_near(shape, problem)
    problem = problem_of(problem.graph, problem.machine)
    first = plan_of(shape, problem)
    problem.judge.judge(first)
    for other in every:
        problem.learn(first, plan_of(other, problem), 0.0)
    again = plan_of(shape._replace(is_again=True), problem)
    problem.learn(first, again, 0.5)
    assert problem.gains["is_again", True] == 0.25
    assert next_shape(first, problem, np.random.default_rng(0)) is again
    problem.learn(again, first, 0.5)  # the other way
    assert problem.gains["is_again", True] == 0.25 and problem.gains["is_again", False] == 0.5


def test_a_cut_is_moved_and_the_numbers_stay_those_of_one_device():
    model, machine = transformer(3, 8), MachineModel.uniform(4)
    problem, generator = problem_of(model.graph, machine), np.random.default_rng(0)
    plan = plan_of(PlanShape(2, groups=2), problem)
    names, seen = problem.variant(plan).space.names, set()
    for _ in range(30):
        if moved := move_cut(plan, problem, generator):
            stage = [min(moved.strategy[name].devices) // 2 for name in names]
            assert stage == sorted(stage)
            seen.add(stage.index(1) - [min(plan.strategy[n].devices) // 2 for n in names].index(1))
            last = moved
    assert {-1, 1, 2} <= seen
    rows = last.apply(model.graph, machine, problem.costs)[1]
    assert_close(run(rows, model.feeds, 2), one_device(model, machine, 2))


@pytest.mark.slow
def test_every_schedule_gives_the_numbers_of_one_device():
    """Law 1."""
    model, machine = transformer(3, 8), MachineModel.uniform(4)
    problem, expected = problem_of(model.graph, machine), one_device(model, machine, 2)
    for schedule, tensor in product(SCHEDULES, (1, 2)):
        shape = PlanShape(tensor, groups=2, schedule=schedule)
        rows = plan_of(shape, problem).apply(model.graph, machine, problem.costs)[1]
        assert_close(run(rows, model.feeds, 2), expected)


@pytest.mark.slow
def test_a_search_finds_an_order_and_judges_pipelines_between_hosts():
    graph = transformer(2, 32, "float32").graph
    found = taskflow.search(graph, HOSTS, CostModel.analytic(HOSTS), proposals=1000)
    assert any(name.startswith("one_f_one_b") for name in found.baseline_seconds)
    assert found.seconds == seconds_of(found.plan, graph).seconds
    assert found.seconds <= min(found.baseline_seconds.values())
    few = HOSTS.take(4)
    alone = taskflow.search(graph, few, CostModel.analytic(few), proposals=500)
    as_lowered = simulate(lower(graph, alone.plan.strategy, few), CostModel.analytic(few))
    assert alone.plan.parts > 1 or alone.seconds <= as_lowered.seconds


def test_no_order_is_tried_of_what_has_more_rows_than_there_is_memory_for(monkeypatch):
    graph, machine = transformer(2, 32, "float32").graph, HOSTS.take(4)
    monkeypatch.setattr("taskflow.searching.judge.ORDERED", 1 << 40)
    found = taskflow.search(graph, machine, CostModel.analytic(machine), proposals=50)
    assert not found.plan.schedule
    assert found.seconds == seconds_of(found.plan, graph, machine).seconds


def test_a_start_whose_rows_are_too_many_is_left_out(monkeypatch):
    graph, machine = transformer(2, 8, "float32").graph, HOSTS.take(2)
    costs = CostModel.analytic(machine)
    too_large = taskflow.data_parallel(graph, machine)
    ready_of = Lowering._ready

    def ready_of_some(self, strategy):
        if dict(strategy) == dict(too_large):
            raise MemoryError("Unable to allocate 42.9 GiB")
        return ready_of(self, strategy)

    monkeypatch.setattr(Lowering, "_ready", ready_of_some)
    found = taskflow.search(graph, machine, costs, proposals=1)
    assert found.baseline_seconds["data parallel"] == math.inf and found.seconds < math.inf
    monkeypatch.setattr(Lowering, "_ready", out_of_memory)
    with pytest.raises(NoRoomError, match=r"'data parallel': out of memory here$"):
        taskflow.search(graph, machine, costs, proposals=1)


def out_of_memory(self, strategy):
    raise MemoryError


@pytest.mark.slow
@pytest.mark.parametrize("move", [change_again, change_groups, change_parts])
def test_what_a_move_makes_gives_the_numbers_of_one_device(move):
    """Law 1, of random steps from a grid and from a pipeline."""
    model, machine = transformer(2, 8), MachineModel.uniform(4)
    problem, expected = problem_of(model.graph, machine), one_device(model, machine, 2)
    generator, seen = np.random.default_rng(0), 0
    for plan in (plan_of(PlanShape(), problem), plan_of(PlanShape(2, groups=2), problem)):
        for _ in range(12):
            moved = move(plan, problem, generator)
            if moved is None or not problem.judge.judge(moved).fits:
                continue
            seen, plan = seen + 1, moved
            if seen % 3 == 1:
                rows = moved.apply(model.graph, machine, problem.costs)[1]
                assert_close(run(rows, model.feeds, 2), expected)
    assert seen > 5
