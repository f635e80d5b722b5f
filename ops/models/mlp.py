"""MLP: two towers of eight dense layers of 8192 units without biases, added and classified: the MLP_Unify example of
FlexFlow's public repository, which its Unity paper (Unger et al., OSDI 2022) evaluates.
"""

from collections.abc import Sequence

import ops
from ops.models.common import classify
from taskflow import Graph


def build(
    batch: int = 64,
    inputs: int = 1024,
    hidden: Sequence[int] = (8192,) * 8,
    lr: float = 0.001,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Features `x0` and `x1` (batch, inputs), classes `t` (batch,), as many as units in the last layer."""
    graph = Graph()
    towers = [graph.input(f"x{side}", (batch, inputs), dtype) for side in (0, 1)]
    t = graph.input("t", (batch,), "int32")
    for k, width in enumerate(hidden):
        for side, x in enumerate(towers):
            towers[side] = ops.linear(x, width, bias=False, name=f"fc{k}_{side}")
            if k < len(hidden) - 1:
                towers[side] = ops.relu(towers[side], name=f"relu{k}_{side}")
    y = ops.add(towers[0], towers[1], name="add")
    return classify(graph, y, t, training, lr=lr)
