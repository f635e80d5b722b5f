"""The model of all plans: a small transformer in float64, which no plan changes.

Words are embedded, go through blocks of attention and a feed-forward part, and are scored against the embedding, as in
mBART. With `passes` above one, the blocks are applied again to the sum of the embedded words and what the pass before
made, and the backward pass goes through the last one alone: the recycling of AlphaFold.

Axes: b samples, s and t positions, e features, h heads, d features of a head, o hidden units, v words.
"""

from dataclasses import replace

import numpy as np

import ops
from taskflow import Graph, LogicalRegion

SEED = 0


def build(
    batch: int = 16,
    length: int = 8,
    blocks: int = 4,
    features: int = 16,
    heads: int = 4,
    hidden: int = 64,
    words: int = 64,
    passes: int = 1,
) -> Graph:
    """Words `x` and those that follow them `t`, (batch, length) each; block k of a pass but the last is `k.pass`."""
    graph = Graph()
    x, t = (replace(graph.input(name, (batch, length), "int32"), axes=("b", "s")) for name in "xt")
    first = h = ops.embedding(
        x, words, features, name="embed", dtype="float64", weight_init=ops.normal(0.0, 0.1)
    )
    for number in range(passes):
        suffix = "" if number == passes - 1 else f".pass{number}"
        for k in range(blocks):
            h = block(h, f"block{k}", suffix, (heads, features // heads, hidden))
        if suffix:
            h = ops.add(first, stop(h, f"stop{suffix}"), name=f"recycle{suffix}")
    h = ops.layer_norm(h, name="norm")
    y = ops.einsum("bse,ve->bsv", h, graph.regions["embed.weight"], name="scores")
    loss = ops.softmax_cross_entropy(y, t, name="loss")
    ops.adam(loss, lr=1e-2)
    return graph


def block(x: LogicalRegion, name: str, suffix: str, sizes: tuple[int, int, int]) -> LogicalRegion:
    """x + attention(x), and that + feed-forward of it; passes share the weights."""
    (heads, each, hidden), features = sizes, x.shape[-1]

    def product(equation: str, x: LogicalRegion, part: str, *shape: int) -> LogicalRegion:
        return ops.einsum(
            equation,
            x,
            weight(x.graph, f"{name}.{part}.weight", shape),
            name=f"{name}.{part}{suffix}",
        )

    q, k, v = (product("bse,hde->bshd", x, part, heads, each, features) for part in "qkv")
    seen = ops.einsum("bshd,bthd->bhst", q, k, name=f"{name}.seen{suffix}")
    seen = ops.softmax(seen, name=f"{name}.softmax{suffix}")
    mixed = ops.einsum("bhst,bthd->bshd", seen, v, name=f"{name}.mixed{suffix}")
    x = ops.add(
        x,
        product("bshd,ehd->bse", mixed, "out", features, heads, each),
        name=f"{name}.add1{suffix}",
    )
    h = ops.gelu(
        product("bse,oe->bso", x, "up", hidden, features), "tanh", name=f"{name}.gelu{suffix}"
    )
    return ops.add(
        x, product("bso,eo->bse", h, "down", features, hidden), name=f"{name}.add2{suffix}"
    )


def weight(graph: Graph, name: str, shape: tuple[int, ...]) -> LogicalRegion:
    """A parameter, or the one of this name."""
    known = graph.regions.get(name)
    return graph.parameter(name, shape, ops.normal(0.0, 0.1), "float64") if known is None else known


def stop(x: LogicalRegion, name: str) -> LogicalRegion:
    """The same numbers, through which no gradient goes back."""

    def kernel(ctx, x, y):
        ctx.xp.copyto(y, x)

    b, s, e = x.axes
    return x.graph.launch(
        name, f"{b} {s} {e} -> {b} {s} {e}", [x], kernel=kernel, backward=lambda op, gy: None
    )


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    """Random words."""
    words, random = graph.regions["embed.weight"].shape[0], np.random.default_rng(SEED)
    return {
        region.name: random.integers(0, words, region.shape, np.int32) for region in graph.inputs
    }
