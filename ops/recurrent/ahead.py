"""A layer of an LSTM whose product with the inputs is one operator over all steps, ahead of them.

`<name>.x` makes the inputs' part of the gates of all steps, time first in memory, so that a step reads one stretch. A
step `<name>.t0`, ... is the product with the state before it, and its `.cell` adds both. The gradients of all steps'
gates are put side by side when the first step's backward runs, which is the last: one product makes the gradient of the
inputs, one that of each weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.building import distinct, launch_first, terms
from ops.recurrent import products
from ops.recurrent.cells import State, cell_gradients, launch_cell
from ops.recurrent.layers import in_group, zero_state
from ops.recurrent.weights import RecurrentWeights
from taskflow import LogicalRegion, Operator, Window


def lstm_ahead(
    x: LogicalRegion, weights: RecurrentWeights, initial: State | None, group: int
) -> tuple[list[LogicalRegion], State]:
    """The hidden state after every step, (batch, 1, hidden) each, and the last state; `x` is (batch, steps, input)."""
    gates = _input_gates(x, weights)
    h, c = initial or (zero_state((x.shape[0], 1), gates.axes[:2], weights),) * 2
    hs = []
    for t in range(x.shape[1]):
        with in_group(weights, t, group):
            h, c = _step(gates, t, h, c, weights)
        hs.append(h)
    return hs, (h, c)


def _input_gates(x: LogicalRegion, weights: RecurrentWeights) -> LogicalRegion:
    """W_ih x + biases for all steps, (batch, steps, 4, hidden)."""
    weight_ih, _, *biases = weights.regions
    b, s = distinct(x.axes[:2], ("g", "h", "i", "m"))
    added = ", g h" * len(biases)
    return launch_first(
        f"{weights.name}.x",
        f"{b} {s} i, g h i{added} -> {b} {s} g h",
        [x, weight_ih, *biases],
        kernel=products.input_gates,
        backward=_input_gates_backward,
        layout=f"{s} {b} i, g h i{added} -> {s} {b} g h",
    )


def _input_gates_backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, ...]:
    (x_term, weight_term, *biases), (y_term,) = terms(op)
    x, weight = op.inputs[:2]
    gx = launch_first(
        f"{op.name}.dx",
        f"{y_term}, {weight_term} -> {x_term}",
        [gy, weight],
        kernel=products.inputs_gradient,
        layout=f"{_time_first(y_term)}, {weight_term} -> {_time_first(x_term)}",
    )
    gweight = launch_first(
        f"{op.name}.dweight_ih",
        f"{y_term}, {x_term} -> {weight_term}",
        [gy, x],
        kernel=products.input_weight_gradient,
        layout=f"{_time_first(y_term)}, {_time_first(x_term)} -> {weight_term}",
    )
    gradients = [gx, gweight]
    if biases:
        gbias = launch_first(f"{op.name}.dbias", f"{y_term} -> g h", [gy], kernel=products.bias_gradient, flops=1)
        gradients += [gbias] * 2
    return tuple(gradients)


def _time_first(text: str) -> str:
    b, s, *rest = text.split()
    return " ".join([s, b, *rest])


def _step(inputs: LogicalRegion, t: int, h: LogicalRegion, c: LogicalRegion, weights: RecurrentWeights) -> State:
    """The state after step `t`; `h` and `c` are (batch, 1, hidden), `inputs` what `_input_gates` made."""
    b, s = distinct(inputs.axes[:2], ("g", "h", "i", "m"))
    chain = f"{weights.name}.t0"
    gates = launch_first(
        f"{weights.name}.t{t}",
        f"{b} {s} m, g h m -> {b} {s} g h",
        [h, weights.regions[1]],
        kernel=products.product.bind(axis="m"),
        backward=partial(_step_backward, weights=weights, chain=chain),
    )
    weights.steps.append(gates.name)
    return launch_cell(gates, c, inputs, t, partial(_cell_backward, weights=weights, chain=chain))


# -- backward: a step's cell, then its product; the first step's run last ----------------------------------------------


def _cell_backward(
    op: Operator,
    gh: LogicalRegion | None,
    gc: LogicalRegion | None,
    gactive: LogicalRegion | None,
    *,
    weights: RecurrentWeights,
    chain: str,
) -> tuple[LogicalRegion | None, ...]:
    pending, call = weights._pending, (chain, op.inputs[1].graph.differentiations)
    ggates, gc_before = cell_gradients(op, gh, gc, gactive)
    pending.setdefault((*call, "gates"), []).append((ggates,))
    if op.name != f"{chain}.cell":
        return ggates, None, gc_before
    parts = [part for (part,) in reversed(pending.pop((*call, "gates")))]
    ggates_all = _side_by_side(op, parts, weights)
    pending[*call, "all gates"] = [(ggates_all,)]
    return ggates, ggates_all, gc_before


def _side_by_side(op: Operator, parts: Sequence[LogicalRegion], weights: RecurrentWeights) -> LogicalRegion:
    """The gradients of the gates of all steps, time first in memory."""
    inputs = op.inputs[1]
    b, s = terms(op)[1][0].split()[:2]
    keys, every = [f"{s}{t}" for t in range(len(parts))], f"{s}_all"
    return launch_first(
        f"{weights.name}.dgates",
        f"{', '.join(f'{b} {key} g h' for key in keys)} -> {b} {every} g h",
        parts,
        kernel=products.side_by_side,
        sizes={every: inputs.shape[1]},
        windows={key: Window(every, padding=t) for t, key in enumerate(keys)},
        layout=f"{', '.join(f'{b} {key} g h' for key in keys)} -> {every} {b} g h",
        flops=1,
    )


def _step_backward(
    op: Operator, ggates: LogicalRegion, *, weights: RecurrentWeights, chain: str
) -> tuple[LogicalRegion, LogicalRegion | None]:
    (h_term, weight_term), (y_term,) = terms(op)
    h, weight_hh = op.inputs
    pending, call = weights._pending, (chain, h.graph.differentiations)
    pattern = f"{y_term}, {weight_term} -> {h_term}"
    gh = launch_first(f"{op.name}.dh", pattern, [ggates, weight_hh], kernel=products.input_gradient)
    pending.setdefault((*call, "states"), []).append((h,))
    if op.name != chain:
        return gh, None
    ((ggates_all,),) = pending.pop((*call, "all gates"))
    hs = [state for (state,) in reversed(pending.pop((*call, "states")))]
    b, s = y_term.split()[:2]
    pattern = f"{b} ^{s}_all g h, {', '.join([h_term] * len(hs))} -> {weight_term}"
    inputs, kernel = [ggates_all, *hs], products.state_weight_gradient
    return gh, launch_first(f"{weights.name}.dweight_hh", pattern, inputs, kernel=kernel, flops=2)
