"""Ring: operators whose kernels know how are done in rounds, of which each reads a piece of what they read whole.

A graph -> graph function, for attention over a long sequence (context parallelism). Before, a point of queries reads
all keys; after, its round j reads one block of them, another one than the other points in that round:

    attention: q, k, v -> y      first: q, k[first] -> running;  next: q, k[next], running -> ...;  last -> y

So what a round reads is copied while the round before it computes, by the rules that lowering and streams have anyway,
and a point has one block in flight and not all. A kernel says how (`Kernel.ring`); forward and backward operators are
asked apart, so what is recomputed is done in rounds as well. All rounds follow the operator that they stand for, so a
strategy names the same operator, whose axis of positions has blocks for points.

Source: Liu et al., "Ring attention with blockwise transformers for near-infinite context", ICLR 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskflow.core.numbers import whole
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.rebuild import emptied


def ring(graph: Graph, count: int) -> Graph:
    """The graph with rounds in the place of operators that can be done so; the others stay.

    Numbers are the same, up to the order of sums.

    Args:
        graph: forward and backward operators; it stays as it is.
        count: parts of the sequence, as many as there are devices around the ring; 1: nothing changes.

    Raises:
        ValueError: `count` is not positive, or there is no operator that can be cut into so many parts.
    """
    count = whole("ring", "count", count, 1)
    if count == 1:
        return graph
    other, operators = emptied(graph)
    is_changed = False
    for op in operators:
        first = len(other.operators)
        with other.following(op.follows or op.name):
            made = op.kernel.ring(op, count) if op.kernel.ring else None
        if made is None:
            other.operators.append(op)
        else:
            _stand_for(op, other, first, made)
            is_changed = True
    if not is_changed:
        raise ValueError(f"ring: no operator can be cut into {count} parts of a sequence")
    return other


def _stand_for(op: Operator, graph: Graph, first: int, made: Sequence[LogicalRegion]) -> None:
    """The operators from `first` on make what `op` makes, and the last of them has its name."""
    originals = {r.name: region for r, region in zip(made, op.outputs, strict=True)}
    rounds = [
        replace(
            part,
            outputs=tuple(originals.get(r.name, r) for r in part.outputs),
            is_backward=op.is_backward,
        )
        for part in graph.operators[first:]
    ]
    rounds[-1] = replace(rounds[-1], name=op.name, follows=op.follows)
    graph.operators[first:] = rounds
    for r in made:
        del graph.regions[r.name]
