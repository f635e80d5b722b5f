"""Transports: how bytes get from one rank to another. The only file that imports mpi4py.

`connect` gives the transport of this process: `LocalTransport` alone, `MpiTransport` under mpirun. A transport decides
nothing; the executor asks it for bound calls that start and await one transfer, and for a few collective calls.

Inside a step a rank that waits polls, for a step is over in milliseconds. Elsewhere one rank may search, compile or
write a checkpoint while the others wait, so `gather` and `barrier` sleep, see `_sleep_until`.
"""

from __future__ import annotations

import atexit
import logging
import mmap
import os
import platform
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from functools import cache, partial
from threading import Lock
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from taskflow.comm.ending import enter
from taskflow.comm.heart import heart
from taskflow.comm.judge import Cell, Stage
from taskflow.comm.launch import rank_settings
from taskflow.core.columns import Array
from taskflow.core.errors import InternalError
from taskflow.core.numbers import KIB
from taskflow.core.system import host_name, world_size

Call = Callable[[], object]
Result = TypeVar("Result")

_log = logging.getLogger(__name__)

_AWAKE_SECONDS = 1e-3  # of polling before the first sleep: most ranks come that close together
_LONGEST_SLEEP_SECONDS = 5e-3
# While a message comes from another host: what arrives meanwhile the system holds.
_LONGEST_NAP_SECONDS = 1e-4
# Of messages between hosts. What is larger Open MPI announces, and sends when the receiver has answered; over TCP the
# answer stands in line behind what the receiver sends itself. Two hosts that sent each other 2 MB over 1 Gb/s, again
# and again, took 1.6 to 1.8 times as long as the link needs, in pieces 1.02 times. Open MPI's limit is 64 KiB in all.
_PIECE_BYTES = 60 * KIB


class Message(NamedTuple):
    """One end of a message, sent or received again and again: calls that start, await, ask for and forget it."""

    start: Call
    wait: Call
    is_over: Callable[[], bool]
    free: Call


class OneCall:
    """One call of an executor at a time, of those that share regions and, under mpirun, of all: one thread calls MPI.

    Raises (when entered):
        ValueError: another call is under way.
    """

    def __init__(self) -> None:
        self._lock = Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ValueError(
                "executor: it is in use, by another thread or by a feed; it takes one call at a time"
            )

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Transport(ABC):
    """Moves boxes of instances between ranks; device d is driven by rank d, or by that of a plan: see `over`."""

    rank: int
    size: int
    hosts: Sequence[int] = (0,)  # of every rank, in the order in which they come
    alone: OneCall | None = None  # shared by all who use this transport
    _planned = 0  # devices that are dealt out

    def over(self, devices_used: Sequence[int]) -> Self:
        """This transport for a plan that uses these devices.

        Where there are more of them than ranks, a rank drives several, one behind the other in number; their counts
        differ by one at most.
        """
        other = copy(self)
        other._planned = max(max(devices_used, default=0) + 1, self.size)
        return other

    def rank_of(self, device: int) -> int:
        """The rank that drives `device`."""
        if not self._planned:
            return device if self.size > 1 else 0
        return (
            device % self._planned * self.size // self._planned
        )  # those that the plan does not use begin anew

    def ranks_of(self, devices: int) -> Array:
        """The rank of each of so many devices."""
        return np.array([self.rank_of(d) for d in range(devices)], np.int64)

    def drives(self, device: int) -> bool:
        """Whether this rank drives `device`."""
        return self.rank_of(device) == self.rank

    @abstractmethod
    def sender(self, parts: Sequence[Array], target: int, tag: int) -> Message:
        """Calls that send `parts`, which may have strides, as one message to device `target`."""

    @abstractmethod
    def receiver(self, parts: Sequence[Array], source: int, tag: int) -> Message:
        """Calls that receive into `parts` one message of device `source`."""

    def shared_arrays(self, size_bytes: int) -> list[Array | None] | None:
        """One zeroed byte array per rank of this host, readable and writable by all of them; None for other ranks.

        All ranks call it, each with the size of its own array. None where any host's shared memory lacks room.
        """
        return None

    def give_way(self) -> None:
        """What a rank does again and again that waits for another one of its host: it lets messages go on."""
        os.sched_yield()

    @abstractmethod
    def broadcast(self, array: Array, root: int) -> None:
        """Overwrite a contiguous `array` on all ranks with that of rank `root`; part of a step, so nobody sleeps."""

    @abstractmethod
    def gather(self, value: object) -> list[Any]:
        """The `value` of every rank, on every rank; who is early sleeps."""

    def on_rank_0(self, act: Callable[[], Result]) -> Result:
        """What `act` gives on rank 0, see `on_rank`."""
        return self.on_rank(0, act)

    def on_rank(self, rank: int, act: Callable[[], Result]) -> Result:
        """What `act` gives on a rank, on every rank; its error, if the user or the system is at fault, too."""
        made: list[Result] = []
        error: BaseException | None = None
        if self.rank == rank:
            try:
                made = [act()]
            except (OSError, ValueError, KeyboardInterrupt) as problem:
                error = problem
        made, error = self.gather((made, error))[rank]
        if error is not None:
            raise error
        return made[0]

    @abstractmethod
    def is_any(self, flag: bool) -> bool:
        """Whether `flag` is true on any rank; part of a step, so nobody sleeps."""

    @abstractmethod
    def barrier(self, in_step: bool = False) -> None:
        """Return when all ranks have called it, within microseconds of each other; who is early sleeps, or polls."""


