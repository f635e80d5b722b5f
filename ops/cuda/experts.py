"""Mixtures of experts on GPUs; see `ops.cpu.experts` for what the kernels compute, and `kernels` for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.cuda.kernels import BLOCK, launch, source, widest
from ops.tiles import deliver
from taskflow import Array, Context, Kernel

EXPERTS = source("experts")
_ONES: Sequence[Array | int] = (0,)  # a null pointer stands for weights of one, and for equal rooms


@partial(Kernel, takes_mixed=True)
def top_k(
    ctx: Context,
    p: Array,
    weights: Array,
    choices: Array,
    *,
    normalize: bool,
    threshold: float,
) -> None:
    """See `gate.top_k_gate`."""
    count = weights.size // weights.shape[-1]
    launch(
        ctx,
        EXPERTS,
        f"top_k_{widest(p, weights)}",
        count,
        [p],
        [weights, choices],
        normalize,
        threshold,
        p.shape[-1],
        weights.shape[-1],
        count,
    )


@partial(Kernel, takes_mixed=True)
def top_k_gradient(
    ctx: Context,
    gweights: Array,
    choices: Array,
    p: Array,
    gp: Array,
    *,
    normalize: bool,
) -> None:
    """See `gate.top_k_gate`."""
    count = gp.size // gp.shape[-1]
    numbers = normalize, gp.shape[-1], choices.shape[-1], count
    name = f"top_k_gradient_{widest(gweights, p, gp)}"
    launch(
        ctx,
        EXPERTS,
        name,
        count,
        [gweights, choices, p],
        [gp],
        *numbers,
    )


@Kernel
def slots(
    ctx: Context,
    choices: Array,
    *rest: Array,
    experts: int,
    capacity: int,
    group_rows: int,
    places: int,
) -> None:
    """See `gate.expert_slots`; a choice out of range gets no slot."""
    *starts, out = rest
    read = ctx.rect(0)
    k = choices.shape[-1]
    made = ctx.scratch("slots", choices.shape, choices.dtype)
    made.fill(-1)
    groups = choices.shape[0] // group_rows
    first = read.lo[0] // group_rows * capacity
    launch(
        ctx,
        EXPERTS,
        f"fill_slots_{choices.dtype}",
        groups * experts,
        [choices, *(starts or _ONES)],
        [made],
        experts,
        capacity,
        first,
        places,
        choices.size // k // max(groups, 1),
        k,
        groups * experts,
    )
    ctx.xp.copyto(out, made[ctx.rect(1 + len(starts)).slices(read.lo)])


def by_experts(a: Array) -> Array:
    """The view (experts, places, features) of what may be (rows, features), which are all of one."""
    return a if a.ndim == 3 else a[None]


def first_of(ctx: Context, number: int) -> tuple[int, int]:
    """The first expert and place of an argument, see `by_experts`."""
    low = ctx.rect(number).lo
    return (low[0], low[1]) if len(low) == 3 else (0, low[0])


@partial(Kernel, takes_mixed=True)
def scatter(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    """See `dispatch.dispatch`."""
    *weights, y = rest
    dtype = widest(x, y)
    work = y if y.flags.c_contiguous and y.dtype == dtype else ctx.scratch("y", y.shape, dtype)
    work.fill(0)
    launch(
        ctx,
        EXPERTS,
        f"scatter_{dtype}_{slots.dtype}",
        slots.size * y.shape[-1],
        (x, slots, *(weights or _ONES)),
        [work],
        *first_of(ctx, 2 + len(weights)),
        places,
        *by_experts(y).shape[:2],
        slots.shape[-1],
        y.shape[-1],
        slots.size * y.shape[-1],
    )
    deliver(ctx, work, y)


@partial(Kernel, takes_mixed=True)
def gather(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    """See `dispatch.combine`."""
    *weights, y = rest
    launch(
        ctx,
        EXPERTS,
        f"gather_{widest(x, y)}_{slots.dtype}",
        y.size,
        (x, slots, *(weights or _ONES)),
        [y],
        *first_of(ctx, 0),
        places,
        *by_experts(x).shape[:2],
        slots.shape[-1],
        y.shape[-1],
        y.size,
    )


@partial(Kernel, takes_mixed=True)
def gather_products(
    ctx: Context,
    gy: Array,
    x: Array,
    slots: Array,
    out: Array,
    *,
    places: int,
) -> None:
    """See `dispatch.combine`."""
    shape = by_experts(x).shape[:2]
    numbers = *first_of(ctx, 1), places, *shape, slots.shape[-1], gy.shape[-1]
    name = f"gather_products_{widest(gy, x)}_{slots.dtype}"
    launch(
        ctx,
        EXPERTS,
        name,
        slots.size * BLOCK,
        [gy, x, slots],
        [out],
        *numbers,
    )


@Kernel
def sort(ctx: Context, choices: Array, slots: Array, starts: Array, *, experts: int) -> None:
    """See `dropless.expert_rows`; a choice out of range gets no row."""
    k = choices.shape[-1]
    groups = starts.size // (experts + 1)
    launch(
        ctx,
        EXPERTS,
        f"sort_choices_{choices.dtype}",
        groups * experts,
        [choices],
        [slots, starts],
        experts,
        ctx.rect(0).lo[0] * (choices.size // choices.shape[0]),
        choices.size // k // groups,
        k,
        groups * experts,
    )


@partial(Kernel, takes_mixed=True)
def rows_linear(
    ctx: Context,
    x: Array,
    weight: Array,
    *rest: Array,
    group_rows: int,
    summed: str,
    is_turned: bool,
) -> None:
    """See `dropless.rows_linear`; `is_turned`: by the transposed weights, for the gradient of x."""
    *bias, starts, y = rest
    low = ctx.rect(0).lo[0]
    (experts, out, wide) = weight.shape
    strides = (1, wide) if is_turned else (wide, 1)
    has_bias = bias and ctx.interval(summed)[0] == 0
    launch(
        ctx,
        EXPERTS,
        f"rows_linear_{widest(x, weight, y)}",
        y.size,
        [x, weight, bias[0] if has_bias else 0, starts],
        [y],
        low,
        low // group_rows,
        ctx.rect(1).lo[0],
        experts,
        starts.shape[-1],
        group_rows,
        x.shape[-1],
        y.shape[-1],
        out * wide,
        *strides,
        y.size,
    )


@partial(Kernel, takes_mixed=True)
def rows_gradient(ctx: Context, gy: Array, *rest: Array, group_rows: int) -> None:
    """See `dropless.rows_linear`: of its weights, or without `x` of its bias."""
    *x, starts, out = rest
    rect = ctx.rect(0)
    launch(
        ctx,
        EXPERTS,
        f"rows_gradient_{widest(gy, *x, out)}",
        out.size,
        [gy, x[0] if x else 0, starts],
        [out],
        rect.lo[0],
        rect.hi[0],
        rect.lo[0] // group_rows,
        ctx.rect(2 + len(x)).lo[0],
        starts.size // starts.shape[-1],
        starts.shape[-1],
        group_rows,
        gy.shape[-1],
        x[0].shape[-1] if x else 1,
        out.size,
    )


@Kernel
def dropped(ctx: Context, slots: Array, out: Array) -> None:
    """See `gate.count_dropped`."""
    launch(
        ctx,
        EXPERTS,
        f"count_dropped_{slots.dtype}",
        BLOCK,
        [slots],
        [out],
        slots.size,
    )


@partial(Kernel, takes_mixed=True)
def load(ctx: Context, choices: Array, load: Array, *, count: int) -> None:
    """See `gate.expert_load`."""
    name = f"expert_load_{load.dtype}_{choices.dtype}"
    numbers = (ctx.interval("e")[0], choices.size, count)
    launch(
        ctx,
        EXPERTS,
        name,
        load.size * BLOCK,
        [choices],
        [load],
        *numbers,
    )
