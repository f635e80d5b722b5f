"""Projections whose results, or inputs, are features of heads: parts of them follow heads, never a cut through one.

Splits over the batch, positions and heads `k` (Parameter), and, as partial sums, over what is summed.
"""

from __future__ import annotations

from functools import partial

from ops.building import (
    check_positive,
    checked,
    distinct,
    launch_all,
    launch_first,
    parameters,
    term,
    terms,
)
from ops.dense.linear import multiply_biased, multiply_gradients
from ops.tiles import matrix, result_matrix
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def project_to_heads(
    x: LogicalRegion,
    num_heads: int,
    head_features: int,
    bias: bool = True,
    name: str | None = None,
) -> LogicalRegion:
    """y[b, s, k, d] = sum over i of x[b, s, i] weight[(k d), i] + bias[(k d)]: `linear`, seen as heads.

    Args:
        x: (batch, positions, features) or (positions, features), floating point.
        num_heads, head_features: of the result; their product is the number of rows of `<name>.weight`.
        bias: whether to add `<name>.bias`.
        name: of the operator.

    Returns:
        (batch, positions, num_heads, head_features), or without a batch.

    Raises:
        ValueError: `x` has other dimensions or another dtype, or a number is not positive.
    """
    where = checked("project_to_heads", name, x, ndim=(2, 3))
    check_positive(where, num_heads=num_heads, head_features=head_features)
    points = term(distinct(x.axes[:-1], ("i", "k", "d")))
    pattern = f"{points} i, (k ^d) i -> {points} k ^d"
    shape = num_heads * head_features, x.shape[-1]
    name = x.graph.unique_name(name or "project_to_heads")
    return _project(x, shape, num_heads, bias, name, pattern, "(k ^d)", "i")


def project_from_heads(
    x: LogicalRegion, out_features: int, bias: bool = True, name: str | None = None
) -> LogicalRegion:
    """y[b, s, o] = sum over k, d of x[b, s, k, d] weight[o, (k d)] + bias[o]: `linear` of all heads.

    Args:
        x: (batch, positions, heads, features) or (positions, heads, features), floating point.
        out_features: rows of `<name>.weight`.
        bias: whether to add `<name>.bias`.
        name: of the operator.

    Returns:
        (batch, positions, out_features), or without a batch.

    Raises:
        ValueError: `x` has other dimensions or another dtype, or `out_features` is not positive.
    """
    where = checked("project_from_heads", name, x, ndim=(3, 4))
    check_positive(where, out_features=out_features)
    points = term(distinct(x.axes[:-2], ("o", "k", "d")))
    pattern = f"{points} k ^d, o (k ^d) -> {points} o"
    shape = out_features, x.shape[-2] * x.shape[-1]
    name = x.graph.unique_name(name or "project_from_heads")
    return _project(x, shape, x.shape[-2], bias, name, pattern, "o", "k")


def _project(
    x: LogicalRegion,
    shape: tuple[int, int],
    heads: int,
    bias: bool,
    name: str,
    pattern: str,
    rows: str,
    summed: str,
) -> LogicalRegion:
    """A product with `<name>.weight` whose rows or columns are grouped by heads; a bias has the axes of its rows."""
    if bias:
        pattern = pattern.replace(" ->", f", {rows} ->")
    return launch_first(
        name,
        pattern,
        [x, *parameters(x, name, shape, bias)],
        kernel=_forward.bind(summed=summed),
        sizes={"k": heads},
        backward=partial(_project_backward, summed=summed),
    )


def _project_backward(op: Operator, gy: LogicalRegion, *, summed: str) -> tuple[LogicalRegion, ...]:
    (x_term, weight_term, *rows), (y_term,) = terms(op)
    sizes = {"k": op.extents["k"]}
    gx = launch_first(
        f"{op.name}.dx",
        f"{y_term}, {weight_term} -> {x_term}",
        [gy, op.inputs[1]],
        kernel=_dx.bind(summed=summed),
        sizes=sizes,
    )
    return gx, *launch_all(
        f"{op.name}.dweight",
        f"{y_term}, {x_term} -> {', '.join((weight_term, *rows))}",
        [gy, op.inputs[0]],
        kernel=_gradient_parameters.bind(summed=summed),
        sizes=sizes,
    )


_READ = {"i": -1, "k": -2}
_MADE = {"i": -2, "k": -1}  # dimensions that are features, of x and of y


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True)
def _forward(ctx: Context, x: Array, weight: Array, *rest: Array, summed: str) -> None:
    *bias, y = rest
    if ctx.interval(summed)[0] != 0:
        bias = []  # once among the partial sums
    left = matrix(ctx, "x", x, _READ[summed])
    with result_matrix(ctx, "y", y, _MADE[summed]) as flat:
        multiply_biased(ctx, left, weight, flat, bias)


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True)
def _dx(ctx: Context, gy: Array, weight: Array, gx: Array, *, summed: str) -> None:
    with result_matrix(ctx, "gx", gx, _READ[summed]) as flat:
        ctx.xp.matmul(matrix(ctx, "gy", gy, _MADE[summed]), weight, out=flat)


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True, accumulates=True)
def _gradient_parameters(
    ctx: Context,
    gy: Array,
    x: Array,
    gweight: Array,
    *gbias: Array,
    summed: str,
) -> None:
    left = matrix(ctx, "gy", gy, _MADE[summed])
    right = matrix(ctx, "x", x, _READ[summed])
    multiply_gradients(ctx, left, right, gweight, gbias, ctx.interval(summed)[0] == 0)
