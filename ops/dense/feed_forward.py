"""Two affine maps with an activation between, the feed-forward part of a transformer: y = W2 act(W1 x + b1) + b2.

What lies between is nobody else's. So its gradient passes the activation in the operator that makes it: on a GPU that
is the epilogue DGELU of cuBLASLt, on its argument, which the first map has kept. ReLU needs no more than its result;
cuBLASLt would want a mask in a format of its own, which would have to be a region. So it is a second pass, in place.

Splits: the hidden values over `o` of the first map and `i` of the second (Parameter; column, then row parallel, partial
sums), the leading axes (Sample, Attribute) of both.

The epilogues of gradients ran on an H200 on 2026-11-27: right in four precisions; in float64, where the constant of
cuBLASLt's GELU is shorter, 2.6e-10 off, so that one is not taken there.
"""

from __future__ import annotations

from functools import partial

from ops.building import check_positive, checked, distinct, launch_first, parameters, term, terms
from ops.dense.linear import (
    activated,
    forward,
    gradients_of,
    gradients_of_parameters,
    multiply,
    multiply_with,
    pattern_of,
)
from ops.elementwise.activation import GELU_TANH, relu_gradient
from ops.expressions.expression import Expression
from ops.expressions.passes import evaluate
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def feed_forward(
    x: LogicalRegion,
    hidden_features: int,
    out_features: int | None = None,
    activation: str = "gelu_tanh",
    bias: bool = True,
    name: str | None = None,
) -> LogicalRegion:
    """`linear(linear(x, hidden_features, activation=activation), out_features)`, with a shorter gradient.

    Args:
        x: (..., in_features), floating point.
        hidden_features: extent between the two maps.
        out_features: of the result; default: that of `x`.
        activation: "gelu_tanh" or "relu".
        bias: whether the maps add one.
        name: the maps are `<name>.fc1` and `<name>.fc2`, with parameters as those of `linear`.

    Returns:
        (..., out_features), of the dtype of `x`.

    Raises:
        ValueError: `x` is a scalar or not of floating point, an extent is not positive, or there is no such activation.
    """
    where = checked("feed_forward", name, x, least=1)
    if activation not in ("gelu_tanh", "relu"):
        raise ValueError(f"{where}: activation is '{activation}', it is 'gelu_tanh' or 'relu'")
    out_features = x.shape[-1] if out_features is None else out_features
    check_positive(where, hidden_features=hidden_features, out_features=out_features)
    name = x.graph.unique_name(name or "feed_forward", "fc1")
    hidden, *kept = activated(
        f"{name}.fc1",
        [x, *parameters(x, f"{name}.fc1", (hidden_features, x.shape[-1]), bias)],
        activation,
        _hidden_backward,
    )
    return launch_first(
        f"{name}.fc2",
        pattern_of(hidden, bias, "i", *[_between(hidden)] * len(kept)),
        [
            hidden,
            *parameters(hidden, f"{name}.fc2", (out_features, hidden_features), bias),
            *kept,
        ],
        kernel=_forward.bind(has_kept=bool(kept)),
        backward=partial(_backward, bias=bias, activation=activation),
    )


def _between(hidden: LogicalRegion) -> str:
    return term((*distinct(hidden.axes[:-1], ("i", "o")), "i"))


@partial(Kernel, takes_mixed_on_cuda=True)
def _forward(ctx: Context, x: Array, weight: Array, *rest: Array, has_kept: bool) -> None:
    *bias, y = rest[:-2] + rest[-1:] if has_kept else rest
    forward(ctx, x, weight, *bias, y)


def _hidden_backward(op: Operator, *gradients: LogicalRegion | None) -> tuple[LogicalRegion, ...]:
    """Of the first map: what the second one passes on is past the activation already."""
    (g,) = (g for g in gradients if g is not None)
    return gradients_of(op, g)


def _backward(
    op: Operator, gy: LogicalRegion, *, bias: bool, activation: str
) -> tuple[LogicalRegion | None, ...]:
    """The gradient past the activation is that of its argument, or, with ReLU, stands for that of its result."""
    (x_term, *_), (y_term,) = terms(op)
    is_gelu = activation == "gelu_tanh"
    g = launch_first(
        f"{op.name}.dx",
        # partial sums cannot pass the activation
        f"{y_term.removesuffix('o')}^o, ^o i, {x_term} -> {x_term}",
        [gy, op.inputs[1], op.inputs[-1 if is_gelu else 0]],
        kernel=_gradient.bind(expression=GELU_TANH.gradients["x"] if is_gelu else None),
        flops=2,
    )
    of_parameters = gradients_of_parameters(op, gy, bias)
    return (None, *of_parameters, g) if is_gelu else (g, *of_parameters)


@partial(Kernel, takes_mixed_on_cuda=True)
def _gradient(
    ctx: Context,
    gy: Array,
    weight: Array,
    kept: Array,
    g: Array,
    *,
    expression: Expression | None,
) -> None:
    """g = (gy weight) times the slope of the activation: `expression`, of GELU's argument, or that of ReLU's result."""
    if expression is not None and multiply_with(ctx, gy, weight.T, g, "dgelu", None, kept):
        return
    product = g if expression is None else ctx.scratch("product", g.shape, g.dtype)
    multiply(ctx, gy, weight, product)
    if expression is None:
        relu_gradient(ctx, product, kept, g)
    else:
        evaluate(ctx, expression, {"g": product, "x": kept}, g)
