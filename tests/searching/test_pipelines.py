"""Orders of rows and pipelines of experts in a search: what is found is what its plan gives, and no start is faster."""

import math

import pytest

import taskflow
from taskflow import CostModel, MachineModel, lower, simulate
from taskflow.lowering import Lowering
from taskflow.searching.pipelines import SCHEDULES, PipelineOptions, PipelineShape, climb, pipelines
from taskflow.searching.variants import Variant
from tests.searching.test_grids import transformer

HOSTS = MachineModel.preset("p100", nodes=2)


def first_of(graph, machine=HOSTS):
    return Variant(graph, machine, CostModel.analytic(machine), taskflow.Plan(taskflow.Strategy({})), None)


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
    tight = HOSTS.with_rates(memory_bytes=12_000)  # with room enough they take from 12,288 to 24,768 bytes
    found = [each for each in pipelines(first_of(graph, tight), [1], [2]) if each]
    too_large = [each.name for each in found if not math.isfinite(each.seconds) and not each.plan.recomputed]
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
        return {(4, 8): 6.0, (8, 8): 7.0, (8, 4): 5.0}[shape.tensor, shape.groups] if has_room else math.inf

    options = PipelineOptions(tensors, [2], SCHEDULES[:1], [8, 4, 2])
    best = climb(PipelineShape(4, 2, SCHEDULES[0], 8, ()), options, seconds, math.inf, lambda: False)
    assert (best.tensor, best.groups) == found


def test_a_search_finds_an_order_and_judges_pipelines_between_hosts():
    graph = transformer(2, 32, "float32").graph
    found = taskflow.search(graph, HOSTS, CostModel.analytic(HOSTS), proposals=20, seconds=120.0)
    assert any(name.startswith("one_f_one_b") for name in found.baseline_seconds)
    assert found.seconds == seconds_of(found.plan, graph).seconds <= min(found.baseline_seconds.values())
    alone = taskflow.search(graph, HOSTS.take(4), CostModel.analytic(HOSTS.take(4)), proposals=50)
    assert not any(name.startswith("one_f_one_b") for name in alone.baseline_seconds)
    as_lowered = simulate(lower(graph, alone.plan.strategy, HOSTS.take(4)), CostModel.analytic(HOSTS.take(4)))
    assert alone.plan.schedule and alone.seconds < as_lowered.seconds


def test_no_order_is_tried_of_what_has_more_rows_than_there_is_memory_for(monkeypatch):
    graph, machine = transformer(2, 32, "float32").graph, HOSTS.take(4)
    monkeypatch.setattr("taskflow.searching.predictions.ORDERED_ROWS", 0)
    found = taskflow.search(graph, machine, CostModel.analytic(machine), proposals=50)
    assert not found.plan.schedule and found.seconds == seconds_of(found.plan, graph, machine).seconds


def test_where_nothing_else_fits_a_pipeline_of_experts_is_the_answer(monkeypatch):
    graph = transformer(2, 32, "float32").graph
    machine = HOSTS.with_rates(memory_bytes=12_000)
    monkeypatch.setattr("taskflow.searching.searching.judged_starts", lambda *args, **options: [])
    monkeypatch.setattr("taskflow.searching.searching.random_start", lambda *args: False)
    monkeypatch.setattr("taskflow.searching.searching.search_stages", refused)
    found = taskflow.search(graph, machine, CostModel.analytic(machine), proposals=20, seconds=40.0)
    assert found.plan.schedule == "one_f_one_b" and found.seconds == seconds_of(found.plan, graph, machine).seconds


def refused(*args, **options):
    raise ValueError("no plan that fits into memory was found")


def test_a_start_whose_rows_are_too_many_is_left_out(monkeypatch):
    graph, machine = transformer(2, 8, "float32").graph, HOSTS.take(2)
    costs = CostModel.analytic(machine)
    too_large = taskflow.search(graph, machine, costs, proposals=1).strategy
    lower_all = Lowering.lower

    def lower_some(self, strategy):
        if dict(strategy) == dict(too_large):
            raise MemoryError("Unable to allocate 42.9 GiB")
        return lower_all(self, strategy)

    monkeypatch.setattr(Lowering, "lower", lower_some)
    assert dict(taskflow.search(graph, machine, costs, proposals=1).strategy) != dict(too_large)
    monkeypatch.setattr(Lowering, "lower", out_of_memory)
    with pytest.raises(
        MemoryError, match=r"^search: of no start that fits the devices is there memory here for all rows$"
    ):
        taskflow.search(graph, machine, costs, proposals=1)


def out_of_memory(self, strategy):
    raise MemoryError
