"""Routing of a mixture of experts: which experts a token chooses, which slot it gets there, and how even the load is.

Who is over capacity is decided by the order of the tokens in the whole region, never by a partition: a task reads the
choices of all tokens of its groups, one small integer per choice, and numbers them as one device would.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from ops.building import (
    check_integers,
    check_number,
    check_positive,
    check_region,
    checked,
    distinct,
    launch_all,
    launch_first,
    no_gradient,
    term,
    terms,
)
from ops.cpu import experts as cpu_experts
from ops.cuda import experts as gpu_experts
from ops.elementwise.arithmetic import multiply
from ops.elementwise.formula import formula
from ops.reduce.extremes import largest_of_rows
from ops.reduce.reductions import mean, sum
from ops.tiles import check_classes, contiguous, deliver, packed, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

_BALANCE = "ops.mixture_of_experts(..., groups={parts}, parts={parts})"


def top_k_gate(
    probabilities: LogicalRegion,
    k: int = 2,
    normalize: bool = True,
    name: str | None = None,
    *,
    threshold: float = 0.0,
) -> tuple[LogicalRegion, LogicalRegion]:
    """The `k` experts of each token and their weights (Shazeer et al., ICLR 2017; Lepikhin et al., ICLR 2021).

    Args:
        probabilities: (..., experts), floating point, positive. The experts stay whole.
        k: how many experts a token chooses, the likeliest first, and of equals the first.
        normalize: whether the weights of a token's choices add up to one.
        name: of the operator.
        threshold: an expert below is not chosen, its choice -1 and its weight 0; the likeliest one always is.

    Returns:
        weights (..., k), of the dtype of `probabilities`, and choices (..., k), int32.

    Raises:
        ValueError: `k` is not in 1..experts, the threshold is no number in [0, 1], or the dtype is wrong.
    """
    where = checked("top_k_gate", name, probabilities, "probabilities")
    check_positive(where, k=k)
    if probabilities.ndim == 0 or k > probabilities.shape[-1]:
        raise ValueError(
            f"{where}: k is {k}, and '{probabilities.name}' has shape {probabilities.shape}"
        )
    threshold = check_number(where, "threshold", threshold, "a number in [0, 1]")
    lead = distinct(probabilities.axes[:-1], ("e", "k"))
    weights, choices = launch_all(
        name or "top_k_gate",
        f"{term((*lead, '^e'))} -> {term((*lead, '^k'))}, {term((*lead, '^k'))}",
        [probabilities],
        kernel=_top_k.bind(normalize=normalize, threshold=threshold),
        sizes={"k": k},
        backward=partial(_top_k_backward, normalize=normalize),
        dtype=[probabilities.dtype, "int32"],
        flops=1,
    )
    return weights, choices


@partial(Kernel, is_compiled=True, cuda=gpu_experts.top_k)
def _top_k(
    ctx: Context,
    p: Array,
    weights: Array,
    choices: Array,
    *,
    normalize: bool,
    threshold: float,
) -> None:
    work = work_array(ctx, "weights", weights)
    largest_of_rows(ctx, p, work, choices, dim=p.ndim - 1, largest=True)
    flat = work.reshape(-1, weights.shape[-1])
    if threshold:
        chosen = packed(ctx, "choices", choices)
        cpu_experts.leave_out(flat, chosen.reshape(flat.shape), threshold)
        deliver(ctx, chosen, choices)
    if normalize:
        cpu_experts.normalize(flat)
    deliver(ctx, work, weights)


def _top_k_backward(
    op: Operator, gweights: LogicalRegion, gchoices: None, *, normalize: bool
) -> LogicalRegion:
    (wide,), (few, _) = terms(op)
    return launch_first(
        f"{op.name}.dx",
        f"{few}, {few}, {wide} -> {wide}",
        [gweights, op.outputs[1], op.inputs[0]],
        kernel=_top_k_gradient.bind(normalize=normalize),
        flops=1,
    )


@partial(Kernel, is_compiled=True, cuda=gpu_experts.top_k_gradient)
def _top_k_gradient(
    ctx: Context,
    gweights: Array,
    choices: Array,
    p: Array,
    gp: Array,
    *,
    normalize: bool,
) -> None:
    read = rows(ctx, "gweights", gweights), rows(ctx, "choices", choices), rows(ctx, "p", p)
    work = work_array(ctx, "gp", gp)
    cpu_experts.top_k_gradient(*read, normalize, work.reshape(-1, gp.shape[-1]))
    deliver(ctx, work, gp)


# -- slots -------------------------------------------------------------------------------------------------------------


def expert_slots(
    choices: LogicalRegion,
    num_experts: int,
    capacity: int | LogicalRegion,
    groups: int = 1,
    name: str | None = None,
) -> LogicalRegion:
    """The slot of every choice, in the order of choices, then of tokens: all first choices before any second one.

    Tokens form `groups` equal groups along dimension 0, each with a `capacity` of its own at every expert. One group is
    one order of all tokens. Several groups can be dispatched without looking at each other (GShard, Lepikhin et al.,
    ICLR 2021, section 3.1), so that what moves between a split of the tokens and one of the experts is an all-to-all.

    Args:
        choices: (tokens, ..., k), integers below `num_experts`, different ones for each token, -1 for none.
        num_experts: how many there are.
        capacity: slots of one expert for one group. Or, of one group, a region (num_experts + 1,), int32, where the
            slots of each expert begin and the last end: room of its own for each.
        groups: divides the extent of dimension 0.
        name: of the operator.

    Returns:
        int32, of the shape of `choices`: expert * (groups * capacity) + place, or -1 for a choice over capacity,
        -2 for none.

    Raises:
        ValueError: the extents do not agree, or a dtype is wrong; when the step runs: a choice is no expert.
    """
    where = checked("expert_slots", name, choices, "choices", least=2, floating=False)
    check_integers(where, choices, "choices")
    check_positive(where, num_experts=num_experts, groups=groups)
    starts = [capacity] if isinstance(capacity, LogicalRegion) else []
    if isinstance(capacity, LogicalRegion):
        check_integers(where, capacity, "capacity")
        if capacity.shape != (num_experts + 1,) or groups > 1:
            raise ValueError(
                f"{where}: capacity '{capacity.name}' is {capacity.shape}, of {num_experts} experts and {groups} groups"
            )
    else:
        check_positive(where, capacity=capacity)
    room = 0 if isinstance(capacity, LogicalRegion) else capacity
    row, sizes = token_axis(where, choices, groups)
    every = [f"all{d}" for d in range(choices.ndim - 1)]
    _, *inner = distinct(choices.axes[:-1], ("b", "g", "k", *every))
    whole = term((row.replace("b", "^all0"), *(f"^{axis}" for axis in every[1:]), "^k"))
    group_rows = choices.shape[0] // groups
    return launch_first(
        name or "expert_slots",
        f"{whole}{', ^m' * len(starts)} -> {term((row, *inner, '^k'))}",
        [choices, *starts],
        kernel=_slots.bind(
            experts=num_experts,
            capacity=room,
            group_rows=group_rows,
            places=groups * room,
        ),
        sizes={
            **sizes,
            "b": group_rows,
            **dict(zip(inner, choices.shape[1:-1], strict=True)),
        },
        backward=no_gradient,
        dtype="int32",
        flops=1 / prod(choices.shape[:-1]) * groups,
    )


def token_axis(where: str, region: LogicalRegion, groups: int) -> tuple[str, dict[str, int]]:
    """How dimension 0 of tokens is written: `b`, or, in groups, `(g b)` with the extent of g."""
    if region.shape[0] % groups:
        raise ValueError(
            f"{where}: '{region.name}' is {region.shape}, its dimension 0 does not divide into {groups} groups"
        )
    return ("b", {}) if groups == 1 else ("(g b)", {"g": groups})


@partial(Kernel, is_compiled=True, cuda=gpu_experts.slots, apart=_BALANCE)
def _slots(
    ctx: Context,
    choices: Array,
    *rest: Array,
    experts: int,
    capacity: int,
    group_rows: int,
    places: int,
) -> None:
    check_classes("expert_slots: the choice", choices, experts, first=-1)
    *starts, slots = rest
    begins = starts[0] if starts else np.arange(experts + 1) * places
    read = ctx.rect(0)
    k = choices.shape[-1]
    made = ctx.scratch("slots", choices.shape, choices.dtype)
    used = ctx.scratch("used", (experts,), "int64")
    groups = choices.shape[0] // group_rows
    first_place = read.lo[0] // group_rows * capacity
    flat = rows(ctx, "choices", choices)
    cpu_experts.fill_slots(flat, groups, capacity, first_place, begins, used, made.reshape(-1, k))
    ctx.xp.copyto(slots, made[ctx.rect(1 + len(starts)).slices(read.lo)])


def count_dropped(slots: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """How many choices got no slot; where there was none, none is missing.

    Args:
        slots: of `expert_slots`.
        name: of the operator.

    Returns:
        A scalar, int64, without gradient. Split over tokens, each task counts its own.

    Raises:
        ValueError: `slots` is not of integers.
    """
    check_integers(f"count_dropped '{name or 'count_dropped'}'", slots, "slots")
    axes = term(distinct(slots.axes))
    return launch_first(
        name or "count_dropped",
        f"{axes} -> .",
        [slots],
        kernel=_count,
        dtype="int64",
        flops=1,
    )


@partial(Kernel, cuda=gpu_experts.dropped)
def _count(ctx: Context, slots: Array, out: Array) -> None:
    out[...] = ctx.xp.count_nonzero(slots == -1)


# -- load --------------------------------------------------------------------------------------------------------------


def expert_load(
    choices: LogicalRegion,
    num_experts: int,
    dtype: str = "float32",
    name: str | None = None,
    *,
    parts: int = 1,
) -> LogicalRegion:
    """The fraction of all choices that each expert gets, over capacity or not; -1 counts for no expert.

    Args:
        choices: any shape, integers below `num_experts`.
        num_experts: how many there are.
        dtype: of the result.
        name: of the operator.
        parts: of dimension 0, equal runs of tokens with a load each.

    Returns:
        (num_experts,), or of several parts (parts, num_experts), without gradient.

    Raises:
        ValueError: a dtype is wrong, `num_experts` is not positive, or dimension 0 does not divide into the parts.
    """
    where = f"expert_load '{name or 'expert_load'}'"
    check_integers(where, choices, "choices")
    check_positive(where, num_experts=num_experts, parts=parts)
    axes, m, sizes = _in_parts(where, choices, parts)
    return launch_first(
        name or "expert_load",
        f"{term(axes)} -> {term((*m, 'e'))}",
        [choices],
        kernel=_load.bind(count=prod(choices.shape) // parts),
        sizes={"e": num_experts, **sizes},
        backward=no_gradient,
        dtype=dtype,
        flops=1,
    )


def _in_parts(
    where: str, region: LogicalRegion, parts: int
) -> tuple[list[str], tuple[str, ...], dict[str, int]]:
    """The axes of a region in several parts, their axis, and its extent; of one part no more than the axes."""
    if parts > 1 and (region.ndim == 0 or region.shape[0] % parts):
        raise ValueError(
            f"{where}: '{region.name}' is {region.shape}, its dimension 0 does not divide into {parts} parts"
        )
    axes = list(distinct(region.axes, ("e", "m")))
    if parts == 1:
        return axes, (), {}
    return [f"(m {axes[0]})", *axes[1:]], ("m",), {"m": parts}


@partial(Kernel, takes_mixed=True)
def _load_on_gpu(ctx: Context, choices: Array, load: Array, *, count: int) -> None:
    loads = load if load.ndim == 2 else load[None]
    parts = contiguous(ctx, "choices", choices).reshape(len(loads), -1)
    for part, of_part in zip(parts, loads, strict=True):
        gpu_experts.load(ctx, part, of_part, count=count)


@partial(Kernel, cuda=_load_on_gpu, apart=_BALANCE)
def _load(ctx: Context, choices: Array, load: Array, *, count: int) -> None:
    """Of one part of the choices, or of each."""
    loads = load if load.ndim == 2 else load[None]
    for part, of_part in zip(choices.reshape(len(loads), -1), loads, strict=True):
        for e, expert in enumerate(range(*ctx.interval("e"))):
            of_part[e] = ctx.xp.count_nonzero(part == expert) / count


def load_balance_loss(
    probabilities: LogicalRegion, choices: LogicalRegion, name: str = "balance", *, parts: int = 1
) -> LogicalRegion:
    """experts * Σ_e load_e * mean probability_e: equation 4 of Fedus, Zoph and Shazeer, JMLR 23 (2022).

    It is 1 when both are even. Composed of sums over all tokens, so that it is exact under any partition; the gradient
    flows through the probabilities alone.

    Args:
        probabilities: (..., experts), floating point.
        choices: (..., k), integers below the number of experts.
        name: the operators are `<name>.load`, `<name>.mean` and so on, the last `<name>`.
        parts: of dimension 0: the result is the mean of the losses of so many equal runs of tokens. So micro-batches
            do not wait for each other; it depends on `parts`, but on no strategy.

    Returns:
        A scalar of the dtype of `probabilities`.

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, or dimension 0 does not divide into the parts.
    """
    where = f"load_balance_loss '{name}'"
    check_region(where, probabilities, "probabilities")
    check_integers(where, choices, "choices")
    if probabilities.ndim < 2 or probabilities.shape[:-1] != choices.shape[:-1]:
        raise ValueError(
            f"{where}: '{probabilities.name}' is {probabilities.shape} and '{choices.name}' is {choices.shape}"
        )
    check_positive(where, parts=parts)
    experts = probabilities.shape[-1]
    load = expert_load(choices, experts, probabilities.dtype, f"{name}.load", parts=parts)
    likely = _likely(where, probabilities, parts, f"{name}.mean")
    product = multiply(load, likely, f"{name}.product")
    return sum(multiply(product, experts / parts, f"{name}.scaled"), name=name)


def _likely(where: str, probabilities: LogicalRegion, parts: int, name: str) -> LogicalRegion:
    """The mean probability of each expert, in each part."""
    if parts == 1:
        return mean(probabilities, tuple(range(probabilities.ndim - 1)), name=name)
    axes, m, sizes = _in_parts(where, probabilities, parts)
    numbers = {"count": float(prod(probabilities.shape[:-1]) // parts)}
    return formula(
        name,
        "x / count",
        {"x": (probabilities, term(axes))},
        term((*m, axes[-1])),
        backward=partial(_likely_backward, numbers=numbers),
        sizes=sizes,
        numbers=numbers,
    )


def _likely_backward(op: Operator, g: LogicalRegion, *, numbers: dict[str, float]) -> LogicalRegion:
    (full,), (out,) = terms(op)
    inputs = {"x": (op.inputs[0], full), "g": (g, out)}
    sizes = {"m": g.shape[0]}
    return formula(
        f"{op.name}.dx",
        "g / count",
        inputs,
        full,
        sizes=sizes,
        numbers=numbers,
    )
