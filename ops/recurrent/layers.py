"""What recurrent layers share: their weights, steps over regions or a dimension, layers, and products with weights.

Steps share their weights. A step that continues another leaves its part of the weights' gradient to the first of
them, whose backward runs last: one matrix product over all steps, and one sum over devices instead of one per step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from ops.building import (
    check_number,
    check_positive,
    check_region,
    checked,
    distinct,
    first,
    launch_first,
    term,
    terms,
)
from ops.elementwise.dropout import dropout
from ops.initializers import Init, uniform
from ops.recurrent import products
from ops.shape.rearrange import concat
from ops.shape.sections import split
from taskflow import Graph, LogicalRegion, Operator

State = tuple[LogicalRegion, ...]
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
STATES = {"lstm": 2, "gru": 1, "rnn": 1}


@dataclass(eq=False)
class RecurrentWeights:
    """The parameters of a layer, shared by its steps.

    Attributes:
        name: of the layer; its parameters are `<name>.weight_ih` (gates, hidden, input), `.weight_hh` (gates, hidden,
            hidden) and, if there are any, `.bias_ih` and `.bias_hh` (gates, hidden). The gates are i, f, g, o of an
            LSTM, r, z, n of a GRU; a plain RNN has one.
        regions: those parameters.
        steps: names of the steps' operators, in program order.
    """

    name: str
    regions: tuple[LogicalRegion, ...]
    steps: list[str] = field(default_factory=list)
    _chains: dict[tuple[str, ...], str] = field(
        default_factory=dict
    )  # state after a step -> first step before it

    @property
    def hidden_size(self) -> int:
        """Units of the layer."""
        return self.regions[0].shape[1]

    @property
    def input_size(self) -> int:
        """Extent of what a step reads."""
        return self.regions[0].shape[2]


def recurrent_weights(
    graph: Graph,
    name: str,
    gates: int,
    input_size: int,
    hidden_size: int,
    bias: bool = True,
    dtype: str = "float32",
    init: Init | None = None,
) -> RecurrentWeights:
    """Parameters for the steps of one layer; first values are torch's, uniform in ±1/sqrt(hidden_size).

    Args:
        graph: that gets the parameters.
        name: of the layer.
        gates: 4 for an LSTM, 3 for a GRU, 1 for a plain RNN.
        input_size, hidden_size: extents.
        bias: whether there are biases.
        dtype: of the parameters.
        init: other first values.

    Raises:
        ValueError: an extent is not positive, or the graph has regions of these names.
    """
    check_positive(
        f"recurrent layer '{name}'", gates=gates, input_size=input_size, hidden_size=hidden_size
    )
    bound = hidden_size**-0.5
    init = uniform(-bound, bound) if init is None else init
    shapes: dict[str, tuple[int, ...]] = {
        "weight_ih": (gates, hidden_size, input_size),
        "weight_hh": (gates, hidden_size, hidden_size),
    }
    if bias:
        shapes |= {"bias_ih": (gates, hidden_size), "bias_hh": (gates, hidden_size)}
    return RecurrentWeights(
        name, tuple(graph.parameter(f"{name}.{k}", s, init, dtype) for k, s in shapes.items())
    )


@dataclass(frozen=True)
class Stack:
    """Layers of one kind, one upon the other, called `<name>.l0`, `<name>.l1`, ...; see `lstm_steps`."""

    kind: str
    hidden_size: int
    layers: int
    bias: bool
    dropout: float
    training: bool
    group: int
    name: str

    def named(self, *xs: LogicalRegion) -> Stack:
        """The same with a name that no other layers of the graph have."""
        for x in xs[:1]:
            check_region(f"{self.kind} '{self.name}'", x)
            return replace(self, name=x.graph.unique_name(self.name, "l0.t0", "l0.x"))
        return self

    def check(self, steps: int, initial: Sequence[object] | None) -> None:
        """ValueError for extents that are not positive, no steps, or first states for other than every layer."""
        where = f"{self.kind} '{self.name}'"
        check_positive(where, hidden_size=self.hidden_size, layers=self.layers, group=self.group)
        check_number(where, "dropout", self.dropout, "a number in [0, 1]")
        if not steps or (initial is not None and len(initial) != self.layers):
            given = f"{steps} steps and {len(initial or ())} states were given"
            raise ValueError(f"{where}: {given} for {self.layers} layers")

    def weights(self, layer: int, x: LogicalRegion) -> RecurrentWeights:
        """The weights of a layer that gets `x`."""
        name = f"{self.name}.l{layer}"
        gates = GATES[self.kind]
        return recurrent_weights(
            x.graph,
            name,
            gates,
            x.shape[-1],
            self.hidden_size,
            self.bias,
            x.dtype,
        )

    def drop(self, layer: int, x: LogicalRegion, step: int | str = "") -> LogicalRegion:
        """What the layer below gave, with dropout."""
        return (
            dropout(x, self.dropout, self.training, f"{self.name}.l{layer}.drop{step}")
            if layer
            else x
        )

    def steps_of(self, x: LogicalRegion) -> tuple[LogicalRegion, ...]:
        """The steps of `x`, (batch, 1, input) each; ValueError unless it is (batch, steps, input)."""
        checked(self.kind, self.name, x, ndim=(3,))
        return split(x, 1, 1, f"{self.name}.split")

    def unroll(
        self,
        cell: Callable[..., State],
        xs: Sequence[LogicalRegion],
        initial: Sequence[State] | None,
    ) -> tuple[list[LogicalRegion], list[State]]:
        """Steps that are regions of their own: the last layer's hidden states, and the last state of each layer.

        `cell(x, *state, weights)` gives the state after a step.
        """
        self.check(len(xs), initial)
        steps = list(xs)
        states = []
        for layer in range(self.layers):
            state = initial[layer] if initial else None
            steps, state = self._unroll_layer(layer, cell, steps, state)
            states.append(state)
        return steps, states

    def _unroll_layer(
        self,
        layer: int,
        cell: Callable[..., State],
        steps: list[LogicalRegion],
        state: State | None,
    ) -> tuple[list[LogicalRegion], State]:
        steps = [self.drop(layer, x, t) for t, x in enumerate(steps)]
        weights = self.weights(layer, steps[0])
        if state is None:
            zero = zero_state(steps[0].shape[:-1], steps[0].axes[:-1], weights)
            state = (zero,) * STATES[self.kind]
        for t, x in enumerate(steps):
            with in_group(weights, t, self.group):
                state = cell(x, *state, weights)
            steps[t] = state[0]
        return steps, state

    def unroll_hidden(
        self,
        cell: Callable[..., LogicalRegion],
        xs: Sequence[LogicalRegion],
        initial: Sequence[LogicalRegion] | None,
    ) -> tuple[list[LogicalRegion], list[LogicalRegion]]:
        """`unroll` where a state is h alone."""
        states = None if initial is None else [(h,) for h in initial]
        steps, last = self.unroll(lambda x, h, weights: (cell(x, h, weights),), xs, states)
        return steps, [h for (h,) in last]

    def unroll_over(
        self,
        cell: Callable[..., LogicalRegion],
        x: LogicalRegion,
        initial: Sequence[LogicalRegion] | None,
    ) -> tuple[LogicalRegion, list[LogicalRegion]]:
        """`unroll_hidden` over dimension 1 of `x`, the hidden states along that dimension, too."""
        steps, last = self.unroll_hidden(cell, self.steps_of(x), initial)
        return concat(steps, 1, f"{self.name}.concat"), last


def in_group(weights: RecurrentWeights, step: int, group: int) -> AbstractContextManager[None]:
    """Operators of `step`, launched inside, follow the first step of its group."""
    graph = weights.regions[0].graph
    return graph.following(weights.steps[step - step % group]) if step % group else nullcontext()


def zero_state(
    extents: Sequence[int], axes: Sequence[str], weights: RecurrentWeights
) -> LogicalRegion:
    """Zeros for the first step, (*extents, hidden), whose axes are called `axes` if operators' own names allow it."""
    graph = weights.regions[0].graph
    lead = distinct(axes, ("g", "h", "i", "m"))
    with graph.following(f"{weights.name}.t0"):
        return first(
            graph.launch(
                f"{weights.name}.zero",
                f"-> {term((*lead, 'h'))}",
                [],
                kernel=products.zero,
                sizes={**dict(zip(lead, extents, strict=True)), "h": weights.hidden_size},
                dtype=weights.regions[0].dtype,
            )
        )


