"""What lies at the ends of edges, and sums over the edges of a vertex, with a message for each edge or without.

Vertices and edges may be split: a vertex reads its own edges, an edge the rows of its ends. Features and heads, too.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from ops.building import checked, distinct, launch_first, term, terms
from ops.cuda import relations as on_gpu
from ops.elementwise.arithmetic import multiply
from ops.relations.edges import Edges
from taskflow import Array, Context, Image, Kernel, LogicalRegion, Operator

REDUCTIONS = ("sum", "mean", "max")


def aggregate(
    x: LogicalRegion,
    edges: Edges,
    weight: LogicalRegion | None = None,
    reduce: str = "sum",
    name: str | None = None,
) -> LogicalRegion:
    """y[v] = sum of weight[e] x[source of e] over the edges e that lead to v: scatter, apply and gather in one.

    Args:
        x: (vertices, features) or (vertices, heads, features), floating point.
        edges: of `ops.edges`; their own weights count where there is no `weight`.
        weight: (edges,), or (edges, heads) where `x` has heads, with a gradient; floating point.
        reduce: "sum", "mean" (the sum over the number of edges) or "max" (of messages, which are made); 0 where no edge
            leads to a vertex.
        name: of the operator.

    Returns:
        The shape of `x`.

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, or there is no such reduction.
    """
    where = checked("aggregate", name or "aggregate", x, ndim=(2, 3))
    name = x.graph.unique_name(name or "aggregate")
    _check(where, x, edges.vertices, "vertices", reduce)
    if weight is not None:
        checked("aggregate", name, weight, "weight", ndim=(x.ndim - 1,))
        if weight.shape != (len(edges), *x.shape[1:-1]):
            raise ValueError(
                f"{where}: weight '{weight.name}' is {weight.shape}, of {len(edges)} edges and {x.shape[1:-1]} heads"
            )
    if reduce == "max":
        messages = to_edges(x, edges, name=f"{name}.messages")
        if weight is not None:
            raise ValueError(f"{where}: of the largest there is no weight")
        return sum_edges(messages, edges, "max", name)
    y = _sum(name, x, edges, True, weight)
    return _mean(y, edges) if reduce == "mean" else y


def sum_edges(
    m: LogicalRegion, edges: Edges, reduce: str = "sum", name: str | None = None
) -> LogicalRegion:
    """y[v] = sum of m[e] over the edges e that lead to v: gather, as NGra calls it.

    Args:
        m: (edges, features) or (edges, heads, features), floating point.
        edges: of `ops.edges`; their weights do not count.
        reduce: "sum", "mean" or "max"; 0 where no edge leads to a vertex. Equal largest ones share a gradient.
        name: of the operator.

    Returns:
        (vertices, ...).

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, or there is no such reduction.
    """
    where = checked("sum_edges", name or "sum_edges", m, ndim=(2, 3))
    name = m.graph.unique_name(name or "sum_edges")
    _check(where, m, len(edges), "edges", reduce)
    if reduce != "max":
        y = _sum(name, m, edges, False)
        return _mean(y, edges) if reduce == "mean" else y
    v, rest, images = _dims(m, edges, "edge", "edges")
    return launch_first(
        name,
        f"edge {rest}, border -> {v} {rest}",
        [m, edges.constant(m.graph, "borders")],
        kernel=_largest,
        windows=images,
        backward=partial(_largest_backward, edges=edges),
        flops={"edge": 1.0},
    )


def to_edges(
    x: LogicalRegion, edges: Edges, end: str = "source", name: str | None = None
) -> LogicalRegion:
    """y[e] = x[source of e], or of the target: scatter, as NGra calls it.

    Args:
        x: (vertices, features) or (vertices, heads, features), floating point.
        edges: of `ops.edges`.
        end: "source" or "target".
        name: of the operator.

    Returns:
        (edges, ...).

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, or there is no such end.
    """
    where = checked("to_edges", name or "to_edges", x, ndim=(2, 3))
    if x.shape[0] != edges.vertices:
        raise ValueError(
            f"{where}: '{x.name}' is {x.shape}, the edges are of {edges.vertices} vertices"
        )
    if end not in ("source", "target"):
        raise ValueError(f"{where}: end is source or target, not {end!r}")
    return _ends(name or "to_edges", x, edges, end, "edge")


def _ends(name: str, x: LogicalRegion, edges: Edges, end: str, axis: str) -> LogicalRegion:
    """See `to_edges`; a gradient has the name of the axis by which its forward operator is split."""
    edge, *rest = distinct((axis, *x.axes[1:]), ("row",))
    return launch_first(
        name,
        f"row {term(rest)}, {edge} -> {edge} {term(rest)}",
        [x, edges.constant(x.graph, "indices" if end == "source" else "targets")],
        kernel=_take,
        windows={"row": edges.image(f"{end}_of_edge", edge)},
        backward=partial(_ends_backward, edges=edges, end=end),
        flops=0.0,
    )


def _ends_backward(
    op: Operator, gy: LogicalRegion, *, edges: Edges, end: str
) -> tuple[LogicalRegion, None]:
    if end == "target":
        return sum_edges(gy, edges, name=f"{op.name}.dx"), None
    edge, *rest = terms(op)[1][0].split()
    gx = launch_first(
        f"{op.name}.dx",
        f"{term((edge, *rest))}, {edge} -> vertex {term(rest)}",
        [gy, op.inputs[1]],
        kernel=_add_to_rows,
        sizes={"vertex": edges.vertices},
        flops=1 / edges.vertices,
    )
    return gx, None


def _check(where: str, x: LogicalRegion, extent: int, what: str, reduce: str) -> None:
    if x.shape[0] != extent:
        raise ValueError(f"{where}: '{x.name}' is {x.shape}, the edges are of {extent} {what}")
    if reduce not in REDUCTIONS:
        raise ValueError(f"{where}: reduce is one of {', '.join(REDUCTIONS)}, not {reduce!r}")


def _dims(
    x: LogicalRegion, edges: Edges, name: str, what: str, vertex: str = "v"
) -> tuple[str, str, dict[str, Image]]:
    """The axis of vertices, the others of `x` as text, and images: `name` is what a vertex reads of `x`."""
    v, *rest = distinct((vertex, *x.axes[1:]), ("edge", "border", "row", "number"))
    images = {name: edges.image(what, v), "border": edges.image("borders", v)}
    return v, term(rest), images


def _sum(
    name: str,
    x: LogicalRegion,
    edges: Edges,
    is_fused: bool,
    weight: LogicalRegion | None = None,
) -> LogicalRegion:
    """The sum over edges of rows of `x`: of their sources, or else their own."""
    graph = x.graph
    what = "edges"
    vertex = "v"
    if is_fused:
        what = "sources"
        vertex = x.axes[0]
    v, rest, images = _dims(x, edges, "row", what, vertex)
    read = {"row": (x, f"row {rest}"), "border": (edges.constant(graph, "borders"), "border")}
    if is_fused:
        images["edge"] = edges.image("edges", v)
        read["index"] = edges.constant(graph, "indices"), "edge"
    if weight is not None:
        is_turned = edges.order is not None
        if is_turned:
            images["number"] = edges.image("numbers", v)
            read["order"] = edges.constant(graph, "order"), "edge"
        heads = rest.split()[:-1] if x.ndim == 3 else ()
        read["weight"] = weight, term(("number" if is_turned else "edge", *heads))
    elif is_fused and edges.weight is not None:
        read["weight"] = edges.constant(graph, "weight"), "edge"
    return launch_first(
        name,
        f"{', '.join(text for _, text in read.values())} -> {v} {rest}",
        [region for region, _ in read.values()],
        kernel=_sum_kernel.bind(reads=tuple(read)),
        windows=images,
        backward=partial(_sum_backward, edges=edges, is_fused=is_fused, is_weighted=bool(weight)),
        flops={"edge" if is_fused else "row": 2.0 if "weight" in read else 1.0},
    )


def _sum_backward(
    op: Operator,
    gy: LogicalRegion,
    *,
    edges: Edges,
    is_fused: bool,
    is_weighted: bool,
) -> tuple[LogicalRegion | None, ...]:
    name = f"{op.name}.dx"
    others = len(op.inputs) - 1
    if not is_fused:
        return _ends(name, gy, edges, "target", terms(op)[1][0].split()[0]), *[None] * others
    if is_weighted and edges.order is not None:
        raise ValueError(f"'{op.name}': a gradient of a gradient by weights of edges")
    weight = op.inputs[-1] if is_weighted else None
    gx = _sum(name, gy, edges.turned, True, weight)
    if weight is None:
        return gx, *[None] * others
    return gx, *[None] * (others - 1), _of_weights(op, gy, edges)


def _of_weights(op: Operator, gy: LogicalRegion, edges: Edges) -> LogicalRegion:
    """The gradient of an edge's weight: the product of what its target got and its source has."""
    v, *rest = terms(op)[1][0].split()
    row = term(rest)
    return launch_first(
        f"{op.name}.dweight",
        f"target {row}, row {row}, {v}, {v} -> {term((v, *rest[:-1]))}",
        [gy, op.inputs[0], *(edges.constant(gy.graph, end) for end in ("targets", "indices"))],
        kernel=_products,
        windows={
            "target": edges.image("target_of_edge", v),
            "row": edges.image("source_of_edge", v),
        },
    )


