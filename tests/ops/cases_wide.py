"""A case for each operator in which every axis is longer than 4 and no multiple of 2 or 3: law 1 at uneven degrees.

What they compute is checked by the smaller cases; here a few elements are moved for the gradients.
"""

from collections.abc import Callable, Sequence
from typing import Any

import ops
from taskflow import LogicalRegion

from .cases import case

ROWS, CUBE, IMAGE = {"x": (5, 7)}, {"x": (5, 7, 5)}, {"x": (5, 5, 5, 5)}
WITHOUT_GRADIENT = (
    ops.detach,
    ops.accuracy,
    ops.top_k_accuracy,
    ops.argmax,
    ops.argmin,
    ops.cast,
    ops.expert_load,
    ops.one_hot,
    ops.argsort,
)  # in float64 only
HEADS = {"q": (5, 7, 5, 5), "k": (5, 5, 5, 5), "v": (5, 5, 5, 5)}


def wide(
    operator: Callable[..., Any],
    shapes: dict[str, Sequence[int]],
    *args: Any,
    pick: int | None = None,
    name: str = "",
    **options: Any,
) -> None:
    """The case of `operator(*inputs, *args, **options)`; its result number `pick`. Inputs `i` and `t` are integers."""

    def build(*inputs: LogicalRegion) -> LogicalRegion:
        made = operator(*inputs, *args, **options)
        region: LogicalRegion = made if pick is None else made[pick]
        return region

    integers = [name for name in shapes if name in "it"]
    is_differentiable = operator not in WITHOUT_GRADIENT
    case(
        f"{name or operator.__name__}, wide",
        build,
        None,
        shapes,
        integers,
        high=5,
        moved=3,
        is_differentiable=is_differentiable,
    )


wide(ops.linear, ROWS, 7)
wide(ops.conv1d, {"x": (5, 5, 7)}, 5, 3, padding=1)
wide(ops.conv2d, {"x": (5, 5, 7, 7)}, 5, 3, padding=1)
wide(ops.conv3d, {"x": (5, 5, 5, 5, 5)}, 5, 1)
wide(ops.conv_transpose1d, {"x": (5, 5, 7)}, 5, 3, padding=1)
wide(ops.conv_transpose2d, {"x": (5, 5, 5, 5)}, 5, 3, padding=1)
for pool in (ops.max_pool3d, ops.avg_pool3d):
    wide(pool, {"x": (5, 5, 5, 11, 11)}, (1, 3, 3), (1, 2, 2))
wide(ops.adaptive_avg_pool3d, {"x": (5, 5, 5, 7, 7)}, 5)
wide(ops.interpolate, {"x": (5, 5, 5, 5)}, 7, "bilinear")
wide(ops.instance_norm, IMAGE, affine=True)
wide(ops.detach, ROWS)
for pool in (ops.max_pool2d, ops.avg_pool2d):
    wide(pool, {"x": (5, 5, 11, 11)}, 3, 2)
for pool in (ops.max_pool1d, ops.avg_pool1d):
    wide(pool, {"x": (5, 5, 11)}, 3, 2)
for pool in (ops.adaptive_avg_pool2d, ops.adaptive_max_pool2d):
    wide(pool, {"x": (5, 5, 7, 7)}, 5)
for reduce in (ops.global_avg_pool2d, ops.global_max_pool2d):
    wide(reduce, IMAGE)
for reduce in (ops.sum, ops.mean, ops.max, ops.min, ops.argmax, ops.argmin):
    wide(reduce, ROWS, 1)
