"""Sums and maxima of a row for compiled kernels, in vectors, and with bits that only its numbers and length decide.

Number k of a row goes to lane k modulo 32, each lane adds up its numbers in their order, and the lanes are folded in
halves. The order is that of the source, not the compiler's: "reassoc" fast mathematics let it choose, and it chose by
where arrays lay. Written as IR because numba vectorizes no sum whose order is fixed (its SLP pass is off); one sum over
128 numbers takes 12 ns, in the order of the numbers 63 ns.

Called from compiled functions only, on contiguous rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_build: Any = cgutils  # has no types
LANES = 32  # four registers of AVX2: enough additions under way to hide how long each takes
_Combine = Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]


def _sum_of(typing: object, row: types.Array) -> tuple[Any, Callable[..., ir.Value]]:
    """The sum of a row; of an empty one 0."""
    return _folding(row, 0.0, lambda builder, a, b: builder.fadd(a, b))


def _max_of(typing: object, row: types.Array) -> tuple[Any, Callable[..., ir.Value]]:
    """The largest number of a row, NaN left out; of an empty one minus infinity."""
    return _folding(
        row, -np.inf, lambda builder, a, b: builder.select(builder.fcmp_ordered(">", b, a), b, a)
    )


sum_of: Any = intrinsic(_sum_of)
max_of: Any = intrinsic(_max_of)


def _folding(
    row: types.Array, start: float, combine: _Combine
) -> tuple[Any, Callable[..., ir.Value]]:
    """Signature and code of a function of a contiguous row."""
    assert isinstance(row, types.Array) and row.layout == "C" and row.ndim == 1, (
        "rows are contiguous"
    )

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        array = context.make_array(row)(context, builder, arguments[0])
        number = context.get_value_type(row.dtype)
        lanes = _over_lanes(
            builder, array.data, array.nitems, ir.VectorType(number, LANES), start, combine
        )
        return _over_halves(builder, lanes, combine)

    return row.dtype(row), generate


def _over_lanes(
    builder: ir.IRBuilder,
    data: ir.Value,
    count: ir.Value,
    vector: ir.VectorType,
    start: float,
    combine: _Combine,
) -> ir.Value:
    """A vector of the lanes; the last, incomplete part of the row is filled up with `start`."""
    initial = ir.Constant(vector, [start] * LANES)
    total = _build.alloca_once_value(builder, initial)
    size = ir.Constant(count.type, LANES)
    whole = builder.and_(count, ir.Constant(count.type, -LANES))

    def take(k: ir.Value, part: Callable[[ir.Value], ir.Value]) -> None:
        at = builder.bitcast(builder.gep(data, [k]), vector.as_pointer())
        builder.store(combine(builder, builder.load(total), part(at)), total)

    with _build.for_range_slice(builder, ir.Constant(count.type, 0), whole, size, count.type) as (
        k,
        _,
    ):
        take(k, lambda at: builder.load(at, align=_alignment(vector)))
    with builder.if_then(builder.icmp_signed("<", whole, count)):
        integers = ir.VectorType(count.type, LANES)
        numbers = ir.Constant(integers, list(range(LANES)))
        rest = spread(builder, builder.sub(count, whole), integers)
        mask = builder.icmp_signed("<", numbers, rest)
        take(whole, lambda at: _masked_load(builder, at, mask, initial))
    return builder.load(total)


def spread(builder: ir.IRBuilder, value: ir.Value, vector: ir.VectorType) -> ir.Value:
    """A vector of one number."""
    index = ir.IntType(32)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(index, 0))
    return builder.shuffle_vector(
        first, undefined, ir.Constant(ir.VectorType(index, vector.count), [0] * vector.count)
    )


def _masked_load(builder: ir.IRBuilder, at: ir.Value, mask: ir.Value, others: ir.Value) -> ir.Value:
    """The numbers at an address in the lanes of the mask; in the others those of `others`, and nothing is read."""
    vector = others.type
    alignment = ir.IntType(32)
    kind = ir.FunctionType(vector, [at.type, alignment, mask.type, vector])
    name = f"llvm.masked.load.v{LANES}{vector.element.intrinsic_name}.p0"
    load = _build.get_or_insert_function(builder.module, kind, name)
    return builder.call(load, [at, ir.Constant(alignment, _alignment(vector)), mask, others])


def _alignment(vector: ir.VectorType) -> int:
    """Of one number: rows begin anywhere."""
    return 4 if isinstance(vector.element, ir.FloatType) else 8


def _over_halves(builder: ir.IRBuilder, lanes: ir.Value, combine: _Combine) -> ir.Value:
    """One number: half of the lanes on the other half, again and again."""
    index = ir.IntType(32)
    half = LANES // 2
    while half:
        low, high = (
            builder.shuffle_vector(
                lanes, lanes, ir.Constant(ir.VectorType(index, half), list(part))
            )
            for part in (range(half), range(half, 2 * half))
        )
        lanes = combine(builder, low, high)
        half //= 2
    return builder.extract_element(lanes, ir.Constant(index, 0))
