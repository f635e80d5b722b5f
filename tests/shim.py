"""CUDA kernels on the CPU: their sources as C++, behind fake streams.

gcc compiles a source with `shim.h`, which gives threads, blocks and barriers; `shim.cpp` runs them. That proves the
arithmetic, the indexing and the barriers of a kernel, and nothing of its speed or of races between threads within a
phase.
"""

import atexit
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from taskflow.backend.cuda.cublaslt import is_exact
from tests.fake_gpu.streams import FakeStreams
from tests.sampling import IS_THOROUGH

# Sources are compiled for all of them by HYPOTHESIS_PROFILE=thorough, else each for one: they are of one generation.
ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]


def architectures_of(sources):
    """(source, architecture) for every source."""
    return [
        (s, a)
        for k, s in enumerate(sources)
        for n, a in enumerate(ARCHITECTURES)
        if IS_THOROUGH or n == k % 3
    ]


def compile_for(text, architecture):
    """Code for a GPU, or what is wrong with the source; its speed is not asked for, which takes 5 times as long."""
    core = pytest.importorskip(
        "cuda.core", reason="cuda-core and nvidia-cuda-nvrtc are not installed"
    )
    options = core.ProgramOptions(arch=architecture, std="c++17", ofast_compile="max")
    return core.Program(text, "c++", options).compile("cubin").code


COMPILER = shutil.which("g++")
_KERNEL = re.compile(r'extern "C"\s+void\s+(\w+)\s*\(([^)]*)\)')
_NUMBERS = {
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "int": ctypes.c_int,
    "long long": ctypes.c_longlong,
}
_NUMBERS |= {"unsigned char": ctypes.c_ubyte, "unsigned": ctypes.c_uint}
ROOT = Path(__file__).parents[1]
_CACHE = ROOT / ".cache" / "shim"
# In C++ 14 <cmath> is half as long, and no library is linked: 0.05 s of the processor a source, it was 0.15.
# A vector that is read where it cannot be on a GPU traps: the process ends.
_CHECKS = "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"
_OPTIONS = (
    "-std=c++14",
    "-O0",
    "-w",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-threadsafe-statics",
    *_CHECKS,
)
# No library is linked: this process has all that a kernel calls.
_LINKED = "-shared", "-nostdlib", "-fno-use-linker-plugin"
_HEADER, _RUNNER = (Path(__file__).with_name(f"shim.{suffix}") for suffix in ("h", "cpp"))


@cache
def library(source):
    """The kernels of a source, `run_` before their names; what was compiled is kept on disk."""
    load_runner()
    kept = kept_as(source.text, _HEADER.read_text(), *_OPTIONS)
    if not kept.exists():
        build(source, kept)
    return ctypes.PyDLL(str(kept))


@cache
def load_runner():
    """What all kernels call; it has one state, so kernels keep the interpreter's lock."""
    options = "-std=c++14", "-O2", "-U_FORTIFY_SOURCE", "-fPIC", "-shared"
    kept = kept_as(_HEADER.read_text(), _RUNNER.read_text(), *options)
    if not kept.exists():
        with tempfile.TemporaryDirectory() as name:
            made = Path(name, "runner.so")
            compile_cpp(ROOT, *options, str(_RUNNER), "-o", str(made))
            keep(made, kept)
    ctypes.CDLL(str(kept), ctypes.RTLD_GLOBAL)


def kept_as(*texts):
    """Where a library of these texts is."""
    key = hashlib.blake2b("".join(texts).encode(), digest_size=16).hexdigest()
    return _CACHE / f"{key}.so"


def keep(made, kept):
    """Whole, whoever else compiles it."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    beside = kept.with_suffix(f".{os.getpid()}")
    shutil.copy(made, beside)
    beside.rename(kept)


def build(source, kept):
    """Compile a source to `kept`; what generated ones share is compiled once."""
    shared = source.text.removesuffix(source.generated) if source.generated else ""
    with tempfile.TemporaryDirectory() as name:
        runners = "\n".join(f"SHIM_RUN({kernel})" for kernel in source._signatures)
        text = f"{source.text.removeprefix(shared)}\n{runners}\n"
        Path(name, "kernels.cpp").write_text(text)
        files = "-include", str(header(shared)), "kernels.cpp", *_LINKED, "-o", "kernels.so"
        compile_cpp(name, *_OPTIONS, *files)
        keep(Path(name, "kernels.so"), kept)


@cache
def header(shared):
    """The header and what sources share, compiled before all that include it."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / _HEADER.name).write_text(f"{_HEADER.read_text()}\n{shared}")
    compile_cpp(folder, *_OPTIONS, "-x", "c++-header", _HEADER.name, "-o", f"{_HEADER.name}.gch")
    return folder / _HEADER.name


