"""Cases of what combines the points of an axis: maxima, normalizations, softmax in parts. See `cases`."""

from typing import Any

import numpy as np

import ops
from taskflow import LogicalRegion

from .cases import Array, Values, case, layer_norm, sigmoid, softmax

# -- maxima ------------------------------------------------------------------------------------------------------------

case("max", ops.max, lambda v: v["x"].max(), {"x": (5, 3)})
case("max of dim 1", lambda x: ops.max(x, 1), lambda v: v["x"].max(1), {"x": (3, 5, 2)})
case(
    "min that keeps dims",
    lambda x: ops.min(x, (0, -1), True),
    lambda v: v["x"].min((0, 2), keepdims=True),
    {"x": (3, 5, 2)},
)
case("min", ops.min, lambda v: v["x"].min(), {"x": (7,)})
case("global_max_pool2d", ops.global_max_pool2d, lambda v: v["x"].max((2, 3)), {"x": (3, 2, 5, 3)})
for k, dim in enumerate((-1, 0, 1)):

    def at_maximum(x: LogicalRegion, dim: int = dim, keepdim: bool = bool(k % 2)) -> LogicalRegion:
        return ops.argmax(ops.concat([x, x], 1), dim, keepdim)

    def expected(v: Values, dim: int = dim, keepdim: bool = bool(k % 2)) -> Array:
        return np.concatenate([v["x"], v["x"]], 1).argmax(dim, keepdims=keepdim)

    case(f"argmax of dim {dim}", at_maximum, expected, {"x": (5, 4, 3)}, is_differentiable=False)
for largest in (True, False):

    def ordered(v: Values, sign: int = -1 if largest else 1) -> Array:
        return sign * np.sort(sign * v["x"], 1)[:, :3]

    name = "topk" if largest else "topk, smallest"
    case(name, lambda x, largest=largest: ops.topk(x, 3, 1, largest)[0], ordered, {"x": (5, 4, 2)})
case(
    "topk, indices",
    lambda x: ops.topk(x, 4)[1],
    lambda v: np.argsort(-v["x"], -1)[:, :4],
    {"x": (5, 7)},
    is_differentiable=False,
)


# -- normalizations ----------------------------------------------------------------------------------------------------


def rms_norm(v: Values) -> Array:
    return v["x"] / np.sqrt((v["x"] ** 2).mean(-1, keepdims=True) + 1e-3) * v["rms_norm.weight"]


def group_norm(v: Values, groups: int) -> Array:
    x = v["x"].reshape(v["x"].shape[0], groups, -1)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    each = (slice(None), *(None,) * (v["x"].ndim - 2))
    return x.reshape(v["x"].shape) * v["group_norm.weight"][each] + v["group_norm.bias"][each]


case("rms_norm", lambda x: ops.rms_norm(x, 1e-3), rms_norm, {"x": (5, 7)})
case("rms_norm of rank 3", lambda x: ops.rms_norm(x, 1e-3), rms_norm, {"x": (3, 2, 5)})
case("rms_norm of rank 1", lambda x: ops.rms_norm(x, 1e-3), rms_norm, {"x": (5,)})
case(
    "layer_norm, composed",
    lambda x: ops.layer_norm(x, 1e-3, composed=True),
    layer_norm,
    {"x": (5, 7)},
)
case("group_norm", lambda x: ops.group_norm(x, 3), lambda v: group_norm(v, 3), {"x": (2, 6, 3, 2)})
case(
    "group_norm of one group",
    lambda x: ops.group_norm(x, 1),
    lambda v: group_norm(v, 1),
    {"x": (3, 5)},
)
case(
    "group_norm of channels",
    lambda x: ops.group_norm(x, 5),
    lambda v: group_norm(v, 5),
    {"x": (2, 5, 4)},
)


# -- softmax -----------------------------------------------------------------------------------------------------------


def log_of(x: Array, *args: Any) -> Array:
    return np.log(softmax(x, *args))


