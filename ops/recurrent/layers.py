"""What recurrent layers share: steps over regions or a dimension, layers, and products with shared weights.

Steps share their weights. A step that continues another leaves its part of the weights' gradient to the first of
them, whose backward runs last: one matrix product over all steps, and one sum over devices instead of one per step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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
        one = steps[0]
        weights = recurrent_weights(
            one.graph, f"{name}.l{layer}", GATES[kind], one.shape[-1], hidden_size, bias, one.dtype
        )
        state = initial[layer] if initial else (zero_state(one.shape[:-1], one.axes[:-1], weights),) * STATES[kind]
        for t, x in enumerate(steps):
            with in_group(weights, t, group):
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


def in_group(weights: RecurrentWeights, step: int, group: int) -> AbstractContextManager[None]:
    """Operators of `step`, launched inside, follow the first step of its group."""
    graph = weights.regions[0].graph
    return graph.following(weights.steps[step - step % group]) if step % group else nullcontext()


def zero_state(extents: Sequence[int], axes: Sequence[str], weights: RecurrentWeights) -> LogicalRegion:
    """Zeros for the first step, (*extents, hidden), whose axes are called `axes` if operators' own names allow it."""
    graph, lead = weights.regions[0].graph, distinct(axes, ("g", "h", "i", "m"))
    sizes, pattern = {**dict(zip(lead, extents, strict=True)), "h": weights.hidden_size}, f"-> {term((*lead, 'h'))}"
    name, dtype = f"{weights.name}.zero", weights.regions[0].dtype
    with graph.following(f"{weights.name}.t0"):
        return first(graph.launch(name, pattern, [], kernel=products.zero, sizes=sizes, dtype=dtype))


def weights_of_step(
    kind: str,
    x: LogicalRegion,
    states: Mapping[str, LogicalRegion],
    gates: int,
    weights: RecurrentWeights | None,
    name: str | None,
) -> RecurrentWeights:
    """The weights of a step of kind `kind`: those that are given, or new ones called `name`.

    Raises:
        ValueError: the states are not (..., hidden) of one shape beside the (..., input) of `x`, or the weights are not
            for these extents and so many gates.
    """
    name = weights.name if weights else name or kind
    where = f"{kind} '{name}'"
    for role, region in {"x": x, **states}.items():
        check_region(where, region, role)
    h, shapes = states["h"], {region.shape for region in states.values()}
    if len(shapes) > 1 or not h.shape or h.shape[:-1] != x.shape[:-1]:
        *others, last = [f"'{r.name}' is {r.shape}" for r in (x, *states.values())]
        raise ValueError(f"{where}: {', '.join(others)} and {last}")
    if weights is None:
        return recurrent_weights(x.graph, name, gates, x.shape[-1], h.shape[-1], dtype=x.dtype)
    if (weights.input_size, weights.hidden_size) != (x.shape[-1], h.shape[-1]):
        raise ValueError(
            f"{where}: the weights are for {weights.input_size} inputs and {weights.hidden_size} hidden units, "
            f"'{x.name}' is {x.shape} and '{h.name}' is {h.shape}"
        )
    if weights.regions[0].shape[0] != gates:
        raise ValueError(f"{where}: the weights are for {weights.regions[0].shape[0]} gates, {gates} are needed")
    return weights


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
