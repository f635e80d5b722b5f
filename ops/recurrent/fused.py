"""A layer of an LSTM of two operators: the product with the inputs of all steps, and all steps.

`<name>.x` makes the inputs' part of the gates of all steps. `<name>.steps` is what has to go step by step: the product
with the state before, and the cell. One task does all steps of some samples, so a step costs no task and the weight is
packed once; in return only the batch can be split. Backward, one operator goes through the steps and leaves the
gradients of all gates, of which one product makes the gradient of the inputs, and one that of each weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.building import distinct, launch_all, launch_first, terms
from ops.expressions.assign import run_parts
from ops.recurrent import products
from ops.recurrent.cells import State, lstm_gradient, lstm_program
from ops.recurrent.layers import RecurrentWeights
from ops.tiles import contiguous, deliver, matrix, result_matrix, work_array, zeros
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def lstm_fused(
    x: LogicalRegion, weights: RecurrentWeights, initial: State | None
) -> tuple[LogicalRegion, State]:
    """The hidden states, (batch, steps, hidden), and the last state, (batch, 1, hidden) each; `x` as they are."""
    b, s = distinct(x.axes[:2], ("g", "h", "i", "m"))
    _, weight_hh, *biases = weights.regions
    state = initial or ()
    gates = _input_gates(x, weights)
    wide, narrow, last = f"{b} ^{s} ^g ^h", f"{b} ^{s} ^h", f"{b} 1 ^h"
    before = [f"{b} 1 ^m", last] if state else []
    read = [wide, "^g ^h ^m", *["^g ^h"] * len(biases), *before]
    hs, h, c, *_ = launch_all(
        f"{weights.name}.steps",
        f"{', '.join(read)} -> {narrow}, {last}, {last}, {narrow}, {wide}",  # the last two serve the gradient
        [gates, weight_hh, *biases, *state],
        kernel=_steps.bind(has_state=bool(state)),
        backward=partial(_steps_backward, name=weights.name, has_state=bool(state)),
        flops=2 + 10 / weights.hidden_size,
    )
    weights.steps.append(f"{weights.name}.steps")
    return hs, (h, c)


def _input_gates(x: LogicalRegion, weights: RecurrentWeights) -> LogicalRegion:
    """`<name>.x`: W_ih x for all steps, (batch, steps, 4, hidden)."""
    b, s = distinct(x.axes[:2], ("g", "h", "i", "m"))
    return launch_first(
        f"{weights.name}.x",
        f"{b} {s} i, g h i -> {b} {s} g h",
        [x, weights.regions[0]],
        kernel=products.product.bind(axis="i"),
        backward=_input_gates_backward,
    )


def _input_gates_backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    (x_term, weight_term), (y_term,) = terms(op)
    x, weight = op.inputs
    of_x = f"{y_term}, {weight_term} -> {x_term}"
    of_weight = f"{y_term}, {x_term} -> {weight_term}"
    return (
        launch_first(f"{op.name}.dx", of_x, [gy, weight], kernel=products.input_gradient),
        launch_first(f"{op.name}.dweight_ih", of_weight, [gy, x], kernel=products.weight_gradient),
    )


def _steps_backward(
    op: Operator,
    ghs: LogicalRegion | None,
    gh: LogicalRegion | None,
    gc: LogicalRegion | None,
    gcs: LogicalRegion | None,
    gactive: LogicalRegion | None,
    *,
    name: str,
    has_state: bool,
) -> tuple[LogicalRegion, ...]:
    assert gcs is None and gactive is None, "only the hidden states and the last state are public"
    (wide, weight_term, *rest), (narrow, last, *_) = terms(op)
    weight, *given = op.inputs[1:]
    bias_count = len(given) - 2 * has_state
    *_, cs, active = op.outputs
    flowing = [(term, g) for term, g in ((narrow, ghs), (last, gh), (last, gc)) if g is not None]
    state = rest[bias_count:]
    read = [
        *flowing,
        *zip(state[1:], given[bias_count + 1 :]),
        (narrow, cs),
        (wide, active),
        (weight_term, weight),
    ]
    patterns, regions = zip(*read, strict=True)
    has = ghs is not None, gh is not None, gc is not None
    ggates, *gstate = launch_all(
        f"{op.name}.dx",
        f"{', '.join(patterns)} -> {', '.join([wide, *state])}",
        regions,
        kernel=_steps_gradient.bind(has=has, has_state=has_state),
        flops=2 + 20 / op.extents["h"],
    )
    return ggates, *_parameter_gradients(op, ggates, name, given[bias_count:], bias_count), *gstate


def _parameter_gradients(
    op: Operator, ggates: LogicalRegion, name: str, state: Sequence[LogicalRegion], bias_count: int
) -> list[LogicalRegion]:
    """Of the weight, and of the biases, which share one."""
    b, s, *_ = terms(op)[0][0].split()
    before = [(f"{b} 1 m", state[0])] if state else []
    patterns, regions = zip(
        (f"{b} {s} g h", ggates), (f"{b} {s} m", op.outputs[0]), *before, strict=True
    )
    pattern = f"{', '.join(patterns)} -> g h m"
    gradients = [
        launch_first(f"{name}.dweight_hh", pattern, regions, kernel=_state_weight_gradient)
    ]
    if bias_count:
        pattern = f"{b} {s} g h -> g h"
        gbias = launch_first(
            f"{name}.dbias", pattern, [ggates], kernel=products.bias_gradient, flops=1
        )
        gradients += [gbias] * bias_count
    return gradients


# -- kernels: gates are (batch, steps, 4, hidden) in the order i, f, g, o; states lack the 4 ---------------------------

_GATES, _SLOPES = "i f g o", "gi gf gg go"


@partial(Kernel, is_compiled=True, is_captured=True)
def _steps(ctx: Context, inputs: Array, weight: Array, *rest: Array, has_state: bool) -> None:
    """Step by step: the cell of inputs + W h + biases. On a CPU the product is added to the biases, in its cache."""
    *given, hs, last_h, last_c, cs, active = rest
    biases, state = (given[:-2], given[-2:]) if has_state else (given, [])
    samples, count, gates, hidden = inputs.shape
    narrow = samples, 1, hidden
    h, c = (
        (contiguous(ctx, k, a) for k, a in enumerate(state))
        if state
        else [zeros(ctx, "c", narrow, cs.dtype)] * 2
    )
    works = [work_array(ctx, ("made", k), a) for k, a in enumerate((hs, cs, active))]
    made_h, made_c, made = works
    parts = made.reshape(samples, count * gates, hidden)
    by, read = (
        _Products(ctx, matrix(ctx, "weight", weight, 2)),
        contiguous(ctx, "inputs", inputs).reshape(parts.shape),
    )
    product, bias = (
        ctx.scratch("product", (samples, 1, gates * hidden), cs.dtype),
        _sum(ctx, biases, weight),
    )
    summands = [
        read,
        product.reshape(samples, gates, hidden),
        *([bias[None]] if ctx.is_cuda else []),
    ]
    start = 0 if ctx.is_cuda else bias.reshape(-1)
    ctx.xp.copyto(product, start)
    one = lstm_program(len(summands)).passes[0]
    names = [" ".join(f"{gate}{k}" for gate in _GATES.split()) for k in range(len(summands))]
    for t in range(count):
        if t or has_state:
            by.product(*((made_h, t - 1) if t else (h, 0)), product, start)
        named = {
            name: (a, gates * t if a is read else 0)
            for name, a in zip(names, summands, strict=True)
        }
        named |= {"c": (made_c, t - 1) if t else (c, 0), "new_h": (made_h, t), "new_c": (made_c, t)}
        run_parts(ctx, one, named | {_GATES: (parts, gates * t)})
    for work, a in zip(works, (hs, cs, active), strict=True):
        deliver(ctx, work, a)
    ctx.xp.copyto(last_h, made_h[:, -1:])
    ctx.xp.copyto(last_c, made_c[:, -1:])


@partial(Kernel, is_compiled=True, is_captured=True)
def _steps_gradient(
    ctx: Context, *args: Array, has: tuple[bool, bool, bool], has_state: bool
) -> None:
    """The gradients of all gates, and of the first state if there is one.

    Args:
        ctx: the context.
        args: the gradients that flow, of the hidden states, of the last h and of the last c; the first c if there is a
            first state; cs, active and the weight; then the results.
        has: which of the three gradients there are.
        has_state: whether there is a first state.
    """
    given, rest = list(args[: sum(has)]), args[sum(has) :]
    hidden_gradient, last_h, last_c = (given.pop(0) if there else None for there in has)
    first_c, rest = (rest[0], rest[1:]) if has_state else (None, rest)
    cs, active, weight, ggates, *gstate = rest
    samples, count, hidden = cs.shape
    shape = samples, count * 4, hidden
    gh, gc = (ctx.scratch(key, (samples, 1, hidden), cs.dtype) for key in ("gh", "gc"))
    for target, last in ((gh, last_h), (gc, last_c)):
        ctx.xp.copyto(target, 0 if last is None else last)
    c = zeros(ctx, "c", gh.shape, gh.dtype) if first_c is None else contiguous(ctx, "c", first_c)
    by, work = _Products(ctx, matrix(ctx, "weight", weight, 2).T), work_array(ctx, "ggates", ggates)
    cs, active = contiguous(ctx, "cs", cs), contiguous(ctx, "active", active).reshape(shape)
    above = {} if hidden_gradient is None else {"above": contiguous(ctx, "above", hidden_gradient)}
    one = lstm_gradient([*above, "gh"], "gc").passes[0]
    for t in reversed(range(count)):
        named = {name: (a, t) for name, a in above.items()} | {
            "gh": (gh, 0),
            "gc": (gc, 0),
            "new_c": (cs, t),
        }
        named |= {
            "c": (cs, t - 1) if t else (c, 0),
            _GATES: (active, 4 * t),
            _SLOPES: (work.reshape(shape), 4 * t),
        }
        run_parts(ctx, one, named)
        if t or has_state:
            by.product(work.reshape(samples, count, 4 * hidden), t, gh)
    deliver(ctx, work, ggates)
    for target, made in zip(gstate, (gh, gc)):
        ctx.xp.copyto(target, made)


class _Products:
    """Products with a weight (columns, depth), which a CPU packs once."""

    def __init__(self, ctx: Context, weight: Array) -> None:
        self._ctx, self._weight = ctx, weight
        if not ctx.is_cuda:
            from ops.cpu import panels

            columns, depth = weight.shape
            packed = ctx.scratch(
                "packed", panels.packed_shape(columns, depth, weight.dtype), weight.dtype
            )
            self._packed, self._edge = (
                packed,
                ctx.scratch("edge", panels.edge_shape(weight.dtype), weight.dtype),
            )
            ctx.call(panels.pack, weight, packed)

    def product(self, a: Array, step: int, target: Array, start: Array | int = 0) -> None:
        """`target`, (rows, 1, columns), becomes a[:, step] weightᵀ; on a CPU with `start` added."""
        if self._ctx.is_cuda:
            self._ctx.xp.matmul(a[:, step], self._weight.T, out=target[:, 0])
            return
        from ops.cpu import panels

        read = a.view()
        read.flags.writeable = False  # one variant is compiled
        self._ctx.xp.copyto(target, start)
        self._ctx.call(panels.add_step, read, step, self._packed, target, self._edge)


def _sum(ctx: Context, biases: Sequence[Array], weight: Array) -> Array:
    """The sum of the biases, (4, hidden); zeros without any."""
    total = ctx.scratch("bias", weight.shape[:2], weight.dtype)
    ctx.xp.copyto(total, biases[0] if biases else 0)
    for bias in biases[1:]:
        ctx.xp.add(total, bias, out=total)
    return total


@partial(Kernel, is_captured=True)
def _state_weight_gradient(ctx: Context, ggates: Array, hs: Array, *rest: Array) -> None:
    """The sum over samples and steps of ggatesᵀ h, with the state before each step: as one product."""
    *first_h, gweight = rest
    before = ctx.scratch("before", hs.shape, hs.dtype)
    ctx.xp.copyto(before[:, 1:], hs[:, :-1])
    ctx.xp.copyto(before[:, :1], first_h[0] if first_h else 0)
    with result_matrix(ctx, "gweight", gweight) as flat:
        ctx.xp.matmul(matrix(ctx, "ggates", ggates, 2).T, matrix(ctx, "before", before), out=flat)
