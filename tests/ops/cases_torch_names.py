"""Cases of what came under torch's names: weights of classes, adding by index, order, columns. See `cases`."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import ops
from taskflow import LogicalRegion

from .cases import Array, Values, case, softmax, spread

case(
    "softplus, threshold",
    lambda x: ops.softplus(x, 2.0, threshold=0.5),
    lambda v: np.where(2 * v["x"] > 0.5, v["x"], np.log1p(np.exp(2 * v["x"])) / 2),
    {"x": (7,)},
)

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
    given = {
        "label_smoothing": options.get("smoothing", 0.0),
        "ignore_index": options.get("ignored"),
    }
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
for name, ignored, reduction in (
    ("", None, "mean"),
    (", some ignored", 1, "mean"),
    (" of each row", 1, "none"),
):
    case(
        f"linear_cross_entropy{name}",
        lambda x, w, t, i=ignored, r=reduction: ops.linear_cross_entropy(x, w, t, i, reduction=r),
        lambda v, i=ignored, r=reduction: (
            rows({**v, "y": v["x"] @ v["w"].T}, 0.0, i)[0]
            if r == "none"
            else mean({**v, "y": v["x"] @ v["w"].T}, ignored=i)
        ),
        {"x": (3, 4, 6), "w": (5, 6), "t": (3, 4)},
        ["t"],
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
    case(
        f"cross_entropy of probabilities{name}",
        of_probabilities,
        lambda v, f=smoothed: f(v).mean(),
        each,
    )
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
for name, ignored, reduction in (
    ("", None, "mean"),
    (", some ignored", 2, "mean"),
    (" of each row", 1, "none"),
):

    def nll(
        y: LogicalRegion,
        t: LogicalRegion,
        i: LogicalRegion | None = None,
        k: Any = (ignored, reduction),
    ) -> Any:
        logs = ops.log_softmax(y, name="positive")
        return ops.nll_loss(logs, t, k[0], reduction=k[1], weight=None if i is None else weights(i))

    def picked(v: Values, k: Any = (ignored, reduction)) -> Array:
        return mean(v, ignored=k[0]) if k[1] == "mean" else rows(v, ignored=k[0])[0]

    case(f"nll_loss{name}", nll, picked, SCORES, ["t"], high=5)
    case(f"nll_loss of weights{name}", nll, picked, WEIGHTED, ["t", "i"], high=5)


case(
    "softmax_cross_entropy, some ignored, smoothed",
    lambda y, t: ops.softmax_cross_entropy(y, t, classes=5, ignore_index=2, label_smoothing=0.1),
    lambda v: mean({**v, "y": v["y"][..., :5]}, smoothing=0.1, ignored=2),
    {"y": (3, 4, 7), "t": (3, 4)},
    ["t"],
    high=5,
)
case(
    "softmax_cross_entropy of weights of each row",
    lambda y, t, i: ops.softmax_cross_entropy(y, t, weight=weights(i), reduction="none"),
    lambda v: rows(v)[0],
    WEIGHTED,
    ["t", "i"],
    high=5,
)


def right(v: Values, k: int, ignored: int | None = None) -> Array:
    """The share of rows whose class is among the first `k` of five."""
    order = np.argsort(-v["y"][..., :5], axis=-1, kind="stable")[..., :k]
    is_right, counts = (order == v["t"][..., None]).any(-1), v["t"] != ignored
    return np.asarray(is_right[counts].mean())


for k, operator in (
    (1, ops.accuracy),
    (2, lambda y, t, **options: ops.top_k_accuracy(y, t, 2, **options)),
):
    for ignored in (None, 2):

        def fraction(
            y: LogicalRegion,
            t: LogicalRegion,
            operator: Any = operator,
            ignored: int | None = ignored,
        ) -> LogicalRegion:
            return operator(y, t, classes=5, ignore_index=ignored)

        case(
            f"{'accuracy' if k == 1 else 'top_k_accuracy'} of few classes{', some ignored' * (ignored is not None)}",
            fraction,
            lambda v, k=k, ignored=ignored: right(v, k, ignored),
            {"y": (3, 4, 7), "t": (3, 4)},
            ["t"],
            high=5,
            is_differentiable=False,
        )


# -- attention and softmax of what is not seen -------------------------------------------------------------------------


def attended(v: Values, is_causal: bool = False) -> Array:
    """Keys are seen where `i` is not 0; a query that sees none gives zeros."""
    scores = np.einsum("bqkd,btkd->bkqt", v["q"], v["k"]) * 0.7
    seen = np.broadcast_to(v["i"] != 0, scores.shape)
    if is_causal:
        seen = seen & np.tri(*scores.shape[2:], dtype=bool)
    weights = np.exp(scores - scores.max(-1, keepdims=True)) * seen
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bkqt,btkd->bqkd", weights / np.where(total > 0, total, 1), v["v"])


SEEN = {"q": (2, 5, 3, 2), "k": (2, 4, 3, 2), "v": (2, 4, 3, 2)}
for name, shape, is_causal in (
    (" of a mask", (2, 1, 5, 4), False),
    (" of a mask of keys", (2, 1, 1, 4), False),
    (" of a mask, causal", (5, 4), True),
):

    def attend(
        q: LogicalRegion,
        k: LogicalRegion,
        v: LogicalRegion,
        i: LogicalRegion,
        is_causal: bool = is_causal,
    ) -> LogicalRegion:
        mask = ops.not_equal(i, 0, name="positive")
        return ops.scaled_dot_product_attention(q, k, v, is_causal, mask=mask, scale=0.7)

    case(
        f"scaled_dot_product_attention{name}",
        attend,
        lambda v, is_causal=is_causal: attended(v, is_causal),
        {**SEEN, "i": shape},
        ["i"],
        high=2,
    )
for composed in (False, True):

    def seen(x: LogicalRegion, i: LogicalRegion, composed: bool = composed) -> LogicalRegion:
        hidden = ops.where(ops.not_equal(i, 0, name="positive"), x, -np.inf, name="shifted")
        return ops.softmax(hidden, composed=composed, zero_rows=True)

    case(
        f"softmax of rows without numbers{', composed' * composed}",
        seen,
        lambda v: (
            np.exp(v["x"])
            * v["i"]
            / np.maximum((np.exp(v["x"]) * v["i"]).sum(-1, keepdims=True), 1e-300)
        ),
        {"x": (7, 3), "i": (7, 3)},
        ["i"],
        high=2,
    )

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

    def scattered(
        x: LogicalRegion, i: LogicalRegion, s: LogicalRegion, dim: int = dim
    ) -> LogicalRegion:
        return ops.scatter_add(x, dim, i, s)

    def indexed(
        x: LogicalRegion, i: LogicalRegion, s: LogicalRegion, dim: int = dim
    ) -> LogicalRegion:
        return ops.index_add(x, dim, i, s, 0.5)

    x_shape = [4 if k == dim % 3 else n for k, n in enumerate(shape)]
    case(
        f"scatter_add of dim {dim}",
        scattered,
        added,
        {"x": x_shape, "i": shape, "s": shape},
        ["i"],
        high=4,
    )
    case(
        f"index_add of dim {dim}",
        indexed,
        added,
        {"x": x_shape, "i": [shape[dim]], "s": shape},
        ["i"],
        high=4,
    )

# -- bags of some ------------------------------------------------------------------------------------------------------


def bag(v: Values, mode: str, row: int | None) -> Array:
    """Row by row; what is no word is not there."""
    weight, found = v["embedding_bag.weight"], np.zeros((len(v["i"]), 3))
    for k, own in enumerate(v["i"]):
        words = weight[own[own != row]]
        if len(words):
            found[k] = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode](words, axis=0)
    return found


for mode in ("sum", "mean", "max"):
    for row in (None, 0) if mode == "max" else (0,):

        def bagged(i: LogicalRegion, mode: str = mode, row: int | None = row) -> LogicalRegion:
            return ops.embedding_bag(i, 3, 3, mode=mode, dtype="float64", padding_idx=row)

        case(
            f"embedding_bag, {mode}{'' if row is None else ', some padding'}",
            bagged,
            lambda v, mode=mode, row=row: bag(v, mode, row),
            {"i": (9, 2)},
            ["i"],
        )

# -- order -------------------------------------------------------------------------------------------------------------

case("sort", lambda x: ops.sort(x)[0], lambda v: np.sort(v["x"]), {"x": (5, 7)})
case(
    "sort of dim 0",
    lambda x: ops.sort(x, 0, True)[0],
    lambda v: -np.sort(-v["x"], 0),
    {"x": (5, 3, 2)},
)
case(
    "argsort",
    lambda x: ops.cast(ops.argsort(ops.floor(x, name="positive"), descending=True), "float64"),
    lambda v: np.argsort(-np.floor(v["x"]), kind="stable"),
    {"x": (5, 7)},
    is_differentiable=False,
)

for keepdim in (False, True):
    case(
        f"argmin{', kept' * keepdim}",
        lambda x, keepdim=keepdim: ops.cast(ops.argmin(x, 1, keepdim), "float64"),
        lambda v, keepdim=keepdim: v["x"].argmin(1, keepdims=keepdim),
        {"x": (5, 3, 2)},
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
        counts = [
            (n - gaps[k] * (size[k] - 1) - 1) // step[k] + 1 for k, n in enumerate(y.shape[2:])
        ]
        read = v["x"].reshape(2, 3, *size, *counts)
        for i, j, h, w in itertools.product(*map(range, (*size, *counts))):
            y[:, :, h * step[0] + i * gaps[0], w * step[1] + j * gaps[1]] += read[:, :, i, j, h, w]
        return y[:, :, edge[0] : edge[0] + 7, edge[1] : edge[1] + 6]

    case(f"unfold{name}", lambda x, args=args: ops.unfold(x, *args), columns, {"x": (2, 3, 7, 6)})
    shape = columns({"x": np.zeros((2, 3, 7, 6))}).shape
    case(f"fold{name}", lambda x, args=args: ops.fold(x, (7, 6), *args), images, {"x": shape})

# -- pools of sequences ------------------------------------------------------------------------------------------------

for pool, reduce, value in ((ops.max_pool1d, np.max, -np.inf), (ops.avg_pool1d, np.mean, 0.0)):
    for size, stride, padding in ((2, None, 0), (3, 2, 1)):

        def pooled(v: Values, how: Any = (reduce, value, size, stride or size, padding)) -> Array:
            reduce, value, size, stride, padding = how
            windows = spread(
                v["x"][:, :, None], (1, stride), (0, padding), (1, 1), (1, size), value
            )
            found: Array = reduce(windows, axis=(4, 5))[:, :, 0]
            return found

        case(
            f"{pool.__name__} by {size}",
            lambda x, pool=pool, args=(size, stride, padding): pool(x, *args),
            pooled,
            {"x": (3, 2, 7)},
        )
