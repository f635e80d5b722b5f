"""Connectionist temporal classification: the loss of labels that stand somewhere in a sequence, and their decoding.

Source: Graves et al., "Connectionist temporal classification", ICML 2006. A frame has a class, one of them `blank`;
labels are what is left where equal classes beside each other become one and blanks go.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ops.building import (
    check_dim,
    check_integers,
    check_positive,
    checked,
    distinct,
    launch_all,
    term,
)
from ops.cuda import ctc as on_gpu
from ops.elementwise.formula import formula
from ops.tiles import check_classes, contiguous, deliver, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def ctc_loss(
    logits: LogicalRegion,
    targets: LogicalRegion,
    input_lengths: LogicalRegion,
    target_lengths: LogicalRegion,
    blank: int = 0,
    name: str | None = None,
) -> LogicalRegion:
    """-log of the probability of the target over all ways to align it, as torch's of `log_softmax(logits)`.

    Args:
        logits: (batch, frames, classes), floating point. Samples may be split.
        targets: (batch, labels), integers: classes other than `blank`.
        input_lengths, target_lengths: (batch,), integers: how many frames and labels count.
        blank: the class of no label.
        name: of the operator.

    Returns:
        (batch,), infinite, with a gradient of NaN, where there are too few frames for the target.

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong; when the step runs: a label is no class, or a length
            is longer than what there is.
    """
    where = checked("ctc_loss", name, logits, "logits", ndim=(3,))
    batch, _, classes = logits.shape
    for what, region, shape in (
        ("targets", targets, (batch, *targets.shape[1:2])),
        ("input_lengths", input_lengths, (batch,)),
        ("target_lengths", target_lengths, (batch,)),
    ):
        check_integers(where, region, what)
        if region.shape != shape:
            raise ValueError(
                f"{where}: {what} '{region.name}' is {region.shape}, logits are {logits.shape}"
            )
    blank = check_dim(where, blank, classes)
    b, frame, label = distinct((logits.axes[0], "t", "l"), ("c",))
    losses, _ = launch_all(
        name or "ctc_loss",
        f"{b} ^{frame} ^c, {b} ^{label}, {b}, {b} -> {b}, {b} ^{frame} ^c",
        [logits, targets, input_lengths, target_lengths],
        kernel=_losses.bind(blank=blank),
        backward=_backward,
        flops=20 * (2 * targets.shape[1] + 1) / max(classes * targets.shape[1], 1),
    )
    return losses


def _backward(
    op: Operator, g: LogicalRegion, _: LogicalRegion | None
) -> tuple[LogicalRegion | None, ...]:
    axes = distinct(op.outputs[1].axes)
    inputs = {"slope": (op.outputs[1], term(axes)), "g": (g, term(axes[:1]))}
    return formula(f"{op.name}.dx", "slope * g", inputs, term(axes)), None, None, None


@partial(Kernel, is_compiled=True, cuda=on_gpu.losses, float32_outputs=(0,))
def _losses(
    ctx: Context,
    logits: Array,
    targets: Array,
    frames: Array,
    labels: Array,
    loss: Array,
    gx: Array,
    *,
    blank: int,
) -> None:
    from ops.cpu import ctc

    check_classes("ctc_loss: the label", targets, logits.shape[2])
    check_classes("ctc_loss: input_lengths:", frames, logits.shape[1] + 1)
    check_classes("ctc_loss: target_lengths:", labels, targets.shape[1] + 1)
    work = work_array(ctx, "loss", loss)
    slope = work_array(ctx, "gx", gx)
    read = contiguous(ctx, "x", logits), contiguous(ctx, "targets", targets)
    ctc.losses(
        *read,
        contiguous(ctx, "frames", frames),
        contiguous(ctx, "labels", labels),
        blank,
        work,
        slope,
    )
    deliver(ctx, work, loss)
    deliver(ctx, slope, gx)


def ctc_decode(logits: Array, beam: int = 1, blank: int = 0) -> list[list[int]]:
    """The labels of each sample of an array: of the likeliest class of each frame, or by prefix beam search.

    Args:
        logits: (batch, frames, classes), any floating dtype.
        beam: 1: the likeliest alignment; else so many prefixes are kept, by the sum over their alignments.
        blank: the class of no label.

    Raises:
        ValueError: `logits` has other dimensions, or `beam` is not positive.
    """
    from ops.cpu import ctc

    check_positive("ctc_decode", beam=beam)
    if logits.ndim != 3:
        raise ValueError(
            f"ctc_decode: logits are {logits.shape}, (batch, frames, classes) is needed"
        )
    blank = check_dim("ctc_decode", blank, logits.shape[2])
    if beam == 1:
        best = logits.argmax(-1)
        changes = np.ones(best.shape, bool)
        changes[:, 1:] = best[:, 1:] != best[:, :-1]
        return [
            row[is_new & (row != blank)].tolist() for row, is_new in zip(best, changes, strict=True)
        ]
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(-1, keepdims=True))
    return [ctc.search_prefixes(y, beam, blank).tolist() for y in shifted]
