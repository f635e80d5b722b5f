"""Stochastic gradient descent and Adam. What all optimizers share is in `updating`."""

from __future__ import annotations

from ops.optim.updating import Gradients, Rate, check_betas, check_rates, update_each
from taskflow import LogicalRegion

_DECAYED = "d = g + decay * p; "
_STEP = {"plain": "p = p - rate * d", "momentum": "p = p - rate * v", "nesterov": "p = p - rate * (d + momentum * v)"}
_MOMENTS = "m = beta1 * m + (1 - beta1) * d; v = beta2 * v + (1 - beta2) * (d * d)"
_WAY = "rate / correction * (m / (sqrt(v) / root + eps))"
_ADAM = f"{_DECAYED}{_MOMENTS}; p = p - {_WAY}"
_ADAMW = f"d = g; {_MOMENTS}; p = (1 - rate * decay) * p - {_WAY}"
CORRECTIONS = "correction = 1 - beta1 ** t; root = sqrt(1 - beta2 ** t)"  # of the moments of a step


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
    numbers = {"decay": weight_decay}
    if not momentum:
        return update_each("sgd", loss, lr, clip_norm, _DECAYED + _STEP["plain"], {}, numbers, flops=2)
    text = f"{_DECAYED}v = momentum * v + d; {_STEP['nesterov' if nesterov else 'momentum']}"
    return update_each("sgd", loss, lr, clip_norm, text, {"v": "momentum"}, numbers | {"momentum": momentum}, flops=6)


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
    return _adam("adam", loss, lr, betas, eps, weight_decay, clip_norm, _ADAM)


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
    return _adam("adamw", loss, lr, betas, eps, weight_decay, clip_norm, _ADAMW)


def _adam(
    kind: str,
    loss: LogicalRegion,
    lr: Rate,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    clip_norm: float | None,
    text: str,
) -> Gradients:
    check_rates(kind, loss, lr, clip_norm, eps=eps, weight_decay=weight_decay)
    numbers = check_betas(kind, betas) | {"eps": eps, "decay": weight_decay}
    states = {"m": "adam_m", "v": "adam_v"}
    return update_each(kind, loss, lr, clip_norm, text, states, numbers, CORRECTIONS, flops=14)
