"""Shapes and sections. What torch does as a view is a copy here, unless it turns back what was turned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ops.elementwise.arithmetic import where
from ops.shape.expand import cast, detach, expand, squeeze, unsqueeze
from ops.shape.padding import flip, pad
from ops.shape.rearrange import concat, reshape, transpose
from ops.shape.sections import slice, split
from ops.torch.refusals import need
from ops.torch.site import Site, Weight
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion


# -- order and extents -------------------------------------------------------------------------------------------------


def permuted(site: Site, x: Region, dims: Sequence[int]) -> Region:
    """Dimensions in another order: two turns are one, and a turn back is none."""
    source, before = site.book.turned.get(x.name, (x, tuple(range(x.ndim))))
    order = tuple(before[d] for d in dims)
    if order == tuple(range(x.ndim)):
        return source
    made = transpose(source, order, site.name)
    site.book.turned[made.name] = source, order
    return made


def exchanged(site: Site, x: Region, dim0: int, dim1: int) -> Region:
    """Two dimensions in each other's place."""
    dims = list(range(x.ndim))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return permuted(site, x, dims)


def shaped(site: Site, x: Region, *of_result: Any) -> Region:
    """As the result of the call."""
    return x if x.shape == site.shape else reshape(x, site.shape, site.name)


def repeated(site: Site, x: Region, counts: Sequence[int]) -> Region:
    """As torch.Tensor.repeat: every dimension so many times over."""
    lead = len(counts) - x.ndim
    between = [n for k, n in enumerate((*(1,) * lead, *x.shape)) for n in (1, n)]
    wide = [
        n for count, n in zip(counts, (*(1,) * lead, *x.shape), strict=True) for n in (count, n)
    ]
    return reshape(expand(reshape(x, between), wide, site.name), site.shape)


def _repeat_interleave(site: Site, x: Region, repeats: Any, dim: int | None = None) -> Region:
    need(
        isinstance(repeats, int) and dim is not None,
        "repeat_interleave without dim or with several repeats",
    )
    dim = dim % x.ndim  # type: ignore[operator]
    between = unsqueeze(x, dim + 1)
    return reshape(
        expand(between, (*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :]), site.name), site.shape
    )


