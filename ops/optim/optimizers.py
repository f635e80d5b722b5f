"""Stochastic gradient descent, Adam and its variants, LAMB, Adagrad, RMSProp. What all share is in `updating`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real

from ops.building import check_positive
from ops.expressions.assign import assign_each_step, assign_to_each, assign_together
from ops.expressions.program import program
from ops.optim.gradients import Gradients
from ops.optim.groups import ParameterGroup, Rate, Scope, Which, check_flag
from ops.optim.updating import (
    ByRow,
    Controls,
    UpdateRule,
    by_parameter,
    check_betas,
    descent,
    state_of,
)
from taskflow import LogicalRegion, add_parts, by_parts, collect_rarely, update

_DECAYED = "d = g + decay * p; "
_STEP = {
    "plain": "p = p - rate * d",
    "momentum": "p = p - rate * v",
    "nesterov": "p = p - rate * (d + momentum * v)",
}
_MOMENTS = "m = beta1 * m + (1 - beta1) * d; v = beta2 * v + (1 - beta2) * (d * d)"
_WAY = "rate / correction * (m / (sqrt(v) / root + eps))"
_ADAM = f"{_DECAYED}{_MOMENTS}; p = p - {_WAY}"
_ADAMW = f"d = g; {_MOMENTS}; p = (1 - rate * decay) * p - {_WAY}"
_ADDED = "m = m + (1 - beta1) * g; v = v + (1 - beta2) * (g * g)"
_ADAMA = f"p = (1 - rate * decay) * p - {_WAY}; m = beta1 * m; v = beta2 * v"
# Of the moments of a step.
_CORRECTIONS = "correction = 1 - beta1 ** t; root = sqrt(1 - beta2 ** t)"
_DIRECTION = (
    "m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * (g * g); "
    "way = 1 / correction * m / (sqrt(v) / root + eps) + decay * p; "
    "weight_square += p * p; way_square += way * way"
)
_LAMB_STEP = (
    "trust = where(min(weight_square, way_square) > 0, sqrt(weight_square) / sqrt(max(way_square, 1e-37)), 1); "
    "p = p - rate * trust * way"
)


def sgd(
    loss: LogicalRegion,
    lr: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    *,
    parameters: Which | None = None,
    groups: Sequence[ParameterGroup] = (),
    name: str = "",
) -> Gradients:
    """Stochastic gradient descent, as torch.optim.SGD; the loss becomes the output `loss` of the graph.

    g = gradient + weight_decay p;  v = momentum v + g (`<parameter>.momentum`, only if momentum is not 0);
    p = p - lr v, or p - lr (g + momentum v) with Nesterov's variant. Without momentum, decay and clipping, a table of
    more rows than a step looks up is updated by rows (see `ops.tables.rows`), with the same result.

    Args:
        loss: a scalar that depends on every parameter of its graph.
        lr: learning rate, the first value of the state `learning_rate`; or a function of the number of finished steps
            (see `taskflow.rates.cosine`), which the operator `schedule` writes to that state before the updates,
            counting in the state `steps`: the same under any strategy, and after a checkpoint.
        momentum, nesterov, weight_decay: as in the formula.
        clip_norm: gradients are scaled so that their norm as one vector is at most this.
        parameters: those that are updated, by patterns of names or as regions; others stay as they are. Default: all.
        groups: rates and weight decays of their own, see `ParameterGroup`.
        name: where a graph has several optimizers, of each: its states and outputs are `<name>.learning_rate`,
            `<name>.loss` and so on. Gradients are by the values of which the loss was made: where losses share a
            forward pass, all gradients come before the first update.

    Returns:
        Parameter -> its gradient region, clipped. That of a table that is updated by rows is made only if an output or
        an operator asks for it.

    Raises:
        ValueError: the loss is no scalar or lacks a parameter, a rate is negative, or nesterov without momentum.
    """
    rule = descent(
        "sgd",
        loss,
        lr,
        clip_norm,
        Scope(parameters, groups, name),
        momentum=momentum,
        weight_decay=weight_decay,
    )
    if check_flag("sgd", "nesterov", nesterov) and momentum == 0:
        raise ValueError("sgd: nesterov needs a momentum")
    numbers = {"decay": weight_decay}
    if not momentum:
        by_rows = ByRow.WHERE_FEWER
        return rule.update_each(_DECAYED + _STEP["plain"], {}, numbers, flops=2, by_rows=by_rows)
    text = f"{_DECAYED}v = momentum * v + d; {_STEP['nesterov' if nesterov else 'momentum']}"
    return rule.update_each(text, {"v": "momentum"}, numbers | {"momentum": momentum}, flops=6)


def adam(
    loss: LogicalRegion,
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    sparse: bool = False,
    *,
    parameters: Which | None = None,
    groups: Sequence[ParameterGroup] = (),
    name: str = "",
) -> Gradients:
    """Adam (Kingma and Ba, ICLR 2015), as torch.optim.Adam; the loss becomes the output `loss` of the graph.

    g = gradient + weight_decay p;  m = β₁ m + (1 - β₁) g;  v = β₂ v + (1 - β₂) g²  (`<parameter>.adam_m`, `.adam_v`);
    p = p - lr / (1 - β₁ᵗ) m / (sqrt(v) / sqrt(1 - β₂ᵗ) + eps), where t is the number of this step, from 1.

    Args:
        sparse: of tables only the rows, and moments, that a step looks up change (see `ops.tables.rows`), as by
            torch.optim.SparseAdam: another algorithm, and faster. Other parameters are updated as without it.
        others: as of `sgd`; each of `betas` is in [0, 1).

    Returns and raises as `sgd`; ValueError, too, where `sparse` comes with decay, clipping or a scaled loss.
    """
    scope = Scope(parameters, groups, name)
    rule = descent("adam", loss, lr, clip_norm, scope, eps=eps, weight_decay=weight_decay)
    if check_flag("adam", "sparse", sparse) and (
        clip_norm is not None or loss.graph.precision.loss_scale is not None
    ):
        raise ValueError(
            "adam: sparse goes with no clip_norm and no loss scale: these reach all rows"
        )
    return _adam(rule, _ADAM, betas, eps, weight_decay, ByRow.ALWAYS if sparse else ByRow.NEVER)


def adamw(
    loss: LogicalRegion,
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    clip_norm: float | None = None,
    *,
    parameters: Which | None = None,
    groups: Sequence[ParameterGroup] = (),
    name: str = "",
) -> Gradients:
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), as torch.optim.AdamW.

    As `adam`, but the decay p = p (1 - lr weight_decay) comes first and does not enter the gradient.
    """
    return _adam(
        descent(
            "adamw",
            loss,
            lr,
            clip_norm,
            Scope(parameters, groups, name),
            eps=eps,
            weight_decay=weight_decay,
        ),
        _ADAMW,
        betas,
        eps,
        weight_decay,
    )


