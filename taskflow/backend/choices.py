"""Choices: which of two kernels for one thing runs, a library's or an own one, by what was measured.

A table has, for an operation of a library on arrays of some shapes and dtype, the seconds of each way. What it lacks
goes the way of the nearest shapes of that operation and dtype; what it knows nothing of, the library's. So a choice
follows from a table alone, never from what a process times while it runs: results are equal from run to run. A table is
measured into a cost file (`CostModel.measured`, `taskflow machine --measure --kernels`); a run without one takes what
is shipped for its kind of GPU (`choices.toml`, from `benchmarks/results`), and all ranks take rank 0's.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import numpy as np

from taskflow.core.arrays import Array
from taskflow.core.told import digest_of_bytes

LIBRARY = "library"
OWN = "own"
_SHIPPED = "choices.toml"
_SHAPES = 2  # the arrays of an operation that tell its size come first


def choice_key(
    operation: str, inputs: Sequence[Array], options: Mapping[str, Any], uses_tf32: bool
) -> str:
    """What a choice depends on: `convolution of tf32 | 128x3x32x32 64x3x3x3 | stride (1, 1)`."""
    dtype = inputs[0].dtype.name
    dtype = "tf32" if uses_tf32 and dtype == "float32" else dtype
    shapes = " ".join("x".join(map(str, array.shape)) for array in inputs[:_SHAPES])
    others = ", ".join(f"{name} {options[name]}" for name in sorted(options))
    return f"{operation} of {dtype} | {shapes} | {others}"


@dataclass(frozen=True)
class Choices:
    """Key -> way -> seconds."""

    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def way(self, key: str) -> str:
        """`LIBRARY` or `OWN`."""
        if key not in self._ways:
            self._ways[key] = self._find(key)
        return self._ways[key]

    @cached_property
    def digest(self) -> str:
        """Of all that is chosen."""
        ways = [f"{key}: {_fastest(by)}" for key, by in sorted(self.seconds.items())]
        return digest_of_bytes("\n".join(ways).encode()).hex()

    @cached_property
    def _ways(self) -> dict[str, str]:
        return {key: _fastest(by) for key, by in self.seconds.items()}

    def _find(self, key: str) -> str:
        kind = key.partition(" | ")[0]
        sizes = _sizes(key)
        alike = [k for k in sorted(self.seconds) if k.partition(" | ")[0] == kind]
        alike = [k for k in alike if len(_sizes(k)) == len(sizes)]
        apart = [float(np.abs(_sizes(k) - sizes).sum()) for k in alike]
        return _fastest(self.seconds[alike[int(np.argmin(apart))]]) if alike else LIBRARY


def _fastest(by_way: Mapping[str, float]) -> str:
    return min((LIBRARY, OWN), key=lambda way: by_way.get(way, float("inf")))


def _sizes(key: str) -> Array:
    """Logarithms of all extents."""
    extents = re.findall(r"\d+", key.split(" | ")[1])
    return np.log(np.maximum(np.array(extents, np.float64), 1.0))


@cache
def shipped_choices(gpu: str) -> Choices:
    """What is shipped for a kind of GPU, by the name that its driver gives; nothing for one that is not known."""
    return Choices(tomllib.loads(files(__package__).joinpath(_SHIPPED).read_text()).get(gpu, {}))


def render_choices(by_gpu: Mapping[str, Choices], sources: Iterable[str]) -> str:
    """The text of `choices.toml`."""
    lines = [f"# Seconds by way, from {', '.join(sources)}: `python benchmarks/gpu_choices.py`."]
    for gpu, choices in by_gpu.items():
        lines += ["", f'["{gpu}"]']
        for key in sorted(choices.seconds):
            by = choices.seconds[key]
            lines.append(f'"{key}" = {{ library = {by[LIBRARY]:g}, own = {by[OWN]:g} }}')
    return "\n".join(lines) + "\n"
