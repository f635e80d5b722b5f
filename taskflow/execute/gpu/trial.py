"""A trial of a GPU program before there are any values: what it needs is known before the first step.

Every item runs once, one after the other on all ranks. Regions and feeds begin with made-up values that any kernel can
take. Kernels are compiled and loaded, libraries make their handles and connections, and scratch memory grows to its
size. Two things follow. A lack of memory shows now, with numbers. And no step waits for the whole device, as loading a
kernel (which CUDA does at its first launch) and allocating memory may: while a stream of this rank waits for another
rank, such a wait would never end. Persistent regions that belong to another executor are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from taskflow.core.dtypes import is_floating
from taskflow.execute.gpu.ledger import LIBRARY, SCRATCH
from taskflow.execute.gpu.replay import HOST, Item
from taskflow.execute.gpu.streamed import StreamCompiler
from taskflow.tasks.task_graph import Privilege

_MADE_UP = 0.5  # of floating-point numbers; integers may be indices, and are 0


def try_kernels(compiler: StreamCompiler, is_borrowing: bool = False) -> None:
    """Run all items once; persistent regions that are borrowed keep their values, so no item runs that writes them.

    Then calls of a library are left out, too: they would write on some ranks and not on others.
    """
    over = compiler.backend.make_event()
    homes = {i for places in compiler.graph.homes.values() for i, _ in places}
    with np.errstate(all="ignore"):
        _make_up(compiler, set() if is_borrowing else homes, over)
        for item in compiler.issue.items:
            _try(compiler, item, homes if is_borrowing else set(), over)
    for device, workspace in compiler.workspaces.items():
        workspace.settle()
        compiler.ledger.taken[device][SCRATCH] = workspace.size_bytes


def _try(compiler: StreamCompiler, item: Item, kept: set[int], over: object) -> None:
    if item.stream == HOST:
        item.call()
        return
    written = _written(compiler, item)
    if item.role == "together" and not kept:
        device = compiler.transport.rank  # its first call connects ranks, which takes memory
        with compiler.ledger.room(device, LIBRARY, compiler.ledger.expected[device][LIBRARY]):
            _run(compiler, item.stream, item.row, item.call, over)
    elif kept and item.role == "together":
        for instance in sorted(written - kept):
            _run(compiler, item.stream, item.row, _filling(compiler, instance), over)
    elif item.role in ("await", "signal", "send", "fetch") or not written & kept:
        with compiler.ledger.room(compiler.issue.device(item.stream)):  # a product is the first to need its library
            _run(compiler, item.stream, item.row, item.call, over)


def _make_up(compiler: StreamCompiler, homes: set[int], over: object) -> None:
    """Values for what a step begins with: the homes of persistent regions, and feeds."""
    for instance in sorted(i for i in homes if compiler.issue.drives_instance(i)):
        device = int(compiler.graph.instance_device[instance])
        _run(compiler, device, 0, _filling(compiler, instance), over)
    for device, part in compiler.staging.parts():
        _run(compiler, device, 0, partial(part.array.fill, _value(part.dtype)), over)


def _filling(compiler: StreamCompiler, instance: int) -> Callable[[], object]:
    dtype = compiler.graph.regions[int(compiler.graph.instance_region[instance])].dtype
    return partial(compiler.memory.array(instance).fill, _value(dtype))


def _value(dtype: str) -> float:
    return _MADE_UP if is_floating(dtype) else 0


def _written(compiler: StreamCompiler, item: Item) -> set[int]:
    """The instances on this rank that the row of an item writes."""
    args = compiler.graph.args(item.row)
    return {i for i, _, p in args if i >= 0 and p != Privilege.READ and compiler.issue.drives_instance(i)}


def _run(compiler: StreamCompiler, number: int, row: int, call: Callable[[], object], over: object) -> None:
    """Have a stream do something, and wait for it."""
    backend, stream = compiler.backend, compiler.issue.streams[number]
    try:
        backend.run(stream, call)
        backend.record(stream, over)
        backend.synchronize(over)
    except Exception as error:
        error.add_note(f"while row {compiler.graph[row]} was tried before the first step")
        raise
