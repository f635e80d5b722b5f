"""Small operators for the tests of the core that read through windows: halo, stride, offset, transposed, by a table."""

from functools import partial
from itertools import pairwise

import numpy as np

from taskflow import Image, Normal, Window

WEIGHTS = (0.5, -0.3, 0.8, 0.2, -0.6, 0.4, 0.1)  # of a stencil's points


def term(region):
    return " ".join(region.axes) or "."


def parameter(graph, name, shape, dtype="float64"):
    return graph.parameter(name, shape, Normal(0.0, 0.4), dtype=dtype)


def _read(x, first, dim, at, weight, y):
    """`y += weight x[at]` along `dim`, for those of the points `at` that the tile `x` from `first` on holds."""
    held = (at >= first) & (at < first + x.shape[dim])
    target, source = np.moveaxis(y, dim, 0), np.moveaxis(x, dim, 0)
    target[held] += weight * source[at[held] - first]


def _stencil(dim, window, ctx, x, y):
    points = np.arange(*(getattr(ctx.rect(1), end)[dim] for end in ("lo", "hi")))
    y[...] = 0
    for k in range(window.size):
        at = points * window.stride - window.padding + k * window.dilation
        _read(x, ctx.rect(0).lo[dim], dim, at, WEIGHTS[k], y)


