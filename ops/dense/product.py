"""Products of two regions: matrix products, batched ones, and every other einsum of two operands.

Every axis may be split: those of the result make tiles, those that are summed over make partial sums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ops.building import check_region, checked, distinct, launch_first, term, terms
from ops.tiles import add_product, merged, merges
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def matmul(x: LogicalRegion, y: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """z[..., m, o] = sum over i of x[..., m, i] y[..., i, o], as torch.matmul without broadcasting.

    Args:
        x: (..., m, i), floating point, at least two dimensions.
        y: (..., i, o) with the leading dimensions of `x`, or (i, o).
        name: of the operator.

    Returns:
        (..., m, o), of the dtype of `x`.

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong.
    """
    for role, region in (("x", x), ("y", y)):
        where = checked("matmul", name, region, role, least=2)
    if (y.ndim > 2 and y.shape[:-2] != x.shape[:-2]) or y.shape[-2] != x.shape[-1]:
        raise ValueError(
            f"{where}: '{x.name}' is {x.shape} and '{y.name}' is {y.shape}, which do not agree"
        )
    *lead, m = distinct(x.axes[:-1], ("i", "o"))
    right = (*lead, "i", "o") if y.ndim > 2 else ("i", "o")
    return contract(
        name or "matmul", f"{term((*lead, m, 'i'))}, {term(right)} -> {term((*lead, m, 'o'))}", x, y
    )


def bmm(x: LogicalRegion, y: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """z[b, m, o] = sum over i of x[b, m, i] y[b, i, o], as torch.bmm.

    Args, returns and raises as `matmul`; both regions have three dimensions.
    """
    for role, region in (("x", x), ("y", y)):
        checked("bmm", name, region, role, ndim=(3,))
    return matmul(x, y, name or "bmm")


batch_matmul = bmm


def einsum(
    equation: str, x: LogicalRegion, y: LogicalRegion, name: str | None = None
) -> LogicalRegion:
    """The sum of products that `equation` says, as torch.einsum of two operands; its letters are the axis names.

    Args:
        equation: "bqkd,btkd->bkqt", say. Each letter stands in two of the three terms, or in all.
        x, y: floating point.
        name: of the operator.

    Raises:
        ValueError: the equation is no such equation, or extents disagree.
    """
    where = checked("einsum", name, x)
    check_region(where, y, "y")
    match = re.fullmatch(r"\s*([A-Za-z]*)\s*,\s*([A-Za-z]*)\s*->\s*([A-Za-z]*)\s*", equation)
    if match is None:
        raise ValueError(
            f"{where}: '{equation}' is not an equation of two operands, such as 'bij,bjk->bik'"
        )
    for axis in sorted(set("".join(match.groups()))):
        if sum(axis in part for part in match.groups()) < 2:
            raise ValueError(f"{where}: '{axis}' stands in one term of '{equation}' only")
    pattern = "{}, {} -> {}".format(*(term(list(part)) for part in match.groups()))
    return contract(name or "einsum", pattern, x, y)


def contract(
    name: str, pattern: str, x: LogicalRegion, y: LogicalRegion, scale: float = 1.0
) -> LogicalRegion:
    """`scale` times the sum of products of a pattern without groups whose axes each stand in two terms or in all."""
    return launch_first(
        name,
        pattern,
        [x, y],
        kernel=multiply_matrices.bind(layouts=Layouts.of(pattern), scale=scale),
        backward=partial(_backward, scale=scale),
        flops=2,
    )


def _backward(
    op: Operator, gz: LogicalRegion, *, scale: float
) -> tuple[LogicalRegion, LogicalRegion]:
    (x_term, y_term), (z_term,) = terms(op)
    x, y = op.inputs
    gx = contract(
        f"{op.name}.dx",
        f"{z_term}, {y_term} -> {x_term}",
        gz,
        y,
        scale,
    )
    return gx, contract(
        f"{op.name}.dy",
        f"{z_term}, {x_term} -> {y_term}",
        gz,
        x,
        scale,
    )


# -- kernel ------------------------------------------------------------------------------------------------------------

# Order of the dimensions, how many are batch, how many of the rest are rows.
Layout = tuple[tuple[int, ...], int, int]


@dataclass(frozen=True)
class Layouts:
    """How both operands and the result are seen as (batch..., rows, columns)."""

    x: Layout
    y: Layout
    z: Layout

    @staticmethod
    def of(pattern: str) -> Layouts:
        """Those of a product of two terms, `left, right -> result`."""
        left, _, right = pattern.partition("->")
        x, y = (part.replace(".", "").replace("^", "").split() for part in left.split(","))
        z = right.replace(".", "").replace("^", "").split()
        batch = [a for a in z if a in x and a in y]
        rows = [a for a in z if a not in y]
        columns = [a for a in z if a not in x]
        summed = [a for a in x if a not in z]

        def layout(axes: list[str], first_axes: list[str], last_axes: list[str]) -> Layout:
            order = tuple(axes.index(a) for a in (*batch, *first_axes, *last_axes))
            return order, len(batch), len(first_axes)

        return Layouts(
            layout(x, rows, summed), layout(y, summed, columns), layout(z, rows, columns)
        )


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True, accumulates=True)
def multiply_matrices(
    ctx: Context,
    x: Array,
    y: Array,
    z: Array,
    *,
    layouts: Layouts,
    scale: float = 1.0,
) -> None:
    """One call of matmul; operands are copied where rows or columns of several axes do not merge in memory, and cast
    where they are not of one dtype, as under a precision that makes only one of them half."""
    dtype, made = _dtypes(x, y, z)
    left = _matrices(ctx, "x", x, layouts.x, dtype)
    right = _matrices(ctx, "y", y, layouts.y, dtype)
    order, batch, rows = layouts.z
    target = z.transpose(order)
    is_in_place = z.dtype == made and merges(target, batch, rows)
    adds = ctx.adds_to(0)
    if is_in_place and adds:
        add_product(ctx, left, right, merged(target, batch, rows), scale)
        return
    product = merged(target, batch, rows) if is_in_place else None
    if product is None:
        product = ctx.scratch("z", (*target.shape[:batch], left.shape[-2], right.shape[-1]), made)
    ctx.xp.matmul(left, right, out=product)
    if scale != 1:
        ctx.xp.multiply(product, scale, out=product)
    if adds:
        ctx.xp.add(target, product.reshape(target.shape), out=target, casting="same_kind")
    elif not is_in_place:
        ctx.xp.copyto(target, product.reshape(target.shape), casting="same_kind")


def _dtypes(x: Array, y: Array, z: Array) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """In which both operands are multiplied, and what comes of it: of half operands float32, if that is asked for."""
    if x.dtype == y.dtype and (
        x.dtype == z.dtype or (x.dtype.itemsize == 2 and z.dtype == np.float32)
    ):
        return x.dtype, z.dtype
    dtype = np.result_type(x.dtype, y.dtype, z.dtype)
    return dtype, dtype


def _matrices(ctx: Context, slot: str, a: Array, layout: Layout, dtype: np.dtype[Any]) -> Array:
    order, batch, rows = layout
    a = a.transpose(order)
    if a.dtype != dtype or not merges(a, batch, rows):
        copy = ctx.scratch(slot, a.shape, dtype)
        ctx.xp.copyto(copy, a)
        a = copy
    return merged(a, batch, rows)
