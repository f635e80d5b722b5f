"""Every so many points of a dimension. Every axis may be split, that of the points, too."""

from __future__ import annotations

from functools import partial

from ops.building import distinct, launch_first, term, terms
from taskflow import Array, Context, Kernel, LogicalRegion, Operator, Window


def take_steps(
    x: LogicalRegion,
    dim: int,
    start: int,
    end: int,
    step: int,
    name: str,
) -> LogicalRegion:
    """The points `start`, `start + step`, ... before `end` of dimension `dim`; the caller has checked them."""
    axes = distinct(x.axes)
    key = distinct([f"{axes[dim]}_in"], axes)[0]
    read = term((*axes[:dim], key, *axes[dim + 1 :]))
    return launch_first(
        name,
        f"{read} -> {term(axes)}",
        [x],
        kernel=_pick.bind(dim=dim, start=start, step=step),
        sizes={axes[dim]: -(-(end - start) // step)},
        windows={key: Window(axes[dim], stride=step, padding=-start)},
        backward=partial(_backward, dim=dim, start=start, step=step),
    )


def _backward(op: Operator, gy: LogicalRegion, *, dim: int, start: int, step: int) -> LogicalRegion:
    """Each gradient in its place, zeros between them."""
    (x_term,), (y_term,) = terms(op)
    axis = y_term.split()[dim]
    key = x_term.split()[dim]
    return launch_first(
        f"{op.name}.dx",
        f"{x_term} -> {y_term}",
        [gy],
        kernel=_spread.bind(dim=dim, start=start, step=step),
        sizes={axis: op.inputs[0].shape[dim]},
        windows={key: Window(axis, stride=step, padding=-start, transposed=True)},
    )


@partial(Kernel, takes_mixed=True)
def _pick(ctx: Context, x: Array, y: Array, *, dim: int, start: int, step: int) -> None:
    first = ctx.rect(1).lo[dim] * step + start - ctx.rect(0).lo[dim]
    ctx.xp.copyto(y, x[_every(dim, first, step, y.shape[dim])])


@partial(Kernel, takes_mixed=True)
def _spread(ctx: Context, gy: Array, gx: Array, *, dim: int, start: int, step: int) -> None:
    gx.fill(0)
    if gy.size:
        first = ctx.rect(0).lo[dim] * step + start - ctx.rect(1).lo[dim]
        ctx.xp.copyto(gx[_every(dim, first, step, gy.shape[dim])], gy)


def _every(dim: int, first: int, step: int, count: int) -> tuple[slice, ...]:
    return (*(slice(None),) * dim, slice(first, first + (count - 1) * step + 1, step))
