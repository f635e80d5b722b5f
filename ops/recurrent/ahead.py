"""A layer of an LSTM whose product with the inputs is one operator over all steps, ahead of them.

`<name>.x` makes the inputs' part of the gates of all steps, time first in memory, so that a step reads one stretch. A
step `<name>.t0`, ... is the product with the state before it, and its `.cell` adds both. The gradients of all steps'
gates are put side by side when the first step's backward runs, which is the last: one product makes the gradient of the
inputs, one that of each weight.
"""

from __future__ import annotations

from functools import partial

from ops.building import distinct, launch_first, terms
from ops.recurrent import products
from ops.recurrent.cells import State, cell_gradients, launch_cell
from ops.recurrent.layers import RecurrentWeights, in_group, zero_state
from ops.shape.rearrange import put_together
from taskflow import Kernel, LogicalRegion, Operator


def lstm_ahead(
    x: LogicalRegion, weights: RecurrentWeights, initial: State | None, group: int
) -> tuple[list[LogicalRegion], State]:
    """The hidden state after every step, (batch, 1, hidden) each, and the last state; `x` is (batch, steps, input)."""
    gates = input_gates(x, weights, is_time_first=True)
    h, c = initial or (zero_state((x.shape[0], 1), gates.axes[:2], weights),) * 2
    hs = []
    for t in range(x.shape[1]):
        with in_group(weights, t, group):
            h, c = _step(gates, t, h, c, weights)
        hs.append(h)
    return hs, (h, c)


def input_gates(x: LogicalRegion, weights: RecurrentWeights, is_time_first: bool) -> LogicalRegion:
    """`<name>.x`: W_ih x for all steps, (batch, steps, 4, hidden). Time first in memory, it has the biases, too."""
    weight_ih, _, *biases = weights.regions
    inputs = [x, weight_ih, *biases] if is_time_first else [x, weight_ih]
    b, s = distinct(x.axes[:2], ("g", "h", "i", "m"))
    return launch_first(
        f"{weights.name}.x",
        pattern := f"{b} {s} i, g h i{', g h' * (len(inputs) - 2)} -> {b} {s} g h",
        inputs,
        kernel=products.product.bind(axis="i", is_time_first=is_time_first),
        backward=partial(_input_gates_backward, is_time_first=is_time_first),
        layout=_time_first(pattern, b, s) if is_time_first else None,
    )


def _time_first(pattern: str, b: str, s: str) -> str:
    """The pattern with these axes exchanged wherever they lead a term: a `layout`."""
    return pattern.replace(f"{b} {s} ", f"{s} {b} ")


def _input_gates_backward(
    op: Operator, gy: LogicalRegion, *, is_time_first: bool
) -> tuple[LogicalRegion, ...]:
    (x_term, weight_term, *biases), (y_term,) = terms(op)
    x, weight = op.inputs[:2]
    b, s = y_term.split()[:2]

    def launch(
        what: str, pattern: str, inputs: list[LogicalRegion], kernel: Kernel
    ) -> LogicalRegion:
        layout = _time_first(pattern, b, s) if is_time_first else None
        bound = kernel.bind(is_time_first=is_time_first)
        return launch_first(f"{op.name}.{what}", pattern, inputs, kernel=bound, layout=layout)

    gx = launch("dx", f"{y_term}, {weight_term} -> {x_term}", [gy, weight], products.input_gradient)
    gweight = launch(
        "dweight_ih", f"{y_term}, {x_term} -> {weight_term}", [gy, x], products.weight_gradient
    )
    if not biases:
        return gx, gweight
    gbias = launch_first(
        f"{op.name}.dbias", f"{y_term} -> g h", [gy], kernel=products.bias_gradient, flops=1
    )
    return gx, gweight, gbias, gbias


def _step(
    inputs: LogicalRegion, t: int, h: LogicalRegion, c: LogicalRegion, weights: RecurrentWeights
) -> State:
    """The state after step `t`; `h` and `c` are (batch, 1, hidden), `inputs` what `input_gates` made."""
    b, s = distinct(inputs.axes[:2], ("g", "h", "i", "m"))
    gates = launch_first(
        f"{weights.name}.t{t}",
        f"{b} {s} m, g h m -> {b} {s} g h",
        [h, weights.regions[1]],
        kernel=products.product.bind(axis="m"),
        backward=partial(_step_backward, name=weights.name),
    )
    weights.steps.append(gates.name)
    return launch_cell(gates, c, inputs, t, partial(_cell_backward, name=weights.name))


# -- backward: a step's cell, then its product; the first step's run last ----------------------------------------------


def _cell_backward(
    op: Operator,
    gh: LogicalRegion | None,
    gc: LogicalRegion | None,
    gactive: LogicalRegion | None,
    *,
    name: str,
) -> tuple[LogicalRegion | None, ...]:
    pending = op.inputs[1].graph.pending
    ggates, gc_before = cell_gradients(op, gh, gc, gactive)
    pending.setdefault((name, "gates"), []).append(ggates)
    if op.name != f"{name}.t0.cell":
        return ggates, None, gc_before
    parts = pending.pop((name, "gates"))[::-1]
    b, s = terms(op)[1][0].split()[:2]
    count, axes, layout = (
        op.inputs[1].shape[1],
        (b, f"{s}_all", "g", "h"),
        partial(_time_first, b=b, s=f"{s}_all"),
    )
    ggates_all = put_together(
        f"{name}.dgates", parts, axes, 1, range(len(parts)), count, has_gaps=True, layout=layout
    )
    pending[name, "all gates"] = [ggates_all]
    return ggates, ggates_all, gc_before


def _step_backward(
    op: Operator, ggates: LogicalRegion, *, name: str
) -> tuple[LogicalRegion, LogicalRegion | None]:
    (h_term, weight_term), (y_term,) = terms(op)
    h, weight_hh = op.inputs
    pending = h.graph.pending
    pattern = f"{y_term}, {weight_term} -> {h_term}"
    gh = launch_first(f"{op.name}.dh", pattern, [ggates, weight_hh], kernel=products.input_gradient)
    pending.setdefault((name, "states"), []).append(h)
    if op.name != f"{name}.t0":
        return gh, None
    (ggates_all,) = pending.pop((name, "all gates"))
    hs = pending.pop((name, "states"))[::-1]
    b, s = y_term.split()[:2]
    pattern = f"{b} ^{s}_all g h, {', '.join([h_term] * len(hs))} -> {weight_term}"
    inputs, kernel = [ggates_all, *hs], products.state_weight_gradient
    return gh, launch_first(f"{name}.dweight_hh", pattern, inputs, kernel=kernel, flops=2)
