"""Sums, means, extremes and norms over dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.dense.product import contract
from ops.elementwise import activation, arithmetic
from ops.elementwise.arithmetic import add, divide, multiply, subtract
from ops.loss.softmax import log_softmax, softmax
from ops.reduce import extremes, reductions
from ops.reduce.sorting import sort
from ops.shape.expand import cast, detach, squeeze
from ops.shape.rearrange import reshape
from ops.torch.aten.shapes import permuted
from ops.torch.refusals import need
from ops.torch.site import Site
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion
Dims = Any


def _dims(dim: Dims) -> Any:
    """None for all; torch's empty list says so too."""
    return None if dim is None or dim == [] or dim == () else dim


def _sum(
    site: Site, x: Region, dim: Dims = None, keepdim: bool = False, dtype: Any = None
) -> Region:
    wide = site.dtype if "float" in site.dtype else "float64"
    return cast(reductions.sum(cast(x, wide), _dims(dim), keepdim, site.name), site.dtype)


def _mean(
    site: Site, x: Region, dim: Dims = None, keepdim: bool = False, dtype: Any = None
) -> Region:
    return reductions.mean(cast(x, site.dtype), _dims(dim), keepdim, site.name)


def _var(
    site: Site,
    x: Region,
    dim: Dims = None,
    unbiased: Any = None,
    keepdim: bool = False,
    correction: Any = None,
) -> Region:
    """Two passes; `correction` points are taken from the count, one by default."""
    dim = _dims(dim)
    if correction is None:
        correction = 1 if unbiased in (None, True) else 0
    mean = reductions.mean(x, dim, True, f"{site.name}.mean")
    centred = subtract(x, mean, f"{site.name}.centred")
    squares = multiply(centred, centred, f"{site.name}.squares")
    need(_points(x, dim) > correction, "a variance of too few points")
    return multiply(
        reductions.sum(squares, dim, keepdim, site.name),
        1 / (_points(x, dim) - correction),
    )


def _points(x: Region, dim: Dims) -> int:
    """How many are reduced."""
    named = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return int(np.prod([x.shape[d] for d in named]))


def _root(x: Region, name: str, power: float = 0.5) -> Region:
    """A root, whose gradient at 0 is 0, as that of torch's norms is."""
    is_zero = arithmetic.equal(x, 0.0, f"{name}.is_zero")
    safe = arithmetic.where(is_zero, 1.0, x, f"{name}.safe")
    root = (
        activation.sqrt(safe, f"{name}.root")
        if power == 0.5
        else arithmetic.pow(safe, power, f"{name}.root")
    )
    return arithmetic.where(is_zero, 0.0, root, name)


def _std(site: Site, x: Region, *args: Any, **options: Any) -> Region:
    return _root(_var(site, x, *args, **options), f"{site.name}.std")


def _var_mean(
    site: Site, x: Region, dim: Dims = None, *args: Any, **options: Any
) -> tuple[Region, Region]:
    keepdim = bool(options.get("keepdim", args[1] if len(args) > 1 else False))
    return _var(site, x, dim, *args, **options), reductions.mean(x, _dims(dim), keepdim)


def _std_mean(site: Site, x: Region, *args: Any, **options: Any) -> tuple[Region, Region]:
    var, mean = _var_mean(site, x, *args, **options)
    return _root(var, f"{site.name}.std"), mean


def _extreme(function: Callable[..., Region], is_largest: bool) -> Rule:
    """The value, and where it stands, which is computed only where it is read."""

    def rule(site: Site, x: Region, dim: int, keepdim: bool = False) -> tuple[Region, Region]:
        wide = x if x.is_floating else cast(x, "float64")
        values, indices = extremes.topk(wide, 1, dim, largest=is_largest, name=site.name)
        values = cast(values, x.dtype)
        return (values, indices) if keepdim else (squeeze(values, dim), squeeze(indices, dim))

    return rule


def _of_all(function: Callable[..., Region]) -> Rule:
    """The extreme value over dimensions; that of integers is computed in float64."""

    def rule(site: Site, x: Region, dim: Dims = None, keepdim: bool = False) -> Region:
        wide = x if x.is_floating else cast(x, "float64")
        return cast(function(wide, _dims(dim), keepdim, site.name), x.dtype)

    return rule


def _place(function: Callable[..., Region]) -> Rule:
    """Where the extreme value stands, in a dimension or among all elements."""

    def rule(site: Site, x: Region, dim: int | None = None, keepdim: bool = False) -> Region:
        wide = x if x.is_floating else cast(x, "float64")
        if dim is None:
            return reshape(function(reshape(wide, (-1,)), 0, name=site.name), site.shape)
        return function(wide, dim, keepdim, site.name)

    return rule


