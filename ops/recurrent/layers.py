"""What recurrent layers share: steps over regions or a dimension, layers, and products with shared weights.

Steps share their weights. A step that continues another leaves its part of the weights' gradient to the first of
them, whose backward runs last: one matrix product over all steps, and one sum over devices instead of one per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ops.building import check_positive, check_region, distinct, first, launch_first, term, terms
from ops.elementwise.dropout import dropout as drop
from ops.recurrent import products
from ops.recurrent.weights import RecurrentWeights, recurrent_weights
from ops.shape.sections import split
from taskflow import LogicalRegion, Operator

State = tuple[LogicalRegion, ...]
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


def steps_of(kind: str, x: LogicalRegion, name: str) -> tuple[LogicalRegion, ...]:
    """The steps of `x`, (batch, 1, input) each; ValueError unless it is (batch, steps, input)."""
    check_sequence(kind, x, name)
    return split(x, 1, 1, f"{name}.split")


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
    backward = partial(product_backward, weights=weights, key=(chain, which), is_first=is_first)
    kernel = products.product.bind(axis=axis)
    return launch_first(name, pattern, [x, *parameters], kernel=kernel, backward=backward, flops=2)


def product_backward(
    op: Operator, g: LogicalRegion, *, weights: RecurrentWeights, key: tuple[str, ...], is_first: bool
) -> tuple[LogicalRegion | None, ...]:
    """The gradients of inputs and, in the first step of a chain, of the parameters: one product for all steps.

    Args:
        op: of the inputs, a weight of each of them, and biases or none. Biases share a gradient.
        g: the gradient of its output.
        weights: what the parameters are of.
        key: the first step of the chain, and which weights `op` reads: `ih`, `hh` or both.
        is_first: whether `op` is of that step.
    """
    _, *which = key
    count, (read, (y_term,)) = len(which), terms(op)
    launch, call = g.graph.launch, (*key, g.graph.differentiations)
    made: list[LogicalRegion | None] = []
    for role, x, weight, region in zip("xh", read[:count], read[count:], op.inputs[count:]):
        pattern = f"{y_term}, {weight} -> {x}"
        made.append(launch_first(f"{op.name}.d{role}", pattern, [g, region], kernel=products.input_gradient))
    weights._pending.setdefault(call, []).append((g, *op.inputs[:count]))
    if not is_first:
        return *made, *[None] * (len(read) - count)
    gs, *factors = zip(*weights._pending.pop(call), strict=True)
    steps, all_gates = len(gs), ", ".join([y_term] * len(gs))
    for what, x, weight, xs in zip(which, read, read[count:], factors):
        name, pattern = f"{weights.name}.dweight_{what}", f"{all_gates}, {', '.join([x] * steps)} -> {weight}"
        made.append(launch_first(name, pattern, [*gs, *xs], kernel=products.weight_gradient, flops=2 * steps))
    if biases := len(read) - 2 * count:
        name = f"{weights.name}.dbias" if count > 1 else f"{weights.name}.dbias_{which[0]}"
        gbias = launch(name, f"{all_gates} -> g h", gs, kernel=products.bias_gradient, flops=steps)
        made += [first(gbias)] * biases
    return tuple(made)