def _adam(
    rule: UpdateRule,
    text: str,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    by_rows: ByRow = ByRow.NEVER,
) -> Gradients:
    numbers = check_betas(rule.kind, betas) | {"eps": eps, "decay": weight_decay}
    return rule.update_each(
        text, {"m": "adam_m", "v": "adam_v"}, numbers, _CORRECTIONS, flops=14, by_rows=by_rows
    )


@collect_rarely()
def adama(
    loss: LogicalRegion,
    parts: int,
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    *,
    parameters: Which | None = None,
    groups: Sequence[ParameterGroup] = (),
    name: str = "",
) -> Gradients:
    """AdamA (Zhang et al., arXiv 2305.19982, 2023): Adam that adds up moments of micro-batches instead of gradients.

    m = m + (1 - β₁) g and v = v + (1 - β₂) g² for the gradient g of each micro-batch, which is gone then; at the end of
    the step p = (1 - lr weight_decay) p - lr / (1 - β₁ᵗ) m / (sqrt(v) / sqrt(1 - β₂ᵗ) + eps), then m = β₁ m, v = β₂ v:
    so `<parameter>.adama_m` and `.adama_v` are decayed between steps. In an order that finishes one micro-batch after
    the other (`taskflow.schedule.one_f_one_b`), only the gradient of one operator for one micro-batch is in memory.
    Where the gradients of micro-batches agree, v is up to `parts` times smaller than Adam's, and steps are larger: a
    GPT of characters has Adam's losses with lr 1e-3, and higher ones with 3e-3 (benchmarks/adama.py).

    Args:
        parts: micro-batches of all devices together; v depends on them, whatever the strategy.
        others: as of `adamw`. Gradients cannot be clipped: their norm is known when all are gone.

    Returns:
        Parameter -> the gradients of its parts, with a first dimension of that many.

    Raises:
        ValueError: as `sgd`; or losses are scaled, samples cannot be cut into so many parts, or a gradient is no sum
            over samples.
    """
    if loss.graph.precision.loss_scale is not None:
        raise ValueError(
            "adama: losses are scaled, but whether to skip a step is known when its gradients are gone"
        )
    check_positive("adama", parts=parts)
    scope = Scope(parameters, groups, name)
    rule = descent("adama", loss, lr, None, scope, eps=eps, weight_decay=weight_decay)
    numbers = check_betas("adama", betas) | {"eps": eps, "decay": weight_decay}
    gradients, controls = rule.prepare()
    by_part = dict(zip(gradients, by_parts(gradients.values(), parts), strict=True))
    moments = assign_to_each.bind(program=program(_ADDED, "g m v", numbers))
    states = {p: [state_of(p, state) for state in ("adama_m", "adama_v")] for p in by_part}
    for p, g in by_part.items():
        add_parts(f"{p.name}.moments", g, states[p], kernel=moments, flops=5)
    for p, kept in states.items():
        step = program(_ADAMA, "p m v rate", rule.numbers_of(p, numbers), _CORRECTIONS)
        update(
            f"{p.name}.adama",
            p,
            [p, *kept],
            kernel=assign_together.bind(program=step),
            scalars=[controls.rates[p]],
            writes=[p, *kept],
            flops=12,
        )
    return by_parameter(by_part)


