"""Pooling and resizing of sequences, images and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.dense.convolution3d import adaptive_avg_pool3d, avg_pool3d, max_pool3d
from ops.elementwise.arithmetic import multiply
from ops.reduce import reductions
from ops.reduce.adaptive_pooling import adaptive_avg_pool2d, adaptive_max_pool2d
from ops.reduce.pooling import avg_pool2d, max_pool2d
from ops.shape.expand import expand, squeeze, unsqueeze
from ops.shape.interpolate import interpolate
from ops.shape.padding import pad
from ops.shape.rearrange import reshape
from ops.torch.aten.layers import as_many
from ops.torch.refusals import Missing, need
from ops.torch.site import Site
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion
PLACES = Missing("where maxima stand")


def _on_images(x: Region, ndim: int, pool: Callable[[Region], Region]) -> Region:
    """Sequences are images of one line; what has no batch is a batch of one."""
    if x.ndim == ndim + 1:
        return squeeze(_on_images(unsqueeze(x, 0), ndim, pool), 0)
    if ndim == 1:
        made = pool(unsqueeze(x, x.ndim - 1))
        return squeeze(made, made.ndim - 2)
    return pool(x)


def _line(value: Any, ndim: int, of_line: int) -> Any:
    values = as_many(value, ndim)
    return (of_line, *values) if ndim == 1 else values


def _max_pool(ndim: int) -> Rule:
    def rule(
        site: Site,
        x: Region,
        size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        up: bool = False,
    ) -> Region:
        need(set(as_many(dilation, ndim)) == {1}, "max pooling with dilation")
        k, s, p = _line(size, ndim, 1), _line(stride or size, ndim, 1), _line(padding, ndim, 0)
        if ndim == 3:
            need(not up, "max pooling of volumes that rounds up")
            return max_pool3d(x, k, s, p, site.name)

        def pool(images: Region) -> Region:
            edges = _behind(images, k, s, p) if up else (0, 0)
            if any(
                edges
            ):  # all of the padding by hand; a window that reads nothing but padding is left out
                widths = [
                    w for n, e in zip(reversed(p), reversed(edges), strict=True) for w in (n, n + e)
                ]
                return max_pool2d(pad(images, widths, -np.inf), k, s, 0, site.name)
            return max_pool2d(images, k, s, p, site.name)

        return _on_images(x, ndim, pool)

    return rule


def _behind(x: Region, k: Sequence[int], s: Sequence[int], p: Sequence[int]) -> tuple[int, ...]:
    """Points to be added behind each dimension, so that rounding down gives what rounding up did."""
    added = []
    for n, size, stride, padding in zip(x.shape[2:], k, s, p, strict=True):
        count = -(-(n + 2 * padding - size) // stride) + 1
        count -= (count - 1) * stride >= n + padding
        added.append(max((count - 1) * stride + size - (n + 2 * padding), 0))
    return tuple(added)


def _avg_pool(ndim: int) -> Rule:
    def rule(
        site: Site,
        x: Region,
        size: Any,
        stride: Any = (),
        padding: Any = 0,
        up: bool = False,
        with_padding: bool = True,
        divisor: int | None = None,
    ) -> Region:
        k, s, p = _line(size, ndim, 1), _line(stride or size, ndim, 1), _line(padding, ndim, 0)
        if ndim == 3:
            need(
                not up and not divisor and (with_padding or not any(p)),
                "average pooling of volumes with such counts",
            )
            return avg_pool3d(x, k, s, p, site.name)

        def pool(images: Region) -> Region:
            edges = _behind(images, k, s, p) if up else (0, 0)
            widths = [
                w for n, e in zip(reversed(p), reversed(edges), strict=True) for w in (n, n + e)
            ]
            made = (
                avg_pool2d(pad(images, widths), k, s, 0, site.name)
                if any(edges)
                else avg_pool2d(images, k, s, p, site.name)
            )
            shares = _counted(images, k, s, (p, edges), (up, with_padding, divisor))
            return made if shares is None else multiply(made, site.constant(shares))

        return _on_images(x, ndim, pool)

    return rule


def _counted(x: Region, k: Sequence[int], s: Sequence[int], edges: Any, options: Any) -> Any:
    """torch's mean of each window over the mean of all its points, padding included; None where they are equal."""
    import torch
    from torch.nn import functional

    padding, behind = edges
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=torch.float64)
    theirs = functional.avg_pool2d(ones, tuple(k), tuple(s), tuple(padding), *options)
    widths = [
        w for n, e in zip(reversed(padding), reversed(behind), strict=True) for w in (n, n + e)
    ]
    ours = functional.avg_pool2d(functional.pad(ones, widths), tuple(k), tuple(s))
    shares = theirs / ours
    return None if bool((shares == 1).all()) else shares.to(getattr(torch, x.dtype))


def _adaptive(ndim: int) -> Rule:
    def rule(site: Site, x: Region, size: Any) -> Region:
        sizes = [
            n if s is None else s for n, s in zip(x.shape[-ndim:], as_many(size, ndim), strict=True)
        ]
        if set(sizes) == {1}:
            return reductions.mean(x, list(range(x.ndim - ndim, x.ndim)), True, site.name)
        if ndim == 3:
            return adaptive_avg_pool3d(x, sizes, site.name)
        return _on_images(
            x, ndim, lambda images: adaptive_avg_pool2d(images, _line(sizes, ndim, 1), site.name)
        )

    return rule


def _upsample(mode: str) -> Rule:
    """Whole factors of the nearest point are repetitions; all else is `interpolate`."""

    def rule(site: Site, x: Region, size: Any, *args: Any) -> Region:
        *corners, scales = args
        align = bool(corners and corners[0])
        ndim, made = x.ndim - 2, site.shape[2:]
        need(
            ndim < 3 or mode == "nearest",
            "interpolation of volumes other than of the nearest point",
        )
        is_whole = all(m % n == 0 for n, m in zip(x.shape[2:], made, strict=True))
        if (
            mode == "nearest"
            and is_whole
            and (size is not None or all(float(f).is_integer() for f in scales))
        ):
            between = [n for extent in x.shape[2:] for n in (extent, 1)]
            wide = [
                n
                for extent, m in zip(x.shape[2:], made, strict=True)
                for n in (extent, m // extent)
            ]
            parts = expand(reshape(x, (*x.shape[:2], *between)), (*x.shape[:2], *wide), site.name)
            return reshape(parts, site.shape)
        need(ndim < 3, "interpolation of volumes by factors that are not whole")
        given = [float(s) for s in scales] if scales and size is None else []
        both = (given[0] if ndim == 2 else 1.0, given[-1]) if given else None
        return _on_images(
            x,
            ndim,
            lambda images: interpolate(
                images, _line(made, ndim, 1), mode, align, site.name, scales=both
            ),
        )

    return rule


def _adaptive_max(site: Site, x: Region, size: Any) -> tuple[Region, Missing]:
    sizes = [n if s is None else s for n, s in zip(x.shape[-2:], as_many(size, 2), strict=True)]
    return adaptive_max_pool2d(x, sizes, site.name), PLACES


RULES: dict[str, Rule] = {
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive(n) for n in (1, 2, 3)},
    "adaptive_max_pool2d": _adaptive_max,
    **{f"upsample_nearest{n}d": _upsample("nearest") for n in (1, 2, 3)},
    "upsample_linear1d": _upsample("bilinear"),
    "upsample_bilinear2d": _upsample("bilinear"),
    "upsample_bicubic2d": _upsample("bicubic"),
}
