"""Proposals: what neighbours offer, and that their stated probabilities are those with which they are drawn."""

import math
from collections import Counter

import numpy as np
import pytest

from taskflow import Graph, MachineModel, ParallelConfig, single_device
from taskflow.search.proposal import Proposals, bring
from taskflow.search.space import Space
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
    assert bring(ParallelConfig({"o": 2}, (2, 3)), axes, second) == ParallelConfig({"i": 2}, (2, 3))
    both = ParallelConfig({"o": 2, "b": 2}, (0, 1, 2, 3))
    assert bring(both, axes, second) == ParallelConfig({"b": 2, "i": 2}, (0, 2, 1, 3))


def test_of_an_axis_that_is_unknown_there_the_first_part_stays():
    second = two_layers().operator("fc2")
    config = ParallelConfig({"b": 2, "i": 2}, (0, 1, 2, 3))
    assert bring(config, {"b": "b"}, second) == ParallelConfig({"b": 2}, (0, 2))


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
    sources = {name: {route.source for route in routes} for name, routes in proposals.routes.items()}
    assert sources == {"bias0": {"bias1"}, "bias1": {"bias0", "bias2"}, "bias2": {"bias1"}}


def test_an_operator_alone_draws_from_its_space():
    graph = Graph()
    tiny.linear(graph.input("x", (8, 6)), 4)
    proposals, strategy = proposals_for(graph, {})
    generator = np.random.default_rng(0)
    assert {proposals.propose("fc", strategy, generator)[1] for _ in range(50)} == {0.0}


@pytest.mark.parametrize("held", [ParallelConfig({"b": 2}, (0, 1)), ParallelConfig({}, (1,))])
def test_the_correction_is_that_of_the_drawn_frequencies(held):
    """q(new) / q(old) from the formula against counted draws."""
    proposals, strategy = proposals_for(two_layers(), {"fc1": held}, MachineModel.uniform(2))
    generator, draws = np.random.default_rng(1), 40_000
    seen, correction = Counter(), {}
    for _ in range(draws):
        config, log_ratio = proposals.propose("fc2", strategy, generator)
        seen[config] += 1
        correction[config] = log_ratio
    old = strategy["fc2"]
    assert correction[old] == 0.0 and len(seen) == proposals.space.size("fc2")
    for config, count in seen.items():
        expected = seen[old] * math.exp(-correction[config])
        assert abs(count - expected) < 6 * (math.sqrt(count) + math.sqrt(expected))
