"""What cuBLASLt is asked for, carried out by a library that computes with NumPy as it is told."""

import ctypes

import numpy as np
import pytest

from taskflow.backend.cuda.cublaslt import EPILOGUES, CublasLt, mask_leading
from tests.backend.test_cublas import column_major, flat, made

NAMES = {0: np.float32, 1: np.float64, 2: np.float16}
CODES = {v: k for k, v in EPILOGUES.items()}
READ, WRITE = 1, 2


def value(reference):
    return reference._obj.value


class Library:
    """libcublasLt for arrays of the host: descriptors are dictionaries, and pointers are looked up."""

    def __init__(self):
        self.made, self.arrays, self.heuristics, self.knows, self.count = {}, {}, 0, True, 0

    def _new(self, reference, **fields):
        self.count += 1
        self.made[self.count] = fields
        reference._obj.value = self.count
        return 0

    def cublasLtCreate(self, handle):
        return self._new(handle)

    def cublasLtMatmulDescCreate(self, description, compute, scale):
        return self._new(description, compute=compute, scale=scale)

    def cublasLtMatmulDescSetAttribute(self, description, attribute, reference, size):
        sizes = {3: 4, 4: 4, 7: 4, 8: 8, 11: 8, 12: 8}
        assert size.value == sizes[attribute] == ctypes.sizeof(reference._obj)
        self.made[description.value][attribute] = value(reference)
        return 0

    def cublasLtMatrixLayoutCreate(self, layout, dtype, rows, columns, leading):
        assert leading.value >= rows.value
        return self._new(
            layout, dtype=dtype, rows=rows.value, columns=columns.value, leading=leading.value
        )

    def cublasLtMatrixLayoutSetAttribute(self, layout, attribute, reference, size):
        assert size.value == {5: 4, 6: 8}[attribute]
        self.made[layout.value][attribute] = value(reference)
        return 0

    def cublasLtMatmulPreferenceCreate(self, preference):
        return self._new(preference)

    def cublasLtMatmulPreferenceSetAttribute(self, preference, attribute, reference, size):
        assert size.value == (8 if attribute == 1 else 4)
        self.made[preference.value][attribute] = value(reference)
        return 0

    def cublasLtMatmulPreferenceDestroy(self, thing):
        del self.made[thing.value]
        return 0

    cublasLtMatmulDescDestroy = cublasLtMatrixLayoutDestroy = cublasLtDestroy = (
        cublasLtMatmulPreferenceDestroy
    )

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle, description, a, b, c, d, preference, wanted, result, found
    ):
        self.heuristics += 1
        assert {1, 5, 6, 7, 8} <= self.made[preference.value].keys()
        result._obj.algorithm[0] = 4711
        found._obj.value = int(self.knows)
        return 0

    def cublasLtMatmul(
        self,
        handle,
        description,
        one,
        a,
        la,
        b,
        lb,
        zero,
        c,
        lc,
        d,
        ld,
        algorithm,
        ws,
        size,
        stream,
    ):
        assert ctypes.c_uint64.from_address(algorithm).value == 4711
        assert c == d and size == 32 << 20
        told = self.made[description.value]
        first, second, result = (self.made[x.value] for x in (la, lb, ld))
        for number in range(result.get(5, 1)):
            x, y, z = (
                self._matrix(pointer, layout, number)
                for pointer, layout in ((a, first), (b, second), (d, result))
            )
            x, y = (m.T if told[k] else m for m, k in ((x, 3), (y, 4)))
            z[...] = self._epilogue(told, x.astype(np.float64), y.astype(np.float64))
        return 0

    def _matrix(self, pointer, layout, number):
        memory = flat(self.arrays[pointer])
        assert memory.dtype == NAMES[layout["dtype"]]
        return column_major(
            memory, number * layout.get(6, 0), layout["leading"], layout["rows"], layout["columns"]
        )

    def _epilogue(self, told, x, y):
        """On column-major matrices, whose rows are the columns of what the caller calls z."""
        z, name = x @ y, CODES[told[7]]
        bias, aux = (self.arrays.get(told.get(k)) for k in (8, 11))
        if "bias" in name.split("_") and "gradient" not in name:
            z = z + bias[:, None]
        if name.startswith("relu"):
            if "aux" in name:
                assert told[12] % 128 == 0 and told[12] >= len(z)
                bits = np.zeros((z.shape[1], told[12]), bool)
                bits[:, : len(z)] = z.T > 0
                aux[...] = np.packbits(bits, axis=1, bitorder="little")
            z = np.maximum(z, 0)
        elif name.startswith("gelu"):
            if "aux" in name:
                assert told[12] % 8 == 0
                aux[...] = z.T
            z = gelu(z)
        elif name.startswith("drelu"):
            z = z * np.unpackbits(aux, axis=1, bitorder="little")[:, : len(z)].T
        elif name.startswith("dgelu"):
            z = z * slope(aux.T.astype(np.float64))
        if name.startswith("bias_gradient"):
            bias[...] = x.sum(axis=1) if name.endswith("first") else y.sum(axis=0)
        elif "gradient" in name:
            bias[...] = z.sum(axis=1)
        return z


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def slope(x):
    return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5


