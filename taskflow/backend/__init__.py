"""What a kernel sees of its device, and what runs the streams of GPUs. The only package that may import cupy."""

from taskflow.backend.context import Array, Context, Run, Workspace, compiled, is_compiled
from taskflow.backend.streams import NotCapturable, StreamBackend
from taskflow.backend.variant import CudaSource, StreamContext, cuda_kernel, on_cuda

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
    "is_compiled",
    "on_cuda",
]
