"""A few small operators for the tests of the core, made with `graph.launch` alone.

They cover the whole pattern language: tiles, partial sums and maxima, fixed axes, groups, windows (halo, stride,
offset, transposed), several outputs, replicas and updates in place. Kernels work in global coordinates, so a wrong
tile gives wrong numbers and not an error.
"""

from functools import partial
from math import prod

import numpy as np

from taskflow import Kernel, Pointwise, differentiate, update
from tests.windows import concat as concat
from tests.windows import conv as conv
from tests.windows import parameter, term
from tests.windows import part as part
from tests.windows import relate as relate
from tests.windows import stencil as stencil

# -- elementwise -------------------------------------------------------------------------------------------------------


def _tanh(ctx, x, y):
    np.tanh(x, out=y)


def _tanh_backward(ctx, gy, y, gx):
    np.multiply(gy, 1 - y * y, out=gx)


def tanh(x, name="tanh"):
    t = term(x)

    def backward(op, gy):
        return gy.graph.launch(
            f"{op.name}.dx", f"{t}, {t} -> {t}", [gy, op.outputs[0]], kernel=_tanh_backward
        )

    return x.graph.launch(name, f"{t} -> {t}", [x], kernel=_tanh, backward=backward)


def _add(ctx, x, y, z):
    np.add(x, y, out=z)


ADD = Kernel(_add, expression=Pointwise("x + y", ("x", "y")))


def add(x, y, name="add"):
    t = term(x)
    return x.graph.launch(
        name, f"{t}, {t} -> {t}", [x, y], kernel=ADD, backward=lambda op, gz: (gz, gz)
    )


def _copy(ctx, x, y):
    y[...] = x


def copy(x, name="copy"):
    """`y = x`, with a pattern of its own for every number of dimensions."""
    return x.graph.launch(
        name, f"{term(x)} -> {term(x)}", [x], kernel=_copy, backward=lambda op, gy: gy
    )


def _drop(name, shape, ctx, x, y):
    kept = ctx.scratch("kept", x.shape, x.dtype)
    ctx.uniform(kept, name, shape, ctx.rect(0))
    np.multiply(x, kept > 0.25, out=y)


def dropout(x, name="dropout"):
    t, graph = term(x), x.graph
    kernel = partial(_drop, graph.unique_name(name), x.shape)
    backward = lambda op, gy: gy.graph.launch(f"{op.name}.dx", f"{t} -> {t}", [gy], kernel=kernel)
    return graph.launch(name, f"{t} -> {t}", [x], kernel=kernel, backward=backward)


# -- reductions and products -------------------------------------------------------------------------------------------


def _matmul(ctx, x, w, *rest):
    *bias, y = rest
    np.matmul(x, w.T, out=y)
    if bias and ctx.interval("i")[0] == 0:  # once among the partial sums
        y += bias[0]


def _matmul_dx(ctx, gy, w, gx):
    np.matmul(gy, w, out=gx)


def _matmul_dw(ctx, gy, x, gw):
    if ctx.adds_to(0):
        gw += gy.T @ x
    else:
        np.matmul(gy.T, x, out=gw)


def linear(x, out, name="fc", bias=False):
    """`y[b, o] = sum over i of x[b, i] w[o, i]`, plus a bias whose gradient has replicas where `i` is split."""
    graph = x.graph
    name = graph.unique_name(name)
    weight = parameter(graph, f"{name}.weight", (out, x.shape[1]), x.dtype)
    row = [parameter(graph, f"{name}.bias", (out,), x.dtype)] if bias else []

    def backward(op, gy):
        (x, weight, *row), launch = op.inputs, gy.graph.launch
        return (
            launch(f"{name}.dx", "b o, o i -> b i", [gy, weight], kernel=_matmul_dx),
            launch(
                f"{name}.dweight",
                "b o, b i -> o i",
                [gy, x],
                kernel=Kernel(_matmul_dw, accumulates=True),
            ),
            *[launch(f"{name}.dbias", "b o -> o", [gy], kernel=_column_sum) for _ in row],
        )

    pattern = f"b i, o i{', o' if bias else ''} -> b o"
    return graph.launch(name, pattern, [x, weight, *row], kernel=_matmul, backward=backward)


def _mean_square(count, ctx, x, out):
    out[...] = 0.5 * np.sum(x * x) / count


def _mean_square_backward(count, ctx, g, x, gx):
    np.multiply(g / count, x, out=gx)


