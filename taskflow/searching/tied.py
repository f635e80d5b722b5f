"""A tied search: operators that are equal across repeated layers are changed together.

What is chosen is a configuration for every class (see `fold`) instead of every operator, so a descent is over in some
hundred proposals, however many layers there are. A choice is a degree and a group of axes (see `grids`): samples over
some devices, the axis of that group over their neighbours. A move gives one choice to a window of up to WINDOW classes
that follow each other, or to all classes that have an axis in the group. State that is sharded follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy

import numpy as np

from taskflow.searching.fold import fold
from taskflow.searching.grids import Choice, Grids
from taskflow.searching.judge import WholeChanges
from taskflow.searching.packed_judge import PackedJudge
from taskflow.strategy.sharded import ShardedState
from taskflow.strategy.strategy import ParallelConfig, Strategy, completed

WINDOW = 3  # singles, pairs and triples of neighbouring classes
KICKS = 3  # random moves, from which another descent begins

Move = Mapping[str, ParallelConfig]  # leader -> configuration


class TiedDescent:
    """Takes every move that helps, until none does: then it `is_done`.

    `strategy` and `seconds` are those of the judge's current strategy.
    """

    def __init__(
        self,
        judge: PackedJudge | WholeChanges,
        grids: Grids,
        sharded: ShardedState,
        start: Strategy,
    ) -> None:
        self.judge, self._sharded = judge, sharded
        self.strategy = completed(judge.graph, start).copy()
        self.seconds = judge.start(self.strategy)
        self._moves = list(_moves(grids, fold(judge.graph)[0], range(len(judge.machine.devices))))
        self._next, self._left = 0, len(self._moves)

    @property
    def is_done(self) -> bool:
        """Whether all moves were tried and none helped since."""
        return self._left <= 0

    def step(self) -> bool:
        """Try one move; False if it changes nothing."""
        move = self._moves[self._next]
        self._next, self._left = (self._next + 1) % len(self._moves), self._left - 1
        if all(self.strategy.get(name) == config for name, config in move.items()):
            return False
        changes = self._sharded.follow(self.strategy, move)
        limit = math.nextafter(self.seconds, -math.inf)
        seconds = self.judge.propose_all(changes, limit)
        if seconds <= limit:
            self.judge.accept()
            self.strategy.update(changes)
            self.seconds, self._left = seconds, len(self._moves)
        return True

    def kicked(self, generator: np.random.Generator) -> TiedDescent | None:
        """Another descent, from the strategy after some random moves (iterated local search); None: that is too large.

        It ends where this one does, or elsewhere. The judge's current strategy is that of the other one then.
        """
        other = copy(self)
        other.strategy, changes = self.strategy.copy(), dict[str, ParallelConfig]()
        for number in generator.integers(len(self._moves), size=KICKS).tolist():
            move = self._sharded.follow(other.strategy, self._moves[number])
            other.strategy.update(move)
            changes.update(move)
        self.judge.start(self.strategy)
        other.seconds = self.judge.propose_all(changes)
        if math.isinf(other.seconds):
            return None
        self.judge.accept()
        other._next, other._left = 0, len(other._moves)
        return other


def _moves(
    grids: Grids, classes: Sequence[Sequence[str]], devices: Sequence[int]
) -> Iterator[Move]:
    """Of groups, then of windows of one class, of two and of three."""
    choices = [grids.choices(members[0], devices) for members in classes]
    every = list(dict.fromkeys(choice for each in choices for choice in each))
    for choice in every:
        yield _move(classes, choices, choice, range(len(classes)))
    for width in range(1, WINDOW + 1):
        for first in range(len(classes) - width + 1):
            window = range(first, first + width)
            for choice in every:
                if all(choice in choices[k] for k in window):
                    yield _move(classes, choices, choice, window)


def _move(
    classes: Sequence[Sequence[str]],
    choices: Sequence[Mapping[Choice, ParallelConfig]],
    choice: Choice,
    window: Sequence[int],
) -> Move:
    return {name: choices[k][choice] for k in window if choice in choices[k] for name in classes[k]}
