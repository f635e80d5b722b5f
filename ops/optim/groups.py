"""Which parameters an optimizer updates, and how: groups with rates and decays of their own, and frozen parts.

Parameters are named by patterns (`"head.*"`, `"*.bias"`), by names or by their regions.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from itertools import islice, takewhile
from math import isfinite
from numbers import Real

from taskflow import Graph, LogicalRegion, differentiate

Rate = float | Callable[[int], float]
Which = str | LogicalRegion | Iterable[str | LogicalRegion]


def check_number(where: str, key: str, value: object) -> float:
    """The number; ValueError where it is none, not finite or negative."""
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value):
        raise ValueError(f"{where}: {key} is {value!r}, a finite number is needed")
    if value < 0:
        raise ValueError(f"{where}: {key} is {value}, it cannot be negative")
    return float(value)


def check_flag(where: str, key: str, value: object) -> bool:
    """The truth value; TypeError where it is none, also for a number."""
    if type(value).__name__ not in ("bool", "bool_"):  # of Python, of NumPy
        raise TypeError(f"{where}: {key} is {value!r}, True or False is needed")
    return bool(value)


def check_learning_rate(where: str, lr: Rate) -> Rate:
    """The number or the schedule; ValueError where that gives no number, or a negative one, for the first step."""
    if not callable(lr):
        return check_number(where, "lr", lr)
    check_number(where, "lr(0)", lr(0))
    return lr


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with a rate or a decay of their own, as torch's parameter groups.

    Attributes:
        parameters: a pattern of names, a region, or several of these.
        lr: their learning rate, the state `learning_rate.<name>`, or a function of the number of finished steps; None:
            that of the optimizer.
        weight_decay: None: that of the optimizer.
        name: of the group; default its number, from 0.
    """

    parameters: Which
    lr: Rate | None = None
    weight_decay: float | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        where = f"group of {self.parameters!r}" if self.name is None else f"group {self.name!r}"
        if self.name is not None and not (isinstance(self.name, str) and self.name):
            raise ValueError(f"{where}: its name is text of at least one character, or None")
        if not isinstance(self.parameters, str | LogicalRegion):
            object.__setattr__(self, "parameters", tuple(self.parameters))
            if not self.parameters:
                raise ValueError(f"{where}: it names no parameter")
        if self.lr is not None:
            check_learning_rate(where, self.lr)
        if self.weight_decay is not None:
            check_number(where, "weight_decay", self.weight_decay)


@dataclass(frozen=True)
class Scope:
    """What an optimizer updates.

    Attributes:
        parameters: see `ParameterGroup`; None: all of the graph.
        groups: a parameter belongs to the first one that names it.
        name: what the names of the optimizer's states and outputs begin with; "" for the only one of a graph.
    """

    parameters: Which | None = None
    groups: Sequence[ParameterGroup] = ()
    name: str = ""

    def check(self, kind: str) -> None:
        """TypeError: a part of it is of another type."""
        if not isinstance(self.name, str):
            raise TypeError(f"{kind}: name is {self.name!r}, text is needed")
        if self.parameters is not None and not isinstance(
            self.parameters, LogicalRegion | Iterable
        ):
            raise TypeError(
                f"{kind}: parameters is {self.parameters!r}, patterns or regions are needed"
            )
        if not isinstance(self.groups, Iterable):
            raise TypeError(
                f"{kind}: groups is {self.groups!r}, a list of ParameterGroup is needed"
            )

    def state(self, name: str) -> str:
        """A state or output of the optimizer: `learning_rate`, or `<name>.learning_rate`."""
        return f"{self.name}.{name}" if self.name else name

    def chosen(self, kind: str, graph: Graph) -> list[LogicalRegion]:
        """The parameters that are updated, in the order of the graph.

        Raises:
            ValueError: a pattern names none of them, or another optimizer updates one.
        """
        updated = graph.parameters
        if self.parameters is not None:
            if not (several := _several(self.parameters)):
                raise ValueError(f"{kind}: parameters= names no parameter")
            chosen = set(ParameterNames(p.name for p in updated).find(kind, several))
            updated = [p for p in updated if p.name in chosen]
        taken = {
            op.inputs[k].name
            for op in graph.operators
            for k in op.writes
            if op.inputs[k].role == "parameter"
        }
        for p in updated:
            if p.name in taken:
                raise ValueError(
                    f"{kind}: '{p.name}' is updated already: parameters= says which ones are this one's"
                )
        self._check_groups(kind, ParameterNames(p.name for p in updated))
        return updated

    def _check_groups(self, kind: str, names: ParameterNames) -> None:
        numbers: dict[str, int] = {}
        for k, group in enumerate(self.groups):
            if not isinstance(group, ParameterGroup):
                raise TypeError(
                    f"{kind}: groups[{k}] is a {type(group).__name__}, a ParameterGroup is needed"
                )
            name = group.name or str(k)
            if (other := numbers.setdefault(name, k)) != k:
                raise ValueError(
                    f"{kind}: groups[{other}] and groups[{k}] are both called '{name}'"
                )
            names.find(kind, group.parameters)

    def group_of_each(
        self, kind: str, parameters: Iterable[LogicalRegion]
    ) -> dict[str, tuple[str, ParameterGroup]]:
        """Parameter -> the first group that names it, and the name of that; others belong to none."""
        names = ParameterNames(p.name for p in parameters)
        group_of = dict[str, tuple[str, ParameterGroup]]()
        for k, group in enumerate(self.groups):
            for name in names.find(kind, group.parameters):
                group_of.setdefault(name, (group.name or str(k), group))
        return group_of


