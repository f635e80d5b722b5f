"""Which of a job's ranks this process is, by the environment that the launcher made: no MPI is loaded to find out."""

from __future__ import annotations

import os

_SIZE = "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"
_LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"
_LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK"


def _number(names: tuple[str, ...], default: int) -> int:
    return next((int(os.environ[n]) for n in names if os.environ.get(n)), default)


def world_size(default: int = 1) -> int:
    """Number of ranks that the launcher started; `default` without one."""
    return _number(_SIZE, default)


def local_size() -> int:
    """Number of ranks of this host; all of the job where the launcher does not say."""
    return _number(_LOCAL_SIZE, world_size())


def local_rank() -> int:
    """Number of this rank among those of its host."""
    return _number(_LOCAL_RANK, 0)


def gpu_of(device: int, count: int) -> int:
    """The GPU, of `count` of this host, of a device: ranks, or the devices of one process, take turns on them."""
    return (local_rank() if world_size() > 1 else device) % count


def sharing(devices: int, count: int) -> int:
    """How many devices have one of the `count` GPUs of this host at most: its ranks', or those of one process."""
    return -(-(local_size() if world_size() > 1 else devices) // count)
