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
from ops.tiles import contiguous, deliver, matrix, read_only, result_matrix, work_array, zeros
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def lstm_fused(
    x: LogicalRegion, weights: RecurrentWeights, initial: State | None
) -> tuple[LogicalRegion, State]:
    """The hidden states, (batch, steps, hidden), and the last state, (batch, 1, hidden) each; `x` as they are."""
    has_state = initial is not None
    hs, h, c, *_ = launch_all(
        f"{weights.name}.steps",
        _pattern(x, weights, has_state),
        [_input_gates(x, weights), *weights.regions[1:], *(initial or ())],
        kernel=_steps.bind(has_state=has_state),
        backward=partial(_steps_backward, name=weights.name, has_state=has_state),
        flops=2 + 10 / weights.hidden_size,
    )
    weights.steps.append(f"{weights.name}.steps")
    return hs, (h, c)


def _pattern(x: LogicalRegion, weights: RecurrentWeights, has_state: bool) -> str:
    """The last two results serve the gradient."""
    b, s = distinct(x.axes[:2], ("g", "h", "i", "m"))
    wide = f"{b} ^{s} ^g ^h"
    narrow = f"{b} ^{s} ^h"
    last = f"{b} 1 ^h"
    read = [wide, "^g ^h ^m", *["^g ^h"] * (len(weights.regions) - 2)]
    if has_state:
        read += [f"{b} 1 ^m", last]
    return f"{', '.join(read)} -> {narrow}, {last}, {last}, {narrow}, {wide}"


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
    op: Operator, *gradients: LogicalRegion | None, name: str, has_state: bool
) -> tuple[LogicalRegion, ...]:
    assert gradients[3:] == (None, None), "only the hidden states and the last state are public"
    read = terms(op)[0]
    patterns, regions = zip(*_read_backward(op, gradients, has_state), strict=True)
    made = launch_all(
        f"{op.name}.dx",
        f"{', '.join(patterns)} -> {', '.join([read[0], *(read[-2:] if has_state else ())])}",
        regions,
        kernel=_steps_gradient.bind(
            has=tuple(g is not None for g in gradients[:3]), has_state=has_state
        ),
        flops=2 + 20 / op.extents["h"],
    )
    return made[0], *_parameter_gradients(op, made[0], name, has_state), *made[1:]


def _read_backward(
    op: Operator, gradients: Sequence[LogicalRegion | None], has_state: bool
) -> list[tuple[str, LogicalRegion]]:
    """What `_steps_gradient` reads, with its terms."""
    inputs, (narrow, last, *_) = terms(op)
    read = [(term, g) for term, g in zip((narrow, last, last), gradients) if g is not None]
    if has_state:
        read.append((inputs[-1], op.inputs[-1]))
    read += [(narrow, op.outputs[3]), (inputs[0], op.outputs[4])]
    return [*read, (inputs[1], op.inputs[1])]


def _parameter_gradients(
    op: Operator, ggates: LogicalRegion, name: str, has_state: bool
) -> list[LogicalRegion]:
    """Of the weight, and of the biases, which share one."""
    b, s, *_ = terms(op)[0][0].split()
    gweight = launch_first(
        f"{name}.dweight_hh",
        f"{b} {s} g h, {b} {s} m{f', {b} 1 m' if has_state else ''} -> g h m",
        [ggates, op.outputs[0], *(op.inputs[-2:-1] if has_state else ())],
        kernel=_state_weight_gradient,
    )
    biases = len(op.inputs) - 2 - 2 * has_state
    if not biases:
        return [gweight]
    gbias = launch_first(
        f"{name}.dbias",
        f"{b} {s} g h -> g h",
        [ggates],
        kernel=products.bias_gradient,
        flops=1,
    )
    return [gweight, *[gbias] * biases]


# -- kernels: gates are (batch, steps, 4, hidden) in the order i, f, g, o; states lack the 4 ---------------------------


@partial(Kernel, is_compiled=True, is_captured=True)
def _steps(ctx: Context, inputs: Array, weight: Array, *rest: Array, has_state: bool) -> None:
    """Step by step: the cell of inputs + W h + biases."""
    *given, hs, last_h, last_c, cs, active = rest
    biases, state = (given[:-2], given[-2:]) if has_state else (given, [])
    made = [work_array(ctx, ("made", k), a) for k, a in enumerate((hs, cs, active))]
    _go_forward(ctx, inputs, weight, biases, state, made)
    for work, a in zip(made, (hs, cs, active), strict=True):
        deliver(ctx, work, a)
    ctx.xp.copyto(last_h, made[0][:, -1:])
    ctx.xp.copyto(last_c, made[1][:, -1:])


