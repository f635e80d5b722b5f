"""The guard of a step on GPUs: each device notes whether the loss and its gradients are finite, and the host decides.

A step is issued, or captured, in two parts. At the end of the first one the devices copy what they have noted to pinned
memory, and the host, which waits for that, agrees with all other ranks. If the step is given up, the second part is
issued without its points, item by item: copies, folds, messages and signals go on, since other ranks count on them.
States that are updated in the first part are kept before, and then get the values back that they had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from taskflow.backend.capture import call_each
from taskflow.execute.gpu.issue import StreamKind
from taskflow.execute.gpu.replay import HOST, GuardedItems, Item
from taskflow.execute.gpu.streamed import StreamCompiler
from taskflow.execute.guard import GivenUp, find_guarded
from taskflow.execute.program import GUARD
from taskflow.tasks.task_graph import Array, Kind, Privilege

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
        self._memory, self._is_any = compiler.memory, is_any
        row, checked, early = find_guarded(compiler.graph, compiler.memory)
        self._noted: list[Array] = []  # in pinned memory, a number of every device
        self.items = self._build(row, compiler.begins[row], checked)
        for instance in early:
            array = self._memory.array(instance)
            kept = self._ledger.take(self._device(instance), "states kept by the guard", array.nbytes)
            kept = kept.view(array.dtype).reshape(array.shape)
            self.items.keeps.append(self._backend.copy(kept, array))
            self.items.restores.append(self._backend.copy(array, kept))

    def _device(self, instance: int) -> int:
        return int(self._issue.graph.instance_device[instance])

    def _build(self, row: int, at: int, checked: Sequence[int]) -> GuardedItems:
        """The items of the program with those of the guard before item `at`, which are for `row`."""
        late = [r for r in range(row) if self._issue.is_behind(r, at) and self._makes(r, checked)]
        if late:
            name = self._issue.graph.name(late[0])
            raise ValueError(f"on_nan='skip': row {late[0]}, '{name}', runs together with rows behind all gradients")
        items, row = self._issue.items, min(row, len(self._issue.graph) - 1)
        latest = {item.stream: k for k, item in enumerate(items[:at]) if item.stream != HOST}
        over, added = tuple(sorted(latest.values())), list[Item]()
        for device in sorted({self._device(i) for i in checked}):
            arrays = [self._memory.array(i) for i in checked if self._device(i) == device]
            stream = self._issue.number(StreamKind.COMPUTE, device)
            added.append(Item(self._noting(device, arrays), stream, row, "note", over, "note what is not finite"))
        added.append(Item(self, HOST, row, GUARD, tuple(range(at, at + len(added)))))

        def moved(item: Item) -> Item:
            return replace(item, before=tuple(k + len(added) * (k >= at) for k in item.before))

        behind = [moved(item) for item in items[at:]]
        is_point = self._issue.graph.kind == Kind.POINT
        points = {at + len(added) + k for k, one in enumerate(behind) if one.role == "run" and is_point[one.row]}
        return GuardedItems([*items[:at], *added, *behind], at + len(added) - 1, frozenset(points))

    def _makes(self, row: int, instances: Sequence[int]) -> bool:
        graph = self._issue.graph
        return graph.kind[row] != Kind.COPY and any(
            i in instances for i, _, p in graph.args(row) if p != Privilege.READ
        )

    def _noting(self, device: int, arrays: Sequence[Array]) -> Call:
        found = self._ledger.take(device, "numbers of the guard", 8).view(np.uint64)
        noted = self._backend.pinned(8).view(np.uint64)
        self._noted.append(noted)
        notes = [self._backend.note_not_finite(array, found) for array in arrays]
        return partial(call_each, (partial(found.fill, 0), *notes, self._backend.copy(noted, found)))

    def __call__(self) -> None:
        """Go on, or raise GivenUp, as all other ranks do."""
        if self._is_any(any(bool(noted[0]) for noted in self._noted)):
            raise GivenUp
