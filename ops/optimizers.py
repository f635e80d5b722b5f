"""Optimizers: the backward operators of a loss, and one in-place update operator per parameter.

An update is split as the operator that reads the parameter first, so each device updates the tile that it uses; named
in the strategy itself it is split on its own (sharded optimizer states). The learning rate is a state region of shape
(), so that a schedule can write it between steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ops import gpu
from ops.build import check_region
from ops.tiles import Array, Context, contiguous, deliver, in_memory_order
from taskflow import LogicalRegion, compiled, on_cuda


def sgd(
    loss: LogicalRegion,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> dict[LogicalRegion, LogicalRegion]:
    """Stochastic gradient descent, as torch.optim.SGD; the loss becomes the output `loss` of the graph.

    g = gradient + weight_decay p;  v = momentum v + g (`<parameter>.momentum`, only if momentum is not 0);
    p = p - lr v, or p - lr (g + momentum v) with Nesterov's variant.

    Args:
        loss: a scalar that depends on every parameter of its graph.
        lr: learning rate, the first value of the state `learning_rate`.
        momentum, nesterov, weight_decay: as in the formula.

    Returns:
        Parameter -> its gradient region.

    Raises:
        ValueError: the loss is no scalar or lacks a parameter, a rate is negative, or nesterov without momentum.
    """
    _check("sgd", loss, lr=lr, momentum=momentum, weight_decay=weight_decay)
    if nesterov and momentum == 0:
        raise ValueError("sgd: nesterov needs a momentum")
    kernel = partial(_sgd, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    return _append("sgd", loss, lr, kernel, ("momentum",) if momentum else (), 6 if momentum else 2)


def adam(
    loss: LogicalRegion,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> dict[LogicalRegion, LogicalRegion]:
    """Adam (Kingma and Ba, ICLR 2015), as torch.optim.Adam; the loss becomes the output `loss` of the graph.

    g = gradient + weight_decay p;  m = β₁ m + (1 - β₁) g;  v = β₂ v + (1 - β₂) g²  (`<parameter>.adam_m`, `.adam_v`);
    p = p - lr / (1 - β₁ᵗ) m / (sqrt(v) / sqrt(1 - β₂ᵗ) + eps), where t is the number of this step, from 1.

    Args, returns and raises as `sgd`; each of `betas` is in [0, 1).
    """
    return _adam("adam", loss, lr, betas, eps, weight_decay, is_decoupled=False)


def adamw(
    loss: LogicalRegion,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> dict[LogicalRegion, LogicalRegion]:
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), as torch.optim.AdamW.

    As `adam`, but the decay p = p (1 - lr weight_decay) comes first and does not enter the gradient.
    """
    return _adam("adamw", loss, lr, betas, eps, weight_decay, is_decoupled=True)


def _adam(
    kind: str,
    loss: LogicalRegion,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    is_decoupled: bool,
) -> dict[LogicalRegion, LogicalRegion]:
    _check(kind, loss, lr=lr, eps=eps, weight_decay=weight_decay)
    if not all(0 <= b < 1 for b in betas):
        raise ValueError(f"{kind}: betas are {tuple(betas)}, each is in [0, 1)")
    kernel = partial(
        _adam_step, betas=(betas[0], betas[1]), eps=eps, weight_decay=weight_decay, is_decoupled=is_decoupled
    )
    return _append(kind, loss, lr, kernel, ("adam_m", "adam_v"), 14)


def _check(kind: str, loss: LogicalRegion, **rates: float) -> None:
    check_region(kind, loss, "loss")
    for key, value in rates.items():
        if not value >= 0:
            raise ValueError(f"{kind}: {key} is {value}, it cannot be negative")


def _append(
    kind: str, loss: LogicalRegion, lr: float, kernel: Callable[..., None], states: Sequence[str], flops: float
) -> dict[LogicalRegion, LogicalRegion]:
    graph = loss.graph
    gradients = graph.differentiate(loss, graph.parameters)
    graph.output("loss", loss)
    rate = graph.parameter("learning_rate", (), lr, loss.dtype, trainable=False)
    made = {r.name: k for k, op in enumerate(graph.operators) for r in op.outputs}
    # in the order in which the gradients are made: an update need not wait for the all-reduce of a later gradient
    for region, gradient in sorted(gradients.items(), key=lambda pair: made[pair[1].name]):
        kept = [
            graph.parameter(f"{region.name}.{state}", region.shape, 0.0, region.dtype, trainable=False)
            for state in states
        ]
        graph.update(
            f"{region.name}.{kind}", region, [gradient, *kept], kernel=kernel, scalars=[rate], writes=kept, flops=flops
        )
    return gradients


# -- kernels -----------------------------------------------------------------------------------------------------------


@on_cuda(gpu.sgd)
@compiled
def _sgd(
    ctx: Context, parameter: Array, gradient: Array, *rest: Array, momentum: float, nesterov: bool, weight_decay: float
) -> None:
    from ops import cpu

    *velocity, rate = rest
    number = parameter.dtype.type
    parameter, gradient, *velocity = in_memory_order(parameter, gradient, *velocity)
    p, g = _flat(ctx, 0, parameter), _flat(ctx, 1, gradient)
    v = _flat(ctx, 2, velocity[0]) if velocity else ctx.scratch(2, (0,), parameter.dtype)
    cpu.sgd(p, g, v, number(rate), number(momentum), nesterov, number(weight_decay))
    for work, a in zip((p, v), (parameter, *velocity), strict=False):
        deliver(ctx, work, a)


@on_cuda(gpu.adam)
@compiled
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
    from ops import cpu

    t = ctx.step + 1
    number = parameter.dtype.type
    parameter, gradient, m, v = in_memory_order(parameter, gradient, m, v)
    p, g, flat_m, flat_v = (_flat(ctx, k, a) for k, a in enumerate((parameter, gradient, m, v)))
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


def _flat(ctx: Context, slot: int, a: Array) -> Array:
    return contiguous(ctx, slot, a).reshape(-1)
