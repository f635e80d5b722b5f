"""Stochastic gradient descent and Adam. What all optimizers share is in `updating`."""

from __future__ import annotations

from functools import partial

from ops.cpu.tiles import Array, Context, deliver, in_memory_order
from ops.cuda import optimizers as gpu
from ops.optim.updating import Gradients, Rate, check_rates, flat, prepare, update_each
from taskflow import Kernel, LogicalRegion


def sgd(
    loss: LogicalRegion,
    lr: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
) -> Gradients:
    """Stochastic gradient descent, as torch.optim.SGD; the loss becomes the output `loss` of the graph.

    g = gradient + weight_decay p;  v = momentum v + g (`<parameter>.momentum`, only if momentum is not 0);
    p = p - lr v, or p - lr (g + momentum v) with Nesterov's variant.

    Args:
        loss: a scalar that depends on every parameter of its graph.
        lr: learning rate, the first value of the state `learning_rate`; or a function of the number of finished steps
            (see `taskflow.rates.cosine`), which the operator `schedule` writes to that state before the updates,
            counting in the state `steps`: the same under any strategy, and after a checkpoint.
        momentum, nesterov, weight_decay: as in the formula.
        clip_norm: gradients are scaled so that their norm as one vector is at most this.

    Returns:
        Parameter -> its gradient region, clipped.

    Raises:
        ValueError: the loss is no scalar or lacks a parameter, a rate is negative, or nesterov without momentum.
    """
    check_rates("sgd", loss, lr, clip_norm, momentum=momentum, weight_decay=weight_decay)
    if nesterov and momentum == 0:
        raise ValueError("sgd: nesterov needs a momentum")
    kernel = _sgd.bind(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    gradients, controls = prepare(loss, lr, clip_norm)
    return update_each("sgd", gradients, controls, kernel, {"momentum": 0.0} if momentum else {}, 6 if momentum else 2)


def adam(
    loss: LogicalRegion,
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
) -> Gradients:
    """Adam (Kingma and Ba, ICLR 2015), as torch.optim.Adam; the loss becomes the output `loss` of the graph.

    g = gradient + weight_decay p;  m = β₁ m + (1 - β₁) g;  v = β₂ v + (1 - β₂) g²  (`<parameter>.adam_m`, `.adam_v`);
    p = p - lr / (1 - β₁ᵗ) m / (sqrt(v) / sqrt(1 - β₂ᵗ) + eps), where t is the number of this step, from 1.

    Args, returns and raises as `sgd`; each of `betas` is in [0, 1).
    """
    return _adam("adam", loss, lr, betas, eps, weight_decay, clip_norm, is_decoupled=False)


def adamw(
    loss: LogicalRegion,
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    clip_norm: float | None = None,
) -> Gradients:
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), as torch.optim.AdamW.

    As `adam`, but the decay p = p (1 - lr weight_decay) comes first and does not enter the gradient.
    """
    return _adam("adamw", loss, lr, betas, eps, weight_decay, clip_norm, is_decoupled=True)


def _adam(
    kind: str,
    loss: LogicalRegion,
    lr: Rate,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    clip_norm: float | None,
    is_decoupled: bool,
) -> Gradients:
    check_rates(kind, loss, lr, clip_norm, eps=eps, weight_decay=weight_decay)
    if not all(0 <= b < 1 for b in betas):
        raise ValueError(f"{kind}: betas are {tuple(betas)}, each is in [0, 1)")
    kernel = _adam_step.bind(betas=(betas[0], betas[1]), eps=eps, weight_decay=weight_decay, is_decoupled=is_decoupled)
    gradients, controls = prepare(loss, lr, clip_norm)
    return update_each(kind, gradients, controls, kernel, {"adam_m": 0.0, "adam_v": 0.0}, 14)


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, is_compiled=True, cuda=gpu.sgd)
def _sgd(
    ctx: Context, parameter: Array, gradient: Array, *rest: Array, momentum: float, nesterov: bool, weight_decay: float
) -> None:
    from ops.cpu import kernels as cpu

    *velocity, rate = rest
    number = parameter.dtype.type
    parameter, gradient, *velocity = in_memory_order(parameter, gradient, *velocity)
    p, g = flat(ctx, 0, parameter), flat(ctx, 1, gradient)
    v = flat(ctx, 2, velocity[0]) if velocity else ctx.scratch(2, (0,), parameter.dtype)
    cpu.sgd(p, g, v, number(rate), number(momentum), nesterov, number(weight_decay))
    for work, a in zip((p, v), (parameter, *velocity), strict=False):
        deliver(ctx, work, a)


@partial(Kernel, is_compiled=True, cuda=gpu.adam)
def _adam_step(
    ctx: Context,
    parameter: Array,
    gradient: Array,
    m: Array,
    v: Array,
    rate: Array,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    is_decoupled: bool,
) -> None:
    from ops.cpu import kernels as cpu

    t = ctx.step + 1
    number = parameter.dtype.type
    parameter, gradient, m, v = in_memory_order(parameter, gradient, m, v)
    p, g, flat_m, flat_v = (flat(ctx, k, a) for k, a in enumerate((parameter, gradient, m, v)))
    cpu.adam(
        p,
        g,
        flat_m,
        flat_v,
        number(rate / (1 - betas[0] ** t)),
        number(betas[0]),
        number(betas[1]),
        number((1 - betas[1] ** t) ** 0.5),
        number(eps),
        number(0 if is_decoupled else weight_decay),
        number(1 - rate * weight_decay if is_decoupled else 1),
    )
    for work, a in zip((p, flat_m, flat_v), (parameter, m, v), strict=True):
        deliver(ctx, work, a)
