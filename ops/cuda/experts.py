"""Mixtures of experts on GPUs; see `ops.cpu.experts` for what the kernels compute, and `kernels` for the rest."""

from __future__ import annotations

from functools import partial

from ops.cuda.kernels import BLOCK, in_dtype, launch, source, wide
from ops.tiles import deliver, work_array
from taskflow import Array, Context, Kernel

EXPERTS = source("experts")


@partial(Kernel, takes_half=True)
def top_k(ctx: Context, p: Array, weights: Array, choices: Array, *, normalize: bool) -> None:
    """See `gate.top_k_gate`."""
    k, count = weights.shape[-1], weights.size // weights.shape[-1]
    name, read = f"top_k_{weights.dtype}", in_dtype(ctx, "cast", p, weights.dtype)
    launch(ctx, EXPERTS, name, count, [read], [weights, choices], bool(normalize), p.shape[-1], k, count)


@partial(Kernel, takes_half=True)
def top_k_gradient(ctx: Context, gweights: Array, choices: Array, p: Array, gp: Array, *, normalize: bool) -> None:
    """See `gate.top_k_gate`."""
    g, probabilities = (in_dtype(ctx, ("cast", k), a, gp.dtype) for k, a in enumerate((gweights, p)))
    count = gp.size // gp.shape[-1]
    numbers = bool(normalize), gp.shape[-1], choices.shape[-1], count
    launch(ctx, EXPERTS, f"top_k_gradient_{gp.dtype}", count, [g, choices, probabilities], [gp], *numbers)


@Kernel
def slots(
    ctx: Context, choices: Array, out: Array, *, experts: int, capacity: int, group_rows: int, places: int
) -> None:
    """See `gate.expert_slots`; a choice out of range gets no slot."""
    read, k = ctx.rect(0), choices.shape[-1]
    made = ctx.scratch("slots", choices.shape, choices.dtype)
    made.fill(-1)
    groups, first = choices.shape[0] // group_rows, read.lo[0] // group_rows * capacity
    per_group = choices.size // k // max(groups, 1)
    numbers = experts, capacity, first, places, per_group, k, groups * experts
    launch(ctx, EXPERTS, f"fill_slots_{choices.dtype}", groups * experts, [choices], [made], *numbers)
    ctx.xp.copyto(out, made[ctx.rect(1).slices(read.lo)])


@partial(Kernel, takes_half=True)
def scatter(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    """See `dispatch.dispatch`."""
    *weights, y = rest
    work, tile = work_array(ctx, "y", y), ctx.rect(2 + len(weights)).lo
    work.fill(0)
    numbers = tile[0], tile[1], places, *y.shape[:2], slots.shape[-1], y.shape[2], slots.size * y.shape[2]
    inputs = [in_dtype(ctx, "cast", x, y.dtype), slots, _given(ctx, weights)]
    launch(ctx, EXPERTS, f"scatter_{y.dtype}_{slots.dtype}", slots.size * y.shape[2], inputs, [work], *numbers)
    deliver(ctx, work, y)


@partial(Kernel, takes_half=True)
def gather(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    """See `dispatch.combine`."""
    *weights, y = rest
    numbers = *ctx.rect(0).lo[:2], places, *x.shape[:2], slots.shape[-1], y.shape[-1], y.size
    inputs = [in_dtype(ctx, "cast", x, y.dtype), slots, _given(ctx, weights)]
    launch(ctx, EXPERTS, f"gather_{y.dtype}_{slots.dtype}", y.size, inputs, [y], *numbers)


@partial(Kernel, takes_half=True)
def gather_products(ctx: Context, gy: Array, x: Array, slots: Array, out: Array, *, places: int) -> None:
    """See `dispatch.combine`."""
    numbers = *ctx.rect(1).lo[:2], places, *x.shape[:2], slots.shape[-1], gy.shape[-1]
    inputs, dtype = [in_dtype(ctx, "cast", gy, x.dtype), x, slots], "float64" if x.dtype == "float64" else "float32"
    name = f"gather_products_{x.dtype}_{slots.dtype}"
    launch(ctx, EXPERTS, name, slots.size * BLOCK, inputs, [out], *numbers, dtype=dtype)


@Kernel
def dropped(ctx: Context, slots: Array, out: Array) -> None:
    """See `gate.count_dropped`."""
    launch(ctx, EXPERTS, f"count_dropped_{slots.dtype}", BLOCK, [slots], [out], slots.size)


@partial(Kernel, takes_half=True)
def load(ctx: Context, choices: Array, load: Array, *, count: int) -> None:
    """See `gate.expert_load`."""
    name, numbers = f"expert_load_{load.dtype}_{choices.dtype}", (ctx.interval("e")[0], choices.size, count)
    launch(ctx, EXPERTS, name, load.size * BLOCK, [choices], [load], *numbers)


def _given(ctx: Context, weights: list[Array]) -> Array | int:
    """The weights, as wide as sums are; a null pointer stands for ones."""
    return wide(ctx, "weights", weights[0]) if weights else 0
