"""Normalizations over layers and groups. Composed ones are split along every axis; a layer norm in one operator is not.

Composed, statistics and sums of gradients are operators of their own whose partial results are combined, so features
may lie on several devices. They follow the main operator, which carries the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

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
from ops.cuda import rows as gpu_rows
from ops.elementwise.formula import Term, axes_of, formula
from ops.expressions.expression import Expression
from ops.initializers import Init
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
        ValueError: `x` is a scalar, or of another dtype; or `eps` is no positive finite number.
    """
    checked("layer_norm", name, x, least=1, eps=eps)
    *lead, last = distinct(x.axes)
    if composed:
        return _centred(
            "layer_norm",
            x,
            term((*lead, last)),
            term(lead),
            last,
            eps,
            x.shape[-1],
            name,
            weight_init,
            bias_init,
            {},
        )
    name = x.graph.unique_name(name or "layer_norm")
    last = f"^{last}"
    full = term((*lead, last))
    return launch_first(
        name,
        # mean and 1 / std of each row serve the gradient
        f"{full}, {last}, {last} -> {full}, {term(lead)}, {term(lead)}",
        [x, *parameters(x, name, x.shape[-1:], True, weight_init, bias_init)],
        kernel=_normalize_rows.bind(eps=eps),
        backward=_layer_norm_backward,
        flops=8,
    )


def rms_norm(
    x: LogicalRegion, eps: float = 1e-6, name: str | None = None, *, weight_init: Init = 1.0
) -> LogicalRegion:
    """x / sqrt(mean of x² + eps) weight over the last dimension (Zhang and Sennrich, NeurIPS 2019), as torch's.

    Args:
        x: (..., features), floating point.
        eps: added to the mean square.
        name: of the operator; its parameter is `<name>.weight` of shape (features,).
        weight_init: first values.

    Returns:
        The shape and dtype of `x`. Every axis may be split.

    Raises:
        ValueError: `x` is a scalar, or of another dtype; or `eps` is no positive finite number.
    """
    checked("rms_norm", name, x, least=1, eps=eps)
    axes = distinct(x.axes)
    name = x.graph.unique_name(name or "rms_norm")
    weight = x.graph.parameter(f"{name}.weight", x.shape[-1:], weight_init, x.dtype)
    numbers = {"count": float(x.shape[-1]), "eps": eps}
    read = {"x": (x, term(axes))}
    with x.graph.following(name):
        square = formula(
            f"{name}.square",
            "x * x / count",
            read,
            term(axes[:-1]),
            numbers=numbers,
        )
    return formula(
        name,
        "x / sqrt(square + eps) * weight",
        {**read, "square": (square, term(axes[:-1])), "weight": (weight, axes[-1])},
        term(axes),
        backward=partial(_rms_backward, numbers=numbers),
        numbers=numbers,
    )


def _rms_backward(
    op: Operator, g: LogicalRegion, *, numbers: Mapping[str, float]
) -> tuple[LogicalRegion, None, LogicalRegion]:
    (full, row, last), _ = terms(op)
    by_name = _by_name(op, g, ("x", "square", "weight"))
    dot = formula(
        f"{op.name}.dot",
        "g * weight * x / count",
        _pick(by_name, "gx", "weight"),
        row,
        numbers=numbers,
    )
    gx = formula(
        f"{op.name}.dx",
        "(g * weight - x * dot / (square + eps)) / sqrt(square + eps)",
        by_name | {"dot": (dot, row)},
        full,
        numbers=numbers,
    )
    return (
        gx,
        None,
        formula(
            f"{op.name}.dweight",
            "g * x / sqrt(square + eps)",
            _pick(by_name, "gx", "square"),
            last,
            numbers=numbers,
        ),
    )


def group_norm(
    x: LogicalRegion,
    num_groups: int,
    eps: float = 1e-5,
    name: str | None = None,
    *,
    affine: bool = True,
    weight_init: Init = 1.0,
    bias_init: Init = 0.0,
) -> LogicalRegion:
    """(x - mean) / sqrt(var + eps) weight + bias per sample and group of channels (Wu and He, ECCV 2018), as torch's.

    Args:
        x: (batch, channels, ...), floating point.
        num_groups: divides the channels.
        eps: added to the (biased) variance.
        name: of the operator; its parameters are `<name>.weight` and `<name>.bias`, of shape (channels,).
        affine: whether it has these parameters.
        weight_init, bias_init: first values.

    Returns:
        The shape and dtype of `x`. Every axis may be split: `g`, the groups, and the channels of a group as well.

    Raises:
        ValueError: `x` has fewer than two dimensions, the channels do not divide into groups, or a dtype or `eps`
            is wrong.
    """
    where = checked("group_norm", name, x, least=2, eps=eps)
    check_positive(where, num_groups=num_groups)
    if x.shape[1] % num_groups:
        raise ValueError(f"{where}: {x.shape[1]} channels do not divide into {num_groups} groups")
    if not affine and (weight_init, bias_init) != (1.0, 0.0):
        raise ValueError(
            f"{where}: first values are given, but there are no parameters: affine is False"
        )
    axes = distinct((x.axes[0], *x.axes[2:]), ("g", "c"))
    return _centred(
        "group_norm",
        x,
        term((axes[0], "(g c)", *axes[1:])),
        term((axes[0], "g")),
        "(g c)" if affine else "",
        eps,
        prod(x.shape[1:]) // num_groups,
        name,
        weight_init,
        bias_init,
        {"g": num_groups},
    )


