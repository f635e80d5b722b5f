"""Cases of the operators of sequences: LSTM, attention, look-ups, products, sections, sums. See `cases`."""

from itertools import pairwise
from typing import Any

import numpy as np

import ops
from taskflow import LogicalRegion

from .cases import Array, Values, case, sigmoid, softmax

# -- products ----------------------------------------------------------------------------------------------------------

case("matmul", ops.matmul, lambda v: v["x"] @ v["y"], {"x": (5, 3), "y": (3, 4)})
case("matmul by one matrix", ops.matmul, lambda v: v["x"] @ v["y"], {"x": (2, 5, 3), "y": (3, 4)})
case(
    "matmul of rank 4",
    ops.matmul,
    lambda v: v["x"] @ v["y"],
    {"x": (2, 3, 5, 2), "y": (2, 3, 2, 3)},
)
case("bmm", ops.bmm, lambda v: v["x"] @ v["y"], {"x": (3, 2, 5), "y": (3, 5, 4)})
for equation, shapes in (
    ("bqkd,btkd->bkqt", {"x": (3, 2, 3, 2), "y": (3, 4, 3, 2)}),
    ("bse,ve->bsv", {"x": (2, 3, 5), "y": (7, 5)}),
    ("ab,cd->dacb", {"x": (3, 2), "y": (2, 3)}),
    ("bij,bij->b", {"x": (3, 2, 5), "y": (3, 2, 5)}),
    ("ijb,jbi->bij", {"x": (2, 3, 4), "y": (3, 4, 2)}),
    ("abc,adb->dc", {"x": (2, 3, 4), "y": (2, 5, 3)}),
):

    def product(x: LogicalRegion, y: LogicalRegion, equation: str = equation) -> LogicalRegion:
        return ops.einsum(equation, x, y)

    case(f"einsum {equation}", product, lambda v, e=equation: np.einsum(e, v["x"], v["y"]), shapes)


# -- sections and sums -------------------------------------------------------------------------------------------------

case("slice", lambda x: ops.slice(x, 1, 2, 5), lambda v: v["x"][:, 2:5], {"x": (5, 7)})
case(
    "slice at the end",
    lambda x: ops.slice(x, -1, 4, 7),
    lambda v: v["x"][..., 4:],
    {"x": (2, 3, 7)},
)
case("split, one part", lambda x: ops.split(x, 2, 1)[1], lambda v: v["x"][:, 2:4], {"x": (3, 6)})
case(
    "split, all parts",
    lambda x: ops.concat(ops.split(x, 3)[::-1], 0),
    lambda v: np.concatenate([v["x"][6:], v["x"][3:6], v["x"][:3]]),
    {"x": (9, 2)},
)
case(
    "split in uneven sections",
    lambda x: ops.concat(ops.split(x, [2, 4, 1], 1)[::-2], 1),
    lambda v: np.concatenate([v["x"][:, 6:], v["x"][:, :2]], 1),
    {"x": (3, 7, 2)},
)
case("split with a rest", lambda x: ops.split(x, 3, 1)[1], lambda v: v["x"][:, 3:], {"x": (3, 5)})
case("sum", ops.sum, lambda v: v["x"].sum(), {"x": (5, 3)})
case("sum of dim 1", lambda x: ops.sum(x, 1), lambda v: v["x"].sum(1), {"x": (3, 5, 2)})
case(
    "sum that keeps dims",
    lambda x: ops.sum(x, (0, -1), True),
    lambda v: v["x"].sum((0, 2), keepdims=True),
    {"x": (3, 5, 2)},
)
case("mean", ops.mean, lambda v: v["x"].mean(), {"x": (5, 3)})
case(
    "mean of two dims",
    lambda x: ops.mean(x, (2, 0)),
    lambda v: v["x"].mean((0, 2)),
    {"x": (3, 5, 2)},
)
case("global_avg_pool2d", ops.global_avg_pool2d, lambda v: v["x"].mean((2, 3)), {"x": (3, 2, 5, 3)})


