"""Plain recurrent networks, unrolled over time.

A step is five operators: `<name>.t0`, ... holds the product with the input, its followers `.hidden` that with the state
before, `.sum`, `.gate` and `.cell` the rest. Splits and parameters are those of `gru` with one gate: (1, hidden, input)
is torch's (hidden, input) in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.elementwise.activation import relu, tanh
from ops.elementwise.arithmetic import add
from ops.recurrent.layers import State, steps_of, two_products, unroll, weights_of_step
from ops.recurrent.weights import RecurrentWeights
from ops.reduce.reductions import sum
from ops.shape.rearrange import concat
from taskflow import LogicalRegion

_NONLINEARITIES = {"tanh": tanh, "relu": relu}


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
    weights = weights_of_step("rnn_cell", x, {"h": h}, 1, weights, name)
    chain, from_x, from_h = two_products(x, h, weights)
    number = weights.steps[-1]
    with x.graph.following(number):
        total = sum(add(from_x, from_h, f"{number}.sum"), -2, name=f"{number}.gate")
        new_h = _NONLINEARITIES[nonlinearity](total, f"{number}.cell")
    weights._chains[(new_h.name,)] = chain
    return new_h


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
    states = None if initial is None else [(h,) for h in initial]
    cell = partial(_next, nonlinearity=nonlinearity)
    steps, last = unroll("rnn", cell, xs, hidden_size, layers, states, bias, dropout, training, group, name)
    return steps, [h for (h,) in last]


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
    xs = steps_of("rnn", x, name)
    hs, states = rnn_steps(xs, hidden_size, layers, initial, bias, dropout, training, group, nonlinearity, name)
    return concat(hs, 1, f"{name}.concat"), states


def _next(x: LogicalRegion, state: State, weights: RecurrentWeights, nonlinearity: str) -> State:
    return (rnn_cell(x, state[0], weights, nonlinearity),)
