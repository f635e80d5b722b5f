"""Strategies: how every operator is split and where its points run.

Takes a graph and a machine; gives ParallelConfigs. A Strategy does the work of Legion's mapper as plain data. Backward
and update operators use the configuration of their forward operator unless they are named themselves.
"""

from __future__ import annotations

import json
import warnings
from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from taskflow.core.columns import Array
from taskflow.core.files import (
    fit,
    fit_each,
    naming,
    parse_json,
    read_text,
    replace_file,
    without_head,
)
from taskflow.core.geometry import REPLICAS as REPLICAS
from taskflow.core.geometry import Degree as Degree
from taskflow.core.geometry import part_bounds
from taskflow.core.geometry import parts as parts
from taskflow.graph.beside import in_turn
from taskflow.graph.family import families
from taskflow.graph.graph import Graph, Operator
from taskflow.graph.offload import BACK
from taskflow.graph.repeat import in_step

FORMAT = "taskflow-strategy"
VERSION = 1
MOST_POINTS = 1 << 31  # of an operator


class OperatorTable(Struct, forbid_unknown_fields=True):
    """What a strategy file says of an operator; `pattern` and `extents` are there together."""

    degrees: dict[str, Any]
    devices: list[Annotated[int, Meta(ge=0, lt=1 << 31)]]
    pattern: str | None = None
    extents: dict[str, Any] | None = None


class StrategyTable(Struct, forbid_unknown_fields=True):
    """A strategy file, and what a plan file says of its strategy."""

    operators: dict[str, Any]

    def strategy(self) -> Strategy:
        """The strategy; ValueError if an entry is malformed (named)."""
        configs = {}
        signatures = {}
        for name, value in self.operators.items():
            with naming(f"operator '{name}'"):
                entry = fit(value, OperatorTable)
                configs[name] = ParallelConfig(
                    fit_each(entry.degrees, _Degree, "axis"), entry.devices
                )
                if (entry.pattern is None) != (entry.extents is None):
                    raise ValueError("'pattern' and 'extents' are there together or not at all")
                if entry.pattern is not None and entry.extents is not None:
                    signatures[name] = (
                        entry.pattern,
                        fit_each(entry.extents, _Extent, "extent of axis"),
                    )
        return Strategy(configs, signatures)


@dataclass(frozen=True, init=False)
class ParallelConfig:
    """Degree per axis and the device of every point.

    Args:
        degrees: axis -> number of parts (balanced), or a sequence of fractions that sum to one. "replicas" ->
            so many replicas of every point: tensor parallelism without sequence parallelism has norms `{"b": 4,
            "replicas": 2}`.
        devices: the device of every point, row-major over the axes in the order of `degrees`; default 0, 1, 2, ...

    Raises:
        ValueError: a degree is not positive, fractions do not sum to one, or the number of devices is not the number
            of points.
    """

    degrees: tuple[tuple[str, Degree], ...]
    devices: tuple[int, ...]

    def __init__(
        self,
        degrees: Mapping[Any, int | Sequence[float]] | None = None,
        devices: Sequence[int] | None = None,
    ) -> None:
        if degrees and None in degrees:
            what = 'ParallelConfig({None: ...}) is of an older release: use {"replicas": ...}'
            warnings.warn(what, FutureWarning, stacklevel=2)
        normal = tuple(
            (axis or REPLICAS, _degree(axis or REPLICAS, degree))  # "" in files of older releases
            for axis, degree in (degrees or {}).items()
        )
        object.__setattr__(self, "degrees", normal)
        if self.points > MOST_POINTS:
            raise ValueError(
                f"ParallelConfig: {dict(normal)} has {self.points} points, at most {MOST_POINTS} are possible"
            )
        numbers = tuple(range(self.points)) if devices is None else _numbers(devices)
        if len(numbers) != self.points:
            raise ValueError(
                f"ParallelConfig: {dict(normal)} has {self.points} points, {len(numbers)} devices were given"
            )
        object.__setattr__(self, "devices", numbers)

    def __hash__(self) -> int:
        return hash((self.degrees, self._devices_hash))

    @cached_property
    def _devices_hash(self) -> int:
        return hash(self.devices)

    @cached_property
    def device_range(self) -> tuple[int, int]:
        """The lowest and the highest device."""
        return min(self.devices), max(self.devices)

    @property
    def points(self) -> int:
        """Number of points: the product of the degrees."""
        return prod(parts(d) for _, d in self.degrees)

    def bounds(self, axis: str, extent: int) -> list[int]:
        """Boundaries of the parts of `axis`."""
        return part_bounds(extent, dict(self.degrees)[axis])

    def __str__(self) -> str:
        split = " ".join(
            f"{a}:{d if isinstance(d, int) else '/'.join(map('{:g}'.format, d))}"
            for a, d in self.degrees
        )
        return f"{split or 'whole'} on {','.join(map(str, self.devices))}"


