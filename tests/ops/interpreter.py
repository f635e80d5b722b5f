"""A reference interpreter: a graph under a strategy, in program order, on whole NumPy arrays.

It has none of the executor's machinery: every point of every operator reads views of whole regions and its results are
written or combined as its partition says. Outputs start as NaN, so that an element which a kernel forgets shows.
"""

import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from taskflow import Graph, ParallelConfig
from taskflow.backend import Context, Run
from taskflow.core.random import fill, random_key
from taskflow.strategy.partition import OperatorPoints, partition

Array = np.ndarray[Any, np.dtype[Any]]
Values = dict[str, Array]


def first_values(graph: Graph, seed: int = 0, high: int = 3) -> Values:
    """Standard normal numbers for every input and parameter, states as their graph says; integers are below `high`."""
    values = {}
    for region in graph.regions.values():
        random = np.random.default_rng([seed, zlib.crc32(region.name.encode())])
        if region.role == "state":
            values[region.name] = np.empty(region.shape, region.dtype)
            fill(
                values[region.name],
                region.init,
                random_key(seed, region.name),
                region.shape,
                region.rect,
            )
        elif region.role != "value" and np.dtype(region.dtype).kind in "iu":
            values[region.name] = random.integers(0, high, region.shape).astype(region.dtype)
        elif region.role != "value":
            values[region.name] = random.standard_normal(region.shape).astype(region.dtype)
    return values


def run(
    graph: Graph,
    values: Values,
    strategy: Mapping[str, ParallelConfig] = MappingProxyType({}),
    step: int = 0,
) -> Values:
    """One step: the value of every region afterwards. `values` (inputs, parameters, states) is left as it is."""
    values = {name: value.copy() for name, value in values.items()}
    for op in graph.operators:
        config = next(
            (strategy[n] for n in (op.name, op.follows) if n in strategy), ParallelConfig({}, (0,))
        )
        run_operator(partition(op, config), values, step)
    return values


def run_operator(points: OperatorPoints, values: Values, step: int) -> None:
    op = points.operator
    results = [_blank(region.shape, region.dtype) for region in op.outputs]
    done: set[object] = set()
    for p in range(len(points)):
        rects = [partition.rects[p] for partition in points.args]
        key = (tuple(rects), tuple(points.colours[p].tolist()))
        if key in done:  # a replica
            continue
        done.add(key)
        boxes = [rects[len(op.inputs) + k].slices() for k in range(len(results))]
        added = [
            k for k, box in enumerate(boxes) if (p % 2) and _can_add(points, k, results[k][box])
        ]
        spans = dict(zip(op.extents, points.spans[p].tolist(), strict=True))
        context = Context(rects, spans, Run(step=step), added=added)
        inputs = [values[r.name][rects[k].slices()] for k, r in enumerate(op.inputs)]
        before = [a.copy() for a in inputs]
        # Strided and contiguous tiles side by side, as memory plans make them.
        inputs = [a.copy() if k % 2 and k not in op.writes else a for k, a in enumerate(inputs)]
        inputs = [a if k in op.writes else read_only(a) for k, a in enumerate(inputs)]
        outputs = [
            results[k][b] if k in added else _tile(results[k], points, k, b)
            for k, b in enumerate(boxes)
        ]
        with np.errstate(all="raise", under="ignore"):
            op.kernel(context, *inputs, *outputs)
        for k in set(range(len(inputs))) - {*op.writes}:
            assert np.array_equal(inputs[k], before[k], equal_nan=True), (
                f"{op}: input {k} was written"
            )
        for k, output in enumerate(outputs):
            if k not in added:
                _combine(results[k], points, k, boxes[k], output)
    values.update({region.name: result for region, result in zip(op.outputs, results, strict=True)})


def read_only(a: Array) -> Array:
    """As executors give what is read, and kernels are compiled for."""
    view = a.view()
    view.flags.writeable = False
    return view


def _blank(shape: Sequence[int], dtype: Any) -> Array:
    kind = np.dtype(dtype).kind
    return np.full(shape, np.nan if kind == "f" else -(2**30) if kind == "i" else 0, dtype)


def _is_blank(array: Array) -> Array:
    blank: Array = np.isnan(array) if array.dtype.kind == "f" else array == -(2**30)
    return blank


def _can_add(points: OperatorPoints, k: int, known: Array) -> bool:
    """Whether a kernel adds to the parts that there are: every second one is combined, as if it came from elsewhere."""
    accumulates = points.operator.kernel.accumulates and bool(points.partial[k])
    return accumulates and not _is_blank(known).any()


def _tile(result: Array, points: OperatorPoints, k: int, where: Any) -> Array:
    """Where a point writes: a view of the whole region, or memory of its own for a partial result."""
    if not points.partial[k]:
        return result[where]
    return _blank(result[where].shape, result.dtype)


def _combine(result: Array, points: OperatorPoints, k: int, where: Any, part: Array) -> None:
    if points.partial[k]:
        assert not _is_blank(part).any(), f"{points.operator}: a partial result was not written"
        reduction = points.operator.bound.pattern.outputs[k].reduction
        known = result[where]
        combined = (np.add if reduction == "sum" else np.maximum)(known, part)
        known[...] = np.where(_is_blank(known), part, combined)
