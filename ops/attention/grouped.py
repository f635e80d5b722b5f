"""Grouped queries: heads of keys and values that several heads of queries share.

Ainslie et al., "GQA: Training generalized multi-query transformer models from multi-head checkpoints", EMNLP 2023.
"""

from __future__ import annotations

from functools import partial

from ops.building import check_positive, checked, distinct, launch_first, terms
from ops.elementwise.formula import formula
from ops.tiles import deliver, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def repeat_heads(x: LogicalRegion, times: int, name: str | None = None) -> LogicalRegion:
    """Every head so many times in a row, as torch.repeat_interleave over dimension 2; the gradient is their sum.

    Args:
        x: (batch, points, heads, features), any dtype; the gradient needs floating point.
        times: heads of queries for each head of keys and values.
        name: of the operator.

    Returns:
        (batch, points, heads * times, features). Split over heads, a task reads the heads that its own repeat.

    Raises:
        ValueError: `x` has not four dimensions, or `times` is not positive.
    """
    where = checked("repeat_heads", name, x, ndim=(4,), floating=False)
    check_positive(where, times=times)
    if times == 1:
        return x
    b, t, k, d = distinct(x.axes, ("r",))
    return launch_first(
        name or "repeat_heads",
        f"{b} {t} {k} {d} -> {b} {t} ({k} r) {d}",
        [x],
        kernel=_repeat,
        sizes={"r": times},
        backward=_repeat_backward,
        flops=0,
    )


def _repeat_backward(op: Operator, gy: LogicalRegion) -> LogicalRegion:
    (x_term,), (y_term,) = terms(op)
    return formula(
        f"{op.name}.dx",
        "g",
        {"g": (gy, y_term)},
        x_term,
        sizes={"r": op.extents["r"]},
    )


@partial(Kernel, takes_mixed=True)
def _repeat(ctx: Context, x: Array, y: Array) -> None:
    work = work_array(ctx, "y", y)
    batch, points, heads, features = x.shape
    ctx.xp.copyto(work.reshape(batch, points, heads, -1, features), x[:, :, :, None])
    deliver(ctx, work, y)
