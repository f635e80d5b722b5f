"""What is taken from places and added to places, and windows as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import prod
from typing import Any

import numpy as np

from ops.elementwise.arithmetic import add, less, multiply, where
from ops.shape.columns import fold, unfold
from ops.shape.expand import cast, unsqueeze
from ops.shape.rearrange import reshape
from ops.shape.sections import slice
from ops.tables.embedding import embedding
from ops.tables.gather import gather
from ops.tables.scatter import index_add, one_hot, scatter_add
from ops.torch.aten.shapes import permuted
from ops.torch.refusals import need
from ops.torch.site import Site
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion


def taken(site: Site, x: Region, dim: int, index: Any) -> Region:
    """x[..., index, ...]: the dimensions of `index` in the place of `dim`. Neighbours in order are a section."""
    import torch

    if isinstance(index, torch.Tensor):
        flat = index.reshape(-1) % x.shape[dim]
        if len(flat) and torch.equal(flat, torch.arange(len(flat)) + flat[0]):
            part = slice(x, dim, int(flat[0]), int(flat[0]) + len(flat), site.name)
            return reshape(part, (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]))
        index = site.constant(index % x.shape[dim])
    return _looked_up(site, x, dim, index)


def _looked_up(site: Site, x: Region, dim: int, index: Region) -> Region:
    """`taken` by an embedding, whose table has a row for each point of `dim`."""
    front = permuted(site, x, (dim, *(d for d in range(x.ndim) if d != dim)))
    table = front if front.is_floating else cast(front, "float64")
    table = reshape(table, (x.shape[dim], prod(front.shape[1:])))
    made = site.build(
        lambda name: embedding(index, x.shape[dim], table.shape[1], name, dtype=table.dtype),
        {"weight": table},
        site.name,
    )
    made = cast(reshape(made, (*index.shape, *front.shape[1:])), x.dtype)
    behind = range(index.ndim, made.ndim)
    return permuted(site, made, (*behind[:dim], *range(index.ndim), *behind[dim:]))


def _index(site: Site, x: Any, indices: Sequence[Any]) -> Region:
    """NumPy's rules: the indexed dimensions are one, at their place if they are neighbours, else in front."""
    import torch

    dims = [k for k, index in enumerate(indices) if index is not None]
    given = [indices[k] for k in dims]
    need(not any(map(_is_mask, given)), "an index that is a mask")
    given = [index if isinstance(index, torch.Tensor) else site.region(index) for index in given]
    if len(given) == 1 and isinstance(given[0], torch.Tensor):
        return taken(site, x, dims[0], given[0])
    extents = [x.shape[k] for k in dims]
    at_once = _at_once(site, given, extents)
    if len(given) == 1:
        return taken(site, x, dims[0], at_once)
    if dims != list(range(dims[0], dims[0] + len(dims))):
        x = permuted(site, x, (*dims, *(k for k in range(x.ndim) if k not in dims)))
        dims = list(range(len(dims)))
    x = reshape(x, (*x.shape[: dims[0]], prod(extents), *x.shape[dims[-1] + 1 :]))
    return taken(site, x, dims[0], at_once)


def _is_mask(index: Any) -> bool:
    return str(getattr(index, "dtype", "")) in ("bool", "torch.bool")


def _at_once(site: Site, indices: Sequence[Any], extents: Sequence[int]) -> Any:
    """Indices of several dimensions as those of one that they make together; negative ones count from the end."""
    import torch

    if all(isinstance(i, torch.Tensor) for i in indices):
        positive = [
            np.asarray(i) % n
            for i, n in zip(torch.broadcast_tensors(*indices), extents, strict=True)
        ]
        return torch.as_tensor(np.ravel_multi_index(positive, extents))
    steps = [float(prod(extents[k + 1 :])) for k in range(len(extents))]
    regions_first = sorted(
        map(partial(_in_front, site), indices, extents, steps),
        key=lambda part: not isinstance(part, Region),
    )
    return cast(reduce(add, regions_first), "int64")


def _in_front(site: Site, index: Any, extent: int, step: float) -> Any:
    """How many elements stand in front of what an index of one dimension names, `step` for each of its places."""
    import torch

    if isinstance(index, torch.Tensor):
        return site.region((index % extent).double() * step)
    number = cast(index, "float64")
    return multiply(where(less(number, 0.0), add(number, float(extent)), number), step)


def _gather(site: Site, x: Region, dim: int, index: Region, _sparse: bool = False) -> Region:
    """torch reads a corner of `x` where the index is smaller."""
    dim %= x.ndim
    for d in range(x.ndim):
        if d != dim and index.shape[d] < x.shape[d]:
            x = slice(x, d, 0, index.shape[d])
    floating = x if x.is_floating else cast(x, "float64")
    return cast(gather(floating, dim, index, site.name), x.dtype)


def _scatter_add(site: Site, x: Region, dim: int, index: Region, src: Region) -> Region:
    return scatter_add(x, dim % x.ndim, index, src, site.name)


def _index_add(
    site: Site,
    x: Region,
    dim: int,
    index: Region,
    source: Region,
    *,
    alpha: float = 1,
) -> Region:
    return index_add(x, dim % x.ndim, index, source, float(alpha), site.name)


def _one_hot(site: Site, t: Region, classes: int = -1) -> Region:
    need(classes > 0, "one_hot with as many classes as are met")
    return one_hot(t, classes, site.name)


# -- windows as columns ------------------------------------------------------------------------------------------------


def _unfold(site: Site, x: Region, size: Any, dilation: Any, padding: Any, stride: Any) -> Region:
    images = x if x.ndim == 4 else unsqueeze(x, 0)
    made = unfold(images, tuple(size), tuple(dilation), tuple(padding), tuple(stride), site.name)
    return made if made.shape == site.shape else reshape(made, site.shape)


def _fold(
    site: Site,
    x: Region,
    extents: Any,
    size: Any,
    dilation: Any,
    padding: Any,
    stride: Any,
) -> Region:
    columns = x if x.ndim == 3 else unsqueeze(x, 0)
    made = fold(
        columns,
        tuple(extents),
        tuple(size),
        tuple(dilation),
        tuple(padding),
        tuple(stride),
        site.name,
    )
    return made if made.shape == site.shape else reshape(made, site.shape)


RULES: dict[str, Rule] = {
    "gather": _gather,
    "scatter_add": _scatter_add,
    "index_add": _index_add,
    "one_hot": _one_hot,
    "im2col": _unfold,
    "col2im": _fold,
}
RAW: dict[str, Rule] = {  # of weights and tensors as they are
    "index": lambda site, x, indices: _index(site, site.region(x), indices),
    "index_select": lambda site, x, dim, index: taken(site, site.region(x), dim, index),
}
