"""Long short-term memory, unrolled over time.

A step is two operators: `<name>.t0`, ... holds the products with both weights (one matrix product for all four gates),
and its follower `.cell` the elementwise rest. The step splits over the batch, over `h` (Parameter: every device has all
four gates of some hidden units), over `g` (the gates) and, with partial sums, over `i` and `m` (input and previous
hidden state).

Parameters have torch's layout with the gates i, f, g, o as a dimension of their own: (4, hidden, input) is torch's
(4 hidden, input) in memory, so `.reshape` converts. As one dimension `(g h)`, a split over `h` would not be contiguous.
How steps share the gradient of their weights is said in `layers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.building import checked, distinct, launch_first, takes_old, term
from ops.recurrent import products
from ops.recurrent.cells import State, launch_cell
from ops.recurrent.fused import lstm_fused
from ops.recurrent.layers import RecurrentWeights, Stack, product_backward, weights_of_step
from ops.shape.rearrange import concat
from taskflow import LogicalRegion


def lstm_cell(
    x: LogicalRegion,
    h: LogicalRegion,
    c: LogicalRegion,
    weights: RecurrentWeights | None = None,
    name: str | None = None,
) -> State:
    """One step of an LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), as torch's.

    i, f, g, o = W_ih x + b_ih + W_hh h + b_hh;  c' = σ(f) c + σ(i) tanh(g);  h' = σ(o) tanh(c').

    Args:
        x: (..., input), floating point.
        h, c: (..., hidden): the state before.
        weights: shared with other steps; None makes weights of its own, named after the operator.
        name: of the weights made here; the operator is `<name>.t<number of the step>`.

    Returns:
        (h', c'), the state after, of the shape of `h`.

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong.
    """
    weights = weights_of_step("lstm_cell", x, {"h": h, "c": c}, 4, weights, name)
    number = f"{weights.name}.t{len(weights.steps)}"
    chain = weights._chains.pop(
        (h.name, c.name), number
    )  # a state that is continued twice begins two chains
    lead = distinct(x.axes[:-1], ("g", "h", "i", "m"))
    gates = launch_first(
        number,
        f"{term((*lead, 'i'))}, {term((*lead, 'm'))}, g h i, g h m"
        f"{', g h' * (len(weights.regions) - 2)} -> {term((*lead, 'g', 'h'))}",
        [x, h, *weights.regions],
        kernel=products.gates,
        backward=partial(
            product_backward, name=weights.name, key=(chain, "ih", "hh"), is_first=number == chain
        ),
        flops=2
        * (1 / x.shape[-1] + 1 / h.shape[-1]),  # a point of (i, m) would be a product with either
    )
    weights.steps.append(gates.name)
    h, c = launch_cell(gates, c)
    weights._chains[h.name, c.name] = chain
    return h, c


def lstm_steps(
    xs: Sequence[LogicalRegion],
    hidden_size: int,
    layers: int = 1,
    initial: Sequence[State] | None = None,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = True,
    group: int = 1,
    name: str = "lstm",
) -> tuple[list[LogicalRegion], list[State]]:
    """An LSTM over steps that are regions of their own: a layer's step needs only that of the layer below.

    Args:
        xs: for every step (..., input), of one shape, floating point.
        hidden_size: units of each layer.
        layers: how many are stacked.
        initial: the state (h, c) of each layer, (..., hidden) each, before the first step; zeros by default.
        bias: whether there are biases.
        dropout: probability of zero between layers.
        training: whether dropout takes place.
        group: so many successive steps of a layer follow one ParallelConfig, that of the first.
        name: the layers are `<name>.l0`, `<name>.l1`, ...

    Returns:
        the hidden states of the last layer, one per step; and the last state (h, c) of each layer.

    Raises:
        ValueError: there are no steps, `initial` has not one state per layer, or as `lstm_cell`.
    """
    stack = Stack("lstm", hidden_size, layers, bias, dropout, training, group, name).named(*xs)
    steps, last = stack.unroll(lstm_cell, xs, initial)
    return steps, [(h, c) for h, c in last]


@takes_old("ahead", "it does nothing; fused=True is faster than it was", lambda _: {})
def lstm(
    x: LogicalRegion,
    hidden_size: int,
    layers: int = 1,
    initial: Sequence[State] | None = None,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = True,
    group: int = 1,
    name: str = "lstm",
    *,
    fused: bool = False,
) -> tuple[LogicalRegion, list[State]]:
    """An LSTM over dimension 1, unrolled, as torch.nn.LSTM with batch_first.

    Args:
        x: (batch, steps, input), floating point.
        initial: states of (batch, 1, hidden); zeros by default.
        hidden_size, layers, bias, dropout, training, group, name: as for `lstm_steps`.
        fused: one product of the inputs of all steps, the operator `<name>.l0.x`, and one operator `<name>.l0.steps`
            for all steps of a layer. It is faster, but a layer begins when the layer below has ended, and only the
            batch can be split.

    Returns:
        the hidden states of the last layer, (batch, steps, hidden); and the last state (h, c) of each layer.

    Raises:
        ValueError: `x` has not three dimensions, `group` is given for steps that are one operator, or as `lstm_steps`.
    """
    if fused and group != 1:
        raise ValueError(f"lstm '{name}': group is {group!r}, but fused steps are one operator")
    stack = Stack("lstm", hidden_size, layers, bias, dropout, training, group, name).named(x)
    if not fused:
        hs, states = stack.unroll(lstm_cell, stack.steps_of(x), initial)
        return concat(hs, 1, f"{stack.name}.concat"), [(h, c) for h, c in states]
    checked("lstm", name, x, ndim=(3,))
    stack.check(x.shape[1], initial)
    last = []
    for layer in range(layers):
        x = stack.drop(layer, x)
        x, state = lstm_fused(x, stack.weights(layer, x), initial[layer] if initial else None)
        last.append(state)
    return x, last