@collect_rarely()
def lamb(
    loss: LogicalRegion,
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    *,
    parameters: Which | None = None,
    groups: Sequence[ParameterGroup] = (),
    name: str = "",
) -> Gradients:
    """LAMB (You et al., ICLR 2020); the loss becomes the output `loss` of the graph.

    m = β₁ m + (1 - β₁) g;  v = β₂ v + (1 - β₂) g²  (`<parameter>.lamb_m`, `.lamb_v`);
    u = m / (1 - β₁ᵗ) / (sqrt(v / (1 - β₂ᵗ)) + eps) + weight_decay p;  p = p - lr |p| / |u| u, where t is the number of
    this step, from 1, and |p| / |u| counts as 1 where one of them is 0. Two operators per parameter, the direction with
    partial sums of both norms, and the step: so the norms are those of the whole parameter however it is split.

    Args, returns and raises as `sgd`; each of `betas` is in [0, 1).
    """
    scope = Scope(parameters, groups, name)
    rule = descent("lamb", loss, lr, clip_norm, scope, eps=eps, weight_decay=weight_decay)
    numbers = check_betas("lamb", betas) | {"eps": eps, "decay": weight_decay}
    gradients, controls = rule.prepare()
    step = program(_LAMB_STEP, "p way weight_square way_square rate")
    for region, gradient in gradients.items():
        way, *norms = _way(region, gradient, rule.numbers_of(region, numbers), controls)
        guarded, scalars = controls.guard(step, [*norms, controls.rates[region]])
        update(
            f"{region.name}.lamb",
            region,
            [region, way],
            kernel=assign_together.bind(program=guarded),
            scalars=scalars,
            writes=[region],
            flops=2,
        )
    return by_parameter(gradients)