class LocalTransport(Transport):
    """One process that drives all devices: there is nothing to send."""

    rank = 0
    size = 1

    def sender(self, parts: Sequence[Array], target: int, tag: int) -> Message:
        raise InternalError("one process has nobody to send to")

    def receiver(self, parts: Sequence[Array], source: int, tag: int) -> Message:
        raise InternalError("one process has nobody to receive from")

    def broadcast(self, array: Array, root: int) -> None:
        """Nothing to do."""

    def gather(self, value: object) -> list[Any]:
        return [value]

    def is_any(self, flag: bool) -> bool:
        return flag

    def barrier(self, in_step: bool = False) -> None:
        """Nothing to do."""


class MpiTransport(Transport):
    """Ranks under mpirun: persistent requests straight from and into instances."""

    def __init__(self) -> None:
        os.environ.update(rank_settings(os.environ))
        with heart().meeting():
            from mpi4py import MPI

            self._mpi = MPI
            self._world = MPI.COMM_WORLD.Dup()
        with suppress(ValueError):  # not the main thread
            signal.signal(
                signal.SIGHUP, signal.getsignal(signal.SIGHUP) or signal.SIG_DFL
            )  # MPI has swallowed it
        self.rank = self._world.Get_rank()
        self.size = self._world.Get_size()
        if self.size == 1 < world_size():
            raise ValueError(
                f"{world_size()} processes were started, but MPI joins none of them; of Slurm, ask for "
                "`srun --mpi=pmix`, or start them by `taskflow run` in the job"
            )
        self.alone = OneCall()
        names = self._world.allgather(host_name())
        numbers = {name: k for k, name in enumerate(dict.fromkeys(names))}
        self.hosts = [numbers[name] for name in names]
        if not heart().cells[Cell.PHASE]:
            enter("script")
        if len(numbers) > 1:
            meeting = self._world.bcast(heart().await_hosts() if self.rank == 0 else None)
            if self.rank:
                heart().meet_hosts(*meeting)
        atexit.register(self._leave)

    def sender(self, parts: Sequence[Array], target: int, tag: int) -> Message:
        return self._message(self._world.Send_init, parts, self.rank_of(target), tag)

    def receiver(self, parts: Sequence[Array], source: int, tag: int) -> Message:
        return self._message(self._world.Recv_init, parts, self.rank_of(source), tag)

    def _message(
        self, init: Callable[..., Any], parts: Sequence[Array], peer: int, tag: int
    ) -> Message:
        if self.hosts[peer] != self.hosts[self.rank]:
            return self._in_pieces(
                [self._one(init, piece, peer, tag) for piece in pieces(parts, _PIECE_BYTES)]
            )
        request, free = self._one(init, parts, peer, tag)
        return Message(request.Start, request.Wait, request.Test, free)

    def _in_pieces(self, several: Sequence[tuple[Any, Call]]) -> Message:
        """Requests, which are matched in their order, and how to free them, as one message."""
        requests, frees = zip(*several, strict=True)
        is_over = partial(self._mpi.Request.Testall, requests)
        starts = [request.Start for request in requests]
        wait = partial(_sleep_until, is_over, _LONGEST_NAP_SECONDS)
        return Message(partial(_call_each, starts), wait, is_over, partial(_call_each, frees))

    def _one(
        self, init: Callable[..., Any], parts: Sequence[Array], peer: int, tag: int
    ) -> tuple[Any, Call]:
        """A request for one message, and what frees it."""
        buffer, kind = self._buffer(parts)
        request = init(buffer, peer, tag)
        return request, partial(self._free, request, kind, parts)

    def _free(self, request: Any, kind: Any, parts: Sequence[Array]) -> None:
        """Free a request and its type; `parts` are kept until then, for the request knows them by address alone."""
        if (
            not self._mpi.Is_finalized() and request.Test()
        ):  # one that is under way, after an exception, is left alone
            request.Free()
            if kind is not None:
                kind.Free()

    def shared_arrays(self, size_bytes: int) -> list[Array | None] | None:
        """Files in shared memory that have no name; other ranks map them as open files of this one.

        So they vanish with the last process that uses them, however it ends. (Rejected: `MPI.Win.Allocate_shared`,
        whose memory must be freed by all ranks together.)
        """
        if platform.machine() not in ("x86_64", "AMD64"):
            return None  # a processor that may reorder stores
        made = _make_shared_file(size_bytes)
        paths = self.gather(made and (f"/proc/{os.getpid()}/fd/{made[0]}", made[1]))
        if any(path is None for path in paths):
            _log.warning(
                "shared memory has no room for %d bytes: ranks exchange messages instead",
                size_bytes,
            )
            arrays: list[Array | None] | None = None
        else:
            here = self.hosts[self.rank]
            arrays = [
                _map_file(*path) if host == here else None
                for host, path in zip(self.hosts, paths, strict=True)
            ]
        self.barrier()
        if made is not None:
            os.close(made[0])
        return arrays

    def give_way(self) -> None:
        if max(self.hosts):
            self._world.Iprobe()  # any call of MPI does
        os.sched_yield()

    def _buffer(self, parts: Sequence[Array]) -> tuple[Any, Any]:
        """A message buffer, and its MPI type if it has one of its own.

        Plain bytes for one contiguous part, else a type of addresses and strides.
        """
        if len(parts) == 1 and parts[0].flags.c_contiguous:
            return [parts[0].reshape(-1).view(np.uint8), self._mpi.BYTE], None
        kinds = [self._strided(part) for part in parts]
        addresses = [part.ctypes.data for part in parts]
        whole = self._mpi.Datatype.Create_struct([1] * len(parts), addresses, kinds).Commit()
        for kind in kinds:
            kind.Free()
        return [self._mpi.BOTTOM, 1, whole], whole

    def _strided(self, part: Array) -> Any:
        kind = self._mpi.BYTE.Create_contiguous(part.itemsize)
        for count, stride in zip(reversed(part.shape), reversed(part.strides), strict=True):
            inner = kind
            kind = kind.Create_hvector(count, 1, stride)
            inner.Free()
        return kind

    def broadcast(self, array: Array, root: int) -> None:
        self._world.Bcast([array.reshape(-1).view(np.uint8), self._mpi.BYTE], root)

    def gather(self, value: object) -> list[Any]:
        with heart().meeting():
            self._assemble()
            return list(self._world.allgather(value))

    def is_any(self, flag: bool) -> bool:
        flags = np.array([flag])
        self._world.Allreduce(
            self._mpi.IN_PLACE, [flags.view(np.uint8), self._mpi.UINT8_T], self._mpi.MAX
        )
        return bool(flags[0])

    def barrier(self, in_step: bool = False) -> None:
        with nullcontext() if in_step else heart().meeting():
            if not in_step:
                self._assemble()
            self._world.Barrier()  # who has slept is up to 5 ms late

    def _leave(self) -> None:
        """Wait for all ranks to leave, before MPI's own end, which polls."""
        heart().approach_end(Stage.LEAVING)
        self._assemble()

    def _assemble(self) -> None:
        """Return when all ranks have called it; until then this one sleeps."""
        if not self._mpi.Is_finalized():
            _sleep_until(self._world.Ibarrier().Test)


