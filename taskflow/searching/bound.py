"""A lower bound on the seconds of one step, over all strategies of a space. Cheap: each operator is looked at whole.

Let w(op, d) be the seconds of the whole operator on device d. A point that has the part r of the operator takes at
least r w(op, d): its overhead is the same, and what it computes, reads and writes is that part at least (less only
where windows leave out points of an input, which `Splits.work` accounts for). Three bounds follow; the largest counts:

* Work. A device runs its points one after the other, so for any weights y of the devices that sum to one, a step takes
  at least the sum over all operators of min over d of y(d) w(op, d). No point of an operator starts before `head(op)`
  (see `heads`: what is computed and what moves until then, at least); so the same holds, from h on, for the operators
  with head(op) >= h.
* Fastest configuration. An operator of at most n points takes at least head(op) + min over d of w(op, d) / n.
* Weighed: the time of one chain of operators, work and what devices receive, in one sum (see `heads`).

Analytic costs are as assumed; measured ones may break the bound by what caches gain on smaller tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from taskflow.cost.model import AnalyticCosts, CostModel
from taskflow.graph.graph import Graph
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.searching.heads import Heads, OutOfTime, in_time, weighed_bounds
from taskflow.searching.space import Space
from taskflow.searching.splits import Splits
from taskflow.strategy.rules import single_device
from taskflow.tasks.task_graph import Array, Kind


def lower_bound(
    space: Space, costs: CostModel, is_late: Callable[[], bool] = lambda: False
) -> float:
    """Seconds that no strategy of `space` can beat; as soon as it `is_late`, the best that is known by then."""
    best = 0.0
    with suppress(OutOfTime):
        for bound in _bounds(space, costs, is_late):
            best = max(best, bound)
    return best


def _bounds(space: Space, costs: CostModel, is_late: Callable[[], bool]) -> Iterator[float]:
    """Bounds, those that take least time first."""
    whole = whole_seconds(space.graph, space.machine, costs)
    splits = [Splits(op, space) for op in in_time(space.graph.operators, is_late)]
    whole *= np.array([split.work for split in splits])[:, None]
    nothing = np.zeros(len(splits))
    yield max(_work_bound(nothing, whole, weights) for weights in _weights(whole))
    least = least_seconds(splits, whole, space.machine, costs)
    chain = Heads(space, splits, costs, least, is_late)
    heads, ends = chain.of_operators()
    yield float(
        np.maximum(ends, heads + whole.min(axis=1) / [split.most for split in splits]).max()
    )
    yield max(_work_bound(heads, whole, weights) for weights in _weights(whole))
    yield from weighed_bounds(chain, ends, whole.min(axis=1))


def whole_seconds(graph: Graph, machine: MachineModel, costs: CostModel) -> Array:
    """(operators, devices): seconds of every operator, not split, on every device."""
    lowering, found = Lowering(graph, machine), dict[object, Array]()
    for number, device in enumerate(machine.devices):
        if device not in found:
            task_graph = lowering.lower(single_device(graph, machine, number))
            is_point = task_graph.kind == Kind.POINT
            found[device] = np.zeros(len(graph.operators))
            found[device][task_graph.launch[is_point]] = costs.seconds(task_graph)[is_point]
    return np.stack([found[device] for device in machine.devices], axis=1)


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
    speed = 1.0 / np.maximum(whole.sum(axis=0), 1e-300)
    return [np.full(whole.shape[1], 1.0 / whole.shape[1]), speed / speed.sum()]


def _work_bound(heads: Array, whole: Array, weights: Array) -> float:
    order = np.argsort(-heads, kind="stable")
    after = np.cumsum((whole * weights).min(axis=1)[order])
    return float((heads[order] + after).max())
