"""Agreement: what must be the same on all ranks is compared before the first step, and before a region is written.

Kernels are compared by what they do, as far as that can be told: the code of their functions, constants and what these
close over. A task graph's own digest names kernels only, so that it stays from run to run and from version to version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taskflow.comm.transport import Transport, connect
from taskflow.core.told import digest_of_bytes
from taskflow.tasks.task_graph import Array, TaskGraph

TRANSPORTS = ("auto", "shared", "messages", "nccl")


def kind_of_devices(task_graph: TaskGraph, transport: str) -> str:
    """The one kind of all devices; ValueError where there are several, or it has no such transport."""
    if transport not in TRANSPORTS:
        raise ValueError(
            f"executor: transport is one of {', '.join(TRANSPORTS)}, not '{transport}'"
        )
    kinds = {d.kind for d in task_graph.machine.devices}
    for kind in ("emulated", "cuda"):
        if kind in kinds and len(kinds) > 1:
            raise ValueError(f"executor: either all devices of a machine are {kind} or none")
    kind = kinds.pop()
    if kind == "cuda" and task_graph.machine.holds_compute:
        raise ValueError(
            "executor: collectives travel under compute; a machine on which they are 'behind' it is for predictions"
        )
    if transport == "nccl" and kind != "cuda":
        raise ValueError(f"executor: transport='nccl' is for cuda devices, these are {kind}")
    return kind


def connect_for(task_graph: TaskGraph, kind: str) -> Transport:
    """The transport of a task graph on devices of this kind.

    Raises:
        ValueError: there are fewer ranks than cuda devices.
    """
    transport = connect()
    used = task_graph.devices_used
    if kind != "cuda":
        return transport.over(used)
    if transport.size > 1 and used and max(used) >= transport.size:
        raise ValueError(
            f"executor: the strategy uses {len(used)} cuda devices up to number {max(used)}, and a rank drives one; "
            f"mpirun started {transport.size} ranks"
        )
    return transport


class _Said(NamedTuple):
    """What a rank is about to run: see `_agreed`; its seed; and the digest of all kernels."""

    devices: object
    rows: str
    digest: str
    seed: int
    kernels: bytes


def check_ranks(task_graph: TaskGraph, seed: int, transport: Transport) -> None:
    """All ranks run the same rows and kernels with the same seed.

    Raises:
        ValueError: on every rank; the message names the ranks, and the operator whose kernels differ. Or the seed is no
            number of 64 bits.
    """
    if (
        not isinstance(seed, int | np.integer)
        or isinstance(seed, bool)
        or not -(1 << 63) <= seed < 1 << 63
    ):
        raise ValueError(f"executor: seed is a whole number of 64 bits, not {seed!r}")
    if transport.size == 1:
        return
    kernels = [launch.kernel.digest for launch in task_graph.launches]
    by_rank = transport.gather(
        _Said(*_agreed(task_graph), seed, digest_of_bytes("\0".join(kernels).encode()))
    )
    first: dict[object, str] = {}  # of ranks with the rows of the same devices
    for rank, said in enumerate(by_rank):
        if said.digest != by_rank[0].digest or said.rows != first.setdefault(
            said.devices, said.rows
        ):
            raise ValueError(
                f"executor: rank {rank} runs another task graph ({said.digest or said.rows}) than rank 0 "
                f"({by_rank[0].digest or by_rank[0].rows})"
            )
        if said.seed != by_rank[0].seed:
            raise ValueError(
                f"executor: rank {rank} has seed {said.seed}, rank 0 has {by_rank[0].seed}"
            )
    if len({said.kernels for said in by_rank}) > 1:
        _refuse_kernels(task_graph, transport.gather(kernels))


def _agreed(task_graph: TaskGraph) -> tuple[tuple[int, ...] | None, str, str]:
    """Whose rows these are, a hash of them, and one of what decides the rows of all devices, if these are of some."""
    agreed = task_graph.own.agreed if task_graph.own else ""
    return task_graph.devices, task_graph.digest(), agreed


def _refuse_kernels(task_graph: TaskGraph, by_rank: Sequence[Sequence[str]]) -> None:
    """Name an operator of which the kernels of ranks differ."""
    for rank, theirs in enumerate(by_rank):
        for launch, mine, first in zip(task_graph.launches, theirs, by_rank[0], strict=True):
            if mine != first:
                raise ValueError(
                    f"executor: rank {rank} runs another kernel for '{launch.name}' than rank 0: "
                    f"its code or what it closes over"
                )


def check_room(shortage: str, transport: Transport) -> None:
    """Every host has the memory that its devices need.

    Raises:
        ValueError: on every rank, with the `shortage` of the first that has one; empty: it has none.
    """
    is_shared = len(set(transport.hosts)) > 1  # else all ranks know of all devices
    for lacking in transport.gather(shortage) if is_shared else [shortage]:
        if lacking:
            raise ValueError(lacking)


def check_written(name: str, value: Array, transport: Transport) -> None:
    """All ranks write the same value into the region `name`.

    Raises:
        ValueError: on every rank.
    """
    by_rank = (
        transport.gather((name, digest_of_bytes(value.tobytes()))) if transport.size > 1 else []
    )
    for rank, other in enumerate(by_rank):
        if other != by_rank[0]:
            raise ValueError(
                f"write '{name}': rank {rank} gives another value, or another region, than rank 0"
            )