def singles(*arrays):
    """The same in float32."""
    return [a.astype(np.float32) for a in arrays]


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def lt(library):
    def pointer(array):
        address = array.__array_interface__["data"][0]
        library.arrays[address] = array
        return address

    return CublasLt(library, 0, pointer)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("x_kind", ["plain", "transposed", "part"])
@pytest.mark.parametrize("y_kind", ["plain", "transposed", "part"])
def test_a_product_of_any_layout(lt, batch, x_kind, y_kind):
    x, y, z = made((*batch, 4, 6), x_kind), made((*batch, 6, 5), y_kind), np.zeros((*batch, 4, 5))
    assert lt.matmul(0, x, y, z)
    np.testing.assert_allclose(z, x @ y, atol=1e-12)


@pytest.mark.parametrize("activation", ["", "relu", "gelu"])
def test_bias_and_activation(lt, activation):
    x, y, bias, z = singles(
        made((4, 6), "plain"), made((8, 6), "plain"), np.arange(8.0) - 4, np.zeros((4, 8))
    )
    y = y.T
    assert lt.matmul(0, x, y, z, f"{activation}_bias".lstrip("_"), bias=bias)
    before = x @ y + bias
    wanted = {"": before, "relu": np.maximum(before, 0), "gelu": gelu(before)}[activation]
    np.testing.assert_allclose(z, wanted, atol=1e-5)


@pytest.mark.parametrize(
    "epilogue", ["gelu", "gelu_bias", "gelu_aux", "gelu_aux_bias", "dgelu", "dgelu_bias_gradient"]
)
def test_gelu_of_float64_is_left_to_our_own_kernels(lt, epilogue):
    """That of cuBLASLt is 2e-10 off, and a law says 1e-10."""
    x, y, bias, z, kept = (
        made((4, 6), "plain"),
        made((6, 8), "plain"),
        np.zeros(8),
        *np.zeros((2, 4, 8)),
    )
    assert not lt.matmul(0, x, y, z, epilogue, bias=bias, aux=kept)
    assert not z.any()
    assert lt.matmul(0, x, y, z, "relu_bias", bias=bias)


