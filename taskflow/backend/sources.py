"""CUDA C: files of sources, and how kernels count the elements of a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from taskflow.backend.parameters import C_TYPES, NOTHING, Signature, SourceFacts
from taskflow.core.geometry import Rect

MOST_DIMENSIONS = 6
_CUDA = Path(__file__).with_name("cuda")  # the sources that all kernels share


@dataclass(frozen=True)
class CudaSource:
    """A file of CUDA C: `extern "C"` kernels, named `<name>_<dtype>`; and more of it that was made by a program.

    It is read for the parameters of its kernels, to which every launch is held; see `taskflow.backend.parameters`.
    """

    path: Path
    generated: str = ""

    @cached_property  # one string, whose hash Python keeps: kernels are found by it at every launch
    def text(self) -> str:
        """The source, with the files that it includes in place of their `#include "name"` lines.

        They are of the same folder, or `taskflow/types.cu`: float16 and bfloat16, stored as such.
        """
        return _read(self.path) + "\n" + self.generated

    @cached_property
    def _signatures(self) -> Mapping[str, Signature]:
        facts = _facts(self.path)
        return (facts.and_of(self.generated) if self.generated else facts).signatures

    def signature(self, kernel: str) -> Signature:
        """A kernel's parameters.

        Raises:
            ValueError: the source has no kernel of that name.
        """
        if kernel not in self._signatures:
            names = ", ".join(sorted(self._signatures)) or "none"
            raise ValueError(
                f"CUDA kernel '{kernel}': {self.path.name} has no kernel of that name; it has {names}"
            )
        return self._signatures[kernel]

    @staticmethod
    def c_type(dtype: str) -> str:
        """The type in CUDA C of the numbers of a dtype; of half size, with `#include "taskflow/types.cu"`."""
        return C_TYPES[dtype]


@cache
def _facts(path: Path) -> SourceFacts:
    return NOTHING.and_of(_read(path))


@cache
def _read(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    for k, line in enumerate(lines):
        if line.startswith('#include "'):
            folder, _, file = line.split('"')[1].rpartition("/")
            lines[k] = _read((_CUDA if folder == "taskflow" else path.parent / folder) / file)
    return "\n".join(lines)


RANDOM, CASTS = (CudaSource(_CUDA / f"{name}.cu") for name in ("random", "casts"))


def index_map(shape: Sequence[int], rect: Rect) -> tuple[int, ...]:
    """How kernels find the row-major index in a region of `shape` of the k-th element of its tile `rect`.

    The extents of the tile, the strides of the region (both of MOST_DIMENSIONS dimensions) and the index of the first.
    """
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(
            f"a region of {len(shape)} dimensions: kernels on a GPU count in at most {MOST_DIMENSIONS}"
        )
    strides = [0] * len(shape)
    step = 1
    for k in reversed(range(len(shape))):
        strides[k], step = step, step * shape[k]
    first = sum(lo * s for lo, s in zip(rect.lo, strides))
    missing = MOST_DIMENSIONS - len(shape)
    return (*[1] * missing, *rect.shape, *[0] * missing, *strides, first)
