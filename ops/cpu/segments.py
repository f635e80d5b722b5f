"""Compiled kernels over edges, those of a vertex side by side: sums, largest, products of ends, softmax.

Arrays are (rows, heads, features). An `index` without elements is no index: edge k reads row k.
"""

from __future__ import annotations

import math

from ops.expressions.math import exp
from taskflow import Array, njit


@njit(nogil=True, fastmath={"contract"})
def sum_rows(
    x: Array,
    first: int,
    borders: Array,
    index: Array,
    weight: Array,
    order: Array,
    at: int,
    y: Array,
) -> None:
    """y[j] = sum of weight[k] x[index[k]] over the edges of j in order.

    `first`: the number of row 0 of `x`; `at`: that of the first weight, where `order` says which one an edge has.
    """
    one = x.dtype.type(1)
    for j in range(y.shape[0]):
        end = borders[j + 1] - borders[0]
        fours = end - (borders[j + 1] - borders[j]) % 4
        for h in range(y.shape[1]):
            column = h if weight.shape[1] > 1 else 0
            y[j, h, :] = 0
            for k in range(borders[j] - borders[0], fours, 4):  # a sum is read once for four edges
                a = index[k] - first if index.size else k
                b = index[k + 1] - first if index.size else k + 1
                c = index[k + 2] - first if index.size else k + 2
                d = index[k + 3] - first if index.size else k + 3
                of_a = of_b = of_c = of_d = one
                if weight.size:
                    of_a = weight[order[k] - at if order.size else k, column]
                    of_b = weight[order[k + 1] - at if order.size else k + 1, column]
                    of_c = weight[order[k + 2] - at if order.size else k + 2, column]
                    of_d = weight[order[k + 3] - at if order.size else k + 3, column]
                for f in range(y.shape[2]):
                    total = y[j, h, f] + of_a * x[a, h, f]
                    total += of_b * x[b, h, f]
                    total += of_c * x[c, h, f]
                    y[j, h, f] = total + of_d * x[d, h, f]
            for k in range(fours, end):
                a = index[k] - first if index.size else k
                of_a = one
                if weight.size:
                    of_a = weight[order[k] - at if order.size else k, column]
                for f in range(y.shape[2]):
                    y[j, h, f] += of_a * x[a, h, f]


@njit(nogil=True)
def largest_rows(x: Array, borders: Array, y: Array) -> None:
    """y[j] = the largest x[k] of the edges of j; 0 where it has none."""
    for j in range(y.shape[0]):
        begin = borders[j] - borders[0]
        end = borders[j + 1] - borders[0]
        for h in range(y.shape[1]):
            for f in range(y.shape[2]):
                most = x[begin, h, f] if begin < end else x.dtype.type(0)
                for k in range(begin + 1, end):
                    most = x[k, h, f] if x[k, h, f] > most or math.isnan(x[k, h, f]) else most
                y[j, h, f] = most


@njit(nogil=True)
def take_rows(x: Array, first: int, index: Array, y: Array) -> None:
    """y[k] = x[index[k]]."""
    for k in range(y.shape[0]):
        row = index[k] - first
        for h in range(y.shape[1]):
            for f in range(y.shape[2]):
                y[k, h, f] = x[row, h, f]


@njit(nogil=True, fastmath={"contract"})
def products(
    gy: Array,
    first: int,
    targets: Array,
    x: Array,
    at: int,
    sources: Array,
    y: Array,
) -> None:
    """y[k, h] = gy[targets[k], h] . x[sources[k], h], over features."""
    for k in range(y.shape[0]):
        j = targets[k] - first
        i = sources[k] - at
        for h in range(y.shape[1]):
            total = x.dtype.type(0)
            for f in range(x.shape[2]):
                total += gy[j, h, f] * x[i, h, f]
            y[k, h] = total


@njit(nogil=True)
def softmax(x: Array, targets: Array, first: int, y: Array) -> None:
    """y = exp(x) over its sum in the segments of equal targets; row 0 of `y` is row `first` of `x`."""
    begin = 0
    while begin < len(targets):
        end = begin
        while end < len(targets) and targets[end] == targets[begin]:
            end += 1
        for h in range(x.shape[1]):
            most = x[begin, h]
            total = x.dtype.type(0)
            for k in range(begin, end):
                most = max(most, x[k, h])
            for k in range(begin, end):
                total += exp(x[k, h] - most)
            for k in range(max(begin, first), min(end, first + len(y))):
                y[k - first, h] = exp(x[k, h] - most) / total
        begin = end


@njit(nogil=True)
def softmax_gradient(gy: Array, y: Array, targets: Array, first: int, gx: Array) -> None:
    """gx = y (gy - sum of gy y) in each segment."""
    begin = 0
    while begin < len(targets):
        end = begin
        while end < len(targets) and targets[end] == targets[begin]:
            end += 1
        for h in range(y.shape[1]):
            total = y.dtype.type(0)
            for k in range(begin, end):
                total += gy[k, h] * y[k, h]
            for k in range(max(begin, first), min(end, first + len(gx))):
                gx[k - first, h] = y[k, h] * (gy[k, h] - total)
        begin = end


@njit(nogil=True)
def add_to_rows(gy: Array, index: Array, first: int, y: Array) -> None:
    """y[index[k]] += gy[k], in order, for the rows that `y` has from `first` on."""
    for k in range(gy.shape[0]):
        row = index[k] - first
        if 0 <= row < y.shape[0]:
            for h in range(y.shape[1]):
                for f in range(y.shape[2]):
                    y[row, h, f] += gy[k, h, f]


@njit(nogil=True)
def largest_gradient(
    gy: Array,
    y: Array,
    m: Array,
    targets: Array,
    vertex: int,
    first: int,
    gm: Array,
) -> None:
    """gm = gy over the number of edges whose message is the largest y, for these; 0 for others."""
    begin = 0
    while begin < len(targets):
        end = begin
        while end < len(targets) and targets[end] == targets[begin]:
            end += 1
        j = targets[begin] - vertex
        low = max(begin, first)
        high = min(end, first + len(gm))
        for h in range(gm.shape[1] if low < high else 0):
            for f in range(gm.shape[2]):
                count = 0
                for k in range(begin, end):
                    count += m[k, h, f] == y[j, h, f]
                for k in range(low, high):
                    is_most = m[k, h, f] == y[j, h, f]
                    gm[k - first, h, f] = gy[j, h, f] / count if is_most else 0
        begin = end
