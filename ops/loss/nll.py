"""The loss of logarithms of probabilities that there are already, as `log_softmax` gives them."""

from __future__ import annotations

from functools import partial

from ops.building import distinct, gradient_of_first, launch_first, term
from ops.cuda import tables as gpu_tables
from ops.loss.by_class import check_weight, known_targets, reduce_rows, weights_of_rows
from ops.loss.pairwise import check_reduction
from ops.loss.softmax import check_ignored, check_targets
from ops.tiles import take_along
from taskflow import Array, Context, Kernel, LogicalRegion


def nll_loss(
    x: LogicalRegion,
    t: LogicalRegion,
    ignore_index: int | None = None,
    name: str | None = None,
    *,
    reduction: str = "mean",
    weight: LogicalRegion | None = None,
) -> LogicalRegion:
    """-x[t] of every row, reduced, as torch.nn.functional.nll_loss with the classes last.

    Args:
        x: (..., classes), floating point: logarithms of probabilities. Every axis may be split.
        t: (...), integers: the right class of each row. A class out of range is a ValueError when the step runs.
        ignore_index: rows with this target have no loss, no gradient and no part in the mean; None: every row counts.
        name: of the operator that picks the right logarithms; the loss is made by `<name>.loss`.
        reduction: "mean" of the rows that count (of none: NaN, as torch), "sum", or "none" for the loss of each row.
        weight: (classes,), floating point: of each class. A mean is divided by the weights of the rows that count.

    Returns:
        A scalar of the dtype of `x`, or with "none" (...).

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, or there is no such reduction.
    """
    where = check_targets("nll_loss", name, x, t)
    check_reduction(where, reduction)
    check_weight(where, weight, x.shape[-1])
    ignore_index = check_ignored(where, ignore_index)
    graph = x.graph
    name = x.graph.unique_name(name or "nll_loss")
    axes = distinct(x.axes)
    full = term(axes)
    row = term(axes[:-1])
    with graph.following(name):
        targets = known_targets(name, t, ignore_index)
    picked = launch_first(
        name,
        f"{full}, {row} -> {row}",
        [x, targets],
        kernel=_pick.bind(classes=x.shape[-1]),
        backward=partial(gradient_of_first, kernel=_put),
        flops=1 / x.shape[-1],
    )
    with graph.following(name):
        values = {"picked": (picked, row)}
        text = "-picked"
        slopes = {"picked": "-1"}
        weights = None
        if weight is not None:
            weights = weights_of_rows(name, weight, targets)
            values["weight"] = weights, row
            text = "-weight * picked"
            slopes = {"picked": "-weight"}
        return reduce_rows(name, values, text, slopes, t, row, ignore_index, weights, reduction)


@Kernel
def _pick_on_gpu(ctx: Context, x: Array, t: Array, picked: Array, *, classes: int) -> None:
    gpu_tables.gather_along(ctx, x, t, picked, x.ndim - 1, classes)


@partial(Kernel, cuda=_pick_on_gpu)
def _pick(ctx: Context, x: Array, t: Array, picked: Array, *, classes: int) -> None:
    """Zero where the right class is not in this tile."""
    take_along(ctx, "nll_loss: the target", x, t[..., None], picked[..., None], x.ndim - 1, classes)


@Kernel
def _put_on_gpu(ctx: Context, g: Array, t: Array, gx: Array) -> None:
    gpu_tables.add_along(ctx, g, t, gx, gx.ndim - 1)


@partial(Kernel, cuda=_put_on_gpu)
def _put(ctx: Context, g: Array, t: Array, gx: Array) -> None:
    ctx.xp.copyto(gx, 0)
    local = t - ctx.rect(2).lo[-1]
    is_here = (local >= 0) & (local < gx.shape[-1])
    index = local.clip(0, gx.shape[-1] - 1)
    share = ctx.xp.where(is_here, g, 0)
    ctx.xp.put_along_axis(gx, index[..., None], share[..., None], -1)
