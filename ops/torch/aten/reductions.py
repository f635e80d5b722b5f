"""Sums, means, extremes and losses over dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.dense.product import contract
from ops.elementwise import activation, arithmetic
from ops.elementwise.arithmetic import add, divide, multiply, subtract
from ops.loss import elementwise as losses
from ops.loss.cross_entropy import cross_entropy
from ops.loss.softmax import log_softmax, softmax
from ops.reduce import extremes, reductions
from ops.shape.expand import cast, squeeze, unsqueeze
from ops.shape.rearrange import flatten, reshape
from ops.tables.gather import gather
from ops.torch.aten.shapes import permuted
from ops.torch.refusals import need
from ops.torch.site import Site
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion
Dims = Any
_REDUCTIONS = ("none", "mean", "sum")  # torch numbers them


def _dims(dim: Dims) -> Any:
    """None for all; torch's empty list says so too."""
    return None if dim is None or dim == [] or dim == () else dim


def _sum(at: Site, x: Region, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Region:
    wide = at.dtype if "float" in at.dtype else "float64"
    return cast(reductions.sum(cast(x, wide), _dims(dim), keepdim, at.name), at.dtype)


def _mean(at: Site, x: Region, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Region:
    return reductions.mean(cast(x, at.dtype), _dims(dim), keepdim, at.name)


def _var(
    at: Site, x: Region, dim: Dims = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None
) -> Region:
    """Two passes; `correction` points are taken from the count, one by default."""
    dim = _dims(dim)
    taken = correction if correction is not None else (1 if unbiased in (None, True) else 0)
    centred = subtract(x, reductions.mean(x, dim, True, f"{at.name}.mean"), f"{at.name}.centred")
    squares = multiply(centred, centred, f"{at.name}.squares")
    named = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    count = int(np.prod([x.shape[d] for d in named]))
    need(count > taken, "a variance of too few points")
    return multiply(reductions.sum(squares, dim, keepdim, at.name), 1 / (count - taken))


def _std(at: Site, x: Region, *args: Any, **options: Any) -> Region:
    return activation.sqrt(_var(at, x, *args, **options))


def _var_mean(at: Site, x: Region, dim: Dims = None, *args: Any, **options: Any) -> tuple[Region, Region]:
    keepdim = bool(options.get("keepdim", args[1] if len(args) > 1 else False))
    return _var(at, x, dim, *args, **options), reductions.mean(x, _dims(dim), keepdim)


def _extreme(function: Callable[..., Region], is_largest: bool) -> Rule:
    """The value, and where it stands, which is computed only where it is read."""

    def rule(at: Site, x: Region, dim: int, keepdim: bool = False) -> tuple[Region, Region]:
        values, indices = extremes.topk(x, 1, dim, largest=is_largest, name=at.name)
        return (values, indices) if keepdim else (squeeze(values, dim), squeeze(indices, dim))

    return rule


def _logsumexp(at: Site, x: Region, dim: Dims, keepdim: bool = False) -> Region:
    dims = [dim] if isinstance(dim, int) else list(dim)
    largest = extremes.max(x, dims, True, f"{at.name}.max")
    total = reductions.sum(activation.exp(subtract(x, largest)), dims, True, at.name)
    made = add(activation.log(total), largest)
    return made if keepdim else squeeze(made, dims)


def _norm(at: Site, x: Region, p: Any = 2, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Region:
    p = 2 if p is None else p
    need(p in (1, 2) and dtype is None, f"a norm of order {p}")
    dim = _dims(dim)
    if p == 1:
        return reductions.sum(activation.abs(x), dim, keepdim, at.name)
    return activation.sqrt(reductions.sum(multiply(x, x, f"{at.name}.squares"), dim, keepdim, at.name))


def weight_normed(at: Site, v: Region, g: Region, dim: int = 0) -> Region:
    """v g / |v|, the norm over all dimensions but one."""
    norm = _norm(at, v, 2, [d for d in range(v.ndim) if d != dim % v.ndim], True)
    return multiply(v, divide(g, norm), f"{at.name}.scaled")


def _cumsum(at: Site, x: Region, dim: int, dtype: Any = None) -> Region:
    """A product with a triangle of ones; a scan would be sequential."""
    import torch

    wide = at.dtype if "float" in at.dtype else "float64"
    n, dim = x.shape[dim], dim % x.ndim
    behind = permuted(at, x, (*(d for d in range(x.ndim) if d != dim), dim))
    ones = at.constant(torch.ones(n, n, dtype=getattr(torch, wide)).triu())
    lead = " ".join(f"a{k}" for k in range(x.ndim - 1))
    made = contract(at.name, f"{lead} i, i o -> {lead} o", cast(behind, wide), ones)
    order = list(range(x.ndim - 1))
    order.insert(dim, x.ndim - 1)
    return cast(permuted(at, made, order), at.dtype)


def _softmax(function: Callable[..., Region]) -> Rule:
    def rule(at: Site, x: Region, dim: int, dtype: Any = None) -> Region:
        return function(cast(x, at.dtype), dim, at.name)

    return rule


def _topk(at: Site, x: Region, k: int, dim: int = -1, largest: bool = True, is_sorted: bool = True) -> Any:
    return extremes.topk(x, k, dim, largest=largest, name=at.name)


# -- losses ------------------------------------------------------------------------------------------------------------


def _classes_last(at: Site, x: Region, t: Region) -> Region:
    """torch has the classes in dimension 1."""
    need(t.ndim == x.ndim - 1, "targets that are probabilities")
    return x if x.ndim < 3 else permuted(at, x, (0, *range(2, x.ndim), 1))


def _cross_entropy(
    at: Site, x: Region, t: Region, weight: Any = None, reduction: int = 1, ignored: int = -100, smoothing: float = 0.0
) -> Region:
    need(weight is None, "a cross entropy with weights of classes")
    scores = _classes_last(at, x, t)
    return cross_entropy(scores, t, ignored, smoothing, at.name, reduction=_REDUCTIONS[reduction])


def _nll_loss(at: Site, x: Region, t: Region, weight: Any = None, reduction: int = 1, ignored: int = -100) -> Region:
    """Rows with the target `ignored` count neither in the sum nor in the mean."""
    need(weight is None, "a loss with weights of classes")
    scores = flatten(_classes_last(at, x, t), 0, -2) if x.ndim > 1 else unsqueeze(x, 0)
    targets = reshape(t, (scores.shape[0],))
    counts = arithmetic.not_equal(targets, ignored)
    chosen = cast(multiply(cast(targets, "float64"), cast(counts, "float64")), "int64")
    rows = multiply(gather(scores, 1, unsqueeze(chosen, 1), at.name), -1.0)
    kept = cast(counts, rows.dtype)
    rows = multiply(squeeze(rows, 1), kept)
    if reduction == 0:
        return reshape(rows, t.shape)
    total = reductions.sum(rows)
    return total if reduction == 2 else divide(total, reductions.sum(kept))


def _loss(function: Callable[..., Region]) -> Rule:
    def rule(at: Site, x: Region, y: Region, weight: Any = None, reduction: Any = None) -> Region:
        """Losses without weights of elements have the reduction in their place."""
        code = weight if reduction is None and isinstance(weight, int) else reduction
        need(isinstance(weight, int) or weight is None, "a loss with weights of elements")
        need(x.shape == y.shape, "a loss of shapes that broadcast")
        return function(x, y, name=at.name, reduction=_REDUCTIONS[1 if code is None else code])

    return rule


def _bce_with_logits(
    at: Site, x: Region, y: Region, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Region:
    need(weight is None and pos_weight is None, "a loss with weights")
    return losses.binary_cross_entropy_with_logits(x, y, name=at.name, reduction=_REDUCTIONS[reduction])


def _huber(at: Site, x: Region, y: Region, reduction: int = 1, delta: float = 1.0) -> Region:
    return losses.huber_loss(x, y, float(delta), name=at.name, reduction=_REDUCTIONS[reduction])


RULES: dict[str, Rule] = {
    "sum": _sum,
    "mean": _mean,
    "var": _var,
    "std": _std,
    "var_mean": _var_mean,
    "amax": lambda at, x, dim=None, keepdim=False: extremes.max(x, _dims(dim), keepdim, at.name),
    "amin": lambda at, x, dim=None, keepdim=False: extremes.min(x, _dims(dim), keepdim, at.name),
    "max": lambda at, x: extremes.max(x, name=at.name),
    "min": lambda at, x: extremes.min(x, name=at.name),
    "max.dim": _extreme(extremes.max, True),
    "min.dim": _extreme(extremes.min, False),
    "argmax": lambda at, x, dim, keepdim=False: extremes.argmax(x, dim, keepdim, at.name),
    "topk": _topk,
    "logsumexp": _logsumexp,
    "norm": _norm,
    "linalg_vector_norm": _norm,
    "cumsum": _cumsum,
    "_weight_norm": weight_normed,
    "softmax": _softmax(softmax),
    "_softmax": lambda at, x, dim, half: softmax(x, dim, at.name),
    "log_softmax": _softmax(log_softmax),
    "_log_softmax": lambda at, x, dim, half: log_softmax(x, dim, at.name),
    "cross_entropy_loss": _cross_entropy,
    "nll_loss_nd": _nll_loss,
    "nll_loss": _nll_loss,
    "mse_loss": _loss(losses.mean_squared_error),
    "l1_loss": _loss(losses.mean_absolute_error),
    "binary_cross_entropy": _loss(losses.binary_cross_entropy),
    "binary_cross_entropy_with_logits": _bce_with_logits,
    "huber_loss": _huber,
    "smooth_l1_loss": lambda at, x, y, reduction=1, beta=1.0: multiply(
        _huber(at, x, y, reduction, beta), 1 / float(beta)
    ),
}
