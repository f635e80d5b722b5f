"""Graph networks of six kinds, two layers each, by stages (Zhang et al., IEEE CAL 2020).

S scatters what lies at vertices to edges, E applies something to each edge, G gathers at vertices, V applies something
there.

GCN (Kipf and Welling, ICLR 2017), GraphSAGE with a pooled mean (Hamilton et al., NeurIPS 2017), GAT (Velickovic et al.,
ICLR 2018), GGNN (Li et al., ICLR 2016), R-GCN (Schlichtkrull et al., ESWC 2018), EdgeCNN (Wang et al., TOG 2019).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import ops
from ops.models.common import finish
from taskflow import Array, Graph, LogicalRegion

HEADS = 4
TYPES = 4  # of edges, of R-GCN

Relation = tuple[
    Array, Array, Array | None
]  # indptr, indices, weight: of a matrix in compressed rows


def rmat(scale: int = 13, degree: int = 10, seed: int = 0) -> Relation:
    """A random graph of 2^scale vertices with a few of many edges (Chakrabarti et al., SDM 2004), and edges to itself.

    Weights are those of GCN: one over the root of the degrees of both ends.
    """
    count = degree << scale
    choices = np.random.default_rng(seed).choice(4, (scale, count), p=[0.57, 0.19, 0.19, 0.05])
    powers = 1 << np.arange(scale)[:, None]
    source = ((choices >> 1) * powers).sum(axis=0)
    target = ((choices & 1) * powers).sum(axis=0)
    return normalised(source, target, 1 << scale)


def normalised(source: Array, target: Array, vertices: int) -> Relation:
    """Edges both ways, each once, with those of vertices to themselves and the weights of GCN."""
    loops = np.arange(vertices)
    targets = np.concatenate([target, source, loops]).astype(np.int64)
    key = np.unique(targets * vertices + np.concatenate([source, target, loops]))
    target = key // vertices
    source = key % vertices
    count = np.bincount(target, minlength=vertices)
    root = 1 / np.sqrt(count)
    weight = (root[source] * root[target]).astype(np.float32)
    return np.concatenate([[0], np.cumsum(count)]), source.astype(np.int32), weight


@dataclass(frozen=True)
class Layer:
    """One layer: the edges, its number, and whether there are messages where a sum could do without."""

    edges: ops.Edges
    number: int
    by_stages: bool

    def name(self, stage: str) -> str:
        """Of an operator of a stage: `S.take1`."""
        return f"{stage}{self.number}"

    def linear(self, x: LogicalRegion, out: int, what: str = "V.linear") -> LogicalRegion:
        """A product at vertices, or at edges."""
        return ops.linear(x, out, name=self.name(what))

    def take(self, x: LogicalRegion, end: str = "source") -> LogicalRegion:
        """Stage S."""
        return ops.to_edges(x, self.edges, end, name=self.name(f"S.{end}"))

    def sum(self, x: LogicalRegion, reduce: str = "sum") -> LogicalRegion:
        """Stages S, E and G of weighted sums: in one, or each by itself."""
        if not self.by_stages:
            return ops.aggregate(x, self.edges, reduce=reduce, name=self.name("G.sum"))
        m = self.take(x)
        if self.edges.weight is not None:
            weight = ops.unsqueeze(self.edges.constant(x.graph, "weight"), 1, self.name("E.w"))
            m = ops.multiply(m, weight, name=self.name("E.weigh"))
        return ops.sum_edges(m, self.edges, reduce, name=self.name("G.sum"))


def gcn(layer: Layer, x: LogicalRegion, out: int) -> LogicalRegion:
    """The sum of what a product makes of neighbours."""
    return layer.sum(layer.linear(x, out))


def sage(layer: Layer, x: LogicalRegion, out: int) -> LogicalRegion:
    """A product of a vertex beside the mean of what a layer makes of its neighbours."""
    pooled = ops.relu(layer.linear(x, x.shape[1], "V.pool"), name=layer.name("V.relu"))
    both = ops.concat([x, layer.sum(pooled, "mean")], 1, name=layer.name("V.both"))
    return layer.linear(both, out)


def gat(layer: Layer, x: LogicalRegion, out: int) -> LogicalRegion:
    """The sum of neighbours by attention, several heads beside each other where they divide what is made."""
    heads = HEADS if out % HEADS == 0 else 1
    h = layer.linear(x, out)
    weight = _attention(layer, h, heads)
    h = ops.reshape(h, (-1, heads, out // heads), name=layer.name("V.heads"))
    if layer.by_stages:
        m = ops.to_edges(h, layer.edges, name=layer.name("S.take"))
        m = ops.multiply(m, ops.unsqueeze(weight, 2, layer.name("E.w")), name=layer.name("E.weigh"))
        y = ops.sum_edges(m, layer.edges, name=layer.name("G.sum"))
    else:
        y = ops.aggregate(h, layer.edges, weight, name=layer.name("G.sum"))
    return ops.reshape(y, (-1, out), name=layer.name("V.flat"))


def _attention(layer: Layer, h: LogicalRegion, heads: int) -> LogicalRegion:
    """The share of each edge in what its target sums up, by what is learned of both ends."""
    left, right = (layer.linear(h, heads, f"V.{side}") for side in ("left", "right"))
    scores = ops.add(layer.take(left), layer.take(right, "target"), name=layer.name("E.add"))
    scores = ops.leaky_relu(scores, 0.2, layer.name("E.leaky"))
    return ops.edge_softmax(scores, layer.edges, name=layer.name("E.softmax"))


def ggnn(layer: Layer, x: LogicalRegion, out: int) -> LogicalRegion:
    """A gated unit, whose state is a vertex, of the sum of what a product makes of its neighbours."""
    state = x if x.shape[1] == out else layer.linear(x, out, "V.enter")
    return ops.gru_cell(layer.sum(layer.linear(state, out)), state, name=layer.name("V.gru"))


def rgcn(layer: Layer, x: LogicalRegion, out: int) -> LogicalRegion:
    """A product for each type of edges: what leads to a vertex is of the type of its source's number."""
    y = layer.linear(x, out, "V.self")
    for kind in range(TYPES):
        edges = _of_type(x.graph, layer.edges, kind)
        m = ops.to_edges(x, edges, name=f"S.take{layer.number}")
        m = ops.linear(m, out, bias=False, name=f"E.linear{layer.number}")
        mean = ops.sum_edges(m, edges, "mean", name=f"G.sum{layer.number}")
        y = ops.add(y, mean, name=f"V.add{layer.number}")
    return y