def _check_states(where: str, x: LogicalRegion, states: Mapping[str, LogicalRegion]) -> None:
    for role, region in {"x": x, **states}.items():
        check_region(where, region, role)
    shape = states["h"].shape
    if (
        any(region.shape != shape for region in states.values())
        or not shape
        or shape[:-1] != x.shape[:-1]
    ):
        *others, last = [f"'{r.name}' is {r.shape}" for r in (x, *states.values())]
        raise ValueError(f"{where}: {', '.join(others)} and {last}")


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
    _check_states(where, x, states)
    h = states["h"]
    if weights is None:
        name = x.graph.unique_name(name, "t0")
        return recurrent_weights(x.graph, name, gates, x.shape[-1], h.shape[-1], dtype=x.dtype)
    if (weights.input_size, weights.hidden_size) != (x.shape[-1], h.shape[-1]):
        raise ValueError(
            f"{where}: the weights are for {weights.input_size} inputs and {weights.hidden_size} hidden units, "
            f"'{x.name}' is {x.shape} and '{h.name}' is {h.shape}"
        )
    if weights.regions[0].shape[0] != gates:
        raise ValueError(
            f"{where}: the weights are for {weights.regions[0].shape[0]} gates, {gates} are needed"
        )
    return weights


def step_of_hidden(
    kind: str,
    x: LogicalRegion,
    h: LogicalRegion,
    weights: RecurrentWeights | None,
    name: str | None,
    cell: Callable[[str, LogicalRegion, LogicalRegion], LogicalRegion],
) -> LogicalRegion:
    """A step of kind `gru` or `rnn`: the state after `h`.

    The operator `<weights>.t<number of the step>` is W_ih x + b_ih, and W_hh h + b_hh follows it, (..., gates, hidden)
    each. So does what `cell` makes of them: it gets the name of the step and both products.

    Raises:
        ValueError: as `weights_of_step`.
    """
    weights = weights_of_step(f"{kind}_cell", x, {"h": h}, GATES[kind], weights, name)
    step = f"{weights.name}.t{len(weights.steps)}"
    chain = weights._chains.pop(
        (h.name,), step
    )  # a state that is continued twice begins two chains
    weights.steps.append(step)
    from_x = _product(step, x, weights, chain, "ih", "i")
    with x.graph.following(step):
        h = cell(step, from_x, _product(f"{step}.hidden", h, weights, chain, "hh", "m"))
    weights._chains[(h.name,)] = chain
    return h


