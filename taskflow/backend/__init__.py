"""What a kernel sees of its device, and what runs the streams of GPUs. The only package that may import cupy."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from taskflow.backend.context import Array, Context, Run, Workspace, compiled, is_compiled
from taskflow.backend.half import for_dtypes, takes_half
from taskflow.backend.streams import NotCapturable, StreamBackend
from taskflow.backend.variant import CudaSource, StreamContext, cuda_kernel, on_cuda, together

if TYPE_CHECKING:
    from taskflow.backend.cuda import Gpu


def find_gpus() -> "tuple[Gpu, ...]":
    """The GPUs of this host that CuPy can use; none where it is not installed or finds no driver."""
    if find_spec("cupy") is None:
        return ()
    from taskflow.backend.cuda import find_gpus as find

    return find()


__all__ = [
    "Array",
    "Context",
    "CudaSource",
    "NotCapturable",
    "Run",
    "StreamBackend",
    "StreamContext",
    "Workspace",
    "compiled",
    "cuda_kernel",
    "find_gpus",
    "for_dtypes",
    "is_compiled",
    "on_cuda",
    "takes_half",
    "together",
]
