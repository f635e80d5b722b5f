"""Gated recurrent units and plain recurrent networks, unrolled over time.

A step of a GRU is three operators: `<name>.t0`, ... holds the product with the input, its followers `.hidden` that with
the state before and `.cell` the elementwise rest, which a plain network makes of `.sum`, `.gate` and `.cell`. The step
splits over the batch, over `h` (Parameter: every device has all gates of some hidden units) and, with partial sums,
over `i` and `m`. Parameters are those of `recurrent_weights` with the gates r, z, n, or one gate: (3, hidden, input) is
torch's (3 hidden, input) in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.building import distinct, launch_all, launch_first, term, terms
from ops.elementwise.activation import relu, tanh
from ops.elementwise.arithmetic import add
from ops.recurrent.cells import GRU, GRU_GRADIENT
from ops.recurrent.layers import RecurrentWeights, Stack, step_of_hidden
from ops.reduce.reductions import sum
from taskflow import LogicalRegion, Operator

_NONLINEARITIES = {"tanh": tanh, "relu": relu}


def gru_cell(
    x: LogicalRegion,
    h: LogicalRegion,
    weights: RecurrentWeights | None = None,
    name: str | None = None,
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

    def cell(step: str, from_x: LogicalRegion, from_h: LogicalRegion) -> LogicalRegion:
        lead = distinct(x.axes[:-1], ("g", "h", "i", "m"))
        wide, narrow = term((*lead, "^g", "h")), term((*lead, "h"))
        pattern = f"{wide}, {wide}, {narrow} -> {narrow}"
        inputs = [from_x, from_h, h]
        return launch_first(
            f"{step}.cell",
            pattern,
            inputs,
            kernel=GRU,
            backward=_backward,
            flops=10,
        )

    return step_of_hidden("gru", x, h, weights, name, cell)


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
    return (
        Stack("gru", hidden_size, layers, bias, dropout, training, group, name)
        .named(*xs)
        .unroll_hidden(gru_cell, xs, initial)
    )


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
    return (
        Stack("gru", hidden_size, layers, bias, dropout, training, group, name)
        .named(x)
        .unroll_over(gru_cell, x, initial)
    )


def _backward(op: Operator, g: LogicalRegion) -> tuple[LogicalRegion, ...]:
    (wide, _, narrow), _ = terms(op)
    pattern = f"{narrow}, {wide}, {wide}, {narrow} -> {wide}, {wide}, {narrow}"
    return launch_all(
        f"{op.name}.dx",
        pattern,
        [g, *op.inputs],
        kernel=GRU_GRADIENT,
        flops=20,
    )


# -- plain networks ----------------------------------------------------------------------------------------------------


def rnn_cell(
    x: LogicalRegion,
    h: LogicalRegion,
    weights: RecurrentWeights | None = None,
    nonlinearity: str = "tanh",
    name: str | None = None,
) -> LogicalRegion:
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh) (Elman 1990), as torch's RNNCell.

    Args:
        x: (..., input), floating point.
        h: (..., hidden): the state before.
        weights: of 1 gate, shared with other steps; None makes weights of its own, named after the operator.
        nonlinearity: "tanh" or "relu".
        name: of the weights made here; the operator is `<name>.t<number of the step>`.

    Returns:
        h', the state after, of the shape of `h`.

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, or there is no such nonlinearity.
    """
    if nonlinearity not in _NONLINEARITIES:
        where = f"rnn_cell '{weights.name if weights else name or 'rnn_cell'}'"
        raise ValueError(f"{where}: nonlinearity is '{nonlinearity}', it is 'tanh' or 'relu'")

    def cell(step: str, from_x: LogicalRegion, from_h: LogicalRegion) -> LogicalRegion:
        total = sum(add(from_x, from_h, f"{step}.sum"), -2, name=f"{step}.gate")
        return _NONLINEARITIES[nonlinearity](total, f"{step}.cell")

    return step_of_hidden("rnn", x, h, weights, name, cell)


def rnn_steps(
    xs: Sequence[LogicalRegion],
    hidden_size: int,
    layers: int = 1,
    initial: Sequence[LogicalRegion] | None = None,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = True,
    group: int = 1,
    nonlinearity: str = "tanh",
    name: str = "rnn",
) -> tuple[list[LogicalRegion], list[LogicalRegion]]:
    """An RNN over steps that are regions of their own; as `lstm_steps`, but a state is h alone."""
    return (
        Stack("rnn", hidden_size, layers, bias, dropout, training, group, name)
        .named(*xs)
        .unroll_hidden(partial(rnn_cell, nonlinearity=nonlinearity), xs, initial)
    )


def rnn(
    x: LogicalRegion,
    hidden_size: int,
    layers: int = 1,
    initial: Sequence[LogicalRegion] | None = None,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = True,
    group: int = 1,
    nonlinearity: str = "tanh",
    name: str = "rnn",
) -> tuple[LogicalRegion, list[LogicalRegion]]:
    """An RNN over dimension 1, unrolled, as torch.nn.RNN with batch_first; as `lstm`, but a state is h alone."""
    return (
        Stack("rnn", hidden_size, layers, bias, dropout, training, group, name)
        .named(x)
        .unroll_over(partial(rnn_cell, nonlinearity=nonlinearity), x, initial)
    )