def _product(
    name: str,
    x: LogicalRegion,
    weights: RecurrentWeights,
    chain: str,
    which: str,
    axis: str,
) -> LogicalRegion:
    lead = distinct(x.axes[:-1], ("g", "h", "i", "m"))
    parameters = weights.regions[0 if which == "ih" else 1 :: 2]
    bias = ", g h" * (len(parameters) - 1)
    return launch_first(
        name,
        f"{term((*lead, axis))}, g h {axis}{bias} -> {term((*lead, 'g', 'h'))}",
        [x, *parameters],
        kernel=products.product.bind(axis=axis),
        backward=partial(
            product_backward,
            name=weights.name,
            key=(chain, which),
            is_first=name.removesuffix(".hidden") == chain,
        ),
        flops=2,
    )


def product_backward(
    op: Operator,
    g: LogicalRegion,
    *,
    name: str,
    key: tuple[str, ...],
    is_first: bool,
) -> tuple[LogicalRegion | None, ...]:
    """The gradients of inputs and, in the first step of a chain, of the parameters: one product for all steps.

    Args:
        op: of the inputs, a weight of each of them, and biases or none. Biases share a gradient.
        g: the gradient of its output.
        name: of the layer.
        key: the first step of the chain, and which weights `op` reads: `ih`, `hh` or both.
        is_first: whether `op` is of that step.
    """
    count = len(key) - 1
    made = _input_gradients(op, g, count)
    g.graph.pending.setdefault(key, []).append((g, *op.inputs[:count]))
    if not is_first:
        return *made, *[None] * (len(op.inputs) - count)
    return *made, *_parameter_gradients(op, name, key[1:], g.graph.pending.pop(key))


def _input_gradients(op: Operator, g: LogicalRegion, count: int) -> list[LogicalRegion]:
    read, (y_term,) = terms(op)
    return [
        launch_first(
            f"{op.name}.d{role}",
            f"{y_term}, {weight} -> {x}",
            [g, region],
            kernel=products.input_gradient,
        )
        for role, x, weight, region in zip("xh", read[:count], read[count:], op.inputs[count:])
    ]


def _parameter_gradients(
    op: Operator, name: str, which: Sequence[str], steps: Sequence[tuple[LogicalRegion, ...]]
) -> list[LogicalRegion]:
    """Of all steps: of each its gradient, and what its weights were multiplied with."""
    read, (y_term,) = terms(op)
    gs, *factors = zip(*steps, strict=True)
    all_gates = ", ".join([y_term] * len(gs))
    made = [
        launch_first(
            f"{name}.dweight_{what}",
            f"{all_gates}, {', '.join([x] * len(gs))} -> {weight}",
            [*gs, *xs],
            kernel=products.weight_gradient,
            flops=2 * len(gs),
        )
        for what, x, weight, xs in zip(which, read, read[len(which) :], factors)
    ]
    if biases := len(read) - 2 * len(which):
        gbias = launch_first(
            f"{name}.dbias" if len(which) > 1 else f"{name}.dbias_{which[0]}",
            f"{all_gates} -> g h",
            gs,
            kernel=products.bias_gradient,
            flops=len(gs),
        )
        made += [gbias] * biases
    return made
