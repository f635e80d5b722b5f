"""Tokens to the slots of experts, and back: each is the other's gradient.

The experts' side is one region (experts, slots, features). Splits: over experts and slots (tiles of one, partial sums
of the other), over features, and over tokens. Tokens in groups (`g`, see `expert_slots`) have slots of their own, so
that a split over `g` is one of both sides: dispatching copies nothing, and operators split over experts in between
make the movement an all-to-all. Without capacity it is (rows, features), see `dropless`.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ops.building import (
    check_integers,
    check_positive,
    check_region,
    checked,
    distinct,
    gradient_of_first,
    launch_first,
    term,
    terms,
)
from ops.cpu import experts as cpu_experts
from ops.cuda import experts as gpu_experts
from ops.cuda.experts import by_experts, first_of
from ops.moe.gate import token_axis
from ops.tiles import contiguous, deliver, rows, work_array, zeros
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


def dispatch(
    x: LogicalRegion,
    slots: LogicalRegion,
    num_experts: int,
    capacity: int | None,
    groups: int = 1,
    name: str | None = None,
    *,
    num_rows: int | None = None,
) -> LogicalRegion:
    """y[slot] = x[token] for every slot of a token, zero in slots that nobody has.

    Args:
        x: (tokens, ..., features), floating point.
        slots: (tokens, ..., k), of `expert_slots` with the same `num_experts`, `capacity` and `groups`; rows of
            `expert_rows` where the capacity is None.
        name: of the operator.
        num_rows: without capacity, how many there are; default: as many as choices.

    Returns:
        (num_experts, groups * capacity, features), or without capacity (num_rows, features).

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong.
    """
    where = checked("dispatch", name, x)
    check_positive(where, num_experts=num_experts, groups=groups)
    if capacity is None:
        num_rows = prod(slots.shape) if num_rows is None else num_rows
        check_positive(where, num_rows=num_rows)
        places = num_rows
        extents = {"c": num_rows // groups}
    else:
        check_positive(where, capacity=capacity)
        places = groups * capacity
        extents = {"e": num_experts, "c": capacity}
    texts = _ExpertTerms.of(where, x, slots, groups, len(extents) > 1)
    return launch_first(
        name or "dispatch",
        f"{texts.tokens}, {texts.slots} -> {texts.experts}",
        [x, slots],
        kernel=_scatter.bind(places=places),
        sizes={**texts.sizes, **extents},
        backward=partial(gradient_of_first, kernel=_gather.bind(places=places)),
        flops=1 / prod(extents.values()),
    )


def combine(
    x: LogicalRegion,
    slots: LogicalRegion,
    weights: LogicalRegion,
    groups: int = 1,
    name: str | None = None,
) -> LogicalRegion:
    """y[token] = the sum of weight x[slot] over the slots of the token; zero for a token that has none.

    Args:
        x: (experts, groups * capacity, features), or without capacity (rows, features), floating point.
        slots: (tokens, ..., k), of `expert_slots` with the same experts, capacity and `groups`, or of `expert_rows`.
        weights: of the shape of `slots`, floating point.
        name: of the operator.

    Returns:
        (tokens, ..., features).

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong.
    """
    where = checked("combine", name, x, ndim=(2, 3))
    check_region(where, weights, "weights")
    check_positive(where, groups=groups)
    if weights.shape != slots.shape or x.shape[-2] % groups:
        raise ValueError(
            f"{where}: '{x.name}' is {x.shape} in {groups} groups, '{slots.name}' is {slots.shape} and "
            f"'{weights.name}' is {weights.shape}"
        )
    texts = _ExpertTerms.of(where, weights, slots, groups, x.ndim == 3)
    return launch_first(
        name or "combine",
        f"{texts.experts}, {texts.slots}, {texts.slots} -> {texts.tokens}",
        [x, slots, weights],
        kernel=_gather.bind(places=x.shape[-2]),
        sizes=texts.sizes,
        backward=partial(_combine_backward, places=x.shape[-2]),
        flops=2 / prod(x.shape[:-1]) * groups,
    )


class _ExpertTerms(NamedTuple):
    """Of tokens, their slots, and the experts' slots or rows; and what extents the groups need."""

    tokens: str
    slots: str
    experts: str
    sizes: dict[str, int]

    @staticmethod
    def of(
        where: str, tokens: LogicalRegion, slots: LogicalRegion, groups: int, has_experts: bool
    ) -> _ExpertTerms:
        """ValueError unless the slots are those of the tokens."""
        check_integers(where, slots, "slots")
        if tokens.ndim < 2 or slots.ndim != tokens.ndim or slots.shape[:-1] != tokens.shape[:-1]:
            raise ValueError(
                f"{where}: '{tokens.name}' is {tokens.shape} and '{slots.name}' is {slots.shape}"
            )
        row, sizes = token_axis(where, slots, groups)
        _, *inner = distinct(tokens.axes[:-1], ("b", "g", "k", "e", "c", "d"))
        experts = f"{'e ' if has_experts else ''}{'c' if groups == 1 else '(g c)'} d"
        return _ExpertTerms(term((row, *inner, "d")), term((row, *inner, "^k")), experts, sizes)


