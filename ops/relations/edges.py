"""Edges: a relation between vertices in compressed rows, by target, and what operators read of it.

The tables of a relation are constants of a graph, and images (`taskflow.Image`): a vertex reads its edges, and of other
vertices what lies between the first and the last of its sources. So a split of vertices reads edges and neighbours of
its part, and work is counted by edges.

Source: NGra and NeuGraph (Ma et al., arXiv 1810.08403; USENIX ATC 2019), whose parts of vertices and edges these are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from taskflow import Array, Graph, Image, LogicalRegion

if TYPE_CHECKING:
    import networkx
    from numpy.typing import ArrayLike

WORTH = 0.5  # of the vertices: an interval of sources that is shorter on average is worth a table


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges in the order of the vertices that they lead to.

    Attributes:
        name: of the constants, `<name>.borders` and so on.
        indptr: (vertices + 1,) where the edges of each vertex begin.
        indices: (edges,) the vertex at the other end of each.
        weight: (edges,) of each; None: 1.
        order: (edges,) the number of each among the edges of whoever made them; None: its own.
    """

    name: str
    indptr: Array
    indices: Array
    weight: Array | None = None
    order: Array | None = None
    _images: dict[tuple[str, str], Image] = field(default_factory=dict, repr=False)

    @property
    def vertices(self) -> int:
        """Their number."""
        return len(self.indptr) - 1

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def targets(self) -> Array:
        """(edges,) the vertex to which each leads."""
        return np.repeat(np.arange(self.vertices, dtype=np.int32), np.diff(self.indptr))

    @cached_property
    def turned(self) -> Edges:
        """The same edges, led the other way, in the order of their sources."""
        by = np.argsort(self.indices, kind="stable").astype(np.int32)
        indptr = np.concatenate(
            [[0], np.cumsum(np.bincount(self.indices, minlength=self.vertices))]
        )
        weight = None if self.weight is None else self.weight[by]
        order = by if self.order is None else self.order[by]
        return Edges(f"{self.name}.turned", indptr, self.targets[by], weight, order)

    def constant(self, graph: Graph, what: str) -> LogicalRegion:
        """A region of `graph`: `borders` are `indptr`, others are attributes; made when it is first asked for."""
        name = f"{self.name}.{what}"
        values = self.indptr if what == "borders" else getattr(self, what)
        return graph.regions.get(name) or graph.constant(name, values)

    def image(self, what: str, axis: str) -> Image:
        """What a point of an axis of vertices reads, of edges, borders, sources or numbers; or one of edges."""
        if (what, axis) not in self._images:
            make: Callable[[], tuple[Array, Array]] = getattr(self, f"_{what}")
            self._images[what, axis] = Image(axis, *make())
        return self._images[what, axis]

    def _edges(self) -> tuple[Array, Array]:
        return self.indptr[:-1], self.indptr[1:]

    def _borders(self) -> tuple[Array, Array]:
        first = np.arange(self.vertices)
        return first, first + 2

    def _sources(self) -> tuple[Array, Array]:
        return self._between(self.indices, self.vertices)

    def _numbers(self) -> tuple[Array, Array]:
        return self._between(np.arange(len(self)) if self.order is None else self.order, len(self))

    def _between(self, read: Array, extent: int) -> tuple[Array, Array]:
        """From the first to the last that is read of `extent` by each vertex; all, where that is about as much."""
        begin = self.indptr[:-1]
        count = np.diff(self.indptr)
        low = np.zeros(self.vertices, np.int64)
        high = np.zeros(self.vertices, np.int64)
        some = count > 0
        if some.any():
            low[some] = np.minimum.reduceat(read, begin[some])
            high[some] = np.maximum.reduceat(read, begin[some]) + 1
        if (high - low)[some].sum() < WORTH * extent * some.sum():
            return low, high
        return np.zeros_like(low), np.where(some, extent, 0)

    def _source_of_edge(self) -> tuple[Array, Array]:
        """Of an edge: the sources of all edges of its target, widened until both ends ascend, so its table is short."""
        low, high = (table[self.targets] for table in self._sources())
        return np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)

    def _target_of_edge(self) -> tuple[Array, Array]:
        return self.targets, self.targets + 1

    def _edges_of_target(self) -> tuple[Array, Array]:
        """Of an edge: all edges that lead to its target."""
        return self.indptr[self.targets], self.indptr[self.targets + 1]


def edges(
    graph: Graph,
    indptr: ArrayLike,
    indices: ArrayLike,
    weight: ArrayLike | None = None,
    name: str = "edges",
) -> Edges:
    """A relation between vertices, as constants of a graph; a matrix in compressed sparse rows (CSR), as scipy has it.

    Args:
        graph: of the operators that read it.
        indptr: (vertices + 1,) where the edges that lead to each vertex begin.
        indices: (edges,) the vertices that these come from.
        weight: (edges,) floating point; None: all are 1.
        name: of the constants.

    Raises:
        ValueError: `indptr` does not ascend from 0 to the number of edges, an index is out of range, or there is not a
            weight for each edge.
    """
    where = f"edges '{name}'"
    name = graph.unique_name(name, "borders")
    borders = np.asarray(indptr, np.int64)
    sources = np.asarray(indices, np.int32)
    if (
        len(borders) < 2
        or borders[0]
        or (np.diff(borders) < 0).any()
        or borders[-1] != len(sources)
    ):
        raise ValueError(f"{where}: indptr ascends from 0 to the {len(sources)} edges")
    if not len(sources) or sources.min() < 0 or sources.max() >= len(borders) - 1:
        raise ValueError(f"{where}: indices are of edges between {len(borders) - 1} vertices")
    weight = None if weight is None else np.asarray(weight)
    if weight is not None and weight.shape != sources.shape:
        raise ValueError(
            f"{where}: weight has shape {weight.shape}, there are {len(sources)} edges"
        )
    relation = Edges(name, borders, sources, weight)
    relation.constant(graph, "borders")
    return relation


def graph_order(indptr: ArrayLike, indices: ArrayLike, starts: int = 8) -> Array:
    """A permutation after which neighbours lie near each other (reverse Cuthill-McKee): vertex k is then `order[k]`.

    Parts of a graph in this order read less of each other. Edges count both ways. Of orders that begin at a peripheral
    vertex, and at so many others, the one whose neighbours lie between the nearest ends.
    """
    import networkx as nx  # a fifth of all imports, which most programs need not wait for

    indptr = np.asarray(indptr)
    sources = np.asarray(indices)
    graph = nx.Graph()
    graph.add_nodes_from(range(len(indptr) - 1))
    targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    graph.add_edges_from(zip(sources.tolist(), targets.tolist(), strict=True))
    orders = [
        np.array([*nx.utils.reverse_cuthill_mckee_ordering(graph, begin)], np.int64)
        for begin in (None, *(partial(_vertex, share=k / starts) for k in range(starts)))
    ]
    return min(orders, key=partial(_reach, sources=sources, targets=targets))


def _vertex(part: networkx.Graph, share: float) -> int:
    """One of a connected part, by the share of it that has lower numbers."""
    return int(sorted(part)[int(share * len(part))])


def _reach(order: Array, sources: Array, targets: Array) -> float:
    """What both sides of a cut in this order read of each other, between the farthest neighbours; the mean of cuts."""
    number = np.argsort(order)
    first = np.arange(len(order))
    last = np.arange(len(order))
    np.minimum.at(first, number[targets], number[sources])
    np.maximum.at(last, number[targets], number[sources])
    widths = np.maximum.accumulate(last) - np.minimum.accumulate(first[::-1])[::-1]
    return float(widths.mean())
