"""Segments of edges on GPUs; see `ops.relations`. Arrays are (rows, features) or (rows, heads, features)."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from ops.cuda.kernels import launch, source, widest
from ops.cuda.tables import scatter_add
from ops.tiles import contiguous, deliver, sum_array
from taskflow import Array, Context, Kernel

RELATIONS = source("relations")


def _line(a: Array) -> int:
    return prod(a.shape[1:])


@partial(Kernel, takes_mixed=True)
def sum_rows(ctx: Context, *arrays: Array, reads: tuple[str, ...]) -> None:
    """See `aggregate` and `sum_edges`."""
    given: dict[str, Any] = dict(zip(reads, arrays, strict=False))
    y = arrays[-1]
    weight = given.get("weight", 0)
    launch(
        ctx,
        RELATIONS,
        f"sum_rows_{widest(given['row'], y)}",
        y.size,
        [given["row"], given["border"], given.get("index", 0), given.get("order", 0), weight],
        [y],
        ctx.rect(0).lo[0],
        ctx.rect(reads.index("weight")).lo[0] if "order" in reads else 0,
        y.shape[1] if y.ndim == 3 else 1,
        _line(weight) if "weight" in reads else 1,
        y.shape[-1],
        y.size,
    )


@partial(Kernel, takes_mixed=True)
def largest_rows(ctx: Context, x: Array, borders: Array, y: Array) -> None:
    """See `sum_edges`."""
    name = f"largest_rows_{widest(x, y)}"
    numbers = (_line(y), y.size)
    launch(
        ctx,
        RELATIONS,
        name,
        y.size,
        [x, borders],
        [y],
        *numbers,
    )


@partial(Kernel, takes_mixed=True)
def take_rows(ctx: Context, x: Array, index: Array, y: Array) -> None:
    """See `to_edges`."""
    numbers = ctx.rect(0).lo[0], _line(y), y.size
    launch(
        ctx,
        RELATIONS,
        f"take_rows_{widest(x, y)}",
        y.size,
        [x, index],
        [y],
        *numbers,
    )


@partial(Kernel, takes_mixed=True)
def products(ctx: Context, gy: Array, x: Array, targets: Array, sources: Array, y: Array) -> None:
    """The gradient of the weights of edges."""
    heads = y.shape[1] if y.ndim == 2 else 1
    numbers = ctx.rect(0).lo[0], ctx.rect(1).lo[0], heads, x.shape[-1], y.size
    name = f"edge_products_{widest(gy, x, y)}"
    launch(
        ctx,
        RELATIONS,
        name,
        y.size,
        [gy, x, targets, sources],
        [y],
        *numbers,
    )


@partial(Kernel, takes_mixed=True)
def softmax(ctx: Context, x: Array, targets: Array, y: Array) -> None:
    """See `edge_softmax`."""
    _softmax(ctx, "edge_softmax", [x], targets, y)


@partial(Kernel, takes_mixed=True)
def softmax_gradient(ctx: Context, gy: Array, y: Array, targets: Array, gx: Array) -> None:
    """See `edge_softmax`."""
    _softmax(ctx, "edge_softmax_gradient", [gy, y], targets, gx)


def _softmax(ctx: Context, kernel: str, read: list[Array], targets: Array, y: Array) -> None:
    first = ctx.rect(len(read) + 1).lo[0] - ctx.rect(0).lo[0]  # of the output
    launch(
        ctx,
        RELATIONS,
        f"{kernel}_{widest(*read, y)}",
        read[0].size,
        [*read, targets],
        [y],
        first,
        len(y),
        _line(y),
        len(targets),
    )


@partial(Kernel, takes_mixed=True, accumulates=True)
def add_to_rows(ctx: Context, gy: Array, index: Array, y: Array) -> None:
    """The gradient of `to_edges`."""
    table = sum_array(ctx, "table", y)
    lines = contiguous(ctx, "gy", gy).reshape(len(gy), _line(gy))
    rows = table.reshape(len(y), _line(y))
    scatter_add(ctx, lines, contiguous(ctx, "index", index), ctx.rect(2).lo[0], rows)
    deliver(ctx, table, y)


@partial(Kernel, takes_mixed=True)
def largest_gradient(
    ctx: Context,
    gy: Array,
    y: Array,
    m: Array,
    targets: Array,
    gm: Array,
) -> None:
    """The gradient of the largest message."""
    first = ctx.rect(4).lo[0] - ctx.rect(2).lo[0]
    numbers = ctx.rect(0).lo[0], first, len(gm), _line(gm), len(targets)
    name = f"largest_gradient_{widest(gy, m, gm)}"
    launch(
        ctx,
        RELATIONS,
        name,
        m.size,
        [gy, y, m, targets],
        [gm],
        *numbers,
    )
