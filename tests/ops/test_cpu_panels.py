import numpy as np
import pytest

from ops.cpu import panels as cpu_panels
from ops.tiles import read_only


def operands(dtype, rows, columns, depth):
    rng = np.random.default_rng(rows * columns + depth)
    a, matrix, c = (
        rng.standard_normal(shape).astype(dtype)
        for shape in ((rows, depth), (columns, depth), (rows, columns))
    )
    packed = np.full(cpu_panels.packed_shape(columns, depth, dtype), np.nan, dtype)
    return a, matrix, c, packed, np.full(cpu_panels.edge_shape(dtype), np.nan, dtype)


# One tile; rows and columns that end within one; a last part of the depth; less than a tile of either.
@pytest.mark.parametrize(
    ("rows", "columns", "depth"), [(4, 16, 8), (7, 37, 300), (5, 33, 513), (1, 3, 1), (0, 5, 2)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_with_a_packed_matrix_are_added(
    dtype: str, rows: int, columns: int, depth: int
) -> None:
    a, matrix, c, packed, edge = operands(dtype, rows, columns, depth)
    expected = c.astype("float64") + a.astype("float64") @ matrix.astype("float64").T
    cpu_panels.pack(read_only(matrix), packed)
    cpu_panels.add_step(read_only(a[:, None]), 0, packed, c[:, None], edge)
    np.testing.assert_allclose(c, expected, atol=1e-3 if dtype == "float32" else 1e-11)


def test_rows_may_have_gaps_and_nothing_between_them_is_touched() -> None:
    a, matrix, c, packed, edge = operands("float64", 6, 20, 9)
    wide_a, wide_c = np.full((6, 3, 9), np.nan), np.full((6, 2, 20), 7.0)
    wide_a[:, 1], wide_c[:, 0] = a, c
    cpu_panels.pack(read_only(matrix.T.copy().T), packed)
    cpu_panels.add_step(read_only(wide_a), 1, packed, wide_c, edge)
    np.testing.assert_allclose(wide_c[:, 0], c + a @ matrix.T, rtol=1e-12)
    assert (wide_c[:, 1] == 7).all()
