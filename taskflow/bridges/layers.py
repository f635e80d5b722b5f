"""Layers: what a graph is made of for those who cut models between layers, found from what repeats and not from names.

The embedding is what stands before the layers in program order, the loss what stands behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from taskflow.bridges.recipe import EMBEDDING, LAYER, LOSS
from taskflow.graph.graph import Graph, Operator
from taskflow.searching.fold import block_interiors, fold
from taskflow.searching.grids import Grids


@dataclass(frozen=True)
class Layers:
    """A graph and the operators of its units: the embedding, every layer, the loss; each may be empty."""

    graph: Graph
    units: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(graph: Graph) -> Layers:
        """The layers are the longest stretch that repeats."""
        leaders = [op.name for op in graph.operators if op.follows is None]
        run = max(fold(graph)[1], key=lambda r: r.period * r.count, default=None)
        if run is None:
            return Layers(graph, (tuple(leaders), ()))
        starts = range(run.first, run.end, run.period)
        layers = (tuple(leaders[k : k + run.period]) for k in starts)
        return Layers(graph, (tuple(leaders[: run.first]), *layers, tuple(leaders[run.end :])))

    @property
    def count(self) -> int:
        """Of layers."""
        return len(self.units) - 2

    @property
    def letters(self) -> str:
        """Of the units."""
        return EMBEDDING + LAYER * self.count + LOSS

    @cached_property
    def grids(self) -> Grids:
        """Of the graph as it is."""
        return Grids(self.graph)

    def cuts(self, layout: Sequence[str]) -> list[tuple[int, str]]:
        """Of every stage that has operators, its number and its first operator."""
        cuts = list[tuple[int, str]]()
        begin = 0
        for number, letters in enumerate(layout):
            end = begin + len(letters)
            names = [name for unit in self.units[begin:end] for name in unit]
            cuts += [(number, names[0])] if names else []
            begin = end
        return cuts

    def recomputed(self, kind: str) -> tuple[str, ...]:
        """The operators that are computed again, see `Recipe`."""
        return RECOMPUTED[kind](self)

    @cached_property
    def _interiors(self) -> tuple[str, ...]:
        return block_interiors(self.graph) if self.graph.differentiations else ()

    def _core(self) -> tuple[str, ...]:
        """What attention makes between its queries and its result."""
        core = set(self.grids.scores)
        chosen = [op for op in self._forward(self._interiors) if (op.follows or op.name) in core]
        return _inside(self.graph, chosen)

    def _cheap(self) -> tuple[str, ...]:
        products = {name for name in self.grids.families if self.grids.has_product(name)}
        return tuple(
            op.name
            for op in self._forward(self._interiors)
            if (op.follows or op.name) not in products
        )

    def _forward(self, names: Collection[str]) -> list[Operator]:
        wanted = set(names)
        return [op for op in self.graph.operators if op.name in wanted and not op.is_backward]


RECOMPUTED: Mapping[str, Callable[[Layers], tuple[str, ...]]] = {
    "": lambda layers: (),
    "layers": lambda layers: layers._interiors,
    "attention": Layers._core,
    "cheap": Layers._cheap,
}


def _inside(graph: Graph, chosen: Sequence[Operator]) -> tuple[str, ...]:
    """Those of some forward operators whose results no other forward operator reads."""
    names = {op.name for op in chosen}
    others = (op for op in graph.operators if op.name not in names and not op.is_backward)
    read = {region.name for op in others for region in op.inputs}
    return tuple(op.name for op in chosen if not any(r.name in read for r in op.outputs))
