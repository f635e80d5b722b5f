"""Patterns: one line that says what of an operator may be split.

`"b i, o i -> b o"` has one term per input, `->`, one term per output. Every name is an axis, equal names are equal
extents. What a split axis means is derived from where it stands:

* in an output: tiles of that output;
* read but in no output term: partial results of it, summed (`max[b o]` takes the maximum instead);
* read but not in the term of an input that is added to, `add[o i]`: parts that are added to it one by one;
* in no term: replicas.

Marks: `^c` is never split; `(h d)` is one dimension made of two axes, the left one slowest; `1` is a dimension of one
point; a lone `.` is a term without dimensions, a scalar. A dimension of an input may be the image of an axis under a
`Window` (halo, offset, stride) or an `Image` (a table): the name that stands in the term is then a key of `windows`.

Takes strings and shapes; gives a `Pattern` and, with shapes, a `BoundPattern` that maps intervals of axes to boxes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from taskflow.core.columns import pointers
from taskflow.core.geometry import REPLICAS, Rect
from taskflow.graph.window import Image, Interval, Windows, window_row, within

Order = tuple[int, ...]  # the dimensions of an argument in memory, slowest first; see `orders`


@dataclass(frozen=True, slots=True)
class Term:
    """One input or output: per dimension the axes that make it up (none for `1`), and how partial results combine.

    The reduction of an input is "add" where the operator adds to it.
    """

    dims: tuple[tuple[str, ...], ...]
    reduction: str = "sum"

    @property
    def names(self) -> tuple[str, ...]:
        """Those of all dimensions in turn."""
        return tuple(name for dim in self.dims for name in dim)

    def dim_of(self, name: str) -> int | None:
        """Which dimension has the name; None: none has."""
        return next((k for k, dim in enumerate(self.dims) if name in dim), None)

    def __str__(self) -> str:
        names = [d[0] if len(d) == 1 else f"({' '.join(d)})" if d else "1" for d in self.dims]
        text = " ".join(names) or "."
        return text if self.reduction == "sum" else f"{self.reduction}[{text}]"


@dataclass(frozen=True)
class Pattern:
    """The parsed form of a pattern string."""

    inputs: tuple[Term, ...]
    outputs: tuple[Term, ...]
    fixed: frozenset[str]
    text: str

    @staticmethod
    def parse(text: str) -> Pattern:
        """Parse `text`; ValueError says what is wrong and where."""
        left, arrow, right = text.partition("->")
        if not arrow:
            raise ValueError(f"pattern '{text}': '->' is missing between inputs and outputs")
        fixed: set[str] = set()
        inputs = tuple(_parse_term(t, text, fixed) for t in _split_terms(left))
        outputs = tuple(_parse_term(t, text, fixed) for t in _split_terms(right))
        for term in inputs:
            if term.reduction not in ("sum", "add"):
                raise ValueError(
                    f"pattern '{text}': a reduction stands in an output, not in the input '{term}'"
                )
        for term in outputs:
            if term.reduction == "add":
                raise ValueError(
                    f"pattern '{text}': 'add' stands in an input, not in the output '{term}'"
                )
        return Pattern(inputs, outputs, frozenset(fixed), " ".join(text.split()))

    @property
    def adds(self) -> tuple[int, ...]:
        """The numbers of the inputs that are added to."""
        return tuple(k for k, term in enumerate(self.inputs) if term.reduction == "add")

    def adding(self, numbers: Collection[int]) -> Pattern:
        """The pattern where these inputs are added to, too."""
        if not numbers:
            return self
        inputs = [
            replace(t, reduction="add") if k in numbers else t for k, t in enumerate(self.inputs)
        ]
        return Pattern.of(inputs, self.outputs, self.fixed)

    @staticmethod
    def of(inputs: Sequence[Term], outputs: Sequence[Term], fixed: frozenset[str]) -> Pattern:
        """The pattern of these terms; its text is what `parse` would read."""
        mark = partial(re.sub, r"\b\w+\b(?!\[)", partial(_marked, fixed))
        sides = (", ".join(mark(str(term)) for term in side) for side in (inputs, outputs))
        return Pattern(tuple(inputs), tuple(outputs), fixed, " -> ".join(sides))


def _marked(fixed: frozenset[str], name: re.Match[str]) -> str:
    return f"^{name[0]}" if name[0] in fixed else name[0]


_TOKEN = re.compile(r"\s*(\^?[A-Za-z_]\w*|1|\(|\))")


def _split_terms(side: str) -> list[str]:
    """Terms of one side; an empty side has none."""
    return side.split(",") if side.strip() else []


def _parse_term(text: str, pattern: str, fixed: set[str]) -> Term:
    text = text.strip()
    reduction = "sum"
    if match := re.fullmatch(r"(sum|max|add)\[(.*)\]", text):
        reduction = match[1]
        text = match[2].strip()
    term = Term(_parse_dims(text, pattern, fixed), reduction)
    names = term.names
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"pattern '{pattern}': axis '{twice}' stands twice in the term '{text}'")
    if REPLICAS in names:
        raise ValueError(f"pattern '{pattern}': '{REPLICAS}' is no name of an axis")
    return term


def _parse_dims(text: str, pattern: str, fixed: set[str]) -> tuple[tuple[str, ...], ...]:
    """The dimensions of a term; axes with a `^` become `fixed`."""
    dims: list[tuple[str, ...]] = []
    group: list[str] | None = None
    for token in _tokens(text, pattern):
        if token == "(":
            if group is not None:
                raise ValueError(
                    f"pattern '{pattern}': a group inside a group in the term '{text}'"
                )
            group = []
        elif token == ")":
            if group is None:
                raise ValueError(f"pattern '{pattern}': ')' without '(' in the term '{text}'")
            dims.append(tuple(group))
            group = None
        else:
            name = token.lstrip("^")
            if token.startswith("^"):
                fixed.add(name)
            names = () if name == "1" else (name,)
            if group is None:
                dims.append(names)
            else:
                group.extend(names)
    if group is not None:
        raise ValueError(f"pattern '{pattern}': ')' is missing in the term '{text}'")
    return tuple(dims)


def _tokens(text: str, pattern: str) -> Iterator[str]:
    position = 0
    while position < len(text) and text != ".":
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(
                f"pattern '{pattern}': cannot read '{text[position:].strip()}' in the term '{text}'"
            )
        yield match[1]
        position = match.end()


@dataclass(frozen=True, eq=False)
class PatternTable:
    """A bound pattern as arrays, for the compiled code that partitions; dimensions are those of all terms in turn.

    Attributes:
        extents: of every axis.
        term_ptr: first dimension of every term, and their number.
        dim_ptr, dim_axis: the axes of every dimension.
        dim_extent: of every dimension.
        window: per dimension: `BY_RULE` if it has a window, then its size, stride, padding, dilation and 1 if
            transposed; `BY_TABLE` if it has an image, then where its table begins in `images`, the points of its axis
            and its levels.
        images: the tables of all images.
        reduced: (made terms, axes), whether splitting the axis makes partial results; see `BoundPattern.made`.
    """

    extents: np.ndarray[Any, np.dtype[np.int64]]
    term_ptr: np.ndarray[Any, np.dtype[np.int64]]
    dim_ptr: np.ndarray[Any, np.dtype[np.int64]]
    dim_axis: np.ndarray[Any, np.dtype[np.int64]]
    dim_extent: np.ndarray[Any, np.dtype[np.int64]]
    window: np.ndarray[Any, np.dtype[np.int64]]
    images: np.ndarray[Any, np.dtype[np.int64]]
    reduced: np.ndarray[Any, np.dtype[np.bool_]]

    @property
    def columns(self) -> tuple[np.ndarray[Any, np.dtype[Any]], ...]:
        """What `partition.make_points` wants."""
        of_dims = self.dim_ptr, self.dim_axis, self.dim_extent, self.window, self.images
        return self.extents, *of_dims, self.reduced


@dataclass(frozen=True)
class BoundPattern:
    """A pattern with the extent of every axis and the shape of every term.

    Attributes:
        pattern: the parsed pattern.
        extents: axis -> number of points, in order of first appearance (outputs last).
        windows: dimension name -> Window or Image.
        shapes: one shape per term, inputs then outputs.
    """

    pattern: Pattern
    extents: Mapping[str, int]
    windows: Windows
    shapes: tuple[tuple[int, ...], ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """Inputs then outputs."""
        return self.pattern.inputs + self.pattern.outputs

    @property
    def key(self) -> object:
        """Equal for patterns that are bound alike."""
        return (
            self.pattern.text,
            self.shapes,
            tuple(self.extents.items()),
            tuple(self.windows.items()),
        )

    def axis_of(self, name: str) -> str:
        """The axis of a dimension: that of its window, where it has one."""
        return self.windows[name].axis if name in self.windows else name

    @cached_property
    def term_axes(self) -> tuple[frozenset[str], ...]:
        """Per term the axes whose split changes its box."""
        return tuple(frozenset(map(self.axis_of, term.names)) for term in self.terms)

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The dimensions of all terms that are made of several axes."""
        return tuple(dim for term in self.terms for dim in term.dims if len(dim) > 1)

    @cached_property
    def read_axes(self) -> frozenset[str]:
        """Axes in at least one input."""
        return frozenset[str]().union(*self.term_axes[: len(self.pattern.inputs)])

    def axis_names(self, inputs: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """A name for every dimension of every output, of the axis that it is, given those of the inputs.

        A group gets that of the input which has it, too, else its joined name; a dimension of one point a number.
        """
        pairs = zip(self.pattern.inputs, inputs, strict=True)
        group_names = {
            dim: name
            for term, names in pairs
            for dim, name in zip(term.dims, names, strict=True)
            if dim[1:]
        }
        return [
            tuple(
                d[0] if len(d) == 1 else group_names.get(d, "".join(d)) or f"one{k}"
                for k, d in enumerate(term.dims)
            )
            for term in self.pattern.outputs
        ]

    @cached_property
    def made(self) -> tuple[int, ...]:
        """The numbers of the terms of which points may make parts: the outputs, then the inputs that are added to."""
        inputs = len(self.pattern.inputs)
        return (*range(inputs, inputs + len(self.pattern.outputs)), *self.pattern.adds)

    def reduced_axes(self, number: int) -> frozenset[str]:
        """Axes that make parts of made term number `number`, an output if there are as many, when they are split."""
        return self.read_axes - self.term_axes[self.made[number]]

    @cached_property
    def table(self) -> PatternTable:
        """The same as arrays."""
        number = {a: k for k, a in enumerate(self.extents)}
        dims = [d for t in self.terms for d in t.dims]
        windows = [self.windows.get(d[0]) if len(d) == 1 else None for d in dims]
        made = len(self.made)
        tables = {w: w.table for w in windows if isinstance(w, Image)}
        begins = pointers([len(table) for table in tables.values()]).tolist()
        first = dict[object, int](zip(tables, begins))
        return PatternTable(
            np.array(list(self.extents.values()), np.int64),
            pointers([len(t.dims) for t in self.terms]),
            pointers([len(d) for d in dims]),
            np.array([number[self.axis_of(n)] for d in dims for n in d], np.int64),
            np.array([e for shape in self.shapes for e in shape], np.int64),
            np.array(
                [window_row(w, first.get(w, 0)) for w in windows],
                np.int64,
            ).reshape(-1, 6),
            np.concatenate([np.zeros(0, np.int64), *tables.values()]),
            np.array(
                [[a in self.reduced_axes(k) for a in number] for k in range(made)], np.bool_
            ).reshape(made, len(number)),
        )

    def rect(self, term: int, intervals: Mapping[str, Interval]) -> Rect:
        """The box of term number `term` for one interval per axis (a missing axis is whole)."""
        dims = zip(self.terms[term].dims, self.shapes[term], strict=True)
        spans = [self._span(dim, extent, {**self._whole, **intervals}) for dim, extent in dims]
        return Rect(tuple(low for low, _ in spans), tuple(high for _, high in spans))

    @cached_property
    def _whole(self) -> dict[str, Interval]:
        return {axis: (0, extent) for axis, extent in self.extents.items()}

    def _span(
        self, dim: tuple[str, ...], extent: int, intervals: Mapping[str, Interval]
    ) -> Interval:
        if len(dim) == 1 and (window := self.windows.get(dim[0])) is not None:
            return window.image(intervals[window.axis], extent)
        low = 0
        high = 1
        for axis in dim:
            low, high, is_contiguous = within(low, high, self.extents[axis], *intervals[axis])
            if not is_contiguous:
                raise ValueError(
                    f"axis '{axis}' of the group '({' '.join(dim)})' is split, but an axis to its left has more than "
                    "one point: only a split that is contiguous in memory order is allowed"
                )
        return low, high

    def term_text(self, k: int) -> str:
        """Term number `k` as text for an elementwise operator on the same region.

        It may split what this one never does. Windowed dimensions become axes that are never split, since their
        intervals overlap.
        """
        names = []
        for position, dim in enumerate(self.terms[k].dims):
            if len(dim) == 1 and dim[0] in self.windows:
                names.append(f"^whole{position}")
            elif len(dim) == 1:
                names.append(dim[0])
            else:
                names.append(f"({' '.join(dim)})" if dim else "1")
        return " ".join(names) or "."

    def term_sizes(self, k: int) -> dict[str, int]:
        """Extents of the axes of term number `k` that a group alone cannot give."""
        return {n: self.extents[n] for d in self.terms[k].dims if len(d) > 1 for n in d}

    def check_writes(self, where: str, numbers: Sequence[int], inputs: Sequence[str]) -> None:
        """Refuse inputs of these numbers and names to be updated in place.

        Raises:
            ValueError: one is there twice, is read by another term too, or its term has a window.
        """
        for k in numbers:
            if numbers.count(k) > 1:
                raise ValueError(
                    f"{where}: '{inputs[k]}' is named twice among what is updated in place"
                )
            if inputs.count(inputs[k]) > 1:  # a gradient may come under other axis names
                raise ValueError(
                    f"{where}: '{inputs[k]}' is updated in place and read again by another term"
                )
            if any(n in self.windows for d in self.terms[k].dims for n in d):
                raise ValueError(
                    f"{where}: '{inputs[k]}' is updated in place, so its term has no window"
                )


def parse_orders(where: str, text: str, pattern: Pattern) -> tuple[Order, ...]:
    """The orders that `text` asks for: the pattern again, each term's dimensions in memory order, slowest first.

    Raises:
        ValueError: a term is not one of the pattern with its dimensions in another order.
    """
    asked = Pattern.parse(text)
    terms = pattern.inputs + pattern.outputs
    given = asked.inputs + asked.outputs
    if [len(asked.inputs), len(asked.outputs)] != [len(pattern.inputs), len(pattern.outputs)]:
        raise ValueError(
            f"{where}: layout '{asked.text}' has other terms than the pattern '{pattern.text}'"
        )
    for term, other in zip(terms, given, strict=True):
        if sorted(term.dims) != sorted(other.dims):
            raise ValueError(
                f"{where}: the memory order '{other}' is no order of the term '{term}'"
            )
    return tuple(_order(term.dims, other.dims) for term, other in zip(terms, given, strict=True))


def _order(dims: tuple[tuple[str, ...], ...], asked: tuple[tuple[str, ...], ...]) -> Order:
    left = list(range(len(dims)))
    return tuple(left.pop(next(i for i, k in enumerate(left) if dims[k] == dim)) for dim in asked)
