"""A call of a library on emulated devices: all that it moves, at once, by whoever drives its row.

Takes a collective row that is not spelled out; gives one call that carries out the steps of its messages, one after the
other, in memory that all ranks map. How long it takes is what its row says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from taskflow.backend.capture import call_each
from taskflow.core.columns import Array
from taskflow.core.geometry import Rect
from taskflow.execute.memory import Memory
from taskflow.tasks.exchange import Exchange
from taskflow.tasks.task_graph import TaskGraph

Call = Callable[[], object]
FoldCall = Callable[[str, Array, Sequence[Array], Sequence[Array]], Call]


def called(graph: TaskGraph, memory: Memory, row: int, fold_call: FoldCall) -> Call:
    """The call of the collective `row`; `fold_call`: see `Compiler.fold_call`."""
    exchange = graph.exchange(row)
    calls = []
    for step in exchange.steps():
        views = [
            _view(exchange, memory, k, step.box, step.offset) for k in (step.target, *step.parts)
        ]
        calls.append(
            partial(np.copyto, views[0], views[1])
            if len(views) == 2
            else fold_call(graph.combine[int(graph.region[row])], views[0], views[1:], ())
        )
    return partial(call_each, tuple(calls))


def _view(exchange: Exchange, memory: Memory, argument: int, box: Rect, offset: int) -> Array:
    """The box in the memory of an argument; in scratch memory, so many elements behind its beginning."""
    instance = exchange.instances[argument]
    if argument < exchange.scratch.start:
        return memory.view(instance, box)
    return memory.array(instance).reshape(-1)[offset : offset + box.volume].reshape(box.shape)
