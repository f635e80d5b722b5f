"""Even work: where images make points of an axis unlike, parts are cut so that devices have equal work, not points."""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.geometry import fraction_bounds
from taskflow.graph.graph import Graph, Operator
from taskflow.graph.samples import sample_groups
from taskflow.machine import MachineModel
from taskflow.strategy.strategy import ParallelConfig, Strategy, effective_config, parts

Key = tuple[
    bool, int, int
]  # of axes that are cut alike: whether it carries samples, its extent, its parts


def cut_evenly(graph: Graph, machine: MachineModel, strategy: Strategy) -> Strategy:
    """The strategy with axes that have an `Image` cut into parts of equal work; see `rules.even_work`.

    Axes that are as long and have as many parts are cut alike, by the floating-point operations of all their operators
    together. So what one operator leaves where it is the next one finds. On unequal devices parts are in proportion to
    their rates. Without an image of which there is `work` it is the strategy as it is.
    """
    if not any(op.work for op in graph.operators):
        return strategy
    strategy = strategy.copy()
    axes = _cut_axes(graph, strategy)
    work = _work_by_key(graph, axes)
    for name, config in strategy.items():
        strategy[name] = _evened(config, axes.get(name, {}), work, machine)
    return strategy


def _cut_axes(graph: Graph, strategy: Strategy) -> dict[str, dict[Key, str]]:
    """Of every operator, the axes that the strategy cuts."""
    samples = sample_groups(graph)
    return {
        op.name: {
            (axis in samples.get(op.name, ()), op.extents[axis], parts(degree)): axis
            for axis, degree in effective_config(op, strategy)[0].degrees
            if axis in op.split_axes and parts(degree) > 1
        }
        for op in graph.operators
    }


def _work_by_key(graph: Graph, axes: dict[str, dict[Key, str]]) -> dict[Key, Array]:
    """Floating-point operations of every point of the axes that have an image somewhere, of all operators together."""
    uneven = {
        key
        for op in graph.operators
        for key, axis in axes[op.name].items()
        if any(op.windows[name].axis == axis for name, _ in op.work)
    }
    work: dict[Key, Array] = {key: np.zeros(key[1]) for key in uneven}
    for op in graph.operators:
        for key in axes[op.name].keys() & uneven:
            work[key] += _work(op, axes[op.name][key])
    return work


def _evened(
    config: ParallelConfig, axes: dict[Key, str], work: dict[Key, Array], machine: MachineModel
) -> ParallelConfig:
    """The configuration with parts of equal work along those of its axes of which there is some."""
    key_of = {axis: key for key, axis in axes.items() if key in work}
    shares = machine.shares(config.devices) if len(config.degrees) == 1 else None
    return ParallelConfig(
        {
            axis: fractions_of(work[key_of[axis]], key_of[axis][2], shares)
            if axis in key_of
            else degree
            for axis, degree in config.degrees
        },
        config.devices,
    )


def _work(op: Operator, axis: str) -> Array:
    """Floating-point operations of every point of an axis."""
    extent = op.extents[axis]
    uniform = op.total_flops
    by_image = np.zeros(extent)
    for name, _ in op.work:
        image = op.windows[name]
        of_image = op.image_flops(name)
        if image.axis == axis and of_image:
            by_image += of_image / image.work((0, extent)) * (image.high - image.low)
            uniform -= of_image
    return by_image + uniform / extent


def fractions_of(work: Array, count: int, shares: tuple[float, ...] | None) -> tuple[float, ...]:
    """Fractions of an axis whose parts have equal work, or work by shares; no part is empty."""
    extent = len(work)
    done = np.concatenate([[0.0], np.cumsum(work)])
    cuts = _nearest(done, done[-1] * np.cumsum(shares or [1 / count] * count)[:-1])
    parts_before = np.arange(1, count)
    cuts = np.maximum.accumulate(np.maximum(cuts - parts_before, 0)) + parts_before
    cuts = np.minimum(cuts, extent - parts_before[::-1])
    fractions = tuple((np.diff([0, *cuts.tolist(), extent]) / extent).tolist())
    assert fraction_bounds(extent, fractions) == [0, *cuts.tolist(), extent]
    return fractions


def _nearest(ascending: Array, wanted: Array) -> Array:
    """The numbers of those that are nearest to what is wanted, the later of two."""
    after = np.clip(np.searchsorted(ascending, wanted), 1, len(ascending) - 1)
    is_before = wanted - ascending[after - 1] < ascending[after] - wanted
    return after - is_before
