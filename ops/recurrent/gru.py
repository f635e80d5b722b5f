"""Gated recurrent units, unrolled over time.

A step is three operators: `<name>.t0`, ... holds the product with the input, its followers `.hidden` that with the
state before and `.cell` the elementwise rest. The step splits over the batch, over `h` (Parameter: every device has all
gates of some hidden units) and, with partial sums, over `i` and `m`. Parameters are those of `recurrent_weights` with
the gates r, z, n: (3, hidden, input) is torch's (3 hidden, input) in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.building import distinct, launch_all, launch_first, term, terms
from ops.recurrent.cells import GRU, GRU_GRADIENT
from ops.recurrent.layers import State, steps_of, two_products, unroll, weights_of_step
from ops.recurrent.weights import RecurrentWeights
from ops.shape.rearrange import concat
from taskflow import LogicalRegion, Operator


def gru_cell(
    x: LogicalRegion, h: LogicalRegion, weights: RecurrentWeights | None = None, name: str | None = None
) -> LogicalRegion:
    """One step of a GRU (Cho et al., EMNLP 2014), as torch's.

    r, z = σ(W_ih x + b_ih + W_hh h + b_hh);  n = tanh(W_in x + b_in + r (W_hn h + b_hn));  h' = (1 - z) n + z h.

    Args:
        x: (..., input), floating point.
        h: (..., hidden): the state before.
        weights: of 3 gates, shared with other steps; None makes weights of its own, named after the operator.
        name: of the weights made here; the operator is `<name>.t<number of the step>`.

    Returns:
        h', the state after, of the shape of `h`.

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong.
    """
    weights = weights_of_step("gru_cell", x, {"h": h}, 3, weights, name)
    chain, from_x, from_h = two_products(x, h, weights)
    lead = distinct(x.axes[:-1], ("g", "h", "i", "m"))
    wide, narrow = term((*lead, "^g", "h")), term((*lead, "h"))
    number = weights.steps[-1]
    with x.graph.following(number):
        pattern, inputs = f"{wide}, {wide}, {narrow} -> {narrow}", [from_x, from_h, h]
        new_h = launch_first(f"{number}.cell", pattern, inputs, kernel=GRU, backward=_backward, flops=10)
    weights._chains[(new_h.name,)] = chain
    return new_h


def gru_steps(
    xs: Sequence[LogicalRegion],
    hidden_size: int,
    layers: int = 1,
    initial: Sequence[LogicalRegion] | None = None,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = True,
    group: int = 1,
    name: str = "gru",
) -> tuple[list[LogicalRegion], list[LogicalRegion]]:
    """A GRU over steps that are regions of their own; as `lstm_steps`, but a state is h alone."""
    states = None if initial is None else [(h,) for h in initial]
    steps, last = unroll("gru", _next, xs, hidden_size, layers, states, bias, dropout, training, group, name)
    return steps, [h for (h,) in last]


def gru(
    x: LogicalRegion,
    hidden_size: int,
    layers: int = 1,
    initial: Sequence[LogicalRegion] | None = None,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = True,
    group: int = 1,
    name: str = "gru",
) -> tuple[LogicalRegion, list[LogicalRegion]]:
    """A GRU over dimension 1, unrolled, as torch.nn.GRU with batch_first; as `lstm`, but a state is h alone."""
    xs = steps_of("gru", x, name)
    hs, states = gru_steps(xs, hidden_size, layers, initial, bias, dropout, training, group, name)
    return concat(hs, 1, f"{name}.concat"), states


def _next(x: LogicalRegion, state: State, weights: RecurrentWeights) -> State:
    return (gru_cell(x, state[0], weights),)


def _backward(op: Operator, g: LogicalRegion) -> tuple[LogicalRegion, ...]:
    (wide, _, narrow), _ = terms(op)
    pattern = f"{narrow}, {wide}, {wide}, {narrow} -> {wide}, {wide}, {narrow}"
    return launch_all(f"{op.name}.dx", pattern, [g, *op.inputs], kernel=GRU_GRADIENT, flops=20)
