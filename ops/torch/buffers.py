"""Buffers that forward changes: states that are overwritten when all that reads them is done."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ops.building import distinct, launch_all, launch_first, no_gradient, term
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def overwrite(state: LogicalRegion, value: LogicalRegion) -> None:
    """The state has another region's values from then on; both are of one shape and dtype."""
    axes = term(distinct(state.axes))
    kernel = _overwrite
    pattern = f"{axes}, {axes} ->"
    launch_all(
        f"{state.name}.update",
        pattern,
        [state, value],
        kernel=kernel,
        writes=[state],
        flops=1,
    )


def keep_first(state: LogicalRegion, name: str) -> LogicalRegion:
    """What a state holds before the step, as the first operator of the graph; all others read that."""
    axes = term(distinct(state.axes))
    graph = state.graph
    kept = launch_first(
        name,
        f"{axes} -> {axes}",
        [state],
        kernel=_keep,
        backward=no_gradient,
        flops=1,
    )
    *others, first = graph.operators
    graph.operators[:] = [first, *(_reading(op, state, kept) for op in others)]
    return kept


def _reading(op: Operator, old: LogicalRegion, new: LogicalRegion) -> Operator:
    return replace(op, inputs=tuple(new if r is old else r for r in op.inputs))


def add_number(x: LogicalRegion, number: int, name: str) -> LogicalRegion:
    """Integers, and a number more each: what counts calls."""
    axes = term(distinct(x.axes))
    kernel = _add_number.bind(number=number)
    return launch_first(
        name,
        f"{axes} -> {axes}",
        [x],
        kernel=kernel,
        backward=no_gradient,
        dtype=x.dtype,
        flops=1,
    )


@partial(Kernel, is_captured=True, takes_mixed=True)
def _overwrite(ctx: Context, state: Array, value: Array) -> None:
    ctx.xp.copyto(state, value)


@partial(Kernel, is_captured=True, takes_mixed=True)
def _keep(ctx: Context, state: Array, kept: Array) -> None:
    ctx.xp.copyto(kept, state)


@partial(Kernel, is_captured=True)
def _add_number(ctx: Context, x: Array, y: Array, *, number: int) -> None:
    ctx.xp.add(x, number, out=y)
