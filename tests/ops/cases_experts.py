"""Cases of mixtures of experts and of the rotary embedding. See `cases`."""

from collections.abc import Sequence
from math import ceil

import numpy as np

import ops
from taskflow import LogicalRegion

from .cases import Array, Values, case, softmax
from .cases_elementwise import gelu

# -- routing, token by token -------------------------------------------------------------------------------------------


def choose(p: Array, k: int) -> Array:
    """The k likeliest experts, likeliest first."""
    return np.argsort(-p, axis=-1, kind="stable")[..., :k]


def place(choices: Array, experts: int, capacity: int | Sequence[int], groups: int) -> Array:
    """The slot of each choice: all first choices before any second one, within groups along dimension 0."""
    slots = np.empty(choices.shape, int)
    rooms = capacity if isinstance(capacity, Sequence) else [capacity] * experts
    firsts = np.cumsum([0, *rooms]) * groups
    for group, part in enumerate(np.split(np.arange(len(choices)), groups)):
        used = [0] * experts
        for j in range(choices.shape[-1]):
            for index in np.ndindex(len(part), *choices.shape[1:-1]):
                at = (part[index[0]], *index[1:], j)
                e = choices[at]
                slots[at] = firsts[e] + group * rooms[e] + used[e] if used[e] < rooms[e] else -1
                used[e] += 1
    return slots