# -- look-ups ----------------------------------------------------------------------------------------------------------

case(
    "embedding_bag",
    lambda i: ops.embedding_bag(i, 5, 3, dtype="float64"),
    lambda v: v["embedding_bag.weight"][v["i"]].sum(1),
    {"i": (5, 3)},
    ["i"],
    high=5,
)
case(
    "embedding_bag, mean",
    lambda i: ops.embedding_bag(i, 5, 3, mode="mean", dtype="float64"),
    lambda v: v["embedding_bag.weight"][v["i"]].mean(2),
    {"i": (4, 2, 3)},
    ["i"],
    high=5,
)
case(
    "embedding_bag of one row each",
    lambda i: ops.embedding_bag(i, 7, 2, dtype="float64"),
    lambda v: v["embedding_bag.weight"][v["i"][..., 0]],
    {"i": (3, 2, 1)},
    ["i"],
    high=7,
)
case(
    "gather_rows",
    ops.gather_rows,
    lambda v: np.take_along_axis(v["x"], v["i"][..., None], 1),
    {"x": (3, 5, 2), "i": (3, 4)},
    ["i"],
    high=5,
)
case(
    "position_embedding",
    ops.position_embedding,
    lambda v: v["x"] + v["position_embedding.weight"],
    {"x": (3, 5, 2)},
)


# -- DLRM --------------------------------------------------------------------------------------------------------------


def interaction(v: Values) -> Array:
    z = np.stack(list(v.values())[:4], 1)
    i, j = np.tril_indices(4, -1)
    return np.einsum("bpe,bpe->bp", z[:, i], z[:, j])


case(
    "dot_interaction",
    lambda *xs: ops.dot_interaction(xs),
    interaction,
    dict.fromkeys("wxyz", (5, 3)),
)


# -- LSTM --------------------------------------------------------------------------------------------------------------


def lstm_step(x: Array, h: Array, c: Array, v: Values, name: str) -> tuple[Array, Array]:
    pre = np.einsum("...i,ghi->...gh", x, v[f"{name}.weight_ih"])
    pre = pre + np.einsum("...m,ghm->...gh", h, v[f"{name}.weight_hh"])
    pre = pre + v.get(f"{name}.bias_ih", 0) + v.get(f"{name}.bias_hh", 0)
    i, f, g, o = (pre[..., k, :] for k in range(4))
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def lstm(v: Values, layers: int, hidden: int, name: str = "lstm") -> tuple[Array, Array]:
    """The outputs of the last layer, and the last cell state of the first."""
    y, cells = v["x"], []
    for layer in range(layers):
        h = c = np.zeros((y.shape[0], hidden))
        steps = []
        for t in range(y.shape[1]):
            h, c = lstm_step(y[:, t], h, c, v, f"{name}.l{layer}")
            steps.append(h)
        y = np.stack(steps, 1)
        cells.append(c)
    return y, cells[0]


cell = {"x": (5, 2), "h": (5, 3), "c": (5, 3)}
case(
    "lstm_cell, h",
    lambda x, h, c: ops.lstm_cell(x, h, c)[0],
    lambda v: lstm_step(v["x"], v["h"], v["c"], v, "lstm_cell")[0],
    cell,
)
case(
    "lstm_cell, c",
    lambda x, h, c: ops.lstm_cell(x, h, c)[1],
    lambda v: lstm_step(v["x"], v["h"], v["c"], v, "lstm_cell")[1],
    cell,
)
case("lstm", lambda x: ops.lstm(x, 3)[0], lambda v: lstm(v, 1, 3)[0], {"x": (3, 3, 2)})
case(
    "lstm of two layers without bias, in groups",
    lambda x: ops.lstm(x, 2, layers=2, bias=False, group=2)[0],
    lambda v: lstm(v, 2, 2)[0],
    {"x": (3, 3, 2)},
)
case(
    "lstm, fused",
    lambda x: ops.lstm(x, 3, fused=True)[0],
    lambda v: lstm(v, 1, 3)[0],
    {"x": (3, 4, 2)},
)
case(
    "lstm of two layers without bias, fused",
    lambda x: ops.lstm(x, 2, layers=2, bias=False, fused=True)[0],
    lambda v: lstm(v, 2, 2)[0],
    {"x": (3, 3, 2)},
)


