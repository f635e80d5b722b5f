"""LAMB: Adam's direction, with a length that follows the norm of each parameter.

Two operators per parameter: the direction with partial sums of both norms, and the step. So the norms are those of the
whole parameter however it is split.
"""

from __future__ import annotations

from ops.expressions.assign import assign_each_step, assign_together
from ops.expressions.program import program
from ops.optim.optimizers import CORRECTIONS
from ops.optim.updating import Gradients, Rate, by_parameter, check_betas, check_rates, prepare, state_of
from taskflow import LogicalRegion, update

_DIRECTION = (
    "m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * (g * g); "
    "way = 1 / correction * m / (sqrt(v) / root + eps) + decay * p; "
    "weight_square += p * p; way_square += way * way"
)
_STEP = (
    "trust = where(min(weight_square, way_square) > 0, sqrt(weight_square) / sqrt(max(way_square, 1e-37)), 1); "
    "p = p - rate * trust * way"
)


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
    numbers = check_betas("lamb", betas) | {"eps": eps, "decay": weight_decay}
    gradients, controls = prepare(loss, lr, clip_norm)
    direction = program(_DIRECTION, "p g m v way weight_square way_square", numbers, CORRECTIONS)
    step = program(_STEP, "p way weight_square way_square rate")
    for region, gradient in gradients.items():
        kept = [state_of(region, state) for state in ("lamb_m", "lamb_v")]
        guarded, scalars = controls.guard(direction, outputs=3)
        way, *norms = update(
            f"{region.name}.way",
            region,
            [region, gradient, *kept],
            kernel=assign_each_step.bind(program=guarded),
            scalars=scalars,
            writes=kept,
            values=1,
            sums=2,
            flops=20,
        )
        guarded, scalars = controls.guard(step, [*norms, controls.rate])
        kernel, inputs = assign_together.bind(program=guarded), [region, way]
        update(f"{region.name}.lamb", region, inputs, kernel=kernel, scalars=scalars, writes=[region], flops=2)
    return by_parameter(gradients)