def points_along(config: ParallelConfig, axes: Sequence[str]) -> Array:
    """The devices of all points, a dimension for every axis: some axes of the configuration, then the others."""
    names = [axis for axis, _ in config.degrees]
    points = np.array(config.devices).reshape([parts(degree) for _, degree in config.degrees])
    return np.moveaxis(points, [names.index(axis) for axis in axes], range(len(axes)))


def replicas(devices: Sequence[int]) -> ParallelConfig:
    """Whole on each of some devices."""
    return ParallelConfig({REPLICAS: len(devices)} if len(devices) > 1 else {}, devices)


def _degree(axis: str, degree: Any) -> Degree:
    if isinstance(degree, int | np.integer) and not isinstance(degree, bool):
        if degree < 1:
            raise ValueError(f"axis '{axis}': a degree is positive, not {degree}")
        return int(degree)
    if axis == REPLICAS:
        raise ValueError(f"replicas: a number of them is needed, not {degree!r}")
    if not isinstance(degree, Sequence) or not all(
        isinstance(f, int | float | np.floating) for f in degree
    ):
        raise TypeError(
            f"axis '{axis}': a degree is a number of parts or a list of fractions, not {degree!r}"
        )
    fractions = tuple(float(f) for f in degree)
    if not fractions or not min(fractions) > 0 or not abs(sum(fractions) - 1) <= 1e-6:
        raise ValueError(f"axis '{axis}': fractions are positive and sum to 1, not {fractions}")
    return fractions


def _numbers(devices: Sequence[int]) -> tuple[int, ...]:
    numbers = tuple(devices)
    return numbers if set(map(type, numbers)) == {int} else tuple(_device(d) for d in numbers)


def _device(device: Any) -> int:
    if not isinstance(device, int | np.integer) or isinstance(device, bool):
        raise TypeError(f"ParallelConfig: a device is a number, not {device!r}")
    return int(device)


