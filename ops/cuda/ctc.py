"""Connectionist temporal classification on GPUs; see `ops.loss.ctc`."""

from __future__ import annotations

from functools import partial

from ops.cuda.kernels import BLOCK, launch, source, widest
from taskflow import Array, Context, Kernel

CTC = source("ctc")


@partial(Kernel, takes_mixed=True)
def losses(
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
    """A block for each sample; what a length leaves out, and labels that are no class, count as `blank`."""
    batch, length, classes = logits.shape
    states = 2 * targets.shape[1] + 1
    whole = []
    for what, a in (("targets", targets), ("frames", frames), ("labels", labels)):
        whole.append(ctx.scratch(what, a.shape, "int32"))
        ctx.xp.copyto(whole[-1], a, casting="unsafe")
    alphas = ctx.scratch("alphas", (batch, length, states), "float64")
    rest = ctx.scratch("rest", (batch, length + 3 * states), "float64")  # of frames, and of states
    launch(
        ctx,
        CTC,
        f"ctc_{widest(logits, gx)}",
        batch * BLOCK,
        [logits, *whole],
        [loss, gx, alphas, rest],
        length,
        classes,
        targets.shape[1],
        blank,
    )
