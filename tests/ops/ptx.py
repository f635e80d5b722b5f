"""What CUDA kernels are compiled to before a GPU is known: PTX, and its loops."""

import re

import pytest

_ENTRY = re.compile(r"\.entry\s+(\w+)")
_LABEL = re.compile(r"^(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+);")
_WIDE_DIVISION = re.compile(r"\b(?:div|rem)\.[su]64\b")


def compile_to_ptx(text, architecture="compute_90"):
    """The PTX of a source."""
    nvrtc = pytest.importorskip(
        "cuda.bindings.nvrtc", reason="cuda-bindings and nvidia-cuda-nvrtc are not installed"
    )
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
    options = [b"--std=c++17", f"--gpu-architecture={architecture}".encode()]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = bytes(size)
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.decode()


def loops(ptx):
    """(kernel, lines) of every loop: from a label to the last branch back to it."""
    for kernel in re.split(r"(?=\.entry\s)", ptx)[1:]:
        lines, labels, ends = kernel.splitlines(), {}, {}
        for k, line in enumerate(lines):
            if label := _LABEL.match(line):
                labels[label[1]] = k
            for target in _BRANCH.findall(line):
                if target in labels:
                    ends[target] = k
        yield from (
            (_ENTRY.search(kernel)[1], lines[labels[target] : end]) for target, end in ends.items()
        )


def kernels_that_divide_in_loops(ptx):
    """Names of kernels with a 64-bit division in a loop: it takes some 70 instructions."""
    return sorted({name for name, lines in loops(ptx) if any(map(_WIDE_DIVISION.search, lines))})
