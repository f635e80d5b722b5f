"""Parts that the families share: attention, layers between, masks by position, the end of a language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

import ops
from ops.attention.heads import project_from_heads, project_to_heads
from taskflow import Array, Context, Graph, Kernel, LogicalRegion

Turn = Callable[[LogicalRegion, str], LogicalRegion]
ACTIVATIONS: Mapping[str, Callable[..., LogicalRegion]] = {
    "gelu": ops.gelu,
    "gelu_new": partial(ops.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(ops.gelu, approximate="tanh"),
    "relu": ops.relu,
    "silu": ops.silu,
    "tanh": ops.tanh,
}


@dataclass(frozen=True)
class Attention:
    """Attention of a family: extents, biases, and the names of its four projections.

    Attributes:
        heads, key_heads: of queries, and of keys and values, each of which serves equally many of the former.
        features: of a head.
        names: of the projections q, k, v and out.
        bias, out_bias: whether the projections to heads, and from them, have one.
        dropout: of the weights, 0 where nothing is trained.
        scale: of the scores; None: 1 / sqrt(features).
        fused: whether it is one operator where there is neither mask nor dropout.
        turn: of queries and keys, by their name; None: they are as projected.
    """

    heads: int
    key_heads: int
    features: int
    names: tuple[str, str, str, str]
    bias: bool = True
    out_bias: bool = True
    dropout: float = 0.0
    scale: float | None = None
    fused: bool = True
    turn: Turn | None = None

    def __call__(
        self,
        x: LogicalRegion,
        name: str,
        memory: LogicalRegion | None = None,
        is_causal: bool = False,
        mask: LogicalRegion | None = None,
    ) -> LogicalRegion:
        """Of `x` (batch, queries, hidden); the operators are called `<name>.<part>`."""
        q, k, v = self._projected(x, x if memory is None else memory, name)
        if self.fused and mask is None and not self.dropout:
            y = ops.fused_attention(q, k, v, is_causal, f"{name}.scores", scale=self.scale)
        else:
            y = ops.scaled_dot_product_attention(
                q,
                k,
                v,
                is_causal,
                self.dropout,
                name=f"{name}.scores",
                mask=mask,
                scale=self.scale,
            )
        return project_from_heads(y, x.shape[2], self.out_bias, f"{name}.{self.names[3]}")

    def _projected(
        self, x: LogicalRegion, source: LogicalRegion, name: str
    ) -> tuple[LogicalRegion, LogicalRegion, LogicalRegion]:
        """Queries of `x`, keys and values of `source`; these follow the queries unless they have fewer heads."""
        q_name, k_name, v_name = (f"{name}.{part}" for part in self.names[:3])
        q = self._heads(x, self.heads, q_name, f"{name}.q")
        with nullcontext() if self.key_heads < self.heads else x.graph.following(q_name):
            k = self._heads(source, self.key_heads, k_name, f"{name}.k")
            return q, k, self._heads(source, self.key_heads, v_name)

    def _heads(
        self, x: LogicalRegion, heads: int, name: str, turned: str | None = None
    ) -> LogicalRegion:
        """Projected by `name` and, if they are `turned`, turned; as many as there are of queries."""
        h = project_to_heads(x, heads, self.features, self.bias, name)
        with x.graph.following(name):
            if turned is not None and self.turn is not None:
                h = self.turn(h, turned)
            return ops.repeat_heads(h, self.heads // heads, f"{name}.repeated")


def gated(
    x: LogicalRegion,
    hidden: int,
    activation: str,
    name: str,
    names: str,
    bias: bool = False,
) -> LogicalRegion:
    """down(activation(gate x) up x): Shazeer 2020, arXiv 2002.05202; `names` of gate, up and down."""
    gate, up, down = (f"{name}.{part}" for part in names.split())
    h = ACTIVATIONS[activation](ops.linear(x, hidden, bias, gate), name=f"{name}.act")
    h = ops.multiply(h, ops.linear(x, hidden, bias, up), f"{name}.product")
    return ops.linear(h, x.shape[-1], bias, down)


def plain(
    x: LogicalRegion,
    hidden: int,
    activation: str,
    name: str,
    names: str,
    bias: bool = True,
) -> LogicalRegion:
    """down(activation(up x)); `names` of up and down."""
    up, down = names.split()
    h = ops.linear(x, hidden, bias, f"{name}.{up}")
    h = ACTIVATIONS[activation](h, name=f"{name}.{up}.act")
    return ops.linear(h, x.shape[-1], bias, f"{name}.{down}")


def add_positions(h: LogicalRegion, name: str, rows: int) -> LogicalRegion:
    """`h` (batch, positions, features) and the first rows of a table of `rows` learned positions."""
    if h.shape[1] > rows:
        raise ValueError(
            f"'{name}': sequences of {h.shape[1]} are longer than the {rows} positions"
        )
    table = h.graph.parameter(f"{name}.weight", (rows, h.shape[2]), ops.normal(0.0, 0.02), h.dtype)
    return ops.add(h, ops.slice(table, 0, 0, h.shape[1], name=f"{name}.rows"), name)


def scores_of_words(
    h: LogicalRegion,
    words: int,
    table: str,
    is_tied: bool,
    bias: bool = False,
    name: str = "lm_head",
) -> LogicalRegion:
    """Scores of all words, by the table `<table>.weight` of the embedding where it `is_tied`."""
    if not is_tied:
        return ops.linear(h, words, bias, name)
    return ops.einsum("bse,ve->bsv", h, h.graph.regions[f"{table}.weight"], name=name)


# -- what depends on the positions of a query and a key ----------------------------------------------------------------


def within_window(graph: Graph, length: int, window: int) -> LogicalRegion:
    """Whether key t of query q is one of the `window` last ones up to its own, or behind it: (length, length), bool."""
    name = graph.unique_name("window")
    kernel = _within.bind(window=window)
    return _by_position(graph, name, length, length, kernel, "bool")


def relative_buckets(
    graph: Graph,
    name: str,
    queries: int,
    keys: int,
    buckets: int,
    farthest: int,
    both_ways: bool,
) -> LogicalRegion:
    """Which bias a distance between key and query has: T5's `_relative_position_bucket`; (queries, keys), int32.

    Half of the buckets (of each direction, if `both_ways`) are for single distances, the others grow with the
    logarithm up to the `farthest`.
    """
    options = {"buckets": buckets, "farthest": farthest, "both_ways": both_ways}
    return _by_position(graph, name, queries, keys, _buckets.bind(**options), "int32")


def _by_position(
    graph: Graph,
    name: str,
    queries: int,
    keys: int,
    kernel: Kernel,
    dtype: str,
) -> LogicalRegion:
    sizes = {"s": queries, "t": keys}
    made = graph.launch(name, "-> s t", [], kernel=kernel, sizes=sizes, dtype=dtype, flops=1)
    assert isinstance(made, LogicalRegion)
    return made


def _distances(ctx: Context) -> Array:
    """Key minus query, of the points of a task."""
    queries, keys = (ctx.xp.arange(*ctx.interval(axis)) for axis in "st")
    away: Array = keys - queries[:, None]
    return away


@Kernel
def _within(ctx: Context, sees: Array, *, window: int) -> None:
    sees[...] = _distances(ctx) > -window


@Kernel
def _buckets(ctx: Context, made: Array, *, buckets: int, farthest: int, both_ways: bool) -> None:
    xp = ctx.xp
    away = -_distances(ctx)
    made[...] = 0
    if both_ways:
        buckets //= 2
        made[...] = (away < 0) * buckets
    away = xp.abs(away) if both_ways else xp.maximum(away, 0)
    exact = buckets // 2
    far = xp.log(xp.maximum(away, 1).astype(np.float32) / exact)
    far = far / np.log(farthest / exact) * (buckets - exact)
    far = xp.minimum(exact + far.astype(np.int32), buckets - 1)
    made[...] += xp.where(away < exact, away, far).astype(np.int32)
