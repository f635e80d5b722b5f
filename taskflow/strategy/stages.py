"""Strategies of pipelines: contiguous stages of operators, each on devices of its own, samples in micro-batches.

A stage that is data parallel over d devices is split along its samples into `parts * d`: micro-batch after micro-batch,
each over all devices of the stage (see `micro_batches`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from taskflow.core.columns import Array, pointers, spread
from taskflow.core.numbers import is_whole
from taskflow.graph.family import Family, families
from taskflow.graph.graph import Graph
from taskflow.graph.recompute import recomputed
from taskflow.graph.samples import sample_groups
from taskflow.machine import MachineModel
from taskflow.strategy.micro_batches import in_parts
from taskflow.strategy.strategy import ParallelConfig, Strategy, replicas


def stages(
    graph: Graph,
    machine: MachineModel,
    count: int | None = None,
    parts: int = 1,
    *,
    cuts: Sequence[str] | None = None,
    within: Mapping[str, ParallelConfig] | None = None,
    devices: Sequence[Sequence[int]] | None = None,
) -> Strategy:
    """Operators in program order as stages of a pipeline, samples in `parts` micro-batches.

    Args:
        graph, machine: what is computed, and where.
        count: stages, with about the same work; default: as many as `devices` names, or the machine has. Give it or
            `cuts`.
        parts: micro-batches of each stage; every sample axis has as many parts on each of its devices.
        cuts: the operators that begin the second, third, ... stage.
        within: how operators are split within their stage, as if its devices were 0, 1, ... and there were one
            micro-batch; default: along the samples. An operator that it does not name is split along the samples.
        devices: of every stage; default: as many for each, in order.

    Raises:
        ValueError: a cut, or an operator in `within`, is none that a strategy names; a stage has no operators; there
            are more stages than operators or devices; or fewer samples than micro-batches on all devices of a stage.
    """
    all_families = families(graph)
    if not is_whole(parts):
        raise ValueError(f"stages: {parts!r} micro-batches; at least one")
    if count is not None and not is_whole(count, 0):
        raise ValueError(f"stages: count is {count!r}, a whole number from 1 is needed")
    parts = int(parts)
    if count is not None and cuts is not None:
        raise ValueError("stages: give their count, or the cuts between them, not both")
    if unknown := sorted(set(within or ()) - {family.leader.name for family in all_families}):
        raise ValueError(f"stages: '{unknown[0]}' is no operator that a strategy names")
    if count is None:
        count = len(machine.devices) if devices is None else len(devices)
    bounds = _cut(graph, all_families, count, cuts)
    groups = (
        list(devices) if devices is not None else _groups(len(machine.devices), len(bounds) - 1)
    )
    if len(groups) != len(bounds) - 1:
        raise ValueError(f"stages: {len(bounds) - 1} stages on {len(groups)} groups of devices")
    sample = sample_groups(graph)
    chosen = {}
    for group, (begin, end) in zip(groups, pairwise(bounds), strict=True):
        for family in all_families[begin:end]:
            name = family.leader.name
            inner = within.get(name) if within is not None else None
            chosen[name] = config_in_stage(family, sample.get(name, ()), list(group), parts, inner)
    return Strategy.of_graph(graph, chosen)


def _groups(devices: int, count: int) -> list[range]:
    if count > devices:
        raise ValueError(f"stages: {count} stages on {devices} devices; give the devices of each")
    return [range(k * devices // count, (k + 1) * devices // count) for k in range(count)]


def _cut(
    graph: Graph, all_families: Sequence[Family], count: int, cuts: Sequence[str] | None
) -> list[int]:
    """The first family of every stage, and their number."""
    if cuts is not None:
        return _named_cuts(all_families, cuts)
    if not 1 <= count <= len(all_families):
        raise ValueError(f"stages: {count} stages of {len(all_families)} operators")
    able = whole_cuts(graph, all_families)
    return [0, *quantile_cuts(flops_of(graph, all_families), count, able), len(all_families)]


def _named_cuts(all_families: Sequence[Family], cuts: Sequence[str]) -> list[int]:
    number = _numbers(all_families)
    for name in cuts:
        if name not in number:
            raise ValueError(f"stages: '{name}' is no operator that a strategy names")
    bounds = [0, *(number[name] for name in cuts), len(all_families)]
    for before, after in pairwise(bounds):
        if before >= after:
            raise ValueError(
                f"stages: a stage begins at '{all_families[after].leader.name}' and has no operators before"
            )
    return bounds


def _numbers(all_families: Sequence[Family]) -> dict[str, int]:
    return {family.leader.name: number for number, family in enumerate(all_families)}


def whole_cuts(graph: Graph, all_families: Sequence[Family]) -> Array:
    """Before which families a stage may begin: where nothing is made before that is computed again and read behind.

    The backward pass of the stage behind would wait for that of the stage before, which waits for it.
    """
    number = _numbers(all_families)
    again = set(recomputed(graph))
    made = dict[str, int]()
    is_able = np.ones(len(all_families), np.bool_)
    for op in graph.operators:
        here = number[op.follows or op.name]
        for region in () if op.is_backward else op.inputs:
            is_able[made.get(region.name, here) + 1 : here + 1] = False
        if op.name in again:
            made |= {region.name: here for region in op.outputs}
    return np.flatnonzero(is_able)[1:]


def flops_of(graph: Graph, all_families: Sequence[Family]) -> list[float]:
    """Floating-point operations of every family."""
    flops = dict.fromkeys((f.leader.name for f in all_families), 0.0)
    for op in graph.operators:
        flops[op.follows or op.name] += op.total_flops
    return list(flops.values())


def quantile_cuts(work: Sequence[float], count: int, able: Array | None = None) -> list[int]:
    """Where the second, third, ... of so many stages begin: near each of the quantiles of all work.

    They are of the numbers in `able`, if these are enough.
    """
    if able is None or len(able) < count - 1:
        able = np.arange(1, len(work))
    able = np.append(able, len(work))
    done = np.cumsum(work)
    before = done[able - 1]
    cuts = [int(np.argmin(abs(before - done[-1] * k / count))) for k in range(1, count)]
    for k in range(1, count - 1):
        cuts[k] = max(cuts[k], cuts[k - 1] + 1)
    most = len(able) - 1
    for k in range(count - 2, -1, -1):
        cuts[k] = most = min(cuts[k], most - 1)
    begins: list[int] = able[cuts].tolist()
    return begins


def level_cuts(work: Sequence[float], count: int) -> list[int]:
    """The same where stages are as equal as can be: the sum of the squares of their work is the smallest.

    At most as many stages as there are numbers in `work`.
    """
    done = np.concatenate([[0.0], np.cumsum(work)])
    least = np.where(np.arange(len(done)) > 0, done**2, np.inf)
    before = list[Array]()
    for _ in range(count - 1):
        least, cut = _with_one_cut_more(least, done)
        before.append(cut)
    cuts = [len(work)]
    for begins in reversed(before):
        cuts.append(int(begins[cuts[-1]]))
    return cuts[:0:-1]


def _with_one_cut_more(least: Array, done: Array) -> tuple[Array, Array]:
    """For every end of the last stage the least sum of squares, and where that stage begins, the first of equal ones.

    The later the end, the later the best beginning (divide and conquer): the middle of a range of ends has the halves
    look before it, or behind it.

    Args:
        least: sum of the squares of all stages before, for every beginning of the last one.
        done: work before every operator.
    """
    sums = np.full(len(done), np.inf)
    cut = np.zeros(len(done), np.int64)
    begin = np.array([1])
    end = np.array([len(done)])
    low = np.array([0])
    high = np.array([len(done) - 2])
    while len(begin):
        middle = (begin + end) // 2
        tried = np.minimum(high, middle - 1) - low + 1
        start = spread(low, tried)
        first = pointers(tried)[:-1]
        values = least[start] + (done[np.repeat(middle, tried)] - done[start]) ** 2
        sums[middle] = np.minimum.reduceat(values, first)
        place = np.where(
            values == np.repeat(sums[middle], tried), np.arange(len(values)), len(values)
        )
        cut[middle] = start[np.minimum.reduceat(place, first)]
        begin = np.append(begin, middle + 1)
        end = np.append(middle, end)
        low = np.append(low, cut[middle])
        high = np.append(cut[middle], high)
        has_ends = begin < end
        begin, end, low, high = (column[has_ends] for column in (begin, end, low, high))
    return sums, cut


def config_in_stage(
    family: Family,
    axes: Sequence[str],
    devices: list[int],
    parts: int,
    inner: ParallelConfig | None,
) -> ParallelConfig:
    """The configuration of one operator in a stage: `inner`, or along its samples, once for every micro-batch.

    Args:
        family: of the operator.
        axes: of its samples.
        devices: of the stage.
        parts: micro-batches.
        inner: as if the devices of the stage were 0, 1, ... and there were one micro-batch.

    Raises:
        ValueError: it is on no device of the stage, or cannot be split so.
    """
    name = family.leader.name
    if inner is None:
        axes = [axis for axis in axes if axis in family.leader.split_axes]
        inner = ParallelConfig({axis: len(devices) for axis in axes[-1:]})
        if family.is_of_numbers:
            inner = replicas(range(len(devices)))
    if inner.devices and max(inner.devices) >= len(devices):
        raise ValueError(
            f"stages: '{name}' uses device {max(inner.devices)} of a stage of {len(devices)}"
        )
    placed = np.array(devices)[list(inner.devices)].tolist()
    return in_parts("stages", family, axes, ParallelConfig(dict(inner.degrees), placed), parts)
