"""The elementwise part of an LSTM's step, which follows the products of the gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ops.cuda.build import term, terms
from ops.recurrent import lstm_kernels as kernels
from taskflow import LogicalRegion, Operator, Window

State = tuple[LogicalRegion, LogicalRegion]


def cell_gradients(
    op: Operator, gh: LogicalRegion | None, gc: LogicalRegion | None, gactive: LogicalRegion | None
) -> State:
    """The gradients of the gates and of c, the last input, of the cell `op`, from those of h' and c' that flow."""
    assert gactive is None, "only the state is public"
    narrow, wide = terms(op)[1][1:]
    known = [g for g in (gh, gc) if g is not None]
    _, new_c, active = op.outputs
    made = active.graph.launch(
        f"{op.name}.dx",
        f"{narrow}, " * len(known) + f"{narrow}, {narrow}, {wide} -> {wide}, {narrow}",
        [*known, op.inputs[-1], new_c, active],
        kernel=kernels.cell_gradient.bind(has_gh=gh is not None, has_gc=gc is not None),
        flops=20,
    )
    assert isinstance(made, tuple)
    return made[0], made[1]


def launch_cell(
    gates: LogicalRegion,
    c: LogicalRegion,
    inputs: LogicalRegion | None = None,
    step: int = 0,
    backward: Callable[..., Any] = cell_gradients,
) -> State:
    """`<gates>.cell`: the state after the step whose gates are `gates`, (..., 4, hidden); `c` is (..., hidden).

    With `inputs`, (batch, steps, 4, hidden), step `step` of them is added to the gates, here (batch, 1, 4, hidden), and
    `backward` is for gates, inputs and c.
    """
    lead, windows = gates.axes[:-2], dict[str, Window]()
    kernel = kernels.cell
    wide, narrow = term((*lead, "^g", "h")), term((*lead, "h"))
    read = [(wide, gates), (narrow, c)]
    if inputs is not None:
        at = f"{lead[1]}{step}"
        windows, kernel = {at: Window(lead[1], padding=-step)}, kernels.cell_of_sum
        read.insert(1, (term((lead[0], at, "^g", "h")), inputs))
    patterns, regions = zip(*read, strict=True)
    with gates.graph.following(gates.name):
        made = gates.graph.launch(
            f"{gates.name}.cell",
            f"{', '.join(patterns)} -> {narrow}, {narrow}, {wide}",  # the activated gates serve the gradient
            regions,
            kernel=kernel,
            backward=backward,
            windows=windows,
            flops=10,
        )
    assert isinstance(made, tuple)
    return made[0], made[1]
