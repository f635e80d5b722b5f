"""All steps of an LSTM on GPUs: for each of them a product of cuBLAS and one kernel; see `lstm_fused`.

Not yet run on hardware; the tests compile the source for GPUs, and run it as C++ against the NumPy kernels.
"""

from __future__ import annotations

from ops.cpu.tiles import Array, Context, contiguous, deliver, matrix, rows, work_array
from ops.cuda.rows import ROWS
from taskflow import Kernel


@Kernel
def steps(ctx: Context, inputs: Array, weight: Array, *rest: Array, has_state: bool) -> None:
    """See `lstm_fused_kernels.steps`."""
    *given, hs, last_h, last_c, cs, active = rest
    biases = [contiguous(ctx, ("bias", k), a) for k, a in enumerate(given[:-2] if has_state else given)]
    state = [rows(ctx, ("state", k), a) for k, a in enumerate(given[-2:])] if has_state else [None, None]
    samples, count, _, hidden = inputs.shape
    works = [work_array(ctx, ("made", k), a) for k, a in enumerate((hs, cs, active))]
    read, right = contiguous(ctx, "inputs", inputs), matrix(ctx, "weight", weight, 2).T
    product = ctx.scratch("product", (samples, 4 * hidden), cs.dtype)
    added = [*biases, None, None][:2]
    for t in range(count):
        before = works[0][:, t - 1] if t else state[0]
        if before is not None:
            ctx.xp.matmul(before, right, out=product)
        given = [None if before is None else product, *added, state[1]]
        pointers = [0 if a is None else a for a in given]
        sizes = hidden, count, t, samples * hidden
        ctx.launch(ROWS, f"lstm_step_{cs.dtype}", samples * hidden, read, *pointers, *works, *sizes)
    for work, a in zip(works, (hs, cs, active), strict=True):
        deliver(ctx, work, a)
    ctx.xp.copyto(last_h, works[0][:, -1:])
    ctx.xp.copyto(last_c, works[1][:, -1:])


@Kernel
def steps_gradient(ctx: Context, *args: Array, has: tuple[bool, bool, bool], has_state: bool) -> None:
    """See `lstm_fused_kernels.steps_gradient`."""
    flowing, rest = list(args[: sum(has)]), args[sum(has) :]
    ghs, above, state = (contiguous(ctx, ("flowing", k), flowing.pop(0)) if there else 0 for k, there in enumerate(has))
    first_c, cs, active, weight, ggates, *gstate = rest if has_state else (0, *rest)
    samples, count, hidden = cs.shape
    gh, gc = (ctx.scratch(slot, (samples, hidden), cs.dtype) for slot in ("gh", "gc"))
    c = rows(ctx, "c", first_c) if has_state else 0
    work, kept = work_array(ctx, "ggates", ggates), [contiguous(ctx, k, a) for k, a in enumerate((cs, active))]
    gates, right = work.reshape(samples, count, 4 * hidden), matrix(ctx, "weight", weight, 2)
    for t in reversed(range(count)):
        sizes = hidden, count, t, samples * hidden
        name = f"lstm_step_gradient_{cs.dtype}"
        ctx.launch(ROWS, name, samples * hidden, ghs, above, state, c, *kept, work, gc, *sizes)
        above, state = gh, gc
        if t or has_state:
            ctx.xp.matmul(gates[:, t], right, out=gh)
    deliver(ctx, work, ggates)
    for target, made in zip(gstate, (gh, gc)):
        ctx.xp.copyto(target[:, 0], made)
