"""Data as it comes: any iterable of dicts, tuples or arrays, such as a DataLoader of torch, as the feeds of steps.

Takes the iterable and the inputs of a graph; gives feeds with the number of their samples. One rank reads and the
others get what it read, so that a loader that shuffles by itself is read once and alike for all. What is cut from
arrays by index (`Batches`) goes another way: there every rank loads only its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from taskflow.comm.transport import Transport
from taskflow.core.arrays import as_array, cast_array
from taskflow.core.columns import Array
from taskflow.graph.graph import Graph, LogicalRegion
from taskflow.train.batches import Batches, Feeds

Source = Batches | Iterable[Any] | Callable[[], Iterable[Any]]
Sized = tuple[int, Feeds]  # samples of a batch, and its feeds

_END = "end"


class Reading(Protocol):
    """What a trainer reads: batches of an epoch with their samples; `count` of them, 0 if nobody knows."""

    count: int

    def epoch(self, number: int) -> Iterator[Sized]:
        """The batches of an epoch."""


class OfArrays:
    """Batches by index, or what has their `epoch` and length: all ranks have them."""

    def __init__(self, batches: Any, graph: Graph) -> None:
        self.batches = batches
        self.count = len(batches)
        self._samples = samples_of(graph)

    def epoch(self, number: int) -> Iterator[Sized]:
        """The feeds of every batch."""
        sizes = iter(self.batches.sizes() if hasattr(self.batches, "sizes") else ())
        for feeds in self.batches.epoch(number):
            yield next(sizes, self._samples), feeds


class OfIterable:
    """Batches of an iterable, or of a function that makes one for every epoch.

    Raises:
        TypeError: it is neither.
    """

    def __init__(self, source: Any, graph: Graph, transport: Transport) -> None:
        if not callable(source) and not isinstance(source, Iterable):
            raise TypeError(
                f"batches: a {type(source).__name__} is no iterable of batches, and no function of one"
            )
        self.source = source
        self.inputs = graph.inputs
        self.transport = transport
        self.count = len(source) if hasattr(source, "__len__") else 0
        self._is_read = False

    def epoch(self, number: int) -> Iterator[Sized]:
        """The feeds of every batch, as rank 0 reads them.

        Raises:
            ValueError: an iterator is used up, or a batch is not one of the graph's.
        """
        is_iterator = isinstance(self.source, Iterator)
        if self._is_read and is_iterator:
            raise ValueError(
                "batches: an iterator is used up after an epoch: give a list, or a function that makes it"
            )
        self._is_read = True
        reader = iter(self.source() if callable(self.source) and not is_iterator else self.source)

        def read() -> Sized | str:
            item = next(reader, _END)
            return _END if isinstance(item, str) else feeds_of(item, self.inputs)

        alone = self.transport.size == 1
        while not isinstance(batch := read() if alone else self.transport.on_rank_0(read), str):
            yield batch


def reading(source: Source, graph: Graph, transport: Transport) -> Reading:
    """How batches are read for a graph."""
    is_by_index = hasattr(source, "epoch") and hasattr(source, "__len__")
    return OfArrays(source, graph) if is_by_index else OfIterable(source, graph, transport)


def feeds_of(batch: Any, inputs: Sequence[LogicalRegion]) -> Sized:
    """One batch as the feeds of a graph's inputs: by name, in their order, or of the only one.

    Numbers are cast to the input's dtype where they are of its kind: int64 to int32, float64 to float32.

    Raises:
        ValueError: an input is missing or too many are given, their samples differ, or a dtype is of another kind.
    """
    named = _named(batch, inputs)
    if missing := [r.name for r in inputs if r.name not in named]:
        raise ValueError(
            f"batches: a batch has no '{missing[0]}'; it has {', '.join(map(str, named))}"
        )
    feeds = {r.name: _array(named[r.name], r) for r in inputs}
    sizes = {name: len(a) for name, a in feeds.items() if a.ndim}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"batches: the parts of a batch have different lengths: {sizes}")
    return next(iter(sizes.values()), 1), feeds


def _named(batch: Any, inputs: Sequence[LogicalRegion]) -> dict[Any, Any]:
    """The parts of a batch by the names of the inputs."""
    if isinstance(batch, Mapping):
        return dict(batch)
    values = list(batch) if isinstance(batch, tuple | list) else [batch]
    if len(values) != len(inputs):
        names = ", ".join(r.name for r in inputs)
        raise ValueError(
            f"batches: a batch has {len(values)} parts, the graph has the inputs {names}"
        )
    return {r.name: value for r, value in zip(inputs, values, strict=True)}


def _array(value: Any, region: LogicalRegion) -> Array:
    where = f"batches: '{region.name}'"
    array = as_array(where, value.detach().cpu() if hasattr(value, "detach") else value)
    kinds = [
        np.dtype(d).kind.replace("u", "i") if d != "bfloat16" else "f"
        for d in (str(array.dtype), region.dtype)
    ]
    if kinds[0] != kinds[1]:
        raise ValueError(f"{where} is {region.dtype}, a batch has {array.dtype}")
    return cast_array(where, array, region.dtype)


def samples_of(graph: Graph) -> int:
    """The samples of a graph's batch: dimension 0 of its inputs."""
    return next((r.shape[0] for r in graph.inputs if r.shape), 1)
