"""What recurrent layers share: steps over regions or a dimension, layers, and products with shared weights.

Steps share their weights. A step that continues another leaves its part of the weights' gradient to the first of
them, whose backward runs last: one matrix product over all steps, and one sum over devices instead of one per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ops.building import check_positive, check_region, distinct, first, term, terms
from ops.elementwise.dropout import dropout as drop
from ops.recurrent import products
from ops.recurrent.weights import RecurrentWeights, recurrent_weights
from ops.shape.rearrange import concat
from ops.shape.sections import split
from taskflow import LogicalRegion, Operator

State = tuple[LogicalRegion, ...]
AnyState = TypeVar("AnyState")
Cell = Callable[[LogicalRegion, State, RecurrentWeights], State]


def unroll(
    kind: str,
    cell: Cell,
    xs: Sequence[LogicalRegion],
    hidden_size: int,
    layers: int,
    initial: Sequence[State] | None,
    bias: bool,
    dropout: float,
    training: bool,
    group: int,
    name: str,
) -> tuple[list[LogicalRegion], list[State]]:
    """Layers of steps that are regions of their own: the last layer's hidden states, and the last state of each."""
    where = f"{kind} '{name}'"
    check_positive(where, hidden_size=hidden_size, layers=layers, group=group)
    if not xs or (initial is not None and len(initial) != layers):
        raise ValueError(f"{where}: {len(xs)} steps and {len(initial or ())} states were given for {layers} layers")
    steps, states = list(xs), []
    for layer in range(layers):
        if layer:
            steps = [drop(x, dropout, training, f"{name}.l{layer}.drop{t}") for t, x in enumerate(steps)]
        first_step, layer_name = steps[0], f"{name}.l{layer}"
        weights = recurrent_weights(
            first_step.graph, layer_name, GATES[kind], first_step.shape[-1], hidden_size, bias, first_step.dtype
        )
        state = initial[layer] if initial else (_zero(first_step, weights),) * STATES[kind]
        for t, x in enumerate(steps):
            if t % group == 0:
                state = cell(x, state, weights)
            else:
                with x.graph.following(weights.steps[t - t % group]):
                    state = cell(x, state, weights)
            steps[t] = state[0]
        states.append(state)
    return steps, states


GATES = {"lstm": 4, "gru": 3, "rnn": 1}
STATES = {"lstm": 2, "gru": 1, "rnn": 1}


def over_dim_1(
    kind: str,
    x: LogicalRegion,
    name: str,
    steps: Callable[[Sequence[LogicalRegion]], tuple[list[LogicalRegion], list[AnyState]]],
) -> tuple[LogicalRegion, list[AnyState]]:
    """`steps` of the points of dimension 1, put together again."""
    check_sequence(kind, x, name)
    hs, states = steps(split(x, 1, 1, f"{name}.split"))
    return concat(hs, 1, f"{name}.concat"), states


def check_sequence(kind: str, x: LogicalRegion, name: str) -> None:
    """ValueError unless `x` is (batch, steps, input)."""
    check_region(f"{kind} '{name}'", x)
    if x.ndim != 3:
        raise ValueError(f"{kind} '{name}': '{x.name}' has shape {x.shape}, 3 dimensions are needed")


def _zero(x: LogicalRegion, weights: RecurrentWeights) -> LogicalRegion:
    lead = distinct(x.axes[:-1], ("g", "h", "i", "m"))
    sizes = {**dict(zip(lead, x.shape[:-1], strict=True)), "h": weights.hidden_size}
    with x.graph.following(f"{weights.name}.t0"):
        pattern = f"-> {term((*lead, 'h'))}"
        zero = x.graph.launch(f"{weights.name}.zero", pattern, [], kernel=products.zero, sizes=sizes, dtype=x.dtype)
    return first(zero)


