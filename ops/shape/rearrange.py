"""Changing the shape: reshape, flatten, permute, concatenate. Each task copies its tile.

A reshape splits over what both shapes have in common in memory order: (n, c, h, w) -> (n, c h w) over `n`, over `c`,
and so on; a part of a dimension that falls apart differently in both shapes stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import gcd, prod

from ops.building import (
    check_dim,
    check_region,
    checked,
    distinct,
    fresh,
    gradient_of_first,
    is_integer,
    launch_first,
    term,
    terms,
)
from ops.tiles import contiguous
from taskflow import Array, Context, Kernel, LogicalRegion, Operator, Window


def reshape(x: LogicalRegion, shape: Sequence[int], name: str | None = None) -> LogicalRegion:
    """The same elements in memory order under another shape, as torch.reshape.

    Args:
        x: any shape and dtype.
        shape: extents; one of them may be -1, which stands for what is left.
        name: of the operator.

    Raises:
        ValueError: the number of elements differs.
    """
    where = checked("reshape", name, x, floating=False)
    if not all(map(is_integer, shape)):
        raise ValueError(f"{where}: the shape is {tuple(shape)}, integers are needed")
    target = _resolve(where, x, tuple(shape))
    left, right, sizes = _common_axes(x, target)
    return launch_first(
        name or "reshape",
        f"{_groups(left)} -> {_groups(right)}",
        [x],
        kernel=_copy_in_order,
        sizes=sizes,
        backward=partial(gradient_of_first, kernel=_copy_in_order),
        flops=prod(target) / prod(sizes.values()),
    )


def flatten(
    x: LogicalRegion, start_dim: int = 1, end_dim: int = -1, name: str | None = None
) -> LogicalRegion:
    """Dimensions `start_dim` to `end_dim` made one, as torch.flatten, but from dimension 1 on by default.

    Raises:
        ValueError: a dimension is out of range, or they are in the wrong order.
    """
    where = checked("flatten", name, x, floating=False)
    start = check_dim(where, start_dim, x.ndim)
    end = check_dim(where, end_dim, x.ndim)
    if start > end:
        raise ValueError(f"{where}: start_dim {start_dim} stands behind end_dim {end_dim}")
    shape = (*x.shape[:start], prod(x.shape[start : end + 1]), *x.shape[end + 1 :])
    return reshape(x, shape, name or "flatten")


def permute(x: LogicalRegion, dims: Sequence[int], name: str | None = None) -> LogicalRegion:
    """Dimension k of the result is dimension `dims[k]` of `x`, as torch.permute.

    Raises:
        ValueError: `dims` is not a permutation of the dimensions.
    """
    where = checked("permute", name, x, floating=False)
    order = tuple(check_dim(where, d, x.ndim) for d in dims)
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(
            f"{where}: dims {tuple(dims)} is not a permutation of the {x.ndim} dimensions of '{x.name}'"
        )
    axes = distinct(x.axes)
    pattern = f"{term(axes)} -> {term([axes[d] for d in order])}"
    kernel = _copy_transposed.bind(dims=order)
    return launch_first(
        name or "permute",
        pattern,
        [x],
        kernel=kernel,
        backward=_permute_backward,
    )


transpose = permute


def concat(xs: Sequence[LogicalRegion], dim: int = 0, name: str | None = None) -> LogicalRegion:
    """The regions one after the other along `dim`, as torch.cat.

    Raises:
        ValueError: there are none, or two of them differ in another dimension.
    """
    where = f"concat '{name or 'concat'}'"
    xs = list(xs)
    if not xs:
        raise ValueError(f"{where}: at least one region is needed")
    for k, x in enumerate(xs):
        check_region(where, x, f"xs[{k}]", floating=False)
    dim = check_dim(where, dim, xs[0].ndim)
    for x in xs[1:]:
        if (
            x.shape[:dim] + x.shape[dim + 1 :] != xs[0].shape[:dim] + xs[0].shape[dim + 1 :]
            or x.ndim != xs[0].ndim
        ):
            raise ValueError(
                f"{where}: '{xs[0].name}' is {xs[0].shape} and '{x.name}' is {x.shape}; only dim {dim} may differ"
            )
        if x.dtype != xs[0].dtype:
            raise ValueError(
                f"{where}: '{xs[0].name}' is {xs[0].dtype} and '{x.name}' is {x.dtype}"
            )
    *offsets, extent = accumulate((x.shape[dim] for x in xs), initial=0)
    backward = partial(_concat_backward, dim=dim)
    return put_together(
        name or "concat",
        xs,
        distinct(xs[0].axes),
        dim,
        tuple(offsets),
        extent,
        backward=backward,
    )


cat = concat


def put_together(
    name: str,
    xs: Sequence[LogicalRegion],
    axes: Sequence[str],
    dim: int,
    offsets: Sequence[int],
    extent: int,
    *,
    has_gaps: bool = False,
    backward: Callable[..., object] | None = None,
    dtype: str | None = None,
) -> LogicalRegion:
    """`xs` at `offsets` along `dim` of a region of `extent` points there and of these axes, zeros in gaps."""
    at = tuple(offsets)
    kernel = _place.bind(dim=dim, starts=at) if has_gaps else _join.bind(dim=dim, offsets=at)
    parts = distinct([f"{axes[dim]}{k}" for k in range(len(xs))], axes)
    read = ", ".join(term((*axes[:dim], part, *axes[dim + 1 :])) for part in parts)
    return launch_first(
        name,
        f"{read} -> {term(axes)}",
        xs,
        kernel=kernel,
        sizes={axes[dim]: extent},
        windows={
            part: Window(axes[dim], padding=offset)
            for part, offset in zip(parts, offsets, strict=True)
        },
        backward=backward,
        dtype=dtype or xs[0].dtype,
    )


# -- axes of a reshape -------------------------------------------------------------------------------------------------


def _resolve(where: str, x: LogicalRegion, shape: tuple[int, ...]) -> tuple[int, ...]:
    count = prod(x.shape)
    given = prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and given > 0 and count % given == 0:
        shape = tuple(count // given if n == -1 else n for n in shape)
    if any(n < 1 for n in shape) or prod(shape) != count:
        raise ValueError(
            f"{where}: '{x.name}' has shape {x.shape}, which does not fill the shape {shape}"
        )
    return shape


Dims = list[list[str]]


def _common_axes(x: LogicalRegion, target: tuple[int, ...]) -> tuple[Dims, Dims, dict[str, int]]:
    """Per dimension of `x` and of `target` the axes that make it up, slowest first, and their extents.

    Both shapes are walked from the left. What divides both remainders is an axis of both; where the remainders have
    nothing in common, the dimensions up to the next common boundary get axes of their own that are never split.
    """
    left: Dims = [[] for _ in x.shape]
    right: Dims = [[] for _ in target]
    sizes: dict[str, int] = {}
    names = distinct(x.axes)

    def add(places: Sequence[tuple[Dims, int]], base: str, extent: int, mark: str = "") -> None:
        name = base if base in names and base not in sizes else fresh(base, [*names, *sizes])
        sizes[name] = extent
        for dims, k in places:
            dims[k].append(mark + name)

    a = list(x.shape)
    b = list(target)
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == 1 or b[j] == 1:
            i = i + (a[i] == 1)
            j = j + (b[j] == 1)
            continue
        if (common := gcd(a[i], b[j])) > 1:
            add([(left, i), (right, j)], names[i], common)
            a[i], b[j] = a[i] // common, b[j] // common
            if 1 in (a[i], b[j]):
                continue
        i_end, j_end = _next_boundary(a, b, i, j)
        for k in range(i, i_end):
            if a[k] > 1:
                add([(left, k)], f"{names[i]}_in", a[k], "^")
        for k in range(j, j_end):
            if b[k] > 1:
                add([(right, k)], f"{names[i]}_out", b[k], "^")
        i = i_end
        j = j_end
    return left, right, sizes


def _next_boundary(a: Sequence[int], b: Sequence[int], i: int, j: int) -> tuple[int, int]:
    """The first dimensions behind `i` and `j` before which both shapes hold equally many points."""
    m = a[i]
    n = b[j]
    while m != n:
        if m < n:
            i += 1
            m *= a[i]
        else:
            j += 1
            n *= b[j]
    return i + 1, j + 1


def _groups(dims: Dims) -> str:
    return (
        " ".join("1" if not d else d[0] if len(d) == 1 else f"({' '.join(d)})" for d in dims) or "."
    )


# -- backward ----------------------------------------------------------------------------------------------------------


def _permute_backward(op: Operator, gy: LogicalRegion) -> LogicalRegion:
    (x_term,), (y_term,) = terms(op)
    dims = tuple(y_term.split().index(axis) for axis in x_term.split()) if x_term != "." else ()
    kernel = _copy_transposed.bind(dims=dims)
    return launch_first(f"{op.name}.dx", f"{y_term} -> {x_term}", [gy], kernel=kernel)


def _concat_backward(op: Operator, gy: LogicalRegion, *, dim: int) -> tuple[LogicalRegion, ...]:
    parts, (y_term,) = terms(op)
    axis = y_term.split()[dim]
    return tuple(
        launch_first(
            f"{op.name}.dx{k}",
            f"{part} -> {y_term}",
            [gy],
            kernel=_copy,
            sizes={axis: x.shape[dim]},
            windows=_turned_window(op, part.split()[dim], axis),
            dtype=x.dtype,
        )
        for k, (part, x) in enumerate(zip(parts, op.inputs, strict=True))
    )


def _turned_window(op: Operator, part: str, axis: str) -> dict[str, Window]:
    """From which point of the whole axis a part came."""
    return {part: Window(axis, padding=-op.windows[part].padding)}


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, is_captured=True, takes_mixed=True)
def _copy(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.copyto(y, x)


@partial(Kernel, takes_mixed=True)
def _copy_in_order(ctx: Context, x: Array, y: Array) -> None:
    if y.flags.c_contiguous:
        ctx.xp.copyto(y.reshape(x.shape), x)
    else:
        ctx.xp.copyto(y, contiguous(ctx, "x", x).reshape(y.shape))


@partial(Kernel, is_captured=True, takes_mixed=True)
def _copy_transposed(ctx: Context, x: Array, y: Array, *, dims: tuple[int, ...]) -> None:
    ctx.xp.copyto(y, x.transpose(dims))


@partial(Kernel, is_captured=True, takes_mixed=True)
def _join(ctx: Context, *args: Array, dim: int, offsets: tuple[int, ...]) -> None:
    _copy_all(ctx, args, dim, offsets)


def _copy_all(ctx: Context, args: Sequence[Array], dim: int, offsets: Sequence[int]) -> None:
    """Copy all arrays but the last into that, each to its offset along `dim` of the whole region."""
    *xs, y = args
    for k, x in enumerate(xs):
        if x.size:
            lo = ctx.rect(k).lo[dim] + offsets[k] - ctx.rect(len(xs)).lo[dim]
            ctx.xp.copyto(y[(*(slice(None),) * dim, slice(lo, lo + x.shape[dim]))], x)


@partial(Kernel, is_captured=True, takes_mixed=True)
def _place(ctx: Context, *args: Array, dim: int, starts: tuple[int, ...]) -> None:
    *xs, y = args
    if sum(x.shape[dim] if x.size else 0 for x in xs) < y.shape[dim]:
        ctx.xp.copyto(y, 0)
    _copy_all(ctx, args, dim, starts)
