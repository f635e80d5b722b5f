"""Dtypes of a graph: what precision it computes in, and which dtypes the outputs of its operators have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskflow.core.dtypes import HALF, is_floating
from taskflow.core.numbers import real, whole
from taskflow.graph.kernel import Kernel
from taskflow.graph.pattern import BoundPattern

PRECISIONS = ("float32", "tf32", *HALF)


@dataclass(frozen=True)
class LossScale:
    """The loss times `first` is differentiated, so that gradients are not lost below the smallest float16 number.

    Attributes:
        first: scale of the first step.
        growth: times which the scale grows after `interval` steps in a row with finite gradients; 1: never.
        backoff: times which it shrinks when a gradient is not finite; that step changes no parameter.
        interval: in steps.
    """

    first: float = 2.0**16
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def __post_init__(self) -> None:
        where = "loss scale"
        object.__setattr__(self, "first", real(where, "first", self.first, 0, above=True))
        object.__setattr__(self, "growth", real(where, "growth", self.growth, 1))
        object.__setattr__(self, "backoff", real(where, "backoff", self.backoff, 0, 1, above=True))
        object.__setattr__(self, "interval", whole(where, "interval", self.interval))


@dataclass(frozen=True)
class Precision:
    """What `precision` decided for a graph; `dtype` is one of PRECISIONS."""

    dtype: str = "float32"
    loss_scale: LossScale | None = None


def output_dtypes(
    where: str,
    dtype: str | Sequence[str] | None,
    inputs: Sequence[str],
    bound: BoundPattern,
    kernel: Kernel,
) -> list[str]:
    """The dtypes of an operator's outputs: `dtype`, or what follows from those of its inputs and from its kernel.

    Raises:
        ValueError: there is nothing to follow from, or numbers do not fit the number of outputs.
    """
    count = len(bound.pattern.outputs)
    if kernel.float32_outputs and not all(0 <= k < count for k in kernel.float32_outputs):
        raise ValueError(
            f"{where}: float32_outputs of its kernel are {kernel.float32_outputs}, it has {count} outputs"
        )
    if dtype is None:
        return _dtypes_that_follow(where, inputs, bound, kernel)
    dtypes = [dtype] * count if isinstance(dtype, str) else list(dtype)
    if len(dtypes) != count:
        raise ValueError(f"{where}: {len(dtypes)} dtypes were given for {count} outputs")
    return dtypes


def _dtypes_that_follow(
    where: str, inputs: Sequence[str], bound: BoundPattern, kernel: Kernel
) -> list[str]:
    outputs = range(len(bound.pattern.outputs))
    floating = [dtype for dtype in inputs if is_floating(dtype)] or list(inputs)
    if not outputs:
        return []
    if not floating:
        raise ValueError(f"{where}: an operator without inputs names the dtype of its output")
    if floating[0] not in HALF:
        return [floating[0]] * len(outputs)
    wide = float32_outputs(bound, kernel.float32_outputs)
    return ["float32" if k in wide else floating[0] for k in outputs]


def float32_outputs(bound: BoundPattern, named: Sequence[int] | None) -> tuple[int, ...]:
    """Numbers of the outputs that stay float32: scalars, and those named or, by default, what sums one input alone."""
    outputs = range(len(bound.pattern.outputs))
    scalars = [k for k in outputs if not bound.shapes[len(bound.pattern.inputs) + k]]
    if named is None:
        named = [k for k in outputs if bound.reduced_axes(k) and not is_product(bound, k)]
    return tuple(sorted({*scalars, *named}))


def is_product(bound: BoundPattern, output: int) -> bool:
    """Whether an axis that is summed over for this output stands in two inputs."""
    read = bound.term_axes[: len(bound.pattern.inputs)]
    return any(sum(axis in axes for axes in read) > 1 for axis in bound.reduced_axes(output))
