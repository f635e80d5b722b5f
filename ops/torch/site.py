"""Where an ATen call stands while a module is read: how it is named, and the regions of what it reads.

A parameter of the module is a `Weight` until an operator reads it. Builders of `ops` make parameters of their own; they
are then replaced by the module's, which so get one region each, however often and under however many names they are
read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ops.initializers import Init
from ops.shape.expand import cast
from ops.torch.peer import array_of
from ops.torch.refusals import Unsupported, dtype_of
from ops.torch.state import region_name
from taskflow import Array, Graph, LogicalRegion

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Weight:
    """A parameter of the module: its first name there, its shape and dtype, and whether it is trained."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_trained: bool

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


@dataclass
class Book:
    """What is known of a module while it is read.

    Attributes:
        graph: that is made.
        tensors: where a tensor of the module begins in memory -> its name, and a copy of it.
        constants: values by region name.
        reserved: names of weights, which nothing else gets.
        is_dropping: whether dropout takes place as the module says, or nowhere.
        turned: transposed region -> what it is of, and its dimensions' order; so a turn back is no operator.
    """

    graph: Graph
    reserved: frozenset[str] = frozenset()
    is_dropping: bool = True
    tensors: dict[int, tuple[str, Any]] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    turned: dict[str, tuple[LogicalRegion, tuple[int, ...]]] = field(default_factory=dict)
    forms: dict[str, str] = field(default_factory=dict)  # how a weight is read: whole or in parts
    calls: Counter[str] = field(default_factory=Counter)
    kept: dict[object, LogicalRegion] = field(default_factory=dict)  # of constants

    def free_name(self, name: str) -> str:
        """The name, with primes where a weight or another region has it."""
        while name in self.graph.regions or name in self.reserved:
            name += "'"
        return name


@dataclass(frozen=True)
class Site:
    """One call.

    Attributes:
        book: of the whole module.
        name: of its operator.
        shape, dtype: of its result, the first if there are several.
    """

    book: Book
    name: str
    shape: tuple[int, ...]
    dtype: str

    def region(self, value: Any) -> Any:
        """A weight or tensor as a region, one of no dimensions as a number; anything else as it is."""
        import torch

        if isinstance(value, Weight):
            return self.weight(value)
        if isinstance(value, torch.Tensor):
            return self.constant(value) if value.ndim else value.item()
        return value

    def floating(self, value: Any) -> Any:
        """As `region`, in the dtype of the result where that is of floating point."""
        made = self.region(value)
        return (
            cast(made, self.dtype)
            if isinstance(made, LogicalRegion) and "float" in self.dtype
            else made
        )

    def weight(
        self,
        weight: Weight,
        form: str = "whole",
        shape: tuple[int, ...] | None = None,
        init: Init = 0.0,
    ) -> LogicalRegion:
        """The region of a weight, or of a part of it of this shape that `form` names (see `region_name`)."""
        graph = self.book.graph
        name = region_name(weight.name, form)
        kind = form if form in ("whole", "gates") else "parts"
        if self.book.forms.setdefault(weight.name, kind) != kind:
            raise Unsupported(f"the weight '{weight.name}' is read whole and in parts, which")
        if name not in graph.regions:
            extents = weight.shape if shape is None else shape
            graph.parameter(
                name,
                extents,
                init,
                weight.dtype,
                trainable=weight.is_trained,
            )
        return graph.regions[name]

    def constant(self, value: Any) -> LogicalRegion:
        """The state that holds a tensor: under its name in the module if it is a buffer, else the call's."""
        book = self.book
        key = (
            value.untyped_storage().data_ptr(),
            value.storage_offset(),
            tuple(value.shape),
            value.stride(),
        )
        if key not in book.kept:
            whole = value.numel() * value.element_size() == value.untyped_storage().nbytes()
            name, _ = book.tensors.get(key[0], ("", None)) if whole else ("", None)
            name = name or book.free_name(f"constant.{self.name}")
            name = name if name not in book.graph.regions else book.free_name(name)
            book.constants[name] = array_of(value).copy()
            made = book.graph.parameter(
                name,
                tuple(value.shape),
                0.0,
                dtype_of(value),
                trainable=False,
            )
            book.kept[key] = made
            book.tensors.setdefault(
                key[0], (name, value)
            )  # alive, so that no other tensor comes to its place
        return book.kept[key]

    def number(self, value: float) -> LogicalRegion:
        """A number as a region of the dtype of the result, with one element in as many dimensions."""
        import torch

        return self.constant(
            torch.full((1,) * len(self.shape), value, dtype=getattr(torch, self.dtype))
        )

    def build(
        self, builder: Callable[[str], _Made], weights: Mapping[str, Any], name: str | None = None
    ) -> _Made:
        """What a builder makes that is told its name, with `weights` for the parameters `<name>.<key>` that it makes.

        The name is that of the module that holds the weight, if there is one; a second call of it is `<name>@2`.
        """
        graph = self.book.graph
        name = self._name_of_call(name or self._name_of(weights))
        names = {key: f"{name}.{key}" for key in weights if weights[key] is not None}
        first = len(graph.operators)
        with _without(graph.regions, names.values()):
            made = builder(name)
            placeholders = {key: graph.regions.pop(names[key]) for key in names}
        self._replace(placeholders, weights, first)
        return made

    def _name_of_call(self, name: str) -> str:
        book = self.book
        book.calls[name] += 1
        book.graph.names.discard(name)
        name += f"@{book.calls[name]}" if book.calls[name] > 1 else ""
        return book.graph.unique_name(name)

    def _replace(
        self, placeholders: Mapping[str, LogicalRegion], weights: Mapping[str, Any], first: int
    ) -> None:
        """Let operators from number `first` on read the weights instead."""
        operators = self.book.graph.operators
        changed = {r.name: self._target(weights[key], r) for key, r in placeholders.items()}
        for k, op in enumerate(operators[first:], first):
            if any(r in placeholders.values() for r in op.inputs):
                operators[k] = replace(op, inputs=tuple(changed.get(r.name, r) for r in op.inputs))

    def _target(self, value: Any, placeholder: LogicalRegion) -> LogicalRegion:
        """The region in the place of one that a builder has made, with its first values if it is new."""
        if isinstance(value, Weight):
            init: Any = placeholder.init  # no constant
            made = self.weight(value, init=init)
        else:
            made = value if isinstance(value, LogicalRegion) else self.constant(value)
        if made.shape != placeholder.shape:
            raise Unsupported(
                f"'{made.name}' of shape {made.shape} where {placeholder.shape} is needed"
            )
        return made

    def _name_of(self, weights: Mapping[str, Any]) -> str:
        for key, value in weights.items():
            name = value.name if isinstance(value, Weight | LogicalRegion) else ""
            if name.endswith(f".{key}") and not re.search(r"[@']", name):
                return str(name.removesuffix(f".{key}"))
        return self.name


@contextmanager
def _without(regions: dict[str, LogicalRegion], names: Iterable[str]) -> Iterator[None]:
    """Regions of these names are put aside meanwhile."""
    aside = {name: regions.pop(name) for name in names if name in regions}
    yield
    regions.update(aside)