def lstm_from(v: Values) -> Array:
    """The sum of the last state that follows on h and c."""
    h, c = v["h"][:, 0], v["c"][:, 0]
    for t in range(v["x"].shape[1]):
        h, c = lstm_step(v["x"][:, t], h, c, v, "lstm.l0")
    return (h + c)[:, None]


def last_state(x: LogicalRegion, h: LogicalRegion, c: LogicalRegion) -> LogicalRegion:
    _, [state] = ops.lstm(x, 3, initial=[(h, c)], fused=True)
    return ops.add(*state, name="square")


case(
    "lstm from a state to the last, fused",
    last_state,
    lstm_from,
    {"x": (3, 4, 2), "h": (3, 1, 3), "c": (3, 1, 3)},
)
case(
    "lstm, the last cell state, fused",
    lambda x: ops.lstm(x, 2, fused=True)[1][0][1],
    lambda v: lstm(v, 1, 2)[1][:, None],
    {"x": (3, 3, 2)},
)
case(
    "lstm, the last cell state",
    lambda x: ops.lstm(x, 2)[1][0][1],
    lambda v: lstm(v, 1, 2)[1][:, None],
    {"x": (3, 3, 2)},
)


# -- GRU and RNN -------------------------------------------------------------------------------------------------------


def gates_of(v: Values, name: str, x: Array, h: Array) -> tuple[Array, Array]:
    from_x = np.einsum("...i,ghi->...gh", x, v[f"{name}.weight_ih"]) + v.get(f"{name}.bias_ih", 0)
    return from_x, np.einsum("...m,ghm->...gh", h, v[f"{name}.weight_hh"]) + v.get(
        f"{name}.bias_hh", 0
    )


def gru_step(v: Values, name: str, x: Array, h: Array) -> Array:
    from_x, from_h = gates_of(v, name, x, h)
    r, z = (sigmoid(from_x[..., k, :] + from_h[..., k, :]) for k in (0, 1))
    return (1 - z) * np.tanh(from_x[..., 2, :] + r * from_h[..., 2, :]) + z * h


def rnn_step(v: Values, name: str, x: Array, h: Array) -> Array:
    return np.tanh(sum(gates_of(v, name, x, h))[..., 0, :])


def rnn_relu_step(v: Values, name: str, x: Array, h: Array) -> Array:
    return np.maximum(sum(gates_of(v, name, x, h))[..., 0, :], 0)


def recurrence(v: Values, step: Any, name: str, hidden: int, layers: int = 1) -> Array:
    y = v["x"]
    for layer in range(layers):
        hs = [v["h"] if "h" in v else np.zeros((y.shape[0], hidden))]
        for t in range(y.shape[1]):
            hs.append(step(v, f"{name}.l{layer}", y[:, t], hs[-1]))
        y = np.stack(hs[1:], 1)
    return y


STATE = {"x": (5, 2), "h": (5, 4)}
case("gru_cell", ops.gru_cell, lambda v: gru_step(v, "gru_cell", v["x"], v["h"]), STATE)
case("rnn_cell", ops.rnn_cell, lambda v: rnn_step(v, "rnn_cell", v["x"], v["h"]), STATE)
case(
    "gru", lambda x: ops.gru(x, 3)[0], lambda v: recurrence(v, gru_step, "gru", 3), {"x": (3, 3, 2)}
)
case(
    "gru of two layers without bias, in groups",
    lambda x: ops.gru(x, 2, layers=2, bias=False, group=2)[0],
    lambda v: recurrence(v, gru_step, "gru", 2, 2),
    {"x": (2, 3, 2)},
)
case(
    "rnn, the last state",
    lambda x: ops.rnn(x, 3, nonlinearity="relu")[1][0],
    lambda v: recurrence(v, rnn_relu_step, "rnn", 3)[:, -1:],
    {"x": (3, 3, 2)},
)