def _stencil_backward(dim, window, ctx, gy, gx):
    points = np.arange(*(getattr(ctx.rect(1), end)[dim] for end in ("lo", "hi")))
    gx[...] = 0
    for k in range(window.size):
        at = points + window.padding - k * window.dilation
        at = np.where(at % window.stride == 0, at // window.stride, -1)
        _read(gy, ctx.rect(0).lo[dim], dim, at, WEIGHTS[k], gx)


def stencil(x, dim=0, size=3, stride=1, padding=1, dilation=1, name="stencil"):
    """`y[j] = sum over k of WEIGHTS[k] x[j stride - padding + k dilation]` along `dim`."""
    axes = list(x.axes)
    axis, graph = axes[dim], x.graph
    window = Window(axis, size, stride, padding, dilation)
    turned = Window(axis, size, stride, padding, dilation, transposed=True)
    read = " ".join([*axes[:dim], "window", *axes[dim + 1 :]])

    def backward(op, gy):
        return gy.graph.launch(
            f"{op.name}.dx",
            f"{read} -> {term(x)}",
            [gy],
            kernel=partial(_stencil_backward, dim, window),
            windows={"window": turned},
            sizes={axis: x.shape[dim]},
        )

    kernel = partial(_stencil, dim, window)
    return graph.launch(
        name,
        f"{read} -> {term(x)}",
        [x],
        kernel=kernel,
        windows={"window": window},
        backward=backward,
    )


def _join(dim, offsets, ctx, *arrays):
    *parts, y = arrays
    points = np.arange(ctx.rect(len(parts)).lo[dim], ctx.rect(len(parts)).hi[dim])
    y[...] = 0
    for k, (part, offset) in enumerate(zip(parts, offsets, strict=True)):
        if part.size:
            _read(part, ctx.rect(k).lo[dim], dim, points - offset, 1.0, y)


def concat(xs, dim=1, name="concat"):
    """Regions side by side along `dim`."""
    graph, axes = xs[0].graph, list(xs[0].axes)
    offsets = [sum(x.shape[dim] for x in xs[:k]) for k in range(len(xs) + 1)]
    terms = [" ".join([*axes[:dim], f"part{k}", *axes[dim + 1 :]]) for k in range(len(xs))]

    def backward(op, gy):
        return [
            part(gy, dim, a, b, f"{op.name}.d{k}", axes)
            for k, (a, b) in enumerate(pairwise(offsets))
        ]

    return graph.launch(
        name,
        f"{', '.join(terms)} -> {' '.join(axes)}",
        xs,
        kernel=partial(_join, dim, tuple(offsets[:-1])),
        sizes={axes[dim]: offsets[-1]},
        windows={f"part{k}": Window(axes[dim], padding=offsets[k]) for k in range(len(xs))},
        backward=backward,
    )


def part(x, dim, start, end, name="part", axes=None):
    """`x[start:end]` along `dim`."""
    axes = list(axes or x.axes)
    graph, axis = x.graph, axes[dim]
    read = " ".join([*axes[:dim], "whole", *axes[dim + 1 :]])

    def backward(op, gy):
        return gy.graph.launch(
            f"{op.name}.dx",
            f"{read} -> {' '.join(axes)}",
            [gy],
            kernel=partial(_join, dim, (start,)),
            windows={"whole": Window(axis, padding=start)},
            sizes={axis: x.shape[dim]},
        )

    return graph.launch(
        name,
        f"{read} -> {' '.join(axes)}",
        [x],
        kernel=partial(_join, dim, (-start,)),
        windows={"whole": Window(axis, padding=-start)},
        sizes={axis: end - start},
        backward=backward,
    )


def hull(matrix, axis):
    """The image of the rows of a matrix: what is between the first and the last that is not zero."""
    is_read = matrix != 0
    first, last = is_read.argmax(axis=1), matrix.shape[1] - is_read[:, ::-1].argmax(axis=1)
    return Image(axis, first, np.where(is_read.any(axis=1), last, first))


def _relate(dim, matrix, ctx, x, y):
    (lo, hi), (first, end) = ((ctx.rect(k).lo[dim], ctx.rect(k).hi[dim]) for k in (1, 0))
    read = np.tensordot(matrix[lo:hi, first:end], np.moveaxis(x, dim, 0), 1)
    y[...] = np.moveaxis(read, 0, dim)


def relate(x, matrix, dim=0, name="relate"):
    """`y = matrix x` along `dim`, of which each point reads an interval, or nothing."""
    axes = list(x.axes)
    read = " ".join([*axes[:dim], "hull", *axes[dim + 1 :]])
    return x.graph.launch(
        name,
        f"{read} -> {term(x)}",
        [x],
        kernel=partial(_relate, dim, matrix),
        windows={"hull": hull(matrix, axes[dim])},
        backward=lambda op, gy: relate(gy, matrix.T, dim, f"{op.name}.dx"),
        flops={"hull": 2.0},
    )


def _taps(window, rect, dim, tile, first, transposed):
    """Per tap k: the points of the output tile that read something, and what they read in the tile at `first`."""
    points = np.arange(rect.lo[dim], rect.hi[dim])
    for k in range(window.size):
        if transposed:
            at = points + window.padding - k
            at = np.where(at % window.stride == 0, at // window.stride, -1)
        else:
            at = points * window.stride - window.padding + k
        held = (at >= first) & (at < first + tile)
        yield k, np.flatnonzero(held), at[held] - first


def _convolve(window, equation, transposed, ctx, x, w, y):
    y[...] = 0
    rect, lo = ctx.rect(2), ctx.rect(0).lo
    for i, rows, from_rows in _taps(window, rect, 2, x.shape[2], lo[2], transposed):
        for j, columns, from_columns in _taps(window, rect, 3, x.shape[3], lo[3], transposed):
            if len(rows) and len(columns):
                read = x[:, :, from_rows[:, None], from_columns[None, :]]
                y[:, :, rows[:, None], columns[None, :]] += np.einsum(equation, read, w[:, :, i, j])


def _convolve_dw(window, ctx, gy, x, gw):
    gw[...] = 0
    rect, lo = ctx.rect(0), ctx.rect(1).lo
    for i, rows, from_rows in _taps(window, rect, 2, x.shape[2], lo[2], False):
        for j, columns, from_columns in _taps(window, rect, 3, x.shape[3], lo[3], False):
            if len(rows) and len(columns):
                read = x[:, :, from_rows[:, None], from_columns[None, :]]
                gw[:, :, i, j] = np.einsum(
                    "nohw,nchw->oc", gy[:, :, rows[:, None], columns[None, :]], read
                )


def conv(x, out, size=3, stride=1, padding=1, name="conv"):
    """A convolution of (n, c, h, w) with a square kernel and no bias."""
    graph = x.graph
    name = graph.unique_name(name)
    weight = parameter(graph, f"{name}.weight", (out, x.shape[1], size, size), x.dtype)
    along = Window("h", size, stride, padding)

    def windows(transposed=False):
        names = zip(("gh", "gw") if transposed else ("ih", "iw"), "hw", strict=True)
        return {n: Window(axis, size, stride, padding, transposed=transposed) for n, axis in names}

    def backward(op, gy):
        (x, weight), launch = op.inputs, gy.graph.launch
        return (
            launch(
                f"{name}.dx",
                "n o gh gw, o c ^kh ^kw -> n c h w",
                [gy, weight],
                kernel=partial(_convolve, along, "nohw,oc->nchw", True),
                windows=windows(True),
                sizes=dict(zip("hw", x.shape[2:], strict=True)),
            ),
            launch(
                f"{name}.dweight",
                "n o h w, n c ih iw -> o c ^kh ^kw",
                [gy, x],
                kernel=partial(_convolve_dw, along),
                windows=windows(),
                sizes={"kh": size, "kw": size},
            ),
        )

    return graph.launch(
        name,
        "n c ih iw, o c ^kh ^kw -> n o h w",
        [x, weight],
        kernel=partial(_convolve, along, "nchw,oc->nohw", False),
        windows=windows(),
        backward=backward,
    )
