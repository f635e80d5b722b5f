"""FlexFlow's strategy files: of every operator the parts of each dimension, innermost first, and a device of each part.

The text format of its last release with the random search (FlexFlow r22.07, `src/runtime/strategy.cc`): the number of
operators; of each its name, device type, number of dimensions, parts of each, number of devices, devices. What a file
does not name is data parallel, as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from taskflow.core.files import naming, read_text
from taskflow.graph.family import Family, families
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.strategy.rules import data_parallel
from taskflow.strategy.strategy import ParallelConfig


def is_flexflow(text: str) -> bool:
    """Whether a text begins as such a file does."""
    return text.split(maxsplit=1)[:1] != [] and text.split(maxsplit=1)[0].isdecimal()


def read_flexflow(path: Path, graph: Graph, machine: MachineModel) -> Plan:
    """The plan of a strategy file.

    Raises:
        ValueError: the file ends early, or names an operator, a dimension or a device that is not there.
    """
    strategy = data_parallel(graph, machine)
    by_leader = {f.leader.name: f for f in families(graph)}
    with naming(f"FlexFlow file '{path}'"):
        for name, degrees, devices in _entries(read_text(path).split()):
            if name not in by_leader:
                raise ValueError(f"'{name}' is no operator that a strategy of the model names")
            with naming(f"'{name}'"):
                strategy[name] = _config(by_leader[name], degrees, devices)
    return Plan(strategy)


def _entries(words: list[str]) -> Iterator[tuple[str, list[int], list[int]]]:
    """Of every operator its name, parts of each dimension and devices."""
    left = iter(words)
    try:
        for _ in range(int(next(left))):
            name = next(left)
            _device_type = next(left)
            degrees = [int(next(left)) for _ in range(int(next(left)))]
            yield name, degrees, [int(next(left)) for _ in range(int(next(left)))]
    except StopIteration:
        raise ValueError("ends early") from None


def _config(family: Family, degrees: list[int], devices: list[int]) -> ParallelConfig:
    """Dimensions are those of the first output, the innermost first, and parts are counted so."""
    dims = family.leader.bound.terms[len(family.leader.inputs)].dims
    if len(degrees) != len(dims):
        raise ValueError(f"has {len(dims)} dimensions, the file has {len(degrees)}")
    split: dict[str, int] = {}
    for names, count in zip(reversed(dims), degrees, strict=True):
        axes = family.share_out(names, count)
        if prod(axes.values()) != count:
            raise ValueError(f"its dimension of {' '.join(names)} cannot be split into {count}")
        split = {**axes, **split}
    if not family.allows(split):
        raise ValueError(f"it, or what follows it, cannot be split into {degrees}")
    return ParallelConfig(
        {axis: count for axis, count in split.items() if count > 1},
        devices or np.arange(prod(degrees)).tolist(),
    )