# -- attention ---------------------------------------------------------------------------------------------------------


def slopes_of_heads(n: int) -> list[float]:
    """`get_slopes` of the authors of ALiBi."""
    if np.log2(n).is_integer():
        start = 2 ** -(2 ** -(np.log2(n) - 3))
        return [start ** (h + 1) for h in range(n)]
    power = 2 ** int(np.log2(n))
    return slopes_of_heads(power) + slopes_of_heads(2 * power)[0::2][: n - power]


def attend(q: Array, k: Array, v: Array, is_causal: bool = False, alibi: bool = False) -> Array:
    scores = np.einsum("bqkd,btkd->bkqt", q, k) / np.sqrt(q.shape[-1])
    if alibi:
        distances = np.arange(q.shape[1])[:, None] - np.arange(k.shape[1])
        scores -= np.array(slopes_of_heads(q.shape[2]))[:, None, None] * distances
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:])) > 0, scores, -np.inf)
    return np.einsum("bkqt,btkd->bqkd", softmax(scores), v)


def attention(
    v: Values, heads: int, memory: str = "x", name: str = "attention", **options: Any
) -> Array:
    def project(what: str, x: Array) -> Array:
        return x @ v[f"{name}.{what}.weight"].T + v.get(f"{name}.{what}.bias", 0)

    def to_heads(what: str, x: Array) -> Array:
        return project(what, x).reshape(*x.shape[:2], heads, -1)

    y = attend(to_heads("q", v["x"]), to_heads("k", v[memory]), to_heads("v", v[memory]), **options)
    return project("out", y.reshape(*y.shape[:2], -1))


def of_all_heads(v: Values, times: int, width: int, name: str = "attention") -> Values:
    """The parameters of keys and values, each head of `width` rows so many times: as if no head were shared."""
    whole = dict(v)
    for key, a in v.items():
        if key.startswith((f"{name}.k.", f"{name}.v.")):
            heads = a.reshape(-1, width, *a.shape[1:])
            whole[key] = np.repeat(heads, times, axis=0).reshape(-1, *a.shape[1:])
    return whole


case(
    "scaled_dot_product_attention",
    ops.scaled_dot_product_attention,
    lambda v: attend(v["q"], v["k"], v["v"]),
    {"q": (2, 3, 2, 3), "k": (2, 4, 2, 3), "v": (2, 4, 2, 3)},
)
case(
    "scaled_dot_product_attention, causal",
    lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, is_causal=True),
    lambda v: attend(v["q"], v["k"], v["v"], True),
    {"q": (2, 5, 2, 3), "k": (2, 5, 2, 3), "v": (2, 5, 2, 3)},
)
for causal in (False, True):
    extents = (5, 5) if causal else (3, 4)

    def frugal(
        q: LogicalRegion, k: LogicalRegion, v: LogicalRegion, causal: bool = causal
    ) -> LogicalRegion:
        return ops.memory_linear_attention(q, k, v, causal)

    case(
        f"memory_linear_attention{', causal' if causal else ''}",
        frugal,
        lambda v, causal=causal: attend(v["q"], v["k"], v["v"], causal),
        {"q": (2, extents[0], 2, 3), "k": (2, extents[1], 2, 3), "v": (2, extents[1], 2, 2)},
    )
    case(
        f"fused_attention{', causal' if causal else ''}",
        lambda q, k, v, causal=causal: ops.fused_attention(q, k, v, causal),
        lambda v, causal=causal: attend(v["q"], v["k"], v["v"], causal),
        {"q": (2, extents[0], 2, 3), "k": (2, extents[1], 2, 3), "v": (2, extents[1], 2, 2)},
    )
    case(
        f"packed_attention{', causal' if causal else ''}",
        lambda q, k, v, causal=causal: ops.packed_attention(q, k, v, (2, 0, 4, 1), causal),
        lambda v, causal=causal: np.concatenate(
            [
                attend(*(v[n][None, a:b] for n in "qkv"), causal)[0]
                for a, b in ((0, 2), (2, 6), (6, 7))
            ]
        ),
        {"q": (7, 2, 3), "k": (7, 2, 3), "v": (7, 2, 2)},
    )
