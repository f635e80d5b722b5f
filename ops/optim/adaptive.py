"""Adagrad and RMSProp: rates that follow the size of past gradients, element by element."""

from __future__ import annotations

from functools import partial

from ops.cpu.tiles import Array, Context, deliver, in_memory_order
from ops.cuda import optimizers as gpu_optimizers
from ops.optim.updating import Gradients, Rate, check_rates, flat, prepare, update_each
from taskflow import Kernel, LogicalRegion


def adagrad(
    loss: LogicalRegion,
    lr: Rate = 1e-2,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator_value: float = 0.0,
    eps: float = 1e-10,
    clip_norm: float | None = None,
) -> Gradients:
    """Adagrad (Duchi, Hazan, Singer, JMLR 2011), as torch.optim.Adagrad; the loss becomes the output `loss`.

    g = gradient + weight_decay p;  s = s + g² (`<parameter>.adagrad`);  p = p - lr / (1 + (t - 1) lr_decay) g /
    (sqrt(s) + eps), where t is the number of this step, from 1.

    Args, returns and raises as `sgd`; `initial_accumulator_value` is the first s.
    """
    numbers = {"lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}
    check_rates("adagrad", loss, lr, clip_norm, initial_accumulator_value=initial_accumulator_value, **numbers)
    gradients, controls = prepare(loss, lr, clip_norm)
    kernel = _adagrad.bind(**numbers)
    return update_each("adagrad", gradients, controls, kernel, {"adagrad_sum": initial_accumulator_value}, 7)


def rmsprop(
    loss: LogicalRegion,
    lr: Rate = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
    clip_norm: float | None = None,
) -> Gradients:
    """RMSProp (Tieleman and Hinton 2012; centred: Graves 2013), as torch.optim.RMSprop.

    g = gradient + weight_decay p;  s = α s + (1 - α) g²;  a = α a + (1 - α) g, only if centred;
    d = g / (sqrt(s - a²) + eps);  v = momentum v + d, only if momentum is not 0;  p = p - lr v. The states are
    `<parameter>.rmsprop_square`, `.rmsprop_mean` and `.momentum`.

    Args, returns and raises as `sgd`; `alpha` is in [0, 1).
    """
    check_rates("rmsprop", loss, lr, clip_norm, eps=eps, weight_decay=weight_decay, momentum=momentum)
    if not 0 <= alpha < 1:
        raise ValueError(f"rmsprop: alpha is {alpha}, it is in [0, 1)")
    states = ["rmsprop_square", *["rmsprop_mean"] * centered, *["momentum"] * (momentum != 0)]
    gradients, controls = prepare(loss, lr, clip_norm)
    kernel = _rmsprop.bind(alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, is_centred=centered)
    return update_each("rmsprop", gradients, controls, kernel, dict.fromkeys(states, 0.0), 12)


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, is_compiled=True, cuda=gpu_optimizers.adagrad)
def _adagrad(
    ctx: Context,
    parameter: Array,
    gradient: Array,
    total: Array,
    rate: Array,
    *,
    lr_decay: float,
    eps: float,
    weight_decay: float,
) -> None:
    from ops.cpu import optimizers as cpu_optimizers

    number = parameter.dtype.type
    parameter, gradient, total = in_memory_order(parameter, gradient, total)
    p, g, s = (flat(ctx, k, a) for k, a in enumerate((parameter, gradient, total)))
    cpu_optimizers.adagrad(p, g, s, number(rate / (1 + ctx.step * lr_decay)), number(eps), number(weight_decay))
    for work, a in ((p, parameter), (s, total)):
        deliver(ctx, work, a)


@partial(Kernel, is_compiled=True, cuda=gpu_optimizers.rmsprop)
def _rmsprop(
    ctx: Context,
    parameter: Array,
    gradient: Array,
    square: Array,
    *rest: Array,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    is_centred: bool,
) -> None:
    from ops.cpu import optimizers as cpu_optimizers

    *kept, rate = rest
    number = parameter.dtype.type
    parameter, gradient, square, *kept = in_memory_order(parameter, gradient, square, *kept)
    p, g, s, *others = (flat(ctx, k, a) for k, a in enumerate((parameter, gradient, square, *kept)))
    nothing = ctx.scratch("nothing", (0,), parameter.dtype)
    mean = others[0] if is_centred else nothing
    v = others[-1] if momentum else nothing
    cpu_optimizers.rmsprop(
        p, g, s, mean, v, number(rate), number(alpha), number(eps), number(momentum), number(weight_decay)
    )
    for work, a in zip((p, s, *others), (parameter, square, *kept), strict=True):
        deliver(ctx, work, a)
