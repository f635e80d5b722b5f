"""A mixture of experts, composed of operators: gate, slots, dispatch, the experts' layers, combine.

Split over `e`, the experts' layers are expert parallel; over `c`, each device has all experts and some of the slots;
over `h` of the hidden layer, tensor parallel. Gate and routing follow the gate's configuration, slots and combine that
of the dispatch, the second layer that of the first, unless they are named themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import ceil, prod

from ops.building import check_number, check_positive, checked, launch_first, terms
from ops.dense.linear import linear
from ops.elementwise.activation import gelu
from ops.elementwise.arithmetic import multiply
from ops.initializers import Init, uniform
from ops.loss.softmax import softmax
from ops.moe.dispatch import combine, dispatch
from ops.moe.dropless import expert_rows, rows_linear
from ops.moe.gate import count_dropped, expert_slots, load_balance_loss, top_k_gate
from ops.reduce.reductions import sum
from taskflow import Array, Context, Graph, Kernel, LogicalRegion, Operator


def mixture_of_experts(
    x: LogicalRegion,
    num_experts: int,
    hidden_features: int,
    k: int = 2,
    capacity_factor: float | Sequence[float] | None = 1.25,
    groups: int = 1,
    bias: bool = True,
    activation: Callable[..., LogicalRegion] = gelu,
    name: str | None = None,
    *,
    parts: int = 1,
    gated: bool = False,
    gate: Callable[..., tuple[LogicalRegion, LogicalRegion, LogicalRegion]] | None = None,
) -> tuple[LogicalRegion, LogicalRegion]:
    """Experts of two layers each, of which every token gets `k` (GShard, Lepikhin et al., ICLR 2021; for k = 1 the
    Switch Transformer, Fedus, Zoph and Shazeer, JMLR 23, 2022).

    Each expert has room for capacity_factor * k / num_experts of the tokens of a group, rounded up. A choice over
    capacity adds nothing to its token, so that one without any is zero: a shortcut around the layer carries it on. How
    many there were is fetched at every step as `<name>.dropped`. Every token takes part, padding, too: it takes slots
    of experts and counts in their load. Where a batch has much of it, gather what is no padding first, or give room.

    Args:
        x: (tokens, ..., features), floating point.
        num_experts: how many there are.
        hidden_features: extent of their hidden layer.
        k: choices of a token. The weights of several add up to one; that of a single one is its probability.
        capacity_factor: room beyond an even load. Or one of each expert where routing is known to be uneven, of one
            group: then work and memory follow these rooms, and `taskflow.even_work` and searches cut experts by them.
            None: nothing is dropped, and an expert computes with its tokens alone; see `ops.moe.dropless`.
        groups: of tokens along dimension 0, each with a capacity of its own; see `expert_slots`. As many as devices,
            or a multiple, make expert parallelism an all-to-all.
        bias: whether the experts' layers have one.
        activation: between the layers, called as `activation(h, name=...)`.
        name: of the layer. Its parameters are `<name>.gate.weight` (num_experts, features), `<name>.up.weight`
            (num_experts, hidden_features, features), `<name>.down.weight` (num_experts, features, hidden_features), and
            `.bias` of the last two.
        parts: of dimension 0: the load-balance loss is the mean of those of so many equal runs of tokens. With as many
            `groups`, micro-batches do not wait for each other, and a pipeline may have them.
        gated: whether the activated layer is multiplied by one more of its shape, `<name>.factor` (SwiGLU, where the
            activation is `ops.silu`: Shazeer 2020, arXiv 2002.05202; Mixtral's experts).
        gate: instead of `top_k_gate` of a softmax, `gate(scores, name=...)` gives weights, choices (-1 for none) and
            the probabilities of the load-balance loss; `<name>.chosen` is fetched then, the mean number of choices of a
            token. Such as `partial(ops.dense_to_sparse_gate, k=4)`.

    Returns:
        y, of the shape of `x`, and the load-balance loss, a scalar that is 1 at its least for an even gate: add a
        hundredth of it to the loss.

    Raises:
        ValueError: the extents do not agree, or a dtype is wrong.
    """
    where = checked("mixture_of_experts", name or "experts", x, least=2)
    check_positive(
        where,
        num_experts=num_experts,
        hidden_features=hidden_features,
        k=k,
        groups=groups,
        parts=parts,
    )
    name = x.graph.unique_name(name or "experts", "gate")
    scores = linear(x, num_experts, bias=False, name=f"{name}.gate")
    with x.graph.following(scores.name):
        if gate is None:
            probabilities = softmax(scores, name=f"{name}.softmax")
            weights, choices = top_k_gate(probabilities, k, normalize=k > 1, name=f"{name}.top")
        else:
            weights, choices, probabilities = gate(scores, name=f"{name}.top")
    capacity = _capacity(
        where,
        prod(x.shape[:-1]) // groups,
        num_experts,
        choices.shape[-1],
        capacity_factor,
    )
    with x.graph.following(f"{name}.dispatch"):
        slots, layer, num_rows = _places(choices, num_experts, capacity, groups, name)
    x.graph.output(f"{name}.dropped", count_dropped(slots, f"{name}.dropped"))
    given = dispatch(
        x,
        slots,
        num_experts,
        capacity if isinstance(capacity, int) else None,
        groups,
        f"{name}.dispatch",
        num_rows=num_rows,
    )
    wide = partial(layer, given, hidden_features, bias, i="d", o="h")
    h = wide(f"{name}.up")
    with x.graph.following(f"{name}.up"):
        h = activation(h, name=f"{name}.act")
        if gated:
            h = multiply(h, wide(f"{name}.factor"), f"{name}.product")
        h = layer(h, x.shape[-1], bias, f"{name}.down", "h", "d")
    with x.graph.following(f"{name}.dispatch"):
        h = combine(h, slots, weights, groups, f"{name}.combine")
    balance = load_balance_loss(probabilities, choices, f"{name}.balance", parts=parts)
    if gate is not None:
        _fetch_chosen(x.graph, name, choices.shape[-1] / parts)
    return h, balance


def _fetch_chosen(graph: Graph, name: str, scale: float) -> None:
    """The mean number of choices of a token, of their load."""
    load = sum(graph.regions[f"{name}.balance.load"], name=f"{name}.load")
    graph.output(f"{name}.chosen", multiply(load, scale, f"{name}.chosen"))


def _capacity(
    where: str, tokens: int, experts: int, k: int, factor: float | Sequence[float] | None
) -> int | tuple[int, ...] | None:
    """Slots of an expert for a group of so many tokens; a token chooses an expert once at most."""
    if factor is None:
        return None
    if isinstance(factor, Sequence):
        if len(factor) != experts:
            raise ValueError(
                f"{where}: capacity_factor has {len(factor)} numbers, of {experts} experts"
            )
        return tuple(_room(where, tokens, experts, k, number) for number in factor)
    return _room(where, tokens, experts, k, factor)


def _room(where: str, tokens: int, experts: int, k: int, factor: float) -> int:
    check_number(where, "capacity_factor", factor, "a positive finite number")
    return min(ceil(factor * k * tokens / experts), tokens)


def _places(
    choices: LogicalRegion,
    experts: int,
    capacity: int | tuple[int, ...] | None,
    groups: int,
    name: str,
) -> tuple[LogicalRegion, Callable[..., LogicalRegion], int | None]:
    """Where choices go, what makes the experts' layers there, and how many rows there are without capacity."""
    if isinstance(capacity, int):
        return (
            expert_slots(choices, experts, capacity, groups, f"{name}.slots"),
            _expert_linear,
            None,
        )
    if capacity is None:
        slots, starts = expert_rows(choices, experts, groups, f"{name}.slots")
        return slots, partial(_expert_linear, starts=starts), None
    rooms = (0, *accumulate(capacity))
    starts = choices.graph.constant(f"{name}.starts", rooms, "int32")
    slots = expert_slots(choices, experts, starts, groups, f"{name}.slots")
    return slots, partial(_expert_linear, starts=starts, rooms=rooms), rooms[-1]


def expert_linear(
    x: LogicalRegion,
    out_features: int,
    bias: bool = True,
    name: str | None = None,
    *,
    weight_init: Init | None = None,
    bias_init: Init | None = None,
    starts: LogicalRegion | None = None,
) -> LogicalRegion:
    """y[e, c, o] = sum over i of x[e, c, i] weight[e, o, i] + bias[e, o]: a linear layer for every expert.

    Args:
        x: (experts, slots, in_features), or with `starts` (rows, in_features), floating point.
        out_features: extent of the last dimension of the result.
        bias: whether to add `<name>.bias` (experts, out_features).
        name: of the operator; its weight is `<name>.weight` (experts, out_features, in_features).
        weight_init, bias_init: first values; default those of `linear`, uniform in ±1/sqrt(in_features).
        starts: of `expert_rows`: which rows are whose.

    Returns:
        (experts, slots, out_features), or (rows, out_features).

    Raises:
        ValueError: `x` has not three dimensions, or is of another dtype, or `out_features` is not positive.
    """
    return _expert_linear(x, out_features, bias, name, "i", "o", weight_init, bias_init, starts)


def _expert_linear(
    x: LogicalRegion,
    extent: int,
    bias: bool,
    name: str | None,
    i: str,
    o: str,
    init: Init | None = None,
    bias_init: Init | None = None,
    starts: LogicalRegion | None = None,
    rooms: tuple[int, ...] | None = None,
) -> LogicalRegion:
    """The axes of features have names, so that the second of two layers continues a split of the first.

    `starts` of rows, and if they are `rooms`: see `dropless.rows_linear`.
    """
    where = checked("expert_linear", name, x, ndim=(2,) if starts else (3,))
    check_positive(where, out_features=extent)
    features = x.shape[-1]
    shape = starts.shape[-1] - 1 if starts else x.shape[0], extent
    name = x.graph.unique_name(name or "expert_linear")
    even = uniform(-(features**-0.5), features**-0.5)
    init = even if init is None else init
    weights = [x.graph.parameter(f"{name}.weight", (*shape, features), init, x.dtype)]
    if bias:
        init = even if bias_init is None else bias_init
        weights.append(x.graph.parameter(f"{name}.bias", shape, init, x.dtype))
    if starts:
        return rows_linear(name, x, weights, starts, (i, o), rooms)
    return launch_first(
        name,
        f"e c {i}, e {o} {i}{f', e {o}' if bias else ''} -> e c {o}",
        [x, *weights],
        kernel=_forward.bind(summed=i),
        backward=_linear_backward,
    )


def _linear_backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, ...]:
    (x_term, weight_term, *bias), (y_term,) = terms(op)
    of_x = f"{y_term}, {weight_term} -> {x_term}"
    of_weight = f"{y_term}, {x_term} -> {weight_term}"
    return (
        launch_first(f"{op.name}.dx", of_x, [gy, op.inputs[1]], kernel=_dx),
        launch_first(f"{op.name}.dweight", of_weight, [gy, op.inputs[0]], kernel=_dweight),
        *(
            launch_first(
                f"{op.name}.dbias",
                f"{y_term} -> {row}",
                [gy],
                kernel=_dbias,
                flops=1,
            )
            for row in bias
        ),
    )


@partial(Kernel, takes_mixed_on_cuda=True)
def _forward(ctx: Context, x: Array, weight: Array, *rest: Array, summed: str) -> None:
    *bias, y = rest
    ctx.xp.matmul(x, weight.transpose(0, 2, 1), out=y)
    if bias and ctx.interval(summed)[0] == 0:  # once among the partial sums
        ctx.xp.add(y, bias[0][:, None], out=y)


@partial(Kernel, takes_mixed_on_cuda=True)
def _dx(ctx: Context, gy: Array, weight: Array, gx: Array) -> None:
    ctx.xp.matmul(gy, weight, out=gx)


@partial(Kernel, takes_mixed_on_cuda=True)
def _dweight(ctx: Context, gy: Array, x: Array, gweight: Array) -> None:
    ctx.xp.matmul(gy.transpose(0, 2, 1), x, out=gweight)


def _dbias(ctx: Context, gy: Array, gbias: Array) -> None:
    ctx.xp.sum(gy, axis=1, out=gbias)