def instance_norm(
    x: LogicalRegion,
    eps: float = 1e-5,
    name: str | None = None,
    *,
    affine: bool = False,
    weight_init: Init = 1.0,
    bias_init: Init = 0.0,
) -> LogicalRegion:
    """A group norm of one channel per group (Ulyanov et al. 2016), as torch.nn.InstanceNorm1d to 3d without statistics.

    Args:
        x: (batch, channels, ...), floating point.
        eps, name, affine, weight_init, bias_init: as of `group_norm`; by default there are no parameters.

    Returns:
        The shape and dtype of `x`. Every axis may be split.

    Raises:
        ValueError: `x` has fewer than three dimensions, or a dtype or `eps` is wrong.
    """
    checked("instance_norm", name, x, least=3, eps=eps)
    inits = {"weight_init": weight_init, "bias_init": bias_init}
    return group_norm(x, x.shape[1], eps, name or "instance_norm", affine=affine, **inits)


def _centred(
    kind: str,
    x: LogicalRegion,
    full: str,
    row: str,
    channel: str,
    eps: float,
    count: int,
    name: str | None,
    weight_init: Init,
    bias_init: Init,
    sizes: Mapping[str, int],
) -> LogicalRegion:
    """Mean and variance over the axes of `full` that `row` lacks; weight and bias per point of `channel`, if any."""
    graph = x.graph
    name = x.graph.unique_name(name or kind)
    numbers = {"count": float(count), "eps": eps}
    with graph.following(name):
        inputs = {"x": (x, full)}
        inputs["mean"] = (
            formula(
                f"{name}.mean",
                "x / count",
                inputs,
                row,
                numbers=numbers,
                sizes=sizes,
            ),
            row,
        )
        text = "(x - mean) * (x - mean) / count"
        inputs["var"] = (
            formula(
                f"{name}.var",
                text,
                inputs,
                row,
                numbers=numbers,
                sizes=sizes,
            ),
            row,
        )
    text = "(x - mean) / sqrt(var + eps)"
    backward = partial(_centred_backward, numbers=numbers, sizes=sizes)
    if channel:
        shape = (x.shape[axes_of(full).index(axes_of(channel)[0])],)
        weight, bias = parameters(x, name, shape, True, weight_init, bias_init)
        inputs |= {"weight": (weight, channel), "bias": (bias, channel)}
        text += " * weight + bias"
    return formula(
        name,
        text,
        inputs,
        full,
        backward=backward,
        numbers=numbers,
        sizes=sizes,
    )


def _centred_backward(
    op: Operator, g: LogicalRegion, *, numbers: Mapping[str, float], sizes: Mapping[str, int]
) -> tuple[LogicalRegion | None, ...]:
    """(g' - mean(g') - x̂ mean(g' x̂)) / std with g' = g weight and x̂ = (x - mean) / std; means over the group."""
    (full, row, _, *channels), _ = terms(op)
    by_name = _by_name(op, g, ("x", "mean", "var", "weight"))
    scaled, weights = ("g * weight", ("weight",)) if channels else ("g", ())

    def launch(what: str, text: str, inputs: Mapping[str, Term], out: str) -> LogicalRegion:
        return formula(
            f"{op.name}.{what}",
            text,
            inputs,
            out,
            numbers=numbers,
            sizes=sizes,
        )

    sums = launch("sum", f"{scaled} / count", _pick(by_name, "g", *weights), row)
    dot = launch(
        "dot", f"{scaled} * (x - mean) / count", _pick(by_name, "gx", "mean", *weights), row
    )
    text = f"({scaled} - sums - (x - mean) * dot / (var + eps)) / sqrt(var + eps)"
    gx = launch("dx", text, by_name | {"sums": (sums, row), "dot": (dot, row)}, full)
    if not channels:
        return gx, None, None
    gweight = launch(
        "dweight",
        "g * (x - mean) / sqrt(var + eps)",
        _pick(by_name, "gx", "mean", "var"),
        channels[0],
    )
    return gx, None, None, gweight, launch("dbias", "g", _pick(by_name, "g"), channels[0])


def _by_name(op: Operator, g: LogicalRegion, names: tuple[str, ...]) -> dict[str, Term]:
    """`g` and the inputs of an operator by name, with their terms."""
    read, (out,) = terms(op)
    return {"g": (g, out)} | {name: (r, t) for name, r, t in zip(names, op.inputs, read)}


def _pick(by_name: Mapping[str, Term], short: str, *names: str) -> dict[str, Term]:
    """Some of them: those of one letter together, the others as they are."""
    return {name: by_name[name] for name in (*short, *names)}


# -- a layer norm in one operator, whose features stay whole -----------------------------------------------------------


