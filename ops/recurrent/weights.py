"""The parameters of a recurrent layer, and what its steps know of each other. See `recurrent`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ops.building import check_positive
from ops.initializers import Init, uniform
from taskflow import Graph, LogicalRegion

Part = tuple[LogicalRegion, ...]  # of a step: the gradients of its products and what those are products with


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
    # State after a step -> the first step before it; first step (and differentiation) -> what the gradient is made of.
    _chains: dict[tuple[str, ...], str] = field(default_factory=dict)
    _pending: dict[object, list[Part]] = field(default_factory=dict)

    @property
    def hidden_size(self) -> int:
        return self.regions[0].shape[1]

    @property
    def input_size(self) -> int:
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
    check_positive(f"recurrent layer '{name}'", gates=gates, input_size=input_size, hidden_size=hidden_size)
    bound = hidden_size**-0.5
    init = uniform(-bound, bound) if init is None else init
    shapes: dict[str, tuple[int, ...]] = {
        "weight_ih": (gates, hidden_size, input_size),
        "weight_hh": (gates, hidden_size, hidden_size),
    }
    if bias:
        shapes |= {"bias_ih": (gates, hidden_size), "bias_hh": (gates, hidden_size)}
    return RecurrentWeights(name, tuple(graph.parameter(f"{name}.{k}", s, init, dtype) for k, s in shapes.items()))


def lstm_weights(
    graph: Graph,
    name: str,
    input_size: int,
    hidden_size: int,
    bias: bool = True,
    dtype: str = "float32",
    init: Init | None = None,
) -> RecurrentWeights:
    """`recurrent_weights` with the four gates of an LSTM."""
    return recurrent_weights(graph, name, 4, input_size, hidden_size, bias, dtype, init)
