"""The elementwise part of an LSTM's step, which follows the products of the gates."""

from __future__ import annotations

from functools import partial

from ops import lstm_kernels as kernels
from ops.build import term, terms
from ops.recurrent_weights import RecurrentWeights
from taskflow import LogicalRegion, Operator

State = tuple[LogicalRegion, LogicalRegion]


def launch_cell(gates: LogicalRegion, c: LogicalRegion, weights: RecurrentWeights, chain: str) -> State:
    """`<gates>.cell`: the state after the step whose gates are `gates`, (..., 4, hidden); `c` is (..., hidden)."""
    lead = gates.axes[:-2]
    wide, narrow = term((*lead, "^g", "h")), term((*lead, "h"))
    with gates.graph.following(gates.name):
        made = gates.graph.launch(
            f"{gates.name}.cell",
            f"{wide}, {narrow} -> {narrow}, {narrow}, {wide}",  # the activated gates serve the gradient
            [gates, c],
            kernel=kernels.cell,
            backward=partial(_cell_backward, weights=weights, chain=chain),
            flops=10,
        )
    assert isinstance(made, tuple)
    weights._chains[made[0].name, made[1].name] = chain
    return made[0], made[1]


def _cell_backward(
    op: Operator,
    gh: LogicalRegion | None,
    gc: LogicalRegion | None,
    gactive: LogicalRegion | None,
    *,
    weights: RecurrentWeights,
    chain: str,
) -> tuple[LogicalRegion, LogicalRegion]:
    assert gactive is None, "only the state is public"
    if gc is None:  # no later step was differentiated: forget what an earlier differentiation may have left
        weights._pending.pop(chain, None)
    return cell_gradients(op, gh, gc)


def cell_gradients(
    op: Operator, gh: LogicalRegion | None, gc: LogicalRegion | None
) -> tuple[LogicalRegion, LogicalRegion]:
    """The gradients of the gates and of c, the last input, of the cell `op`, from those of h' and c' that flow."""
    narrow, wide = terms(op)[1][1:]
    known = [g for g in (gh, gc) if g is not None]
    _, new_c, active = op.outputs
    made = active.graph.launch(
        f"{op.name}.dx",
        f"{narrow}, " * len(known) + f"{narrow}, {narrow}, {wide} -> {wide}, {narrow}",
        [*known, op.inputs[-1], new_c, active],
        kernel=partial(kernels.cell_gradient, has_gh=gh is not None, has_gc=gc is not None),
        flops=20,
    )
    assert isinstance(made, tuple)
    return made[0], made[1]