case(
    "softmax, composed",
    lambda x: ops.softmax(x, composed=True),
    lambda v: softmax(v["x"]),
    {"x": (5, 7)},
)
case(
    "softmax of dim 1, composed",
    lambda x: ops.softmax(x, 1, composed=True),
    lambda v: softmax(v["x"], 1),
    {"x": (2, 5, 3)},
)
case("log_softmax", ops.log_softmax, lambda v: log_of(v["x"]), {"x": (5, 7)})
case(
    "log_softmax of dim 0",
    lambda x: ops.log_softmax(x, 0),
    lambda v: log_of(v["x"], 0),
    {"x": (5, 3)},
)
case("log_softmax of one row", ops.log_softmax, lambda v: log_of(v["x"]), {"x": (7,)})


# -- losses ------------------------------------------------------------------------------------------------------------


def cross_entropies(v: Values, ignored: int = -1, smoothing: float = 0.0) -> Array:
    """Of each row; zero where it is ignored."""
    each = -log_of(v["y"])
    right = np.take_along_axis(each, v["t"][..., None].astype(int), -1)[..., 0]
    return ((1 - smoothing) * right + smoothing * each.mean(-1)) * (v["t"] != ignored)


SCORES = {"y": (5, 7, 5), "t": (5, 7)}

case("cross_entropy", ops.cross_entropy, lambda v: cross_entropies(v).mean(), SCORES, ["t"], high=5)
case(
    "cross_entropy, smoothed",
    lambda y, t: ops.cross_entropy(y, t, label_smoothing=0.3, reduction="sum"),
    lambda v: cross_entropies(v, smoothing=0.3).sum(),
    SCORES,
    ["t"],
    high=5,
)
case(
    "cross_entropy, some ignored",
    lambda y, t: ops.cross_entropy(y, t, ignore_index=1, label_smoothing=0.1),
    lambda v: cross_entropies(v, 1, 0.1).sum() / (v["t"] != 1).sum(),
    {"y": (7, 4), "t": (7,)},
    ["t"],
    high=4,
)
case(
    "cross_entropy of each row",
    lambda y, t: ops.cross_entropy(y, t, ignore_index=2, reduction="none"),
    lambda v: cross_entropies(v, 2),
    {"y": (7, 4), "t": (7,)},
    ["t"],
    high=4,
)
case(
    "cross_entropy of one row",
    ops.cross_entropy,
    lambda v: cross_entropies(v),
    {"y": (5,), "t": ()},
    ["t"],
)

PAIR = {"x": (5, 7), "y": (5, 7)}


def huber(v: Values, delta: float) -> Array:
    d = np.abs(v["x"] - v["y"])
    return np.where(d <= delta, d**2 / 2, delta * (d - delta / 2)).mean()


def entropy(p: Array, t: Array) -> Array:
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


case("mse_loss", ops.mse_loss, lambda v: ((v["x"] - v["y"]) ** 2).mean(), PAIR)
case(
    "mse_loss of each",
    lambda x, y: ops.mse_loss(x, y, reduction="none"),
    lambda v: (v["x"] - v["y"]) ** 2,
    PAIR,
)
case("l1_loss", ops.l1_loss, lambda v: np.abs(v["x"] - v["y"]).mean(), PAIR)


def smooth(v: Values, beta: float) -> Array:
    d = np.abs(v["x"] - v["y"])
    return np.where(d < beta, d**2 / 2 / max(beta, 1e-9), d - beta / 2)


