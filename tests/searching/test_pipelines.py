"""Orders of rows and pipelines of experts in a search: what is found is what its plan gives, and no start is faster."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest

import taskflow
from taskflow import CostModel, MachineModel, lower, simulate
from taskflow.core.errors import NoRoomError
from taskflow.lowering import Lowering
from taskflow.searching.budget import Budget
from taskflow.searching.pipelines import (
    SCHEDULES,
    PipelineOptions,
    Pipelines,
    PipelineShape,
    climb,
    judge_shape,
    move_cuts,
    pipelines,
)
from taskflow.searching.variants import Variant
from taskflow.strategy.stages import level_cuts
from tests.laws import assert_close, one_device, run
from tests.searching.test_grids import transformer

HOSTS = MachineModel.preset("p100", nodes=2)


def first_of(graph, machine=HOSTS):
    return Variant(
        graph, machine, CostModel.analytic(machine), taskflow.Plan(taskflow.Strategy({})), None
    )


def seconds_of(plan, graph, machine=HOSTS):
    costs = CostModel.analytic(machine)
    return simulate(plan.apply(graph, machine, costs)[1], costs)


def test_pipelines_have_a_stage_for_each_group_and_are_what_simulate_says():
    graph = transformer(2, 32, "float32").graph
    found = [each for each in pipelines(first_of(graph), [2, 1], [2]) if each]
    assert {(each.plan.schedule, each.plan.parts) for each in found} == {
        (schedule, parts) for schedule in ("one_f_one_b", "interleaved") for parts in (2, 4, 8)
    }
    for each in found:
        hosts = [{d // 4 for d in each.plan.strategy[name].devices} for name in ("words", "head")]
        assert hosts == ([{0}, {1}])
        assert each.seconds == seconds_of(each.plan, graph).seconds


def test_what_does_not_fit_is_judged_again_with_layers_computed_again():
    graph = transformer(2, 32, "float32").graph
    tight = HOSTS.with_rates(
        memory_bytes=12_000
    )  # with room enough they take from 12,288 to 24,768 bytes
    found = [each for each in pipelines(first_of(graph, tight), [1], [2]) if each]
    too_large = [
        each.name for each in found if not math.isfinite(each.seconds) and not each.plan.recomputed
    ]
    assert too_large
    again = {each.name for each in found if each.plan.recomputed}
    assert again <= {f"{name}, computed again" for name in too_large}
    assert {name for name in again if "one_f_one_b" in name} == {
        f"{name}, computed again" for name in too_large if "one_f_one_b" in name
    }


@pytest.mark.parametrize("count, tensor", [(1, 1), (3, 1), (2, 8), (8, 2)])
def test_unequal_groups_are_left_out(count, tensor):
    assert not list(pipelines(first_of(transformer(2, 32).graph), [tensor], [count]))


@pytest.mark.parametrize("tensors, found", [([4, 8], (8, 4)), ([4], (4, 8))])
def test_fewer_groups_are_tried_with_more_tensor_parallelism_where_there_is_no_room(tensors, found):
    def seconds(shape):
        has_room = shape.tensor * shape.groups >= 32
        return (
            {(4, 8): 6.0, (8, 8): 7.0, (8, 4): 5.0}[shape.tensor, shape.groups]
            if has_room
            else math.inf
        )

    options = PipelineOptions([8, 4, 2], tensors, SCHEDULES[:1], [2], [False])
    best = climb(
        PipelineShape(4, 2, SCHEDULES[0], 8, ()), options, seconds, math.inf, lambda: False
    )
    assert (best.tensor, best.groups) == found


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
    first = first_of(transformer(4, 32, "float32").graph)
    spread = []
    for is_level in (False, True):
        cuts = judged(first, 2, ("interleaved", 2), is_level=is_level)
        families = list(first.proposals.space.names)
        at = [0, *sorted(families.index(name) for name in cuts), len(families)]
        taken = [sum(first.family_seconds[a:b]) for a, b in pairwise(at)]
        spread.append(max(taken) / min(taken))
    assert 1.0 <= spread[1] < spread[0]


def judged(first, groups, schedule, **fields):
    """The operators that begin stages of a pipeline."""
    found = judge_shape(first, PipelineShape(1, 1, schedule, groups, (), **fields))
    assert found.seconds == seconds_of(found.plan, first.graph).seconds
    placed = [
        (name, found.plan.strategy[name].devices[0] // 4) for name in first.proposals.space.names
    ]
    return [name for (_, before), (name, host) in pairwise(placed) if host != before]


def test_in_a_v_the_last_group_has_the_stage_at_its_turn_and_the_first_group_both_ends():
    first = first_of(transformer(4, 32, "float32").graph)
    assert (
        len(judged(first, 2, ("zb_v", 2)))
        == PipelineShape(1, 1, ("zb_v", 2), 2, ()).stages - 1
        == 2
    )
    found = judge_shape(first, PipelineShape(1, 1, ("zb_v", 2), 2, ()))
    assert {found.plan.strategy[name].devices[0] // 4 for name in ("words", "head")} == {0}


def test_a_cut_moves_where_it_is_told_and_not_past_the_ends():
    first = first_of(transformer(4, 32, "float32").graph)
    names = list(first.proposals.space.names)
    (cut,) = judged(first, 2, ("one_f_one_b", 1))
    for by in (-2, 1):
        assert judged(first, 2, ("one_f_one_b", 1), moved=(by,)) == [names[names.index(cut) + by]]
    for by in (-names.index(cut), len(names) - names.index(cut)):
        assert (
            judge_shape(first, PipelineShape(1, 1, ("one_f_one_b", 1), 2, (), moved=(by,))) is None
        )


def test_cuts_are_moved_to_the_least_seconds_while_there_is_time():
    wanted, asked = (3, -5, 1), []

    def seconds(shape):
        asked.append(shape)
        return 1.0 + sum(abs(a - b) for a, b in zip(shape.moved or (0, 0, 0), wanted, strict=True))

    shape = PipelineShape(1, 1, SCHEDULES[0], 4, ())
    assert move_cuts(shape, seconds, lambda: False).moved == wanted
    asked.clear()
    assert (
        seconds(move_cuts(shape, seconds, lambda: len(asked) > 8)) < seconds(shape)
        and len(asked) < 14
    )


@pytest.mark.slow
def test_pipelines_of_one_host_have_groups_of_its_devices():
    machine = HOSTS.take(4)
    first = first_of(transformer(4, 32, "float32").graph, machine)
    pipes = Pipelines(first, [], Budget(None, 60.0))
    pipes.search(0.5)
    found = pipes.found
    assert pipes.is_leading and pipes.seconds == min(each.seconds for each in found)
    sizes = {len(set(each.plan.strategy["head"].devices)) for each in found}
    assert {1, 2} <= sizes and {each.plan.schedule for each in found} >= {
        "zb_v",
        "zb_h1",
        "interleaved",
    }


@pytest.mark.slow
def test_every_pipeline_that_is_tried_gives_the_numbers_of_one_device():
    """Law 1: of each schedule, level or not, the first ones, and the first ones with moved cuts."""
    model, machine = transformer(3, 8), MachineModel.uniform(4)
    pipes = Pipelines(first_of(model.graph, machine), [], Budget(None, 600.0))
    pipes.search(0.2)
    chosen = {
        (shape.schedule, shape.is_level, any(shape.moved)): found
        for shape, found in pipes._known.items()
        if found
    }
    assert {name for (name, _), *_ in chosen} == {
        "one_f_one_b",
        "zb_v",
        "interleaved",
        "zb_h1",
    } and len(chosen) > 8
    expected = one_device(model, machine, 2)
    for found in chosen.values():
        rows = found.plan.apply(model.graph, machine, CostModel.analytic(machine))[1]
        assert_close(run(rows, model.feeds, 2), expected)


@pytest.mark.slow
def test_a_search_finds_an_order_and_judges_pipelines_between_hosts():
    graph = transformer(2, 32, "float32").graph
    found = taskflow.search(graph, HOSTS, CostModel.analytic(HOSTS), proposals=20, seconds=120.0)
    assert any(name.startswith("one_f_one_b") for name in found.baseline_seconds)
    assert (
        found.seconds
        == seconds_of(found.plan, graph).seconds
        <= min(found.baseline_seconds.values())
    )
    alone = taskflow.search(graph, HOSTS.take(4), CostModel.analytic(HOSTS.take(4)), proposals=50)
    assert not any(name.startswith("one_f_one_b") for name in alone.baseline_seconds)
    as_lowered = simulate(
        lower(graph, alone.plan.strategy, HOSTS.take(4)), CostModel.analytic(HOSTS.take(4))
    )
    assert alone.plan.schedule and alone.seconds < as_lowered.seconds


def test_no_order_is_tried_of_what_has_more_rows_than_there_is_memory_for(monkeypatch):
    graph, machine = transformer(2, 32, "float32").graph, HOSTS.take(4)
    monkeypatch.setattr("taskflow.searching.judge.ORDERED", 1 << 40)
    found = taskflow.search(graph, machine, CostModel.analytic(machine), proposals=50)
    assert (
        not found.plan.schedule and found.seconds == seconds_of(found.plan, graph, machine).seconds
    )


@pytest.mark.slow
def test_where_nothing_else_fits_a_pipeline_of_experts_is_the_answer(monkeypatch):
    graph = transformer(2, 32, "float32").graph
    machine = HOSTS.with_rates(memory_bytes=12_000)
    monkeypatch.setattr("taskflow.searching.searching.judged_starts", lambda *args, **options: [])
    monkeypatch.setattr("taskflow.searching.searching.random_start", lambda *args: False)
    monkeypatch.setattr("taskflow.searching.searching.search_stages", refused)
    found = taskflow.search(graph, machine, CostModel.analytic(machine), proposals=20, seconds=40.0)
    assert found.plan.parts > 1 and found.seconds == seconds_of(found.plan, graph, machine).seconds


def refused(*args, **options):
    raise ValueError("no plan that fits into memory was found")


def test_a_start_whose_rows_are_too_many_is_left_out(monkeypatch):
    graph, machine = transformer(2, 8, "float32").graph, HOSTS.take(2)
    costs = CostModel.analytic(machine)
    too_large = taskflow.search(graph, machine, costs, proposals=1).strategy
    ready_of = Lowering._ready

    def ready_of_some(self, strategy):
        if dict(strategy) == dict(too_large):
            raise MemoryError("Unable to allocate 42.9 GiB")
        return ready_of(self, strategy)

    monkeypatch.setattr(Lowering, "_ready", ready_of_some)
    assert dict(taskflow.search(graph, machine, costs, proposals=1).strategy) != dict(too_large)
    monkeypatch.setattr(Lowering, "_ready", out_of_memory)
    with pytest.raises(NoRoomError, match=r"'single device': out of memory here$"):
        taskflow.search(graph, machine, costs, proposals=1)


def out_of_memory(self, strategy):
    raise MemoryError
