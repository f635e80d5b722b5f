"""Walks: what is accepted, exactness of early rejection, and rounds of neighbours and of windows."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, Graph, MachineModel, Plan, search, single_device
from taskflow.searching.fold import fold
from taskflow.searching.moves import MOVES
from taskflow.searching.moves.drawn import change_operator
from taskflow.searching.moves.neighbour import count_neighbours, next_neighbour
from taskflow.searching.moves.window import next_window
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.problem import SearchProblem
from taskflow.searching.space import Space
from taskflow.searching.walk import Walk
from taskflow.strategy.strategy import completed
from tests import tiny
from tests.searching.test_grids import SLOW, transformer
from tests.strategies import examples, graphs


def problem_of(graph, machine):
    return SearchProblem(graph, machine, CostModel.analytic(machine))


def two_layers():
    graph = Graph()
    tiny.tanh(tiny.linear(graph.input("x", (2, 2), "float64"), 2))
    return graph


def test_what_is_slower_is_accepted_with_the_probability_of_its_loss():
    problem = problem_of(two_layers(), MachineModel.uniform(2))
    walk = Walk(problem, Plan(single_device(problem.graph, problem.machine)))
    generator, draws = np.random.default_rng(0), 20_000
    for loss in (0.0, 0.5, 2.0):
        seconds = walk.seconds + loss / walk.beta
        accepted = sum(seconds <= walk.limit(generator.random()) for _ in range(draws))
        assert abs(accepted / draws - math.exp(-loss)) < 0.02
    assert walk.limit(-1.0) < walk.seconds


class Unlimited(PackedJudge):
    """Gives nothing up early."""

    def propose_all(self, changes, limit=math.inf):
        return super().propose_all(changes)


@examples(100)
@given(graphs(steps=2), st.integers(0, 2**32 - 1))
def test_early_rejection_changes_nothing(model, seed):
    """The same strategies, step by step, as a walk whose judge knows no limit."""
    machine, walks = MachineModel.uniform(3), []
    for judge in (PackedJudge, Unlimited):
        problem = problem_of(model.graph, machine)
        plan = Plan(single_device(model.graph, machine))
        problem.variant(plan).changes = judge(model.graph, machine, problem.costs)
        walks.append((Walk(problem, plan), problem, np.random.default_rng(seed)))
    for _ in range(12):
        for walk, problem, generator in walks:
            if plan := change_operator(walk.plan, problem, generator):
                walk.propose(plan, walk.limit(generator.random()))
        (one, *_), (other, *_) = walks
        assert one.seconds == other.seconds and one.least == other.least
        assert dict(one.plan.strategy) == dict(other.plan.strategy)


def test_a_round_of_neighbours_is_all_changes_of_one_operator():
    problem = problem_of(two_layers(), MachineModel.uniform(2))
    plan = Plan(single_device(problem.graph, problem.machine))
    variant, seen = problem.variant(plan), Counter()
    plan = replace(plan, strategy=variant.space.include(plan.strategy))
    for _ in range(count_neighbours(variant) - len(plan.strategy)):
        changed = next_neighbour(plan, problem, np.random.default_rng(0))
        (change,) = (
            item for item in changed.strategy.items() if item[1] is not plan.strategy[item[0]]
        )
        seen[change] += 1
    assert set(seen.values()) == {1}


def test_windows_change_layers_alike_and_a_walk_along_them_never_gets_slower():
    model = transformer(layers=4, batch=8)
    machine = MachineModel.uniform(4, SLOW, 1e9)
    problem = problem_of(model.graph, machine)
    walk = Walk(problem, Plan(single_device(model.graph, machine)))
    before = seconds = walk.seconds
    for _ in range(300):
        plan = next_window(walk.plan, problem, np.random.default_rng(0))
        walk.propose(plan, walk.limit(-1.0))
        assert walk.seconds <= seconds
        seconds = walk.seconds
    assert seconds < before and walk.least == walk.seconds
    for members in fold(model.graph)[0]:
        assert len({walk.plan.strategy[name] for name in members}) == 1
    other = PackedJudge(model.graph, machine, problem.costs)
    assert other.propose_all(completed(model.graph, walk.plan.strategy)) == seconds


# -- a move of the user ------------------------------------------------------------------------------------------------


def kept(plan, problem, generator):
    """Gathers once, what homes hold: ten lines would do for more."""
    return replace(plan, gathers_again=False) if plan.gathers_again else None


@pytest.mark.parametrize("moves", [(kept,), (*MOVES, kept)])
def test_a_plan_that_a_move_of_the_user_makes_is_judged(moves):
    graph, machine = two_layers(), MachineModel.uniform(2, SLOW)
    found = search(graph, machine, CostModel.analytic(machine), proposals=2000, moves=moves)
    assert any(not plan.gathers_again for plan in found.plans.values())


def test_a_change_that_a_move_of_the_user_makes_is_a_step_of_a_walk():
    """Two operators on two devices, which no rule does: that they overlap is faster."""
    graph = Graph()
    x = graph.input("x", (2, 4096), "float64")
    names = ["left", "right"]
    for name in names:
        tiny.tanh(x, name=name)
    machine = MachineModel.uniform(2, SLOW, bandwidth=1e15)

    def apart(plan, problem, generator):
        name = names[int(generator.random() * 2)]
        config = taskflow.ParallelConfig({}, [names.index(name)])
        return problem.changed(plan, {name: config})

    starts = {"mine": single_device(graph, machine)}
    space = Space(graph, machine, device_lists=[(0,), (1,)])
    costs = CostModel.analytic(machine)
    found = search(graph, machine, costs, 100, starts=starts, moves=[apart], space=space)
    assert [found.strategy[name].devices for name in names] == [(0,), (1,)]
    assert found.seconds < found.baseline_seconds["mine"]
