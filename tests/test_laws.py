"""Laws 1 to 3 of design.md on random graphs, random strategies and random orders.

HYPOTHESIS_PROFILE=thorough draws 200 times as many examples.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Graph, MachineModel, PlanError, data_parallel, lower
from tests import laws, tiny
from tests.checking.mutations import dependence_missing
from tests.ops.strategies import operator_graphs
from tests.strategies import examples, graphs, plans_in_time, strategies, whole_plans

GRAPHS = {"tiny": graphs(), "operators": operator_graphs()}


@pytest.mark.slow
@pytest.mark.parametrize("models", GRAPHS)
@examples(240)
@given(data=st.data())
def test_any_strategy_gives_the_numbers_of_one_device(models, data):
    model = data.draw(GRAPHS[models])
    laws.any_strategy_is_one_device(model, *data.draw(strategies(model.graph)))


@pytest.mark.slow
@pytest.mark.parametrize("models", GRAPHS)
@examples(120)
@given(data=st.data())
def test_checked_memory_finds_nothing(models, data):
    model = data.draw(GRAPHS[models])
    laws.any_strategy_is_one_device(model, *data.draw(strategies(model.graph)), steps=2, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("models", GRAPHS)
@examples(72)
@given(data=st.data(), seed=st.integers(0, 99))
def test_any_order_gives_the_same_numbers(models, data, seed):
    model = data.draw(GRAPHS[models])
    laws.any_order_is_the_same(model, *data.draw(strategies(model.graph)), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("models", GRAPHS)
@examples(120)
@given(data=st.data(), seed=st.integers(0, 99))
def test_any_plan_in_time_gives_the_numbers_of_one_device(models, data, seed):
    """Micro-batches, stages, recomputation, schedules."""
    model = data.draw(GRAPHS[models])
    expected = laws.one_device(model, MachineModel.uniform(1), 2)
    laws.any_plan_in_time_is_one_device(*data.draw(plans_in_time(model)), expected, seed)


@pytest.mark.slow
@pytest.mark.parametrize("models", GRAPHS)
@examples(120)
@given(data=st.data())
def test_any_plan_gives_the_numbers_of_one_device(models, data, tmp_path_factory):
    """Strategy, micro-batches, order, recomputation, homes and collectives, through a file."""
    model = data.draw(GRAPHS[models])
    expected = laws.one_device(model, MachineModel.uniform(1), 2)
    path = tmp_path_factory.getbasetemp() / "plan.json"
    laws.any_plan_is_one_device(model, *data.draw(whole_plans(model.graph)), expected, path)


@pytest.mark.slow
@pytest.mark.parametrize("models", GRAPHS)
@examples(72)
@given(data=st.data())
def test_runs_are_the_same_to_the_bit(models, data):
    model = data.draw(GRAPHS[models])
    laws.runs_are_the_same(model, *data.draw(strategies(model.graph)))


@pytest.mark.slow
@pytest.mark.parametrize("models", GRAPHS)
@examples(24)
@given(data=st.data(), seed=st.integers(0, 99), piece_bytes=st.sampled_from((None, 16, 100)))
def test_repeated_steps_are_single_ones(models, data, seed, piece_bytes):
    model = data.draw(GRAPHS[models])
    lowering = {
        "piece_bytes": piece_bytes,
        "collectives": {"all-reduce": "fastest"} if piece_bytes else {},
    }
    laws.repeated_steps_are_single_ones(
        model, *data.draw(strategies(model.graph)), seed=seed, lowering=lowering
    )


@pytest.mark.slow
@pytest.mark.parametrize("models", GRAPHS)
@examples(72)
@given(data=st.data(), seed=st.integers(0, 99))
def test_shared_regions_are_one(models, data, seed):
    model = data.draw(GRAPHS[models])
    laws.shared_regions_are_one(model, *data.draw(strategies(model.graph)), random=seed)


def test_a_law_proves_its_plans_first():
    """Whatever the numbers of a wrong plan are by chance."""
    graph = Graph()
    y = tiny.linear(graph.input("x", (4, 4)), 4)
    graph.output("y", tiny.mean_square(y))
    machine = MachineModel.uniform(2)
    right = lower(graph, data_parallel(graph, machine), machine)
    feeds = {"x": np.ones((4, 4), np.float32)}
    laws.run(right, feeds)
    with pytest.raises(PlanError, match="nothing makes it wait"):
        laws.run(dependence_missing(right, np.random.default_rng(0)), feeds)
