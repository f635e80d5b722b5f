"""Layers with weights, normalization and products. Weights are read as they are; see `Site.build`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ops.dense.convolution import conv1d, conv2d
from ops.dense.convolution3d import conv3d
from ops.dense.linear import linear
from ops.dense.product import einsum, matmul
from ops.dense.transposed import conv_transpose1d, conv_transpose2d
from ops.elementwise.activation import rsqrt
from ops.elementwise.arithmetic import add, multiply, not_equal, subtract, where
from ops.elementwise.rectifiers import prelu
from ops.norm.batch_norm import batch_norm
from ops.norm.norms import group_norm, layer_norm, rms_norm
from ops.reduce import reductions
from ops.shape.expand import detach, expand, squeeze, unsqueeze
from ops.shape.padding import pad
from ops.shape.rearrange import reshape
from ops.tables.embedding import embedding, embedding_bag
from ops.torch.aten.indices import taken
from ops.torch.refusals import Missing, need
from ops.torch.site import Site
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion
_STATISTICS = (Missing("the statistics of a batch"),) * 2


def _affine(weight: Any, bias: Any) -> dict[str, Any]:
    return {"weight": weight, "bias": bias}


# -- products ----------------------------------------------------------------------------------------------------------


def _linear(site: Site, x: Any, weight: Any, bias: Any = None) -> Region:
    x = site.region(x)
    return site.build(
        lambda name: linear(x, weight.shape[0], bias is not None, name), _affine(weight, bias)
    )


def _matmul(site: Site, x: Region, y: Region) -> Region:
    """torch's broadcasting: vectors get a dimension, leading dimensions are repeated."""
    is_row = x.ndim == 1
    is_column = y.ndim == 1
    x = unsqueeze(x, 0) if is_row else x
    y = unsqueeze(y, 1) if is_column else y
    if y.ndim > 2 and x.shape[:-2] != y.shape[:-2]:
        lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        x, y = expand(x, (*lead, *x.shape[-2:])), expand(y, (*lead, *y.shape[-2:]))
    made = matmul(x, y, site.name)
    return (
        squeeze(made, [d for d, gone in ((-2, is_row), (-1, is_column)) if gone])
        if is_row or is_column
        else made
    )


def _addmm(
    site: Site,
    bias: Region,
    x: Region,
    y: Region,
    beta: float = 1,
    alpha: float = 1,
) -> Region:
    need(beta == 1 and alpha == 1, "a product with factors")
    return add(_matmul(site, x, y), bias)


def _einsum(site: Site, equation: str, operands: Sequence[Region]) -> Region:
    need(len(operands) == 2 and "." not in equation, "an einsum of other than two operands")
    equation = equation.replace(" ", "")
    if "->" not in equation:
        letters = equation.replace(",", "")
        equation += "->" + "".join(sorted(a for a in set(letters) if letters.count(a) == 1))
    return einsum(equation, operands[0], operands[1], site.name)


# -- convolutions ------------------------------------------------------------------------------------------------------


