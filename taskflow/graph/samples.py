"""Samples: which axis of every operator carries the batch, dimension 0 of what is fed; found from patterns alone."""

from __future__ import annotations

from taskflow.graph.graph import Graph, Operator


def sample_axes(graph: Graph) -> dict[str, str]:
    """Operator name -> the axis that carries the batch, where there is one."""
    batch: dict[str, int] = {r.name: 0 for r in graph.inputs if r.ndim}
    found: dict[str, str] = {}
    for op in graph.operators:
        axis = next(
            (a for k, r in enumerate(op.inputs) if r.name in batch and (a := _axis(op, k, batch[r.name]))), None
        )
        if axis is None or axis in op.parameter_axes:
            continue
        found[op.name] = axis
        for k, region in enumerate(op.outputs):
            dims = op.bound.pattern.outputs[k].dims
            where = next((d for d, names in enumerate(dims) if axis in names), None)
            if where is not None:
                batch[region.name] = where
    return found


def _axis(op: Operator, term: int, dim: int) -> str | None:
    names = op.bound.terms[term].dims[dim]
    if not names:
        return None
    return op.windows[names[0]].axis if names[0] in op.windows else names[0]
