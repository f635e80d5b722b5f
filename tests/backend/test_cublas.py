"""What cuBLAS is asked for, carried out by a reference that counts columns first, as it does."""

import numpy as np
import pytest

from taskflow.backend.cuda.cublas import Cublas, operand, plan_gemm


def column_major(memory, first, leading, rows, columns):
    """The (rows, columns) matrix that cuBLAS sees at `first` of some memory."""
    return np.lib.stride_tricks.as_strided(
        memory[first:], (rows, columns), (memory.itemsize, memory.itemsize * leading)
    )


def carry_out(gemm, x, y, z, adds=False):
    """cublasGemmStridedBatchedEx for arrays of the host; beta is 1 where it `adds`."""
    m, n, k = gemm.extents
    for number in range(gemm.count):
        parts = []
        for array, told, is_turned, rows, columns in (
            (y, gemm.first, gemm.operations[0], m, k),
            (x, gemm.second, gemm.operations[1], k, n),
        ):
            seen = column_major(
                flat(array),
                number * told.batch_stride,
                told.leading,
                *((columns, rows) if is_turned else (rows, columns)),
            )
            parts.append(seen.T if is_turned else seen)
        result = column_major(flat(z), number * gemm.result.batch_stride, gemm.result.leading, m, n)
        result[...] = (result if adds else 0) + parts[0] @ parts[1]


def flat(array):
    """The memory from the first element of a view on, as far as it may be touched."""
    base = array
    while base.base is not None and isinstance(base.base, np.ndarray):
        base = base.base
    begin = (
        array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    ) // array.itemsize
    return base.reshape(-1)[begin:]


def made(shape, kind):
    """An array of that shape: plain, transposed in memory, or a part of a larger one."""
    generator = np.random.default_rng(len(shape))
    if kind == "transposed":
        return generator.normal(size=(*shape[:-2], shape[-1], shape[-2])).swapaxes(-1, -2)
    if kind == "part":
        return generator.normal(size=(*shape[:-1], shape[-1] + 3))[..., 1:-2]
    return generator.normal(size=shape)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("x_kind", ["plain", "transposed", "part"])
@pytest.mark.parametrize("y_kind", ["plain", "transposed", "part"])
@pytest.mark.parametrize("z_kind", ["plain", "part"])
@pytest.mark.parametrize("m, n, k", [(4, 5, 6), (1, 5, 6), (4, 1, 6), (4, 5, 1), (1, 1, 1)])
def test_a_product_of_any_layout(batch, x_kind, y_kind, z_kind, m, n, k):
    x, y, z = (
        made((*batch, m, k), x_kind),
        made((*batch, k, n), y_kind),
        made((*batch, m, n), z_kind),
    )
    gemm = plan_gemm(x, y, z)
    assert gemm is not None
    carry_out(gemm, x, y, z)
    np.testing.assert_allclose(z, x @ y, atol=1e-12)


def test_one_matrix_for_all_of_a_batch():
    x, y, z = (
        made((3, 4, 5), "plain"),
        np.broadcast_to(made((5, 2), "plain"), (3, 5, 2)),
        np.zeros((3, 4, 2)),
    )
    gemm = plan_gemm(x, y, z)
    assert gemm is not None and gemm.first.batch_stride == 0


@pytest.mark.parametrize("strides", [(96, 16), (16, 96), (8, 8), (4, 8)])
def test_what_cannot_be_read_in_place(strides):
    assert operand((4, 6), strides, 8) is None


def test_a_batch_with_uneven_steps_cannot_be_read_in_place():
    a = np.zeros((3, 4, 5, 5))[:, ::2]
    assert operand(a.shape, a.strides, a.itemsize) is not None
    assert operand(a[:, :, 1:].shape, (*a.strides[:1], 8, *a.strides[2:]), 8) is None


class NoCopies:
    """An array module that may not allocate."""

    broadcast_to = staticmethod(np.broadcast_to)

    def __getattr__(self, name):
        raise AssertionError(f"{name}: a copy")


def test_leading_dimensions_that_make_no_batch_are_calls_and_not_copies():
    blas, (b, s, h, d) = object.__new__(Cublas), (2, 3, 4, 5)
    blas._call = carry_out
    q, k = (
        np.random.default_rng(seed).normal(size=(b, s, h, d)).transpose(0, 2, 1, 3)
        for seed in (0, 1)
    )
    scores, back = np.zeros((b, h, s, s)), np.zeros((b, s, h, d)).transpose(0, 2, 1, 3)
    blas.matmul(q, k.swapaxes(2, 3), scores, NoCopies())
    np.testing.assert_allclose(scores, np.matmul(q, k.swapaxes(2, 3)))
    blas.matmul(scores, k, back, NoCopies())
    np.testing.assert_allclose(back, np.matmul(scores, k))
    turned = np.zeros((b, h, d, s)).swapaxes(2, 3)
    blas.matmul(scores, k, turned, NoCopies())
    np.testing.assert_allclose(turned, np.matmul(scores, k))


@pytest.mark.parametrize("z_kind", ["plain", "transposed", "part"])
@pytest.mark.parametrize("k", [0, 3])
def test_a_product_is_added_to_what_is_there(z_kind, k):
    """Where columns lie one behind the other, its transpose is asked for; of no products nothing is added."""
    blas = object.__new__(Cublas)
    blas._call = carry_out
    x, y, z = made((2, 4, k), "plain"), made((2, k, 5), "plain"), made((2, 4, 5), z_kind)
    before = z.copy()
    blas.matmul(x, y, z, NoCopies(), adds=True)
    np.testing.assert_allclose(z, before + x @ y, atol=1e-12)
    blas.matmul(x, y, z, NoCopies())
    np.testing.assert_allclose(z, x @ y, atol=1e-12)
