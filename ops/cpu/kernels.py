"""Compiled kernels for what NumPy lacks or does in many passes.

Kernels over rows are in `rows`, over the windows of images in `windows`, and so on. Arrays are C-contiguous: one
variant per dtype is compiled (and kept on disk). Not numba.vectorize: its loops take a strided output for a
contiguous one where the inputs are contiguous (numba 0.68, np/ufunc/wrappers.py, `unit_strided`).
"""

from __future__ import annotations

from taskflow import Array, njit


@njit(nogil=True)
def scatter_add(rows: Array, index: Array, lo: int, table: Array) -> None:
    """table[index[k] - lo] += rows[k] for every index that lies in the table."""
    for k in range(index.shape[0]):
        at = index[k] - lo
        if 0 <= at < table.shape[0]:
            for e in range(table.shape[1]):
                table[at, e] += rows[k, e]


@njit(nogil=True)
def take_pairs(products: Array, i: Array, j: Array, y: Array) -> None:
    """y[n, p] = products[n, i[p], j[p]]."""
    for n in range(y.shape[0]):
        for p in range(y.shape[1]):
            y[n, p] = products[n, i[p], j[p]]


@njit(nogil=True)
def put_pairs(gy: Array, i: Array, j: Array, weights: Array) -> None:
    """The gradient of `take_pairs`, for both orders of a pair; zeros for what is no pair."""
    for n in range(gy.shape[0]):
        weights[n] = 0
        for p in range(gy.shape[1]):
            weights[n, i[p], j[p]] = weights[n, j[p], i[p]] = gy[n, p]