def _mean(y: LogicalRegion, edges: Edges) -> LogicalRegion:
    name = f"{edges.name}.shares.{y.dtype}"
    counts = np.maximum(np.diff(edges.indptr), 1).reshape(-1, *[1] * (y.ndim - 1))
    shares = y.graph.regions.get(name) or y.graph.constant(name, 1 / counts, y.dtype)
    return multiply(y, shares, name=f"{y.name}.mean")


def _largest_backward(
    op: Operator, gy: LogicalRegion, *, edges: Edges
) -> tuple[LogicalRegion, None]:
    """An edge whose message is the largest has the gradient, as many as are equal a part of it each."""
    v, *rest = terms(op)[1][0].split()
    row = term(rest)
    gm = launch_first(
        f"{op.name}.dm",
        f"target {row}, target {row}, all {row}, all -> {v} {row}",
        [gy, op.outputs[0], op.inputs[0], edges.constant(gy.graph, "targets")],
        kernel=_largest_gradient,
        windows={
            "target": edges.image("target_of_edge", v),
            "all": edges.image("edges_of_target", v),
        },
    )
    return gm, None


# -- kernels -----------------------------------------------------------------------------------------------------------


def _by_heads(a: Array) -> Array:
    """The view (rows, heads, features)."""
    return a if a.ndim == 3 else a[:, None]


