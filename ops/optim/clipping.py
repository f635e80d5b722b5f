"""Gradients clipped by their global norm: the same under any strategy, since partial sums of squares are combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ops.building import launch_first
from ops.expressions.assign import assign
from ops.expressions.program import program
from taskflow import Array, Context, LogicalRegion, update

_SQUARE = assign.bind(program=program("total += g * g", "g total"))


def clip_by_global_norm(
    gradients: Mapping[LogicalRegion, LogicalRegion], max_norm: float, loss: LogicalRegion
) -> dict[LogicalRegion, LogicalRegion]:
    """Each gradient times min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.

    The norm is that of all gradients as one vector (Pascanu et al., ICML 2013); it becomes the output `gradient_norm`.
    A gradient's squares are summed where its parameter is updated, so a replica is not counted twice.

    Args:
        gradients: parameter -> gradient, floating point.
        max_norm: positive.
        loss: a scalar; the norm is made where it is made.

    Returns:
        parameter -> clipped gradient, in the same order.
    """
    graph = loss.graph
    squares = [update(f"{p.name}.square", p, [g], kernel=_SQUARE, sums=1, flops=2)[0] for p, g in gradients.items()]
    with beside(loss):
        pattern = f"{', '.join('.' * len(squares))} -> ."
        norm = launch_first("gradient_norm", pattern, squares, kernel=_root_of_sum, flops=len(squares))
    graph.output("gradient_norm", norm)
    kernel = assign.bind(program=program("out = g * min(1, most / (norm + 1e-6))", "g norm out", {"most": max_norm}))
    return {
        p: update(f"{p.name}.clipped", p, [g], kernel=kernel, scalars=[norm], values=1, flops=1)[0]
        for p, g in gradients.items()
    }


@contextmanager
def beside(loss: LogicalRegion) -> Iterator[None]:
    """Operators on scalars, launched inside, run where the loss is made, on each of its devices."""
    maker = loss.graph.producer(loss)
    assert maker is not None, "a loss that was differentiated is made by an operator"
    with loss.graph.following(maker.follows or maker.name):
        yield


def _root_of_sum(ctx: Context, *arrays: Array) -> None:
    *squares, norm = arrays
    norm[...] = sum(squares) ** 0.5
