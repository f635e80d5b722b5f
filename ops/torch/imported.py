"""What a torch module becomes, and whose tensors its weights are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from numpy.lib.array_utils import byte_bounds

from taskflow import Array, Executor, Graph, LogicalRegion, replace_regions


@dataclass(frozen=True)
class Imported:
    """What became of a module.

    Attributes:
        graph: of its forward computation; append a loss and an optimizer to it, or fetch outputs from it.
        inputs: the regions to be fed, by the names of the arguments of `forward`; that of an argument which has the
            name of a weight ends in a prime.
        outputs: the regions that `forward` returns, in the order of torch's pytree where they are nested.
        weights: the values of parameters, states and constants, by region name.
    """

    graph: Graph
    inputs: dict[str, LogicalRegion]
    outputs: tuple[LogicalRegion, ...]
    weights: dict[str, Array]

    @property
    def output(self) -> LogicalRegion:
        """The only region that `forward` returns.

        Raises:
            ValueError: it returns several.
        """
        if len(self.outputs) != 1:
            raise ValueError(f"from_torch: the module has {len(self.outputs)} outputs, not one")
        return self.outputs[0]

    def load(self, step: Executor) -> None:
        """Give an executor the module's weights and constants."""
        for name, value in self.weights.items():
            step.write(name, value)

    def with_regions(
        self, changed: Mapping[str, LogicalRegion], weights: dict[str, Array]
    ) -> Imported:
        """The same with `taskflow.replace_regions` done to the graph, and these weights."""
        graph = replace_regions(self.graph, changed)

        def renewed(region: LogicalRegion) -> LogicalRegion:
            return graph.regions[changed.get(region.name, region).name]

        return Imported(
            graph,
            {k: renewed(r) for k, r in self.inputs.items()},
            tuple(map(renewed, self.outputs)),
            weights,
        )


def identity(value: Array) -> object:
    """Equal for arrays that are the same memory seen in the same way."""
    return value.__array_interface__["data"][0], value.shape, value.strides


def check_apart(weights: Mapping[str, Array]) -> None:
    """ValueError for two weights that share a part of their memory: a change of one is no change of the other here."""
    bounds = sorted((*byte_bounds(value), name) for name, value in weights.items() if value.size)
    for (_, end, name), (begin, _, other) in pairwise(bounds):
        if begin < end:
            raise ValueError(f"from_torch: '{name}' and '{other}' share a part of their memory")


def as_tuple(value: Any) -> tuple[Any, ...]:
    """One result as a tuple."""
    return value if isinstance(value, tuple) else (value,)
