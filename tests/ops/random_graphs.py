"""Random graphs over the whole of `ops`, for laws that hold for every graph: all operators, groups, transposes, heads.

`random_graph(seed)` has an optimizer. Such graphs are lowered and judged, never run: their values may be anything.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

import ops
from taskflow import Context, Graph, LogicalRegion

MOST_POINTS = 4096  # of a region: larger ones are reduced before they grow

Builder = Callable[["Maker", LogicalRegion], LogicalRegion]


class Maker:
    """A graph that grows, and random numbers."""

    def __init__(self, seed: int) -> None:
        self.graph, self.generator = Graph(), np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self.generator.integers(low, high + 1))

    def chance(self, p: float = 0.5) -> bool:
        return bool(self.generator.random() < p)

    def pick(self, some: Sequence[Any]) -> Any:
        return some[self.number(0, len(some) - 1)]

    def dim(self, x: LogicalRegion) -> int:
        return self.number(0, x.ndim - 1)

    def divisor(self, n: int) -> int:
        return int(self.pick([k for k in range(1, n + 1) if n % k == 0]))

    def input(self, shape: Sequence[int], dtype: str = "float32") -> LogicalRegion:
        return self.graph.input(f"x{len(self.graph.inputs)}", shape, dtype)

    def name(self, base: str) -> str:
        return f"{base}{len(self.graph.operators)}"

    def output(self, x: LogicalRegion) -> None:
        self.graph.output(x.name, x)

    def like(self, x: LogicalRegion) -> LogicalRegion:
        """A region of the shape of `x`, sometimes with dimensions that are broadcast."""
        if self.chance(0.4):
            return ops.tanh(x)
        return self.input([1 if self.chance(0.2) else n for n in x.shape])


# -- shapes ------------------------------------------------------------------------------------------------------------


def factors(n: int) -> list[int]:
    for k in range(2, n + 1):
        if n % k == 0:
            return [k, *factors(n // k)]
    return []


def any_shape(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """The factors of the extents, in order or in any, between new borders."""
    found = [f for n in x.shape for f in factors(n)]
    if m.chance(0.2):
        m.generator.shuffle(found)
    borders = sorted(m.number(0, len(found)) for _ in range(m.number(0, 3)))
    ends = zip([0, *borders], [*borders, len(found)], strict=True)
    return ops.reshape(x, [prod(found[a:b]) for a, b in ends])


def merge(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """Two adjacent dimensions become one: `(s b)`."""
    k = m.number(0, x.ndim - 2)
    return ops.reshape(x, (*x.shape[:k], x.shape[k] * x.shape[k + 1], *x.shape[k + 2 :]))


def part(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """A dimension falls in two: `(h d) -> h d`."""
    k = m.dim(x)
    left = m.divisor(x.shape[k])
    return ops.reshape(x, (*x.shape[:k], left, x.shape[k] // left, *x.shape[k + 1 :]))


def turn(m: Maker, x: LogicalRegion) -> LogicalRegion:
    return ops.permute(x, m.generator.permutation(x.ndim).tolist())


def time_major(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """(b, s, ...) -> (s b, ...): the batch is no leftmost axis any more."""
    x = ops.permute(x, (1, 0, *range(2, x.ndim)))
    return ops.linear(ops.reshape(x, (-1, *x.shape[2:])), m.number(1, 8))


def heads_in_batch(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """(b, s, h d) -> (b h, s, d) -> softmax -> back."""
    (b, s, f), h = x.shape, m.divisor(x.shape[2])
    y = ops.reshape(
        ops.permute(ops.reshape(x, (b, s, h, f // h)), (0, 2, 1, 3)), (b * h, s, f // h)
    )
    y = ops.reshape(ops.softmax(y), (b, h, s, f // h))
    return ops.reshape(ops.permute(y, (0, 2, 1, 3)), (b, s, f))


def patches(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """A vision transformer's: (n, c, h, w) -> (n, 1 + h w, c), and its head on the first of them."""
    n, c, h, w = x.shape
    tokens = ops.permute(ops.reshape(x, (n, c, h * w)), (0, 2, 1))
    first = ops.expand(m.graph.parameter(m.name("first"), (1, c)), (n, 1, c))
    tokens = ops.concat([first, tokens], 1)
    if m.chance():
        return tokens
    return ops.linear(ops.reshape(ops.slice(tokens, 1, 0, 1), (n, c)), m.number(1, 8))


