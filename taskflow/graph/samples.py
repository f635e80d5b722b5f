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
        if axes and axes[0] not in op.parameter_axes:
            groups[op.name] = axes
            batch |= _outputs_with(axes[0], op)
    return groups


def _outputs_with(axis: str, op: Operator) -> dict[str, int]:
    """Outputs with this axis, and which of their dimensions has it."""
    return {
        region.name: number
        for region, term in zip(op.outputs, op.bound.pattern.outputs, strict=True)
        for number, names in enumerate(term.dims)
        if axis in names
    }


def _group(op: Operator, term: int, dim: int) -> tuple[str, ...]:
    names = op.bound.terms[term].dims[dim]
    if len(names) < 2:
        return tuple(map(op.bound.axis_of, names))
    dims = [dim for output in op.bound.pattern.outputs for dim in output.dims]
    apart = {name for dim in dims if names[0] not in dim for name in dim}
    return tuple(name for name in names if name not in apart)
