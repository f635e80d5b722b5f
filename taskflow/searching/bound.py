"""A lower bound on the seconds of one step, over all strategies of a space. Cheap: each operator is looked at whole.

Let w(op, d) be the seconds of the whole operator on device d. A point that has the part r of the operator takes at
least r w(op, d): its overhead is the same, and what it computes, reads and writes is that part at least (less only
where windows leave out points of an input, which `Splits.work` accounts for). Two bounds follow; the larger counts:

* Work. A device runs its points one after the other, so for any weights y of the devices that sum to one, a step takes
  at least the sum over all operators of min over d of y(d) w(op, d).
* Fastest configuration. An operator of at most n points takes at least min over d of w(op, d) / n.

What moves is left out: bounds along chains of operators, with what is computed and moved until then, were within 0.1 %
of this on P100, and above a plan that exists of DLRM (`benchmarks/results/search_2026-11-29.txt`).
Analytic costs are as assumed; measured ones may break the bound by what caches gain on smaller tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

import numpy as np

from taskflow.cost.model import AnalyticCosts, CostModel
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.searching.space import Space
from taskflow.searching.splits import Splits
from taskflow.strategy.rules import single_device
from taskflow.tasks.task_graph import Array


def lower_bound(
    space: Space, costs: CostModel, is_late: Callable[[], bool] = lambda: False
) -> float:
    """Seconds that no strategy of `space` can beat; as soon as it `is_late`, of the operators that come before."""
    splits = [Splits(op, space) for op in takewhile(lambda _: not is_late(), space.graph.operators)]
    work = work_seconds(splits, Lowering(space.graph, space.machine), costs)
    alone = work.min(axis=1) / [split.most for split in splits]
    return max(
        float(alone.max(initial=0.0)),
        *(float((work * weights).min(axis=1).sum()) for weights in _weights(work)),
    )


def work_seconds(splits: Sequence[Splits], lowering: Lowering, costs: CostModel) -> Array:
    """(operators, devices): seconds of every device for what all points of an operator together do for certain."""
    seconds = whole_seconds(lowering, costs)[: len(splits)]
    seconds *= np.array([split.work for split in splits])[:, None]
    return seconds


def whole_seconds(lowering: Lowering, costs: CostModel) -> Array:
    """(operators, devices): seconds of every operator, not split, on every device."""
    _, first, kind = np.unique(lowering.machine.rate_kinds, return_index=True, return_inverse=True)
    of_kinds = [seconds_on(device, lowering, costs) for device in first.tolist()]
    return np.stack(of_kinds, axis=1)[:, kind]


def seconds_on(device: int, lowering: Lowering, costs: CostModel) -> Array:
    """Seconds of every operator, not split, on one device."""
    points = lowering.numbers(single_device(lowering.graph, lowering.machine, device))
    return costs.seconds(lowering.sample(list(enumerate(points.tolist())), []))


def least_seconds(
    splits: Sequence[Splits], whole: Array, machine: MachineModel, costs: CostModel
) -> Array:
    """Seconds that a point of each operator takes at least: what it does is divided, its overhead is not."""
    least = np.array([split.least for split in splits])
    overhead = (
        min(device.overhead_seconds for device in machine.devices)
        if isinstance(costs, AnalyticCosts)
        else 0.0
    )
    seconds: Array = np.maximum(whole.min(axis=1) - overhead, 0.0) * least + overhead
    return seconds


def _weights(whole: Array) -> list[Array]:
    """Weights of the devices: equal, and in proportion to how fast each is with all operators."""
    seconds = whole.sum(axis=0)
    speed = np.divide(seconds.min(), seconds, out=np.ones_like(seconds), where=seconds > 0)
    return [np.full(whole.shape[1], 1.0 / whole.shape[1]), speed / speed.sum()]