def _layer_norm_backward(
    op: Operator, gy: LogicalRegion | None, *others: LogicalRegion | None
) -> tuple[LogicalRegion, ...]:
    assert gy is not None, "only the first output is public"
    (x_term, c, _), (_, row, _) = terms(op)
    read = f"{x_term}, {x_term}, {row}, {row}"
    given = [gy, op.inputs[0], *op.outputs[1:]]
    gx = launch_first(
        f"{op.name}.dx",
        f"{read}, {c} -> {x_term}",
        [*given, op.inputs[1]],
        kernel=_gradient_rows,
        flops=10,
    )
    return gx, *launch_all(
        f"{op.name}.sums",
        f"{read} -> {c}, {c}",
        given,
        kernel=_row_sums,
        flops=5,
    )


def _join_sum(op: Operator, k: int, other: Operator, is_kept: bool) -> Kernel | None:
    """A sum of two before a layer norm; others read the sum, too. See `taskflow.Kernel`."""
    return (
        _normalize_sum.bind(**op.kernel.options)
        if k == 0 and is_kept and _is_sum_of_two(other)
        else None
    )


def _join_gradient(op: Operator, k: int, other: Operator, is_kept: bool) -> Kernel | None:
    """What is added to the gradient of a layer norm. See `taskflow.Kernel`."""
    return None if is_kept or not _is_sum_of_two(op) else _gradient_rows_sum.bind(is_first=k == 1)


def _is_sum_of_two(op: Operator) -> bool:
    """Whether an operator adds two regions of one shape and dtype."""
    of_add = op.kernel.expression and Expression.parse(op.kernel.expression.text).steps
    is_add = of_add and len(of_add) == 1 and of_add[0].function == "add" and len(op.inputs) == 2
    return bool(is_add) and len({(region.shape, region.dtype) for region in op.args}) == 1


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.normalize_sum)
def _normalize_sum(ctx: Context, a: Array, b: Array, *rest: Array, eps: float) -> None:
    *others, total = rest
    ctx.xp.add(a, b, out=total)
    _normalize_rows(ctx, total, *others, eps=eps)


@partial(
    Kernel,
    is_compiled=True,
    is_captured=True,
    float32_outputs=(1, 2),
    cuda=gpu_rows.normalize_rows,
    join=_join_sum,
)
def _normalize_rows(
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
    from ops.cpu import rows as cpu_rows

    works = [work_array(ctx, k, a) for k, a in enumerate((y, mean, scale))]
    matrix = works[0].reshape(-1, x.shape[-1])
    m = works[1].reshape(-1)
    s = works[2].reshape(-1)
    ctx.call(cpu_rows.layer_norm, rows(ctx, "x", x), weight, bias, matrix, m, s, eps)
    for work, a in zip(works, (y, mean, scale), strict=True):
        deliver(ctx, work, a)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.gradient_rows_sum)
def _gradient_rows_sum(ctx: Context, *arrays: Array, is_first: bool) -> None:
    """The gradients; to that of the input is added what comes first or last among the inputs."""
    read = arrays[is_first : 5 + is_first]
    more = arrays[0 if is_first else 5]
    gx, *sums = arrays[6:]
    _gradient_rows(ctx, *read, gx, *sums)
    ctx.xp.add(gx, more, out=gx)


@partial(
    Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.gradient_rows, join=_join_gradient
)
def _gradient_rows(
    ctx: Context,
    gy: Array,
    x: Array,
    mean: Array,
    scale: Array,
    weight: Array,
    gx: Array,
    *sums: Array,
) -> None:
    """That of the input, and after `taskflow.fuse` those of weight and bias, too."""
    from ops.cpu import rows as cpu_rows

    work = work_array(ctx, "gx", gx)
    ctx.call(
        cpu_rows.layer_norm_gradient,
        rows(ctx, "gy", gy),
        rows(ctx, "x", x),
        contiguous(ctx, "mean", mean).reshape(-1),
        contiguous(ctx, "scale", scale).reshape(-1),
        weight,
        work.reshape(-1, x.shape[-1]),
    )
    deliver(ctx, work, gx)
    if sums:
        _row_sums(ctx, gy, x, mean, scale, *sums)


def _absorb_gradient(op: Operator, other: Operator) -> Kernel | None:
    """Sums over rows with the gradient of the same norm. See `taskflow.Kernel`."""
    return _gradient_rows if other.kernel is _gradient_rows else None


@partial(
    Kernel,
    is_compiled=True,
    is_captured=True,
    float32_outputs=(0, 1),
    cuda=gpu_rows.row_sums,
    absorb=_absorb_gradient,
)
def _row_sums(
    ctx: Context, gy: Array, x: Array, mean: Array, scale: Array, gweight: Array, gbias: Array
) -> None:
    from ops.cpu import rows as cpu_rows

    m = contiguous(ctx, "mean", mean).reshape(-1)
    s = contiguous(ctx, "scale", scale).reshape(-1)
    ctx.call(cpu_rows.layer_norm_sums, rows(ctx, "gy", gy), rows(ctx, "x", x), m, s, gweight, gbias)