case(
    "multihead_attention, packed",
    lambda x: ops.multihead_attention(x, 2, is_causal=True, lengths=(0, 3, 5)),
    lambda v: np.concatenate(
        [
            attention({**v, "x": v["x"][None, a:b]}, 2, is_causal=True)[0]
            for a, b in ((0, 3), (3, 5))
        ]
    ),
    {"x": (5, 4)},
)
LABELS = np.array([[1, 2], [1, 1], [2, 0], [1, 0], [2, 1]])
FRAMES, COUNTS = [4, 4, 2, 3, 4], [2, 2, 1, 1, 2]


def aligned(v: Values) -> Array:
    """-log of the sum over all alignments of a target, one by one."""
    p, found = softmax(v["x"]), np.zeros(len(LABELS))
    for path in np.ndindex(3, 3, 3, 3):
        labels = [c for k, c in enumerate(path) if c and (k == 0 or c != path[k - 1])]
        for b, (frames, count) in enumerate(zip(FRAMES, COUNTS, strict=True)):
            if labels == LABELS[b, :count].tolist() and not any(path[frames:]):
                found[b] += p[b, range(frames), path[:frames]].prod()
    return -np.log(found)


def of_labels(x: LogicalRegion) -> LogicalRegion:
    """The loss of the labels, of samples of unequal lengths."""
    graph = x.graph
    given = {"labels": LABELS, "frames": FRAMES, "counts": COUNTS}
    return ops.ctc_loss(x, *(graph.constant(name, value, "int32") for name, value in given.items()))


case("ctc_loss", of_labels, aligned, {"x": (5, 4, 3)})
INDPTR, INDICES, WEIGHTS = [0, 2, 2, 5, 6], [3, 0, 1, 3, 2, 0], [0.5, -1.0, 2.0, 0.3, 1.5, 0.7]
TARGETS = np.repeat(np.arange(4), np.diff(INDPTR))


def on_edges(operator: Any, *args: Any, weight: Any = None, **options: Any) -> Any:
    """A call of an operator with a relation between four vertices."""

    def build(x: LogicalRegion, *more: LogicalRegion) -> LogicalRegion:
        edges = ops.edges(x.graph, INDPTR, INDICES, weight)
        return operator(x, edges, *more, *args, **options)

    return build


def summed(messages: Array) -> Array:
    found = np.zeros((4, *messages.shape[1:]))
    np.add.at(found, TARGETS, messages)
    return found


def softmax_of_edges(v: Values) -> Array:
    large = np.exp(v["x"])
    return large / summed(large)[TARGETS]


