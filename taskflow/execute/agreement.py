"""Agreement: what must be the same on all ranks is compared before the first step, and before a region is written.

Kernels are compared by what they do, as far as that can be told: the code of their functions, constants and what these
close over. A task graph's own digest names kernels only, so that it stays from run to run and from version to version.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache, partial
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from taskflow.comm.transport import Transport, connect
from taskflow.graph.kernel import Kernel
from taskflow.tasks.task_graph import Array, TaskGraph


def connect_for(task_graph: TaskGraph, kind: str) -> Transport:
    """The transport of a task graph on devices of this kind.

    Raises:
        ValueError: there are fewer ranks than cuda devices.
    """
    transport, used = connect(), task_graph.devices_used
    if kind != "cuda":
        return transport.over(used)
    if transport.size > 1 and used and max(used) >= transport.size:
        raise ValueError(
            f"executor: the strategy uses {len(used)} cuda devices up to number {max(used)}, and a rank drives one; "
            f"mpirun started {transport.size} ranks"
        )
    return transport


def check_ranks(task_graph: TaskGraph, seed: int, transport: Transport) -> None:
    """All ranks run the same rows and kernels with the same seed.

    Raises:
        ValueError: on every rank; the message names the ranks, and the operator whose kernels differ. Or the seed is no
            number of 64 bits.
    """
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not -(1 << 63) <= seed < 1 << 63:
        raise ValueError(f"executor: seed is a whole number of 64 bits, not {seed!r}")
    if transport.size == 1:
        return
    known, kernels = dict[object, bytes](), []
    for kernel in (launch.kernel for launch in task_graph.launches):
        same = id(kernel.function), *kernel.options, *map(id, kernel.options.values())
        kernels.append(known[same] if same in known else known.setdefault(same, _short(kernel)))
    found = transport.gather((task_graph.digest(), seed, kernels))
    for rank, (digest, other, theirs) in enumerate(found):
        if digest != found[0][0]:
            raise ValueError(f"executor: rank {rank} runs another task graph ({digest}) than rank 0 ({found[0][0]})")
        if other != found[0][1]:
            raise ValueError(f"executor: rank {rank} has seed {other}, rank 0 has {found[0][1]}")
        for launch, mine, first in zip(task_graph.launches, theirs, found[0][2], strict=True):
            if mine != first:
                raise ValueError(
                    f"executor: rank {rank} runs another kernel for '{launch.name}' than rank 0: "
                    f"its code or what it closes over"
                )


def check_written(name: str, value: Array, transport: Transport) -> None:
    """All ranks write the same value into the region `name`.

    Raises:
        ValueError: on every rank.
    """
    found = transport.gather((name, _hash(value.tobytes()))) if transport.size > 1 else []
    for rank, other in enumerate(found):
        if other != found[0]:
            raise ValueError(f"write '{name}': rank {rank} gives another value, or another region, than rank 0")


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _short(kernel: Kernel) -> bytes:
    return _hash(repr(_told(kernel)).encode())


def _told(value: Any, depth: int = 0) -> object:
    """What can be told of a value without addresses of memory; objects of unknown types by their type."""
    if depth > 8:  # a function may close over itself
        return "..."
    if isinstance(value, Kernel):
        return _told((value.function, dict(value.options)), depth)
    if isinstance(value, partial):
        return _told((value.func, value.args, value.keywords), depth)
    value = getattr(value, "py_func", value)  # of what numba compiled
    if isinstance(value, FunctionType):
        parts = value.__code__, value.__defaults__, value.__kwdefaults__, value.__closure__
        return value.__qualname__, _told(parts, depth + 1)
    if isinstance(value, CellType):
        try:
            return _told(value.cell_contents, depth)
        except ValueError:  # it is empty
            return None
    if isinstance(value, CodeType):
        return _told_code(value, depth)
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, _hash(value.tobytes())
    if isinstance(value, tuple | list):
        return [_told(one, depth + 1) for one in value]
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    if isinstance(value, dict):
        return [(str(key), _told(one, depth + 1)) for key, one in value.items()]
    is_plain = value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic)
    return repr(value) if is_plain else type(value).__qualname__


@lru_cache(4096)
def _told_code(value: CodeType, depth: int) -> object:
    return value.co_code, value.co_names, _told(value.co_consts, depth)
