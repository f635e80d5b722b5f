"""The parameters of an LSTM layer, and what its steps know of each other. See `lstm`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ops.build import check_positive
from ops.initializers import Init, uniform
from taskflow import Graph, LogicalRegion

Part = tuple[LogicalRegion, LogicalRegion, LogicalRegion]  # gradient of a step's gates, its x and its h


@dataclass(eq=False)
class LSTMWeights:
    """The parameters of a layer, shared by its steps.

    Attributes:
        name: of the layer; its parameters are `<name>.weight_ih` (4, hidden, input), `.weight_hh` (4, hidden, hidden)
            and, if there are any, `.bias_ih` and `.bias_hh` (4, hidden); gates in the order i, f, g, o.
        regions: those parameters.
        steps: names of the steps' operators, in program order.
    """

    name: str
    regions: tuple[LogicalRegion, ...]
    steps: list[str] = field(default_factory=list)
    # State after a step -> the first step before it; first step -> what the gradient of the weights is made of.
    _chains: dict[tuple[str, str], str] = field(default_factory=dict)
    _pending: dict[str, list[Part]] = field(default_factory=dict)

    @property
    def hidden_size(self) -> int:
        return self.regions[0].shape[1]

    @property
    def input_size(self) -> int:
        return self.regions[0].shape[2]


def lstm_weights(
    graph: Graph,
    name: str,
    input_size: int,
    hidden_size: int,
    bias: bool = True,
    dtype: str = "float32",
    init: Init | None = None,
) -> LSTMWeights:
    """Parameters for the steps of one layer; first values are torch's, uniform in ±1/sqrt(hidden_size).

    Raises:
        ValueError: an extent is not positive, or the graph has regions of these names.
    """
    check_positive(f"lstm '{name}'", input_size=input_size, hidden_size=hidden_size)
    bound = hidden_size**-0.5
    init = uniform(-bound, bound) if init is None else init
    shapes: dict[str, tuple[int, ...]] = {
        "weight_ih": (4, hidden_size, input_size),
        "weight_hh": (4, hidden_size, hidden_size),
    }
    if bias:
        shapes |= {"bias_ih": (4, hidden_size), "bias_hh": (4, hidden_size)}
    return LSTMWeights(name, tuple(graph.parameter(f"{name}.{k}", s, init, dtype) for k, s in shapes.items()))
