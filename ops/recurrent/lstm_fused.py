"""A layer of an LSTM of two operators: the product with the inputs of all steps, and all steps.

`<name>.x` makes the inputs' part of the gates of all steps. `<name>.steps` is what has to go step by step: the product
with the state before, and the cell. One task does all steps of some samples, so a step costs no task and the weight is
packed once; in return only the batch can be split. Backward, one operator goes through the steps and leaves the
gradients of all gates, of which one product makes the gradient of the inputs, and one that of each weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.cuda.build import distinct, first, terms
from ops.recurrent import lstm_fused_kernels as fused
from ops.recurrent import lstm_kernels as kernels
from ops.recurrent.lstm_cell import State
from ops.recurrent.weights import RecurrentWeights
from taskflow import LogicalRegion, Operator


def lstm_fused(x: LogicalRegion, weights: RecurrentWeights, initial: State | None) -> tuple[LogicalRegion, State]:
    """The hidden states, (batch, steps, hidden), and the last state, (batch, 1, hidden) each; `x` as they are."""
    b, s = distinct(x.axes[:2], ("g", "h", "i", "m"))
    weight_ih, weight_hh, *biases = weights.regions
    launch, state = x.graph.launch, initial or ()
    gates = first(
        launch(
            f"{weights.name}.x",
            f"{b} {s} i, g h i -> {b} {s} g h",
            [x, weight_ih],
            kernel=kernels.product.bind(axis="i"),
            backward=_inputs_backward,
        )
    )
    wide, narrow, last = f"{b} ^{s} ^g ^h", f"{b} ^{s} ^h", f"{b} 1 ^h"
    before = [f"{b} 1 ^m", last] if state else []
    read = [wide, "^g ^h ^m", *["^g ^h"] * len(biases), *before]
    made = launch(
        f"{weights.name}.steps",
        f"{', '.join(read)} -> {narrow}, {last}, {last}, {narrow}, {wide}",  # the last two serve the gradient
        [gates, weight_hh, *biases, *state],
        kernel=fused.steps.bind(has_state=bool(state)),
        backward=partial(_steps_backward, weights=weights, has_state=bool(state)),
        flops=2 + 10 / weights.hidden_size,
    )
    assert isinstance(made, tuple)
    weights.steps.append(f"{weights.name}.steps")
    return made[0], (made[1], made[2])


def _inputs_backward(op: Operator, ggates: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    (x_term, weight_term), (y_term,) = terms(op)
    x, weight = op.inputs
    launch, name = x.graph.launch, op.name
    gx = launch(f"{name}.dx", f"{y_term}, {weight_term} -> {x_term}", [ggates, weight], kernel=kernels.input_gradient)
    pattern = f"{y_term}, {x_term} -> {weight_term}"
    return first(gx), first(launch(f"{name}.dweight_ih", pattern, [ggates, x], kernel=kernels.weight_gradient))


def _steps_backward(
    op: Operator,
    ghs: LogicalRegion | None,
    gh: LogicalRegion | None,
    gc: LogicalRegion | None,
    gcs: LogicalRegion | None,
    gactive: LogicalRegion | None,
    *,
    weights: RecurrentWeights,
    has_state: bool,
) -> tuple[LogicalRegion, ...]:
    assert gcs is None and gactive is None, "only the hidden states and the last state are public"
    (wide, weight_term, *rest), (narrow, last, *_) = terms(op)
    weight, *given = op.inputs[1:]
    bias_count = len(given) - 2 * has_state
    hs, _, _, cs, active = op.outputs
    launch = hs.graph.launch
    flowing = [(term, g) for term, g in ((narrow, ghs), (last, gh), (last, gc)) if g is not None]
    state = rest[bias_count:]
    read = [*flowing, *zip(state[1:], given[bias_count + 1 :]), (narrow, cs), (wide, active), (weight_term, weight)]
    patterns, regions = zip(*read, strict=True)
    has = ghs is not None, gh is not None, gc is not None
    made = launch(
        f"{op.name}.dx",
        f"{', '.join(patterns)} -> {', '.join([wide, *state])}",
        regions,
        kernel=fused.steps_gradient.bind(has=has, has_state=has_state),
        flops=2 + 20 / weights.hidden_size,
    )
    ggates, *gstate = made if isinstance(made, tuple) else (made,)
    return ggates, *_parameter_gradients(op, ggates, weights, given[bias_count:], bias_count), *gstate


def _parameter_gradients(
    op: Operator, ggates: LogicalRegion, weights: RecurrentWeights, state: Sequence[LogicalRegion], bias_count: int
) -> list[LogicalRegion]:
    """Of the weight, and of the biases, which share one."""
    b, s, *_ = terms(op)[0][0].split()
    hs, launch = op.outputs[0], ggates.graph.launch
    before = [(f"{b} 1 m", state[0])] if state else []
    patterns, regions = zip((f"{b} {s} g h", ggates), (f"{b} {s} m", hs), *before, strict=True)
    made = launch(
        f"{weights.name}.dweight_hh",
        f"{', '.join(patterns)} -> g h m",
        regions,
        kernel=fused.state_weight_gradient,
    )
    gradients = [first(made)]
    if bias_count:
        pattern = f"{b} {s} g h -> g h"
        gbias = launch(f"{weights.name}.dbias", pattern, [ggates], kernel=kernels.bias_gradient, flops=1)
        gradients += [first(gbias)] * bias_count
    return gradients
