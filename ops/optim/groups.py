"""Which parameters an optimizer updates, and how: groups with rates and decays of their own, and frozen parts.

Parameters are named by patterns (`"head.*"`, `"*.bias"`), by names or by their regions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from taskflow import Graph, LogicalRegion, differentiate

Rate = float | Callable[[int], float]
Which = str | LogicalRegion | Iterable[str | LogicalRegion]


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

    def state(self, name: str) -> str:
        """A state or output of the optimizer: `learning_rate`, or `<name>.learning_rate`."""
        return f"{self.name}.{name}" if self.name else name

    def chosen(self, kind: str, graph: Graph) -> list[LogicalRegion]:
        """The parameters that are updated, in the order of the graph.

        Raises:
            ValueError: a pattern names none of them, or another optimizer updates one.
        """
        found = graph.parameters if self.parameters is None else _named(kind, graph.parameters, self.parameters)
        taken = {op.inputs[k].name for op in graph.operators for k in op.writes if op.inputs[k].role == "parameter"}
        for p in found:
            if p.name in taken:
                raise ValueError(f"{kind}: '{p.name}' is updated already: parameters= says which ones are this one's")
        for group in self.groups:
            if group.weight_decay is not None and not group.weight_decay >= 0:
                raise ValueError(f"{kind}: weight_decay is {group.weight_decay}, it cannot be negative")
            _named(kind, found, group.parameters)
        return found

    def group_of(self, p: LogicalRegion) -> tuple[str, ParameterGroup] | None:
        """The first group that names a parameter, and its name."""
        for k, group in enumerate(self.groups):
            if any(_is_named(p, which) for which in _several(group.parameters)):
                return group.name or str(k), group
        return None

    def decay_of(self, p: LogicalRegion, default: float) -> float:
        """The weight decay of a parameter."""
        found = self.group_of(p)
        return default if found is None or found[1].weight_decay is None else found[1].weight_decay


def _several(which: Which) -> list[str | LogicalRegion]:
    return [which] if isinstance(which, str | LogicalRegion) else list(which)


def _is_named(p: LogicalRegion, which: str | LogicalRegion) -> bool:
    return fnmatchcase(p.name, which) if isinstance(which, str) else which.name == p.name


def _named(kind: str, parameters: Sequence[LogicalRegion], which: Which) -> list[LogicalRegion]:
    several = _several(which)
    for each in several:
        if not any(_is_named(p, each) for p in parameters):
            name = each if isinstance(each, str) else each.name
            known = ", ".join(p.name for p in parameters[:5]) + (", ..." if len(parameters) > 5 else "")
            raise ValueError(f"{kind}: no parameter is called '{name}'; there are {known or 'none'}")
    return [p for p in parameters if any(_is_named(p, each) for each in several)]


def gradients_at_loss(
    loss: LogicalRegion, parameters: Sequence[LogicalRegion], scale: LogicalRegion | None
) -> dict[LogicalRegion, LogicalRegion]:
    """`differentiate` by the values of which the loss was made, though parameters may have been updated since.

    What updates parameters and stands behind the loss runs after these gradients: so several losses of one forward pass
    have an optimizer each.
    """
    operators = loss.graph.operators
    maker = next((k for k, op in enumerate(operators) if any(r is loss for r in op.outputs)), len(operators))

    def is_update(k: int) -> bool:
        op = operators[k]
        return any(op.inputs[w].role == "parameter" for w in op.writes)

    first = next((k for k in range(maker + 1, len(operators)) if is_update(k)), len(operators))
    later = operators[first:]
    del operators[first:]
    try:
        return differentiate(loss, parameters, scale)
    finally:
        operators += later
