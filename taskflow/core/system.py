"""What the operating system says of the host, what Linux does for a process that asks (`prctl`), and which of a job's
ranks this process is.

That is by the environment that the launcher made: no MPI is loaded to find out.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

INTERFACE = "TASKFLOW_INTERFACE"  # the network interface between hosts
_GET_ADDRESS = 0x8915  # SIOCGIFADDR, <linux/sockios.h>
_SET_DEATH_SIGNAL = 1
_SET_TIMER_SLACK = 29
_SET_TRACER = 0x59616D61  # <linux/prctl.h>


def end_with_parent() -> None:
    """From now on this process is sent SIGTERM when its parent ends."""
    _prctl(_SET_DEATH_SIGNAL, int(signal.SIGTERM))


def wake_on_time() -> None:
    """From now on a sleep of this thread ends 10 to 45 us late instead of 75 to 95: Linux adds 50 to be lazy."""
    _prctl(_SET_TIMER_SLACK, 1)


def accept_tracer(process: int) -> None:
    """From now on that process may read the memory of this one, where only parents may."""
    _prctl(_SET_TRACER, process)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def give_back_memory() -> None:
    """What the C library keeps of freed memory is the system's again; glibc alone can."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def tell_status(handle: int, before: bytes) -> None:
    """When this process leaves, write `before` and its exit status, one byte, which Python tells no hook.

    The C library does it, after all of Python has ended; glibc alone can.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        libc.fdopen.restype = ctypes.c_void_p
        stream = ctypes.c_void_p(libc.fdopen(os.dup(handle), b"w"))
        libc.fputs(before, stream)  # into its buffer, which is written at the very end
        libc.on_exit(libc.fputc, stream)


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def unused_bytes() -> int:
    """Memory of the host in which nothing is: less than `free_bytes`, and asked for in a hundredth of the time."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def free_bytes() -> int:
    """Memory of the host that processes can have; where the system does not say, all that there is."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(
            next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        )
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


STOPPING = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGUSR1,
)  # ask for an end; mpirun passes the last on


def outlives_terminal(number: int) -> bool:
    """Whether this signal is SIGHUP, and this process was started to ignore it, as `nohup` does."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN


def host_name() -> str:
    """The name of this host, its latest start and its network, which no other host has: two network namespaces are two
    hosts.
    """
    name = os.uname().nodename
    with suppress(OSError):
        name += Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink(
            "/proc/self/ns/net"
        )
    return name


def host_address() -> str:
    """Where other hosts reach this one: the IPv4 address of the interface `TASKFLOW_INTERFACE`, else its name."""
    if interface := os.environ.get(INTERFACE):
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            reply = fcntl.ioctl(
                any_socket, _GET_ADDRESS, struct.pack("40s", interface.encode()[:15])
            )
            return socket.inet_ntoa(reply[20:24])  # of a `struct ifreq`
    return socket.gethostname()


# -- the job -----------------------------------------------------------------------------------------------------------


PATIENCE = "TASKFLOW_PATIENCE"
RESTART = "TASKFLOW_RESTART"
PATIENCE_SECONDS = 60.0
STEP_TASKS = "SLURM_STEP_TASKS_PER_NODE"
STEP_SIZE = "SLURM_STEP_NUM_TASKS"  # what `srun` starts; the shell of a job is no step
_SIZE = "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", STEP_SIZE
_RANK = "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"
_JOB = "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"
_LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"
_LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"


def _number(names: tuple[str, ...], default: int) -> int:
    """What the first of these variables that is set says; ValueError where that is no number from 0."""
    name = next((n for n in names if os.environ.get(n)), None)
    if name is None:
        return default
    if not (os.environ[name].isascii() and os.environ[name].isdigit()):
        raise ValueError(f"{name}: is a whole number from 0, not '{os.environ[name]}'")
    return int(os.environ[name])


def world_size(default: int = 1) -> int:
    """Number of ranks that the launcher started; `default` without one."""
    return _number(_SIZE, default)


def world_rank() -> int:
    """Number of this rank."""
    return _number(_RANK, 0)


def outside_job(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the variables that a process that has joined MPI passes on: mpirun and srun would take what they start
    for ranks of this job.
    """
    inside = "PMIX_", "PRTE_", "OMPI_"
    return {name: value for name, value in environment.items() if not name.startswith(inside)}


def job_name() -> str:
    """What the launcher calls this job; empty where it does not say."""
    return next((os.environ[n] for n in _JOB if os.environ.get(n)), "")


def patience_seconds() -> float:
    """How long a rank may be stopped, and a task of a step may take: `TASKFLOW_PATIENCE`; 0: for ever.

    Raises:
        ValueError: it is no number of seconds.
    """
    text = os.environ.get(PATIENCE, str(PATIENCE_SECONDS))
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) < float("inf"):
            return seconds
    raise ValueError(f"{PATIENCE}: is a number of seconds, not '{text}'")


def restart_number() -> int:
    """How often `taskflow run` has started this job again."""
    return _number((RESTART,), 0)


def numbers_by_node(text: str) -> list[int]:
    """Of `2(x3),1`, as Slurm says what each node of a job has, [2, 2, 2, 1]."""
    numbers = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        numbers += [int(number)] * int(times or 1)
    return numbers


def step_tasks_here(environment: Mapping[str, str]) -> int | None:
    """How many tasks of its step `srun` has started on this node; None in no step."""
    node = environment.get("SLURM_NODEID", "")
    text = environment.get(STEP_TASKS, "")
    tasks = numbers_by_node(text)
    return tasks[int(node)] if node.isdigit() and int(node) < len(tasks) else None


def local_size() -> int:
    """Number of ranks of this host; all of the job where the launcher does not say."""
    return _number(_LOCAL_SIZE, step_tasks_here(os.environ) or world_size())


def local_rank() -> int:
    """Number of this rank among those of its host."""
    return _number(_LOCAL_RANK, 0)


def gpu_of(device: int, count: int) -> int:
    """The GPU, of `count` of this host, of a device: ranks, or the devices of one process, take turns on them."""
    return (local_rank() if world_size() > 1 else device) % count


def sharing(devices: int, count: int) -> int:
    """How many devices have one of the `count` GPUs of this host at most: its ranks', or those of one process."""
    return -(-(local_size() if world_size() > 1 else devices) // count)
