"""Cases of what came under torch's names: weights of classes, adding by index, order, columns. See `cases`."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import ops
from taskflow import LogicalRegion

from .cases import Array, Values, case, softmax, spread

# -- losses of classes -------------------------------------------------------------------------------------------------

SCORES = {"y": (3, 4, 5), "t": (3, 4)}
WEIGHTED = {**SCORES, "i": (5,)}


def level(v: Values) -> Array:
    return np.log(softmax(v["y"]))


def rows(v: Values, smoothing: float = 0.0, ignored: int | None = None) -> tuple[Array, Array]:
    """The loss and the weight of each row."""
    weight = v["i"] + 0.5 if "i" in v else np.ones(5)
    logs = level(v) * weight
    right = np.take_along_axis(logs, v["t"][..., None], -1)[..., 0]
    loss = -(1 - smoothing) * right - smoothing * logs.mean(-1)
    counts = np.ones(loss.shape) if ignored is None else v["t"] != ignored
    return loss * counts, weight[v["t"]] * counts


def mean(v: Values, **options: Any) -> Array:
    loss, weight = rows(v, **options)
    return np.asarray(loss.sum() / weight.sum())


def weights(i: LogicalRegion) -> LogicalRegion:
    return ops.add(ops.cast(i, "float64", name="shifted"), 0.5, name="shifted")


for name, options in {
    "": {},
    ", smoothed": {"smoothing": 0.3},
    ", some ignored": {"smoothing": 0.1, "ignored": 2},
}.items():
    given = {"label_smoothing": options.get("smoothing", 0.0), "ignore_index": options.get("ignored")}
    case(
        f"cross_entropy of weights{name}",
        lambda y, t, i, given=given: ops.cross_entropy(y, t, weight=weights(i), **given),
        lambda v, options=options: mean(v, **options),
        WEIGHTED,
        ["t", "i"],
        high=5,
    )
case(
    "cross_entropy of weights, of each row",
    lambda y, t, i: ops.cross_entropy(y, t, 1, 0.2, weight=weights(i), reduction="none"),
    lambda v: rows(v, 0.2, 1)[0],
    WEIGHTED,
    ["t", "i"],
    high=5,
)
case(
    "cross_entropy of few classes",
    lambda y, t: ops.cross_entropy(y, t, label_smoothing=0.1, classes=5),
    lambda v: mean({**v, "y": v["y"][..., :5]}, smoothing=0.1),
    {"y": (3, 4, 7), "t": (3, 4)},
    ["t"],
    high=5,
)
for name, smoothing in (("", 0.0), (", smoothed", 0.2)):

    def smoothed(v: Values, smoothing: float = smoothing) -> Array:
        return -(((1 - smoothing) * v["p"] + smoothing / 5) * level(v)).sum(-1)

    def of_probabilities(
        y: LogicalRegion, p: LogicalRegion, smoothing: float = smoothing, reduction: str = "mean"
    ) -> LogicalRegion:
        return ops.cross_entropy(y, p, label_smoothing=smoothing, reduction=reduction)

    each = {"y": (3, 4, 5), "p": (3, 4, 5)}
    case(f"cross_entropy of probabilities{name}", of_probabilities, lambda v, f=smoothed: f(v).mean(), each)
    case(
        f"cross_entropy of probabilities of each row{name}",
        lambda y, p, f=of_probabilities: f(y, p, reduction="none"),
        smoothed,
        each,
    )
case(
    "cross_entropy of probabilities of weights",
    lambda y, p, i: ops.cross_entropy(y, p, weight=weights(i)),
    lambda v: -(v["p"] * level(v) * (v["i"] + 0.5)).sum(-1).mean(),
    {"y": (3, 5), "p": (3, 5), "i": (5,)},
    ["i"],
)
for name, ignored, reduction in (("", None, "mean"), (", some ignored", 2, "mean"), (" of each row", 1, "none")):

    def nll(y: LogicalRegion, t: LogicalRegion, i: LogicalRegion | None = None, k: Any = (ignored, reduction)) -> Any:
        logs = ops.log_softmax(y, name="positive")
        return ops.nll_loss(logs, t, k[0], reduction=k[1], weight=None if i is None else weights(i))

    def picked(v: Values, k: Any = (ignored, reduction)) -> Array:
        return mean(v, ignored=k[0]) if k[1] == "mean" else rows(v, ignored=k[0])[0]

    case(f"nll_loss{name}", nll, picked, SCORES, ["t"], high=5)
    case(f"nll_loss of weights{name}", nll, picked, WEIGHTED, ["t", "i"], high=5)


# -- by index ----------------------------------------------------------------------------------------------------------

case(
    "one_hot",
    lambda t: ops.one_hot(t, 5, dtype="float64"),
    lambda v: np.eye(5)[v["t"]],
    {"t": (5, 3)},
    ["t"],
    high=5,
    is_differentiable=False,
)
for dim, shape in ((0, (7, 5, 2)), (1, (4, 3, 2)), (-1, (4, 5, 3))):

    def added(v: Values, dim: int = dim) -> Array:
        y = v["x"].copy()
        for at in np.ndindex(v["s"].shape):
            to = list(at)
            to[dim] = v["i"][at] if v["i"].ndim > 1 else v["i"][at[dim]]
            y[tuple(to)] += v["s"][at] * (1 if v["i"].ndim > 1 else 0.5)
        return y

    def scattered(x: LogicalRegion, i: LogicalRegion, s: LogicalRegion, dim: int = dim) -> LogicalRegion:
        return ops.scatter_add(x, dim, i, s)

    def indexed(x: LogicalRegion, i: LogicalRegion, s: LogicalRegion, dim: int = dim) -> LogicalRegion:
        return ops.index_add(x, dim, i, s, 0.5)

    x_shape = [4 if k == dim % 3 else n for k, n in enumerate(shape)]
    case(f"scatter_add of dim {dim}", scattered, added, {"x": x_shape, "i": shape, "s": shape}, ["i"], high=4)
    case(f"index_add of dim {dim}", indexed, added, {"x": x_shape, "i": [shape[dim]], "s": shape}, ["i"], high=4)

# -- order -------------------------------------------------------------------------------------------------------------

case("sort", lambda x: ops.sort(x)[0], lambda v: np.sort(v["x"]), {"x": (5, 7)})
case("sort of dim 0", lambda x: ops.sort(x, 0, True)[0], lambda v: -np.sort(-v["x"], 0), {"x": (5, 3, 2)})
case(
    "argsort",
    lambda x: ops.cast(ops.argsort(ops.floor(x, name="positive"), descending=True), "float64"),
    lambda v: np.argsort(-np.floor(v["x"]), kind="stable"),
    {"x": (5, 7)},
    is_differentiable=False,
)

# -- columns -----------------------------------------------------------------------------------------------------------

for name, kernel, stride, padding, dilation in (
    ("", (3, 3), (1, 1), (0, 0), (1, 1)),
    (" with stride and padding", (2, 3), (2, 1), (1, 2), (1, 1)),
    (" with gaps", (2, 2), (3, 2), (0, 1), (2, 1)),
):
    args = kernel, dilation, padding, stride

    def columns(v: Values, args: Sequence[Any] = args) -> Array:
        size, gaps, edge, step = args
        found = spread(v["x"], step, edge, gaps, size)
        n, c, h, w, i, j = found.shape
        return found.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * i * j, h * w)

    def images(v: Values, args: Sequence[Any] = args) -> Array:
        size, gaps, edge, step = args
        y = np.zeros((2, 3, 7 + 2 * edge[0], 6 + 2 * edge[1]))
        counts = [(n - gaps[k] * (size[k] - 1) - 1) // step[k] + 1 for k, n in enumerate(y.shape[2:])]
        read = v["x"].reshape(2, 3, *size, *counts)
        for i, j, h, w in itertools.product(*map(range, (*size, *counts))):
            y[:, :, h * step[0] + i * gaps[0], w * step[1] + j * gaps[1]] += read[:, :, i, j, h, w]
        return y[:, :, edge[0] : edge[0] + 7, edge[1] : edge[1] + 6]

    case(f"unfold{name}", lambda x, args=args: ops.unfold(x, *args), columns, {"x": (2, 3, 7, 6)})
    shape = columns({"x": np.zeros((2, 3, 7, 6))}).shape
    case(f"fold{name}", lambda x, args=args: ops.fold(x, (7, 6), *args), images, {"x": shape})
