"""Affine maps of the last dimension: y = x Wᵀ + b.

Splits over the leading axes (Sample, Attribute), over `o` (Parameter: column parallel) and over `i` (Parameter: row
parallel, partial sums).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

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
from ops.elementwise.activation import ACTIVATIONS, GELU_TANH, RELU, relu_gradient
from ops.elementwise.pointwise import computes, pointwise
from ops.expressions.expression import Expression
from ops.expressions.passes import evaluate
from ops.initializers import Init
from ops.tiles import add_product, matrix, result_matrix, rows
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

Backward = Callable[..., Any]
_GELU = pointwise(GELU_TANH.value, ("x",), {})


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
    where = checked("linear", name, x, least=1)
    check_positive(where, out_features=out_features)
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(
            f"{where}: activation is '{activation}', it is {' or '.join(map(repr, ACTIVATIONS))}"
        )
    name = x.graph.unique_name(name or "linear")
    inputs = [x, *parameters(x, name, (out_features, x.shape[-1]), bias, weight_init, bias_init)]
    if activation is None:
        return launch_first(
            name,
            pattern_of(x, bias),
            inputs,
            kernel=forward,
            backward=gradients_of,
        )
    return activated(name, inputs, activation, partial(_backward_active, activation=activation))[0]


def pattern_of(x: LogicalRegion, bias: bool, i: str = "i", *more: str) -> str:
    """The pattern of an affine map; `more` terms of inputs behind the parameters."""
    lead = distinct(x.axes[:-1], ("i", "o"))
    inputs = [term((*lead, i)), f"o {i}", *(["o"] if bias else []), *more]
    return f"{', '.join(inputs)} -> {term((*lead, 'o'))}"


def activated(
    name: str, inputs: list[LogicalRegion], activation: str, backward: Backward
) -> tuple[LogicalRegion, ...]:
    """The results of an affine map with an activation: of both, and with GELU the argument of that."""
    pattern = pattern_of(inputs[0], len(inputs) > 2, "^i")
    if activation == "gelu_tanh":
        pattern += f", {pattern.split(' -> ')[1]}"  # what the gradient reads
    kernel = _forward_active.bind(activation=activation)
    return launch_all(
        name,
        pattern,
        inputs,
        kernel=kernel,
        backward=backward,
    )


def _join_activation(op: Operator, k: int, other: Operator, is_kept: bool) -> Kernel | None:
    """An activation behind an affine map, whose `i` is not split then; see `taskflow.Kernel`."""
    if other.kernel is not forward or not computes(op, GELU_TANH.value if is_kept else RELU.value):
        return None
    return _forward_active.bind(activation="gelu_tanh" if is_kept else "relu")


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True, join=_join_activation)
def forward(ctx: Context, x: Array, weight: Array, *rest: Array) -> None:
    """y = x Wᵀ + b of one tile; the bias, if there is one, and y are `rest`."""
    *bias, y = rest
    if ctx.interval("i")[0] != 0:
        bias = []  # once among the partial sums
    if bias and multiply_with(ctx, x, weight, y, "bias", bias[0]):
        return
    multiply(ctx, x, weight.T, y)
    if bias:
        ctx.xp.add(y, bias[0], out=y)


@partial(Kernel, is_compiled=True, is_captured=True, takes_mixed_on_cuda=True)
def _forward_active(ctx: Context, x: Array, weight: Array, *rest: Array, activation: str) -> None:
    """With Gelu the second output is its argument."""
    kept = rest[-1] if activation == "gelu_tanh" else None
    *bias, y = rest if kept is None else rest[:-1]
    if multiply_with(
        ctx,
        x,
        weight,
        y,
        ("relu" if kept is None else "gelu_aux") + ("_bias" if bias else ""),
        bias[0] if bias else None,
        kept,
    ):
        return
    before = y if kept is None else kept
    multiply(ctx, x, weight.T, before)
    if bias:
        ctx.xp.add(before, bias[0], out=before)
    if kept is None:
        ctx.xp.maximum(y, 0, out=y)
    else:
        _GELU(ctx, kept, y)


def multiply_with(
    ctx: Context,
    x: Array,
    weight: Array,
    y: Array,
    epilogue: str,
    bias: Array | None,
    kept: Array | None = None,
) -> bool:
    """y = epilogue(x weightᵀ + bias) in one call on a GPU; False where that cannot be, and nothing was done.

    `kept` is what the epilogue writes or reads beside the product, of the shape of `y`.
    """
    if not ctx.is_cuda or not y.size or not x.size:
        return False
    if not all(a is None or a.flags.c_contiguous for a in (y, kept, bias)):
        return False
    aux = None if kept is None else kept.reshape(-1, kept.shape[-1])
    if aux is not None and aux.shape[1] % 8:  # what cuBLASLt asks for
        return False
    return bool(
        ctx.xp.product(rows(ctx, "x", x), weight.T, y.reshape(-1, y.shape[-1]), epilogue, bias, aux)
    )


def multiply_biased(ctx: Context, x: Array, weight: Array, y: Array, bias: Sequence[Array]) -> None:
    """y = x weightᵀ + bias, if there is one, of matrices."""
    if bias and multiply_with(ctx, x, weight, y, "bias", bias[0]):
        return
    ctx.xp.matmul(x, weight.T, out=y)
    if bias:
        ctx.xp.add(y, bias[0], out=y)


def multiply(ctx: Context, x: Array, right: Array, y: Array) -> None:
    """y = x right over the last dimension, as one matrix product."""
    with result_matrix(ctx, "y", y) as flat:
        ctx.xp.matmul(matrix(ctx, "x", x), right, out=flat)


def _backward_active(
    op: Operator, gy: LogicalRegion | None, *kept: LogicalRegion | None, activation: str
) -> tuple[LogicalRegion, ...]:
    assert gy is not None, "only the first output is public"
    y = terms(op)[1][0]
    kernel = (
        relu_gradient
        if activation == "relu"
        else _gelu_gradient.bind(expression=GELU_TANH.gradients["x"])
    )
    inputs = [gy, op.outputs[-1]]
    return gradients_of(
        op,
        launch_first(
            f"{op.name}.dz",
            f"{y}, {y} -> {y}",
            inputs,
            kernel=kernel,
            flops=20,
        ),
    )


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True)
def _gelu_gradient(ctx: Context, gy: Array, x: Array, gx: Array, *, expression: Expression) -> None:
    evaluate(ctx, expression, {"g": gy, "x": x}, gx)


def gradients_of(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, ...]:
    """Of the input and the parameters of an affine map."""
    (x_term, *_), (y_term, *_) = terms(op)
    pattern = f"{y_term}, o i -> {x_term.replace('^', '')}"  # a gradient with respect to x may be split along i
    gx = launch_first(f"{op.name}.dx", pattern, [gy, op.inputs[1]], kernel=_gradient_x)
    return gx, *gradients_of_parameters(op, gy, len(op.inputs) > 2)


def gradients_of_parameters(
    op: Operator, gy: LogicalRegion, bias: bool
) -> tuple[LogicalRegion, ...]:
    """Of the weight, and of the bias by the same operator: cuBLASLt sums what the product reads anyway."""
    (x_term, *_), (y_term, *_) = terms(op)
    pattern = f"{y_term}, {x_term.replace('^', '')} -> o i{', o' if bias else ''}"
    return launch_all(
        f"{op.name}.dweight", pattern, [gy, op.inputs[0]], kernel=_gradient_parameters
    )


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True)
def _gradient_x(ctx: Context, gy: Array, weight: Array, gx: Array) -> None:
    multiply(ctx, gy, weight, gx)


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True, accumulates=True)
def _gradient_parameters(ctx: Context, gy: Array, x: Array, gweight: Array, *gbias: Array) -> None:
    multiply_gradients(
        ctx, matrix(ctx, "gy", gy), matrix(ctx, "x", x), gweight, gbias, ctx.interval("i")[0] == 0
    )


def multiply_gradients(
    ctx: Context,
    gy: Array,
    x: Array,
    gweight: Array,
    gbias: Sequence[Array],
    counts: bool,
) -> None:
    """gyᵀ x, and for the bias, if there is one, the sums of the columns of gy: zero unless it `counts`.

    It counts once among the points of a split axis that the bias does not have. Of an operator whose outputs are these;
    its kernel may accumulate.
    """
    if (
        not (ctx.adds_to(0) or ctx.adds_to(1))
        and counts
        and gbias
        and _gradients_with(ctx, gy, x, gweight, gbias[0])
    ):
        return
    if gbias:
        _sum_columns(ctx, gy, gbias[0], counts)
    if ctx.adds_to(0):
        add_product(ctx, gy.T, x, gweight)
    else:
        ctx.xp.matmul(gy.T, x, out=gweight)


def _sum_columns(ctx: Context, gy: Array, gbias: Array, counts: bool) -> None:
    if not ctx.adds_to(1):
        if counts:
            ctx.xp.sum(gy, axis=0, dtype=gbias.dtype, out=gbias)
        else:
            ctx.xp.copyto(gbias, 0)
    elif counts:
        sums = ctx.scratch("columns", gbias.shape, gbias.dtype)
        ctx.xp.sum(gy, axis=0, dtype=gbias.dtype, out=sums)
        ctx.xp.add(gbias, sums, out=gbias)


def _gradients_with(ctx: Context, gy: Array, x: Array, gweight: Array, gbias: Array) -> bool:
    """gyᵀ x and the sums of the columns of gy in one call on a GPU; False: nothing was done."""
    if not ctx.is_cuda or not gy.size or not x.size:
        return False
    sums = gbias if gbias.flags.c_contiguous else ctx.scratch("sums", gbias.shape, gbias.dtype)
    if not ctx.xp.product(gy.T, x, gweight, "bias_gradient_of_second", sums):
        return False
    if sums is not gbias:
        ctx.xp.copyto(gbias, sums)
    return True
