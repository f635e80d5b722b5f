"""The guard of a step on GPUs: each device notes whether the loss and its gradients are finite, and the host decides.

What makes a gradient is followed by a look at it. A step is issued, or captured, in two parts. At the end of the first
one the devices copy what they have noted to pinned memory, and the host, which waits for that, agrees with all other
ranks. If the step is given up, the second part is issued without its points, item by item: copies, folds, messages and
signals go on, since other ranks count on them. States that are updated in the first part are kept before, and then get
the values back that they had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from taskflow.backend.capture import call_each
from taskflow.execute.gpu.issue import StreamKind
from taskflow.execute.gpu.replay import HOST, GuardedItems, Item
from taskflow.execute.gpu.streamed import StreamCompiler
from taskflow.execute.guard import GivenUp, find_guarded
from taskflow.execute.program import GUARD, NOTE
from taskflow.tasks.task_graph import Array, Kind

Call = Callable[[], object]


def guard_updates(compiler: StreamCompiler, is_any: Callable[[bool], bool] | None) -> None:
    """From now on steps are guarded; None: no longer. `is_any` says of a flag whether it is true on any rank.

    Raises:
        ValueError: a parameter is updated before all gradients are there.
    """
    if is_any is None:
        compiler.replay.take(GuardedItems(compiler.issue.items))
        return
    if compiler.guarded is None:  # it takes memory, which is never given back
        compiler.guarded = DeviceGuard(compiler, is_any).items
    compiler.replay.take(compiler.guarded)


class DeviceGuard:
    """A call of the host in a step, and the `items` of a program with it; see `guard_updates`."""

    def __init__(self, compiler: StreamCompiler, is_any: Callable[[bool], bool]) -> None:
        self._backend, self._ledger, self._issue = compiler.backend, compiler.ledger, compiler.issue
        self._memory, self._graph, self._is_any = compiler.memory, compiler.graph, is_any
        row, made, early = find_guarded(compiler.graph, compiler.memory)
        self._found = {d: self._ledger.take(d, "numbers of the guard", 8).view(np.uint64) for d in self._memory.own}
        self._noted = {d: self._backend.pinned(8).view(np.uint64) for d in self._memory.own}
        self.items = self._build(row, compiler.begins[row], made)
        self.items.keeps += [partial(found.fill, 0) for found in self._found.values()]
        for instance in early:
            device, array = int(self._graph.instance_device[instance]), self._memory.array(instance)
            kept = self._ledger.take(device, "states kept by the guard", array.nbytes)
            kept = kept.view(array.dtype).reshape(array.shape)
            self.items.keeps.append(self._backend.copy(kept, array))
            self.items.restores.append(self._backend.copy(array, kept))

    def _build(self, row: int, at: int, made: Mapping[int, Sequence[Array]]) -> GuardedItems:
        """The items of the program, those that make gradients with notes, and those of the guard before item `at`."""
        items = list(self._issue.items)
        for maker, arrays in made.items():
            number, found = self._issue.item_of(maker), self._found[int(self._graph.device[maker])]
            if number >= at:
                name = self._graph.name(maker)
                raise ValueError(f"on_nan='skip': row {maker}, '{name}', runs together with rows behind all gradients")
            notes = [self._backend.note_not_finite(array, found) for array in arrays]
            items[number] = replace(items[number], call=partial(call_each, (items[number].call, *notes)))
        latest = {item.stream: k for k, item in enumerate(items[:at]) if item.stream != HOST}
        over, row, added = tuple(sorted(latest.values())), min(row, len(self._graph) - 1), list[Item]()
        for device, noted in self._noted.items():
            stream, call = (
                self._issue.number(StreamKind.OUTPUTS, device),
                self._backend.copy(noted, self._found[device]),
            )
            added.append(Item(call, stream, row, NOTE, over, "what is not finite"))
        added.append(Item(self, HOST, row, GUARD, tuple(range(at, at + len(added)))))

        def moved(item: Item) -> Item:
            return replace(item, before=tuple(k + len(added) * (k >= at) for k in item.before))

        behind, is_point = [moved(item) for item in items[at:]], self._graph.kind == Kind.POINT
        points = {at + len(added) + k for k, one in enumerate(behind) if one.role == "run" and is_point[one.row]}
        return GuardedItems([*items[:at], *added, *behind], at + len(added) - 1, frozenset(points))

    def __call__(self) -> None:
        """Go on, or raise GivenUp, as all other ranks do."""
        if self._is_any(any(bool(noted[0]) for noted in self._noted.values())):
            raise GivenUp
