"""The guard of a step on GPUs: each device notes whether the loss and its gradients are finite, and the host decides.

What makes a gradient is followed by a look at it. A step is issued, or captured, in two parts. At the end of the first
one the devices copy what they have noted to pinned memory, and the host, which waits for that, agrees with all other
ranks. If the step is given up, the second part is issued without its points, item by item: copies, folds, messages and
signals go on, since other ranks count on them. What is updated in the first part is kept before, on its device, or in
pinned memory where that has no room, and then gets the values back that it had.
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
from taskflow.execute.guard import Guarded, StepGuard
from taskflow.execute.program import GUARD, NOTE
from taskflow.tasks.task_graph import Array

Call = Callable[[], object]


def guard_updates(
    compiler: StreamCompiler, is_any: Callable[[bool], bool] | None
) -> DeviceGuard | None:
    """From now on steps are guarded, if they update anything; with `is_any` None: no longer.

    `is_any` says of a flag whether it is true on any rank.
    """
    if is_any is None or compiler.guarded is None:
        compiler.replay.take(GuardedItems(compiler.issue.items))
        return None
    guard = compiler.device_guard
    if not isinstance(guard, DeviceGuard):
        compiler.device_guard = guard = DeviceGuard(compiler, compiler.guarded, is_any)
    compiler.replay.take(guard.items)
    return guard


class DeviceGuard(StepGuard):
    """A call of the host in a step, and the `items` of a program with it; see `guard_updates`."""

    def __init__(
        self, compiler: StreamCompiler, guarded: Guarded, is_any: Callable[[bool], bool]
    ) -> None:
        super().__init__(guarded, is_any)
        self._backend = compiler.backend
        self._ledger = compiler.ledger
        self._issue = compiler.issue
        self._memory = compiler.memory
        self._graph = compiler.graph
        size = 8 * max(len(guarded.names), 1)
        self._numbers = {}
        self._noted = {}
        for d in self._memory.devices:
            self._numbers[d] = self._ledger.take(d, "numbers of the guard", size).view(np.uint64)
            self._noted[d] = self._backend.pinned(size).view(np.uint64)
        self.items = self._build(
            compiler.begins[guarded.row], guarded.arrays(self._graph, self._memory, is_apart=True)
        )
        self.items.keeps += [partial(numbers.fill, 0) for numbers in self._numbers.values()]
        for instance in guarded.kept(self._graph, self._memory):
            array = self._memory.array(instance)
            kept = self._room(int(self._graph.instance_device[instance]), array)
            self.items.keeps.append(self._backend.copy(kept, array))
            self.items.restores.append(self._backend.copy(array, kept))

    def _room(self, device: int, array: Array) -> Array:
        """Memory for a copy of an array of a device."""
        try:
            room = self._ledger.take(device, "states kept by the guard", array.nbytes)
        except ValueError:  # no room: the host has some, and copies take longer
            room = self._backend.pinned(array.nbytes)
        return room.view(array.dtype).reshape(array.shape)

    def _with_notes(self, made: Mapping[int, Sequence[tuple[Array, int]]]) -> list[Item]:
        """The items of the program; those that make gradients note which are not finite."""
        items = list(self._issue.items)
        for maker, arrays in made.items():
            number = self._issue.item_of(maker)
            numbers = self._numbers[self._issue.device(items[number].stream)]
            notes = [
                self._backend.note_not_finite(array, numbers[k : k + 1]) for array, k in arrays
            ]
            items[number] = replace(
                items[number], call=partial(call_each, (items[number].call, *notes))
            )
        return items

    def _build(self, at: int, made: Mapping[int, Sequence[tuple[Array, int]]]) -> GuardedItems:
        """The items of the program, those that make gradients with notes, and those of the guard before item `at`."""
        items = self._with_notes(made)
        late = self.guarded.late
        latest = {item.stream: k for k, item in enumerate(items[:at]) if item.stream != HOST}
        over = tuple(sorted(latest.values()))
        row = min(self.guarded.row, len(self._graph) - 1)
        added = list[Item]()
        for device, noted in self._noted.items():
            stream = self._issue.stream_of(StreamKind.OUTPUTS, device, noted.nbytes)
            call = self._backend.copy(noted, self._numbers[device])
            added.append(Item(call, stream, row, NOTE, over, "what is not finite"))
        added.append(Item(self, HOST, row, GUARD, tuple(range(at, at + len(added)))))

        def moved(item: Item) -> Item:
            return replace(item, before=tuple(k + len(added) * (k >= at) for k in item.before))

        behind = [moved(item) for item in items[at:]]
        points = {
            at + len(added) + k
            for k, one in enumerate(behind)
            if one.role == "run" and one.row in late
        }
        return GuardedItems([*items[:at], *added, *behind], at + len(added) - 1, frozenset(points))

    @property
    def bad(self) -> list[int]:
        """See `StepGuard.bad`."""
        return np.flatnonzero(np.any(list(self._noted.values()), axis=0)).tolist()