def _logsumexp(site: Site, x: Region, dim: Dims, keepdim: bool = False) -> Region:
    dims = [dim] if isinstance(dim, int) else list(dim)
    limit = float(np.finfo(x.dtype).max)  # where all are -inf, the result is
    largest = activation.clip(
        detach(extremes.max(x, dims, True, f"{site.name}.max")), -limit, limit
    )
    total = reductions.sum(activation.exp(subtract(x, largest)), dims, True, site.name)
    made = add(activation.log(total), largest)
    return made if keepdim else squeeze(made, dims)


def _norm(
    site: Site,
    x: Region,
    p: Any = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Region:
    p = 2 if p is None else p
    need(1 <= p < np.inf and dtype is None, f"a norm of order {p}")
    dim = _dims(dim)
    if p == 1:
        return reductions.sum(activation.abs(x), dim, keepdim, site.name)
    if p != 2:
        powers = arithmetic.pow(activation.abs(x), float(p), f"{site.name}.powers")
        return _root(reductions.sum(powers, dim, keepdim, site.name), f"{site.name}.norm", 1 / p)
    return _root(
        reductions.sum(multiply(x, x, f"{site.name}.squares"), dim, keepdim, site.name),
        f"{site.name}.norm",
    )


def weight_normed(site: Site, v: Region, g: Region, dim: int = 0) -> Region:
    """v g / |v|, the norm over all dimensions but one."""
    norm = _norm(site, v, 2, [d for d in range(v.ndim) if d != dim % v.ndim], True)
    return multiply(v, divide(g, norm), f"{site.name}.scaled")


def _cumsum(site: Site, x: Region, dim: int, dtype: Any = None) -> Region:
    dim = dim % x.ndim
    behind = permuted(site, x, (*(d for d in range(x.ndim) if d != dim), dim))
    order = list(range(x.ndim - 1))
    order.insert(dim, x.ndim - 1)
    return cast(permuted(site, _running_sums(site, behind), order), site.dtype)


def _running_sums(site: Site, x: Region) -> Region:
    """Along the last dimension, by a product with a triangle of ones; a scan would be sequential."""
    import torch

    wide = site.dtype if "float" in site.dtype else "float64"
    ones = torch.ones(x.shape[-1], x.shape[-1], dtype=getattr(torch, wide))
    triangle = site.constant(ones.triu())
    lead = " ".join(f"a{k}" for k in range(x.ndim - 1))
    return contract(site.name, f"{lead} i, i o -> {lead} o", cast(x, wide), triangle)


def _softmax(function: Callable[..., Region]) -> Rule:
    def rule(site: Site, x: Region, dim: int, dtype: Any = None) -> Region:
        return function(cast(x, site.dtype), dim, site.name)

    return rule


def _sort(site: Site, x: Region, dim: int = -1, descending: bool = False) -> tuple[Region, Region]:
    return sort(x, dim, descending, site.name)


def _stable(rule: Rule) -> Rule:
    """All sorting is stable here."""
    return lambda site, x, *, dim=-1, descending=False: rule(site, x, dim, descending)


def _topk(
    site: Site,
    x: Region,
    k: int,
    dim: int = -1,
    largest: bool = True,
    _sorted: bool = True,
) -> Any:
    return extremes.topk(x, k, dim, largest=largest, name=site.name)


RULES: dict[str, Rule] = {
    "sum": _sum,
    "mean": _mean,
    "var": _var,
    "std": _std,
    "var_mean": _var_mean,
    "std_mean": _std_mean,
    **dict.fromkeys(("amax", "max"), _of_all(extremes.max)),
    **dict.fromkeys(("amin", "min"), _of_all(extremes.min)),
    "max.dim": _extreme(extremes.max, True),
    "min.dim": _extreme(extremes.min, False),
    "argmax": _place(extremes.argmax),
    "argmin": _place(extremes.argmin),
    "topk": _topk,
    "sort": _sort,
    "sort.stable": _stable(_sort),
    "argsort": lambda site, x, dim=-1, descending=False: _sort(site, x, dim, descending)[1],
    "argsort.stable": _stable(lambda site, x, dim, descending: _sort(site, x, dim, descending)[1]),
    "logsumexp": _logsumexp,
    "norm": _norm,
    "linalg_vector_norm": _norm,
    "cumsum": _cumsum,
    "_weight_norm": weight_normed,
    "softmax": _softmax(softmax),
    "_softmax": lambda site, x, dim, _half: softmax(x, dim, site.name),
    "log_softmax": _softmax(log_softmax),
    "_log_softmax": lambda site, x, dim, _half: log_softmax(x, dim, site.name),
}