def pieces(parts: Sequence[Array], most_bytes: int) -> list[list[Array]]:
    """Parts of a message as several messages, of at most so many bytes each; depends on their shapes alone."""
    if sum(part.nbytes for part in parts) <= most_bytes:
        return [list(parts)]
    return [[piece] for part in parts for piece in _cut(part, most_bytes)]


def _cut(part: Array, most_bytes: int) -> Iterator[Array]:
    if part.nbytes <= most_bytes:
        yield part
    elif len(part) == 1:
        yield from _cut(part[0], most_bytes)
    else:
        count = max(most_bytes * len(part) // part.nbytes, 1)
        for begin in range(0, len(part), count):
            yield from _cut(part[begin : begin + count], most_bytes)


def _call_each(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _sleep_until(is_over: Callable[[], bool], longest: float = _LONGEST_SLEEP_SECONDS) -> None:
    """Ask again and again until it is over: at first without pause, then with sleeps of an eighth of the wait so far.

    So a wait becomes an eighth longer at most, and a long one takes 2 % of a core: 200 questions a second.
    """
    begin = time.monotonic()
    while not is_over():
        waited = time.monotonic() - begin
        if waited > _AWAKE_SECONDS:
            time.sleep(min(waited / 8, longest))
        else:
            os.sched_yield()


def _make_shared_file(size_bytes: int) -> tuple[int, int] | None:
    """An open file of that size in shared memory, its pages reserved, without a name; None where there is no room."""
    size = max(size_bytes, 1)
    try:
        handle, path = tempfile.mkstemp(prefix="taskflow-", dir="/dev/shm")
        os.unlink(path)
    except OSError:
        return None
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError:  # no room: ENOSPC now instead of a bus error later
        os.close(handle)
        return None
    return handle, size


def _map_file(path: str, size: int) -> Array:
    with open(path, "r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)


@cache
def connect() -> Transport:
    """The transport of this process; made once, since MPI is initialised once."""
    return MpiTransport() if world_size() > 1 else LocalTransport()
