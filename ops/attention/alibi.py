"""Attention with linear biases (ALiBi): scores that fall with the distance of a key, by a slope of each head.

Press, Smith, Lewis, "Train short, test long", ICLR 2022. No bias is stored: a kernel makes those of its tile from the
numbers of its heads, queries and keys, so that a split of any of them adds what one device does.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ops.building import check_positive
from ops.cuda import attention as gpu_attention
from taskflow import Array, Context


def alibi_slopes(heads: int) -> Array:
    """The slope of every head: 2^(-8 (h + 1) / heads) for a power of two of them.

    Else those of the largest power of two below, then every second one of twice that power (the authors' `get_slopes`).

    Args:
        heads: of queries.

    Returns:
        (heads,) float64.

    Raises:
        ValueError: `heads` is not positive.
    """
    check_positive("alibi_slopes", heads=heads)
    power = 1 << heads.bit_length() - 1
    rest = np.arange(heads - power)
    exponents = [8 * np.arange(1, power + 1) / power, 4 * (2 * rest + 1) / power]
    return np.exp2(-np.concatenate(exponents))


def add_biases(ctx: Context, scores: Array, heads: int, head: int, first: int) -> None:
    """Add slope (key - query) to scores without gaps, (batch, heads, queries, keys).

    Args:
        heads: of all queries.
        head: the first of those of the scores.
        first: number of their first query less that of their first key.
    """
    if ctx.is_cuda:
        gpu_attention.add_biases(ctx, scores, heads, head, first)
    elif scores.size:
        queries, keys = scores.shape[2:]
        rows = alibi_slopes(heads)[head : head + scores.shape[1], None]
        rows = rows * np.arange(1 - queries - first, keys - first)
        windows = sliding_window_view(rows.astype(scores.dtype), keys, axis=1)
        ctx.xp.add(scores, windows[:, ::-1], out=scores)  # the first query has the last window
