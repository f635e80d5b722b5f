"""Elements and rows by index on GPUs: embeddings, bags and gathers; see `kernels` for the rest.

Indices are not checked: one out of range makes its result NaN. Sums are taken in the order of the indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from ops.cuda.kernels import BLOCK, constant, launch, source, widest
from ops.tiles import contiguous, deliver, packed, sum_array, work_array
from taskflow import Array, Context, Kernel

EMBEDDING = source("embedding")
GATHER = source("gather")
_RUN, _CHUNK, _TOGETHER = (
    constant(EMBEDDING, "SORTED"),
    constant(EMBEDDING, "CHUNK"),
    16,
)  # runs that one kernel merges
_MOST_KEYS = 1 << 31
_WARP = 32


def _bag(indices: Array, y: Array) -> int:
    """How many rows are summed: 1 of `embedding`, the last extent of `embedding_bag`."""
    return indices.shape[-1] if indices.ndim == y.ndim else 1


@partial(Kernel, takes_mixed=True)
def look_up(ctx: Context, indices: Array, weight: Array, y: Array, *, count: int) -> None:
    """See `embedding` and `embedding_bag`."""
    out = work_array(ctx, "y", y)
    block = _threads(y.shape[-1])
    ctx.launch(
        EMBEDDING,
        f"sum_rows_{y.dtype}_{weight.dtype}_{indices.dtype}",
        y.size // max(y.shape[-1], 1) * block,
        contiguous(ctx, "index", indices),
        contiguous(ctx, "weight", weight),
        out,
        ctx.interval("v")[0],
        *weight.shape,
        count,
        _bag(indices, y),
        block=block,
    )
    deliver(ctx, out, y)


@partial(Kernel, takes_mixed=True, accumulates=True)
def look_up_gradient(ctx: Context, indices: Array, gy: Array, gweight: Array) -> None:
    """See `embedding` and `embedding_bag`."""
    table = sum_array(ctx, "table", gweight)
    gradients = contiguous(ctx, "gy", gy)
    scatter_add(
        ctx,
        gradients,
        contiguous(ctx, "index", indices),
        ctx.interval("v")[0],
        table,
        _bag(indices, gy),
    )
    deliver(ctx, table, gweight)


def scatter_add(
    ctx: Context,
    gradients: Array,
    index: Array,
    lo: int,
    table: Array,
    bag: int = 1,
) -> None:
    """See `ops.tables.embedding.scatter_add`; each row of `gradients` is added for `bag` indices."""
    if index.size and table.size:
        keys = _sort(ctx, index, lo, len(table))
        _sum_segments(
            ctx,
            "sum",
            f"{gradients.dtype}_{table.dtype}",
            (gradients, keys, table),
            len(table),
            bag,
        )


def update_rows(
    ctx: Context,
    tables: Sequence[Array],
    index: Array,
    gradients: Array,
    change: Callable[[Sequence[Array], Array], None],
) -> None:
    """Call `change` on the rows of `tables` that `index` names and the sums of their gradients; bring back the rows."""
    (count, width) = gradients.shape
    rows = len(tables[0])
    keys = _sort(ctx, index, ctx.rect(0).lo[0], rows)
    sums = ctx.scratch("sums", gradients.shape, gradients.dtype)
    works = [
        ctx.scratch(("work", k), gradients.shape, table.dtype) for k, table in enumerate(tables)
    ]
    wholes = [packed(ctx, ("table", k), table) for k, table in enumerate(tables)]
    _sum_segments(ctx, "place", str(sums.dtype), (gradients, keys, sums), rows, 1)
    threads = count * _threads(width)
    block = _threads(width)
    numbers = (rows, width, count)
    for whole, work in zip(wholes, works, strict=True):
        ctx.launch(
            EMBEDDING,
            f"take_rows_{work.dtype}",
            threads,
            whole,
            keys,
            work,
            *numbers,
            block=block,
        )
    change(works, sums)
    for table, whole, work in zip(tables, wholes, works, strict=True):
        ctx.launch(
            EMBEDDING,
            f"put_rows_{work.dtype}",
            threads,
            work,
            keys,
            whole,
            *numbers,
            block=block,
        )
        deliver(ctx, whole, table)


def _sum_segments(
    ctx: Context,
    kind: str,
    name: str,
    arrays: Sequence[Array],
    rows: int,
    bag: int,
) -> None:
    """Sums of the gradients of equal rows: `arrays` are the gradients, the sorted keys, and where the sums go."""
    gradients, keys, out = arrays
    (width, count) = (out.shape[1], keys.size)
    sums = out.dtype if out.dtype.itemsize > 2 else "float32"
    chunks = -(-count // _CHUNK)
    block = _threads(width)
    pieces = ctx.scratch("pieces", (chunks, 2, width), sums)
    names = f"{kind}_chunks_{name}", f"{kind}_pieces_{name}"
    ctx.launch(
        EMBEDDING,
        names[0],
        chunks * block,
        gradients,
        keys,
        out,
        pieces,
        rows,
        width,
        bag,
        count,
        block=block,
    )
    if chunks > 1:
        ctx.launch(
            EMBEDDING,
            names[1],
            chunks * block,
            pieces,
            keys,
            out,
            rows,
            width,
            count,
            block=block,
        )


def _sort(ctx: Context, index: Array, lo: int, rows: int) -> Array:
    """Rows of the table and places in the index, sorted: runs by a block each, which are merged some at a time."""
    count = index.size
    if max(rows, count) > _MOST_KEYS:
        raise ValueError(
            f"an embedding on a GPU: {rows} rows and {count} indices of a tile, more than {_MOST_KEYS}"
        )
    keys, other = (ctx.scratch(("keys", k), (count,), "uint64") for k in (0, 1))
    ctx.launch(
        EMBEDDING,
        f"sort_runs_{index.dtype}",
        -(-count // _RUN) * _RUN // 2,
        index,
        keys,
        lo,
        rows,
        count,
        block=_RUN // 2,
    )
    length = _RUN
    while length < count:
        ctx.launch(
            EMBEDDING,
            "merge_runs",
            count,
            keys,
            other,
            length,
            _TOGETHER,
            count,
        )
        keys, other, length = other, keys, length * _TOGETHER
    return keys


def _threads(width: int) -> int:
    """Threads that share a row: whole warps."""
    return min(BLOCK, -(-max(width, 1) // _WARP) * _WARP)


@partial(Kernel, takes_mixed=True)
def gather(ctx: Context, x: Array, index: Array, y: Array, *, count: int, dim: int = 1) -> None:
    """See `gather`, and `gather_rows`."""
    gather_along(ctx, x, index, y, dim, count)


@partial(Kernel, takes_mixed=True)
def right_scores(
    ctx: Context,
    y: Array,
    t: Array,
    right: Array,
    *,
    what: str,
    classes: int,
) -> None:
    """See `metrics.accuracy`."""
    gather_along(ctx, y, t, right, y.ndim - 1, classes)


def gather_along(ctx: Context, x: Array, index: Array, y: Array, dim: int, extent: int) -> None:
    """y = the points of `x` along `dim` that `index` names, of `extent` points in all of the region."""
    if not y.size:
        return
    width = prod(x.shape[dim + 1 :])
    launch(
        ctx,
        GATHER,
        f"gather_{widest(x, y)}_{index.dtype}",
        y.size,
        [x, index],
        [y],
        ctx.rect(0).lo[dim],
        extent,
        x.shape[dim],
        y.size // (prod(x.shape[:dim]) * width),
        width,
        index.size * width // y.size,
        y.size,
    )


@partial(Kernel, takes_mixed=True)
def gather_gradient(ctx: Context, gy: Array, index: Array, gx: Array, *, dim: int = 1) -> None:
    """See `gather`, `gather_rows` and `topk`."""
    add_along(ctx, gy, index, gx, dim)


def add_along(ctx: Context, gy: Array, index: Array, gx: Array, dim: int, extent: int = 0) -> None:
    """The gradient of `gather_along`: every point of `gx` gathers from all that may have picked it.

    An index that is negative or from `extent` on makes all points of its line NaN; 0: none is looked at.
    """
    width = prod(gx.shape[dim + 1 :])
    launch(
        ctx,
        GATHER,
        f"gather_gradient_{widest(gy, gx)}_{index.dtype}",
        gx.size,
        [gy, index],
        [gx],
        ctx.rect(2).lo[dim],
        extent,
        gx.shape[dim],
        gy.size // max(prod(gx.shape[:dim]) * width, 1),
        width,
        index.size * width // gy.size if gy.size else 1,
        gx.size,
    )