def test_relu_keeps_a_mask_for_its_gradient(lt):
    """Forward of one layer, then the gradient of the next one's input together with this one's ReLU and bias."""
    x, y, bias, z = (
        made((4, 6), "plain"),
        made((6, 10), "plain"),
        np.linspace(-1, 1, 10),
        np.zeros((4, 10)),
    )
    mask = np.zeros((4, mask_leading(10) // 8), np.uint8)
    assert lt.matmul(0, x, y, z, "relu_aux_bias", bias=bias, aux=mask)
    gradient, weight, gz, gbias = (
        made((4, 3), "plain"),
        made((3, 10), "plain") + 1,
        np.zeros((4, 10)),
        np.zeros(10),
    )
    assert lt.matmul(0, gradient, weight, gz, "drelu_bias_gradient", bias=gbias, aux=mask)
    wanted = (gradient @ weight) * (z > 0)
    np.testing.assert_allclose(gz, wanted, atol=1e-12)
    np.testing.assert_allclose(gbias, wanted.sum(axis=0))


def test_gelu_keeps_its_argument_for_its_gradient(lt):
    x, y, bias = singles(made((4, 6), "plain"), made((6, 8), "plain"), np.linspace(-1, 1, 8))
    z, kept, gz, gbias = singles(*np.zeros((3, 4, 8)), np.zeros(8))
    assert lt.matmul(0, x, y, z, "gelu_aux_bias", bias=bias, aux=kept)
    np.testing.assert_allclose(kept, x @ y + bias, atol=1e-5)
    gradient, weight = singles(made((4, 3), "plain"), made((3, 8), "plain") + 1)
    assert lt.matmul(0, gradient, weight, gz, "dgelu_bias_gradient", bias=gbias, aux=kept)
    wanted = (gradient @ weight) * slope((x @ y + bias).astype(np.float64))
    np.testing.assert_allclose(gz, wanted, atol=1e-4)
    np.testing.assert_allclose(gbias, wanted.sum(axis=0), atol=1e-4)


def test_the_gradient_of_a_bias_beside_that_of_the_weight(lt):
    gy, x, gw, gbias = (
        made((6, 4), "plain"),
        made((6, 5), "plain") + 1,
        np.zeros((4, 5)),
        np.zeros(4),
    )
    assert lt.matmul(0, gy.T, x, gw, "bias_gradient_of_second", bias=gbias)
    np.testing.assert_allclose(gw, gy.T @ x, atol=1e-12)
    np.testing.assert_allclose(gbias, gy.sum(axis=0))


def test_the_heuristic_is_asked_once_per_shape_and_never_in_a_capture(lt, library):
    x, y, z = made((4, 6), "plain"), made((6, 5), "plain"), np.zeros((4, 5))
    assert not lt.matmul(0, x, y, z, may_plan=False)
    assert lt.matmul(0, x, y, z) and lt.matmul(0, x, y, z, may_plan=False)
    assert library.heuristics == 1
    assert lt.matmul(0, x[:2], y, z[:2])
    assert library.heuristics == 2


def test_what_cublaslt_knows_no_algorithm_for_is_left_to_others(lt, library):
    library.knows = False
    z = np.full((4, 5), 7.0)
    assert not lt.matmul(0, made((4, 6), "plain"), made((6, 5), "plain"), z)
    assert not lt.matmul(0, made((4, 6), "plain")[:, ::2], made((3, 5), "plain"), z)
    assert np.all(z == 7)


def test_a_refusal_is_remembered_and_nothing_is_left(library):
    lt, operands = (
        CublasLt(library, 0, lambda array: 4096),
        [made(s, "plain") for s in ((4, 6), (6, 5), (4, 5))],
    )
    library.knows, held = False, len(library.made)
    assert not lt.matmul(0, *operands) and not lt.matmul(0, *operands)
    assert library.heuristics == 1 and len(library.made) == held == 1
    del lt
    assert not library.made


@pytest.mark.parametrize(
    "dtype, uses_tf32, compute, scale",
    [
        ("float32", False, 68, 0),
        ("float32", True, 77, 0),
        ("float16", True, 68, 0),
        ("float64", True, 70, 1),
    ],
)
def test_types_of_computation(lt, library, dtype, uses_tf32, compute, scale):
    """CUBLAS_COMPUTE_32F, _32F_FAST_TF32 and _64F; factors are float32 or float64."""
    x, y, z = np.ones((4, 8), dtype), np.ones((8, 8), dtype), np.zeros((4, 8), dtype)
    assert lt.matmul(0, x, y, z, uses_tf32=uses_tf32)
    told = next(fields for fields in library.made.values() if "compute" in fields)
    assert (told["compute"], told["scale"]) == (compute, scale)
    np.testing.assert_array_equal(z, 8)