def _go_forward(
    ctx: Context,
    inputs: Array,
    weight: Array,
    biases: Sequence[Array],
    state: Sequence[Array],
    made: Sequence[Array],
) -> None:
    """`made` are the hidden states, the c and the activated gates of all steps.

    On a CPU the product is added to the biases, in its cache.
    """
    hs, cs, active = made
    first_h, first_c = _first_state(ctx, state, cs)
    by = _Products(ctx, matrix(ctx, "weight", weight, 2))
    bias = _sum(ctx, biases, weight)
    product = ctx.scratch("product", (len(hs), 1, bias.size), cs.dtype)
    start = 0 if ctx.is_cuda else bias.reshape(-1)
    ctx.xp.copyto(product, start)
    read = _as_parts(contiguous(ctx, "inputs", inputs))
    once = [product.reshape(len(hs), *bias.shape), *([bias[None]] if ctx.is_cuda else [])]
    cell = lstm_program(1 + len(once)).passes[0]
    for t in range(hs.shape[1]):
        if t or state:
            by.product(*_before(hs, first_h, t), product, start)
        named = {_gates(k): (a, 0) for k, a in enumerate(once, 1)} | {_gates(0): (read, 4 * t)}
        named |= {"c": _before(cs, first_c, t), "new_c": (cs, t), "new_h": (hs, t)}
        run_parts(ctx, cell, named | {_gates(): (_as_parts(active), 4 * t)})


def _first_state(ctx: Context, state: Sequence[Array], cs: Array) -> Sequence[Array]:
    if state:
        return [contiguous(ctx, k, a) for k, a in enumerate(state)]
    return [zeros(ctx, "c", (len(cs), 1, cs.shape[2]), cs.dtype)] * 2


def _before(made: Array, first: Array, step: int) -> tuple[Array, int]:
    """Where the state before a step is."""
    return (made, step - 1) if step else (first, 0)


def _as_parts(a: Array) -> Array:
    """Gates (batch, steps, 4, hidden) as (batch, steps * 4, hidden)."""
    return a.reshape(len(a), -1, a.shape[-1])


def _gates(suffix: int | str = "", prefix: str = "") -> str:
    """The name that a program has for the gates of a step together."""
    return " ".join(f"{prefix}{gate}{suffix}" for gate in "ifgo")


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
    given = list(args[: sum(has)])
    rest = args[sum(has) :]
    above, *last = (given.pop(0) if there else None for there in has)
    state, (cs, active, weight, ggates, *gstate) = rest[:has_state], rest[has_state:]
    flowing = [ctx.scratch(key, (len(cs), 1, cs.shape[2]), cs.dtype) for key in ("gh", "gc")]
    for target, gradient in zip(flowing, last, strict=True):
        ctx.xp.copyto(target, 0 if gradient is None else gradient)
    work = work_array(ctx, "ggates", ggates)
    _go_back(ctx, above, state, (cs, active), weight, flowing, work)
    deliver(ctx, work, ggates)
    for target, made in zip(gstate, flowing):
        ctx.xp.copyto(target, made)


def _go_back(
    ctx: Context,
    above: Array | None,
    state: Sequence[Array],
    made: tuple[Array, Array],
    weight: Array,
    flowing: Sequence[Array],
    ggates: Array,
) -> None:
    """`flowing` are the gradients of h and c behind a step, at the end those of the first state."""
    cs = contiguous(ctx, "cs", made[0])
    active = _as_parts(contiguous(ctx, "active", made[1]))
    first_c, _ = _first_state(ctx, [*state, *state], cs)
    by = _Products(ctx, matrix(ctx, "weight", weight, 2).T)
    (gh, gc) = flowing
    slopes = _as_parts(ggates)
    read = {} if above is None else {"above": contiguous(ctx, "above", above)}
    cell = lstm_gradient([*read, "gh"], "gc").passes[0]
    for t in reversed(range(cs.shape[1])):
        named = {name: (a, t) for name, a in read.items()}
        named |= {"gh": (gh, 0), "gc": (gc, 0), "new_c": (cs, t), "c": _before(cs, first_c, t)}
        named |= {_gates(): (active, 4 * t), _gates(prefix="g"): (slopes, 4 * t)}
        run_parts(ctx, cell, named)
        if t or state:
            by.product(ggates.reshape(*cs.shape[:2], -1), t, gh)


class _Products:
    """Products with a weight (columns, depth), which a CPU packs once."""

    def __init__(self, ctx: Context, weight: Array) -> None:
        self._ctx = ctx
        self._weight = weight
        if not ctx.is_cuda:
            from ops.cpu import panels

            columns, depth = weight.shape
            packed = ctx.scratch(
                "packed", panels.packed_shape(columns, depth, weight.dtype), weight.dtype
            )
            ctx.call(panels.pack, weight, packed)
            edge = ctx.scratch("edge", panels.edge_shape(weight.dtype), weight.dtype)
            self._packed = packed
            self._edge = edge

    def product(self, a: Array, step: int, target: Array, start: Array | int = 0) -> None:
        """`target`, (rows, 1, columns), becomes a[:, step] weightᵀ; on a CPU with `start` added."""
        if self._ctx.is_cuda:
            self._ctx.xp.matmul(a[:, step], self._weight.T, out=target[:, 0])
            return
        from ops.cpu import panels

        self._ctx.xp.copyto(target, start)
        self._ctx.call(panels.add_step, read_only(a), step, self._packed, target, self._edge)


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