def _way(
    region: LogicalRegion,
    gradient: LogicalRegion,
    numbers: Mapping[str, float],
    controls: Controls,
) -> tuple[LogicalRegion, ...]:
    """The direction of a step, and the squares of the norms of the parameter and of it."""
    kept = [state_of(region, state) for state in ("lamb_m", "lamb_v")]
    direction = program(_DIRECTION, "p g m v way weight_square way_square", numbers, _CORRECTIONS)
    guarded, scalars = controls.guard(direction, outputs=3)
    return update(
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


def adagrad(
    loss: LogicalRegion,
    lr: Rate = 1e-2,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator_value: float = 0.0,
    eps: float = 1e-10,
    clip_norm: float | None = None,
    *,
    parameters: Which | None = None,
    groups: Sequence[ParameterGroup] = (),
    name: str = "",
) -> Gradients:
    """Adagrad (Duchi, Hazan, Singer, JMLR 2011), as torch.optim.Adagrad; the loss becomes the output `loss`.

    g = gradient + weight_decay p;  s = s + g² (`<parameter>.adagrad`);  p = p - lr / (1 + (t - 1) lr_decay) g /
    (sqrt(s) + eps), where t is the number of this step, from 1. Without decay and clipping, tables are updated by rows
    where `sgd` does so.

    Args, returns and raises as `sgd`; `initial_accumulator_value` is the first s.
    """
    numbers = {"lr_decay": lr_decay, "eps": eps, "decay": weight_decay}
    rule = descent(
        "adagrad",
        loss,
        lr,
        clip_norm,
        Scope(parameters, groups, name),
        initial_accumulator_value=initial_accumulator_value,
        **numbers,
    )
    return rule.update_each(
        "d = g + decay * p; s = s + d * d; p = p - rate / slow * d / (sqrt(s) + eps)",
        {"s": "adagrad_sum"},
        numbers,
        "slow = 1 + (t - 1) * lr_decay",
        flops=7,
        init=initial_accumulator_value,
        by_rows=ByRow.WHERE_FEWER,
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
    *,
    parameters: Which | None = None,
    groups: Sequence[ParameterGroup] = (),
    name: str = "",
) -> Gradients:
    """RMSProp (Tieleman and Hinton 2012; centred: Graves 2013), as torch.optim.RMSprop.

    g = gradient + weight_decay p;  s = α s + (1 - α) g²;  a = α a + (1 - α) g, only if centred;
    d = g / (sqrt(s - a²) + eps);  v = momentum v + d, only if momentum is not 0;  p = p - lr v. The states are
    `<parameter>.rmsprop_square`, `.rmsprop_mean` and `.momentum`.

    Args, returns and raises as `sgd`; `alpha` is in [0, 1).
    """
    rule = descent(
        "rmsprop",
        loss,
        lr,
        clip_norm,
        Scope(parameters, groups, name),
        eps=eps,
        weight_decay=weight_decay,
        momentum=momentum,
    )
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 <= alpha < 1:
        raise ValueError(f"rmsprop: alpha is {alpha}, it is in [0, 1)")
    states = {"s": "rmsprop_square"}
    spread = "s"
    step = "d / (sqrt(spread) + eps)"
    text = "d = g + decay * p; s = alpha * s + (1 - alpha) * (d * d)"
    if check_flag("rmsprop", "centered", centered):
        states["a"] = "rmsprop_mean"
        spread = "s - a * a"
        text += "; a = alpha * a + (1 - alpha) * d"
    text += f"; spread = {spread}"
    if momentum:
        states["v"] = "momentum"
        text = f"{text}; v = momentum * v + {step}"
        step = "v"
    text += f"; p = p - rate * ({step})"
    numbers = {"alpha": alpha, "eps": eps, "decay": weight_decay, "momentum": momentum}
    return rule.update_each(text, states, numbers, flops=12)
