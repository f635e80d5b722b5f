"""LAMB: Adam's direction, with a length that follows the norm of each parameter.

Two operators per parameter: the direction with partial sums of both norms, and the step. So the norms are those of the
whole parameter however it is split.
"""

from __future__ import annotations

from functools import partial

from ops.cpu.tiles import Array, Context, deliver, in_memory_order, work_array
from ops.cuda import optimizers as gpu_optimizers
from ops.optim.updating import Gradients, Rate, by_parameter, check_rates, flat, prepare, state_of
from taskflow import Kernel, LogicalRegion, update


def lamb(
    loss: LogicalRegion,
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
) -> Gradients:
    """LAMB (You et al., ICLR 2020); the loss becomes the output `loss` of the graph.

    m = β₁ m + (1 - β₁) g;  v = β₂ v + (1 - β₂) g²  (`<parameter>.lamb_m`, `.lamb_v`);
    u = m / (1 - β₁ᵗ) / (sqrt(v / (1 - β₂ᵗ)) + eps) + weight_decay p;  p = p - lr |p| / |u| u, where t is the number of
    this step, from 1, and |p| / |u| counts as 1 where one of them is 0.

    Args, returns and raises as `sgd`; each of `betas` is in [0, 1).
    """
    check_rates("lamb", loss, lr, clip_norm, eps=eps, weight_decay=weight_decay)
    if not all(0 <= b < 1 for b in betas):
        raise ValueError(f"lamb: betas are {tuple(betas)}, each is in [0, 1)")
    gradients, controls = prepare(loss, lr, clip_norm)
    kernel = _direction.bind(betas=(betas[0], betas[1]), eps=eps, weight_decay=weight_decay)
    for region, gradient in gradients.items():
        kept = [state_of(region, state) for state in ("lamb_m", "lamb_v")]
        guarded, scalars = controls.guard(kernel, 4)
        way, *norms = update(
            f"{region.name}.way",
            region,
            [region, gradient, *kept],
            kernel=guarded,
            scalars=scalars,
            writes=kept,
            values=1,
            sums=2,
            flops=20,
        )
        guarded, scalars = controls.guard(_step, 2, [*norms, controls.rate])
        name, inputs = f"{region.name}.lamb", [region, way]
        update(name, region, inputs, kernel=guarded, scalars=scalars, writes=[region], flops=2)
    return by_parameter(gradients)


@partial(Kernel, is_compiled=True, cuda=gpu_optimizers.lamb_direction)
def _direction(
    ctx: Context,
    parameter: Array,
    gradient: Array,
    m: Array,
    v: Array,
    way: Array,
    weight_square: Array,
    way_square: Array,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    from ops.cpu import optimizers as cpu_optimizers

    t, number = ctx.step + 1, parameter.dtype.type
    parameter, gradient, m, v, way = in_memory_order(parameter, gradient, m, v, way)
    p, g, flat_m, flat_v = (flat(ctx, k, a) for k, a in enumerate((parameter, gradient, m, v)))
    work = work_array(ctx, "way", way)
    weight_square[...], way_square[...] = cpu_optimizers.lamb(
        p,
        g,
        flat_m,
        flat_v,
        work.reshape(-1),
        number(betas[0]),
        number(betas[1]),
        number(1 / (1 - betas[0] ** t)),
        number((1 - betas[1] ** t) ** 0.5),
        number(eps),
        number(weight_decay),
    )
    for result, a in ((flat_m, m), (flat_v, v), (work, way)):
        deliver(ctx, result, a)


@partial(Kernel, cuda=gpu_optimizers.lamb_step)
def _step(ctx: Context, parameter: Array, way: Array, weight_square: Array, way_square: Array, rate: Array) -> None:
    """p -= lr |p| / |u| u"""
    norms = float(weight_square) ** 0.5, float(way_square) ** 0.5
    trust = norms[0] / norms[1] if min(norms) > 0 else 1.0
    step = ctx.scratch("step", way.shape, way.dtype)
    ctx.xp.multiply(way, float(rate) * trust, out=step)
    ctx.xp.subtract(parameter, step, out=parameter)
