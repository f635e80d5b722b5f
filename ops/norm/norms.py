"""Normalizations composed of operators: statistics, then the result; every axis may be split.

Statistics and sums of gradients are operators of their own whose partial results are combined, so features may lie on
several devices. They follow the main operator, which carries the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from ops.building import check_positive, check_region, distinct, parameters, term, terms
from ops.elementwise.formula import Term, axes_of, formula
from ops.initializers import Init
from taskflow import LogicalRegion, Operator


def rms_norm(x: LogicalRegion, eps: float = 1e-6, name: str | None = None, *, weight_init: Init = 1.0) -> LogicalRegion:
    """x / sqrt(mean of x² + eps) weight over the last dimension (Zhang and Sennrich, NeurIPS 2019), as torch's.

    Args:
        x: (..., features), floating point.
        eps: added to the mean square.
        name: of the operator; its parameter is `<name>.weight` of shape (features,).
        weight_init: first values.

    Returns:
        The shape and dtype of `x`. Every axis may be split.

    Raises:
        ValueError: `x` is a scalar, or of another dtype.
    """
    _check("rms_norm", x, name, least=1)
    axes = distinct(x.axes)
    full, row, last = term(axes), term(axes[:-1]), axes[-1]
    name = x.graph.unique_name(name or "rms_norm")
    weight = x.graph.parameter(f"{name}.weight", x.shape[-1:], weight_init, x.dtype)
    numbers = {"count": float(x.shape[-1]), "eps": eps}
    with x.graph.following(name):
        square = formula(f"{name}.square", "x * x / count", {"x": (x, full)}, row, numbers=numbers)
    inputs = {"x": (x, full), "square": (square, row), "weight": (weight, last)}
    backward = partial(_rms_backward, numbers=numbers)
    return formula(name, "x / sqrt(square + eps) * weight", inputs, full, backward=backward, numbers=numbers)


def _rms_backward(
    op: Operator, g: LogicalRegion, *, numbers: Mapping[str, float]
) -> tuple[LogicalRegion, None, LogicalRegion]:
    (full, row, last), _ = terms(op)
    known = _known(op, g, ("x", "square", "weight"))
    dot = formula(f"{op.name}.dot", "g * weight * x / count", _pick(known, "gx", "weight"), row, numbers=numbers)
    text = "(g * weight - x * dot / (square + eps)) / sqrt(square + eps)"
    gx = formula(f"{op.name}.dx", text, known | {"dot": (dot, row)}, full, numbers=numbers)
    text = "g * x / sqrt(square + eps)"
    return gx, None, formula(f"{op.name}.dweight", text, _pick(known, "gx", "square"), last, numbers=numbers)


def group_norm(
    x: LogicalRegion,
    num_groups: int,
    eps: float = 1e-5,
    name: str | None = None,
    *,
    weight_init: Init = 1.0,
    bias_init: Init = 0.0,
) -> LogicalRegion:
    """(x - mean) / sqrt(var + eps) weight + bias per sample and group of channels (Wu and He, ECCV 2018), as torch's.

    Args:
        x: (batch, channels, ...), floating point.
        num_groups: divides the channels.
        eps: added to the (biased) variance.
        name: of the operator; its parameters are `<name>.weight` and `<name>.bias`, of shape (channels,).
        weight_init, bias_init: first values.

    Returns:
        The shape and dtype of `x`. Every axis may be split: `g`, the groups, and the channels of a group as well.

    Raises:
        ValueError: `x` has fewer than two dimensions, the channels do not divide into groups, or a dtype is wrong.
    """
    where = _check("group_norm", x, name, least=2)
    check_positive(where, num_groups=num_groups)
    if x.shape[1] % num_groups:
        raise ValueError(f"{where}: {x.shape[1]} channels do not divide into {num_groups} groups")
    batch, *rest = distinct((x.axes[0], *x.axes[2:]), ("g", "c"))
    full, row = term((batch, "(g c)", *rest)), term((batch, "g"))
    count = prod(x.shape[1:]) // num_groups
    return _centred("group_norm", x, full, row, "(g c)", eps, count, name, weight_init, bias_init, {"g": num_groups})


def composed_layer_norm(
    x: LogicalRegion, eps: float, name: str | None, weight_init: Init, bias_init: Init
) -> LogicalRegion:
    """`layer_norm` whose features may be split."""
    axes = distinct(x.axes)
    full, row, count = term(axes), term(axes[:-1]), x.shape[-1]
    return _centred("layer_norm", x, full, row, axes[-1], eps, count, name, weight_init, bias_init, {})


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
    """Mean and variance over the axes of `full` that `row` lacks; a weight and a bias per point of `channel`."""
    graph, name = x.graph, x.graph.unique_name(name or kind)
    shape = (x.shape[axes_of(full).index(axes_of(channel)[0])],)
    weight, bias = parameters(x, name, shape, True, weight_init, bias_init)
    numbers = {"count": float(count), "eps": eps}
    with graph.following(name):
        inputs = {"x": (x, full)}
        inputs["mean"] = formula(f"{name}.mean", "x / count", inputs, row, numbers=numbers, sizes=sizes), row
        text = "(x - mean) * (x - mean) / count"
        inputs["var"] = formula(f"{name}.var", text, inputs, row, numbers=numbers, sizes=sizes), row
    inputs |= {"weight": (weight, channel), "bias": (bias, channel)}
    backward = partial(_centred_backward, numbers=numbers, sizes=sizes)
    text = "(x - mean) / sqrt(var + eps) * weight + bias"
    return formula(name, text, inputs, full, backward=backward, numbers=numbers, sizes=sizes)


def _centred_backward(
    op: Operator, g: LogicalRegion, *, numbers: Mapping[str, float], sizes: Mapping[str, int]
) -> tuple[LogicalRegion | None, ...]:
    """(g' - mean(g') - x̂ mean(g' x̂)) / std with g' = g weight and x̂ = (x - mean) / std; means over the group."""
    (full, row, _, channel, _), _ = terms(op)
    known = _known(op, g, ("x", "mean", "var", "weight"))

    def launch(what: str, text: str, inputs: Mapping[str, Term], out: str) -> LogicalRegion:
        return formula(f"{op.name}.{what}", text, inputs, out, numbers=numbers, sizes=sizes)

    sums = launch("sum", "g * weight / count", _pick(known, "g", "weight"), row)
    dot = launch("dot", "g * weight * (x - mean) / count", _pick(known, "gx", "mean", "weight"), row)
    text = "(g * weight - sums - (x - mean) * dot / (var + eps)) / sqrt(var + eps)"
    gx = launch("dx", text, known | {"sums": (sums, row), "dot": (dot, row)}, full)
    gweight = launch("dweight", "g * (x - mean) / sqrt(var + eps)", _pick(known, "gx", "mean", "var"), channel)
    return gx, None, None, gweight, launch("dbias", "g", _pick(known, "g"), channel)


def _check(kind: str, x: LogicalRegion, name: str | None, least: int) -> str:
    where = f"{kind} '{name or kind}'"
    check_region(where, x)
    if x.ndim < least:
        raise ValueError(f"{where}: '{x.name}' has shape {x.shape}, at least {least} dimensions are needed")
    return where


def _known(op: Operator, g: LogicalRegion, names: tuple[str, ...]) -> dict[str, Term]:
    """`g` and the inputs of an operator by name, with their terms."""
    read, (out,) = terms(op)
    return {"g": (g, out)} | {name: (r, t) for name, r, t in zip(names, op.inputs, read)}


def _pick(known: Mapping[str, Term], short: str, *names: str) -> dict[str, Term]:
    """Some of them: those of one letter together, the others as they are."""
    return {name: known[name] for name in (*short, *names)}
