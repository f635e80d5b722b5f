"""Adagrad and RMSProp: rates that follow the size of past gradients, element by element."""

from __future__ import annotations

from ops.optim.updating import Gradients, Rate, check_rates, update_each
from taskflow import LogicalRegion


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
    numbers = {"lr_decay": lr_decay, "eps": eps, "decay": weight_decay}
    check_rates("adagrad", loss, lr, clip_norm, initial_accumulator_value=initial_accumulator_value, **numbers)
    text = "d = g + decay * p; s = s + d * d; p = p - rate / slow * d / (sqrt(s) + eps)"
    states, init = {"s": "adagrad_sum"}, initial_accumulator_value
    return update_each(
        "adagrad", loss, lr, clip_norm, text, states, numbers, "slow = 1 + (t - 1) * lr_decay", flops=7, init=init
    )


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
    states, spread, step = {"s": "rmsprop_square"}, "s", "d / (sqrt(spread) + eps)"
    text = "d = g + decay * p; s = alpha * s + (1 - alpha) * (d * d)"
    if centered:
        states["a"], spread = "rmsprop_mean", "s - a * a"
        text += "; a = alpha * a + (1 - alpha) * d"
    text += f"; spread = {spread}"
    if momentum:
        states["v"] = "momentum"
        text, step = f"{text}; v = momentum * v + {step}", "v"
    text += f"; p = p - rate * ({step})"
    numbers = {"alpha": alpha, "eps": eps, "decay": weight_decay, "momentum": momentum}
    return update_each("rmsprop", loss, lr, clip_norm, text, states, numbers, flops=12)