def as_many(value: Any, ndim: int) -> tuple[int, ...]:
    """A number for every dimension, or one each."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * ndim if len(values) == 1 else values


def _convolution(ndim: int) -> Rule:
    build: Callable[..., Region] = {1: conv1d, 2: conv2d, 3: conv3d}[ndim]

    def rule(
        site: Site,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Region:
        x = site.region(x)
        if x.ndim == ndim + 1:
            x = unsqueeze(x, 0)
            return squeeze(rule(site, x, weight, bias, stride, padding, dilation, groups), 0)
        stride = as_many(stride, ndim)
        dilation = as_many(dilation, ndim)
        if isinstance(padding, str):
            x, padding = _same_padding(x, padding, weight.shape[2:], dilation)
        padding = as_many(padding, ndim)
        return site.build(
            lambda name: build(
                x,
                weight.shape[0],
                weight.shape[2:],
                stride,
                padding,
                dilation,
                groups,
                bias is not None,
                name=name,
            ),
            _affine(weight, bias),
        )

    return rule


def _same_padding(
    x: Region, kind: str, size: Sequence[int], dilations: Sequence[int]
) -> tuple[Region, Any]:
    """The widths of "same"; what is odd is padded behind, as torch does."""
    total = [d * (k - 1) if kind == "same" else 0 for k, d in zip(size, dilations, strict=True)]
    if any(t % 2 for t in total):
        x = pad(x, [w for t in reversed(total) for w in (0, t % 2)])
    return x, [t // 2 for t in total]


def _transposed(ndim: int) -> Rule:
    build: Callable[..., Region] = {1: conv_transpose1d, 2: conv_transpose2d}[ndim]

    def rule(
        site: Site,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Region:
        x = site.region(x)
        is_single = x.ndim == ndim + 1
        x = unsqueeze(x, 0) if is_single else x
        numbers = [
            as_many(n, ndim) for n in (weight.shape[2:], stride, padding, output_padding, dilation)
        ]
        args = [n[0] for n in numbers] if ndim == 1 else numbers
        channels = weight.shape[1] * groups
        made = site.build(
            lambda name: build(x, channels, *args, groups, bias is not None, name=name),
            _affine(weight, bias),
        )
        return squeeze(made, 0) if is_single else made

    return rule


# -- normalization -----------------------------------------------------------------------------------------------------


def _ones(site: Site, x: Region, n: int, value: float) -> Region:
    import torch

    return site.constant(torch.full((n,), value, dtype=getattr(torch, x.dtype)))


def _filled_in(site: Site, x: Region, weight: Any, bias: Any, n: int) -> dict[str, Any]:
    """Weights that are not there are constants."""
    return _affine(
        _ones(site, x, n, 1.0) if weight is None else weight,
        _ones(site, x, n, 0.0) if bias is None else bias,
    )


def _as_images(x: Region) -> Region:
    """(n, c) or (n, c, h, w): other numbers of dimensions are made one of these."""
    if x.ndim in (2, 4):
        return x
    return unsqueeze(x, 3) if x.ndim == 3 else reshape(x, (*x.shape[:3], prod(x.shape[3:])))


def _batch_normed(
    site: Site,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Region:
    x = site.region(x)
    if mean is None:
        need(training, "batch norm in evaluation without statistics")
        return _by_own_statistics(site, x, weight, bias, eps)
    images = _as_images(x)
    weights = {
        **_filled_in(site, x, weight, bias, x.shape[1]),
        "running_mean": mean,
        "running_var": var,
    }
    made = site.build(lambda name: batch_norm(images, training, momentum, eps, name), weights)
    return made if images is x else reshape(made, x.shape)


def _by_own_statistics(site: Site, x: Region, weight: Any, bias: Any, eps: float) -> Region:
    """Batch norm that keeps none: a group norm over the batch would be it, so channels go in front."""
    dims = [d for d in range(x.ndim) if d != 1]
    centred = subtract(x, reductions.mean(x, dims, True, f"{site.name}.mean"))
    var = reductions.mean(multiply(centred, centred), dims, True, f"{site.name}.var")
    return _by_channel(site, multiply(centred, rsqrt(add(var, eps)), site.name), weight, bias)


def _by_channel(site: Site, x: Region, weight: Any, bias: Any) -> Region:
    """x weight + bias, of those that there are."""
    shape = (-1, *(1,) * (x.ndim - 2))
    for function, value in ((multiply, weight), (add, bias)):
        if value is not None:
            x = function(x, reshape(site.region(value), shape))
    return x


def _functional_batch_norm(
    site: Site,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """The statistics that it gives as the last two results are written in place, by the operator itself."""
    return (
        _batch_normed(site, x, weight, bias, mean, var, training, momentum, eps),
        *_STATISTICS,
        Updated(),
        Updated(),
    )


class Updated:
    """What is written back to a buffer, by the operator that has made it."""


def _layer_norm(
    site: Site,
    x: Any,
    shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Region:
    x = site.region(x)
    flat = x if len(shape) == 1 else reshape(x, (*x.shape[: x.ndim - len(shape)], prod(shape)))
    if len(shape) > 1:
        weight, bias = (
            None if w is None else reshape(site.region(w), (prod(shape),)) for w in (weight, bias)
        )
    made = site.build(
        lambda name: layer_norm(flat, eps, name),
        _filled_in(site, x, weight, bias, prod(shape)),
    )
    return made if flat is x else reshape(made, x.shape)


def _rms_norm(
    site: Site, x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Region:
    x = site.region(x)
    need(len(shape) == 1, "an RMS norm of several dimensions")
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    weights = {"weight": _ones(site, x, shape[0], 1.0) if weight is None else weight}
    return site.build(lambda name: rms_norm(x, eps, name), weights)


def _group_norm(
    site: Site,
    x: Any,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Region:
    x, affine = site.region(x), weight is not None or bias is not None
    weights = _filled_in(site, x, weight, bias, x.shape[1]) if affine else {}
    return site.build(lambda name: group_norm(x, groups, eps, name, affine=affine), weights)


def _instance_norm(
    site: Site,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    by_input: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Region:
    if not by_input:
        return _batch_normed(site, x, weight, bias, mean, var, False, momentum, eps)
    need(mean is None, "instance norm with statistics that are kept, in training")
    return _group_norm(site, x, x.shape[1], weight, bias, eps)


# -- tables ------------------------------------------------------------------------------------------------------------


def _embedding(
    site: Site,
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    by_frequency: bool = False,
    _sparse: bool = False,
) -> Region:
    """The row of the padding has no gradient: what it gives is detached."""
    import torch

    need(not by_frequency, "an embedding with scale_grad_by_freq")
    if isinstance(indices, torch.Tensor):
        return taken(site, site.region(weight), 0, indices)
    count, width = weight.shape
    made = site.build(
        lambda name: embedding(indices, count, width, name, dtype=weight.dtype), {"weight": weight}
    )
    if padding_idx < 0:
        return made
    return where(
        unsqueeze(not_equal(indices, padding_idx, f"{site.name}.is_word"), indices.ndim),
        made,
        detach(made, f"{site.name}.padding"),
        f"{site.name}.of_words",
    )


def _embedding_bag(
    site: Site,
    weight: Any,
    indices: Region,
    offsets: Any,
    by_frequency: bool = False,
    mode: int = 0,
    _sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> tuple[Any, ...]:
    import torch

    need(
        mode in (0, 1) and not by_frequency and per_sample_weights is None,
        "an embedding bag with mode max or weights",
    )
    need(
        padding_idx in (None, -1) and isinstance(offsets, torch.Tensor),
        "an embedding bag of computed bags or padding",
    )
    offsets = offsets[:-1] if include_last_offset else offsets
    bags = len(offsets)
    length = indices.shape[0] // bags
    is_even = (
        torch.equal(offsets, torch.arange(bags) * length) and bags * length == indices.shape[0]
    )
    need(is_even, "an embedding bag of bags of different sizes")
    flat, (count, width) = reshape(indices, (bags, length)), weight.shape
    options = {"mode": ("sum", "mean")[mode], "dtype": weight.dtype}
    return (
        site.build(
            lambda name: embedding_bag(flat, count, width, name, **options), {"weight": weight}
        ),
        *(Missing("the bags of an embedding"),) * 3,
    )


def _prelu(site: Site, x: Any, weight: Any) -> Region:
    x = site.region(x)
    return site.build(lambda name: prelu(x, weight.shape[0], name), {"weight": weight})


RULES: dict[str, Rule] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot"), _matmul),
    "addmm": _addmm,
    "baddbmm": _addmm,
    "einsum": _einsum,
}
RAW: dict[str, Rule] = {
    "linear": _linear,
    **{f"conv{n}d": _convolution(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _transposed(n) for n in (1, 2)},
    "_native_batch_norm_legit_functional": _functional_batch_norm,
    "_native_batch_norm_legit_no_training": lambda site, x, w, b, m, v, momentum, eps: (
        _batch_normed(site, x, w, b, m, v, False, momentum, eps),
        *_STATISTICS,
    ),
    "_native_batch_norm_legit.no_stats": lambda site, x, w, b, training, momentum, eps: (
        _batch_normed(site, x, w, b, None, None, training, momentum, eps),
        *_STATISTICS,
    ),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "prelu": _prelu,
}
