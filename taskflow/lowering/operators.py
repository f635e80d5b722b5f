"""What task graphs say of operators: their launches, what their points look like, and how partial results add up."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

from taskflow.core.columns import Array
from taskflow.cost.rates import rate_number
from taskflow.graph.crossing import crossing
from taskflow.graph.graph import Graph, Operator
from taskflow.graph.phases import phases_of
from taskflow.lowering.pointstore import PointStore
from taskflow.lowering.rows import ChosenPoints, Shape, shape_of
from taskflow.machine.hostmemory import AWAY, BACK
from taskflow.tasks.task_graph import Launch


class Launches:
    """The launches of a graph's operators, which are kept.

    Args:
        graph: with the operators.
        number: region name -> number.
        store: of their points.
        ndim: of boxes.

    Attributes:
        identities: of every operator, see `Launch`.
    """

    def __init__(
        self, graph: Graph, number: Mapping[str, int], store: PointStore, ndim: int
    ) -> None:
        self.operators = tuple(graph.operators)
        self.identities = [_identity(op, graph.precision.dtype) for op in self.operators]
        self._phases = phases_of(self.operators)
        self._number = number
        self._store = store
        self._ndim = ndim
        self._launches: dict[tuple[int, int], Launch] = {}
        self._shapes: dict[int, Shape] = {}  # by the model of points

    def choose(self, numbers: Array) -> ChosenPoints:
        """The points of operators; `numbers`: in the store."""
        return ChosenPoints(numbers, self._store, self._shape)

    def _shape(self, model: int) -> Shape:
        if model not in self._shapes:
            points = self._store.made(model)
            self._shapes[model] = shape_of(points, self._ndim, self._store.box_dtype)
        return self._shapes[model]

    def of(self, which: int, number: int) -> Launch:
        """The launch of an operator with points of this number."""
        if (key := (which, number)) not in self._launches:
            op = self.operators[which]
            self._launches[key] = Launch(
                op.name,
                op.kernel,
                tuple(op.extents),
                self._shape(self._store.model(number)).spans,
                tuple(self._number[r.name] for r in op.args),
                self.identities[which],
                op.follows or op.name,
                self._store.config(number),
                op.bound,
                op.members,
                op.step,
                op.job,
                self._phases[which],
                op.writes,
                op.pace,
                crossing(op),
                op.passes,
            )
        return self._launches[key]

    @cached_property
    def combine(self) -> dict[int, str]:
        """See `TaskGraph`."""
        made = {
            self._number[r.name]: term.reduction
            for op in self.operators
            for r, term in zip(op.outputs, op.bound.pattern.outputs, strict=True)
        }
        for op in self.operators:
            for k in op.adds:
                name = op.inputs[k].name
                if made.setdefault(self._number[name], "sum") != "sum":
                    raise ValueError(
                        f"operator '{op.name}': it adds to '{name}', of which its maker takes the maximum"
                    )
        return made


def kind_of(op: Operator) -> tuple[object, ...]:
    """What the points of an operator depend on besides its configuration."""
    windows = tuple(op.windows.items())
    itemsizes = tuple(r.itemsize for r in op.args)
    picks = tuple(map(tuple, op.kernel.picks.items()))
    return (
        op.pattern,
        tuple(op.extents.items()),
        windows,
        op.bound.shapes,
        op.writes,
        op.flops,
        op.work,
        itemsizes,
        picks,
        crossing(op) >= 0 and tuple(r.is_on_host for r in op.args),
    )


def rate_or_way(op: Operator) -> int:
    """The number of the rate at which it computes; -1: it goes to the memory of hosts, -2: it comes from there."""
    way = crossing(op)
    return rate_number([r.dtype for r in op.args], op.kernel) if way < 0 else -1 - way


def numbered(values: Sequence[Hashable]) -> list[int]:
    """A number for every value; equal values have the same one."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(v, len(numbers)) for v in values]


def _identity(op: Operator, precision: str) -> str:
    """Kernel, pattern, windows and dtypes: what a kernel's time depends on besides its tile shapes."""
    dtypes = " ".join([r.dtype for r in op.args] + ["in tf32"] * (precision == "tf32"))
    way = {AWAY: " | away", BACK: " | back"}.get(crossing(op), "")
    return f"{op.kernel.name} | {op.pattern} | {dict(op.windows)} | {dtypes}{way}"