wide(ops.sum_to, ROWS, (7,))
wide(ops.reshape, CUBE, (5, 35))
wide(ops.flatten, IMAGE)
wide(ops.permute, CUBE, (1, 2, 0))
wide(lambda x, y: ops.concat([x, y], 1), {"x": (5, 5), "y": (5, 2)}, name="concat")
wide(ops.slice, {"x": (5, 11)}, 1, 2, 7)
wide(ops.split, {"x": (5, 15)}, 5, 1, pick=1)
wide(ops.pad, ROWS, (0, 4, 1, 1))
wide(ops.flip, ROWS, 1)
wide(ops.expand, {"x": (5, 1)}, (7, 5, 5))
wide(ops.squeeze, {"x": (5, 1, 7)})
wide(ops.unsqueeze, ROWS, 1)
wide(ops.cast, ROWS, "float32")
wide(ops.batch_norm, IMAGE)
wide(ops.dropout1d, CUBE, 0.4)
wide(ops.dropout2d, IMAGE, 0.4)
wide(ops.dropout3d, {"x": (5, 7, 5, 5, 5)}, 0.4)
wide(ops.group_norm, {"x": (5, 25, 5, 5)}, 5)
wide(ops.accuracy, {"y": (7, 5), "t": (7,)})
wide(ops.top_k_accuracy, {"y": (7, 5), "t": (7,)}, 2)
wide(ops.matmul, {"x": (5, 7), "y": (7, 5)})
wide(ops.bmm, {"x": (5, 7, 5), "y": (5, 5, 7)})
wide(lambda x, y: ops.einsum("bij,bjk->bik", x, y), {"x": (5, 7, 5), "y": (5, 5, 7)}, name="einsum")
wide(ops.embedding, {"i": (7,)}, 5, 7, dtype="float64")
wide(ops.embedding_bag, {"i": (5, 7)}, 5, 7, dtype="float64")
wide(lambda y, t: ops.nll_loss(y, t), {"y": (7, 5), "t": (7,)}, name="nll_loss")
wide(ops.one_hot, {"t": (5, 7)}, 11, dtype="float64")
wide(
    lambda x, i, s: ops.scatter_add(x, 1, i, s),
    {"x": (5, 7), "i": (5, 5), "s": (5, 5)},
    name="scatter_add",
)
wide(
    lambda x, i, s: ops.index_add(x, 1, i, s),
    {"x": (5, 7), "i": (5,), "s": (5, 5)},
    name="index_add",
)
wide(ops.sort, CUBE, 1, pick=0)
wide(ops.argsort, CUBE, 1)
wide(ops.unfold, {"x": (5, 5, 7, 7)}, 3)
wide(ops.fold, {"x": (5, 45, 25)}, 7, 3)
wide(ops.gather_rows, {"x": (5, 7, 5), "i": (5, 5)})
wide(lambda x, i: ops.gather(x, 1, i), {"x": (5, 7, 5), "i": (5, 5, 5)}, name="gather")
wide(ops.position_embedding, CUBE)
wide(
    lambda *xs: ops.dot_interaction(xs),
    {f"x{k}": (5, 7) for k in range(11)},
    name="dot_interaction",
)
wide(ops.lstm_cell, {"x": (5, 7), "h": (5, 5), "c": (5, 5)}, pick=0)
wide(ops.gru_cell, {"x": (5, 7), "h": (5, 5)})
wide(ops.rnn_cell, {"x": (5, 7), "h": (5, 5)})
for sequence in (ops.lstm, ops.gru, ops.rnn):
    wide(sequence, {"x": (5, 5, 7)}, 5, group=5, pick=0)
wide(ops.lstm, CUBE, 5, fused=True, pick=0, name="lstm fused")
wide(ops.scaled_dot_product_attention, HEADS)
wide(ops.memory_linear_attention, HEADS)
wide(ops.fused_attention, HEADS)
wide(ops.packed_attention, dict.fromkeys("qkv", (7, 5, 5)), (3, 4))
EDGES = {"indptr": [0, 3, 3, 7, 9, 12], "indices": [4, 1, 0, 2, 3, 4, 0, 1, 1, 0, 4, 2]}
for operator in (ops.aggregate, ops.to_edges, ops.sum_edges, ops.edge_softmax):
    rows = 5 if operator in (ops.aggregate, ops.to_edges) else 12
    shape = (rows, 7) if operator is ops.edge_softmax else (rows, 5, 7)

    def on_edges(x: LogicalRegion, operator: Any = operator) -> LogicalRegion:
        return operator(x, ops.edges(x.graph, **EDGES))

    wide(on_edges, {"x": shape}, name=operator.__name__)
wide(ops.feed_forward, {"x": (5, 7)}, 5)
wide(ops.multihead_attention, {"x": (5, 5, 25)}, 5)
wide(ops.rotary_embedding, {"x": (5, 7, 5, 10)})
wide(ops.top_k_gate, CUBE, 2, pick=0)
wide(ops.expert_load, {"i": (5, 7)}, 5, "float64")
wide(ops.expert_linear, CUBE, 7)