def compile_cpp(folder, *arguments):
    """What the compiler prints."""
    return subprocess.run(
        [COMPILER, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def kernels_in(source):
    """Name -> what every parameter is to g++, of each kernel of a text."""
    with tempfile.TemporaryDirectory() as name:
        Path(name, "source.cpp").write_text(f'#include "{_HEADER}"\n{source}')
        text = compile_cpp(name, "-DSHIM_WORDS", "-E", "-P", "source.cpp")
    return {name: kinds(parameters) for name, parameters in _KERNEL.findall(text)}


def kinds(parameters):
    """What every parameter is to g++."""
    return [
        ctypes.c_void_p if "*" in p else _NUMBERS[" ".join(p.split()[:-1])]
        for p in parameters.split(",")
    ]


def refuse_unconverted(signature, args):
    """A GPU takes bits as they come: each argument is of its parameter's very type, or a stand-in ends here."""
    assert len(args) == len(signature.parameters), f"{signature.kernel}: {len(args)} arguments"
    for parameter, value in zip(signature.parameters, args):
        where = (
            f"CUDA kernel '{signature.kernel}': parameter '{parameter.name}' is {parameter.type}"
        )
        dtype = getattr(value, "dtype", None)
        if parameter.is_pointer and isinstance(value, np.generic):
            assert value.dtype == np.uint64 and not value, (
                f"{where}, and gets the {type(value).__name__} {value!r}"
            )
        else:
            is_array = dtype is not None and not isinstance(value, np.generic)
            assert is_array == parameter.is_pointer, (
                f"{where}, and gets {type(value).__name__} {value!r}"
            )
            assert dtype is not None, f"{where}, and gets the {type(value).__name__} {value!r}"
            assert dtype.name == (parameter.dtype or dtype.name), f"{where}, and gets {dtype}"


def bits_of(value):
    """A number or address as a GPU reads it: its bits, whatever they meant where they come from, and no more."""
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        value = np.uint64(value.ctypes.data)
    return value.tobytes().ljust(8, b"\xff")


class _Arrays:
    """NumPy with products of half matrices as GPUs have them: summed in float32, rounded once."""

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def matmul(a, b, out=None):
        dtype = a.dtype if out is None else out.dtype
        product = np.matmul(*(x.astype(np.float32) if x.dtype.itemsize == 2 else x for x in (a, b)))
        if out is None:
            return product.astype(dtype)
        np.copyto(out, product, casting="unsafe")
        return out

    @staticmethod
    def add_product(a, b, out):
        """What cuBLAS does with a beta of 1, in float32 or float64, rounded once."""
        out[...] = wide(out) + wide(a) @ wide(b)

    def __init__(self):
        self.epilogues = []  # that were asked for

    def product(self, a, b, out, epilogue, bias=None, aux=None):
        """What cuBLASLt does, in float32 or float64, rounded once."""
        if not is_exact(epilogue, out.dtype.name):
            return False
        self.epilogues.append(epilogue)
        x, y = (wide(m) for m in (a, b))
        before = x @ y
        if epilogue == "bias_gradient_of_second":
            bias[...] = x.sum(axis=1)
        elif bias is not None:
            before = before + wide(bias)
        if epilogue.startswith("gelu_aux"):
            aux[...] = before
        if epilogue.startswith("relu"):
            before = np.maximum(before, 0)
        elif epilogue.startswith("gelu"):
            before = 0.5 * before * (1 + np.tanh(_gelu_root(before)))
        elif epilogue == "dgelu":
            kept = wide(aux)
            inner = np.tanh(_gelu_root(kept))
            slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * kept**2)
            before = before * 0.5 * (1 + inner + kept * (1 - inner**2) * slope)
        out[...] = before
        return True


def wide(array):
    """As cuBLASLt computes with it."""
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)


def _gelu_root(x):
    return np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)


class ShimStreams(FakeStreams):
    """Fake streams on which operators run their CUDA kernels."""

    uses_variants = True

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.xp = _Arrays()

    def kernel(self, source, name):
        function, signature = getattr(library(source), f"run_{name}"), source.signature(name)

        def launch(blocks, block, args):
            refuse_unconverted(signature, args)
            values = b"".join(map(bits_of, args))
            function(ctypes.c_longlong(blocks), ctypes.c_longlong(block), values)

        return launch
