"""Learning rates as functions of the number of finished steps.

An optimizer that is given one has it as an operator of the graph, which counts steps in a persistent region; a
`Trainer` that is given one writes the rate before each step. Both go on after a checkpoint where they were.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sqrt

Schedule = Callable[[int], float]


def constant_schedule(rate: float) -> Schedule:
    """The same learning rate at every step."""
    return lambda step: rate


def step_schedule(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """`rate`, multiplied by `factor` after each `every` steps.

    >>> [step_schedule(1.0, every=2, factor=0.5)(step) for step in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    return lambda step: rate * factor ** (step // every)


def exponential_schedule(rate: float, factor: float) -> Schedule:
    """`rate`, multiplied by `factor` after each step."""
    return lambda step: rate * factor**step


def linear_schedule(rate: float, steps: int, warmup: int = 0, minimum: float = 0.0) -> Schedule:
    """Linear warm-up over `warmup` steps, then linearly down to `minimum` at `steps`.

    >>> [linear_schedule(1.0, steps=6, warmup=2)(step) for step in range(7)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return _after_warmup(rate, warmup, lambda step: minimum + (rate - minimum) * (1 - _part(step, steps, warmup)))


def cosine_schedule(rate: float, steps: int, warmup: int = 0, minimum: float = 0.0) -> Schedule:
    """Linear warm-up over `warmup` steps, then a half cosine down to `minimum` (Loshchilov and Hutter, 2017)."""
    return _after_warmup(
        rate, warmup, lambda step: minimum + (rate - minimum) * 0.5 * (1 + cos(pi * _part(step, steps, warmup)))
    )


def inverse_sqrt_schedule(rate: float, warmup: int) -> Schedule:
    """Linear warm-up over `warmup` steps, then `rate` sqrt(warmup / step) (Vaswani et al., NeurIPS 2017)."""
    return _after_warmup(rate, warmup, lambda step: rate * sqrt(max(warmup, 1) / (step + 1)))


def _after_warmup(rate: float, warmup: int, schedule: Schedule) -> Schedule:
    return lambda step: rate * (step + 1) / warmup if step < warmup else schedule(step)


def _part(step: int, steps: int, warmup: int) -> float:
    """How much of the way from the end of the warm-up to the last step is done."""
    return min((step - warmup) / max(steps - warmup, 1), 1.0)