def _pixel_shuffle(site: Site, x: Region, factor: int) -> Region:
    *lead, c, h, w = x.shape
    n = len(lead)
    turned = transpose(
        reshape(x, (*lead, c // factor**2, factor, factor, h, w)),
        (*range(n), n, n + 3, n + 1, n + 4, n + 2),
        site.name,
    )
    return reshape(turned, site.shape)


def _pixel_unshuffle(site: Site, x: Region, factor: int) -> Region:
    *lead, c, h, w = x.shape
    n = len(lead)
    parts = reshape(x, (*lead, c, h // factor, factor, w // factor, factor))
    return reshape(
        transpose(parts, (*range(n), n, n + 2, n + 4, n + 1, n + 3), site.name), site.shape
    )


# -- sections ----------------------------------------------------------------------------------------------------------


def _alike(xs: Sequence[Region], dtype: str) -> list[Region]:
    return [cast(x, dtype) for x in xs]


def _cat(site: Site, xs: Sequence[Any], dim: int = 0) -> Region:
    """What has no elements changes nothing but the dtype."""
    kept = _alike([site.region(x) for x in xs if prod(x.shape)], site.dtype)
    return kept[0] if len(kept) == 1 else concat(kept, dim, site.name)


def _stack(site: Site, xs: Sequence[Region], dim: int = 0) -> Region:
    return concat([unsqueeze(x, dim) for x in _alike(xs, site.dtype)], dim, site.name)


def _split(site: Site, x: Region, size: Any, dim: int = 0) -> tuple[Region, ...]:
    return split(x, size if isinstance(size, int) else list(size), dim, site.name)


def _chunk(site: Site, x: Region, chunks: int, dim: int = 0) -> tuple[Region, ...]:
    return split(x, -(-x.shape[dim] // chunks), dim, site.name)


def projections(site: Site, x: Any, size: Any, dim: int = 0) -> Any:
    """The three projections of attention, if they are what is cut; they are weights of their own."""
    is_packed = isinstance(x, Weight) and ".in_proj_" in f".{x.name}"
    if (
        is_packed
        and dim == 0
        and (size * 3 == x.shape[0] if isinstance(size, int) else len(set(size)) == 1)
    ):
        shape = (x.shape[0] // 3, *x.shape[1:])
        return tuple(site.weight(x, form, shape) for form in "qkv")
    return _split(site, site.region(x), size, dim)


def _select(site: Site, x: Region, dim: int, index: int) -> Region:
    index %= x.shape[dim]
    return squeeze(slice(x, dim, index, index + 1, site.name), dim)


def _unbind(site: Site, x: Region, dim: int = 0) -> tuple[Region, ...]:
    return tuple(squeeze(part, dim) for part in split(x, 1, dim, site.name))


def _bounds(x: Region, dim: int, start: int | None, end: int | None) -> tuple[int, int]:
    begin, stop, _ = np.s_[start:end].indices(x.shape[dim])
    return begin, stop


def _slice(
    site: Site,
    x: Region,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Region:
    begin, stop = _bounds(x, dim, start, end)
    return slice(x, dim, begin, stop, site.name, step=step)


def _scattered(site: Site, x: Region, part: Region, dim: int, begin: int, stop: int) -> Region:
    """`x` with `part` in the place of a section."""
    pieces = [slice(x, dim, 0, begin)] if begin else []
    pieces.append(cast(part, x.dtype))
    pieces += [slice(x, dim, stop, x.shape[dim])] if stop < x.shape[dim] else []
    return pieces[0] if len(pieces) == 1 else concat(pieces, dim, site.name)


def _select_scatter(site: Site, x: Region, part: Region, dim: int, index: int) -> Region:
    index = index % x.shape[dim]
    dim = dim % x.ndim
    return _scattered(site, x, unsqueeze(part, dim), dim, index, index + 1)


def _slice_scatter(
    site: Site,
    x: Region,
    part: Region,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Region:
    need(step == 1, "a section with a step that is overwritten")
    return _scattered(site, x, part, dim, *_bounds(x, dim, start, end))


def _roll(site: Site, x: Region, shifts: Sequence[int], dims: Sequence[int] = ()) -> Region:
    need(len(dims) > 0, "a roll over all elements")
    for shift, dim in zip(shifts, dims, strict=True):
        cut = -shift % x.shape[dim]
        if cut:
            x = concat([slice(x, dim, cut, x.shape[dim]), slice(x, dim, 0, cut)], dim, site.name)
    return x


def _triangle(lower: bool) -> Rule:
    def rule(site: Site, x: Region, diagonal: int = 0) -> Region:
        import torch

        ones = torch.ones(x.shape[-2:], dtype=torch.bool)
        kept = torch.tril(ones, diagonal) if lower else torch.triu(ones, diagonal)
        wide = x if x.is_floating else cast(x, "float64")
        return cast(where(site.constant(kept), wide, 0.0, site.name), x.dtype)

    return rule


# -- padding -----------------------------------------------------------------------------------------------------------


def padded(
    site: Site, x: Region, widths: Sequence[int], mode: str = "constant", value: float | None = None
) -> Region:
    """As torch.nn.functional.pad; a negative width cuts."""
    x = _cut(x, widths)
    widths = [max(w, 0) for w in widths]
    if mode == "constant":
        return pad(x, widths, float(value or 0), site.name)
    for k in range(len(widths) // 2):
        dim = x.ndim - 1 - k
        pieces = [
            *_edge(x, dim, widths[2 * k], mode, True),
            x,
            *_edge(x, dim, widths[2 * k + 1], mode, False),
        ]
        x = x if len(pieces) == 1 else concat(pieces, dim, site.name)
    return x


def _cut(x: Region, widths: Sequence[int]) -> Region:
    """Without what negative widths cut."""
    for k in range(len(widths) // 2):
        dim = x.ndim - 1 - k
        before = widths[2 * k]
        behind = widths[2 * k + 1]
        if before < 0 or behind < 0:
            x = slice(x, dim, max(-before, 0), x.shape[dim] - max(-behind, 0))
    return x


def _edge(x: Region, dim: int, width: int, mode: str, is_front: bool) -> list[Region]:
    n = x.shape[dim]
    if not width:
        return []
    if mode == "replicate":
        edge = slice(x, dim, 0, 1) if is_front else slice(x, dim, n - 1, n)
        return [edge] * width
    if mode == "circular":
        return [slice(x, dim, n - width, n) if is_front else slice(x, dim, 0, width)]
    need(mode == "reflect", f"padding with mode '{mode}'")
    return [
        flip(slice(x, dim, 1, width + 1) if is_front else slice(x, dim, n - 1 - width, n - 1), dim)
    ]


# -- values that depend on shapes alone --------------------------------------------------------------------------------


def _filled(value: float | None) -> Rule:
    """What torch makes in the shape and dtype of the result; it is a constant."""

    def rule(site: Site, x: Any, *args: Any, **of_result: Any) -> Any:
        import torch

        return torch.full(
            site.shape, args[-1] if value is None else value, dtype=getattr(torch, site.dtype)
        )

    return rule


def _broadcast(site: Site, xs: Sequence[Region]) -> list[Region]:
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    return [x if x.shape == shape else expand(x, shape) for x in xs]


def _same(site: Site, x: Any, *of_result: Any) -> Any:
    return x


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "view_as"),
        shaped,
    ),
    **dict.fromkeys(
        ("clone", "contiguous", "alias", "lift_fresh_copy", "alias_copy", "view.dtype"), _same
    ),
    **dict.fromkeys(
        ("_to_copy", "to", "type_as"),
        lambda site, x, *of_result, **more: cast(x, site.dtype, site.name),
    ),
    **dict.fromkeys(
        ("expand", "broadcast_to", "expand_as"),
        lambda site, x, *of_result: expand(x, site.shape, site.name),
    ),
    **dict.fromkeys(("zeros_like", "new_zeros", "empty_like", "new_empty"), _filled(0)),
    **dict.fromkeys(("ones_like", "new_ones"), _filled(1)),
    **dict.fromkeys(("full_like", "new_full"), _filled(None)),
    "broadcast_tensors": _broadcast,
    "copy": lambda site, x, y: expand(
        cast(y if hasattr(y, "dtype") else site.number(y), x.dtype), x.shape, site.name
    ),
    "detach": lambda site, x: detach(x, site.name),
    "permute": permuted,
    "transpose": exchanged,
    "swapaxes": exchanged,
    "t": lambda site, x: permuted(site, x, range(x.ndim)[::-1]),
    "unsqueeze": shaped,
    "squeeze": shaped,
    "repeat": repeated,
    "tile": repeated,
    "repeat_interleave": _repeat_interleave,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    "stack": _stack,
    "split_with_sizes": _split,
    "chunk": _chunk,
    "unbind": _unbind,
    "select": _select,
    "narrow": lambda site, x, dim, start, n: _slice(site, x, dim, start, start + n),
    "slice": _slice,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "roll": _roll,
    "flip": lambda site, x, dims: flip(x, dims, site.name),
    "tril": _triangle(True),
    "triu": _triangle(False),
    "pad": padded,
    "constant_pad_nd": lambda site, x, widths, value=0: padded(site, x, widths, "constant", value),
}
RAW: dict[str, Rule] = {  # of weights and tensors as they are
    "split": projections,
    "cat": _cat,
    "concat": _cat,
}
