"""Binding: a pattern and the shapes of its inputs give every axis its extent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple, SupportsInt

from taskflow.graph.pattern import BoundPattern, Pattern, Term
from taskflow.graph.window import AnyWindow, Image, Window, Windows
from taskflow.machine.device import check_not_negative


def bind(
    where: str,
    pattern: Pattern,
    input_names: Sequence[str],
    input_shapes: Sequence[tuple[int, ...]],
    sizes: Mapping[str, int],
    windows: Windows,
) -> BoundPattern:
    """Give every axis its extent from the input shapes, `sizes` and `windows`, and check that they agree.

    Raises:
        ValueError: a term has another number of dimensions than its region, two extents of an axis differ, or an
            axis has none; the message names `where`, the axis and both values.
    """
    if len(pattern.inputs) != len(input_shapes):
        raise ValueError(
            f"{where}: pattern '{pattern.text}' has {len(pattern.inputs)} inputs, {len(input_shapes)} were given"
        )
    extents = _Extents(where, sizes).learn_inputs(
        _dims_of(where, pattern.inputs, input_names, input_shapes), windows
    )
    outputs = [_output_shape(where, term, pattern, extents, windows) for term in pattern.outputs]
    _check_windows(where, pattern, extents, windows)
    _check_positive(where, extents)
    return BoundPattern(
        pattern,
        _in_order(pattern, extents, windows),
        dict(windows),
        (*input_shapes, *outputs),
    )


class _Dim(NamedTuple):
    """A dimension of an input.

    Attributes:
        names: its axes, or the key of its window.
        extent: in points.
        source: the region that has it, for messages.
    """

    names: tuple[str, ...]
    extent: int
    source: str


def _dims_of(
    where: str, terms: Sequence[Term], regions: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> Iterator[_Dim]:
    """Those of all inputs in turn; ValueError where a term has another number of them than its region."""
    for term, region, shape in zip(terms, regions, shapes, strict=True):
        if len(term.dims) != len(shape):
            raise ValueError(
                f"{where}: term '{term}' has {len(term.dims)} dimensions, region '{region}' has shape {shape}"
            )
        for names, extent in zip(term.dims, shape, strict=True):
            yield _Dim(names, extent, f"'{region}'")


def _output_shape(
    where: str,
    term: Term,
    pattern: Pattern,
    extents: Mapping[str, int],
    windows: Windows,
) -> tuple[int, ...]:
    """That of an output of this term; ValueError where it has a window, or an axis without an extent."""
    for axis in term.names:
        if axis in windows:
            raise ValueError(f"{where}: '{axis}' is a window; a window belongs into an input")
        if axis not in extents:
            raise ValueError(
                f"{where}: axis '{axis}' of the output '{term}' has no extent: {_hint(pattern, windows)}"
            )
    return tuple(prod(extents[axis] for axis in dim) for dim in term.dims)


class Bindings:
    """The bound patterns of a graph: equal layers share one, and what is derived from it."""

    def __init__(self) -> None:
        self._asked: dict[object, BoundPattern] = {}
        self._bound: dict[object, BoundPattern] = {}

    def bind(
        self,
        where: str,
        pattern: str,
        adds: tuple[int, ...],
        names: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        sizes: Mapping[str, int],
        windows: Windows,
    ) -> BoundPattern:
        """`bind` of a pattern as text where inputs `adds` are added to; what was asked before is not read again."""
        key = pattern, adds, tuple(shapes), tuple(sizes.items()), tuple(windows.items())
        if (bound := self._asked.get(key)) is None:
            bound = bind(where, Pattern.parse(pattern).adding(adds), names, shapes, sizes, windows)
            self._asked[key] = bound = self._bound.setdefault(bound.key, bound)
        return bound


def check_arguments(
    where: str, pattern: object, sizes: object, windows: object, backward: object
) -> None:
    """Refuse what has not the type that `Graph.launch` needs.

    Raises:
        TypeError: which argument, what it is and what is needed.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"{where}: pattern is {pattern!r}, a string is needed")
    for what, given in (("sizes", sizes), ("windows", windows)):
        if not isinstance(given, Mapping):
            raise TypeError(f"{where}: {what} is {given!r}, a dictionary is needed")
        for key, value in given.items():
            if what == "windows" and not isinstance(value, Window | Image):
                raise TypeError(
                    f"{where}: window '{key}' is {value!r}, a Window or an Image is needed"
                )
            if what == "sizes":
                whole_numbers(f"{where}: size of axis '{key}'", [value])
    if backward is not None and not callable(backward):
        raise TypeError(f"{where}: backward is {backward!r}, a function is needed")


def work_of(
    where: str, flops: float | Mapping[str, float] | None, bound: BoundPattern
) -> tuple[float, tuple[tuple[str, float], ...]]:
    """Floating point operations per point of all axes, and what is more per point of an Image; see `Graph.launch`.

    Raises:
        ValueError: a number is none, or is of a dimension without an Image.
    """
    if isinstance(flops, Mapping):
        for dim, amount in flops.items():
            check_not_negative(where, f"flops of '{dim}'", amount)
            if not isinstance(bound.windows.get(dim), Image):
                raise ValueError(f"{where}: flops of '{dim}', which has no Image")
        return 0.0, tuple(flops.items())
    if flops is not None:
        check_not_negative(where, "flops", flops)
        return flops, ()
    is_sum = any(map(bound.reduced_axes, range(len(bound.pattern.outputs))))
    return 2.0 if is_sum else 1.0, ()