# -- backward ----------------------------------------------------------------------------------------------------------


def _combine_backward(
    op: Operator, gy: LogicalRegion, *, places: int
) -> tuple[LogicalRegion, None, LogicalRegion]:
    (expert_term, slot_term, _), (token_term,) = terms(op)
    launch = partial(launch_first, sizes=op.extents, flops=op.flops)
    gx = launch(
        f"{op.name}.dx",
        f"{token_term}, {slot_term}, {slot_term} -> {expert_term}",
        [gy, *op.inputs[1:]],
        kernel=_scatter.bind(places=places),
    )
    gweights = launch(
        f"{op.name}.dweights",
        f"{token_term}, {expert_term}, {slot_term} -> {slot_term}",
        [gy, *op.inputs[:2]],
        kernel=_gather_products.bind(places=places),
    )
    return gx, None, gweights


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, is_compiled=True, cuda=gpu_experts.scatter)
def _scatter(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    *weights, y = rest
    work = work_array(ctx, "y", y)
    tile = first_of(ctx, 2 + len(weights))
    cpu_experts.scatter(
        rows(ctx, "x", x),
        rows(ctx, "slots", slots),
        _weights(ctx, weights, x.dtype),
        *tile,
        places,
        by_experts(work),
    )
    deliver(ctx, work, y)


@partial(Kernel, is_compiled=True, cuda=gpu_experts.gather)
def _gather(ctx: Context, x: Array, slots: Array, *rest: Array, places: int) -> None:
    *weights, y = rest
    work = work_array(ctx, "y", y)
    cpu_experts.gather(
        by_experts(contiguous(ctx, "x", x)),
        rows(ctx, "slots", slots),
        _weights(ctx, weights, x.dtype),
        *first_of(ctx, 0),
        places,
        work.reshape(-1, y.shape[-1]),
    )
    deliver(ctx, work, y)


@partial(Kernel, is_compiled=True, cuda=gpu_experts.gather_products)
def _gather_products(
    ctx: Context,
    gy: Array,
    x: Array,
    slots: Array,
    out: Array,
    *,
    places: int,
) -> None:
    work = work_array(ctx, "out", out)
    tile = first_of(ctx, 1)
    read = rows(ctx, "gy", gy), by_experts(contiguous(ctx, "x", x)), rows(ctx, "slots", slots)
    cpu_experts.gather_products(*read, *tile, places, work.reshape(-1, out.shape[-1]))
    deliver(ctx, work, out)


def _weights(ctx: Context, weights: list[Array], dtype: DTypeLike) -> Array:
    """The weights as a matrix; an empty one stands for ones."""
    return rows(ctx, "weights", weights[0]) if weights else zeros(ctx, "weights", (0, 0), dtype)
