"""Walks over strategies: Metropolis-Hastings, and a descent that ends where no change of one operator helps.

Both hold a strategy and its seconds, ask the judge about one changed operator at a time, and move or stay. Their steps
are counted by whoever calls them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.proposal import Proposals
from taskflow.searching.space import Space
from taskflow.strategy.sharded import ShardedState
from taskflow.strategy.strategy import ParallelConfig, Strategy


class Walk:
    """One Markov chain, whose stationary distribution is p(strategy) ~ exp(-beta * seconds) on the space.

    The random number is drawn before the strategy is judged: u accepts exactly when seconds are at most
    `now - (ln u - ln q(old) / q(new)) / beta`, so the judge may give up whatever is certain to be slower. With
    `sharded`, state that the strategy names goes with the operator that it follows.
    """

    def __init__(
        self,
        judge: PackedJudge,
        proposals: Proposals,
        start: Strategy,
        beta: float,
        generator: np.random.Generator,
        sharded: ShardedState | None = None,
    ) -> None:
        self._sharded = sharded
        self.judge, self.proposals, self.beta, self.generator = judge, proposals, beta, generator
        self.strategy = proposals.space.include(start)
        self.seconds = judge.start(self.strategy)

    def step(self) -> bool:
        """Propose, and accept or stay; False if what was proposed is what there is, so nothing was judged."""
        changes, correction = self.proposals.draw(self.strategy, self.generator)
        limit = self._limit(correction)
        if not changes:
            return False
        if self._sharded:
            changes = self._sharded.follow(self.strategy, changes)
        seconds = self.judge.propose_all(changes, limit)
        if seconds <= limit and math.isfinite(seconds):
            self.judge.accept()
            self.strategy.update(changes)
            self.seconds = seconds
        return True

    def _limit(self, correction: float) -> float:
        """The seconds up to which a proposal is accepted, for a random number that is drawn now."""
        return self.seconds + (correction - math.log(1.0 - self.generator.random())) / self.beta


class LocalDescent:
    """Takes every change of one operator that helps, until none does: then it `is_done`, at a local optimum.

    Operators take turns, each going through its configurations in an order of its own that has no pattern, so that a
    descent that is stopped early has treated all alike.
    """

    def __init__(
        self, judge: PackedJudge, space: Space, start: Strategy, sharded: ShardedState | None = None
    ) -> None:
        self.judge, self.space, self._sharded = judge, space, sharded
        self.strategy = space.include(start)
        self.seconds = judge.start(self.strategy)
        self._left = self._neighbours = sum(space.size(name) for name in space.names)
        self._candidates = self._all_candidates()

    @property
    def is_done(self) -> bool:
        """Whether all neighbours of the strategy were tried and none is faster."""
        return self._left <= 0

    def step(self) -> bool:
        """Try one neighbour; False if it is the strategy itself."""
        name, config = next(self._candidates)
        self._left -= 1
        if config is self.strategy[name]:
            return False
        limit = math.nextafter(self.seconds, -math.inf)
        changes = {name: config}
        if self._sharded:
            changes = self._sharded.follow(self.strategy, changes)
        seconds = self.judge.propose_all(changes, limit)
        if seconds <= limit:
            self.judge.accept()
            self.strategy.update(changes)
            self.seconds = seconds
            self._left = self._neighbours
        return True

    def _all_candidates(self) -> Iterator[tuple[str, ParallelConfig]]:
        sizes = {name: self.space.size(name) for name in self.space.names}
        steps = {name: _coprime(size) for name, size in sizes.items()}
        while True:
            for k in range(max(sizes.values())):
                for name, size in sizes.items():
                    if k < size:
                        yield name, self.space.config(name, k * steps[name] % size)


def _coprime(size: int) -> int:
    """A step that visits all numbers below `size`, in no regular order: near their golden section."""
    step = max(round(size * 0.381966), 1)
    while math.gcd(step, size) > 1:
        step += 1
    return step
