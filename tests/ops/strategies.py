"""Hypothesis strategies: random models of the operators of `ops`, for the laws (GRAPHS in tests/mpi/test_laws.py).

Learning rates are small: a step of a normalised network may amplify rounding errors a hundredfold.
"""

from math import prod

from hypothesis import reject
from hypothesis import strategies as st

import ops
from taskflow import Graph
from tests.strategies import Model, feeds_of

POINTWISE = [ops.relu, ops.sigmoid, ops.tanh, ops.gelu]
# A bias before a softmax has a gradient of 0 but for rounding, some 1e-15: Adam divides it by no less than this.
EPS = 1e-5
OPTIMIZERS = [
    lambda loss: ops.sgd(loss, lr=0.004),
    lambda loss: ops.sgd(loss, lr=0.004, momentum=0.9),
    lambda loss: ops.sgd(loss, lr=0.004, momentum=0.8, nesterov=True, weight_decay=0.01),
    lambda loss: ops.adam(loss, lr=0.001, eps=EPS),
    lambda loss: ops.adam(loss, lr=0.001, eps=EPS, sparse=True),
    lambda loss: ops.adagrad(loss, lr=0.001, eps=EPS),
    lambda loss: ops.adamw(loss, lr=0.001, eps=EPS, weight_decay=0.1),
]


def adama(draw, batch):
    """AdamA, if all gradients are sums over samples that lie one after the other."""
    parts = draw(st.sampled_from([k for k in range(1, batch + 1) if batch % k == 0]))

    def optimize(loss):
        try:
            return ops.adama(loss, parts, lr=0.001, eps=EPS)
        except ValueError as error:
            assert str(error).startswith("by_parts: ")
            reject()

    return optimize


@st.composite
def operator_graphs(draw, steps=4):
    """Models with an optimizer: images, tokens or rows; fan-out, odd extents, batches that no degree divides."""
    graph = Graph()
    batch = draw(st.integers(1, 7))
    pool = [draw(st.sampled_from([_image, _tokens, _rows]))(draw, graph, batch)]
    for _ in range(draw(st.integers(1, steps))):
        pool.append(_grow(draw, pool))
    unread = [r for r in pool if not any(r is x for op in graph.operators for x in op.inputs)]
    loss = None
    for region in unread:
        one = _loss(draw, graph, region)
        loss = one if loss is None else ops.add(loss, one)
    for parameter, gradient in draw(st.sampled_from([*OPTIMIZERS, adama(draw, batch)]))(
        loss
    ).items():
        graph.output(f"gradient of {parameter.name}", gradient)
    return Model(graph, feeds_of(graph, classes=2))


def _image(draw, graph, batch):
    shape = (batch, draw(st.integers(1, 3)), draw(st.integers(3, 7)), draw(st.integers(3, 7)))
    x = graph.input("x", shape, "float64")
    return ops.conv2d(x, draw(st.integers(1, 5)), 3, padding=1) if draw(st.booleans()) else x


def _tokens(draw, graph, batch):
    tokens = graph.input("tokens", (batch, draw(st.integers(1, 5))), "int32")
    return ops.embedding(
        tokens, draw(st.sampled_from([2, 3, 5, 7, 40])), draw(st.integers(1, 6)), dtype="float64"
    )


def _rows(draw, graph, batch):
    return graph.input("x", (batch, draw(st.integers(1, 9))), "float64")


def _grow(draw, pool):
    x = draw(st.sampled_from(pool))
    kind = draw(
        st.sampled_from(
            ["pointwise", "combine", "dense", "norm", "shape", "dropout", "concat", "softmax"]
        )
    )
    if kind == "pointwise":
        return draw(st.sampled_from(POINTWISE))(x)
    if kind == "combine":
        return _combine(draw, x, pool)
    if kind == "dense":
        return (
            _spatial(draw, x)
            if x.ndim == 4
            else ops.linear(x, draw(st.integers(1, 7)), bias=draw(st.booleans()))
        )
    if kind == "norm":
        values = prod(x.shape) // x.shape[1] if x.ndim in (2, 4) else 1  # per channel
        if values == 1 or draw(st.booleans()):
            return ops.layer_norm(x)
        parts = [
            n
            for n in range(1, x.shape[0] + 1)
            if x.shape[0] % n == 0 and (n == 1 or values > 2 * n)
        ]
        return ops.batch_norm(x, parts=draw(st.sampled_from(parts)))
    if kind == "shape":
        return _reshape(draw, x)
    if kind == "dropout":
        return ops.dropout(x, draw(st.sampled_from([0.25, 0.5])))
    if kind == "concat":
        return ops.concat(
            [x, *(r for r in pool if r.shape == x.shape)][:3], draw(st.integers(0, x.ndim - 1))
        )
    return ops.softmax(x)


def _combine(draw, x, pool):
    operator = draw(st.sampled_from([ops.add, ops.multiply, ops.subtract]))
    others = [r for r in pool if r.shape == x.shape]
    if operator is ops.multiply:
        x = ops.tanh(x)  # a product of products grows beyond all bounds in a few steps
    if draw(st.booleans()):
        small = tuple(draw(st.sampled_from([1, n])) for n in x.shape[1:])
        return operator(x, ops.sum_to(x, small))
    return operator(x, draw(st.sampled_from(others)))


def _spatial(draw, x):
    kind = draw(st.sampled_from(["conv", "grouped", "max", "average"]))
    stride = draw(st.integers(1, 2))
    if min(x.shape[2:]) < 2 or kind == "conv":
        size = draw(st.integers(1, 3)) if min(x.shape[2:]) > 2 else 1
        dilation = 2 if size == 2 and min(x.shape[2:]) > 3 and draw(st.booleans()) else 1
        return ops.conv2d(x, draw(st.integers(1, 5)), size, stride, size // 2, dilation)
    if kind == "grouped":
        return ops.conv2d(
            x, x.shape[1] * draw(st.integers(1, 2)), 2, stride, groups=x.shape[1], bias=False
        )
    pool = ops.max_pool2d if kind == "max" else ops.avg_pool2d
    return pool(x, 2, stride, draw(st.integers(0, 1)))


def _reshape(draw, x):
    if x.ndim > 2 and draw(st.booleans()):
        return ops.flatten(x)
    if draw(st.booleans()):
        return ops.permute(x, draw(st.permutations(range(x.ndim))))
    even = next((n for n in range(2, x.shape[-1]) if x.shape[-1] % n == 0), 1)
    return ops.reshape(x, (*x.shape[:-1], even, x.shape[-1] // even))


def _loss(draw, graph, x):
    flat = ops.flatten(x) if x.ndim > 1 else ops.reshape(x, (x.shape[0], 1))
    if flat.shape[1] > 1 and draw(st.booleans()):
        return ops.softmax_cross_entropy(
            flat, graph.input(f"{x.name} classes", flat.shape[:1], "int32")
        )
    return ops.mse_loss(flat, graph.input(f"{x.name} target", flat.shape, "float64"))
