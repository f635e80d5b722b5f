"""Experts without capacity: the choices of all tokens as rows in the order of experts, none of them empty or lost.

Rows (g n) are those of each group in turn; `starts` says where the rows of each expert begin in a group, and where the
last ones end. An expert computes with its own rows alone (dMoE of MegaBlocks: Gale et al., MLSys 2023), so work follows
the choices, and parts of rows are of equal work, however uneven routing is. Where it is known beforehand, experts can
have room of their own instead: then starts are constants, a part reads the weights of its experts (`taskflow.Image`),
and an even split of the experts is as uneven, for simulator and search, as the routing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from math import prod

import numpy as np

from ops.building import (
    check_integers,
    check_positive,
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
from ops.moe.gate import token_axis
from ops.tiles import check_classes, deliver, rows, work_array
from taskflow import Array, Context, Image, Kernel, LogicalRegion, Operator


def expert_rows(
    choices: LogicalRegion, num_experts: int, groups: int = 1, name: str | None = None
) -> tuple[LogicalRegion, LogicalRegion]:
    """The row of every choice, in the order of experts, then of choices, then of tokens; every choice has one.

    Args:
        choices: (tokens, ..., k), integers below `num_experts`, -1 for none.
        num_experts: how many there are.
        groups: of tokens along dimension 0, with rows of their own; see `expert_slots`.
        name: of the operator.

    Returns:
        int32, of the shape of `choices`: the number of a row, -2 for none; and (num_experts + 1,), of several groups
        (groups, num_experts + 1): the first row of each expert in its group, and the end of the last.

    Raises:
        ValueError: the extents do not agree, or a dtype is wrong; when the step runs: a choice is no expert.
    """
    where = checked("expert_rows", name, choices, "choices", least=2, floating=False)
    check_integers(where, choices, "choices")
    check_positive(where, num_experts=num_experts, groups=groups)
    row, sizes = token_axis(where, choices, groups)
    inner = [f"^{axis}" for axis in distinct(choices.axes[1:], ("b", "g", "m"))]
    whole = term((row.replace("b", "^b"), *inner))
    slots, starts = launch_all(
        name or "expert_rows",
        f"{whole} -> {whole}, {starts_term(groups)}",
        [choices],
        kernel=_sort.bind(experts=num_experts),
        sizes={**sizes, "m": num_experts + 1},
        backward=no_gradient,
        dtype="int32",
        flops=1,
    )
    return slots, starts


def starts_term(groups: int) -> str:
    """How `starts` is written."""
    return "^m" if groups == 1 else "g ^m"


@partial(Kernel, is_compiled=True, cuda=gpu_experts.sort)
def _sort(ctx: Context, choices: Array, slots: Array, starts: Array, *, experts: int) -> None:
    check_classes("expert_rows: the choice", choices, experts, first=-1)
    made = work_array(ctx, "slots", slots)
    begins = work_array(ctx, "starts", starts)
    chosen = rows(ctx, "choices", choices)
    cpu_experts.sort_choices(
        chosen,
        ctx.rect(0).lo[0] * prod(choices.shape[1:]),
        begins.reshape(-1, starts.shape[-1]),
        made.reshape(chosen.shape),
    )
    deliver(ctx, made, slots)
    deliver(ctx, begins, starts)


# -- the experts' layers -----------------------------------------------------------------------------------------------


def rows_linear(
    name: str,
    x: LogicalRegion,
    weights: list[LogicalRegion],
    starts: LogicalRegion,
    axes: tuple[str, str],
    rooms: tuple[int, ...] | None = None,
) -> LogicalRegion:
    """`expert_linear` of rows; `axes` of features, in and out. `rooms`: the starts that are the same in every step."""
    groups = starts.shape[0] if starts.ndim == 2 else 1
    return launch_first(
        name,
        _rows_pattern(groups, axes, "own" if rooms else "e", len(weights) > 1),
        [x, *weights, starts],
        kernel=_rows_kernel.bind(group_rows=x.shape[0] // groups, summed=axes[0], is_turned=False),
        sizes={"g": groups} if groups > 1 else {},
        windows={"own": _experts_of_rows(rooms)} if rooms else None,
        backward=partial(_rows_backward, axes=axes, rooms=rooms),
        flops=2.0 if rooms else 2 / weights[0].shape[0],
    )


def _rows_pattern(groups: int, axes: tuple[str, str], e: str, has_bias: bool) -> str:
    (i, o) = axes
    row = _row(groups)
    bias = f", {e} {o}" * has_bias
    return f"{row} {i}, {e} {o} {i}{bias}, {starts_term(groups)} -> {row} {o}"


def _experts_of_rows(rooms: tuple[int, ...]) -> Image:
    expert = np.repeat(np.arange(len(rooms) - 1), np.diff(rooms))
    return Image("n", expert, expert + 1)


def _row(groups: int) -> str:
    return "n" if groups == 1 else "(g n)"


def _rows_backward(
    op: Operator, gy: LogicalRegion, *, axes: tuple[str, str], rooms: tuple[int, ...] | None
) -> tuple[LogicalRegion | None, ...]:
    (i, o) = axes
    (_, weight_term, *_, starts_text), (y_term,) = terms(op)
    row = y_term.removesuffix(f" {o}")
    x, weight, *bias, starts = op.inputs
    gx = launch_first(
        f"{op.name}.dx",
        f"{y_term}, {weight_term}, {starts_text} -> {row} {i}",
        [gy, weight, starts],
        kernel=_rows_kernel.bind(
            group_rows=op.kernel.options["group_rows"], summed=o, is_turned=True
        ),
        sizes=_groups_of(op),
        windows=op.windows,
        flops=op.flops,
    )
    row = "row" if rooms else row
    pattern = f"{row} {o}, {row} {i}, {starts_text} -> e {o} {i}"
    gweight = _of_weights(op, "weight", pattern, [gy, x, starts], rooms)
    pattern = f"{row} {o}, {starts_text} -> e {o}"
    gbias = [_of_weights(op, "bias", pattern, [gy, starts], rooms) for _ in bias]
    return gx, gweight, *gbias, None


def _groups_of(op: Operator) -> dict[str, int]:
    return {"g": op.extents["g"]} if op.inputs[-1].ndim == 2 else {}


def _of_weights(
    op: Operator,
    what: str,
    pattern: str,
    inputs: list[LogicalRegion],
    rooms: tuple[int, ...] | None,
) -> LogicalRegion:
    """The gradient of weights or biases."""
    experts = op.inputs[1].shape[0]
    return launch_first(
        f"{op.name}.d{what}",
        pattern,
        inputs,
        kernel=_rows_gradient.bind(group_rows=op.kernel.options["group_rows"]),
        sizes={**_groups_of(op), "e": experts},
        windows={"row": Image("e", rooms[:-1], rooms[1:])} if rooms else None,
        flops={"row": 2.0} if rooms else 2 / experts,
    )


def _borders(ctx: Context, starts: Array, experts: int, group_rows: int) -> Array:
    """(groups, experts + 1) of a tile: rows of the tile where those of each expert begin, and the last ones end.

    `experts`: number of the argument of experts.
    """
    run = ctx.rect(0)
    tile = ctx.rect(experts)
    tables = rows(ctx, "starts", starts)
    borders = ctx.scratch("borders", (len(tables), tile.shape[0] + 1), "int64")
    cpu_experts.clip_starts(tables, group_rows, run.lo[0], run.hi[0], tile.lo[0], borders)
    return borders


def _runs(borders: Array) -> Iterator[tuple[int, int, slice]]:
    """Every group and expert, and where its rows are in a tile."""
    for group, of_group in enumerate(borders.tolist()):
        for expert, (begin, end) in enumerate(pairwise(of_group)):
            yield group, expert, slice(begin, end)


@partial(Kernel, is_compiled=True, cuda=gpu_experts.rows_linear)
def _rows_kernel(
    ctx: Context,
    x: Array,
    weight: Array,
    *rest: Array,
    group_rows: int,
    summed: str,
    is_turned: bool,
) -> None:
    *bias, starts, y = rest
    matrix = weight if is_turned else weight.transpose(0, 2, 1)
    borders = _borders(ctx, starts, 1, group_rows)
    work = work_array(ctx, "y", y)
    work.fill(0)  # a row may be nobody's, or of an expert that is elsewhere
    for _, expert, run in _runs(borders):
        ctx.xp.matmul(x[run], matrix[expert], out=work[run])
    if bias and ctx.interval(summed)[0] == 0:  # once among the partial sums
        cpu_experts.add_to_runs(rows(ctx, "bias", bias[0]), borders, work)
    deliver(ctx, work, y)


@partial(Kernel, is_compiled=True, cuda=gpu_experts.rows_gradient)
def _rows_gradient(ctx: Context, gy: Array, *rest: Array, group_rows: int) -> None:
    *x, starts, out = rest
    borders = _borders(ctx, starts, 2 + len(x), group_rows)
    if not x:
        work = work_array(ctx, "out", out)
        cpu_experts.sum_runs(rows(ctx, "gy", gy), borders, work)
        deliver(ctx, work, out)
        return
    product = ctx.scratch("product", out.shape[1:], out.dtype)
    for group, expert, run in _runs(borders):
        ctx.xp.matmul(gy[run].T, x[0][run], out=product if group else out[expert])
        if group:
            ctx.xp.add(out[expert], product, out=out[expert])