class ParameterNames:
    """Names that are found by patterns in little more time than there are that fit."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._number = {name: k for k, name in enumerate(self._names)}
        self._sorted = sorted(self._names)

    def find(self, kind: str, which: Which) -> list[str]:
        """Those that are named, in their order.

        Raises:
            ValueError: a pattern fits none.
        """
        numbers = set[int]()
        for one in _several(which):
            name = one if isinstance(one, str) else one.name
            fitting = (
                self._fitting(name)
                if isinstance(one, str)
                else [name]
                if name in self._number
                else []
            )
            if not fitting:
                listed = ", ".join(self._names[:5]) + (", ..." if len(self._names) > 5 else "")
                raise ValueError(
                    f"{kind}: no parameter is called '{name}'; there are {listed or 'none'}"
                )
            numbers.update(self._number[fit] for fit in fitting)
        return [self._names[k] for k in sorted(numbers)]

    def _fitting(self, pattern: str) -> list[str]:
        """What begins as the pattern does lies side by side where names are sorted."""
        if pattern in self._number:
            return [pattern]
        begin = re.split(r"[*?[]", pattern, maxsplit=1)[0]
        first = bisect_left(self._sorted, begin)
        fits = re.compile(translate(pattern)).match
        near = takewhile(lambda name: name.startswith(begin), islice(self._sorted, first, None))
        return [name for name in near if fits(name)]


def _several(which: Which) -> list[str | LogicalRegion]:
    return [which] if isinstance(which, str | LogicalRegion) else list(which)


def gradients_at_loss(
    loss: LogicalRegion, parameters: Sequence[LogicalRegion], scale: LogicalRegion | None
) -> dict[LogicalRegion, LogicalRegion]:
    """`differentiate` by the values of which the loss was made, though parameters may have been updated since.

    What updates parameters and stands behind the loss runs after these gradients: so several losses of one forward pass
    have an optimizer each.
    """
    operators = loss.graph.operators
    first = _first_update(loss)
    later = operators[first:]
    del operators[first:]
    try:
        return differentiate(loss, parameters, scale)
    finally:
        operators += later


def _first_update(loss: LogicalRegion) -> int:
    """The number of the first operator behind the loss that updates a parameter; that of all if there is none."""
    numbered = enumerate(loss.graph.operators)
    for _, op in numbered:
        if any(r is loss for r in op.outputs):
            break
    for k, op in numbered:
        if any(op.inputs[w].role == "parameter" for w in op.writes):
            return k
    return len(loss.graph.operators)
