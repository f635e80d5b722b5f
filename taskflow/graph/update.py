"""Updates: elementwise operators beside a persistent region, such as those of optimizers."""

from __future__ import annotations

from collections.abc import Sequence

from taskflow.graph.graph import LogicalRegion
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
    readers = ((op, k) for op in graph.operators for k, r in enumerate(op.inputs) if r is region and not op.writes)
    leader, k = next(readers, (None, 0))
    if leader is None:
        raise ValueError(f"update '{name}': no operator reads '{region.name}'")
    term = leader.bound.term_text(k)
    read, made = [term] * len(inputs) + ["."] * len(scalars), [term] * values + ["."] * sums
    with graph.following(leader.follows or leader.name):
        outputs = graph.launch(
            name,
            f"{', '.join(read)} -> {', '.join(made)}",
            [*inputs, *scalars],
            kernel=kernel,
            sizes=leader.bound.term_sizes(k),
            writes=writes,
            flops=flops,
        )
    return outputs if isinstance(outputs, tuple) else (outputs,)
