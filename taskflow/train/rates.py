"""Learning rates as functions of the number of finished steps; ValueError for numbers that make none.

An optimizer that is given one has it as an operator of the graph, which counts steps in a persistent region; a
`Trainer` that is given one writes the rate before each step. Both go on after a checkpoint where they were.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sqrt

from taskflow.core.numbers import real, whole

Rate = Callable[[int], float]


def constant(rate: float) -> Rate:
    """The same learning rate at every step."""
    rate = real("constant", "rate", rate, 0)
    return lambda done: rate


def step(rate: float, every: int, factor: float = 0.1) -> Rate:
    """`rate`, multiplied by `factor` after each `every` steps.

    >>> rate = step(1.0, every=2, factor=0.5)
    >>> [rate(done) for done in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    rate = real("step", "rate", rate, 0)
    factor = real("step", "factor", factor, 0)
    every = whole("step", "every", every)
    return lambda done: rate * factor ** (done // every)


def exponential(rate: float, factor: float) -> Rate:
    """`rate`, multiplied by `factor` after each step."""
    rate = real("exponential", "rate", rate, 0)
    factor = real("exponential", "factor", factor, 0)
    return lambda done: rate * factor**done


def linear(rate: float, steps: int, warmup: int = 0, minimum: float = 0.0) -> Rate:
    """Linear warm-up over `warmup` steps, then linearly down to `minimum` at `steps`.

    >>> rate = linear(1.0, steps=6, warmup=2)
    >>> [rate(done) for done in range(7)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    _check("linear", rate, steps, warmup, minimum)
    return _after_warmup(
        rate, warmup, lambda done: minimum + (rate - minimum) * (1 - _part(done, steps, warmup))
    )


def cosine(rate: float, steps: int, warmup: int = 0, minimum: float = 0.0) -> Rate:
    """Linear warm-up over `warmup` steps, then a half cosine down to `minimum` (Loshchilov and Hutter, 2017)."""
    _check("cosine", rate, steps, warmup, minimum)
    return _after_warmup(
        rate,
        warmup,
        lambda done: minimum + (rate - minimum) * 0.5 * (1 + cos(pi * _part(done, steps, warmup))),
    )


def inverse_sqrt(rate: float, warmup: int) -> Rate:
    """Linear warm-up over `warmup` steps, then `rate` sqrt(warmup / step) (Vaswani et al., NeurIPS 2017)."""
    _check("inverse_sqrt", rate, None, warmup, 0.0)
    return _after_warmup(rate, warmup, lambda done: rate * sqrt(max(warmup, 1) / (done + 1)))


def _check(where: str, rate: float, steps: int | None, warmup: int, minimum: float) -> None:
    real(where, "rate", rate, 0)
    real(where, "minimum", minimum, 0)
    whole(where, "warmup", warmup, 0)
    if steps is not None:
        whole(where, "steps", steps)
        if warmup > steps:
            raise ValueError(f"{where}: warmup is {warmup}, more than the {steps} steps")


def check_rate(where: str, value: object) -> float:
    """A rate that a function gave; ValueError where it is negative, or no finite number."""
    return real(where, "the learning rate", value, 0)


def _after_warmup(rate: float, warmup: int, after: Rate) -> Rate:
    return lambda done: rate * (done + 1) / warmup if done < warmup else after(done)


def _part(done: int, steps: int, warmup: int) -> float:
    """The share of the steps after the warm-up that is done, at most 1."""
    return min((done - warmup) / max(steps - warmup, 1), 1.0)
