"""The numbers that `cublas` and `cublaslt` pass by ctypes, against NVIDIA's headers.

Transcribed from `cublasLt.h` and `cublas_api.h` of cuBLAS 13.10.0.20 (PyPI: nvidia-cublas) and 12.9.3.13
(nvidia-cublas-cu12), which agree, and from `library_types.h` of CUDA 13.5 (nvidia-cuda-runtime 13.5.37). Where headers
are installed, they are read. NCCL's numbers are not here: `nccl` takes them by name from CuPy's binding.
"""

import ctypes
import re
from pathlib import Path

import pytest

from taskflow.backend.cuda import cublas, cublaslt

HEADERS = {
    "cublasLt.h": {
        "CUBLASLT_EPILOGUE_DEFAULT": 1,
        "CUBLASLT_EPILOGUE_RELU": 2,
        "CUBLASLT_EPILOGUE_BIAS": 4,
        "CUBLASLT_EPILOGUE_RELU_BIAS": 2 | 4,
        "CUBLASLT_EPILOGUE_RELU_AUX_BIAS": 2 | 128 | 4,
        "CUBLASLT_EPILOGUE_DRELU": 8 | 128,
        "CUBLASLT_EPILOGUE_DRELU_BGRAD": 8 | 128 | 16,
        "CUBLASLT_EPILOGUE_GELU": 32,
        "CUBLASLT_EPILOGUE_GELU_BIAS": 32 | 4,
        "CUBLASLT_EPILOGUE_GELU_AUX": 32 | 128,
        "CUBLASLT_EPILOGUE_GELU_AUX_BIAS": 32 | 128 | 4,
        "CUBLASLT_EPILOGUE_DGELU": 64 | 128,
        "CUBLASLT_EPILOGUE_DGELU_BGRAD": 64 | 128 | 16,
        "CUBLASLT_EPILOGUE_BGRADA": 256,
        "CUBLASLT_EPILOGUE_BGRADB": 512,
        "CUBLASLT_MATMUL_DESC_TRANSA": 3,
        "CUBLASLT_MATMUL_DESC_TRANSB": 4,
        "CUBLASLT_MATMUL_DESC_EPILOGUE": 7,
        "CUBLASLT_MATMUL_DESC_BIAS_POINTER": 8,
        "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER": 11,
        "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD": 12,
        "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": 5,
        "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": 6,
        "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": 1,
        "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES": 5,
        "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES": 6,
        "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES": 7,
        "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES": 8,
        "CUBLASLT_ORDER_COL": 0,  # the default of a layout, which is never set
    },
    "cublas_api.h": {
        "CUBLAS_OP_N": 0,
        "CUBLAS_OP_T": 1,
        "CUBLAS_GEMM_DEFAULT": -1,
        "CUBLAS_COMPUTE_32F": 68,
        "CUBLAS_COMPUTE_64F": 70,
        "CUBLAS_COMPUTE_32F_FAST_TF32": 77,
    },
    "library_types.h": {"CUDA_R_32F": 0, "CUDA_R_64F": 1, "CUDA_R_16F": 2, "CUDA_R_16BF": 14},
}
LT, API, TYPES = HEADERS.values()
EPILOGUES = {
    "": "DEFAULT",
    "drelu_bias_gradient": "DRELU_BGRAD",
    "dgelu_bias_gradient": "DGELU_BGRAD",
    "bias_gradient_of_first": "BGRADA",
    "bias_gradient_of_second": "BGRADB",
}


@pytest.mark.parametrize("name, number", cublaslt.EPILOGUES.items())
def test_epilogues(name, number):
    assert number == LT[f"CUBLASLT_EPILOGUE_{EPILOGUES.get(name, name.upper())}"]


@pytest.mark.parametrize(
    "name, header",
    [
        ("_TRANSPOSE_A", "MATMUL_DESC_TRANSA"),
        ("_TRANSPOSE_B", "MATMUL_DESC_TRANSB"),
        ("_EPILOGUE", "MATMUL_DESC_EPILOGUE"),
        ("_BIAS_POINTER", "MATMUL_DESC_BIAS_POINTER"),
        ("_AUX_POINTER", "MATMUL_DESC_EPILOGUE_AUX_POINTER"),
        ("_AUX_LEADING", "MATMUL_DESC_EPILOGUE_AUX_LD"),
        ("_BATCH_COUNT", "MATRIX_LAYOUT_BATCH_COUNT"),
        ("_BATCH_STRIDE", "MATRIX_LAYOUT_STRIDED_BATCH_OFFSET"),
        ("_MOST_WORKSPACE", "MATMUL_PREF_MAX_WORKSPACE_BYTES"),
        ("_ALIGNMENT_A", "MATMUL_PREF_MIN_ALIGNMENT_A_BYTES"),
    ],
)
def test_attributes(name, header):
    assert getattr(cublaslt, name) == LT[f"CUBLASLT_{header}"]


def test_types_and_operations():
    assert {
        "float16": TYPES["CUDA_R_16F"],
        "bfloat16": TYPES["CUDA_R_16BF"],
        "float32": TYPES["CUDA_R_32F"],
        "float64": TYPES["CUDA_R_64F"],
    } == cublas.TYPES
    single = API["CUBLAS_COMPUTE_32F"]
    assert {
        **dict.fromkeys(("float16", "bfloat16", "float32"), single),
        "float64": API["CUBLAS_COMPUTE_64F"],
        "tf32": API["CUBLAS_COMPUTE_32F_FAST_TF32"],
    } == cublas.COMPUTE_TYPES
    assert (API["CUBLAS_OP_N"], API["CUBLAS_OP_T"]) == (cublas._NONE, cublas._TRANSPOSED)
    assert API["CUBLAS_GEMM_DEFAULT"] == cublas._DEFAULT_ALGORITHM


def test_the_structure_that_the_heuristic_fills():
    """cublasLtMatmulHeuristicResult_t: algo (8 uint64_t), size_t, cublasStatus_t, float, int[4]."""
    found = {
        name: getattr(cublaslt.Heuristic, name).offset for name, _ in cublaslt.Heuristic._fields_
    }
    assert found == {
        "algorithm": 0,
        "workspace_bytes": 64,
        "state": 72,
        "waves": 76,
        "reserved": 80,
    }
    assert ctypes.sizeof(cublaslt.Heuristic) == 96


def numbers(text):
    """The enumerators of a header that have a number, or an expression of numbers and earlier ones."""
    found = {}
    for name, expression in re.findall(r"^\s*(CU[A-Z0-9_]+) *= *([^,/\n]+)", text, re.MULTILINE):
        for word in re.findall(r"CU\w+", expression):
            expression = expression.replace(word, str(found.get(word, word)))
        if re.fullmatch(r"[\s\d|()x+-]+", expression):
            found[name] = eval(expression)
    return found


@pytest.mark.parametrize("name", HEADERS)
def test_the_headers_that_are_installed(name):
    pathfinder = pytest.importorskip("cuda.pathfinder")
    folder = pathfinder.find_nvidia_header_directory(
        "cudart" if name == "library_types.h" else "cublas"
    )
    if folder is None or not (Path(folder) / name).exists():
        pytest.skip(f"{name} is not installed")
    found = numbers((Path(folder) / name).read_text(encoding="utf-8"))
    assert {each: found.get(each) for each in HEADERS[name]} == HEADERS[name]
