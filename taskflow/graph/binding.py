"""Binding: a pattern and the shapes of its inputs give every axis its extent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import SupportsInt

from taskflow.graph.pattern import BoundPattern, Pattern, Term
from taskflow.graph.window import AnyWindow, Image, Window
from taskflow.machine.device import check_not_negative


def bind(
    where: str,
    pattern: Pattern,
    input_names: Sequence[str],
    input_shapes: Sequence[tuple[int, ...]],
    sizes: Mapping[str, int],
    windows: Mapping[str, AnyWindow],
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
    extents = _Extents(where)
    for axis, extent in sizes.items():
        extents.learn(axis, extent, "sizes")
    groups: list[tuple[tuple[str, ...], int, str]] = []
    for term, name, shape in zip(pattern.inputs, input_names, input_shapes, strict=True):
        if len(term.dims) != len(shape):
            raise ValueError(
                f"{where}: term '{term}' has {len(term.dims)} dimensions, region '{name}' has shape {shape}"
            )
        for dim, extent in zip(term.dims, shape, strict=True):
            if len(dim) != 1:
                groups.append((dim, extent, f"'{name}'"))
            elif dim[0] not in windows:
                extents.learn(dim[0], extent, f"'{name}'")
    _learn_windows(extents, pattern.inputs, input_shapes, windows)
    for group in groups:
        extents.learn_group(*group)
    of_axis = extents.of_axis
    shapes = list(input_shapes)
    for term in pattern.outputs:
        for axis in (n for d in term.dims for n in d):
            if axis in windows:
                raise ValueError(f"{where}: '{axis}' is a window; a window belongs into an input")
            if axis not in of_axis:
                stray = _stray_window(pattern, windows)
                hint = (
                    f"window '{stray}' follows '{windows[stray].axis}', which stands in no term"
                    if stray
                    else ""
                )
                raise ValueError(
                    f"{where}: axis '{axis}' of the output '{term}' has no extent: {hint or 'name it in sizes'}"
                )
        shapes.append(tuple(prod(of_axis[n] for n in dim) for dim in term.dims))
    _check_known(where, pattern, of_axis, windows)
    return BoundPattern(pattern, _in_order(pattern, of_axis, windows), dict(windows), tuple(shapes))


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
        windows: Mapping[str, AnyWindow],
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

    def __init__(self, where: str) -> None:
        self.where = where
        self.of_axis: dict[str, int] = {}
        self.origin: dict[str, str] = {}

    def learn(self, axis: str, extent: int, source: str) -> None:
        """`source` says that `axis` has this extent."""
        if self.of_axis.setdefault(axis, extent) != extent:
            there = f"{self.of_axis[axis]} in {self.origin[axis]}"
            here = f"{extent} in {source}"
            raise ValueError(f"{self.where}: axis '{axis}' is {there} and {here}")
        self.origin.setdefault(axis, source)

    def learn_group(self, dim: tuple[str, ...], extent: int, source: str) -> None:
        """In a group one axis may be unknown: it is what is left of the extent."""
        unknown = [n for n in dim if n not in self.of_axis]
        points = prod(self.of_axis[n] for n in dim if n in self.of_axis)
        if len(unknown) == 1 and points and extent % points == 0:
            self.learn(unknown[0], extent // points, source)
        elif unknown or points != extent:
            raise ValueError(
                f"{self.where}: group '({' '.join(dim)})' has {extent} points in {source}, "
                f"which does not agree with { {n: self.of_axis.get(n) for n in dim} }"
                if dim
                else f"{self.where}: a dimension '1' has {extent} points in {source}"
            )


def _learn_windows(
    extents: _Extents,
    terms: Sequence[Term],
    shapes: Sequence[tuple[int, ...]],
    windows: Mapping[str, AnyWindow],
) -> None:
    """An axis known only through its window gets its extent from the window's arithmetic; a table says it always."""
    for term, shape in zip(terms, shapes, strict=True):
        for dim, extent in zip(term.dims, shape, strict=True):
            window = windows.get(dim[0]) if len(dim) == 1 else None
            if window is None:
                continue
            if window.axis in extents.of_axis and not isinstance(window, Image):
                continue
            if (points := window.axis_extent(extent)) is not None:
                extents.learn(window.axis, points, f"the window of '{dim[0]}'")
            if isinstance(window, Image) and (last := int(window.high.max())) > extent:
                raise ValueError(
                    f"{extents.where}: the image of axis '{window.axis}' reads up to {last} of '{dim[0]}', "
                    f"which has {extent} points"
                )


def _stray_window(pattern: Pattern, windows: Mapping[str, AnyWindow]) -> str | None:
    """A window that follows an axis of no term."""
    names = {n for t in pattern.inputs + pattern.outputs for d in t.dims for n in d}
    return next((key for key, window in windows.items() if window.axis not in names), None)


def _check_known(
    where: str, pattern: Pattern, extents: Mapping[str, int], windows: Mapping[str, AnyWindow]
) -> None:
    names = {n for t in pattern.inputs for d in t.dims for n in d}
    grouped = {n for t in pattern.inputs for d in t.dims if len(d) > 1 for n in d}
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
    for axis, extent in extents.items():
        if extent < 1:
            raise ValueError(f"{where}: axis '{axis}' has {extent} points")


def _in_order(
    pattern: Pattern, extents: Mapping[str, int], windows: Mapping[str, AnyWindow]
) -> dict[str, int]:
    order: dict[str, int] = {}
    for name in (n for t in pattern.inputs + pattern.outputs for d in t.dims for n in d):
        axis = windows[name].axis if name in windows else name
        order.setdefault(axis, extents[axis])
    return order
