"""Moves of single operators, kin and chains: what neighbours offer, and what is drawn of it."""

import math
from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np

from taskflow import CostModel, Graph, MachineModel, ParallelConfig, Plan, single_device
from taskflow.searching.moves.drawn import change_chain, change_kin, change_operator
from taskflow.searching.problem import SearchProblem
from taskflow.searching.proposal import Proposals, renamed
from taskflow.searching.space import Space
from tests import tiny

FOUR = MachineModel.uniform(4)


def two_layers():
    graph = Graph()
    tiny.linear(tiny.linear(graph.input("x", (8, 6)), 4, name="fc1"), 4, name="fc2")
    return graph


def test_a_configuration_follows_the_dimensions_of_the_region_between():
    graph = two_layers()
    second = graph.operator("fc2")
    axes = {"b": "b", "o": "i"}
    assert renamed(ParallelConfig({"o": 2}, (2, 3)), axes, second) == ParallelConfig(
        {"i": 2}, (2, 3)
    )
    both = ParallelConfig({"o": 2, "b": 2}, (0, 1, 2, 3))
    assert renamed(both, axes, second) == ParallelConfig({"b": 2, "i": 2}, (0, 2, 1, 3))


def test_of_an_axis_that_is_unknown_there_the_first_part_stays():
    second = two_layers().operator("fc2")
    config = ParallelConfig({"b": 2, "i": 2}, (0, 1, 2, 3))
    assert renamed(config, {"b": "b"}, second) == ParallelConfig({"b": 2}, (0, 2))


def proposals_for(graph, changes, machine=FOUR):
    space = Space(graph, machine)
    strategy = single_device(graph, machine)
    strategy.update(changes)
    return Proposals(space), space.include(strategy)


def test_neighbours_offer_by_dimension_and_by_name():
    proposals, strategy = proposals_for(two_layers(), {"fc1": ParallelConfig({"o": 2}, (2, 3))})
    offered = [str(c) for c in proposals.near("fc2", strategy)]
    assert offered == ["i:2 on 2,3", "o:2 on 2,3"]
    assert [str(c) for c in proposals.near("fc1", strategy)] == ["whole on 0", "whole on 0"]


def test_what_is_not_in_the_space_is_not_offered():
    graph = Graph()
    tiny.centre(tiny.linear(graph.input("x", (8, 6)), 4))
    proposals, strategy = proposals_for(graph, {"fc": ParallelConfig({"o": 2})})
    assert proposals.near("centre", strategy) == []


def test_readers_of_one_parameter_are_neighbours():
    graph = Graph()
    row = tiny.parameter(graph, "row", (6,))
    for k in range(3):
        tiny.add_row(graph.input(f"x{k}", (8, 6), "float64"), row, f"bias{k}")
    proposals = Proposals(Space(graph, FOUR))
    sources = {
        name: {route.source for route in routes} for name, routes in proposals.routes.items()
    }
    assert sources == {"bias0": {"bias1"}, "bias1": {"bias0", "bias2"}, "bias2": {"bias1"}}


def problem_of(graph, changes, machine=FOUR):
    problem = SearchProblem(graph, machine, CostModel.analytic(machine))
    strategy = single_device(graph, machine)
    strategy.update(changes)
    plan = Plan(strategy)
    return problem, replace(plan, strategy=problem.variant(plan).space.include(strategy))


def test_an_operator_draws_from_neighbours_every_second_time_else_from_its_space():
    held = ParallelConfig({"b": 2}, (0, 1))
    problem, plan = problem_of(two_layers(), {"fc1": held}, MachineModel.uniform(2))
    generator, draws = np.random.default_rng(1), 4000
    drawn = Counter()
    for _ in range(draws):
        changed = change_operator(plan, problem, generator)
        drawn[str(changed.strategy["fc2"]) if changed else "none"] += 1
    space = problem.variant(plan).space
    others = (1 - drawn["b:2 on 0,1"] / draws) / (space.size("fc2") - 1)
    assert len(drawn) >= space.size("fc2") - 1
    assert 3 * others < drawn["b:2 on 0,1"] / draws < 0.5


def chain_of(problem, plan, new, length):
    """What `change_chain` makes of the first operator, a configuration and a length of the chain."""
    space = problem.variant(plan).space
    names, size = space.names, space.size(space.names[0])
    number = next(k for k in range(size) if str(space.config(names[0], k)) == new)
    share = math.log(length + 0.5) / math.log(len(names) + 1)

    class Drawn:
        left: ClassVar = [0.0, share, (number + 0.5) / size]

        def random(self):
            return self.left.pop(0)

    changed = change_chain(plan, problem, Drawn())
    now = changed.strategy if changed else plan.strategy
    return {name: str(c) for name, c in now.items() if c is not plan.strategy[name]}


def three_layers():
    graph = Graph()
    x = graph.input("x", (8, 6))
    for k in range(3):
        x = tiny.linear(x, 4, name=f"fc{k}")
    return graph


HALVES = {f"fc{k}": ParallelConfig({"b": 2}, (0, 1)) for k in range(3)}


def test_a_chain_moves_with_its_first_operator():
    problem, plan = problem_of(three_layers(), HALVES)
    moved = dict.fromkeys(HALVES, "b:2 on 2,3")
    assert chain_of(problem, plan, "b:2 on 2,3", 3) == moved
    two = {name: moved[name] for name in ("fc0", "fc1")}
    assert chain_of(problem, plan, "b:2 on 2,3", 2) == two
    assert chain_of(problem, plan, "b:2 on 2,3", 1) == {"fc0": "b:2 on 2,3"}


def test_a_chain_ends_where_an_operator_has_another_configuration():
    problem, plan = problem_of(three_layers(), {**HALVES, "fc1": ParallelConfig({"b": 4})})
    assert chain_of(problem, plan, "b:2 on 2,3", 3) == {"fc0": "b:2 on 2,3"}


def test_kin_that_are_alike_change_together():
    graph = Graph()
    tiny.tanh(tiny.tanh(graph.input("x", (2, 2), "float64")))
    problem, plan = problem_of(graph, {}, MachineModel.uniform(2))
    generator = np.random.default_rng(0)
    for _ in range(50):
        if changed := change_kin(plan, problem, generator):
            one, other = changed.strategy.values()
            assert one is other and one is not plan.strategy["tanh"]