def mean_square(x, name="loss"):
    """Half the mean of squares: a scalar, and a sum of partial results when `x` is split."""
    t, count = term(x), prod(x.shape)

    def backward(op, g):
        kernel = partial(_mean_square_backward, count)
        return g.graph.launch(f"{op.name}.dx", f"., {t} -> {t}", [g, op.inputs[0]], kernel=kernel)

    return x.graph.launch(
        name, f"{t} -> .", [x], kernel=partial(_mean_square, count), backward=backward
    )


def _row_max(ctx, x, m):
    np.max(x, axis=1, out=m)


def _row_max_backward(ctx, gm, x, m, gx):
    np.multiply(x == m[:, None], gm[:, None], out=gx)


def row_max(x, name="max"):
    """`m[b] = max over c of x[b, c]`."""

    def backward(op, gm):
        inputs = [gm, op.inputs[0], op.outputs[0]]
        return gm.graph.launch(
            f"{op.name}.dx", "b, b c, b -> b c", inputs, kernel=_row_max_backward
        )

    return x.graph.launch(name, "b c -> max[b]", [x], kernel=_row_max, backward=backward)


def _column_sum(ctx, x, s):
    np.sum(x, axis=0, out=s)


def column_sum(x, name="columns"):
    """`s[c] = sum over b of x[b, c]`."""

    def backward(op, gs):
        copy = lambda ctx, g, x, y: np.copyto(y, g)
        return gs.graph.launch(f"{op.name}.dx", "c, b c -> b c", [gs, op.inputs[0]], kernel=copy)

    return x.graph.launch(name, "b c -> c", [x], kernel=_column_sum, backward=backward)


def _count(ctx, x, total, squares):
    total += x.sum(axis=0)
    squares += (x * x).sum(axis=0)


def count(x, total, squares, name="count"):
    """Adds the columns of `x`, and their squares, to two states."""
    x.graph.launch(name, "b c, c, c ->", [x, total, squares], kernel=_count, adds=[total, squares])


def _add_row(ctx, x, row, y):
    np.add(x, row, out=y)


def add_row(x, row, name="bias"):
    """`y[b, c] = x[b, c] + row[c]`."""

    def backward(op, gy):
        return gy, gy.graph.launch(f"{op.name}.drow", "b c -> c", [gy], kernel=_column_sum)

    return x.graph.launch(name, "b c, c -> b c", [x, row], kernel=_add_row, backward=backward)


def _scale_rows(ctx, x, s, y):
    np.multiply(x, s[:, None], out=y)


def _scale_rows_ds(ctx, gy, x, gs):
    np.sum(gy * x, axis=1, out=gs)


def scale_rows(x, s, name="scale"):
    """`y[b, c] = x[b, c] s[b]`."""

    def backward(op, gy):
        (x, s), launch = op.inputs, gy.graph.launch
        return (
            launch(f"{op.name}.dx", "b c, b -> b c", [gy, s], kernel=_scale_rows),
            launch(f"{op.name}.ds", "b c, b c -> b", [gy, x], kernel=_scale_rows_ds),
        )

    return x.graph.launch(name, "b c, b -> b c", [x, s], kernel=_scale_rows, backward=backward)


def _centre(ctx, x, y):
    np.subtract(x, x.mean(axis=1, keepdims=True), out=y)


def centre(x, name="centre"):
    """Rows without their mean: an operator whose axis `^c` is never split."""
    backward = lambda op, gy: gy.graph.launch(f"{op.name}.dx", "b ^c -> b ^c", [gy], kernel=_centre)
    return x.graph.launch(name, "b ^c -> b ^c", [x], kernel=_centre, backward=backward)


def _moments(count, ctx, x, s, q):
    s[...] = x.sum(axis=1) / count
    q[...] = (x * x).sum(axis=1) / count


def moments(x, name="moments"):
    """Means and mean squares of the rows: two outputs; the gradient of either may be None."""

    width = x.shape[1]

    def backward(op, gs, gq):
        given = [g for g in (gs, gq) if g is not None]

        def kernel(ctx, x, *rest):
            *gradients, y = rest
            y[...] = 0
            for g, is_square in zip(gradients, [h is gq for h in given], strict=True):
                y += g[:, None] / width * (2 * x if is_square else 1)

        pattern = "b c" + ", b" * len(given) + " -> b c"
        return given[0].graph.launch(
            f"{op.name}.dx", pattern, [op.inputs[0], *given], kernel=kernel
        )

    return x.graph.launch(
        name, "b c -> b, b", [x], kernel=partial(_moments, width), backward=backward
    )