def _of_type(graph: Graph, edges: ops.Edges, kind: int) -> ops.Edges:
    is_of_type = edges.indices % TYPES == kind
    indptr = np.concatenate([[0], np.cumsum(is_of_type)])[edges.indptr]
    return ops.edges(graph, indptr, edges.indices[is_of_type], name=f"{edges.name}.type{kind}")


def edgecnn(layer: Layer, x: LogicalRegion, out: int) -> LogicalRegion:
    """The largest of what a product makes of both ends of an edge."""
    source = layer.take(x)
    target = layer.take(x, "target")
    apart = ops.subtract(source, target, name=layer.name("E.apart"))
    both = ops.concat([target, apart], 1, name=layer.name("E.both"))
    m = ops.relu(layer.linear(both, out, "E.linear"), name=layer.name("E.relu"))
    return ops.sum_edges(m, layer.edges, "max", name=layer.name("G.max"))


KINDS: dict[str, Callable[[Layer, LogicalRegion, int], LogicalRegion]] = {
    "gcn": gcn, "sage": sage, "gat": gat, "ggnn": ggnn, "rgcn": rgcn, "edgecnn": edgecnn
}  # fmt: skip


def build(
    kind: str = "gcn",
    features: int = 64,
    hidden: int = 64,
    classes: int = 10,
    relation: Relation | None = None,
    by_stages: bool = False,
    training: bool = True,
    lr: float = 0.01,
    dtype: str = "float32",
) -> Graph:
    """Features `x` of vertices and their classes `t`, -1 for those that are not known.

    `relation`: of the edges (default: `rmat()`); `by_stages`: every message is made. Fetched: `y`, the scores, `loss`.
    """
    if kind not in KINDS:
        raise ValueError(f"gnn: kind is one of {', '.join(KINDS)}, not {kind!r}")
    graph = Graph()
    (indptr, indices, weight) = relation or rmat()
    weight = weight if kind in ("gcn", "ggnn") else None
    edges = ops.edges(graph, indptr, indices, weight)
    x = graph.input("x", (edges.vertices, features), dtype)
    t = graph.input("t", (edges.vertices,), "int32")
    h = KINDS[kind](Layer(edges, 1, by_stages), x, hidden)
    h = KINDS[kind](Layer(edges, 2, by_stages), ops.relu(h, name="V.relu"), classes)
    graph.output("y", h)
    loss = ops.cross_entropy(h, t, ignore_index=-1, name="loss")
    options: dict[str, Any] = {"lr": lr}
    return finish(graph, loss, training, ops.adam, **options)
