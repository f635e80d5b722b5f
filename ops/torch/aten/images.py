"""Pooling and resizing of sequences, images and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

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


class _Windows(NamedTuple):
    """Of images: extents, steps and padding of windows that are pooled."""

    size: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]

    @staticmethod
    def of(ndim: int, size: Any, stride: Any, padding: Any) -> _Windows:
        """As torch is told them for `ndim` dimensions."""
        return _Windows(
            _line(size, ndim, 1),
            _line(stride or size, ndim, 1),
            _line(padding, ndim, 0),
        )

    def behind(self, x: Region) -> tuple[int, ...]:
        """Points to be added behind each dimension, so that rounding down gives what rounding up did."""
        added = []
        for n, size, stride, padding in zip(x.shape[2:], *self, strict=True):
            count = -(-(n + 2 * padding - size) // stride) + 1
            count -= (count - 1) * stride >= n + padding
            added.append(max((count - 1) * stride + size - (n + 2 * padding), 0))
        return tuple(added)

    def widths(self, behind: Sequence[int]) -> list[int]:
        """Of all padding, with so many points more behind, as `pad` takes them."""
        edges = zip(reversed(self.padding), reversed(behind), strict=True)
        return [width for before, more in edges for width in (before, before + more)]


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
        windows = _Windows.of(ndim, size, stride, padding)
        if ndim == 3:
            need(not up, "max pooling of volumes that rounds up")
            return max_pool3d(x, *windows, site.name)

        def pool(images: Region) -> Region:
            behind = windows.behind(images) if up else (0, 0)
            if not any(behind):
                return max_pool2d(images, *windows, site.name)
            # all of the padding by hand; a window that reads nothing but padding is left out
            padded = pad(images, windows.widths(behind), -np.inf)
            return max_pool2d(padded, windows.size, windows.stride, 0, site.name)

        return _on_images(x, ndim, pool)

    return rule


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
        windows = _Windows.of(ndim, size, stride, padding)
        if ndim == 3:
            need(
                not up and not divisor and (with_padding or not any(windows.padding)),
                "average pooling of volumes with such counts",
            )
            return avg_pool3d(x, *windows, site.name)
        return _on_images(x, ndim, partial(_averages, site, windows, up, with_padding, divisor))

    return rule


def _averages(
    site: Site,
    windows: _Windows,
    up: bool,
    with_padding: bool,
    divisor: int | None,
    images: Region,
) -> Region:
    behind = windows.behind(images) if up else (0, 0)
    if any(behind):
        made = pad(images, windows.widths(behind))
        made = avg_pool2d(made, windows.size, windows.stride, 0, site.name)
    else:
        made = avg_pool2d(images, *windows, site.name)
    shares = _counted(images, windows, behind, (up, with_padding, divisor))
    return made if shares is None else multiply(made, site.constant(shares))


def _counted(x: Region, windows: _Windows, behind: Sequence[int], options: Any) -> Any:
    """torch's mean of each window over the mean of all its points, padding included; None where they are equal."""
    import torch
    from torch.nn import functional

    ones = torch.ones((1, 1, *x.shape[2:]), dtype=torch.float64)
    theirs = functional.avg_pool2d(
        ones,
        tuple(windows.size),
        tuple(windows.stride),
        tuple(windows.padding),
        *options,
    )
    padded = functional.pad(ones, windows.widths(behind))
    shares = theirs / functional.avg_pool2d(padded, tuple(windows.size), tuple(windows.stride))
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
        ndim = x.ndim - 2
        need(
            ndim < 3 or mode == "nearest",
            "interpolation of volumes other than of the nearest point",
        )
        if mode == "nearest" and _is_whole(site, x, scales if size is None else ()):
            return _repeated(site, x)
        need(ndim < 3, "interpolation of volumes by factors that are not whole")
        return _on_images(
            x,
            ndim,
            lambda images: interpolate(
                images,
                _line(site.shape[2:], ndim, 1),
                mode,
                bool(corners and corners[0]),
                site.name,
                scales=_of_image(scales) if scales and size is None else None,
            ),
        )

    return rule


def _is_whole(site: Site, x: Region, scales: Sequence[Any]) -> bool:
    """Whether every point is repeated equally often."""
    extents = zip(x.shape[2:], site.shape[2:], strict=True)
    return all(m % n == 0 for n, m in extents) and all(float(s).is_integer() for s in scales)


def _of_image(scales: Sequence[Any]) -> tuple[float, float]:
    return float(scales[0]) if len(scales) == 2 else 1.0, float(scales[-1])


def _repeated(site: Site, x: Region) -> Region:
    between = [n for extent in x.shape[2:] for n in (extent, 1)]
    wide = [
        n
        for extent, made in zip(x.shape[2:], site.shape[2:], strict=True)
        for n in (extent, made // extent)
    ]
    parts = expand(reshape(x, (*x.shape[:2], *between)), (*x.shape[:2], *wide), site.name)
    return reshape(parts, site.shape)


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
