"""First values of parameters: functions from a shape to a distribution.

`weight_init` and `bias_init` of an operator, and `init` of `Graph.parameter`, take a number, a distribution or one of
the functions here that want the shape (`glorot_uniform`, ...). The numbers depend only on (seed, name, global index),
never on the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt

from taskflow import Constant, Normal, Uniform

Distribution = Constant | Normal | Uniform
Init = float | Distribution | Callable[[tuple[int, ...]], Distribution]


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight of shape (out, in, ...), as torch counts them.

    Raises:
        ValueError: the shape has fewer than two dimensions.
    """
    if len(shape) < 2:
        raise ValueError(
            f"initializer: the fans of a weight need two dimensions, its shape is {tuple(shape)}"
        )
    field = prod(shape[2:])
    return shape[1] * field, shape[0] * field


def glorot_uniform(shape: Sequence[int]) -> Uniform:
    """Uniform of variance 2 / (fan_in + fan_out) (Glorot and Bengio, AISTATS 2010)."""
    bound = sqrt(6 / sum(fans(shape)))
    return Uniform(-bound, bound)


def glorot_normal(shape: Sequence[int]) -> Normal:
    """Normal of variance 2 / (fan_in + fan_out) (Glorot and Bengio, AISTATS 2010)."""
    return Normal(0.0, sqrt(2 / sum(fans(shape))))


def he_uniform(shape: Sequence[int]) -> Uniform:
    """Uniform of variance 2 / fan_in (He et al., ICCV 2015)."""
    bound = sqrt(6 / fans(shape)[0])
    return Uniform(-bound, bound)


def he_normal(shape: Sequence[int]) -> Normal:
    """Normal of variance 2 / fan_in (He et al., ICCV 2015)."""
    return Normal(0.0, sqrt(2 / fans(shape)[0]))


def fan_in_uniform(shape: Sequence[int]) -> Uniform:
    """Uniform in ±1/sqrt(fan_in): torch's default for the weights of linear and convolution."""
    bound = 1 / sqrt(fans(shape)[0])
    return Uniform(-bound, bound)


def uniform(low: float = 0.0, high: float = 1.0) -> Uniform:
    """Uniform in [low, high)."""
    return Uniform(low, high)


def normal(mean: float = 0.0, std: float = 1.0) -> Normal:
    """Normal of the given mean and standard deviation."""
    return Normal(mean, std)


def constant(value: float) -> Constant:
    """Every element is `value`."""
    return Constant(value)


def zeros(shape: Sequence[int] = ()) -> Constant:
    """Every element is 0; `shape` makes no difference."""
    return Constant(0.0)
