"""Transports: how bytes get from one rank to another. The only file that imports mpi4py.

`connect` gives the transport of this process: `LocalTransport` alone, `MpiTransport` under mpirun. A transport decides
nothing; the executor asks it for bound calls that start and await one transfer, and for a few collective calls outside
of steps.
"""

from __future__ import annotations

import os
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from taskflow.errors import InternalError
from taskflow.geometry import Rect

Array = np.ndarray[Any, np.dtype[Any]]
Call = Callable[[], object]

_SETTINGS = {  # measured: without them MPI_Init takes 1 s, and waiting ranks steal the cores of working ones
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_osc": "^ucx",
}


class Transport(ABC):
    """Moves boxes of instances between ranks; device d is driven by rank d, or all devices by a single rank."""

    rank: int
    size: int

    def drives(self, device: int) -> bool:
        """Whether this rank drives `device`."""
        return self.size == 1 or device == self.rank

    @abstractmethod
    def sender(self, array: Array, box: Rect, target: int, tag: int) -> tuple[Call, Call]:
        """Calls that start and await sending `box` (in the coordinates of `array`) to device `target`."""

    @abstractmethod
    def receiver(self, array: Array, box: Rect, source: int, tag: int) -> tuple[Call, Call]:
        """Calls that start and await receiving `box` of `array` from device `source`."""

    @abstractmethod
    def broadcast(self, array: Array, root: int) -> None:
        """Overwrite a contiguous `array` on all ranks with that of rank `root`."""

    @abstractmethod
    def gather(self, value: object) -> list[Any]:
        """The `value` of every rank, on every rank."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when all ranks have called it."""


class LocalTransport(Transport):
    """One process that drives all devices: there is nothing to send."""

    rank, size = 0, 1

    def sender(self, array: Array, box: Rect, target: int, tag: int) -> tuple[Call, Call]:
        raise InternalError("one process has nobody to send to")

    def receiver(self, array: Array, box: Rect, source: int, tag: int) -> tuple[Call, Call]:
        raise InternalError("one process has nobody to receive from")

    def broadcast(self, array: Array, root: int) -> None:
        """Nothing to do."""

    def gather(self, value: object) -> list[Any]:
        return [value]

    def barrier(self) -> None:
        """Nothing to do."""


class MpiTransport(Transport):
    """Ranks under mpirun: persistent requests straight from and into instances."""

    def __init__(self) -> None:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        from mpi4py import MPI

        self._mpi = MPI
        self._world = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        self._types: list[Any] = []
        _abort_on_exception(self.rank, MPI.COMM_WORLD)

    def sender(self, array: Array, box: Rect, target: int, tag: int) -> tuple[Call, Call]:
        request = self._world.Send_init(self._buffer(array, box), target, tag)
        return request.Start, request.Wait

    def receiver(self, array: Array, box: Rect, source: int, tag: int) -> tuple[Call, Call]:
        request = self._world.Recv_init(self._buffer(array, box), source, tag)
        return request.Start, request.Wait

    def _buffer(self, array: Array, box: Rect) -> Any:
        """A message buffer: plain bytes where the box is contiguous, else an MPI subarray type of them."""
        part = array[box.slices()]
        if part.flags.c_contiguous:
            return [part.reshape(-1).view(np.uint8), self._mpi.BYTE]
        flat = array.reshape(-1).view(np.uint8)
        kind = self._mpi.BYTE.Create_subarray(
            [*array.shape, array.itemsize], [*box.shape, array.itemsize], [*box.lo, 0]
        ).Commit()
        self._types.append(kind)
        return [flat, 1, kind]

    def broadcast(self, array: Array, root: int) -> None:
        self._world.Bcast([array.reshape(-1).view(np.uint8), self._mpi.BYTE], root)

    def gather(self, value: object) -> list[Any]:
        return list(self._world.allgather(value))

    def barrier(self) -> None:
        self._world.Barrier()


@cache
def connect() -> Transport:
    """The transport of this process; made once, since MPI is initialised once."""
    return MpiTransport() if world_size() > 1 else LocalTransport()


def world_size() -> int:
    """Number of ranks that the launcher started, from its environment: no MPI is loaded to find out."""
    names = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
    return next((int(os.environ[n]) for n in names if n in os.environ), 1)


def _abort_on_exception(rank: int, world: Any) -> None:
    """An exception that nobody catches ends all ranks; without this the others wait for ever."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if issubclass(kind, KeyboardInterrupt | SystemExit):
            previous(kind, error, trace)
            return
        text: Sequence[str] = traceback.format_exception(kind, error, trace)
        sys.stderr.write(f"taskflow: rank {rank} failed and ends all ranks\n" + "".join(text))
        sys.stderr.flush()
        world.Abort(1)

    sys.excepthook = hook