class Strategy(UserDict[str, ParallelConfig]):
    """Operator name -> ParallelConfig.

    `signatures` remembers pattern and extents of the operators that it was made for, so that a strategy of another
    graph is recognised.
    """

    def __init__(
        self,
        configs: Mapping[str, ParallelConfig] | None = None,
        signatures: Mapping[str, tuple[str, Mapping[str, int]]] | None = None,
    ) -> None:
        self.data = dict(configs or {})
        self.signatures = {k: (p, dict(e)) for k, (p, e) in (signatures or {}).items()}

    @staticmethod
    def of_graph(graph: Graph, configs: Mapping[str, ParallelConfig]) -> Strategy:
        """A strategy that remembers the operators of `graph`."""
        signatures = {op.name: (op.pattern, dict(op.extents)) for op in graph.operators}
        strategy = Strategy(configs, signatures)
        different = dict[ParallelConfig, ParallelConfig]()
        # Equal ones are one object: to compare those of thousands of devices takes long.
        strategy.data = {n: different.setdefault(c, c) for n, c in strategy.data.items()}
        return strategy

    @staticmethod
    def beside(jobs: Mapping[str, Strategy], steps: Mapping[str, int] | None = None) -> Strategy:
        """The strategy of graphs beside each other (`taskflow.beside`), of one for each job, the same in its steps."""
        made = Strategy()
        for job, strategy in jobs.items():
            for step in range((steps or {}).get(job, 1)):
                name = partial(in_turn, job=job, step=step)
                made.data |= {name(n): strategy[n] for n in strategy}
                made.signatures |= {name(n): strategy.signatures[n] for n in strategy.signatures}
        return made

    def __setitem__(self, name: str, config: ParallelConfig) -> None:
        if not isinstance(config, ParallelConfig):
            raise TypeError(
                f"strategy['{name}']: is a ParallelConfig, not a {type(config).__name__}"
            )
        self.data[name] = config

    def __repr__(self) -> str:
        return "Strategy(" + "; ".join(f"{n}: {c}" for n, c in self.items()) + ")"

    def copy(self) -> Strategy:
        """An independent copy."""
        copy = Strategy(self.data)
        copy.signatures = self.signatures  # of the same operators, never altered
        return copy

    def for_graph(self, graph: Graph) -> Strategy:
        """The part of this strategy that names operators of `graph`, as a strategy of that graph.

        It is how a training strategy serves the evaluation graph of the same model, whose batch may differ: an operator
        that cannot be split so there is whole. Operators that this strategy does not name run whole on device 0.
        """
        family_of = {family.leader.name: family for family in families(graph, self)}
        configs = {n: c for n, c in self.items() if n in family_of} | {
            n: ParallelConfig({}, (0,)) for n in family_of if n not in self
        }
        for name, config in configs.items():
            if not family_of[name].allows(dict(config.degrees)):
                configs[name] = ParallelConfig({}, config.devices[:1])
        return Strategy.of_graph(graph, configs)

    def to_table(self) -> dict[str, Any]:
        """A `StrategyTable` as JSON has it."""
        operators: dict[str, dict[str, Any]] = {}
        for name, config in self.items():
            operators[name] = {"degrees": dict(config.degrees), "devices": list(config.devices)}
            if name in self.signatures:
                operators[name]["pattern"], operators[name]["extents"] = self.signatures[name]
        return {"operators": operators}

    def save(self, path: str | Path) -> None:
        """Write JSON, atomically; see `load`."""
        text = json.dumps({"format": FORMAT, "version": VERSION, **self.to_table()}, indent=1)
        replace_file(path, text + "\n")

    @staticmethod
    def load(path: str | Path) -> Strategy:
        """Read a strategy file; whether it fits a graph is checked when it is lowered.

        Raises:
            ValueError: the file is no JSON, of another format or version, or an entry is malformed (named).
        """
        with naming(f"strategy file '{path}'"):
            return fit(
                without_head(parse_json(read_text(path)), FORMAT, VERSION), StrategyTable
            ).strategy()


_Degree = Annotated[int, Meta(ge=1)] | list[float]
_Extent = Annotated[int, Meta(ge=0)]


def effective_config(
    op: Operator, strategy: Mapping[str, ParallelConfig]
) -> tuple[ParallelConfig, bool]:
    """The configuration of `op` and whether it was named for it (else it is its forward operator's).

    Raises:
        ValueError: neither is in the strategy.
    """
    if op.name in strategy:
        return strategy[op.name], True
    if op.follows is not None and op.follows in strategy:
        return strategy[op.follows], False
    raise ValueError(f"strategy: operator '{op.follows or op.name}' has no ParallelConfig")