def _look_up(ctx, index, table, y):
    lo, hi = ctx.interval("v")
    mine = (index >= lo) & (index < hi)
    y[...] = np.where(mine[:, None], table[np.where(mine, index - lo, 0)], 0)


def _look_up_backward(ctx, index, gy, gtable):
    lo, hi = ctx.interval("v")
    mine = (index >= lo) & (index < hi)
    gtable[...] = 0
    np.add.at(gtable, index[mine] - lo, gy[mine])


def embedding(index, count, width, name="embedding"):
    """`y[b] = table[index[b]]`; the table may be split over its rows."""
    graph = index.graph
    table = parameter(graph, f"{graph.unique_name(name)}.weight", (count, width))

    def backward(op, gy):
        options = {"kernel": _look_up_backward, "sizes": {"v": count}, "dtype": "float64"}
        gradient = gy.graph.launch(
            f"{op.name}.dweight", "b, b d -> v d", [op.inputs[0], gy], **options
        )
        return None, gradient

    return graph.launch(name, "b, v d -> b d", [index, table], kernel=_look_up, backward=backward)


# -- groups ------------------------------------------------------------------------------------------------------------


def _reshape(ctx, x, y):
    y[...] = x.reshape(y.shape)


def split_heads(x, heads, name="heads"):
    """(b, h d) -> (b, h, d)."""
    sizes = {"h": heads}
    back = lambda op, gy: gy.graph.launch(
        f"{op.name}.dx", "b h d -> b (h d)", [gy], kernel=_reshape
    )
    return x.graph.launch(
        name, "b (h d) -> b h d", [x], kernel=_reshape, sizes=sizes, backward=back
    )


def flatten(x, name="flat"):
    """(n, c, h, w) -> (n, c h w)."""
    sizes = dict(zip("chw", x.shape[1:], strict=True))

    def backward(op, gy):
        return gy.graph.launch(
            f"{op.name}.dx", "n (c h w) -> n c h w", [gy], kernel=_reshape, sizes=sizes
        )

    return x.graph.launch(name, "n c h w -> n (c h w)", [x], kernel=_reshape, backward=backward)


# -- in place ----------------------------------------------------------------------------------------------------------


def _double(ctx, x):
    x *= 2


def double(x, name="double"):
    """`x *= 2` in place."""
    return x.graph.launch(name, f"{term(x)} ->", [x], kernel=_double, writes=[x])


def _decay(ctx, state, x):
    state *= 0.5
    state += 0.1 * x


def decay(state, x, name="decay"):
    """`state = state / 2 + x / 10` in place."""
    t = term(state)
    return state.graph.launch(name, f"{t}, {t} ->", [state, x], kernel=_decay, writes=[state])


def _sgd(lr, ctx, w, g):
    w -= lr * g


def _momentum(lr, momentum, ctx, w, g, v):
    v *= momentum
    v += g
    w -= lr * v


def ancestors(region, candidates):
    """Those of `candidates` that `region` is made from."""
    needed = {region.name}
    for op in reversed(region.graph.operators):
        if any(r.name in needed for r in op.outputs):
            needed.update(r.name for r in op.inputs)
    return [r for r in candidates if r.name in needed]


def sgd(loss, lr=0.05, momentum=0.9, own=()):
    """Append gradients and updates of the parameters that the loss depends on; gives name -> gradient region.

    The updates of the parameters named in `own` are operators of their own in a strategy; the others follow.
    """
    graph = loss.graph
    graph.output("loss", loss)
    found = differentiate(loss, ancestors(loss, graph.parameters))
    for w, g in found.items():
        others = [g]
        kernel = partial(_sgd, lr)
        if momentum:
            others.append(
                graph.parameter(f"{w.name}.momentum", w.shape, dtype=w.dtype, trainable=False)
            )
            kernel = partial(_momentum, lr, momentum)
        if w.name in own:
            t = term(w)
            pattern = ", ".join([t] * (1 + len(others))) + " ->"
            graph.launch(
                f"{w.name}.update", pattern, [w, *others], kernel=kernel, writes=[w, *others[1:]]
            )
        else:
            update(f"{w.name}.update", w, [w, *others], kernel=kernel, writes=[w, *others[1:]])
    return {w.name: g for w, g in found.items()}
