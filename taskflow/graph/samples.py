"""Samples: which axes of every operator carry the batch, dimension 0 of what is fed; found from patterns alone."""

from __future__ import annotations

from taskflow.graph.graph import Graph, Operator


def sample_axes(graph: Graph) -> dict[str, str]:
    """Operator name -> the axis that carries the batch, where there is one: of several the fastest."""
    return {name: axes[-1] for name, axes in sample_groups(graph).items()}


def sample_groups(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Operator name -> the axes that make up the batch, slowest first, where there are any.

    They are several where the batch is a group, `(m b)`, that the operator does not take apart.
    """
    batch: dict[str, int] = {r.name: 0 for r in graph.inputs if r.ndim}
    groups: dict[str, tuple[str, ...]] = {}
    for op in graph.operators:
        read = (_group(op, k, batch[r.name]) for k, r in enumerate(op.inputs) if r.name in batch)
        axes = next(filter(None, read), ())
        if not axes or axes[0] in op.parameter_axes:
            continue
        groups[op.name] = axes
        for k, region in enumerate(op.outputs):
            dims = op.bound.pattern.outputs[k].dims
            where = next((d for d, names in enumerate(dims) if axes[0] in names), None)
            if where is not None:
                batch[region.name] = where
    return groups


def _group(op: Operator, term: int, dim: int) -> tuple[str, ...]:
    names = op.bound.terms[term].dims[dim]
    if len(names) < 2:
        return tuple(map(op.bound.axis_of, names))
    dims = [dim for output in op.bound.pattern.outputs for dim in output.dims]
    apart = {name for dim in dims if names[0] not in dim for name in dim}
    return tuple(name for name in names if name not in apart)
