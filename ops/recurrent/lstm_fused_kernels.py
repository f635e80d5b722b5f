"""The kernels of `lstm_fused`. Gates are (batch, steps, 4, hidden) in the order i, f, g, o; states lack the 4."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.cpu.tiles import (
    Array,
    Context,
    contiguous,
    deliver,
    deliver_matrix,
    matrix,
    result_matrix,
    rows,
    work_array,
    zeros,
)
from ops.cuda import recurrence as gpu_recurrence
from taskflow import Kernel


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_recurrence.steps)
def steps(ctx: Context, inputs: Array, weight: Array, *rest: Array, has_state: bool) -> None:
    """active = σ(i), σ(f), tanh(g), σ(o) of inputs + W h + biases; c' = f c + i g; h' = o tanh(c'); step by step."""
    from ops.cpu import lstm as cpu_lstm

    *given, hs, last_h, last_c, cs, active = rest
    biases, state = (given[:-2], given[-2:]) if has_state else (given, [])
    samples, count, _, hidden = inputs.shape
    wide, narrow = (samples, count, 4 * hidden), (samples, hidden)
    h, c = (
        (rows(ctx, ("state", k), a) for k, a in enumerate(state))
        if state
        else [zeros(ctx, "state", narrow, cs.dtype)] * 2
    )
    works = [work_array(ctx, ("made", k), a) for k, a in enumerate((hs, cs, active))]
    packed, edge = _packed(ctx, matrix(ctx, "weight", weight, 2))
    gates = contiguous(ctx, "inputs", inputs).reshape(wide)
    ctx.call(cpu_lstm.steps, gates, _sum(ctx, biases, weight), h, c, has_state, packed, edge, *works)
    for work, a in zip(works, (hs, cs, active), strict=True):
        deliver(ctx, work, a)
    ctx.xp.copyto(last_h, works[0][:, -1:])
    ctx.xp.copyto(last_c, works[1][:, -1:])


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_recurrence.steps_gradient)
def steps_gradient(ctx: Context, *args: Array, has: tuple[bool, bool, bool], has_state: bool) -> None:
    """The gradients of all gates, and of the first state if there is one.

    Args:
        ctx: the context.
        args: the gradients that flow, of the hidden states, of the last h and of the last c; the first c if there is a
            first state; cs, active and the weight; then the results.
        has: which of the three gradients there are.
        has_state: whether there is a first state.
    """
    from ops.cpu import lstm as cpu_lstm

    flowing, rest = list(args[: sum(has)]), args[sum(has) :]
    ghs, last_h, last_c = (flowing.pop(0) if there else None for there in has)
    first_c, cs, active, weight, ggates, *gstate = rest if has_state else (None, *rest)
    samples, count, hidden = cs.shape
    dtype, narrow = cs.dtype, (samples, hidden)
    gh, gc = ctx.scratch("gh", narrow, dtype), ctx.scratch("gc", (2, *narrow), dtype)
    for target, given in ((gh, last_h), (gc[count % 2], last_c)):
        ctx.xp.copyto(target, 0 if given is None else given[:, 0])
    c = zeros(ctx, "c", narrow, dtype) if first_c is None else rows(ctx, "c", first_c)
    above = zeros(ctx, "ghs", (0, count, hidden), dtype) if ghs is None else contiguous(ctx, "ghs", ghs)
    packed, edge = _packed(ctx, matrix(ctx, "weight", weight, 2).T)
    work, kept = work_array(ctx, "ggates", ggates), [contiguous(ctx, k, a) for k, a in enumerate((cs, active))]
    ctx.call(cpu_lstm.steps_gradient, above, c, *kept, has_state, packed, edge, gh, gc, work)
    deliver(ctx, work, ggates)
    for target, made in zip(gstate, (gh, gc[0])):
        ctx.xp.copyto(target[:, 0], made)


def _packed(ctx: Context, weight: Array) -> tuple[Array, Array]:
    """A matrix packed for its products with the states, and scratch memory for them."""
    from ops.cpu import panels as cpu_panels

    columns, depth = weight.shape
    packed = ctx.scratch("packed", cpu_panels.packed_shape(columns, depth, weight.dtype), weight.dtype)
    ctx.call(cpu_panels.pack, weight, packed)
    return packed, ctx.scratch("edge", cpu_panels.edge_shape(weight.dtype), weight.dtype)


def _sum(ctx: Context, biases: Sequence[Array], weight: Array) -> Array:
    """The sum of the biases, (4 hidden,); zeros without any."""
    total = ctx.scratch("bias", weight.shape[:2], weight.dtype)
    ctx.xp.copyto(total, biases[0] if biases else 0)
    for bias in biases[1:]:
        ctx.xp.add(total, bias, out=total)
    return total.reshape(-1)


@partial(Kernel, is_captured=True)
def state_weight_gradient(ctx: Context, ggates: Array, hs: Array, *rest: Array) -> None:
    """The sum over samples and steps of ggatesᵀ h, with the state before each step: as one product."""
    *first_h, gweight = rest
    before = ctx.scratch("before", hs.shape, hs.dtype)
    ctx.xp.copyto(before[:, 1:], hs[:, :-1])
    ctx.xp.copyto(before[:, :1], first_h[0] if first_h else 0)
    flat = result_matrix(ctx, "gweight", gweight)
    ctx.xp.matmul(matrix(ctx, "ggates", ggates, 2).T, matrix(ctx, "before", before), out=flat)
    deliver_matrix(ctx, flat, gweight)
