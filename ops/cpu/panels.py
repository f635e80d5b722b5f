"""Products with a matrix that is met again and again: it is packed once, in the order in which they read it.

BLAS packs both of its operands in every call. With few rows on the left, as the batch of a recurrent step has them,
that takes as long as a third of the product; and its libraries have no way to keep what is packed.

A matrix of (columns, depth) is packed as panels: `LANE_BYTES` of columns side by side for `DEPTH` numbers of depth, so
that a panel stays in the cache while all rows pass by. `ROWS` rows meet a panel at a time, their sums kept in
registers: eight of AVX2, 16 of AVX-512 (230 GFLOP/s on a Zen 5, where the tile for AVX2 does 133), which hides how long
additions take. Bits are the same. Written as IR, like `lanes`, since numba keeps no array in registers. The scheme
is that of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008).

Called from compiled functions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, codegen, config
from numba.extending import intrinsic

from ops.cpu.lanes import spread
from taskflow import Array, njit

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_untyped: Any = cgutils, codegen, config
_build, _code, _settings = _untyped
_HAS_AVX512 = "+avx512f" in (_settings.CPU_FEATURES or _code.get_host_cpu_features()).split(",")
LANE_BYTES, ROWS = (128, 8) if _HAS_AVX512 else (64, 4)
DEPTH = 256


def packed_shape(columns: int, depth: int, dtype: DTypeLike) -> tuple[int, int, int, int]:
    """(parts of the depth, panels, depth of a part, lanes) of a packed matrix of (columns, depth)."""
    lanes = LANE_BYTES // np.dtype(dtype).itemsize
    return -(-depth // DEPTH), -(-columns // lanes), min(depth, DEPTH), lanes


def edge_shape(dtype: DTypeLike) -> tuple[int, int]:
    """Of the scratch memory of `add_product`."""
    return ROWS, LANE_BYTES // np.dtype(dtype).itemsize


@njit(nogil=True, error_model="numpy")
def pack(matrix: Array, packed: Array) -> None:
    """Pack `matrix` (columns, depth); columns that fill up the last panel are zero."""
    columns, depth = matrix.shape
    parts, panels, deep, lanes = packed.shape
    for part in range(parts):
        first = part * deep
        for panel in range(panels):
            target = packed[part, panel]
            for k in range(min(deep, depth - first)):
                for lane in range(lanes):
                    column = panel * lanes + lane
                    target[k, lane] = matrix[column, first + k] if column < columns else 0


@njit(nogil=True, error_model="numpy")
def add_product(a: Array, packed: Array, c: Array, edge: Array) -> None:
    """c += a matrixᵀ, for a packed matrix of (columns, depth).

    Args:
        a: (rows, depth), its rows contiguous.
        packed: of `packed_shape`.
        c: (rows, columns), its rows contiguous.
        edge: scratch memory of `edge_shape`.
    """
    rows, columns = c.shape
    parts, panels, deep, lanes = packed.shape
    for part in range(parts):
        left = a[:, part * deep : min((part + 1) * deep, a.shape[1])]
        for panel in range(panels):
            column = panel * lanes
            right = packed[part, panel]
            whole = rows - rows % ROWS if column + lanes <= columns else 0
            for row in range(0, whole, ROWS):
                _add_tile(left, row, right, c, row, column)
            for row in range(whole, rows, ROWS):
                _add_edge(left, row, right, c, column, edge)


@njit(nogil=True, error_model="numpy")
def add_step(a: Array, step: int, packed: Array, c: Array, edge: Array) -> None:
    """`add_product` of step `step` of `a`, (rows, steps, depth), to `c`, (rows, 1, columns)."""
    add_product(a[:, step], packed, c[:, 0], edge)


@njit(nogil=True, error_model="numpy")
def _add_edge(a: Array, row: int, panel: Array, c: Array, column: int, edge: Array) -> None:
    """`_add_tile` where `c` ends within the tile."""
    height = min(ROWS, c.shape[0] - row)
    width = min(panel.shape[1], c.shape[1] - column)
    for i in range(height):
        for k in range(width):
            edge[i, k] = c[row + i, column + k]
    _add_tile(a, row, panel, edge, 0, 0)
    for i in range(height):
        for k in range(width):
            c[row + i, column + k] = edge[i, k]


def _add_tile_code(
    typing: object,
    a: types.Array,
    row: object,
    panel: types.Array,
    c: types.Array,
    at: object,
    column: object,
) -> tuple[Any, Any]:
    """Add the product of `ROWS` rows of `a` from `row` with a panel to `c` at (at, column).

    For rows behind the last one of `a` the last one is taken.
    """
    numbers = types.intp

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        left, right, out = (
            context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 2, 3)
        )
        row, at, column = (arguments[k] for k in (1, 4, 5))
        number = context.get_value_type(a.dtype)
        rows, depth = _build.unpack_tuple(builder, left.shape)
        last = builder.sub(rows, ir.Constant(rows.type, 1))
        reads = []
        writes = []
        for k in range(ROWS):
            behind = builder.add(row, ir.Constant(row.type, k))
            reads.append(
                _row(
                    builder,
                    left,
                    builder.select(builder.icmp_signed("<", behind, last), behind, last),
                )
            )
            start = _row(builder, out, builder.add(at, ir.Constant(at.type, k)))
            writes.append(builder.gep(start, [column]))
        _add_in_registers(builder, reads, right.data, writes, depth, number)
        return context.get_dummy_value()

    return types.void(a, numbers, panel, c, numbers, numbers), generate


_add_tile: Any = intrinsic(_add_tile_code)


def _row(builder: ir.IRBuilder, array: Any, row: ir.Value) -> ir.Value:
    """The address of a row of a matrix."""
    stride = _build.unpack_tuple(builder, array.strides)[0]
    start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(start, [builder.mul(row, stride)]), array.data.type)


def _add_in_registers(
    builder: ir.IRBuilder,
    reads: list[ir.Value],
    panel: ir.Value,
    writes: list[ir.Value],
    depth: ir.Value,
    number: ir.Type,
) -> None:
    """Add the products of the rows at `reads` with a panel to the rows at `writes`."""
    size = 4 if isinstance(number, ir.FloatType) else 8
    lanes = LANE_BYTES // size
    vector, contract = (
        ir.VectorType(number, lanes),
        ("contract",),
    )  # one rounding where the processor has fma
    targets = [builder.bitcast(at, vector.as_pointer()) for at in writes]
    sums = [_build.alloca_once_value(builder, builder.load(at, align=size)) for at in targets]
    with _build.for_range(builder, depth) as loop:
        at = builder.gep(panel, [builder.mul(loop.index, ir.Constant(depth.type, lanes))])
        right = builder.load(builder.bitcast(at, vector.as_pointer()), align=size)
        for row, total in zip(reads, sums, strict=True):
            left = spread(builder, builder.load(builder.gep(row, [loop.index])), vector)
            product = builder.fmul(left, right, flags=contract)
            builder.store(builder.fadd(builder.load(total), product, flags=contract), total)
    for at, total in zip(targets, sums, strict=True):
        builder.store(builder.load(total), at, align=size)
