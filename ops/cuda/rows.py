"""Kernels over rows on GPUs: layer norm, softmax, cross entropy, accuracy, the order of rows and their sums.

See `kernels` for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.cuda.kernels import BLOCK, constant, launch, source, widest
from ops.expressions import cuda_source
from ops.expressions.expression import Expression
from ops.tiles import channels_last, contiguous, last
from taskflow import Array, Context, Kernel

SOFTMAX, LAYER_NORM, CLASSES, ROWS, COLUMNS = map(
    source, ("softmax", "layer_norm", "classes", "rows", "columns")
)
_AT_ONCE = constant(LAYER_NORM, "AT_ONCE")
_STEPS = 8  # that one kernel adds up
_LEAST_ROWS, _SUMMING_BLOCKS = (
    32,
    528,
)  # of a part of a sum over rows; four blocks for each multiprocessor of an H200
_SECTOR = constant(LAYER_NORM, "SECTOR")
# Eight blocks of 256 threads of each of 132 multiprocessors hold 17 MB of such rows: the L2 cache of an H100 has 50.
_NARROW_ROW_BYTES = 1 << 14
_WIDE_BLOCK = 1024
_SUM = Expression.parse("a + b")
_IS_BELOW = Expression.parse("before < k")
_DIFFERS = Expression.parse("t != ignored")

# -- normalization -----------------------------------------------------------------------------------------------------


@partial(Kernel, takes_mixed=True)
def normalize_rows(
    ctx: Context,
    x: Array,
    weight: Array,
    bias: Array,
    y: Array,
    mean: Array,
    scale: Array,
    *,
    eps: float,
) -> None:
    """See `layer_norm`."""
    _normalize(ctx, [x, 0], weight, bias, [y, mean, scale], 0, x.shape[-1], eps)


@partial(Kernel, takes_mixed=True)
def normalize_sum(ctx: Context, *arrays: Array, eps: float) -> None:
    """The same of the sum of two arrays, which is kept."""
    a, b, weight, bias, *outputs = arrays
    _normalize(ctx, [a, b], weight, bias, outputs, a.shape[-1], eps)


def _normalize(
    ctx: Context,
    inputs: Sequence[Array | int],
    weight: Array,
    bias: Array,
    outputs: Sequence[Array],
    *numbers: float,
) -> None:
    kernel = f"layer_norm_{widest(outputs[0], *(a for a in inputs if not isinstance(a, int)))}"
    threads = outputs[1].size * BLOCK
    launch(ctx, LAYER_NORM, kernel, threads, [*inputs, weight, bias], outputs, *numbers)


@partial(Kernel, takes_mixed=True)
def gradient_rows(ctx: Context, *arrays: Array) -> None:
    """See `layer_norm`."""
    _gradients(ctx, arrays[:5], 0, *arrays[5:])


@partial(Kernel, takes_mixed=True)
def gradient_rows_sum(ctx: Context, *arrays: Array, is_first: bool) -> None:
    """The same and what is added to it, which comes first or last among the inputs."""
    read = arrays[is_first : 5 + is_first]
    more = arrays[0 if is_first else 5]
    _gradients(ctx, read, more, *arrays[6:])


def _gradients(
    ctx: Context, read: Sequence[Array], more: Array | int, gx: Array, *sums: Array
) -> None:
    """That of the input, by a block for a few rows, or also those of weight and bias.

    Then there are as many blocks as keep the GPU busy, of which each leaves a part of the sums over rows.
    """
    if not gx.size:
        for a in sums:
            ctx.xp.copyto(a, 0)
        return
    statistics = read[2]
    count = -(-statistics.size // _AT_ONCE)
    count = min(count, _SUMMING_BLOCKS) if sums else count
    parts = ctx.scratch("parts", (2, count, gx.shape[-1]), statistics.dtype) if sums else 0
    launch(
        ctx,
        LAYER_NORM,
        f"layer_norm_gradient_{widest(gx, *read[:2])}",
        count * BLOCK,
        [*read, more, parts],
        [gx],
        statistics.size,
        gx.shape[-1],
        count,
    )
    if not isinstance(parts, int):
        _sum_parts(ctx, parts, sums)


@partial(Kernel, takes_mixed=True)
def row_sums(
    ctx: Context,
    gy: Array,
    x: Array,
    mean: Array,
    scale: Array,
    gweight: Array,
    gbias: Array,
) -> None:
    """See `layer_norm`; as many parts as keep the GPU busy, of some rows at least."""
    if not gbias.size:
        return
    rows = mean.size
    width = x.shape[-1]
    across = -(-width // BLOCK)
    count = max(1, min(rows // _LEAST_ROWS, _SUMMING_BLOCKS // across))
    parts = ctx.scratch("parts", (2, count, width), mean.dtype)
    launch(
        ctx,
        LAYER_NORM,
        f"layer_norm_parts_{widest(gy, x)}",
        count * across * BLOCK,
        [gy, x, mean, scale],
        [parts],
        rows,
        width,
        count,
    )
    _sum_parts(ctx, parts, [gweight, gbias])


def _sum_parts(ctx: Context, parts: Array, sums: Sequence[Array]) -> None:
    _, count, width = parts.shape
    threads = -(-2 * width // _SECTOR) * BLOCK
    name = f"layer_norm_sums_{parts.dtype}"
    launch(ctx, LAYER_NORM, name, threads, [parts], sums, width, count)


@partial(Kernel, takes_mixed=True)
def sums_of_channels(ctx: Context, gy: Array, gbias: Array) -> None:
    """See `convolution`: the sums of all pixels, of which several are read at once where channels are few."""
    if not gbias.size:
        return
    pixels = contiguous(ctx, "gy", channels_last(gy))
    width = pixels.shape[-1]
    rows = pixels.size // width
    lanes = min(BLOCK, 1 << (width - 1).bit_length())
    across = -(-width // lanes)
    count = max(1, min(rows * lanes // (_LEAST_ROWS * BLOCK), _SUMMING_BLOCKS // across))
    parts = ctx.scratch(
        "parts", (count, width), gbias.dtype if gbias.dtype.itemsize > 2 else "float32"
    )
    launch(
        ctx,
        COLUMNS,
        f"sum_columns_{gy.dtype}",
        count * across * BLOCK,
        [pixels],
        [parts],
        rows,
        width,
        count,
        lanes,
    )
    launch(
        ctx,
        COLUMNS,
        f"sum_columns_{parts.dtype}",
        -(-width // _SECTOR) * BLOCK,
        [parts],
        [gbias],
        count,
        width,
        1,
        _SECTOR,
    )


# -- softmax and loss --------------------------------------------------------------------------------------------------


@partial(Kernel, takes_mixed=True)
def softmax(ctx: Context, x: Array, y: Array, *, dim: int) -> None:
    """See `softmax.softmax`."""
    x = last(x, dim)
    y = last(y, dim)
    width = y.shape[-1]
    launch(ctx, ROWS, f"softmax_{widest(x, y)}", y.size // width * BLOCK, [x], [y], width)


@partial(Kernel, takes_mixed=True)
def softmax_gradient(ctx: Context, gy: Array, y: Array, gx: Array, *, dim: int) -> None:
    """See `softmax.softmax`."""
    inputs = [last(gy, dim), last(y, dim)]
    width = gx.shape[dim]
    name = f"softmax_gradient_{widest(gy, y, gx)}"
    launch(ctx, ROWS, name, gx.size // width * BLOCK, inputs, [last(gx, dim)], width)


@partial(Kernel, takes_mixed=True)
def cross_entropy(
    ctx: Context,
    y: Array,
    t: Array,
    loss: Array,
    levels: Array,
    *,
    classes: int,
    count: int,
) -> None:
    """See `softmax_cross_entropy`; a class out of range makes the loss NaN."""
    losses = ctx.scratch("losses", (t.size,), loss.dtype)
    name = f"cross_entropy_{y.dtype}_{t.dtype}"
    launch(ctx, SOFTMAX, name, t.size * BLOCK, [y, t], [levels, losses], y.shape[-1], classes)
    ctx.launch(SOFTMAX, f"sum_over_{loss.dtype}", BLOCK, losses, loss, t.size, count)


@partial(Kernel, takes_mixed=True)
def cross_entropy_gradient(
    ctx: Context,
    gloss: Array,
    y: Array,
    levels: Array,
    t: Array,
    gy: Array,
    *,
    classes: int,
    count: int,
) -> None:
    """See `softmax_cross_entropy`."""
    launch(
        ctx,
        SOFTMAX,
        f"cross_entropy_gradient_{widest(y, gy)}_{t.dtype}",
        t.size * BLOCK,
        [gloss, y, levels, t],
        [gy],
        gy.shape[-1],
        classes,
        count,
    )


@partial(Kernel, takes_mixed=True)
def cross_entropy_and_gradient(
    ctx: Context,
    y: Array,
    t: Array,
    gloss: Array,
    loss: Array,
    gy: Array,
    *,
    classes: int,
    count: int,
) -> None:
    """See `softmax_cross_entropy`: both at once, so that scores are read from memory once."""
    losses = ctx.scratch("losses", (t.size,), loss.dtype)
    threads = BLOCK if y.shape[-1] * y.itemsize <= _NARROW_ROW_BYTES else _WIDE_BLOCK
    launch(
        ctx,
        SOFTMAX,
        f"cross_entropy_both_{threads}_{widest(y, gy)}_{t.dtype}",
        t.size * threads,
        [y, t, gloss],
        [losses, gy],
        y.shape[-1],
        classes,
        count,
        block=threads,
    )
    ctx.launch(SOFTMAX, f"sum_over_{loss.dtype}", BLOCK, losses, loss, t.size, count)


@partial(Kernel, takes_mixed=True)
def entropy_sums(
    ctx: Context, *arrays: Array, classes: int, smoothing: float, ignored: int | None
) -> None:
    """See `cross_entropy`; a class out of range makes the loss NaN."""
    y, largest, t, *outputs = arrays
    launch(
        ctx,
        CLASSES,
        f"entropy_sums_{y.dtype}_{t.dtype}",
        t.size * BLOCK,
        [y, largest, t],
        outputs,
        ctx.rect(0).lo[-1],
        y.shape[-1],
        classes,
        ignored is not None,
        ignored or 0,
        smoothing,
    )


@partial(Kernel, takes_mixed=True)
def entropy_gradient(
    ctx: Context,
    gtotal: Array,
    gright: Array,
    y: Array,
    largest: Array,
    t: Array,
    gy: Array,
    *,
    classes: int,
    smoothing: float,
) -> None:
    """See `cross_entropy`."""
    launch(
        ctx,
        CLASSES,
        f"entropy_gradient_{y.dtype}_{t.dtype}",
        gy.size,
        [gtotal, gright, y, largest, t],
        [gy],
        ctx.rect(2).lo[-1],
        y.shape[-1],
        classes,
        smoothing,
        gy.size,
    )


def losses_of_rows(ctx: Context, y: Array, t: Array, losses: Array, levels: Array) -> None:
    """See `linear_cross_entropy`; of a class out of range NaN."""
    name = f"cross_entropy_{y.dtype}_{t.dtype}"
    width = y.shape[1]
    launch(ctx, SOFTMAX, name, t.size * BLOCK, [y, t], [levels, losses], width, width)


def score_gradients(ctx: Context, g: Array, minus: Array, y: Array, level: Array, t: Array) -> None:
    """See `linear_cross_entropy`: in the place of the scores `y`."""
    name = f"entropy_gradient_{y.dtype}_{t.dtype}"
    width = y.shape[1]
    launch(ctx, CLASSES, name, y.size, [g, minus, y, level, t], [y], 0, width, width, 0.0, y.size)


@partial(Kernel, takes_mixed=True)
def count_rows(ctx: Context, t: Array, count: Array, *, ignored: int) -> None:
    """See `cross_entropy`."""
    _sum(ctx, _DIFFERS, {"t": t, "ignored": ignored}, t, count)


# -- order -------------------------------------------------------------------------------------------------------------


@partial(Kernel, takes_mixed=True)
def count_before(ctx: Context, y: Array, t: Array, right: Array, before: Array) -> None:
    """See `metrics.accuracy`."""
    name = f"count_before_{y.dtype}_{t.dtype}"
    launch(
        ctx,
        CLASSES,
        name,
        before.size * BLOCK,
        [y, t, right],
        [before],
        ctx.rect(0).lo[-1],
        y.shape[-1],
    )


@partial(Kernel, takes_mixed=True)
def share_below(ctx: Context, before: Array, share: Array, *, k: int, count: int) -> None:
    """See `metrics.accuracy`."""
    _sum(ctx, _IS_BELOW, {"before": before, "k": k}, before, share, count)


@partial(Kernel, takes_mixed=True)
def in_order(
    ctx: Context,
    x: Array,
    values: Array,
    indices: Array,
    *,
    dim: int,
    largest: bool,
) -> None:
    """See `extremes.topk`; for each of the `k` the row is read once."""
    read, values, indices = (last(a, dim) for a in (x, values, indices))
    k = values.shape[-1]
    launch(
        ctx,
        CLASSES,
        f"in_order_{widest(x, values)}",
        values.size // k * BLOCK,
        [read],
        [values, indices],
        x.shape[dim],
        k,
        largest,
    )


@partial(Kernel, takes_mixed=True)
def points_behind(
    ctx: Context,
    x: Array,
    largest: Array,
    behind: Array,
    *,
    dim: int,
    extent: int,
) -> None:
    """See `extremes.argmax`."""
    numbers = ctx.rect(0).lo[dim], x.shape[dim], extent
    name = f"points_behind_{x.dtype}"
    launch(ctx, CLASSES, name, behind.size * BLOCK, [last(x, dim), largest], [behind], *numbers)


# -- sums --------------------------------------------------------------------------------------------------------------


def _sum(
    ctx: Context,
    expression: Expression,
    values: dict[str, Array | float],
    a: Array,
    out: Array,
    divisor: float = 1.0,
) -> None:
    """A scalar: the sum of an expression over all of `a`."""
    cuda_source.reduce(
        ctx, expression, values, out.reshape((1,) * a.ndim), range(a.ndim), divisor=divisor
    )


@partial(Kernel, takes_mixed=True)
def sums_of_rows(ctx: Context, *args: Array) -> None:
    """See `recurrent.products.bias_gradient`; a few steps at a time."""
    *steps, total = args
    kept = total[(None,) * (steps[0].ndim - total.ndim)]
    part = ctx.scratch("part", kept.shape, total.dtype)
    axes = range(steps[0].ndim - total.ndim)
    for first in range(0, len(steps), _STEPS):
        values = {f"s{k}": step for k, step in enumerate(steps[first : first + _STEPS])}
        cuda_source.reduce(
            ctx, Expression.parse(" + ".join(values)), values, part if first else kept, axes
        )
        if first:
            cuda_source.evaluate(ctx, _SUM, {"a": kept, "b": part}, kept)
