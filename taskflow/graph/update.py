"""Elementwise operators that are split as another operator splits a region: updates of optimizers, casts, sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from taskflow.graph.graph import LogicalRegion, Operator
from taskflow.graph.kernel import Function, Kernel


def update(
    name: str,
    region: LogicalRegion,
    inputs: Sequence[LogicalRegion],
    *,
    kernel: Kernel | Function,
    scalars: Sequence[LogicalRegion] = (),
    writes: Sequence[LogicalRegion] = (),
    values: int = 0,
    sums: int = 0,
    flops: float | None = None,
) -> tuple[LogicalRegion, ...]:
    """Append an elementwise operator that is split as the first operator that reads `region` splits it.

    The kernel gets `inputs` (all of the region's shape: itself, its gradient, momenta, ...), `scalars` (regions of
    shape `()`) and its outputs: `values` regions of that shape, then `sums` regions of shape `()`, to which every
    task adds its part. It updates `writes`, some of the inputs, in place.

    Returns:
        The outputs.

    Raises:
        ValueError: no operator reads `region`, or another region has another shape.
    """
    graph = region.graph
    leader, k = next(
        ((op, k) for op, k in graph.operators.readers(region) if not op.writes), (None, 0)
    )
    if leader is None:
        raise ValueError(f"update '{name}': no operator reads '{region.name}'")
    read = ["*"] * len(inputs) + ["."] * len(scalars)
    made = ["*"] * values + ["."] * sums
    pattern = f"{', '.join(read)} -> {', '.join(made)}"
    return launch_beside(
        leader, k, name, pattern, [*inputs, *scalars], kernel=kernel, writes=writes, flops=flops
    )


def launch_beside(
    leader: Operator,
    k: int,
    name: str,
    pattern: str,
    inputs: Sequence[LogicalRegion],
    **options: Any,
) -> tuple[LogicalRegion, ...]:
    """Append an operator that is split as argument `k` of `leader` is; `*` in the pattern stands for the term of that.

    Where that is a parameter or state, the operator stands beside it; so does what is launched beside that operator.

    Args:
        options: of `Graph.launch`.
    """
    graph = inputs[0].graph
    pattern = pattern.replace("*", leader.bound.term_text(k))
    with graph.following(leader.follows or leader.name):
        outputs = graph.launch(name, pattern, inputs, sizes=leader.bound.term_sizes(k), **options)
    beside = leader.beside or (leader.args[k].name if leader.args[k].is_persistent else None)
    graph.operators[-1] = replace(graph.operators[-1], beside=beside)
    return outputs if isinstance(outputs, tuple) else (outputs,)
