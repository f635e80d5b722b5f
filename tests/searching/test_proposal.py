"""Proposals: what neighbours offer, and that their stated probabilities are those with which they are drawn."""

import math
from collections import Counter

import numpy as np
import pytest

from taskflow import Graph, MachineModel, ParallelConfig, single_device
from taskflow.searching.proposal import Proposals, bring
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
    sources = {
        name: {route.source for route in routes} for name, routes in proposals.routes.items()
    }
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


def chain_of(proposals, strategy, new, length):
    """What `propose_along` gives for the first operator, a configuration and a length of the chain."""

    class Drawn:
        def __init__(self):
            names, space = proposals.space.names, proposals.space
            number = next(
                k for k in range(space.size(names[0])) if str(space.config(names[0], k)) == new
            )
            share = math.log(length + 0.5) / math.log(len(names) + 1)
            self.left = [0.0, share, (number + 0.5) / space.size(names[0])]

        def random(self):
            return self.left.pop(0)

    return {name: str(c) for name, c in proposals.propose_along(strategy, Drawn()).items()}


def three_layers():
    graph = Graph()
    x = graph.input("x", (8, 6))
    for k in range(3):
        x = tiny.linear(x, 4, name=f"fc{k}")
    return graph


HALVES = {f"fc{k}": ParallelConfig({"b": 2}, (0, 1)) for k in range(3)}


def test_a_chain_moves_with_its_first_operator():
    proposals, strategy = proposals_for(three_layers(), HALVES)
    moved = dict.fromkeys(HALVES, "b:2 on 2,3")
    assert chain_of(proposals, strategy, "b:2 on 2,3", 3) == moved
    assert chain_of(proposals, strategy, "b:2 on 2,3", 2) == {
        name: moved[name] for name in ("fc0", "fc1")
    }
    assert chain_of(proposals, strategy, "b:2 on 2,3", 1) == {"fc0": "b:2 on 2,3"}


def test_a_chain_ends_where_an_operator_has_another_configuration():
    proposals, strategy = proposals_for(three_layers(), {**HALVES, "fc1": ParallelConfig({"b": 4})})
    assert chain_of(proposals, strategy, "b:2 on 2,3", 3) == {"fc0": "b:2 on 2,3"}


def test_a_chain_that_could_not_be_taken_back_is_not_proposed():
    """With the new configuration of the first, the others would belong to its chain."""
    proposals, strategy = proposals_for(three_layers(), {**HALVES, "fc0": ParallelConfig({}, (2,))})
    assert chain_of(proposals, strategy, "b:2 on 0,1", 3) == {}
    assert chain_of(proposals, strategy, "b:2 on 0,1", 1) == {"fc0": "b:2 on 0,1"}


def test_a_chain_and_its_way_back_are_as_likely():
    proposals, strategy = proposals_for(three_layers(), HALVES, MachineModel.uniform(2))
    generator, draws = np.random.default_rng(3), 30_000

    def count(start):
        drawn = (proposals.propose_along(start, generator) for _ in range(draws))
        return Counter(
            tuple(sorted(changes.items(), key=lambda item: item[0])) for changes in drawn
        )

    there = count(strategy)
    assert {len(changes) for changes in there} == {0, 1, 2, 3}
    for changes, seen in there.most_common(6):
        back = tuple((name, strategy[name]) for name, _ in changes)
        again = count({**strategy, **dict(changes)})[back]
        assert not changes or abs(seen - again) < 6 * (math.sqrt(seen) + math.sqrt(again))
