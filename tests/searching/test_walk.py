"""Walks: the distribution of a chain, exactness of early rejection, and descents that end at a local optimum."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import CostModel, Graph, MachineModel, single_device
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.proposal import Proposals
from taskflow.searching.space import Space
from taskflow.searching.walk import LocalDescent, Walk
from tests import tiny
from tests.strategies import examples, graphs

TWO = MachineModel.uniform(2)


class Toy:
    """A judge whose seconds are looked up; beyond the limit it says what it likes."""

    def __init__(self, space, seed=0, lies=None):
        generator = np.random.default_rng(seed)
        self.table = {
            chosen: float(s)
            for chosen, s in zip(
                product(*(space.configs(n) for n in space.names)),
                generator.random(100_000),
                strict=False,
            )
        }
        self.names, self.lies, self.asked = space.names, lies, []

    def start(self, strategy):
        self.now = dict(strategy)
        return self.seconds_of(self.now)

    def seconds_of(self, strategy):
        return self.table[tuple(strategy[n] for n in self.names)]

    def propose(self, name, config, limit=math.inf):
        return self.propose_all({name: config}, limit)

    def propose_all(self, changes, limit=math.inf):
        self.new = {**self.now, **changes}
        seconds = self.seconds_of(self.new)
        self.asked.append((tuple(changes.items()), seconds <= limit))
        return self.lies if self.lies is not None and seconds > limit else seconds

    def accept(self):
        self.now = self.new

    def seconds(self, strategy, limit=math.inf):
        return self.seconds_of(strategy)


def two_operators():
    """(b, i) -> (b, o) -> (b, c): small sets of configurations, with copies between them."""
    graph = Graph()
    tiny.tanh(tiny.linear(graph.input("x", (2, 1), "float64"), 2))
    return graph, Space(graph, TWO)


def walk_on(judge, graph, space, beta, seed):
    return Walk(
        judge, Proposals(space), single_device(graph, TWO), beta, np.random.default_rng(seed)
    )


def test_a_chain_visits_strategies_as_their_seconds_say():
    """Frequencies against exp(-beta seconds), over all strategies."""
    graph, space = two_operators()
    judge, beta, steps = Toy(space), 3.0, 60_000
    walk = walk_on(judge, graph, space, beta, 1)
    visits = Counter()
    for _ in range(steps):
        walk.step()
        visits[tuple(walk.strategy[n] for n in space.names)] += 1
    weights = {chosen: math.exp(-beta * s) for chosen, s in judge.table.items()}
    total = sum(weights.values())
    assert len(weights) == 64
    distance = sum(abs(visits[c] / steps - w / total) for c, w in weights.items()) / 2
    assert distance < 0.04  # 0.33 without the correction


def test_so_does_one_that_changes_kin_together():
    """Two operators alike: both change at once, now and then, where they agree."""
    graph = Graph()
    tiny.tanh(tiny.tanh(graph.input("x", (2, 2), "float64")))
    space = Space(graph, TWO)
    judge, beta, steps = Toy(space), 3.0, 60_000
    walk = walk_on(judge, graph, space, beta, 2)
    visits, together = Counter(), 0
    for _ in range(steps):
        before = dict(walk.strategy)
        walk.step()
        together += all(before[n] is not walk.strategy[n] for n in space.names)
        visits[tuple(walk.strategy[n] for n in space.names)] += 1
    weights = {chosen: math.exp(-beta * s) for chosen, s in judge.table.items()}
    distance = (
        sum(abs(visits[c] / steps - w / sum(weights.values())) for c, w in weights.items()) / 2
    )
    assert distance < 0.04 and together > 100


@pytest.mark.parametrize("lies", [math.inf, 1e9])
def test_early_rejection_changes_nothing(lies):
    graph, space = two_operators()
    plain, early = Toy(space), Toy(space, lies=lies)
    walks = [walk_on(judge, graph, space, 20.0, 7) for judge in (plain, early)]
    for _ in range(2000):
        for walk in walks:
            walk.step()
        assert walks[0].seconds == walks[1].seconds and dict(walks[0].strategy) == dict(
            walks[1].strategy
        )
    assert plain.asked == early.asked and {accepted for _, accepted in plain.asked} == {True, False}


def plain_step(walk):
    """Metropolis-Hastings as in a text book, with the random numbers in the order of `Walk.step`."""
    changes, correction = walk.proposals.draw(walk.strategy, walk.generator)
    u = 1.0 - walk.generator.random()
    if not changes:
        return
    seconds = walk.judge.propose_all(changes)
    if u <= math.exp(min(walk.beta * (walk.seconds - seconds) + correction, 0.0)):
        walk.judge.accept()
        walk.strategy.update(changes)
        walk.seconds = seconds


@examples(100)
@given(graphs(steps=2), st.integers(0, 2**32 - 1))
def test_a_walk_is_plain_metropolis_hastings(model, seed):
    """The same strategies, step by step, as the rule that knows no limit and compares probabilities."""
    graph, machine = model.graph, MachineModel.uniform(3)
    walks = []
    for _ in range(2):
        judge = PackedJudge(graph, machine, CostModel.analytic(machine))
        start = single_device(graph, machine)
        beta = 30.0 / judge.propose_all(start)
        walks.append(
            Walk(judge, Proposals(Space(graph, machine)), start, beta, np.random.default_rng(seed))
        )
    for _ in range(12):
        walks[0].step()
        plain_step(walks[1])
        assert walks[0].seconds == walks[1].seconds and dict(walks[0].strategy) == dict(
            walks[1].strategy
        )


def test_a_strategy_that_does_not_fit_is_never_accepted():
    graph, space = two_operators()
    judge = Toy(space)
    allowed = single_device(graph, TWO)
    start = tuple(space.find(n, allowed[n]) for n in space.names)
    judge.table = {c: s if c == start else math.inf for c, s in judge.table.items()}
    walk = walk_on(judge, graph, space, 1e-9, 0)  # so warm that everything finite would be accepted
    for _ in range(300):
        walk.step()
    assert tuple(walk.strategy[n] for n in space.names) == start


@pytest.mark.parametrize("seed", range(5))
def test_a_descent_ends_where_no_change_of_one_operator_helps(seed):
    graph, space = two_operators()
    judge = Toy(space, seed)
    descent = LocalDescent(judge, space, single_device(graph, TWO))
    begin, steps = descent.seconds, 0
    while not descent.is_done:
        descent.step()
        steps += 1
        assert steps < 1000
    assert descent.seconds <= begin and judge.seconds_of(descent.strategy) == descent.seconds
    for name in space.names:
        for config in space.configs(name):
            assert judge.seconds_of({**descent.strategy, name: config}) >= descent.seconds


def test_a_descent_goes_through_all_neighbours_once():
    graph, space = two_operators()
    judge = Toy(space)
    judge.table = dict.fromkeys(judge.table, 1.0)
    descent = LocalDescent(judge, space, single_device(graph, TWO))
    while not descent.is_done:
        descent.step()
    neighbours = sum(space.size(n) for n in space.names) - len(space.names)
    assert len(judge.asked) == len(set(judge.asked)) == neighbours
