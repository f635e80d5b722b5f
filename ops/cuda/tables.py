"""Elements and rows by index on GPUs: embeddings, bags and gathers; see `kernels` for the rest.

Indices are not checked: one out of range makes its result NaN. Sums are taken in the order of the indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from ops.cuda.kernels import BLOCK, in_dtype, launch, source
from ops.tiles import contiguous, deliver, sum_array
from taskflow import Array, Context, Kernel

EMBEDDING, GATHER = source("embedding"), source("gather")


def _bag(indices: Array, y: Array) -> int:
    """How many rows are summed: 1 of `embedding`, the last extent of `embedding_bag`."""
    return indices.shape[-1] if indices.ndim == y.ndim else 1


@partial(Kernel, takes_half=True)
def look_up(ctx: Context, indices: Array, weight: Array, y: Array, *, count: int) -> None:
    """See `embedding` and `embedding_bag`."""
    name = f"sum_rows_{y.dtype}_{weight.dtype}_{indices.dtype}"
    numbers = ctx.interval("v")[0], *weight.shape, count, _bag(indices, y), y.size
    launch(ctx, EMBEDDING, name, y.size, [indices, weight], [y], *numbers)


@partial(Kernel, takes_half=True, accumulates=True)
def look_up_gradient(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    """See `embedding` and `embedding_bag`."""
    table, gradients = sum_array(ctx, "table", gweight), contiguous(ctx, "gy", gy)
    scatter_add(ctx, gradients, contiguous(ctx, "index", indices), ctx.interval("v")[0], table, _bag(indices, gy))
    deliver(ctx, table, gweight)


def scatter_add(ctx: Context, gradients: Array, index: Array, lo: int, table: Array, bag: int = 1) -> None:
    """See `ops.tables.embedding.scatter_add`; each row of `gradients` is added for `bag` indices."""
    links = ctx.scratch("links", (index.size,), "int64")
    threads = index.size * BLOCK if table.size else 0
    ctx.launch(EMBEDDING, f"link_rows_{index.dtype}", threads, index, links, index.size)
    name = f"scatter_add_{gradients.dtype}_{table.dtype}_{index.dtype}"
    ctx.launch(EMBEDDING, name, threads, gradients, index, links, table, lo, *table.shape, bag, index.size)


def update_rows(
    ctx: Context,
    tables: Sequence[Array],
    index: Array,
    gradients: Array,
    change: Callable[[Sequence[Array], Array], None],
) -> None:
    """Call `change` on the rows of `tables` that `index` names and the sums of their gradients; bring back the rows."""
    (count, width), lo, threads = gradients.shape, ctx.rect(0).lo[0], index.size * BLOCK
    links, sums = ctx.scratch("links", (count,), "int64"), ctx.scratch("sums", gradients.shape, gradients.dtype)
    works = [ctx.scratch(("work", k), gradients.shape, table.dtype) for k, table in enumerate(tables)]
    ctx.launch(EMBEDDING, "link_rows_int64", threads, index, links, count)
    ctx.launch(EMBEDDING, f"sum_equal_{sums.dtype}", threads, gradients, links, sums, width, count)
    for table, work in zip(tables, works, strict=True):
        numbers = lo, len(table), width, lo + len(table), 1, work.size
        launch(
            ctx, EMBEDDING, f"sum_rows_{work.dtype}_{table.dtype}_int64", work.size, [index, table], [work], *numbers
        )
    change(works, sums)
    for table, work in zip(tables, works, strict=True):
        whole = contiguous(ctx, "table", table)
        ctx.launch(EMBEDDING, f"put_rows_{work.dtype}", threads, work, index, links, whole, lo, len(table), width)
        deliver(ctx, whole, table)


@partial(Kernel, takes_half=True)
def gather(ctx: Context, x: Array, index: Array, y: Array, *, count: int, dim: int = 1) -> None:
    """See `gather`, and `gather_rows`."""
    gather_along(ctx, x, index, y, dim, count)


@partial(Kernel, takes_half=True)
def right_scores(ctx: Context, y: Array, t: Array, right: Array, *, what: str, classes: int) -> None:
    """See `metrics.accuracy`."""
    gather_along(ctx, y, t, right, y.ndim - 1, classes)


def gather_along(ctx: Context, x: Array, index: Array, y: Array, dim: int, extent: int) -> None:
    """y = the points of `x` along `dim` that `index` names, of `extent` points in all of the region."""
    lines, width = prod(x.shape[:dim]), prod(x.shape[dim + 1 :])
    if not y.size:
        return
    picks, index_width = y.size // (lines * width), index.size * width // y.size
    numbers = ctx.rect(0).lo[dim], extent, x.shape[dim], picks, width, index_width, y.size
    inputs = [in_dtype(ctx, "cast", x, y.dtype), index]
    launch(ctx, GATHER, f"gather_{y.dtype}_{index.dtype}", y.size, inputs, [y], *numbers)


@partial(Kernel, takes_half=True)
def gather_gradient(ctx: Context, gy: Array, index: Array, gx: Array, *, dim: int = 1) -> None:
    """See `gather`, `gather_rows` and `topk`."""
    add_along(ctx, gy, index, gx, dim)


def add_along(ctx: Context, gy: Array, index: Array, gx: Array, dim: int) -> None:
    """The gradient of `gather_along`: every point of `gx` gathers from all that may have picked it."""
    lines, width = prod(gx.shape[:dim]), prod(gx.shape[dim + 1 :])
    picks = gy.size // max(lines * width, 1)
    index_width = index.size * width // gy.size if gy.size else 1
    numbers = ctx.rect(2).lo[dim], gx.shape[dim], picks, width, index_width, gx.size
    inputs = [in_dtype(ctx, "cast", gy, gx.dtype), index]
    launch(ctx, GATHER, f"gather_gradient_{gx.dtype}_{index.dtype}", gx.size, inputs, [gx], *numbers)