@cache
def _nothing(shape: tuple[int, ...], dtype: str) -> Array:
    """In the place of an array that is read, for which kernels are compiled."""
    made = np.zeros(shape, dtype)
    made.flags.writeable = False
    return made


@partial(Kernel, is_compiled=True, cuda=on_gpu.sum_rows)
def _sum_kernel(ctx: Context, *arrays: Array, reads: tuple[str, ...]) -> None:
    from ops.cpu import segments

    given: dict[str, Any] = dict(zip(reads, arrays, strict=False))
    x = given["row"]
    none = _nothing((0,), "int32")
    weight = given.get("weight", _nothing((0, 1), x.dtype.name))
    at = ctx.rect(reads.index("weight")).lo[0] if "order" in reads else 0
    segments.sum_rows(
        _by_heads(x),
        ctx.rect(0).lo[0],
        given["border"],
        given.get("index", none),
        weight if weight.ndim == 2 else weight[:, None],
        given.get("order", none),
        at,
        _by_heads(arrays[-1]),
    )


@partial(Kernel, is_compiled=True, cuda=on_gpu.largest_rows)
def _largest(ctx: Context, m: Array, borders: Array, y: Array) -> None:
    from ops.cpu import segments

    segments.largest_rows(_by_heads(m), borders, _by_heads(y))


@partial(Kernel, is_compiled=True, cuda=on_gpu.products)
def _products(ctx: Context, gy: Array, x: Array, targets: Array, sources: Array, y: Array) -> None:
    from ops.cpu import segments

    first = ctx.rect(0).lo[0]
    at = ctx.rect(1).lo[0]
    made = y if y.ndim == 2 else y[:, None]
    segments.products(_by_heads(gy), first, targets, _by_heads(x), at, sources, made)


@partial(Kernel, is_compiled=True, cuda=on_gpu.take_rows)
def _take(ctx: Context, x: Array, index: Array, y: Array) -> None:
    from ops.cpu import segments

    segments.take_rows(_by_heads(x), ctx.rect(0).lo[0], index, _by_heads(y))


@partial(Kernel, is_compiled=True, accumulates=True, cuda=on_gpu.add_to_rows)
def _add_to_rows(ctx: Context, gy: Array, index: Array, y: Array) -> None:
    from ops.cpu import segments

    if not ctx.adds_to(0):
        y.fill(0)
    segments.add_to_rows(_by_heads(gy), index, ctx.rect(2).lo[0], _by_heads(y))


@partial(Kernel, is_compiled=True, cuda=on_gpu.largest_gradient)
def _largest_gradient(
    ctx: Context,
    gy: Array,
    y: Array,
    m: Array,
    targets: Array,
    gm: Array,
) -> None:
    from ops.cpu import segments

    vertex = ctx.rect(0).lo[0]
    first = ctx.rect(4).lo[0] - ctx.rect(2).lo[0]
    arrays = _by_heads(gy), _by_heads(y), _by_heads(m)
    segments.largest_gradient(*arrays, targets, vertex, first, _by_heads(gm))
