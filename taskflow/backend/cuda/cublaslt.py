"""Matrix products with an epilogue by cuBLASLt, called through ctypes: bias and activation without a pass of their own.

A plan (descriptors, layouts and the algorithm that the heuristic proposes first) is made once for shapes, layouts,
dtypes, alignments and epilogue, before anything is captured: the heuristic fails on a capturing stream. That there is
none is remembered, too. Handle and workspace, which is ours, belong to one stream. As in `cublas`, z = x y is asked for
as zᵀ = yᵀ xᵀ, so the bias belongs to the columns of z.

Numbers of enumerations: cublasLt.h of CUDA 12.9 and 13 (tests/backend/test_headers.py). Gelu is the approximation by
tanh. All but the masks of ReLU ran on an H200; arguments are checked against a fake library.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from taskflow.backend.context import Array
from taskflow.backend.cuda.cublas import (
    COMPUTE_TYPES,
    TYPES,
    WORKSPACE_BYTES,
    Gemm,
    Operand,
    plan_gemm,
)

EPILOGUES = {
    "": 1,
    "bias": 4,
    "relu": 2,
    "relu_bias": 6,
    "relu_aux_bias": 134,
    "gelu": 32,
    "gelu_bias": 36,
    "gelu_aux": 160,
    "gelu_aux_bias": 164,
    "drelu": 136,
    "drelu_bias_gradient": 152,
    "dgelu": 192,
    "dgelu_bias_gradient": 208,
    "bias_gradient_of_first": 256,
    "bias_gradient_of_second": 512,
}
_TRANSPOSE_A = 3
_TRANSPOSE_B = 4
_EPILOGUE = 7
_BIAS_POINTER = 8
_AUX_POINTER = 11
_AUX_LEADING = 12
_BATCH_COUNT = 5
_BATCH_STRIDE = 6  # of a layout
_MOST_WORKSPACE = 1
_ALIGNMENT_A = 5  # of a preference; those of B, C and D follow
_ALIGNED = 256  # what cuBLASLt takes for granted
_BIT_MASK = 128  # multiples of which the leading dimension of ReLU's mask is, in bits


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t; it begins with the algorithm."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class ProductRequest:
    """What a plan is made for: a product, its dtypes, an epilogue, and how its pointers are aligned, in bytes."""

    gemm: Gemm
    dtypes: tuple[str, str, str]  # of y, x and z
    epilogue: str
    aux_leading: int
    alignments: tuple[int, int, int]
    uses_tf32: bool

    @property
    def compute_type(self) -> int:
        """Number of the type in which products are summed."""
        is_tf32 = self.uses_tf32 and self.dtypes[:2] == ("float32", "float32")
        return COMPUTE_TYPES["tf32" if is_tf32 else self.dtypes[2]]


@dataclass
class ProductPlan:
    """Descriptors of cuBLASLt and an algorithm."""

    description: ctypes.c_void_p
    layouts: list[ctypes.c_void_p]  # of y, x and z
    heuristic: Heuristic


def is_exact(epilogue: str, dtype: str) -> bool:
    """Whether an epilogue is as exact as its dtype: the Gelu of cuBLASLt has a short constant, 2e-10 off in float64."""
    return dtype != "float64" or "gelu" not in epilogue


def mask_leading(columns: int) -> int:
    """Leading dimension, in bits, of the mask that ReLU keeps of a matrix of so many columns."""
    return -(-columns // _BIT_MASK) * _BIT_MASK


class CublasLt:
    """A handle of the current device; what is made for it is destroyed with this.

    Args:
        library: libcublasLt as ctypes has it, or a stand-in.
        workspace: pointer to WORKSPACE_BYTES on the device, of the stream of all products.
        pointer: gives the address of an array.
    """

    def __init__(
        self, library: ctypes.CDLL, workspace: int, pointer: Callable[[Array], int]
    ) -> None:
        self._library = library
        self._workspace = workspace
        self._pointer = pointer
        self._plans: dict[ProductRequest, ProductPlan | None] = {}
        self._factors = {t: (t(1), t(0)) for t in (ctypes.c_float, ctypes.c_double)}
        self._handle = ctypes.c_void_p()
        self._check(library.cublasLtCreate(ctypes.byref(self._handle)))
        weakref.finalize(
            self, _destroy, library, self._handle, self._plans
        ).atexit = False  # the driver ends before

    def matmul(
        self,
        stream: int,
        x: Array,
        y: Array,
        z: Array,
        epilogue: str = "",
        *,
        bias: Array | None = None,
        aux: Array | None = None,
        uses_tf32: bool = False,
        may_plan: bool = True,
    ) -> bool:
        """z = epilogue(x y) on a stream; False where this cannot be asked for, and nothing was done.

        Args:
            stream: its pointer.
            x, y, z: matrices, or stacks of them, that need no copies (see `cublas.plan_gemm`).
            epilogue: a key of EPILOGUES.
            bias: of the columns of z: what is added, or where the gradient goes.
            aux: what the forward epilogue keeps and the backward one reads: bits, or the input of Gelu.
            uses_tf32: see `StreamBackend`.
            may_plan: False while a graph is captured.
        """
        request = self._request((x, y, z), epilogue, aux, uses_tf32)
        if request is None or (request not in self._plans and not may_plan):
            return False
        plan = self._plan(request, bias, aux)
        if plan is None:
            return False
        self._aim(plan, bias, aux)
        self._launch(plan, (x, y, z), stream)
        return True

    def _request(
        self,
        matrices: Sequence[Array],
        epilogue: str,
        aux: Array | None,
        uses_tf32: bool,
    ) -> ProductRequest | None:
        """What is asked for, of x, y and z; None where it cannot be."""
        x, y, z = matrices
        gemm = plan_gemm(x, y, z)
        if gemm is None or not is_exact(epilogue, z.dtype.name):
            return None
        leading = (
            0 if aux is None else mask_leading(z.shape[-1]) if "relu" in epilogue else z.shape[-1]
        )
        return ProductRequest(
            gemm,
            (y.dtype.name, x.dtype.name, z.dtype.name),
            epilogue,
            leading,
            (self._alignment(y), self._alignment(x), self._alignment(z)),
            uses_tf32,
        )

    def _launch(self, plan: ProductPlan, matrices: Sequence[Array], stream: int) -> None:
        x, y, z = map(self._pointer, matrices)
        is_double = matrices[2].dtype.name == "float64"
        one, zero = self._factors[ctypes.c_double if is_double else ctypes.c_float]
        first, second, result = plan.layouts
        operands = (
            *(ctypes.addressof(one), y, first, x, second),
            *(ctypes.addressof(zero), z, result, z, result),
        )
        options = ctypes.addressof(plan.heuristic), self._workspace, WORKSPACE_BYTES, stream
        self._check(
            self._library.cublasLtMatmul(self._handle, plan.description, *operands, *options)
        )

    def _alignment(self, array: Array) -> int:
        address = self._pointer(array)
        return min(_ALIGNED, address & -address) if address else _ALIGNED

    def _set(
        self,
        put: Callable[..., int],
        thing: ctypes.c_void_p,
        number: int,
        value: ctypes._SimpleCData[Any],
    ) -> None:
        """Set attribute `number` of a descriptor, layout or preference by its function `put`."""
        self._check(put(thing, number, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))))

    def _aim(self, plan: ProductPlan, bias: Array | None, aux: Array | None) -> None:
        put = self._library.cublasLtMatmulDescSetAttribute
        for attribute, array in ((_BIAS_POINTER, bias), (_AUX_POINTER, aux)):
            if array is not None:
                self._set(put, plan.description, attribute, ctypes.c_void_p(self._pointer(array)))

    def _plan(
        self, request: ProductRequest, bias: Array | None, aux: Array | None
    ) -> ProductPlan | None:
        if request not in self._plans:
            plan = self._make(request)
            self._aim(plan, bias, aux)  # the heuristic looks at their alignment
            self._plans[request] = plan if self._choose(plan, request) else None
            if self._plans[request] is None:
                _forget(self._library, plan)
        return self._plans[request]

    def _make(self, request: ProductRequest) -> ProductPlan:
        description = ctypes.c_void_p()
        gemm = request.gemm
        scale = TYPES["float64" if request.dtypes[2] == "float64" else "float32"]
        make = self._library.cublasLtMatmulDescCreate
        put = self._library.cublasLtMatmulDescSetAttribute
        self._check(make(ctypes.byref(description), request.compute_type, scale))
        for attribute, operation in zip((_TRANSPOSE_A, _TRANSPOSE_B), gemm.operations, strict=True):
            self._set(put, description, attribute, ctypes.c_int32(operation))
        self._set(put, description, _EPILOGUE, ctypes.c_uint32(EPILOGUES[request.epilogue]))
        if request.aux_leading:
            self._set(put, description, _AUX_LEADING, ctypes.c_int64(request.aux_leading))
        m, n, k = gemm.extents
        extents = [
            pair[::-1] if turned else pair
            for pair, turned in zip(((m, k), (k, n), (m, n)), (*gemm.operations, 0))
        ]
        operands = zip(request.dtypes, extents, (gemm.first, gemm.second, gemm.result), strict=True)
        return ProductPlan(
            description, [self._layout(*operand, gemm.count) for operand in operands], Heuristic()
        )

    def _layout(
        self, dtype: str, extents: tuple[int, int], operand: Operand, count: int
    ) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        put = self._library.cublasLtMatrixLayoutSetAttribute
        rows, columns = map(ctypes.c_uint64, extents)
        self._check(
            self._library.cublasLtMatrixLayoutCreate(
                ctypes.byref(layout), TYPES[dtype], rows, columns, ctypes.c_int64(operand.leading)
            )
        )
        if count != 1:
            self._set(put, layout, _BATCH_COUNT, ctypes.c_int32(count))
            self._set(put, layout, _BATCH_STRIDE, ctypes.c_int64(operand.batch_stride))
        return layout

    def _choose(self, plan: ProductPlan, request: ProductRequest) -> bool:
        """Ask the heuristic; False where it knows no algorithm."""
        preference = self._preference(request)
        count = ctypes.c_int()
        layouts = (*plan.layouts, plan.layouts[-1])
        answer = 1, ctypes.byref(plan.heuristic), ctypes.byref(count)
        ask = self._library.cublasLtMatmulAlgoGetHeuristic
        status = ask(self._handle, plan.description, *layouts, preference, *answer)
        self._library.cublasLtMatmulPreferenceDestroy(preference)
        return status == 0 and count.value > 0 and plan.heuristic.state == 0

    def _preference(self, request: ProductRequest) -> ctypes.c_void_p:
        """By the workspace and the alignments; who asks for it destroys it."""
        preference = ctypes.c_void_p()
        self._check(self._library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
        put = self._library.cublasLtMatmulPreferenceSetAttribute
        self._set(put, preference, _MOST_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))
        for k, alignment in enumerate((*request.alignments, request.alignments[2])):
            self._set(put, preference, _ALIGNMENT_A + k, ctypes.c_uint32(alignment))
        return preference

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"cuBLASLt: status {status}")


def _forget(library: ctypes.CDLL, plan: ProductPlan) -> None:
    """Give back what cuBLASLt holds for a plan."""
    library.cublasLtMatmulDescDestroy(plan.description)
    for layout in plan.layouts:
        library.cublasLtMatrixLayoutDestroy(layout)


def _destroy(
    library: ctypes.CDLL, handle: ctypes.c_void_p, plans: dict[ProductRequest, ProductPlan | None]
) -> None:
    for plan in filter(None, plans.values()):
        _forget(library, plan)
    library.cublasLtDestroy(handle)


def load_library() -> ctypes.CDLL:
    """libcublasLt, with the types of the arguments that ctypes could not guess."""
    from cuda import pathfinder

    library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path)
    pointer = ctypes.c_void_p
    library.cublasLtMatmul.argtypes = [pointer] * 14 + [ctypes.c_size_t, pointer]
    library.cublasLtMatmulAlgoGetHeuristic.argtypes = [pointer] * 7 + [
        ctypes.c_int,
        pointer,
        pointer,
    ]
    for name in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
        function = getattr(library, f"cublasLt{name}SetAttribute")
        function.argtypes = [pointer, ctypes.c_int, pointer, ctypes.c_size_t]
    for name in ("MatmulDescDestroy", "MatrixLayoutDestroy", "MatmulPreferenceDestroy", "Destroy"):
        getattr(library, f"cublasLt{name}").argtypes = [pointer]
    return library
