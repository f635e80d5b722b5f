"""Normalization over the last dimension, which stays whole; every other axis may be split. See `norms` for others."""

from __future__ import annotations

from functools import partial

from ops.building import check_region, distinct, launch_all, launch_first, parameters, term, terms
from ops.cuda import rows as gpu_rows
from ops.initializers import Init
from ops.norm.norms import composed_layer_norm
from ops.tiles import contiguous, deliver, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def layer_norm(
    x: LogicalRegion,
    eps: float = 1e-5,
    name: str | None = None,
    *,
    weight_init: Init = 1.0,
    bias_init: Init = 0.0,
    composed: bool = False,
) -> LogicalRegion:
    """(x - mean) / sqrt(var + eps) weight + bias over the last dimension (Ba, Kiros, Hinton 2016), as torch's.

    Args:
        x: (..., features), floating point; the last dimension is never split unless the operator is composed.
        eps: added to the (biased) variance.
        name: of the operator; its parameters are `<name>.weight` and `<name>.bias`, of shape (features,).
        weight_init, bias_init: first values.
        composed: of statistics and result, which read `x` three times, so that the features may be split.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: `x` is a scalar, or of another dtype.
    """
    where = f"layer_norm '{name or 'layer_norm'}'"
    check_region(where, x)
    if x.ndim == 0:
        raise ValueError(f"{where}: '{x.name}' is a scalar, at least one dimension is needed")
    if composed:
        return composed_layer_norm(x, eps, name, weight_init, bias_init)
    name = x.graph.unique_name(name or "layer_norm")
    *lead, last = distinct(x.axes)
    x_term, row, c = term((*lead, f"^{last}")), term(lead), f"^{last}"
    return launch_first(
        name,
        f"{x_term}, {c}, {c} -> {x_term}, {row}, {row}",  # mean and 1 / std of each row serve the gradient
        [x, *parameters(x, name, x.shape[-1:], True, weight_init, bias_init)],
        kernel=_normalize_rows.bind(eps=eps),
        backward=_layer_norm_backward,
        flops=8,
    )


def _layer_norm_backward(
    op: Operator, gy: LogicalRegion | None, *others: LogicalRegion | None
) -> tuple[LogicalRegion, ...]:
    assert gy is not None, "only the first output is public"
    (x_term, c, _), (_, row, _) = terms(op)
    x, weight, _ = op.inputs
    _, mean, scale = op.outputs
    read, known = f"{x_term}, {x_term}, {row}, {row}", [gy, x, mean, scale]
    pattern = f"{read}, {c} -> {x_term}"
    gx = launch_first(f"{op.name}.dx", pattern, [*known, weight], kernel=_gradient_rows, flops=10)
    return gx, *launch_all(f"{op.name}.sums", f"{read} -> {c}, {c}", known, kernel=_row_sums, flops=5)


@partial(Kernel, is_compiled=True, is_captured=True, float32_outputs=(1, 2), cuda=gpu_rows.normalize_rows)
def _normalize_rows(
    ctx: Context, x: Array, weight: Array, bias: Array, y: Array, mean: Array, scale: Array, *, eps: float
) -> None:
    from ops.cpu import rows as cpu_rows

    works = [work_array(ctx, k, a) for k, a in enumerate((y, mean, scale))]
    matrix, m, s = works[0].reshape(-1, x.shape[-1]), works[1].reshape(-1), works[2].reshape(-1)
    ctx.call(cpu_rows.layer_norm, rows(ctx, "x", x), weight, bias, matrix, m, s, eps)
    for work, a in zip(works, (y, mean, scale), strict=True):
        deliver(ctx, work, a)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.gradient_rows)
def _gradient_rows(ctx: Context, gy: Array, x: Array, mean: Array, scale: Array, weight: Array, gx: Array) -> None:
    from ops.cpu import rows as cpu_rows

    work = work_array(ctx, "gx", gx)
    m, s = contiguous(ctx, "mean", mean).reshape(-1), contiguous(ctx, "scale", scale).reshape(-1)
    out = work.reshape(-1, x.shape[-1])
    ctx.call(cpu_rows.layer_norm_gradient, rows(ctx, "gy", gy), rows(ctx, "x", x), m, s, weight, out)
    deliver(ctx, work, gx)


@partial(Kernel, is_compiled=True, is_captured=True, float32_outputs=(0, 1), cuda=gpu_rows.row_sums)
def _row_sums(ctx: Context, gy: Array, x: Array, mean: Array, scale: Array, gweight: Array, gbias: Array) -> None:
    from ops.cpu import rows as cpu_rows

    m, s = contiguous(ctx, "mean", mean).reshape(-1), contiguous(ctx, "scale", scale).reshape(-1)
    ctx.call(cpu_rows.layer_norm_sums, rows(ctx, "gy", gy), rows(ctx, "x", x), m, s, gweight, gbias)
