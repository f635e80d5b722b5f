"""Parts by measured rates: who computes faster gets more of the samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskflow.core.columns import Array
from taskflow.graph.family import families
from taskflow.graph.graph import Graph
from taskflow.graph.samples import sample_groups
from taskflow.strategy.strategy import ParallelConfig, Strategy, parts


def cut_by_rates(graph: Graph, strategy: Strategy, rates: Sequence[float]) -> Strategy:
    """The strategy with parts of samples in proportion to the `rates` of their devices, one sample at least.

    Devices without a rate (NaN, 0) count as the mean of the others. What is split otherwise stays as it is, and so does
    what may not be cut so.

    Raises:
        ValueError: no device has a rate.
    """
    measured = np.asarray(rates, float)
    is_measured = np.isfinite(measured) & (measured > 0)
    if not is_measured.any():
        raise ValueError(f"rebalance: rates are {list(rates)}, no device has one")
    of_devices = np.where(is_measured, measured, measured[is_measured].mean())
    samples = sample_groups(graph)
    chosen = strategy.copy()
    for family in families(graph, strategy):
        name = family.leader.name
        config = strategy.get(family.leader.name)
        degrees = dict(config.degrees) if config else {}
        axis = next((a for a in samples.get(name, ()) if parts(degrees.get(a, 1)) > 1), None)
        if config is None or axis is None:
            continue
        shares = of_devices[np.reshape(config.devices, [parts(d) for d in degrees.values()])]
        where = list(degrees).index(axis)
        shares = shares.sum(axis=tuple(k for k in range(len(degrees)) if k != where))
        fractions = _fractions(shares / shares.sum(), family.leader.extents[axis])
        cut = {**degrees, axis: fractions}
        if family.allows(cut):
            chosen[name] = ParallelConfig(cut, config.devices)
    return chosen


def _fractions(shares: Array, extent: int) -> tuple[float, ...]:
    """Shares of whole points, one at least for each part."""
    spare = extent - len(shares)
    ends = np.rint(np.cumsum(shares) * spare).astype(int)
    points = 1 + np.diff(ends, prepend=0)
    return tuple((points / extent).tolist())
