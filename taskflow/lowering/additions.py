"""Additions of partial results: where these lie in parts on the same devices, they are added there before they travel.

```
 q.dx in parts --all-reduce--> + --> x.dx      q.dx in parts --> + --> x.dx in parts --all-reduce--> x.dx
 k.dx in parts --all-reduce--^                 k.dx in parts --^
```

An addition reads its inputs so if nobody else reads them and nobody fetches them, and if its configuration names the
same devices: one between stages of a pipeline belongs to its stage. How it is split then decides nothing: its result is
needed where those who read it are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from taskflow.core.columns import Array
from taskflow.graph.graph import LogicalRegion, Operator
from taskflow.lowering.pointstore import PointStore
from taskflow.strategy.parts import HeldParts, are_alike, parts_of

Maker = tuple[int, int]  # an operator, and which of its outputs


class Additions:
    """The operators of a graph that may add partial results, and the numbers of their points.

    Args:
        operators: of the graph.
        fetched: regions that are fetched.
        store: of points.

    Attributes:
        makers: operator -> who makes its inputs; in program order.
        readers: operator -> the operators of `makers` that read what it makes.
    """

    def __init__(
        self, operators: Sequence[Operator], fetched: Collection[LogicalRegion], store: PointStore
    ) -> None:
        self._operators = operators
        self._store = store
        reads = Counter(r.name for op in operators for r in op.inputs)
        made: dict[str, Maker] = {}
        kept = {r.name for r in fetched} | {
            op.inputs[k].name for op in operators for k in op.writes
        }
        self.makers: dict[int, tuple[Maker, ...]] = {}
        self.readers: dict[int, list[int]] = {}
        for number, op in enumerate(operators):
            names = [r.name for r in op.inputs]
            is_own = all(reads[name] == names.count(name) and name in made for name in names)
            if _is_addition(op) and is_own:
                self.makers[number] = tuple(made[name] for name in names)
                for maker, _ in set(self.makers[number]):
                    self.readers.setdefault(maker, []).append(number)
            for k, term in enumerate(op.bound.pattern.outputs):
                if term.reduction == "sum" and op.outputs[k].name not in kept:
                    made[op.outputs[k].name] = number, k
        self._parts: dict[Maker, HeldParts | None] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._added_parts: dict[tuple[int, ...], tuple[Array, HeldParts | None]] = {}  # by models

    def settle(self, numbers: Array) -> None:
        """Put the numbers of their points in, where they add parts; `numbers`: of the points of every operator."""
        for op in self.makers:
            numbers[op] = self.number(op, int(numbers[op]), numbers)

    def behind(self, operators: Iterable[int]) -> list[int]:
        """The operators of `makers` that may add other parts where these operators change; in program order."""
        affected, new = set[int](), {*operators}
        while new:
            affected |= new & self.makers.keys()
            new = {reader for op in new for reader in self.readers.get(op, ())} - affected
        return sorted(affected)

    def number(self, op: int, configured: int, numbers: Array) -> int:
        """The number of the points of an addition: where the parts are that it adds, else as it is configured."""
        makers = self.makers[op]
        key = (self._store.kind[op], configured, *((int(numbers[maker]), k) for maker, k in makers))
        if key not in self._numbers:
            made = [(int(numbers[maker]), k) for maker, k in makers]
            parts = self._added(configured, made)
            config = self._store.config(made[0][0])
            self._numbers[key] = (
                -1 if parts is None else self._store.number_of_parts(op, parts, config)
            )
        return self._numbers[key] if self._numbers[key] >= 0 else configured

    def _added(self, configured: int, made: Sequence[Maker]) -> HeldParts | None:
        """The parts that an addition adds; None: it adds none.

        Points like others on other devices add parts like those, on their own devices.

        Args:
            configured: number of its points as it is configured.
            made: numbers of the points of its makers, and which of their outputs it adds.
        """
        numbers = [configured, *(number for number, _ in made)]
        devices = np.concatenate([self._devices(number) for number in numbers])
        key = *map(self._store.model, numbers), *(k for _, k in made)
        if key not in self._added_parts:
            self._added_parts[key] = devices, self._find(configured, made)
        before, parts = self._added_parts[key]
        names = _renamed(before, devices)
        if names is None:
            return self._find(configured, made)
        return parts and parts._replace(device=names[parts.device])

    def _find(self, configured: int, made: Sequence[Maker]) -> HeldParts | None:
        """See `_added`: parts that are alike, on the devices of the points, and on no other."""
        first, *others = [self._parts_of(*maker) for maker in made]
        if first is None or not all(parts and are_alike(first, parts) for parts in others):
            return None
        devices = np.unique(self._devices(configured))
        return first if np.array_equal(np.unique(first.device), devices) else None

    def _devices(self, number: int) -> Array:
        """Of the points of this number."""
        devices: Array = self._store.table.device[self._store.span(number)]
        return devices

    def _parts_of(self, number: int, made: int) -> HeldParts | None:
        if (number, made) not in self._parts:
            self._parts[number, made] = parts_of(self._store.points(number), made)
        return self._parts[number, made]


def _renamed(before: Array, now: Array) -> Array | None:
    """By what name every device goes now; None: one has two names, or two have one."""
    names = np.full(int(before.max()) + 1, -1)
    names[before] = now
    used = names[names >= 0]
    is_one_to_one = (names[before] == now).all() and len(np.unique(used)) == len(used)
    return names if is_one_to_one else None


def _is_addition(op: Operator) -> bool:
    """Whether it adds regions of one shape, element by element."""
    terms = op.bound.terms
    return (
        op.kernel.is_addition and len(set(terms)) == 1 and not op.windows and len(op.outputs) == 1
    )
