"""Mixtures of experts on GPUs; see `ops.cpu.experts` for what the kernels compute, and `kernels` for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.cuda.kernels import BLOCK, launch, source, widest
from ops.tiles import deliver
from taskflow import Array, Context, Kernel

EXPERTS = source("experts")
_ONES: Sequence[Array | int] = (0,)  # a null pointer stands for weights of one


@partial(Kernel, takes_mixed=True)
def top_k(ctx: Context, p: Array, weights: Array, choices: Array, *, normalize: bool) -> None:
    """See `gate.top_k_gate`."""
    k, count = weights.shape[-1], weights.size // weights.shape[-1]
    name = f"top_k_{widest(p, weights)}"
    launch(ctx, EXPERTS, name, count, [p], [weights, choices], normalize, p.shape[-1], k, count)


@partial(Kernel, takes_mixed=True)
def top_k_gradient(
    ctx: Context, gweights: Array, choices: Array, p: Array, gp: Array, *, normalize: bool
) -> None:
    """See `gate.top_k_gate`."""
    count = gp.size // gp.shape[-1]
    numbers = normalize, gp.shape[-1], choices.shape[-1], count
    name = f"top_k_gradient_{widest(gweights, p, gp)}"
    launch(ctx, EXPERTS, name, count, [gweights, choices, p], [gp], *numbers)


@Kernel
def slots(
    ctx: Context,
    choices: Array,
    out: Array,
    *,
    experts: int,
    capacity: int,
    group_rows: int,
    places: int,
) -> None:
    """See `gate.expert_slots`; a choice out of range gets no slot."""
    read, k = ctx.rect(0), choices.shape[-1]
    made = ctx.scratch("slots", choices.shape, choices.dtype)
    made.fill(-1)
    groups, first = choices.shape[0] // group_rows, read.lo[0] // group_rows * capacity
    per_group = choices.size // k // max(groups, 1)
    numbers = experts, capacity, first, places, per_group, k, groups * experts
    launch(
        ctx, EXPERTS, f"fill_slots_{choices.dtype}", groups * experts, [choices], [made], *numbers
    )
    ctx.xp.copyto(out, made[ctx.rect(1).slices(read.lo)])


@partial(Kernel, takes_mixed=True)
def scatter(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    """See `dispatch.dispatch`."""
    *weights, y = rest
    dtype, tile = widest(x, y), ctx.rect(2 + len(weights)).lo
    work = y if y.flags.c_contiguous and y.dtype == dtype else ctx.scratch("y", y.shape, dtype)
    work.fill(0)
    numbers = (
        tile[0],
        tile[1],
        places,
        *y.shape[:2],
        slots.shape[-1],
        y.shape[2],
        slots.size * y.shape[2],
    )
    name, inputs = f"scatter_{dtype}_{slots.dtype}", (x, slots, *(weights or _ONES))
    launch(ctx, EXPERTS, name, slots.size * y.shape[2], inputs, [work], *numbers)
    deliver(ctx, work, y)


@partial(Kernel, takes_mixed=True)
def gather(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    """See `dispatch.combine`."""
    *weights, y = rest
    numbers = *ctx.rect(0).lo[:2], places, *x.shape[:2], slots.shape[-1], y.shape[-1], y.size
    inputs = x, slots, *(weights or _ONES)
    launch(ctx, EXPERTS, f"gather_{widest(x, y)}_{slots.dtype}", y.size, inputs, [y], *numbers)


@partial(Kernel, takes_mixed=True)
def gather_products(
    ctx: Context, gy: Array, x: Array, slots: Array, out: Array, *, places: int
) -> None:
    """See `dispatch.combine`."""
    numbers = *ctx.rect(1).lo[:2], places, *x.shape[:2], slots.shape[-1], gy.shape[-1]
    name = f"gather_products_{widest(gy, x)}_{slots.dtype}"
    launch(ctx, EXPERTS, name, slots.size * BLOCK, [gy, x, slots], [out], *numbers)


@Kernel
def dropped(ctx: Context, slots: Array, out: Array) -> None:
    """See `gate.count_dropped`."""
    launch(ctx, EXPERTS, f"count_dropped_{slots.dtype}", BLOCK, [slots], [out], slots.size)


@partial(Kernel, takes_mixed=True)
def load(ctx: Context, choices: Array, load: Array, *, count: int) -> None:
    """See `gate.expert_load`."""
    name, numbers = (
        f"expert_load_{load.dtype}_{choices.dtype}",
        (ctx.interval("e")[0], choices.size, count),
    )
    launch(ctx, EXPERTS, name, load.size * BLOCK, [choices], [load], *numbers)