def counted(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """A state adds up columns in place: along all other axes it cannot be split."""

    def kernel(ctx: Context, x: Any, state: Any) -> None: ...

    axes = [f"a{k}" for k in range(x.ndim)]
    state = m.graph.parameter(m.name("sums"), x.shape[-1:], trainable=False)
    m.graph.launch(
        "count", f"{' '.join(axes)}, {axes[-1]} ->", [x, state], kernel=kernel, writes=[state]
    )
    return ops.relu(x)


def accumulated(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """The same, of a dimension that is made of two."""

    def kernel(ctx: Context, x: Any, state: Any) -> None: ...

    left = m.divisor(x.shape[0])
    state = m.graph.parameter(m.name("sums"), (x.shape[0] // left,), trainable=False)
    rest = " ".join(f"a{k}" for k in range(1, x.ndim))
    pattern = f"(s b) {rest}, b ->"
    m.graph.launch("add up", pattern, [x, state], kernel=kernel, writes=[state], sizes={"s": left})
    return ops.relu(x)


# -- operators ---------------------------------------------------------------------------------------------------------


def attention(m: Maker, x: LogicalRegion) -> LogicalRegion:
    options = m.pick([{}, {"fused": True}, {"memory_linear": True}, {"dropout_p": 0.1}])
    memory = m.input((x.shape[0], m.number(1, 6), m.number(1, 6))) if m.chance(0.3) else None
    is_causal, name = m.chance() and memory is None, m.name("attention")
    return ops.multihead_attention(
        x, m.divisor(x.shape[2]), memory, is_causal, name=name, **options
    )


def routed(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """A mixture of experts by its parts."""
    experts, k, groups = m.number(2, 4), m.number(1, 2), m.divisor(x.shape[0])
    scores = ops.linear(x, experts)
    p = ops.softmax(scores)
    if m.chance():
        weights, choices = ops.top_k_gate(p, k)
    else:
        gate = ops.dense_to_sparse_gate(scores, k, threshold=0.4, name=m.name("gate"))
        weights, choices, _ = gate
    capacity = m.number(1, 3)
    slots = ops.expert_slots(choices, experts, capacity, groups)
    m.output(ops.count_dropped(slots))
    m.output(ops.expert_load(choices, experts))
    h = ops.expert_linear(
        ops.dispatch(x, slots, experts, capacity, groups), x.shape[-1], m.chance()
    )
    y = ops.combine(h, slots, weights, groups)
    return ops.add(y, ops.load_balance_loss(p, choices)) if m.chance() else y


def mixture(m: Maker, x: LogicalRegion) -> LogicalRegion:
    y, balance = ops.mixture_of_experts(
        x,
        m.number(2, 4),
        m.number(1, 6),
        m.number(1, 2),
        m.pick([1.25, None]),
        groups=m.divisor(x.shape[0]),
        gated=m.chance(),
    )
    return ops.add(y, balance)


def steps(operator: Any, m: Maker, x: LogicalRegion) -> LogicalRegion:
    hs, _ = operator(ops.split(x, 1, 1), m.number(1, 6), layers=m.number(1, 2))
    return ops.concat(hs, 1)


def cell(operator: Any, states: int, m: Maker, x: LogicalRegion) -> LogicalRegion:
    extent = m.number(1, 6)
    made = operator(x, *(m.input((x.shape[0], extent)) for _ in range(states)), name=m.name("cell"))
    return made[0] if isinstance(made, tuple) else made


def pool(operator: Any, m: Maker, x: LogicalRegion) -> LogicalRegion:
    size = min(2, *x.shape[2:])
    return operator(x, size, m.number(1, 2), m.number(0, size - 1))


def compared(operator: Any, m: Maker, x: LogicalRegion) -> LogicalRegion:
    return ops.where(operator(x, m.like(x)), x, m.number(0, 1))


def looked_up(m: Maker, x: LogicalRegion) -> LogicalRegion:
    found = ops.embedding(ops.argmax(x, m.dim(x), m.chance()), max(x.shape), m.number(1, 6))
    return ops.add(found, ops.mean(x))  # which x has a gradient through


def bag(m: Maker, x: LogicalRegion) -> LogicalRegion:
    indices = m.input((*x.shape[:-1], 3), "int32")
    return ops.embedding_bag(indices, m.number(2, 8), m.number(1, 6), mode=m.pick(["sum", "mean"]))


def gathered(m: Maker, x: LogicalRegion) -> LogicalRegion:
    k = m.dim(x)
    return ops.gather(x, k, m.input((*x.shape[:k], m.number(1, 5), *x.shape[k + 1 :]), "int32"))


def sections(m: Maker, x: LogicalRegion) -> LogicalRegion:
    k = m.dim(x)
    return m.pick(ops.split(x, m.number(1, x.shape[k]), k))


def cut(m: Maker, x: LogicalRegion) -> LogicalRegion:
    k = m.dim(x)
    start = m.number(0, x.shape[k] - 1)
    return ops.slice(x, k, start, m.number(start + 1, x.shape[k]))


def expanded(m: Maker, x: LogicalRegion) -> LogicalRegion:
    return ops.expand(
        ops.unsqueeze(x, k := m.number(0, x.ndim)), (*x.shape[:k], m.number(1, 3), *x.shape[k:])
    )


def turned(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """Rotary heads of an even number of features."""
    even = ops.linear(x, 2 * m.number(1, 3))
    scaling = ops.RotaryScaling(4.0, 0.5, m.number(0, 1), -0.25, 1.25) if m.chance() else None
    return ops.rotary_embedding(
        ops.unsqueeze(even, 2) if m.chance() else even, interleaved=m.chance(), scaling=scaling
    )


def scores(operator: Any, m: Maker, x: LogicalRegion) -> LogicalRegion:
    (b, _, h, d), keys = x.shape, m.number(1, 5)
    if m.chance():
        return operator(x, ops.relu(x), ops.tanh(x), is_causal=True)
    return operator(x, m.input((b, keys, h, d)), m.input((b, keys, h, d)))


def related(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """Over random edges, with or without messages, which may be shares of what leads to a vertex."""
    count = m.generator.integers(0, 4, x.shape[0])
    count[m.number(0, len(count) - 1)] += 1
    indptr = [0, *count.cumsum().tolist()]
    edges = ops.edges(m.graph, indptr, m.generator.integers(0, x.shape[0], indptr[-1]))
    reduce = m.pick(["sum", "mean", "max"])
    if m.chance():
        return ops.aggregate(x, edges, reduce=reduce)
    message = ops.to_edges(x, edges, m.pick(["source", "target"]))
    is_share = x.ndim == 2 and m.chance()
    message = ops.edge_softmax(message, edges) if is_share else ops.tanh(message)
    return ops.sum_edges(message, edges, reduce)


def packed(m: Maker, x: LogicalRegion) -> LogicalRegion:
    """Over documents between random borders."""
    borders = sorted(m.number(0, x.shape[0]) for _ in range(m.number(0, 3)))
    return ops.packed_attention(x, ops.tanh(x), m.input(x.shape), [0, *borders, x.shape[0]])


def added(operator: Any, m: Maker, x: LogicalRegion) -> LogicalRegion:
    """Something to the points of a dimension that an index names."""
    dim, picks = m.dim(x), m.number(1, 4)
    shape = [picks if k == dim else n for k, n in enumerate(x.shape)]
    index = m.input(shape if operator is ops.scatter_add else (picks,), "int32")
    return operator(x, dim, index, m.input(shape))


def product(m: Maker, x: LogicalRegion) -> LogicalRegion:
    equation = m.pick(["bsd,bsd->bs", "bsd,bsd->sd", "bsd,bsd->db"])
    return ops.einsum(equation, x, ops.tanh(x))


def reduced(operator: Any, m: Maker, x: LogicalRegion) -> LogicalRegion:
    return operator(x, m.dim(x), m.chance())


ONE = [
    ops.abs,
    ops.ceil,
    ops.celu,
    ops.clip,
    ops.cos,
    ops.elu,
    ops.erf,
    ops.exp,
    ops.expm1,
    ops.floor,
    ops.gelu,
    ops.hardsigmoid,
    ops.hardswish,
    ops.hardtanh,
    ops.leaky_relu,
    ops.log,
    ops.log1p,
    ops.logsigmoid,
    ops.mish,
    ops.relu,
    ops.relu6,
    ops.round,
    ops.rsqrt,
    ops.selu,
    ops.sigmoid,
    ops.sign,
    ops.silu,
    ops.sin,
    ops.softplus,
    ops.softsign,
    ops.sqrt,
    ops.tanh,
    ops.trunc,
]
TWO = [ops.add, ops.subtract, ops.multiply, ops.divide, ops.maximum, ops.minimum, ops.pow]
COMPARE = [ops.equal, ops.greater, ops.greater_equal, ops.less, ops.less_equal, ops.not_equal]
LOGIC = [ops.logical_and, ops.logical_or]
POOLS = [ops.max_pool3d, ops.avg_pool3d]
REDUCE = [ops.sum, ops.mean, ops.max, ops.min]
DROPS = [ops.dropout1d, ops.dropout2d, ops.dropout3d]
STEPS = [ops.lstm_steps, ops.gru_steps, ops.rnn_steps]
# Name -> the least and most dimensions of the region, and how it grows.
BUILDERS: dict[str, tuple[int, int, Builder]] = {
    **{f.__name__: (1, 5, lambda m, x, f=f: f(x)) for f in ONE},
    **{f.__name__: (1, 5, lambda m, x, f=f: f(x, m.like(x))) for f in TWO},
    **{f.__name__: (1, 5, partial(compared, f)) for f in (*COMPARE, *LOGIC)},
    "logical_not": (1, 5, lambda m, x: ops.where(ops.logical_not(x), x, 0)),
    "detach": (1, 5, lambda m, x: ops.add(x, ops.detach(ops.tanh(x)))),
    "prelu": (2, 5, lambda m, x: ops.prelu(x, m.pick([1, x.shape[1]]))),
    **{f.__name__: (2, 5, partial(reduced, f)) for f in REDUCE},
    "any shape": (1, 5, any_shape),
    "merge": (2, 5, merge),
    "part": (1, 4, part),
    "turn": (2, 5, turn),
    "time major": (3, 4, time_major),
    "heads in batch": (3, 3, heads_in_batch),
    "patches": (4, 4, patches),
    "counted": (2, 4, counted),
    "accumulated": (2, 4, accumulated),
    "flatten": (
        2,
        5,
        lambda m, x: ops.flatten(x, k := m.number(0, x.ndim - 2), m.number(k + 1, x.ndim - 1)),
    ),
    "sum_to": (
        2,
        5,
        lambda m, x: ops.sum_to(x, [m.pick([1, n]) for n in x.shape[m.number(0, 1) :]]),
    ),
    "linear": (
        1,
        4,
        lambda m, x: ops.linear(x, m.number(1, 8), activation=m.pick([None, "relu", "gelu_tanh"])),
    ),
    "feed_forward": (1, 4, lambda m, x: ops.feed_forward(x, m.number(1, 8))),
    "matmul": (2, 4, lambda m, x: ops.matmul(x, m.input((x.shape[-1], m.number(1, 6))))),
    "bmm": (3, 3, lambda m, x: ops.bmm(x, m.input((x.shape[0], x.shape[2], m.number(1, 6))))),
    "einsum": (3, 3, product),
    "dot_interaction": (2, 2, lambda m, x: ops.dot_interaction([x, ops.tanh(x), ops.relu(x)])),
    "conv1d": (3, 3, lambda m, x: ops.conv1d(x, m.number(1, 6), min(3, x.shape[2]), padding=1)),
    "conv2d": (
        4,
        4,
        lambda m, x: ops.conv2d(x, m.number(1, 6), min(3, *x.shape[2:]), m.number(1, 2), 1),
    ),
    "grouped": (4, 4, lambda m, x: ops.conv2d(x, 2 * x.shape[1], 1, groups=m.divisor(x.shape[1]))),
    "conv3d": (5, 5, lambda m, x: ops.conv3d(x, m.number(1, 4), min(2, *x.shape[2:]))),
    "conv_transpose1d": (
        3,
        3,
        lambda m, x: ops.conv_transpose1d(x, m.number(1, 4), 2, m.number(1, 2)),
    ),
    "conv_transpose2d": (
        4,
        4,
        lambda m, x: ops.conv_transpose2d(x, m.number(1, 4), 2, m.number(1, 2)),
    ),
    "interpolate": (
        4,
        4,
        lambda m, x: ops.interpolate(x, m.number(1, 6), m.pick(["nearest", "bilinear"])),
    ),
    **{f.__name__: (5, 5, partial(pool, f)) for f in POOLS},
    "adaptive_avg_pool3d": (5, 5, lambda m, x: ops.adaptive_avg_pool3d(x, m.number(1, 3))),
    "instance_norm": (3, 4, lambda m, x: ops.instance_norm(x, affine=m.chance())),
    "max_pool2d": (4, 4, partial(pool, ops.max_pool2d)),
    "avg_pool2d": (4, 4, partial(pool, ops.avg_pool2d)),
    "adaptive_avg_pool2d": (4, 4, lambda m, x: ops.adaptive_avg_pool2d(x, m.number(1, 3))),
    "adaptive_max_pool2d": (4, 4, lambda m, x: ops.adaptive_max_pool2d(x, m.number(1, 3))),
    "global_avg_pool2d": (4, 4, lambda m, x: ops.global_avg_pool2d(x)),
    "global_max_pool2d": (4, 4, lambda m, x: ops.global_max_pool2d(x)),
    "batch_norm": (2, 2, lambda m, x: ops.batch_norm(ops.concat([x, x], 0))),
    "batch_norm of images": (4, 4, lambda m, x: ops.batch_norm(ops.concat([x, x], 0))),
    "batch_norm of parts": (
        2,
        2,
        lambda m, x: ops.batch_norm(ops.concat([x, x], 0), parts=m.divisor(x.shape[0])),
    ),
    "group_norm": (2, 4, lambda m, x: ops.group_norm(x, m.divisor(x.shape[1]))),
    "layer_norm": (1, 4, lambda m, x: ops.layer_norm(x, composed=m.chance())),
    "rms_norm": (1, 4, lambda m, x: ops.rms_norm(x)),
    "softmax": (1, 5, lambda m, x: ops.softmax(x, m.dim(x), composed=m.chance())),
    "log_softmax": (1, 5, lambda m, x: ops.log_softmax(x, m.dim(x))),
    "dropout": (1, 5, lambda m, x: ops.dropout(x, 0.3)),
    **{f.__name__: (n, n, lambda m, x, f=f: f(x, 0.3)) for n, f in enumerate(DROPS, 3)},
    "topk": (1, 4, lambda m, x: ops.topk(x, m.number(1, x.shape[-1]))[0]),
    "argmax": (2, 4, looked_up),
    "argmin": (
        1,
        4,
        lambda m, x: ops.add(x, ops.cast(ops.argmin(x, m.dim(x), keepdim=True), x.dtype)),
    ),
    "max_pool1d": (3, 3, lambda m, x: ops.max_pool1d(x, min(2, x.shape[2]), 1)),
    "avg_pool1d": (3, 3, lambda m, x: ops.avg_pool1d(x, min(2, x.shape[2]), 1)),
    "embedding_bag": (2, 3, bag),
    "gather": (1, 4, gathered),
    "gather_rows": (
        3,
        3,
        lambda m, x: ops.gather_rows(x, m.input((x.shape[0], m.number(1, 5)), "int32")),
    ),
    "position_embedding": (3, 3, lambda m, x: ops.position_embedding(x)),
    "scatter_add": (1, 4, partial(added, ops.scatter_add)),
    "index_add": (1, 4, partial(added, ops.index_add)),
    "sort": (1, 4, lambda m, x: ops.sort(x, m.dim(x), m.chance())[0]),
    "argsort": (1, 4, lambda m, x: ops.add(x, ops.cast(ops.argsort(x, m.dim(x)), x.dtype))),
    "one_hot": (
        1,
        3,
        lambda m, x: ops.one_hot(m.input(x.shape, "int32"), m.number(2, 5), dtype="float32"),
    ),
    "unfold": (4, 4, lambda m, x: ops.unfold(x, min(2, *x.shape[2:]), padding=m.number(0, 1))),
    "fold": (3, 3, lambda m, x: ops.fold(ops.permute(x, (0, 1, 2)), (1, x.shape[2]), 1)),
    "cast": (1, 5, lambda m, x: ops.cast(ops.cast(x, "float64"), "float32")),
    "squeeze": (1, 5, lambda m, x: ops.squeeze(ops.unsqueeze(x, m.number(0, x.ndim)))),
    "expand": (1, 4, expanded),
    "concat": (
        1,
        4,
        lambda m, x: ops.concat([x, ops.tanh(x), m.input(x.shape)][: m.number(2, 3)], m.dim(x)),
    ),
    "pad": (1, 4, lambda m, x: ops.pad(x, (m.number(0, 2), m.number(0, 2)))),
    "flip": (1, 4, lambda m, x: ops.flip(x, m.dim(x))),
    "slice": (1, 4, cut),
    "split": (1, 4, sections),
    "multihead_attention": (3, 3, attention),
    "scaled_dot_product_attention": (4, 4, partial(scores, ops.scaled_dot_product_attention)),
    "fused_attention": (4, 4, partial(scores, ops.fused_attention)),
    "related": (2, 3, related),
    "packed_attention": (3, 3, packed),
    "memory_linear_attention": (4, 4, partial(scores, ops.memory_linear_attention)),
    "rotary_embedding": (3, 3, turned),
    "mixture_of_experts": (2, 3, mixture),
    "routed": (2, 3, routed),
    "lstm": (
        3,
        3,
        lambda m, x: ops.lstm(x, m.number(1, 6), fused=m.pick([False, True]))[0],
    ),
    "gru": (3, 3, lambda m, x: ops.gru(x, m.number(1, 6), group=m.number(1, 2))[0]),
    "rnn": (3, 3, lambda m, x: ops.rnn(x, m.number(1, 6))[0]),
    **{f.__name__: (3, 3, partial(steps, f)) for f in STEPS},
    "lstm_cell": (2, 2, partial(cell, ops.lstm_cell, 2)),
    "gru_cell": (2, 2, partial(cell, ops.gru_cell, 1)),
    "rnn_cell": (2, 2, partial(cell, ops.rnn_cell, 1)),
}

LOSSES = [
    ops.mse_loss,
    ops.l1_loss,
    ops.huber_loss,
    ops.smooth_l1_loss,
    lambda x, t: ops.kl_div(x, ops.sigmoid(t)),
    ops.root_mean_squared_error,
    ops.binary_cross_entropy_with_logits,
    lambda x, t: ops.binary_cross_entropy(ops.sigmoid(x), t),
]
OPTIMIZERS = [
    lambda loss: ops.sgd(loss, 0.1),
    lambda loss: ops.sgd(loss, 0.1, 0.9, clip_norm=1.0),
    ops.adam,
    ops.adamw,
    partial(ops.adama, parts=2),
    ops.adagrad,
    ops.rmsprop,
    ops.lamb,
]


def random_graph(seed: int, steps: int = 6) -> Graph:
    """A graph of about `steps` operators of `ops` with a loss and an optimizer."""
    try:
        return _random_graph(seed, steps, OPTIMIZERS)
    except ValueError as error:  # a gradient is no sum over samples, or these are odd
        assert str(error).startswith("by_parts: ")
        return _random_graph(seed, steps, [ops.adam])


def _random_graph(seed: int, steps: int, optimizers: Sequence[Any]) -> Graph:
    m = Maker(seed)
    shape = [m.number(1, 8) for _ in range(m.number(2, 4))]
    pool = [ops.linear(m.input(shape), m.number(1, 8))]
    for _ in range(m.number(2, steps)):
        x = pool[-1] if m.chance(0.7) else m.pick(pool)
        if prod(x.shape) > MOST_POINTS:
            x = ops.mean(x, m.dim(x))
        if not x.ndim:
            x = ops.reshape(x, (1,))
        fitting = [build for low, high, build in BUILDERS.values() if low <= x.ndim <= high]
        pool.append(m.pick(fitting)(m, x))
    read = {r.name for op in m.graph.operators for r in op.inputs}
    losses = [_loss(m, x) for x in pool if x.name not in read]
    loss = losses[0]
    for other in losses[1:]:
        loss = ops.add(loss, other)
    m.pick(optimizers)(loss)
    return m.graph


def logs(x: LogicalRegion, t: LogicalRegion) -> LogicalRegion:
    return ops.nll_loss(ops.log_softmax(x), t)


def _loss(m: Maker, x: LogicalRegion) -> LogicalRegion:
    if x.ndim < 2 or m.chance():
        return m.pick(LOSSES)(x, m.input(x.shape))
    t = m.input(x.shape[:-1], "int32")
    loss = m.pick([ops.softmax_cross_entropy, ops.cross_entropy, logs])(x, t)
    m.output(ops.accuracy(x, t))
    m.output(ops.top_k_accuracy(x, t, m.number(1, x.shape[-1])))
    m.output(ops.perplexity(loss))
    return loss
