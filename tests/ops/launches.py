"""A context that runs CUDA kernels as C++ at once, for tests that call them on arrays of their own."""

import numpy as np

from taskflow import Rect
from tests import shim


class Launches:
    """What a kernel needs of its context; `names` are those of the kernels that were launched.

    Args:
        uses_tf32: see `taskflow.Context`.
        rects: the boxes of the arguments, those of all zeros where a kernel asks for another.
    """

    is_cuda, xp = True, np

    def __init__(self, rects=(), uses_tf32=False):
        self.uses_tf32 = uses_tf32
        self.names, self._streams, self._rects, self._kept = [], shim.ShimStreams(), rects, {}

    @staticmethod
    def address(array):
        return array.ctypes.data

    def rect(self, k):
        return self._rects[k] if k < len(self._rects) else Rect((0, 0, 0, 0), (0, 0, 0, 0))

    def scratch(self, slot, shape, dtype):
        """Memory that holds no number before something is written."""
        if slot not in self._kept:
            self._kept[slot] = np.full(shape, 77 if np.dtype(dtype).kind in "iu" else np.nan, dtype)
        return self._kept[slot]

    def launch(self, source, name, threads, *args, block=256):
        self.names.append(name)
        self._streams.launch(source, name, threads, args, block)
