"""Affine maps of the last dimension: y = x Wᵀ + b.

Splits over the leading axes (Sample, Attribute), over `o` (Parameter: column parallel) and over `i` (Parameter: row
parallel, partial sums).
"""

from __future__ import annotations

from functools import partial

from ops.activation import ACTIVATIONS, GELU_TANH, relu_gradient
from ops.build import check_positive, check_region, distinct, first, term, terms
from ops.expressions import Expression
from ops.initializers import Init, bias_of, fan_in_uniform
from ops.tiles import Array, Context, deliver_matrix, matrix, result_matrix, rows
from taskflow import LogicalRegion, Operator, on_cuda


def linear(
    x: LogicalRegion,
    out_features: int,
    bias: bool = True,
    name: str | None = None,
    *,
    activation: str | None = None,
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> LogicalRegion:
    """y[..., o] = sum over i of x[..., i] weight[o, i] + bias[o], as torch.nn.functional.linear.

    Args:
        x: (..., in_features), floating point.
        out_features: extent of the last dimension of the result.
        bias: whether to add `<name>.bias` of shape (out_features,).
        name: of the operator; its parameters are `<name>.weight` (out_features, in_features) and `<name>.bias`.
        activation: "relu", "gelu_tanh" or None: of the result, in the same operator; then `i` cannot be split.
        weight_init, bias_init: first values; default torch's, uniform in ±1/sqrt(in_features).

    Returns:
        (..., out_features), of the dtype of `x`.

    Raises:
        ValueError: `x` is a scalar or not of floating point, `out_features` is not positive, or there is no such
            activation.
    """
    where = f"linear '{name or 'linear'}'"
    check_region(where, x)
    if x.ndim == 0:
        raise ValueError(f"{where}: '{x.name}' is a scalar, at least one dimension is needed")
    check_positive(where, out_features=out_features)
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"{where}: activation is '{activation}', it is {' or '.join(map(repr, ACTIVATIONS))}")
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
    i, y = "^i" if activation else "i", term((*lead, "o"))
    pattern = f"{term((*lead, i))}, o {i}{', o' if bias else ''} -> {y}"
    if activation is None:
        return first(graph.launch(name, pattern, inputs, kernel=_forward, backward=_backward))
    if activation == "gelu_tanh":
        pattern += f", {y}"  # what the gradient reads
    kernel, backward = partial(_forward_active, activation=activation), partial(_backward_active, activation=activation)
    return first(graph.launch(name, pattern, inputs, kernel=kernel, backward=backward))


@on_cuda()
def _forward(ctx: Context, x: Array, weight: Array, *rest: Array) -> None:
    *bias, y = rest
    if ctx.interval("i")[0] != 0:
        bias = []  # once among the partial sums
    if bias and _multiply_with(ctx, x, weight, y, "bias", bias[0]):
        return
    _multiply(ctx, x, weight.T, y)
    if bias:
        ctx.xp.add(y, bias[0], out=y)


@on_cuda()
def _forward_active(ctx: Context, x: Array, weight: Array, *rest: Array, activation: str) -> None:
    """With Gelu the second output is its argument."""
    kept = rest[-1] if activation == "gelu_tanh" else None
    *bias, y = rest if kept is None else rest[:-1]
    epilogue = ("relu" if kept is None else "gelu_aux") + ("_bias" if bias else "")
    if bias and _multiply_with(ctx, x, weight, y, epilogue, bias[0], kept):
        return
    before = y if kept is None else kept
    _multiply(ctx, x, weight.T, before)
    if bias:
        ctx.xp.add(before, bias[0], out=before)
    if kept is None:
        ctx.xp.maximum(y, 0, out=y)
    else:
        GELU_TANH.value.evaluate(ctx, {"x": kept}, y)


def _multiply_with(
    ctx: Context, x: Array, weight: Array, y: Array, epilogue: str, bias: Array, kept: Array | None = None
) -> bool:
    """y = epilogue(x weightᵀ + bias) in one call on a GPU; False where that cannot be, and nothing was done."""
    outputs = [y] if kept is None else [y, kept]
    if not ctx.is_cuda or not y.size or not x.size or not all(a.flags.c_contiguous for a in (*outputs, bias)):
        return False
    flat = [a.reshape(-1, a.shape[-1]) for a in outputs]
    aux = None if kept is None else flat[1]
    if aux is not None and aux.shape[1] % 8:  # what cuBLASLt asks for
        return False
    return bool(ctx.xp.product(rows(ctx, "x", x), weight.T, flat[0], epilogue, bias, aux))


def _multiply(ctx: Context, x: Array, right: Array, y: Array) -> None:
    """y = x right over the last dimension, as one matrix product."""
    flat = result_matrix(ctx, "y", y)
    ctx.xp.matmul(matrix(ctx, "x", x), right, out=flat)
    deliver_matrix(ctx, flat, y)


def _backward_active(
    op: Operator, gy: LogicalRegion | None, *kept: LogicalRegion | None, activation: str
) -> tuple[LogicalRegion, ...]:
    assert gy is not None, "only the first output is public"
    y = terms(op)[1][0]
    kernel = relu_gradient if activation == "relu" else partial(_gelu_gradient, expression=GELU_TANH.gradients["x"])
    inputs = [gy, op.outputs[-1]]
    return _backward(op, first(gy.graph.launch(f"{op.name}.dz", f"{y}, {y} -> {y}", inputs, kernel=kernel, flops=20)))


@on_cuda()
def _gelu_gradient(ctx: Context, gy: Array, x: Array, gx: Array, *, expression: Expression) -> None:
    expression.evaluate(ctx, {"g": gy, "x": x}, gx)


def _backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, ...]:
    (x_term, *_), (y_term, *_) = terms(op)
    x_term = x_term.replace("^", "")  # a gradient with respect to x may be split along i
    x, weight, *bias = op.inputs
    launch = x.graph.launch
    gradients = [
        first(launch(f"{op.name}.dx", f"{y_term}, o i -> {x_term}", [gy, weight], kernel=_gradient_x)),
        first(launch(f"{op.name}.dweight", f"{y_term}, {x_term} -> o i", [gy, x], kernel=_gradient_weight)),
    ]
    if bias:
        gradients.append(first(launch(f"{op.name}.dbias", f"{y_term} -> o", [gy], kernel=_gradient_bias, flops=1)))
    return tuple(gradients)


@on_cuda()
def _gradient_x(ctx: Context, gy: Array, weight: Array, gx: Array) -> None:
    _multiply(ctx, gy, weight, gx)


@on_cuda()
def _gradient_weight(ctx: Context, gy: Array, x: Array, gweight: Array) -> None:
    ctx.xp.matmul(matrix(ctx, "gy", gy).T, matrix(ctx, "x", x), out=gweight)


def _gradient_bias(ctx: Context, gy: Array, gbias: Array) -> None:
    ctx.xp.sum(gy, axis=tuple(range(gy.ndim - 1)), out=gbias)