case("smooth_l1_loss", ops.smooth_l1_loss, lambda v: smooth(v, 1.0).mean(), PAIR)
case(
    "smooth_l1_loss of beta",
    lambda x, y: ops.smooth_l1_loss(x, y, 0.4, reduction="none"),
    lambda v: smooth(v, 0.4),
    PAIR,
)
case(
    "smooth_l1_loss of 0",
    lambda x, y: ops.smooth_l1_loss(x, y, 0, reduction="sum"),
    lambda v: smooth(v, 0).sum(),
    PAIR,
)
for reduction, reduce in (
    ("mean", np.mean),
    ("batchmean", lambda d: d.sum() / len(d)),
    ("none", np.array),
):

    def divergence(x: LogicalRegion, y: LogicalRegion, reduction: str = reduction) -> LogicalRegion:
        return ops.kl_div(x, ops.exp(y, name="positive"), reduction=reduction)

    def divergence_of_log(
        x: LogicalRegion, y: LogicalRegion, reduction: str = reduction
    ) -> LogicalRegion:
        return ops.kl_div(x, y, reduction=reduction, log_target=True)

    for suffix, build in (("", divergence), (" of logarithms", divergence_of_log)):
        case(
            f"kl_div{suffix}, {reduction}",
            build,
            lambda v, reduce=reduce: reduce(np.exp(v["y"]) * (v["y"] - v["x"])),
            PAIR,
        )
case("huber_loss", lambda x, y: ops.huber_loss(x, y, 0.7), lambda v: huber(v, 0.7), PAIR)
case(
    "binary_cross_entropy_with_logits",
    lambda x, y: ops.binary_cross_entropy_with_logits(x, y, reduction="sum"),
    lambda v: entropy(sigmoid(v["x"]), v["y"]).sum(),
    PAIR,
)
case(
    "binary_cross_entropy",
    lambda x, y: ops.binary_cross_entropy(ops.sigmoid(x), y),
    lambda v: entropy(sigmoid(v["x"]), v["y"]).mean(),
    PAIR,
)
TRIPLE = {**PAIR, "w": (5, 1)}


def binary(v: Values, positive: Array | float = 1.0) -> Array:
    p, t = sigmoid(v["x"]), v["y"]
    return -positive * t * np.log(p) - (1 - t) * np.log(1 - p)


case(
    "binary_cross_entropy_with_logits, weighted",
    lambda x, y, w: ops.binary_cross_entropy_with_logits(x, y, weight=w),
    lambda v: (binary(v) * v["w"]).mean(),
    TRIPLE,
)
case(
    "binary_cross_entropy_with_logits of positives",
    lambda x, y, w: ops.binary_cross_entropy_with_logits(x, y, pos_weight=w, reduction="sum"),
    lambda v: binary(v, v["w"]).sum(),
    TRIPLE,
)
case(
    "binary_cross_entropy_with_logits of both",
    lambda x, y, w: ops.binary_cross_entropy_with_logits(
        x, y, weight=w, pos_weight=w, reduction="none"
    ),
    lambda v: binary(v, v["w"]) * v["w"],
    TRIPLE,
)
case(
    "binary_cross_entropy, weighted",
    lambda x, y, w: ops.binary_cross_entropy(ops.sigmoid(x, name="positive"), y, weight=w),
    lambda v: (binary(v) * v["w"]).mean(),
    TRIPLE,
)
case(
    "root_mean_squared_error",
    ops.root_mean_squared_error,
    lambda v: np.sqrt(((v["x"] - v["y"]) ** 2).mean()),
    PAIR,
)
case("perplexity", ops.perplexity, lambda v: np.exp(v["x"]), {"x": ()})


# -- metrics -----------------------------------------------------------------------------------------------------------


def top_k(v: Values, k: int) -> Array:
    best = np.argsort(-v["y"], -1, kind="stable")[..., :k]
    return (best == v["t"][..., None]).any(-1).mean()


case(
    "accuracy",
    ops.accuracy,
    lambda v: top_k(v, 1),
    {"y": (7, 4), "t": (7,)},
    ["t"],
    is_differentiable=False,
    high=4,
)
case(
    "top_k_accuracy",
    lambda y, t: ops.top_k_accuracy(y, t, 2),
    lambda v: top_k(v, 2),
    {"y": (5, 3, 4), "t": (5, 3)},
    ["t"],
    is_differentiable=False,
    high=4,
)
