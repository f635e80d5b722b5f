"""Affine maps of the last dimension: y = x Wᵀ + b.

Splits over the leading axes (Sample, Attribute), over `o` (Parameter: column parallel) and over `i` (Parameter: row
parallel, partial sums).
"""

from __future__ import annotations

from ops.build import check_positive, check_region, distinct, first, term, terms
from ops.initializers import Init, bias_of, fan_in_uniform
from ops.tiles import Array, Context, rows
from taskflow import LogicalRegion, Operator


def linear(
    x: LogicalRegion,
    out_features: int,
    bias: bool = True,
    name: str | None = None,
    *,
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> LogicalRegion:
    """y[..., o] = sum over i of x[..., i] weight[o, i] + bias[o], as torch.nn.functional.linear.

    Args:
        x: (..., in_features), floating point.
        out_features: extent of the last dimension of the result.
        bias: whether to add `<name>.bias` of shape (out_features,).
        name: of the operator; its parameters are `<name>.weight` (out_features, in_features) and `<name>.bias`.
        weight_init, bias_init: first values; default torch's, uniform in ±1/sqrt(in_features).

    Returns:
        (..., out_features), of the dtype of `x`.

    Raises:
        ValueError: `x` is a scalar or not of floating point, or `out_features` is not positive.
    """
    where = f"linear '{name or 'linear'}'"
    check_region(where, x)
    if x.ndim == 0:
        raise ValueError(f"{where}: '{x.name}' is a scalar, at least one dimension is needed")
    check_positive(where, out_features=out_features)
    graph = x.graph
    name = graph.unique_name(name or "linear")
    shape = (out_features, x.shape[-1])
    inputs = [
        x,
        graph.parameter(f"{name}.weight", shape, fan_in_uniform if weight_init is None else weight_init, x.dtype),
    ]
    if bias:
        init = bias_of(shape) if bias_init is None else bias_init
        inputs.append(graph.parameter(f"{name}.bias", (out_features,), init, x.dtype))
    lead = distinct(x.axes[:-1], ("i", "o"))
    pattern = f"{term((*lead, 'i'))}, o i{', o' if bias else ''} -> {term((*lead, 'o'))}"
    return first(graph.launch(name, pattern, inputs, kernel=_forward, backward=_backward))


def _forward(ctx: Context, x: Array, weight: Array, *rest: Array) -> None:
    *bias, y = rest
    _multiply(ctx, x, weight.T, y)
    if bias and ctx.interval("i")[0] == 0:  # once among the partial sums
        ctx.xp.add(y, bias[0], out=y)


def _multiply(ctx: Context, x: Array, matrix: Array, y: Array) -> None:
    """y = x matrix over the last dimension; one matrix product where the memory allows it."""
    if y.ndim > 2 and y.flags.c_contiguous:
        x, y = rows(ctx, "x", x), y.reshape(-1, y.shape[-1])
    ctx.xp.matmul(x, matrix, out=y)


def _backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, ...]:
    (x_term, *_), (y_term,) = terms(op)
    x, weight, *bias = op.inputs
    launch = x.graph.launch
    gradients = [
        first(launch(f"{op.name}.dx", f"{y_term}, o i -> {x_term}", [gy, weight], kernel=_gradient_x)),
        first(launch(f"{op.name}.dweight", f"{y_term}, {x_term} -> o i", [gy, x], kernel=_gradient_weight)),
    ]
    if bias:
        gradients.append(first(launch(f"{op.name}.dbias", f"{y_term} -> o", [gy], kernel=_gradient_bias, flops=1)))
    return tuple(gradients)


def _gradient_x(ctx: Context, gy: Array, weight: Array, gx: Array) -> None:
    _multiply(ctx, gy, weight, gx)


def _gradient_weight(ctx: Context, gy: Array, x: Array, gweight: Array) -> None:
    ctx.xp.matmul(rows(ctx, "gy", gy).T, rows(ctx, "x", x), out=gweight)


def _gradient_bias(ctx: Context, gy: Array, gbias: Array) -> None:
    ctx.xp.sum(gy, axis=tuple(range(gy.ndim - 1)), out=gbias)
