"""One small graph per operator and variant: float64, odd extents, and what it computes in plain NumPy.

`case.build()` gives a fresh (graph, output region). `case.reference(values)` is the same output from the values of its
inputs, parameters and states, by name; integer inputs are below `case.high`; `case.moved` elements of each region are
moved for gradients.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import ops
from taskflow import Graph, LogicalRegion

Array = np.ndarray[Any, np.dtype[Any]]
Values = Mapping[str, Array]


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], tuple[Graph, LogicalRegion]]
    reference: Callable[[Values], Array] | None
    high: int = 3
    is_differentiable: bool = True
    moved: int = 60

    def __str__(self) -> str:
        return self.name

    @property
    def is_variant(self) -> bool:
        """Whether it has the operators of a composed one again, put together in another way."""
        operator, _, how = re.sub("[, ]+", " ", self.name).partition(" ")
        return (
            operator in COMPOSED
            and bool(how)
            and not any(other in how for other in ("wide", "fused", "joined", "linear"))
        )


COMPOSED = ("gru", "lstm", "mixture_of_experts", "multihead_attention", "rnn")
CASES: list[Case] = []


def case(
    name: str,
    operator: Callable[..., LogicalRegion],
    reference: Callable[[Values], Array] | None,
    shapes: Mapping[str, Sequence[int]],
    integers: Sequence[str] = (),
    **options: Any,
) -> None:
    """Add the case of `operator(*inputs)`: inputs of these names and shapes, float64 except `integers`."""

    def build() -> tuple[Graph, LogicalRegion]:
        graph = Graph()
        inputs = [
            graph.input(k, shape, "int32" if k in integers else "float64")
            for k, shape in shapes.items()
        ]
        return graph, operator(*inputs)

    CASES.append(Case(name, build, reference, **options))


# -- linear ------------------------------------------------------------------------------------------------------------


def linear(v: Values) -> Array:
    return v["x"] @ v["linear.weight"].T + v.get("linear.bias", 0)


case("linear", lambda x: ops.linear(x, 5), linear, {"x": (7, 3)})
case("linear of rank 3", lambda x: ops.linear(x, 4), linear, {"x": (3, 2, 5)})
case("linear of rank 1 without bias", lambda x: ops.linear(x, 4, bias=False), linear, {"x": (5,)})
case(
    "linear after linear",
    lambda x: ops.linear(ops.linear(x, 4, name="first"), 3),
    lambda v: linear({**v, "x": v["x"] @ v["first.weight"].T + v["first.bias"]}),
    {"x": (5, 2, 3)},
)


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


case(
    "linear with relu",
    lambda x: ops.linear(x, 5, activation="relu"),
    lambda v: np.maximum(linear(v), 0),
    {"x": (7, 3)},
)
for bias, width in ((True, 8), (True, 5), (False, 8)):
    case(
        f"linear with gelu, {width} outputs{'' if bias else ', no bias'}",
        lambda x, bias=bias, width=width: ops.linear(x, width, bias, activation="gelu_tanh"),
        lambda v: gelu_tanh(linear(v)),
        {"x": (3, 2, 5)},
    )


def feed_forward(v: Values, act: Callable[[Array], Array]) -> Array:
    hidden = act(v["x"] @ v["feed_forward.fc1.weight"].T + v.get("feed_forward.fc1.bias", 0))
    return hidden @ v["feed_forward.fc2.weight"].T + v.get("feed_forward.fc2.bias", 0)


case(
    "feed_forward",
    lambda x: ops.feed_forward(x, 8),
    lambda v: feed_forward(v, gelu_tanh),
    {"x": (3, 2, 5)},
)
case(
    "feed_forward without bias",
    lambda x: ops.feed_forward(x, 5, 4, bias=False),
    lambda v: feed_forward(v, gelu_tanh),
    {"x": (3, 5)},
)
case(
    "feed_forward with relu",
    lambda x: ops.feed_forward(x, 6, activation="relu"),
    lambda v: feed_forward(v, lambda h: np.maximum(h, 0)),
    {"x": (3, 5)},
)


# -- convolution and pooling -------------------------------------------------------------------------------------------


def spread(
    x: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
    value: float = 0,
) -> Array:
    """(n, c, h, w, kh, kw): what every window of `x` reads."""
    x = np.pad(x, [(0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2], constant_values=value)
    h, w = ((x.shape[2 + k] - dilation[k] * (size[k] - 1) - 1) // stride[k] + 1 for k in (0, 1))
    out = np.empty((*x.shape[:2], h, w, *size))
    for i in range(h):
        for j in range(w):
            top, left = i * stride[0], j * stride[1]
            rows = slice(top, top + dilation[0] * (size[0] - 1) + 1, dilation[0])
            columns = slice(left, left + dilation[1] * (size[1] - 1) + 1, dilation[1])
            out[:, :, i, j] = x[:, :, rows, columns]
    return out


def both(value: int | Sequence[int]) -> Sequence[int]:
    return (value, value) if isinstance(value, int) else value


def convolution(
    name: str,
    shape: Sequence[int],
    out_channels: int,
    kernel_size: int | Sequence[int],
    *,
    bias: bool = True,
    groups: int = 1,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
) -> None:
    def operator(x: LogicalRegion) -> LogicalRegion:
        return ops.conv2d(x, out_channels, kernel_size, stride, padding, dilation, groups, bias)

    def reference(v: Values) -> Array:
        windows = spread(v["x"], both(stride), both(padding), both(dilation), both(kernel_size))
        weight = v["conv2d.weight"]
        parts = zip(np.split(windows, groups, axis=1), np.split(weight, groups), strict=True)
        y = np.concatenate([np.einsum("nchwij,ocij->nohw", x, w) for x, w in parts], axis=1)
        return y + v["conv2d.bias"][:, None, None] if bias else y

    case(name, operator, reference, {"x": shape})


convolution("conv2d", (3, 2, 7, 5), 3, 3)
convolution("conv2d with padding", (3, 2, 6, 5), 2, 3, padding=1)
convolution(
    "conv2d with stride", (2, 2, 9, 7), 3, (3, 2), stride=(2, 3), padding=(1, 0), bias=False
)
convolution("conv2d with dilation", (2, 2, 9, 7), 2, 3, dilation=2, padding=2)
convolution("conv2d of one point", (3, 3, 5, 4), 2, 1)
convolution("conv2d that skips rows", (2, 2, 7, 7), 2, 1, stride=3)
convolution("conv2d of one image", (1, 3, 5, 5), 2, 3, padding=2)
convolution("conv2d of patches", (1, 2, 6, 4), 3, 2, stride=2)
convolution("conv2d in groups", (2, 6, 5, 5), 9, 3, groups=3, padding=1)
convolution("conv2d depthwise", (2, 5, 5, 4), 5, 3, groups=5, padding=1)
convolution("conv2d of many channels", (1, 17, 6, 5), 16, 3, padding=1)  # by Winograd's algorithm


def pooling(
    name: str,
    shape: Sequence[int],
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
) -> None:
    for operator, reduce, value in (
        (ops.max_pool2d, np.max, -np.inf),
        (ops.avg_pool2d, np.mean, 0.0),
    ):

        def reference(v: Values, reduce: Any = reduce, value: float = value) -> Array:
            size = both(kernel_size)
            windows = spread(
                v["x"], both(size if stride is None else stride), both(padding), (1, 1), size, value
            )
            return reduce(windows, axis=(4, 5))

        def build(x: LogicalRegion, operator: Any = operator) -> LogicalRegion:
            return operator(x, kernel_size, stride, padding)

        case(f"{operator.__name__}{name}", build, reference, {"x": shape})


pooling("", (3, 2, 7, 6), 2)
pooling(" that overlaps", (2, 3, 7, 7), 3, 2, 1)
pooling(" with gaps", (2, 1, 8, 7), (2, 1), (3, 2), (1, 0))


# -- shape -------------------------------------------------------------------------------------------------------------

for source, target in (
    ((5, 2, 3), (5, 6)),
    ((4, 6), (4, 2, 3)),
    ((4, 6), (6, 4)),
    ((2, 3, 4), (4, 3, 2)),
    ((3, 4), (-1,)),
    ((6,), (1, 6, 1)),
    ((1, 1), ()),
    ((12, 3, 5), (18, 2, 5)),
):
    case(
        f"reshape {source} to {target}",
        lambda x, target=target: ops.reshape(x, target),
        lambda v, target=target: v["x"].reshape(target),
        {"x": source},
    )
case("flatten", ops.flatten, lambda v: v["x"].reshape(3, -1), {"x": (3, 2, 5, 3)})
case(
    "flatten in the middle",
    lambda x: ops.flatten(x, 1, 2),
    lambda v: v["x"].reshape(3, 6, 5),
    {"x": (3, 2, 3, 5)},
)
case(
    "permute",
    lambda x: ops.permute(x, (2, 0, 1)),
    lambda v: v["x"].transpose(2, 0, 1),
    {"x": (5, 3, 2)},
)
case(
    "permute of images",
    lambda x: ops.permute(x, (0, -2, -1, 1)),
    lambda v: v["x"].transpose(0, 2, 3, 1),
    {"x": (2, 3, 4, 5)},
)
case(
    "concat",
    lambda *xs: ops.concat(xs, 1),
    lambda v: np.concatenate([v["x"], v["y"], v["z"]], 1),
    {"x": (5, 3), "y": (5, 1), "z": (5, 4)},
)
case(
    "concat of one region twice",
    lambda x: ops.concat([x, x], -2),
    lambda v: np.concatenate([v["x"], v["x"]], -2),
    {"x": (2, 3, 2)},
)


# -- softmax -----------------------------------------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array, dim: int = -1) -> Array:
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


def cross_entropy(v: Values) -> Array:
    return -np.log(np.take_along_axis(softmax(v["y"]), v["t"][..., None].astype(int), -1)).mean()


case("softmax", ops.softmax, lambda v: softmax(v["x"]), {"x": (5, 7)})
case(
    "softmax of dim 0",
    lambda x: ops.softmax(x, dim=0),
    lambda v: softmax(v["x"], 0),
    {"x": (5, 3, 2)},
)
case(
    "softmax_cross_entropy",
    ops.softmax_cross_entropy,
    cross_entropy,
    {"y": (7, 3), "t": (7,)},
    ["t"],
)
case(
    "softmax_cross_entropy of rank 3",
    ops.softmax_cross_entropy,
    cross_entropy,
    {"y": (3, 5, 4), "t": (3, 5)},
    ["t"],
    high=4,
)
case(
    "softmax_cross_entropy with padding",
    lambda y, t: ops.softmax_cross_entropy(y, t, classes=3),
    lambda v: cross_entropy({**v, "y": v["y"][:, :3]}),
    {"y": (7, 5), "t": (7,)},
    ["t"],
)
case(
    "softmax_cross_entropy of one row",
    ops.softmax_cross_entropy,
    cross_entropy,
    {"y": (3,), "t": ()},
    ["t"],
)

# -- normalization, dropout, embedding ---------------------------------------------------------------------------------


def batch_norm(v: Values, training: bool = True) -> Array:
    axes = (0, *range(2, v["x"].ndim))
    each = (slice(None), *(None,) * (v["x"].ndim - 2))
    mean = v["x"].mean(axes) if training else v["batch_norm.running_mean"]
    var = v["x"].var(axes) if training else v["batch_norm.running_var"]
    scale = v["batch_norm.weight"] / np.sqrt(var + 1e-5)
    return (v["x"] - mean[each]) * scale[each] + v["batch_norm.bias"][each]


def ghost_norm(v: Values, parts: int) -> Array:
    """The statistics of each part alone."""
    return np.concatenate([batch_norm({**v, "x": x}) for x in np.split(v["x"], parts)])


def layer_norm(v: Values) -> Array:
    centred = v["x"] - v["x"].mean(-1, keepdims=True)
    return (
        centred / np.sqrt(v["x"].var(-1, keepdims=True) + 1e-3) * v["layer_norm.weight"]
        + v["layer_norm.bias"]
    )


case(
    "dropout", lambda x: ops.dropout(x, 0.4), None, {"x": (7, 5)}
)  # what it gives: test_special.py
case("batch_norm", ops.batch_norm, batch_norm, {"x": (7, 3)})
case("batch_norm of images", ops.batch_norm, batch_norm, {"x": (3, 3, 5, 2)})
case(
    "batch_norm by running statistics",
    lambda x: ops.batch_norm(x, training=False),
    lambda v: batch_norm(v, False),
    {"x": (5, 3)},
)
GHOST = partial(ops.batch_norm, parts=3)
case("batch_norm of parts", GHOST, lambda v: ghost_norm(v, 3), {"x": (6, 3)})
case("batch_norm of parts of images", GHOST, lambda v: ghost_norm(v, 3), {"x": (9, 2, 3, 1)})
case("batch_norm of parts of one image", GHOST, lambda v: ghost_norm(v, 3), {"x": (3, 2, 3, 2)})
case(
    "batch_norm of parts by running statistics",
    lambda x: ops.batch_norm(x, training=False, parts=3),
    lambda v: batch_norm(v, False),
    {"x": (6, 3)},
)
case("layer_norm", lambda x: ops.layer_norm(x, eps=1e-3), layer_norm, {"x": (5, 7)})
case("layer_norm of rank 3", lambda x: ops.layer_norm(x, eps=1e-3), layer_norm, {"x": (3, 2, 5)})
case("layer_norm of rank 1", lambda x: ops.layer_norm(x, eps=1e-3), layer_norm, {"x": (5,)})
case(
    "embedding",
    lambda i: ops.embedding(i, 5, 3, dtype="float64"),
    lambda v: v["embedding.weight"][v["i"]],
    {"i": (7,)},
    ["i"],
    high=5,
)
case(
    "embedding of rank 2",
    lambda i: ops.embedding(i, 7, 3, dtype="float64"),
    lambda v: v["embedding.weight"][v["i"]],
    {"i": (3, 5)},
    ["i"],
    high=7,
)

# They add their cases to the table.
from . import (  # noqa: E402, F401
    cases_elementwise,
    cases_experts,
    cases_reductions,
    cases_sequences,
    cases_shapes,
    cases_torch,
    cases_torch_names,
    cases_wide,
)
