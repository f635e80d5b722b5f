"""What a kernel sees of its device, and what runs the streams of GPUs. The only package that may import cupy."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from taskflow.backend.capture import note_calls
from taskflow.backend.context import Array, Context, Run, Workspace, is_resident
from taskflow.backend.half import in_float32, is_uniform
from taskflow.backend.ranks import Communicator, GroupCall, RankGpu
from taskflow.backend.sources import CudaSource
from taskflow.backend.stream_context import StreamContext
from taskflow.backend.streams import NoRoom, NotCapturable, StreamBackend

if TYPE_CHECKING:
    from taskflow.backend.cuda.device import Gpu


def find_gpus() -> "tuple[Gpu, ...]":
    """The GPUs of this host that CuPy can use; none where it is not installed or finds no driver."""
    if find_spec("cupy") is None:
        return ()
    from taskflow.backend.cuda.device import find_gpus as find

    return find()


def make_backend() -> StreamBackend:
    """The GPUs of this process through CuPy.

    `TASKFLOW_CUDA` in the environment may hold `checked` (a step that allocates or waits raises) and `profiled` (items
    are issued one by one, in NVTX ranges).

    Raises:
        ValueError: CuPy is not installed, or finds no GPU and driver, or TASKFLOW_CUDA holds another word.
    """
    words = os.environ.get("TASKFLOW_CUDA", "").split()
    if unknown := [word for word in words if word not in ("checked", "profiled")]:
        raise ValueError(f"TASKFLOW_CUDA: holds 'checked' and 'profiled', not '{unknown[0]}'")
    if find_spec("cupy") is None:
        raise ValueError(
            "executor: devices are of kind 'cuda', and CuPy is not installed (the extras cuda13, cuda12)"
        )
    from taskflow.backend.cuda.device import CudaStreams

    return CudaStreams("checked" in words, "profiled" in words)


__all__ = [
    "Array",
    "Communicator",
    "Context",
    "CudaSource",
    "GroupCall",
    "NoRoom",
    "NotCapturable",
    "RankGpu",
    "Run",
    "StreamBackend",
    "StreamContext",
    "Workspace",
    "find_gpus",
    "in_float32",
    "is_resident",
    "is_uniform",
    "make_backend",
    "note_calls",
]
