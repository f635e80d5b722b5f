"""CUDA kernels on the CPU: their sources as C++, behind fake streams.

gcc compiles a source with `shim.h`, which gives threads, blocks and barriers. That proves the arithmetic, the indexing
and the barriers of a kernel, and nothing of its speed or of races between threads within a phase.
"""

import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from taskflow.backend.fake import FakeStreams

COMPILER = shutil.which("g++")
_KERNEL = re.compile(r'extern "C"\s+static\s+void\s+(\w+)\s*\(([^)]*)\)')
_HEADER = Path(__file__).with_name("shim.h")


@cache
def library(source):
    """The kernels of a source, by name: called with threads, threads in a block, and arguments."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = expand(source, folder)
        found = _KERNEL.findall(text)
        runners = [runner(name, parameters) for name, parameters in found]
        text = re.sub(r'extern "C"\s+static', "static", text)
        (folder / "kernels.cpp").write_text("\n".join([text, *runners]))
        options = "-O1", "-w", "-shared", "-fPIC", "-fpreprocessed"
        compile_cpp(folder, *options, "kernels.cpp", "-o", "kernels.so")
        return ctypes.CDLL(str(folder / "kernels.so")), {name: kinds(parameters) for name, parameters in found}


def compile_cpp(folder, *arguments):
    """What the compiler prints."""
    command = [COMPILER, "-std=c++17", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def expand(source, folder):
    """The source behind the header, with its macros spelled out."""
    (folder / "source.cpp").write_text(f'#include "{_HEADER}"\n{source}')
    return compile_cpp(folder, "-E", "-P", "source.cpp")


def runner(name, parameters):
    """A function that runs all blocks of a kernel."""
    names = ", ".join(re.findall(r"(\w+)\s*(?:,|$)", parameters))
    call = f"run_blocks(grid, block, [=] {{ {name}({names}); }});"
    return f'extern "C" void run_{name}(long long grid, long long block, {parameters}) {{ {call} }}'


def kinds(parameters):
    """What every parameter is: a pointer, a double or an integer of 64 bits."""
    return [
        ctypes.c_void_p if "*" in p else ctypes.c_double if "double" in p else ctypes.c_longlong
        for p in parameters.split(",")
    ]


class ShimStreams(FakeStreams):
    """Fake streams on which operators run their CUDA kernels."""

    uses_variants = True

    def kernel(self, source, name):
        functions, parameters = library(source)
        function = getattr(functions, f"run_{name}")

        def launch(threads, block, args):
            assert len(args) == len(parameters[name]), f"{name} has {len(parameters[name])} parameters, not {len(args)}"
            for array in args:
                assert not isinstance(array, np.ndarray) or array.flags.c_contiguous
            values = [
                kind(a.ctypes.data if isinstance(a, np.ndarray) else a) for kind, a in zip(parameters[name], args)
            ]
            function(ctypes.c_longlong(-(-threads // block)), ctypes.c_longlong(block), *values)

        return launch