def check_step(kind: str, x: LogicalRegion, states: Sequence[tuple[str, LogicalRegion]], name: str) -> str:
    """ValueError unless the states are (..., hidden) of one shape beside the (..., input) of `x`; gives the place."""
    where = f"{kind} '{name}'"
    for role, region in (("x", x), *states):
        check_region(where, region, role)
    shapes = {region.shape for _, region in states}
    if len(shapes) > 1 or not (shape := states[0][1].shape) or shape[:-1] != x.shape[:-1]:
        *others, last = [f"'{r.name}' is {r.shape}" for r in (x, *(r for _, r in states))]
        raise ValueError(f"{where}: {', '.join(others)} and {last}")
    return where


def check_weights(where: str, x: LogicalRegion, h: LogicalRegion, weights: RecurrentWeights, gates: int) -> None:
    """ValueError unless the weights are for the extents of `x` and `h`, and have so many gates."""
    if (weights.input_size, weights.hidden_size) != (x.shape[-1], h.shape[-1]):
        raise ValueError(
            f"{where}: the weights are for {weights.input_size} inputs and {weights.hidden_size} hidden units, "
            f"'{x.name}' is {x.shape} and '{h.name}' is {h.shape}"
        )
    if weights.regions[0].shape[0] != gates:
        raise ValueError(f"{where}: the weights are for {weights.regions[0].shape[0]} gates, {gates} are needed")


def two_products(
    x: LogicalRegion, h: LogicalRegion, weights: RecurrentWeights
) -> tuple[str, LogicalRegion, LogicalRegion]:
    """The first step of this chain, and W_ih x + b_ih and W_hh h + b_hh of this one, (..., gates, hidden) each.

    The first product is the operator `<weights>.t<number of the step>`, the second follows it.
    """
    name = f"{weights.name}.t{len(weights.steps)}"
    chain = weights._chains.pop((h.name,), name)  # a state that is continued twice begins two chains
    weights.steps.append(name)
    made = _product(name, x, weights, chain, "ih", "i")
    with x.graph.following(name):
        return chain, made, _product(f"{name}.hidden", h, weights, chain, "hh", "m")


def _product(
    name: str, x: LogicalRegion, weights: RecurrentWeights, chain: str, which: str, axis: str
) -> LogicalRegion:
    lead = distinct(x.axes[:-1], ("g", "h", "i", "m"))
    parameters = weights.regions[0 if which == "ih" else 1 :: 2]
    bias = ", g h" * (len(parameters) - 1)
    pattern = f"{term((*lead, axis))}, g h {axis}{bias} -> {term((*lead, 'g', 'h'))}"
    is_first = name.removesuffix(".hidden") == chain
    backward = partial(_product_backward, weights=weights, key=(chain, which), is_first=is_first)
    kernel = products.product.bind(axis=axis)
    return first(x.graph.launch(name, pattern, [x, *parameters], kernel=kernel, backward=backward, flops=2))


def _product_backward(
    op: Operator, g: LogicalRegion, *, weights: RecurrentWeights, key: tuple[str, str], is_first: bool
) -> tuple[LogicalRegion | None, ...]:
    (x_term, weight_term, *biases), (y_term,) = terms(op)
    x, weight, *_ = op.inputs
    launch, call = x.graph.launch, (*key, x.graph.differentiations)
    pattern = f"{y_term}, {weight_term} -> {x_term}"
    gx = first(launch(f"{op.name}.dx", pattern, [g, weight], kernel=products.input_gradient))
    weights._pending.setdefault(call, []).append((g, x))
    if not is_first:
        return gx, *[None] * (1 + len(biases))
    gs, xs = zip(*weights._pending.pop(call), strict=True)
    count, all_gates = len(gs), ", ".join([y_term] * len(gs))
    pattern = f"{all_gates}, {', '.join([x_term] * count)} -> {weight_term}"
    name = f"{weights.name}.dweight_{key[1]}"
    made = [first(launch(name, pattern, [*gs, *xs], kernel=products.weight_gradient, flops=2 * count))]
    if biases:
        name = f"{weights.name}.dbias_{key[1]}"
        made.append(first(launch(name, f"{all_gates} -> g h", gs, kernel=products.bias_gradient, flops=count)))
    return gx, *made
