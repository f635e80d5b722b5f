"""Python reads this when it starts in the environment of the stub: libraries of CUDA are the stub."""

import ctypes
import os


class _Redirected(ctypes.CDLL):
    def __init__(self, name=None, *args, **options):
        if name and any(known in str(name) for known in ("libcuda.so", "libcublas")):
            name = os.environ["STUB_LIBRARY"]
        super().__init__(name, *args, **options)


if "STUB_LIBRARY" in os.environ:
    ctypes.CDLL = _Redirected
