"""Copies past the cache: what another rank will read is written to memory, and evicts nothing that this rank needs.

A store into a line of memory reads that line first, unless it is non-temporal: then a copy out of the cache costs one
pass over memory instead of two. So a rank hands its part of an updated parameter on while it still has it (see
`progress.handed_on`); `benchmarks/sliced_adam.py` has the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from taskflow.core.columns import Array
from taskflow.core.compiling import njit

_LEAST_BYTES = 1 << 16  # less may as well stay in the cache
_WORD_BYTES = 8


def copy_call(target: Array, source: Array) -> Callable[[], object] | None:
    """A call that copies `source` to `target` past the cache; None where they are not many whole words in a row."""
    arrays = target, source
    if target.nbytes < _LEAST_BYTES or target.nbytes % _WORD_BYTES or target.dtype != source.dtype:
        return None
    if not all(a.flags.c_contiguous and a.ctypes.data % _WORD_BYTES == 0 for a in arrays):
        return None
    words = [a.reshape(-1).view(np.int64) for a in arrays]
    copy_words(words[0][:0], words[1][:0])  # compiled before the first step
    return partial(copy_words, *words)


def _store_past_cache(typing: Any, words: Any, number: Any, value: Any) -> Any:
    """(words, number, value): write a word of int64 by a non-temporal store."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        make: Any = make_array
        address = builder.gep(make(signature.args[0])(context, builder, args[0]).data, [args[1]])
        store = builder.store(args[2], address, align=_WORD_BYTES)
        one = context.get_constant(types.int32, 1)
        store.set_metadata("nontemporal", builder.module.add_metadata([one]))
        return context.get_dummy_value()

    return types.void(words, number, types.int64), generate


def _fence(typing: Any) -> Any:
    """All stores so far, non-temporal ones too, come before those that follow."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


_store: Any = intrinsic(_store_past_cache)
_order_stores: Any = intrinsic(_fence)


@njit
def copy_words(target: Array, source: Array) -> None:
    """Copy int64 words, of which there are equally many, past the cache."""
    for k in range(target.size):
        _store(target, k, source[k])
    _order_stores()
