"""Sections of a dimension: slice and split. Every axis may be split, that of the section too.

The gradient of a split is one operator that puts the sections' gradients side by side, not a sum of padded ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

from ops.building import (
    check_dim,
    check_not_negative,
    check_positive,
    checked,
    distinct,
    launch_all,
    term,
    terms,
)
from ops.shape.rearrange import put_together
from ops.shape.steps import take_steps
from taskflow import Array, Context, Kernel, LogicalRegion, Operator, Window


def slice(
    x: LogicalRegion,
    dim: int,
    start: int,
    end: int,
    name: str | None = None,
    *,
    step: int = 1,
) -> LogicalRegion:
    """The points `start` to `end` - 1 of dimension `dim`, as torch.narrow(x, dim, start, end - start).

    Args:
        x: any shape and dtype.
        dim: the dimension that is cut.
        start, end: 0 <= start < end <= extent.
        name: of the operator.
        step: every so many of these points, as x[..., start:end:step].

    Raises:
        ValueError: `dim` or the section is out of range, or `step` is not positive.
    """
    where = checked("slice", name, x, floating=False)
    dim = check_dim(where, dim, x.ndim)
    check_not_negative(where, start=start, end=end)
    start = int(start)
    end = int(end)
    if not start < end <= x.shape[dim]:
        raise ValueError(
            f"{where}: the section {start}:{end} is empty or outside of '{x.name}', {x.shape}"
        )
    check_positive(where, step=step)
    if step > 1:
        return take_steps(x, dim, start, end, int(step), name or "slice")
    if (start, end) == (0, x.shape[dim]):
        return x
    return _launch(x, dim, [(start, end - start)], name or "slice")[0]


def split(
    x: LogicalRegion,
    split_size_or_sections: int | Sequence[int],
    dim: int = 0,
    name: str | None = None,
) -> tuple[LogicalRegion, ...]:
    """`x` cut along `dim` into sections, as torch.split, by one operator.

    Sections of one size share the axis of `dim`, which may be split; in sections of different sizes it stays whole.

    Args:
        x: any shape and dtype.
        split_size_or_sections: the extent of each section (the last may be smaller), or all of them.
        dim: the dimension that is cut.
        name: of the operator.

    Raises:
        ValueError: the sections do not add up to the extent of `dim`, or one is not positive.
    """
    where = checked("split", name, x, floating=False)
    dim = check_dim(where, dim, x.ndim)
    extent = x.shape[dim]
    if not isinstance(split_size_or_sections, Sequence):
        check_positive(where, split_size=split_size_or_sections)
        size = int(split_size_or_sections)
        extents = [size] * (extent // size) + [extent % size] * (extent % size > 0)
    else:
        for n in split_size_or_sections:
            check_positive(where, section=n)
        extents = [int(n) for n in split_size_or_sections]
    if sum(extents) != extent:
        raise ValueError(
            f"{where}: sections {tuple(extents)} do not add up to dim {dim} of '{x.name}', {x.shape}"
        )
    if len(extents) == 1:
        return (x,)
    return _launch(x, dim, list(zip(accumulate(extents, initial=0), extents)), name or "split")


def _launch(
    x: LogicalRegion, dim: int, sections: Sequence[tuple[int, int]], name: str
) -> tuple[LogicalRegion, ...]:
    """One operator that reads `x` once per section (start, extent), under a window of that offset."""
    axes = distinct(x.axes)
    keys = distinct([f"{axes[dim]}{k}" for k in range(len(sections))], axes)
    is_even = len({extent for _, extent in sections}) == 1
    parts = (
        [axes[dim]] * len(keys)
        if is_even
        else distinct([f"part{k}" for k in range(len(keys))], (*axes, *keys))
    )
    mark = "" if is_even else "^"

    def all_of(names: Sequence[str], mark: str = "") -> str:
        return ", ".join(term((*axes[:dim], mark + axis, *axes[dim + 1 :])) for axis in names)

    return launch_all(
        name,
        f"{all_of(keys)} -> {all_of(parts, mark)}",
        [x] * len(keys),
        kernel=_copy_each,
        sizes={part: extent for part, (_, extent) in zip(parts, sections, strict=True)},
        windows={
            k: Window(part, padding=-start)
            for k, part, (start, _) in zip(keys, parts, sections, strict=True)
        },
        backward=partial(_backward, dim=dim, starts=tuple(start for start, _ in sections)),
        dtype=[x.dtype] * len(keys),
    )


def _backward(
    op: Operator, *gradients: LogicalRegion | None, dim: int, starts: tuple[int, ...]
) -> tuple[LogicalRegion | None, ...]:
    """The sections' gradients in their places, zeros where there is none."""
    x = op.inputs[0]
    present, at = zip(
        *((g, start) for g, start in zip(gradients, starts, strict=True) if g is not None),
        strict=True,
    )
    return (
        put_together(
            f"{op.name}.dx",
            present,
            _axes_together(op, dim),
            dim,
            at,
            x.shape[dim],
            has_gaps=True,
            dtype=x.dtype,
        ),
        *[None] * (len(op.inputs) - 1),
    )


def _axes_together(op: Operator, dim: int) -> list[str]:
    """Those of the sections, with the axis of what they were cut from."""
    axes = terms(op)[1][0].replace("^", "").split()
    others = [axis for k, axis in enumerate(axes) if k != dim]
    axes[dim : dim + 1] = distinct([op.inputs[0].axes[dim]], others)
    return axes


@partial(Kernel, is_captured=True, takes_mixed=True)
def _copy_each(ctx: Context, *args: Array) -> None:
    count = len(args) // 2
    for x, y in zip(args[:count], args[count:], strict=True):
        ctx.xp.copyto(y, x)
