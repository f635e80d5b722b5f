"""Sharded state: what is kept of a parameter, and its update, split over the devices that would all hold the same.

An update follows its forward operator, so devices along the axes that the parameter lacks, its samples for example, are
replicas. Where the update is named and split over these, each keeps a part of the state of the optimizer, gradients
arrive by reduce-scatter and what is updated leaves by all-gather (ZeRO, stages 1 and 2: a gradient is reduced once it
is made). Under a precision policy the float32 master is split as well. In a graph with homes these are named instead,
and what was gathered is dropped after use (stage 3).

Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from taskflow.core.columns import Array
from taskflow.graph.family import Family
from taskflow.graph.graph import Graph, Operator
from taskflow.graph.homes import is_home
from taskflow.machine import MachineModel
from taskflow.strategy.strategy import (
    REPLICAS,
    Degree,
    ParallelConfig,
    Strategy,
    completed,
    effective_config,
    parts,
    points_along,
)


def shard_state(
    graph: Graph, strategy: Strategy, within_hosts: MachineModel | None = None
) -> Strategy:
    """The strategy with the state of every parameter, as far as that can be, split over its replicas.

    Named are homes and casts of parameters where there are any, else updates; those that are named already stay.

    Args:
        graph, strategy: of the parameters; a graph with homes makes it FSDP.
        within_hosts: a machine on each of whose hosts there is all of the state, split over the replicas there: more
            memory, and nothing but sums of gradients between hosts (ZeRO++ and FSDP call it hybrid).
    """
    return ShardedState(graph, within_hosts).of(strategy)


class ShardedState:
    """`shard_state` of many strategies of one graph."""

    def __init__(self, graph: Graph, within_hosts: MachineModel | None = None) -> None:
        self.graph = graph
        self._keepers = list(_keepers(graph))
        devices = within_hosts.devices if within_hosts else ()
        self._hosts = np.array([d.host for d in devices]) if devices else None
        self._beside: dict[str | None, list[Operator]] = {}
        for op in graph.operators:
            self._beside.setdefault(op.beside, []).append(op)
        self._following: dict[str | None, list[Operator]] = {}
        for op in self._keepers:
            self._following.setdefault(op.follows, []).append(op)
        self._configs: dict[object, ParallelConfig | None] = {}

    def of(self, strategy: Strategy) -> Strategy:
        """See `shard_state`."""
        extended = strategy.copy()
        for op in self._keepers:
            if op.name not in strategy and (
                config := self._config(op, effective_config(op, strategy)[0])
            ):
                extended[op.name] = config
        return completed(self.graph, extended)

    def follow(
        self, strategy: Strategy, changes: Mapping[str, ParallelConfig]
    ) -> dict[str, ParallelConfig]:
        """The changes, and those that follow for state that `strategy` names: it is split as its replicas are now."""
        all_changes = dict(changes)
        for name, config in changes.items():
            for op in self._following.get(name, ()):
                if op.name in strategy and op.name not in changes:
                    sharded = self._config(op, config) or whole_config(op, config)
                    all_changes |= {
                        other.name: sharded
                        for other in self._beside[op.beside]
                        if other.name in strategy
                    }
        return all_changes

    def _config(self, op: Operator, config: ParallelConfig) -> ParallelConfig | None:
        key = op.pattern, tuple(op.extents.items()), config
        if key not in self._configs:
            self._configs[key] = sharded_config(op, config, self._hosts)
        return self._configs[key]


def whole_config(op: Operator, config: ParallelConfig) -> ParallelConfig:
    """Of an operator that follows one of `config`, the same said with its own axes: other parts are replicas."""
    degrees = {axis: parts(degree) for axis, degree in config.degrees}
    kept = [axis for axis in degrees if axis in op.split_axes]
    points = points_along(config, kept)
    replicas = points.size // prod(degrees[axis] for axis in kept)
    split = {axis: degree for axis, degree in config.degrees if axis in kept}
    return ParallelConfig({**split, REPLICAS: replicas}, points.reshape(-1).tolist())


def sharded_config(
    op: Operator, config: ParallelConfig, hosts: Array | None = None
) -> ParallelConfig | None:
    """Of an operator that has `config`, one without replicas on the same devices; None: none, or its parts are unequal.

    Replicas are parts along the first axis that has equal ones, as in `fully_sharded`. Where devices got unequal parts
    of what the operator lacks, samples by their speed, so they do here, where each got one.
    With `hosts`, of every device, replicas of one host are parts, and those of others stay replicas.
    """
    family = Family.of(op)
    degrees = {axis: parts(degree) for axis, degree in config.degrees}
    kept = [axis for axis in degrees if axis in op.split_axes and axis in op.extents]
    held = _holders(degrees, config, kept)
    if any(not isinstance(degree, int) for axis, degree in config.degrees if axis in kept):
        return None
    if held is None or held.shape[-1] < 2:
        return None
    if hosts is not None and np.unique(hosts[held]).size > 1:
        return _within_hosts(op, family, {a: degrees[a] for a in kept}, held, hosts)
    replicas = held.shape[-1]
    lacking = [degree for axis, degree in config.degrees if axis not in kept]
    if len(lacking) == 1 and not isinstance(lacking[0], int) and len(lacking[0]) == replicas:
        able = [
            axis
            for axis in op.split_axes
            if axis not in kept
            and family.allows({axis: replicas})
            and min(lacking[0]) * op.extents[axis] >= 1
        ]
        return (
            _ordered(op, {**{a: degrees[a] for a in kept}, able[0]: lacking[0]}, held)
            if able
            else None
        )
    for axis in op.split_axes:
        split = {**{a: degrees[a] for a in kept}, axis: degrees.get(axis, 1) * replicas}
        if op.extents[axis] % split[axis] == 0 and family.allows(split):
            place = kept.index(axis) + 1 if axis in kept else len(kept)
            moved = np.moveaxis(held, -1, place)
            return _ordered(op, split, moved.reshape([split[a] for a in split]))
    return None


def _within_hosts(
    op: Operator, family: Family, kept: Mapping[str, int], held: Array, hosts: Array
) -> ParallelConfig | None:
    """See `sharded_config`; None where hosts have different numbers of replicas, or one each."""
    held = np.take_along_axis(held, np.argsort(hosts[held], axis=-1, kind="stable"), axis=-1)
    _, counts = np.unique(hosts[held.reshape(-1, held.shape[-1])[0]], return_counts=True)
    per_host = int(counts[0])
    if per_host < 2 or (counts != per_host).any():
        return None
    held = held.reshape(*held.shape[:-1], -1, per_host)
    if (hosts[held] != hosts[held[..., :1]]).any():
        return None
    apart = np.moveaxis(held, -2, 0)
    for axis in op.split_axes:
        if axis in kept or op.extents[axis] % per_host:
            continue
        if family.allows({**kept, axis: per_host}):
            return _ordered(op, {REPLICAS: len(apart), **kept, axis: per_host}, apart)
    return None


def _holders(
    degrees: Mapping[str, int], config: ParallelConfig, kept: list[str]
) -> np.ndarray | None:
    """(parts of every kept axis, replicas): the different devices of each part; None: not the same number of each."""
    rows = points_along(config, kept).reshape(prod(degrees[a] for a in kept), -1)
    different = [list(dict.fromkeys(row)) for row in rows.tolist()]
    if len({len(row) for row in different}) > 1 or len({d for row in different for d in row}) < sum(
        map(len, different)
    ):
        return None
    return np.array(different).reshape([*(degrees[a] for a in kept), -1])


def _ordered(op: Operator, split: Mapping[str, Degree], devices: np.ndarray) -> ParallelConfig:
    """The axes in the order of the operator."""
    names = sorted(split, key=(REPLICAS, *op.extents).index)
    shape = [parts(degree) for degree in split.values()]
    turned = devices.reshape(shape).transpose([list(split).index(name) for name in names])
    return ParallelConfig({name: split[name] for name in names}, turned.reshape(-1).tolist())


def _keepers(graph: Graph) -> Iterator[Operator]:
    """The operator of every parameter that decides how its state is kept: its home or cast, else its update."""
    seen: set[str] = set()
    for op in sorted(graph.operators, key=lambda op: not is_home(op)):
        if (
            op.beside
            and op.beside not in seen
            and not op.is_backward
            and op.beside in {r.name for r in op.inputs}
        ):
            seen.add(op.beside)
            yield op
