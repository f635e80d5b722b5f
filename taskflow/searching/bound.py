"""A lower bound on the seconds of one step, over all strategies of a space. Cheap: each operator is looked at whole.

Let w(op, d) be the seconds of the whole operator on device d. A point that has the part r of the operator takes at
least r w(op, d): its overhead is the same, and what it computes, reads and writes is that part at least (less only
where windows leave out points of an input, which `Splits.work` accounts for). Two bounds follow; the larger counts:

* Work. A device runs its points one after the other, so for any weights y of the devices that sum to one, a step takes
  at least the sum over all operators of min over d of y(d) w(op, d). No point of an operator starts before `head(op)`,
  the longest chain of least points of the operators that it reads from; so the same holds, from h on, for the operators
  with head(op) >= h.
* Fastest configuration. An operator of at most n points takes at least head(op) + min over d of w(op, d) / n.

Communication is left out. Analytic costs are as assumed; measured ones may break the bound by what caches gain on
smaller tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from taskflow.core.geometry import balanced_bounds
from taskflow.cost.model import AnalyticCosts, CostModel
from taskflow.graph.graph import Graph, Operator
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.searching.space import Space
from taskflow.strategy.rules import single_device
from taskflow.tasks.task_graph import Array, Kind


def lower_bound(space: Space, costs: CostModel) -> float:
    """Seconds that no strategy of `space` can beat."""
    graph, operators = space.graph, space.graph.operators
    whole = whole_seconds(graph, space.machine, costs)
    splits = [Splits(op, space) for op in operators]
    whole *= np.array([split.work for split in splits])[:, None]
    heads = _heads(splits, least_seconds(splits, whole, space.machine, costs))
    fastest = float((heads + whole.min(axis=1) / [split.most for split in splits]).max())
    return max(fastest, *(_work_bound(heads, whole, weights) for weights in _weights(whole)))


class Splits:
    """What the splits of an operator in a space have in common.

    Attributes:
        most: the largest number of its points that run side by side.
        least: the smallest part of its work that one point has.
        reads: per input the least that a point reads, relative to its part of the operator; 0: perhaps nothing.
        work: that of the whole which all points together have for certain.
    """

    def __init__(self, op: Operator, space: Space) -> None:
        self.operator = op
        axes, rows = space.degrees(op.follows or op.name)
        self._degrees = {a: rows[:, k] for k, a in enumerate(axes) if a in op.split_axes}
        part, points = np.ones(len(rows)), np.ones(len(rows))
        for axis, degrees in self._degrees.items():
            extent = op.extents[axis]
            part *= np.maximum(extent // degrees, 1) / extent
            points *= np.minimum(degrees, extent)
        self._is_even = space.is_even(op)
        self.least = float(part.min()) if self._is_even else 0.0
        self.most = int(min(points.max(), len(space.machine.devices))) if self._is_even else len(space.machine.devices)
        self.reads = [self._least_read(k) for k in range(len(op.inputs))]
        self.work = min([1.0, *self.reads])

    def _least_read(self, term: int) -> float:
        """A window may leave out points of its input, and a tile may be outside of it (concatenation, padding)."""
        bound = self.operator.bound
        dims = zip(bound.terms[term].dims, bound.shapes[term], strict=True)
        return prod(self._window_read(d[0], extent) for d, extent in dims if d and d[0] in bound.windows)

    def _window_read(self, name: str, extent: int) -> float:
        bound = self.operator.bound
        window, points = bound.windows[name], bound.extents[bound.windows[name].axis]
        lo, hi = window.image((0, points), extent)
        if not self._is_even or hi <= lo:
            return 0.0
        least = 1.0
        for degree in np.unique(self._degrees.get(window.axis, np.ones(1, np.int64))).tolist():
            for a, b in pairwise(balanced_bounds(points, degree)):
                if b > a:
                    first, last = window.image((a, b), extent)
                    least = min(least, (last - first) / (hi - lo) * points / (b - a))
        return least


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


def least_seconds(splits: Sequence[Splits], whole: Array, machine: MachineModel, costs: CostModel) -> Array:
    """Seconds that a point of each operator takes at least: what it does is divided, its overhead is not."""
    least = np.array([split.least for split in splits])
    overhead = min(device.overhead_seconds for device in machine.devices) if isinstance(costs, AnalyticCosts) else 0.0
    seconds: Array = np.maximum(whole.min(axis=1) - overhead, 0.0) * least + overhead
    return seconds


def _heads(splits: Sequence[Splits], least: Array) -> Array:
    """Seconds before which no point of an operator can start."""
    ready: dict[str, float] = {}
    heads = np.zeros(len(splits))
    for k, split in enumerate(splits):
        op = split.operator
        reads = [region.name for region, part in zip(op.inputs, split.reads, strict=True) if part > 0]
        heads[k] = max((ready.get(name, 0.0) for name in reads), default=0.0)
        for region in op.outputs:
            ready[region.name] = heads[k] + least[k]
    return heads


def _weights(whole: Array) -> list[Array]:
    """Weights of the devices: equal, and in proportion to how fast each is with all operators."""
    speed = 1.0 / np.maximum(whole.sum(axis=0), 1e-300)
    return [np.full(whole.shape[1], 1.0 / whole.shape[1]), speed / speed.sum()]


def _work_bound(heads: Array, whole: Array, weights: Array) -> float:
    order = np.argsort(-heads, kind="stable")
    after = np.cumsum((whole * weights).min(axis=1)[order])
    return float((heads[order] + after).max())
