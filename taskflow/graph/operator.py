"""Operators: kernels over named axes. A value, not a class to inherit.

An operator is what `Graph.launch` makes of a kernel, a pattern and regions. It says nothing about devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from taskflow.graph.kernel import Kernel
from taskflow.graph.pattern import BoundPattern
from taskflow.graph.region import LogicalRegion
from taskflow.graph.window import Interval, Window

Backward = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """A kernel over named axes.

    Attributes:
        name: unique in its graph.
        kernel: called with arrays of one point's tiles; writes the outputs.
        bound: the pattern with its extents.
        inputs, outputs: regions, in the order of the pattern's terms.
        writes: positions of the inputs that are updated in place.
        backward: `backward(op, *output_gradients)` gives a region or None per input.
        flops: floating point operations of one point of the iteration space.
        follows: name of the operator whose ParallelConfig it uses unless it is named in the strategy itself.
        orders: the memory order that the kernel asks for, per argument; empty: any (see `taskflow.graph.layout`).
        members: the operators that were fused into it, in program order, itself last (see `taskflow.fuse`).
    """

    name: str
    kernel: Kernel
    bound: BoundPattern
    inputs: tuple[LogicalRegion, ...]
    outputs: tuple[LogicalRegion, ...]
    writes: tuple[int, ...] = ()
    backward: Backward | None = field(default=None, compare=False)
    flops: float = 1.0
    follows: str | None = None
    orders: tuple[tuple[int, ...], ...] = ()
    members: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        """The pattern as text."""
        return self.bound.pattern.text

    @property
    def extents(self) -> Mapping[str, int]:
        """Axis -> number of points."""
        return self.bound.extents

    @property
    def windows(self) -> Mapping[str, Window]:
        """Dimension name -> Window."""
        return self.bound.windows

    @property
    def args(self) -> tuple[LogicalRegion, ...]:
        """Regions of all terms: inputs then outputs."""
        return self.inputs + self.outputs

    @cached_property
    def split_axes(self) -> tuple[str, ...]:
        """The axes that may be split, in order of appearance in the pattern."""
        return tuple(a for a in self.extents if a not in self.bound.pattern.fixed)

    @cached_property
    def parameter_axes(self) -> frozenset[str]:
        """The axes that stand in a parameter's term: splitting one of them splits a parameter."""
        axes = [self.bound.term_axes[k] for k, r in enumerate(self.inputs) if r.role == "parameter"]
        return frozenset[str]().union(*axes)

    def task_flops(self, intervals: Mapping[str, Interval]) -> float:
        """Floating point operations of one point."""
        return self.flops * self.bound.points(intervals)

    def __str__(self) -> str:
        return f"{self.name}: {self.pattern}{contents(self.members)}"


def term_text(op: Operator, k: int) -> str:
    """Term number `k` of an operator as text for an elementwise operator on the same region.

    Windowed dimensions become axes that are never split, since their intervals overlap.
    """
    names = []
    for position, dim in enumerate(op.bound.terms[k].dims):
        if len(dim) == 1 and dim[0] in op.windows:
            names.append(f"^whole{position}")
        elif len(dim) == 1:
            names.append(("^" if dim[0] in op.bound.pattern.fixed else "") + dim[0])
        else:
            names.append(f"({' '.join(dim)})" if dim else "1")
    return " ".join(names) or "."


def term_sizes(op: Operator, k: int) -> dict[str, int]:
    """Extents of the axes of term number `k` that a group alone cannot give."""
    return {n: op.extents[n] for d in op.bound.terms[k].dims if len(d) > 1 for n in d}


def contents(members: tuple[str, ...]) -> str:
    """What a fused operator contains, for people: ` (a + b)`; empty for an operator of its own."""
    return f" ({' + '.join(members)})" if members else ""