def completed(graph: Graph, strategy: Strategy) -> Strategy:
    """The strategy, in which what stands beside a region is split alike.

    An operator of the forward pass or an update that reads the region decides, the first that is named: a home, a cast,
    an update. So where the update of a parameter is named, its casts and the sum of its squares are split as it is, and
    so are the update and the clone of a home that is named. What is named itself, or lacks an axis, stays.
    """
    named: dict[str, ParallelConfig] = {}
    for op in graph.operators:
        if (
            op.beside
            and op.name in strategy
            and not op.is_backward
            and op.beside in {r.name.removesuffix(f".{BACK}") for r in op.inputs}
        ):
            named.setdefault(op.beside, strategy[op.name])
    if not named:
        return strategy
    extended = strategy.copy()
    for op in graph.operators:
        config = named.get(op.beside or "") if op.name not in strategy else None
        if config is not None and dict(config.degrees).keys() - {REPLICAS} <= op.extents.keys():
            extended[op.name] = config
    return extended


def in_steps(strategy: Strategy, repeat: int) -> Strategy:
    """The strategy of a graph of several steps (see `taskflow.graph.repeat`): the same in each."""
    if repeat == 1:
        return strategy
    configs = {in_step(n, step): c for step in range(repeat) for n, c in strategy.items()}
    return Strategy(configs, strategy.signatures)


def check_strategy(graph: Graph, strategy: Strategy, devices: int) -> None:
    """Check `strategy` against patterns, shapes and the number of devices.

    Raises:
        ValueError: with the operator, the rule and the values.
    """
    by_name = {op.name: op for op in graph.operators}
    fused = {member: op for op in graph.operators for member in op.members[:-1]}
    for name, config in strategy.items():
        if name in fused:
            raise ValueError(
                f"strategy: operator '{name}' is part of the fused operator {fused[name]}: name '{fused[name].name}'"
            )
        if name not in by_name:
            raise ValueError(f"strategy: operator '{name}' is not in the graph")
        op = by_name[name]
        if name in strategy.signatures:
            _check_signature(op, *strategy.signatures[name])
        check_config(op, config, devices)
    for op in graph.operators:
        effective_config(op, strategy)


def _check_signature(op: Operator, pattern: str, extents: Mapping[str, int]) -> None:
    if pattern != op.pattern:
        raise ValueError(
            f"strategy: operator '{op.name}' has pattern '{op.pattern}', the strategy is for '{pattern}'"
        )
    for axis, extent in extents.items():
        if op.extents.get(axis) != extent:
            raise ValueError(
                f"strategy: operator '{op.name}': axis '{axis}' is {op.extents.get(axis)} in the graph "
                f"and {extent} in the strategy"
            )


def check_config(op: Operator, config: ParallelConfig, devices: int) -> None:
    """Check a configuration that was named for `op` itself; ValueError with the rule and the values."""
    where = f"operator '{op.name}'"
    for axis, degree in config.degrees:
        if axis == REPLICAS:
            continue
        if axis not in op.extents:
            raise ValueError(f"{where}: axis '{axis}' is not in its pattern '{op.pattern}'")
        if axis in op.bound.pattern.fixed and parts(degree) > 1:
            raise ValueError(
                f"{where}: axis '^{axis}' is never split, a degree of {parts(degree)} was given"
            )
        if parts(degree) > op.extents[axis]:
            raise ValueError(
                f"{where}: axis '{axis}' has {op.extents[axis]} points, fewer than its degree {parts(degree)}"
            )
        if parts(degree) > 1:
            _check_in_place(op, axis)
    lowest, highest = config.device_range
    if lowest < 0 or highest >= devices:
        device = next(device for device in config.devices if not 0 <= device < devices)
        raise ValueError(f"{where}: device {device} is not among the machine's {devices} devices")


def _check_in_place(op: Operator, axis: str) -> None:
    for k in op.overwrites:
        if axis not in op.bound.term_axes[k]:
            raise ValueError(
                f"operator '{op.name}': axis '{axis}' is split, "
                f"but '{op.inputs[k].name}' is updated in place without it"
            )
