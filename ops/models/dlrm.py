"""DLRM: Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", arXiv
1906.00091 (2019), in the sizes of FlexFlow's example: 8 tables of a million rows of 64, layers 64-512-512-64 for the
dense features and 576-1024-1024-1024-1 on top, batch 1024.
"""

from collections.abc import Sequence

import ops
from ops.models.common import finish
from taskflow import Graph, LogicalRegion


def build(
    batch: int = 1024,
    tables: int = 8,
    rows: int = 1_000_000,
    bag: int = 1,
    bottom: Sequence[int] = (64, 512, 512, 64),
    top: Sequence[int] = (1024, 1024, 1024, 1),
    interaction: str = "cat",
    lr: float = 0.01,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Dense features `dense` (batch, bottom[0]), row numbers `sparse0`, ... (batch, bag), clicks `t` (batch, 1).

    The features are joined by `interaction`: "cat", as in FlexFlow's example, or "dot", the products of all pairs
    beside the dense ones, as in the paper.
    """
    graph = Graph()
    x = graph.input("dense", (batch, bottom[0]), dtype)
    t = graph.input("t", (batch, 1), dtype)
    sparse = [graph.input(f"sparse{k}", (batch, bag), "int32") for k in range(tables)]
    init = ops.uniform(-(rows**-0.5), rows**-0.5)
    features = [
        ops.embedding_bag(
            indices, rows, bottom[-1], name=f"table{k}", dtype=dtype, weight_init=init
        )
        for k, indices in enumerate(sparse)
    ]
    features.insert(0, _layers(x, bottom[1:], "bottom", is_last_active=True))
    if interaction == "cat":
        joined = ops.concat(features, 1, name="interaction")
    elif interaction == "dot":
        joined = ops.concat(
            [features[0], ops.dot_interaction(features, name="interaction")], 1, name="joined"
        )
    else:
        raise ValueError(f"dlrm: interaction is '{interaction}', it is 'cat' or 'dot'")
    y = _layers(joined, top, "top", is_last_active=False)
    loss = ops.binary_cross_entropy_with_logits(y, t, name="loss")
    graph.output("click", ops.sigmoid(y, name="click"))
    return finish(graph, loss, training, lr=lr)


def _layers(
    x: LogicalRegion, widths: Sequence[int], name: str, is_last_active: bool
) -> LogicalRegion:
    for k, width in enumerate(widths):
        x = ops.linear(x, width, name=f"{name}{k}")
        if is_last_active or k < len(widths) - 1:
            x = ops.relu(x, name=f"{name}{k}.relu")
    return x
