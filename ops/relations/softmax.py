"""A softmax over the edges that lead to a vertex; edges may be split, and read all that lead to the same vertices."""

from __future__ import annotations

from functools import partial

from ops.building import checked, distinct, launch_first, term
from ops.cuda import relations as on_gpu
from ops.relations.edges import Edges
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def edge_softmax(scores: LogicalRegion, edges: Edges, name: str | None = None) -> LogicalRegion:
    """exp(scores) over its sum among the edges that lead to the same vertex (Velickovic et al., ICLR 2018).

    Args:
        scores: (edges,) or (edges, heads), floating point.
        edges: of `ops.edges`.
        name: of the operator.

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong.
    """
    where = checked("edge_softmax", name or "edge_softmax", scores, ndim=(1, 2))
    if scores.shape[0] != len(edges):
        raise ValueError(
            f"{where}: '{scores.name}' is {scores.shape}, there are {len(edges)} edges"
        )
    edge, *heads = distinct(("edge", *scores.axes[1:]), ("all",))
    read = term(("all", *heads))
    return launch_first(
        name or "edge_softmax",
        f"{read}, all -> {term((edge, *heads))}",
        [scores, edges.constant(scores.graph, "targets")],
        kernel=_softmax,
        windows={"all": edges.image("edges_of_target", edge)},
        backward=partial(_softmax_backward, edges=edges),
        flops=8.0,
    )


def _softmax_backward(
    op: Operator, gy: LogicalRegion, *, edges: Edges
) -> tuple[LogicalRegion, None]:
    edge, *heads = distinct(("edge", *op.outputs[0].axes[1:]), ("all",))
    read = term(("all", *heads))
    gx = launch_first(
        f"{op.name}.dx",
        f"{read}, {read}, all -> {term((edge, *heads))}",
        [gy, op.outputs[0], op.inputs[1]],
        kernel=_softmax_gradient,
        windows={"all": edges.image("edges_of_target", edge)},
        flops=4.0,
    )
    return gx, None


# -- kernels -----------------------------------------------------------------------------------------------------------


def _columns(a: Array) -> Array:
    return a if a.ndim == 2 else a[:, None]


@partial(Kernel, is_compiled=True, cuda=on_gpu.softmax)
def _softmax(ctx: Context, x: Array, targets: Array, y: Array) -> None:
    from ops.cpu import segments

    first = ctx.rect(2).lo[0] - ctx.rect(0).lo[0]
    segments.softmax(_columns(x), targets, first, _columns(y))


@partial(Kernel, is_compiled=True, cuda=on_gpu.softmax_gradient)
def _softmax_gradient(ctx: Context, gy: Array, y: Array, targets: Array, gx: Array) -> None:
    from ops.cpu import segments

    first = ctx.rect(3).lo[0] - ctx.rect(0).lo[0]
    segments.softmax_gradient(_columns(gy), _columns(y), targets, first, _columns(gx))
