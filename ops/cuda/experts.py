"""Mixtures of experts on GPUs; see `ops.cpu.experts` for what the kernels compute, and `kernels` for the rest.

Not yet run on hardware; the tests compile the source for GPUs, and run it as C++ against the NumPy kernels.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ops.cuda.kernels import in_dtype, wide
from ops.tiles import contiguous, deliver, rows, work_array
from taskflow import Array, Context, CudaSource, Kernel

EXPERTS = CudaSource(Path(__file__).parent / "experts.cu")
_BLOCK = 256


@partial(Kernel, takes_half=True)
def top_k(ctx: Context, p: Array, weights: Array, choices: Array, *, normalize: bool) -> None:
    """See `gate.top_k_gate`."""
    if p.dtype != weights.dtype:
        p = in_dtype(ctx, "wide p", p, weights.dtype)
    made = work_array(ctx, "weights", weights), work_array(ctx, "choices", choices)
    count = weights.size // weights.shape[-1]
    numbers = bool(normalize), p.shape[-1], weights.shape[-1], count
    ctx.launch(EXPERTS, f"top_k_{p.dtype}", count, rows(ctx, "rows", p), *made, *numbers)
    deliver(ctx, made[0], weights)
    deliver(ctx, made[1], choices)


@partial(Kernel, takes_half=True)
def top_k_gradient(ctx: Context, gweights: Array, choices: Array, p: Array, gp: Array, *, normalize: bool) -> None:
    """See `gate.top_k_gate`."""
    read = (in_dtype(ctx, ("cast", k), a, gp.dtype) for k, a in enumerate((gweights, p)))
    g, probabilities = (rows(ctx, f"rows {k}", a) for k, a in enumerate(read))
    work, count = work_array(ctx, "gp", gp), gp.size // gp.shape[-1]
    numbers = bool(normalize), gp.shape[-1], choices.shape[-1], count
    ctx.launch(
        EXPERTS, f"top_k_gradient_{gp.dtype}", count, g, rows(ctx, "choices", choices), probabilities, work, *numbers
    )
    deliver(ctx, work, gp)


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
    flat = contiguous(ctx, "choices", choices)
    ctx.launch(EXPERTS, f"fill_slots_{choices.dtype}", groups * experts, flat, made, *numbers)
    ctx.xp.copyto(out, made[ctx.rect(1).slices(read.lo)])


@partial(Kernel, takes_half=True)
def scatter(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    """See `dispatch.dispatch`."""
    *weights, y = rest
    work, tile = work_array(ctx, "y", y), ctx.rect(2 + len(weights)).lo
    work.fill(0)
    numbers = tile[0], tile[1], places, *y.shape[:2], slots.shape[-1], y.shape[2], slots.size * y.shape[2]
    read = rows(ctx, "x", in_dtype(ctx, "cast", x, y.dtype))
    arrays = read, contiguous(ctx, "slots", slots), _given(ctx, weights)
    ctx.launch(EXPERTS, f"scatter_{y.dtype}_{slots.dtype}", slots.size * y.shape[2], *arrays, work, *numbers)
    deliver(ctx, work, y)


@partial(Kernel, takes_half=True)
def gather(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    """See `dispatch.combine`."""
    *weights, y = rest
    work, tile = work_array(ctx, "y", y), ctx.rect(0).lo
    numbers = tile[0], tile[1], places, *x.shape[:2], slots.shape[-1], y.shape[-1], y.size
    read = contiguous(ctx, "x", in_dtype(ctx, "cast", x, y.dtype))
    arrays = read, contiguous(ctx, "slots", slots), _given(ctx, weights)
    ctx.launch(EXPERTS, f"gather_{y.dtype}_{slots.dtype}", y.size, *arrays, work, *numbers)
    deliver(ctx, work, y)


@partial(Kernel, takes_half=True)
def gather_products(ctx: Context, gy: Array, x: Array, slots: Array, out: Array, *, places: int) -> None:
    """See `dispatch.combine`."""
    tile, dtype = ctx.rect(1).lo, "float64" if x.dtype == "float64" else "float32"
    made = ctx.scratch("products", slots.shape, dtype)
    numbers = tile[0], tile[1], places, *x.shape[:2], slots.shape[-1], gy.shape[-1]
    read = rows(ctx, "gy", in_dtype(ctx, "cast", gy, x.dtype))
    arrays = read, contiguous(ctx, "x", x), contiguous(ctx, "slots", slots)
    ctx.launch(EXPERTS, f"gather_products_{x.dtype}_{slots.dtype}", slots.size * _BLOCK, *arrays, made, *numbers)
    ctx.xp.copyto(out, made, casting="same_kind")


@Kernel
def dropped(ctx: Context, slots: Array, out: Array) -> None:
    """See `gate.count_dropped`."""
    ctx.launch(EXPERTS, f"count_dropped_{slots.dtype}", _BLOCK, contiguous(ctx, "slots", slots), out, slots.size)


@partial(Kernel, takes_half=True)
def load(ctx: Context, choices: Array, load: Array, *, count: int) -> None:
    """See `gate.expert_load`."""
    work, name = work_array(ctx, "load", load), f"expert_load_{load.dtype}_{choices.dtype}"
    numbers = ctx.interval("e")[0], choices.size, count
    ctx.launch(EXPERTS, name, load.size * _BLOCK, contiguous(ctx, "choices", choices), work, *numbers)
    deliver(ctx, work, load)


def _given(ctx: Context, weights: list[Array]) -> Array | int:
    """The weights, as wide as sums are; a null pointer stands for ones."""
    return wide(ctx, "weights", weights[0]) if weights else 0