case(
    "aggregate",
    on_edges(ops.aggregate, weight=WEIGHTS),
    lambda v: summed(np.array(WEIGHTS)[:, None] * v["x"][INDICES]),
    {"x": (4, 3)},
)
case(
    "aggregate by weights and heads",
    on_edges(ops.aggregate),
    lambda v: summed(v["w"][..., None] * v["x"][INDICES]),
    {"x": (4, 2, 3), "w": (6, 2)},
)
case(
    "aggregate, mean",
    on_edges(ops.aggregate, reduce="mean"),
    lambda v: summed(v["x"][INDICES]) / np.array([2, 1, 3, 1])[:, None],
    {"x": (4, 3)},
)
case("sum_edges", on_edges(ops.sum_edges), lambda v: summed(v["x"]), {"x": (6, 3)})
case(
    "sum_edges, max",
    on_edges(ops.sum_edges, "max"),
    lambda v: np.stack([v["x"][a:b].max(0) if a < b else np.zeros(3) for a, b in pairwise(INDPTR)]),
    {"x": (6, 3)},
)
case("to_edges", on_edges(ops.to_edges), lambda v: v["x"][INDICES], {"x": (4, 3)})
case(
    "to_edges, target",
    on_edges(ops.to_edges, "target"),
    lambda v: v["x"][TARGETS],
    {"x": (4, 2, 3)},
)
case("edge_softmax", on_edges(ops.edge_softmax), softmax_of_edges, {"x": (6, 2)})
case(
    "multihead_attention, fused",
    lambda x: ops.multihead_attention(x, 2, is_causal=True, fused=True),
    lambda v: attention(v, 2, is_causal=True),
    {"x": (2, 5, 4)},
)
case(
    "multihead_attention, joined",
    lambda x: ops.multihead_attention(x, 2, is_causal=True, fused=True, joined=True),
    lambda v: attention(v, 2, is_causal=True),
    {"x": (2, 5, 4)},
)
case(
    "multihead_attention",
    lambda x: ops.multihead_attention(x, 3),
    lambda v: attention(v, 3),
    {"x": (2, 3, 6)},
)
case(
    "multihead_attention, causal without bias",
    lambda x: ops.multihead_attention(x, 2, is_causal=True, bias=False),
    lambda v: attention(v, 2, is_causal=True),
    {"x": (2, 3, 4)},
)
case(
    "repeat_heads",
    lambda x: ops.repeat_heads(x, 3),
    lambda v: np.repeat(v["x"], 3, axis=2),
    {"x": (2, 3, 2, 4)},
)
for kind in ("", ", fused"):
    case(
        f"multihead_attention, grouped queries{kind}",
        lambda x, f=bool(kind): ops.multihead_attention(x, 4, is_causal=True, kv_heads=2, fused=f),
        lambda v: attention(of_all_heads(v, 2, 2), 4, is_causal=True),
        {"x": (2, 3, 8)},
    )
for kind, causal in (
    (ops.scaled_dot_product_attention, False),
    (ops.scaled_dot_product_attention, True),
    (ops.fused_attention, True),
    (ops.memory_linear_attention, True),
):
    case(
        f"{kind.__name__}, alibi{', causal' if causal else ''}",
        lambda q, k, v, kind=kind, c=causal: kind(q, k, v, c, alibi=True),
        lambda v, c=causal: attend(v["q"], v["k"], v["v"], c, alibi=True),
        dict.fromkeys("qkv", (2, 4, 3, 2)),
    )
case(
    "packed_attention, alibi",
    lambda q, k, v: ops.packed_attention(q, k, v, (2, 0, 3), True, alibi=True),
    lambda v: np.concatenate(
        [attend(*(v[n][None, a:b] for n in "qkv"), True, True)[0] for a, b in ((0, 2), (2, 5))]
    ),
    dict.fromkeys("qkv", (5, 3, 2)),
)
for how in ({}, {"memory_linear": True}, {"lengths": (0, 5)}):
    case(
        f"multihead_attention, alibi{''.join(f', {word}' for word in how)}",
        lambda x, how=how: ops.multihead_attention(x, 3, is_causal=True, alibi=True, **how),
        lambda v: attention({**v, "x": v["x"].reshape(-1, 5, 6)}, 3, is_causal=True, alibi=True)[
            0 if v["x"].ndim == 2 else ...
        ],
        {"x": (5, 6) if "lengths" in how else (2, 5, 6)},
    )
case(
    "multihead_attention, alibi, cross, grouped queries",
    lambda x, m: ops.multihead_attention(x, 4, memory=m, kv_heads=2, fused=True, alibi=True),
    lambda v: attention(of_all_heads(v, 2, 2), 4, "m", alibi=True),
    {"x": (2, 3, 8), "m": (2, 4, 3)},
)
case(
    "multihead_attention, memory-linear",
    lambda x: ops.multihead_attention(x, 2, is_causal=True, memory_linear=True),
    lambda v: attention(v, 2, is_causal=True),
    {"x": (2, 5, 4)},
)
case(
    "multihead_attention, cross",
    lambda x, m: ops.multihead_attention(x, 2, memory=m),
    lambda v: attention(v, 2, "m"),
    {"x": (2, 3, 4), "m": (2, 4, 3)},
)
