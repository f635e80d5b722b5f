"""Losses. torch numbers the reductions, and has classes in dimension 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ops.loss import elementwise as losses
from ops.loss.cross_entropy import cross_entropy
from ops.loss.nll import nll_loss
from ops.torch.aten.shapes import permuted
from ops.torch.refusals import need
from ops.torch.site import Site
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion
_REDUCTIONS = ("none", "mean", "sum")


# -- of classes --------------------------------------------------------------------------------------------------------


def _classes_last(site: Site, x: Region) -> Region:
    return x if x.ndim < 3 else permuted(site, x, (0, *range(2, x.ndim), 1))


def _cross_entropy(
    site: Site,
    x: Region,
    t: Region,
    weight: Any = None,
    reduction: int = 1,
    ignored: int = -100,
    smoothing: float = 0.0,
) -> Region:
    is_chance = t.is_floating
    return cross_entropy(
        _classes_last(site, x),
        _classes_last(site, t) if is_chance else t,
        None if is_chance else ignored,
        smoothing,
        site.name,
        reduction=_REDUCTIONS[reduction],
        weight=weight,
    )


def _nll_loss(
    site: Site,
    x: Region,
    t: Region,
    weight: Any = None,
    reduction: int = 1,
    ignored: int = -100,
) -> Region:
    scores = _classes_last(site, x)
    return nll_loss(scores, t, ignored, site.name, reduction=_REDUCTIONS[reduction], weight=weight)


# -- of elements -------------------------------------------------------------------------------------------------------


def _pair(function: Callable[..., Region], has_number: bool = False) -> Rule:
    """A loss of two regions, perhaps with a number of its own."""

    def of_two(site: Site, x: Region, y: Region, reduction: int = 1) -> Region:
        need(x.shape == y.shape, "a loss of shapes that broadcast")
        return function(x, y, name=site.name, reduction=_REDUCTIONS[reduction])

    def with_number(
        site: Site, x: Region, y: Region, reduction: int = 1, number: float = 1.0
    ) -> Region:
        need(x.shape == y.shape, "a loss of shapes that broadcast")
        return function(x, y, float(number), site.name, reduction=_REDUCTIONS[reduction])

    return with_number if has_number else of_two


def _kl_div(
    site: Site,
    x: Region,
    y: Region,
    reduction: int = 1,
    *,
    log_target: bool = False,
) -> Region:
    need(x.shape == y.shape, "a loss of shapes that broadcast")
    return losses.kl_div(x, y, site.name, reduction=_REDUCTIONS[reduction], log_target=log_target)


def _bce(site: Site, x: Region, y: Region, weight: Any = None, reduction: int = 1) -> Region:
    return losses.binary_cross_entropy(
        x, y, site.name, reduction=_REDUCTIONS[reduction], weight=weight
    )


def _bce_with_logits(
    site: Site,
    x: Region,
    y: Region,
    weight: Any = None,
    pos_weight: Any = None,
    reduction: int = 1,
) -> Region:
    options = {"reduction": _REDUCTIONS[reduction], "weight": weight, "pos_weight": pos_weight}
    return losses.binary_cross_entropy_with_logits(x, y, site.name, **options)


RULES: dict[str, Rule] = {
    "cross_entropy_loss": _cross_entropy,
    **dict.fromkeys(("nll_loss", "nll_loss_nd", "nll_loss2d"), _nll_loss),
    "mse_loss": _pair(losses.mse_loss),
    "l1_loss": _pair(losses.l1_loss),
    "huber_loss": _pair(losses.huber_loss, has_number=True),
    "smooth_l1_loss": _pair(losses.smooth_l1_loss, has_number=True),
    "kl_div": _kl_div,
    "binary_cross_entropy": _bce,
    "binary_cross_entropy_with_logits": _bce_with_logits,
}
