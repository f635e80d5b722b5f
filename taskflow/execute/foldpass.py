"""The inner loop of `fold`, compiled by numba; imported on first use."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import njit

_PART_BYTES = 8192  # of each array: those of two ranks stay in the first-level cache


@njit
def fold_in_parts(arrays: Any, folded: int, is_max: bool) -> None:
    """`arrays[0]` = the combination of the first `folded` arrays; the others = a copy of it. All contiguous, 1-d."""
    target = arrays[0]
    step = _PART_BYTES // target.itemsize
    for begin in range(0, target.size, step):
        end = min(begin + step, target.size)
        out = target[begin:end]
        for k in range(1, folded):
            part = arrays[k][begin:end]
            if is_max:
                for i in range(out.size):
                    out[i] = np.maximum(out[i], part[i])
            else:
                for i in range(out.size):
                    out[i] += part[i]
        for k in range(folded, len(arrays)):
            copy = arrays[k][begin:end]
            for i in range(out.size):
                copy[i] = out[i]