def positions_of(
    where: str, what: str, named: Sequence[object], inputs: Sequence[object]
) -> tuple[int, ...]:
    """The positions of the inputs that `what` names, by themselves or by their positions.

    Raises:
        ValueError: one is no input.
    """
    positions = []
    for entry in named:
        if isinstance(entry, int):
            if not 0 <= entry < len(inputs):
                raise ValueError(f"{where}: {what} names input {entry} of {len(inputs)}")
            positions.append(entry)
        elif (position := next((k for k, r in enumerate(inputs) if r is entry), None)) is None:
            raise ValueError(
                f"{where}: {what} names '{getattr(entry, 'name', entry)}', which is not an input"
            )
        else:
            positions.append(position)
    return tuple(positions)


def whole_numbers(where: str, values: Iterable[object]) -> tuple[int, ...]:
    """The values as integers.

    Raises:
        TypeError: one is none.
    """
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise TypeError(f"{where}: {values!r} is given, whole numbers are needed")
    made = []
    for n in values:
        if type(n) is not int and (
            isinstance(n, bool) or not isinstance(n, SupportsInt) or not _is_integer(n)
        ):
            raise TypeError(f"{where}: {n!r} is given, whole numbers are needed")
        made.append(int(n))
    return tuple(made)


def _is_integer(number: SupportsInt) -> bool:
    try:
        return number == int(number)
    except (ValueError, OverflowError):  # of what is not finite
        return False


class _Extents:
    """The extents that are known so far, and where each was learnt."""

    def __init__(self, where: str, sizes: Mapping[str, int]) -> None:
        self.where = where
        self.of_axis = dict(sizes)
        self.origin = dict.fromkeys(sizes, "sizes")

    def learn_inputs(self, dims: Iterable[_Dim], windows: Windows) -> dict[str, int]:
        """The extents by all inputs: by dimensions of one axis first, then by windows, then by groups."""
        others: list[_Dim] = []
        for dim in dims:
            if len(dim.names) == 1 and dim.names[0] not in windows:
                self.learn(dim.names[0], dim.extent, dim.source)
            else:
                others.append(dim)
        for dim in others:
            if len(dim.names) == 1:
                self.learn_window(dim, windows[dim.names[0]])
        for dim in others:
            if len(dim.names) != 1:
                self.learn_group(dim)
        return self.of_axis

    def learn(self, axis: str, extent: int, source: str) -> None:
        """`source` says that `axis` has this extent."""
        if self.of_axis.setdefault(axis, extent) != extent:
            there = f"{self.of_axis[axis]} in {self.origin[axis]}"
            here = f"{extent} in {source}"
            raise ValueError(f"{self.where}: axis '{axis}' is {there} and {here}")
        self.origin.setdefault(axis, source)

    def learn_group(self, dim: _Dim) -> None:
        """In a group one axis may be unknown: it is what is left of the extent."""
        unknown = [n for n in dim.names if n not in self.of_axis]
        points = prod(self.of_axis[n] for n in dim.names if n in self.of_axis)
        if len(unknown) == 1 and points and dim.extent % points == 0:
            self.learn(unknown[0], dim.extent // points, dim.source)
        elif unknown or points != dim.extent:
            raise ValueError(
                f"{self.where}: group '({' '.join(dim.names)})' has {dim.extent} points in {dim.source}, "
                f"which does not agree with { {n: self.of_axis.get(n) for n in dim.names} }"
                if dim.names
                else f"{self.where}: a dimension '1' has {dim.extent} points in {dim.source}"
            )

    def learn_window(self, dim: _Dim, window: AnyWindow) -> None:
        """An axis known only by its window gets its extent from the window's arithmetic; a table says it always."""
        if window.axis in self.of_axis and not isinstance(window, Image):
            return
        if (points := window.axis_extent(dim.extent)) is not None:
            self.learn(window.axis, points, f"the window of '{dim.names[0]}'")
        if isinstance(window, Image) and (last := int(window.high.max())) > dim.extent:
            raise ValueError(
                f"{self.where}: the image of axis '{window.axis}' reads up to {last} of '{dim.names[0]}', "
                f"which has {dim.extent} points"
            )


def _hint(pattern: Pattern, windows: Windows) -> str:
    """What to do about an axis without an extent: it may be meant by a window that follows an axis of no term."""
    names = {name for term in pattern.inputs + pattern.outputs for name in term.names}
    for key, window in windows.items():
        if window.axis not in names:
            return f"window '{key}' follows '{window.axis}', which stands in no term"
    return "name it in sizes"


def _check_windows(
    where: str, pattern: Pattern, extents: Mapping[str, int], windows: Windows
) -> None:
    dims = [dim for term in pattern.inputs for dim in term.dims]
    names = {name for dim in dims for name in dim}
    grouped = {name for dim in dims if len(dim) > 1 for name in dim}
    for key, window in windows.items():
        if key not in names:
            raise ValueError(
                f"{where}: window '{key}' stands in no input of the pattern '{pattern.text}'"
            )
        if window.axis not in extents:
            raise ValueError(
                f"{where}: window '{key}' follows axis '{window.axis}', which has no extent"
            )
        if key in grouped:
            raise ValueError(f"{where}: window '{key}' stands in a group")


def _check_positive(where: str, extents: Mapping[str, int]) -> None:
    for axis, extent in extents.items():
        if extent < 1:
            raise ValueError(f"{where}: axis '{axis}' has {extent} points")


def _in_order(pattern: Pattern, extents: Mapping[str, int], windows: Windows) -> dict[str, int]:
    order: dict[str, int] = {}
    for name in (name for term in pattern.inputs + pattern.outputs for name in term.names):
        axis = windows[name].axis if name in windows else name
        order.setdefault(axis, extents[axis])
    return order
