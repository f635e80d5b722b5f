"""numba, with a cache on disk that several processes may fill at once: `from taskflow.core.compiling import numba`.

Of each compiled function numba keeps an index of its variants, one for the types of each call, and a file for every
variant, with numbers that begin anew in every process that finds no index. It writes the index before the variant. So
two ranks that compile different variants at one time may both take a number, and whoever reads in between gets the code
of other types, or after an update that of an older source. Here reader and writer hold a lock meanwhile. It is so for
the whole process, kernels of operators included: these are compiled when a graph has been lowered, which imports this.

Imported inside functions, or by modules that are: importing numba takes 0.3 s.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import wraps
from typing import Any

import numba
from numba.core import caching

__all__ = ["numba"]

_cache_file: Any = caching.IndexDataCacheFile  # of one function; has no types


def _locked(method: Callable[..., Any], kind: int) -> Callable[..., Any]:
    """`method` under a lock of this kind, beside the index; without one where no file can be written or locked."""

    @wraps(method)
    def call(self: Any, *args: Any) -> Any:
        with ExitStack() as held:
            with suppress(OSError):
                fcntl.flock(held.enter_context(open(f"{self._index_path}.lock", "ab")), kind)
            return method(self, *args)

    return call


if not hasattr(_cache_file.save, "__wrapped__"):
    _cache_file.save = _locked(_cache_file.save, fcntl.LOCK_EX)
    _cache_file.load = _locked(_cache_file.load, fcntl.LOCK_SH)