def experts(
    v: Values,
    k: int,
    factor: float | Sequence[float] | None,
    groups: int,
    gated: bool = False,
    name: str = "experts",
) -> tuple[Array, Array, Array]:
    """Output, load-balance loss and number of dropped choices of a layer."""
    x, (count, _) = v["x"], v[f"{name}.gate.weight"].shape
    p = softmax(x @ v[f"{name}.gate.weight"].T)
    choices = choose(p, k)
    weights = np.take_along_axis(p, choices, -1)
    if k > 1:
        weights = weights / weights.sum(-1, keepdims=True)
    tokens = choices[..., 0].size
    factors = factor if isinstance(factor, Sequence) else [factor or count] * count
    rooms = [min(ceil(f * k * tokens / groups / count), tokens // groups) for f in factors]
    slots = place(choices, count, rooms, groups)
    y = np.zeros_like(x)
    for index in np.ndindex(slots.shape):
        if slots[index] >= 0:
            up, down = (
                {w: v[f"{name}.{part}.{w}"][choices[index]] for w in ("weight", "bias")}
                for part in UP_DOWN
            )
            h = gelu(up["weight"] @ x[index[:-1]] + up["bias"])
            if gated:
                more = {w: v[f"{name}.factor.{w}"][choices[index]] for w in ("weight", "bias")}
                h = h * (more["weight"] @ x[index[:-1]] + more["bias"])
            y[index[:-1]] += weights[index] * (down["weight"] @ h + down["bias"])
    load = np.bincount(choices.ravel(), minlength=count) / choices.size
    return y, count * (load * p.reshape(-1, count).mean(0)).sum(), (slots < 0).sum()


UP_DOWN = ("up", "down")


def layer(
    name: str,
    shape: Sequence[int],
    count: int,
    k: int,
    factor: float | Sequence[float] | None,
    groups: int = 1,
    gated: bool = False,
) -> None:
    """Both results of a layer in one region, so that both are checked with their gradients."""

    def build(x: LogicalRegion) -> LogicalRegion:
        y, balance = ops.mixture_of_experts(x, count, 3, k, factor, groups, gated=gated)
        return ops.add(y, balance)

    case(name, build, lambda v: np.add(*experts(v, k, factor, groups, gated)[:2]), {"x": shape})


layer("mixture_of_experts", (3, 2, 5), 3, 2, 1.0)
layer("mixture_of_experts in groups", (6, 2, 3), 3, 2, 1.0, groups=3)
layer("mixture_of_experts of one choice", (7, 3), 3, 1, 0.8)
layer("mixture_of_experts with room for all", (5, 2, 3), 2, 2, 9.0)
layer("mixture_of_experts, gated", (4, 2, 3), 2, 2, 1.0, gated=True)
layer("mixture_of_experts without capacity", (4, 2, 3), 3, 2, None, groups=2)
layer("mixture_of_experts of uneven rooms", (5, 2, 3), 3, 2, (0.3, 2.0, 1.0))


# -- parts -------------------------------------------------------------------------------------------------------------


def gate_reference(v: Values, k: int, normalize: bool) -> Array:
    weights = -np.sort(-softmax(v["x"]), axis=-1)[..., :k]
    return weights / weights.sum(-1, keepdims=True) if normalize else weights


for k, normalize in ((2, True), (1, False), (3, False)):

    def gate(x: LogicalRegion, k: int = k, normalize: bool = normalize) -> LogicalRegion:
        return ops.top_k_gate(ops.softmax(x), k, normalize)[0]

    case(
        f"top_k_gate of {k}{' normalized' * normalize}",
        gate,
        lambda v, k=k, n=normalize: gate_reference(v, k, n),
        {"x": (5, 2, 4)},
    )


def thin(x: Array) -> Array:
    """The two largest of a row of a softmax where they are no less than 0.3, or the largest."""
    p = softmax(x / 0.7)
    kept = -np.sort(-p, axis=-1)[..., :2]
    kept[..., 1][kept[..., 1] < 0.3] = 0
    return kept


case(
    "dense_to_sparse_gate",
    lambda x: ops.dense_to_sparse_gate(x, 2, lambda done: 0.7, 0.3, noisy=False)[0],
    lambda v: thin(v["x"]),
    {"x": (5, 7, 5)},
)
case(
    "top_k_gate of some, normalized",
    lambda x: ops.top_k_gate(ops.softmax(ops.divide(x, 0.7)), 2, threshold=0.3)[0],
    lambda v: thin(v["x"]) / thin(v["x"]).sum(-1, keepdims=True),
    {"x": (5, 2, 4)},
)
case("gumbel", lambda x: ops.gumbel(x), None, {"x": (5, 7, 5)})


def chosen(i: LogicalRegion) -> LogicalRegion:
    """Choices from -1 on."""
    return ops.cast(ops.subtract(ops.cast(i, "float32"), 1.0), "int32")


for groups in (1, 3):
    case(
        f"expert_rows in {groups} groups",
        lambda i, g=groups: ops.expert_rows(chosen(i), 3, g)[0],
        lambda v, g=groups: in_order(v["i"] - 1, g),
        {"i": (6, 2)},
        ["i"],
        high=4,
        is_differentiable=False,
    )


def in_order(choices: Array, groups: int) -> Array:
    """Rows by expert, first choices first; -2 for no choice."""
    rows = np.full(choices.shape, -2)
    for group, part in enumerate(np.split(choices, groups)):
        flat = part.T.ravel()
        order = np.argsort(flat, kind="stable")[(flat < 0).sum() :]
        made = np.full(flat.shape, -2)
        made[order] = np.arange(len(order)) + group * part.size
        rows[group * len(part) : (group + 1) * len(part)] = made.reshape(part.T.shape).T
    return rows


def slots_of(x: LogicalRegion, groups: int) -> LogicalRegion:
    return ops.expert_slots(ops.top_k_gate(x, 2)[1], 3, 2, groups)


for groups in (1, 2, 4):
    case(
        f"expert_slots in {groups} groups",
        lambda x, g=groups: slots_of(x, g),
        lambda v, g=groups: place(choose(v["x"], 2), 3, 2, g),
        {"x": (8, 3)},
        is_differentiable=False,
    )
    case(
        f"count_dropped in {groups} groups",
        lambda x, g=groups: ops.count_dropped(slots_of(x, g)),
        lambda v, g=groups: (place(choose(v["x"], 2), 3, 2, g) < 0).sum(),
        {"x": (8, 3)},
        is_differentiable=False,
    )
case(
    "expert_load",
    lambda i: ops.expert_load(i, 3, "float64"),
    lambda v: np.bincount(v["i"].ravel(), minlength=3) / v["i"].size,
    {"i": (5, 2)},
    ["i"],
    is_differentiable=False,
)
case(
    "expert_load of parts",
    lambda i: ops.expert_load(i, 3, "float64", parts=3),
    lambda v: np.stack(
        [np.bincount(part.ravel(), minlength=3) / part.size for part in np.split(v["i"], 3)]
    ),
    {"i": (6, 2)},
    ["i"],
    is_differentiable=False,
)


def balance(v: Values) -> Array:
    """Of three runs of tokens."""
    loads = [np.bincount(part.ravel(), minlength=4) / part.size for part in np.split(v["i"], 3)]
    return 4 * np.mean(
        [load @ part.mean((0, 1)) for load, part in zip(loads, np.split(v["x"], 3), strict=True)]
    )


case(
    "balance of parts",
    lambda x, i: ops.load_balance_loss(x, i, parts=3),
    balance,
    {"x": (6, 2, 4), "i": (6, 2, 1)},
    ["i"],
    high=4,
)
case(
    "expert_linear",
    lambda x: ops.expert_linear(x, 4),
    lambda v: (
        np.einsum("eci,eoi->eco", v["x"], v["expert_linear.weight"])
        + v["expert_linear.bias"][:, None]
    ),
    {"x": (3, 5, 2)},
)
case(
    "expert_linear without bias",
    lambda x: ops.expert_linear(x, 3, bias=False),
    lambda v: np.einsum("eci,eoi->eco", v["x"], v["expert_linear.weight"]),
    {"x": (2, 3, 5)},
)


# -- rotary embedding --------------------------------------------------------------------------------------------------


def rotary(x: Array, base: float, offset: int, interleaved: bool, scaled: bool = False) -> Array:
    """Multiplication of complex numbers; `scaled`: by `SCALING`."""
    half = x.shape[-1] // 2
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    angle = (offset + np.arange(x.shape[1]))[:, None] * base ** (-np.arange(half) / half)
    if scaled:
        angle *= [1.0, (0.45 + 0.55 / 4.0), 1 / 4.0]
    turned = (first + 1j * second) * np.exp(1j * angle).reshape(
        x.shape[1], *[1] * (x.ndim - 3), half
    )
    turned *= 1.5 if scaled else 1.0
    parts = turned.real, turned.imag
    return np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)


for interleaved in (False, True):
    for shape in ((2, 5, 3, 6), (3, 4, 2)):
        case(
            f"rotary_embedding of {shape}{' interleaved' * interleaved}",
            lambda x, i=interleaved: ops.rotary_embedding(x, 100.0, i, offset=3),
            lambda v, i=interleaved: rotary(v["x"], 100.0, 3, i),
            {"x": shape},
        )

# Of pairs 0, 1 and 2 of frequencies 1, 100^(-1/3) and less, with 0.45 of the second kept.
SCALING = ops.RotaryScaling(4.0, 0.45 - 100.0 ** (-1 / 3) + 0.6, 1.0, -0.6, 1.5)
case(
    "rotary_embedding, scaled",
    lambda x: ops.rotary_embedding(x, 100.0, offset=3, scaling=SCALING),
    lambda v: rotary(v["x"], 100.0, 3, False, scaled=True),
    {"x": (2, 5, 3, 6)},
)
