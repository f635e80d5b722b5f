"""Cases of what came with the torch door: transposed and 3-d convolutions, resizing, rectifiers, logic. See `cases`."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

import ops
from taskflow import LogicalRegion

from .cases import Array, Values, case, sigmoid
from .cases_elementwise import of_x

# -- rectifiers --------------------------------------------------------------------------------------------------------


def hard(x: Array) -> Array:
    return np.clip(x + 3, 0, 6) / 6


def elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


for operator, function in (
    (ops.hardsigmoid, hard),
    (ops.hardswish, lambda x: x * hard(x)),
    (ops.mish, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    (ops.selu, lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772)),
    (ops.softsign, lambda x: x / (1 + np.abs(x))),
    (ops.logsigmoid, lambda x: np.log(sigmoid(x))),
    (ops.expm1, np.expm1),
    (ops.erf, np.vectorize(math.erf)),
    (ops.relu6, lambda x: np.clip(x, 0, 6)),
    (ops.hardtanh, lambda x: np.clip(x, -1, 1)),
    (ops.celu, lambda x: elu(x, 1.0)),
    (ops.floor, np.floor),
    (ops.ceil, np.ceil),
    (ops.round, np.rint),
    (ops.trunc, np.trunc),
    (ops.sign, np.sign),
):

    def wide(x: LogicalRegion, operator: Callable[..., LogicalRegion] = operator) -> LogicalRegion:
        return operator(ops.multiply(x, 4.0))

    case(
        operator.__name__,
        wide if operator not in (ops.hardtanh, ops.erf) else operator,
        of_x(
            lambda x, function=function, k=4.0 if operator not in (ops.hardtanh, ops.erf) else 1.0: (
                function(k * x)
            )
        ),
        {"x": (5, 7)},
    )
case(
    "celu, alpha",
    lambda x: ops.celu(x, 0.3),
    of_x(lambda x: elu(x / 0.3, 0.3) * (x <= 0) + x * (x > 0)),
    {"x": (7,)},
)
case(
    "log1p", lambda x: ops.log1p(ops.multiply(x, x)), of_x(lambda x: np.log1p(x * x)), {"x": (5, 7)}
)


def prelu(v: Values) -> Array:
    slope = v["prelu.weight"].reshape(-1, *(1,) * (v["x"].ndim - 2))
    return np.where(v["x"] > 0, v["x"], slope * v["x"])


case("prelu", ops.prelu, prelu, {"x": (5, 7)})
case("prelu per channel", lambda x: ops.prelu(x, 3), prelu, {"x": (4, 3, 5)})

for operator, operation in ((ops.logical_and, np.logical_and), (ops.logical_or, np.logical_or)):
    case(
        operator.__name__,
        lambda i, j, x, operator=operator: ops.where(operator(i, ops.logical_not(j)), x, 0.5),
        lambda v, operation=operation: np.where(operation(v["i"], v["j"] == 0), v["x"], 0.5),
        {"i": (5, 7), "j": (7,), "x": (5, 7)},
        ["i", "j"],
        high=2,
    )

case(
    "logical_not",
    lambda i, x: ops.where(ops.logical_not(i), x, 0.5),
    lambda v: np.where(v["i"] == 0, v["x"], 0.5),
    {"i": (5, 7), "x": (5, 7)},
    ["i"],
    high=2,
)
case("instance_norm", ops.instance_norm, lambda v: centred(v["x"], (2, 3)), {"x": (3, 2, 5, 3)})
case(
    "instance_norm with weights",
    lambda x: ops.instance_norm(x, affine=True),
    lambda v: (
        centred(v["x"], (2,)) * v["instance_norm.weight"][:, None]
        + v["instance_norm.bias"][:, None]
    ),
    {"x": (3, 2, 7)},
)
case(
    "group_norm without weights",
    lambda x: ops.group_norm(x, 3, affine=False),
    lambda v: in_groups(v["x"], 3),
    {"x": (2, 6, 5)},
)


def centred(x: Array, axes: tuple[int, ...]) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def in_groups(x: Array, groups: int) -> Array:
    return centred(x.reshape(len(x), groups, -1), (2,)).reshape(x.shape)


# -- sections ----------------------------------------------------------------------------------------------------------

case(
    "slice by steps",
    lambda x: ops.slice(x, 1, 1, 10, step=3),
    lambda v: v["x"][:, 1:10:3],
    {"x": (3, 11)},
)
case(
    "slice by steps, to the end",
    lambda x: ops.slice(x, 0, 0, 9, step=2),
    lambda v: v["x"][::2],
    {"x": (9, 2, 3)},
)
case(
    "detach",
    lambda x: ops.add(ops.detach(ops.multiply(x, 0.0)), x),
    lambda v: v["x"],
    {"x": (5, 3)},
)


# -- convolutions ------------------------------------------------------------------------------------------------------


def transposed(
    name: str,
    shape: Sequence[int],
    out_channels: int,
    size: int,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
) -> None:
    """Of images or sequences; the reference adds every input to the outputs that its window reaches."""
    ndim = len(shape) - 2
    operator = ops.conv_transpose2d if ndim == 2 else ops.conv_transpose1d
    args = (out_channels, size, stride, padding, output_padding, dilation, groups, bias)

    def reference(v: Values) -> Array:
        x, weight = v["x"], v[f"{operator.__name__}.weight"]
        extents = [
            (n - 1) * stride + dilation * (size - 1) + 1 + output_padding for n in x.shape[2:]
        ]
        y = np.zeros((x.shape[0], out_channels, *extents))
        ins, outs = x.shape[1] // groups, out_channels // groups
        for g, *at in itertools.product(
            range(groups), *map(range, x.shape[2:]), *[range(size)] * ndim
        ):
            point, tap = at[:ndim], at[ndim:]
            to = tuple(p * stride + t * dilation for p, t in zip(point, tap, strict=True))
            part = x[(slice(None), slice(g * ins, (g + 1) * ins), *point)]
            y[(slice(None), slice(g * outs, (g + 1) * outs), *to)] += (
                part @ weight[(slice(g * ins, (g + 1) * ins), slice(None), *tap)]
            )
        kept = [slice(padding, n - padding) for n in extents]
        y = y[(slice(None), slice(None), *kept)]
        return y + v[f"{operator.__name__}.bias"].reshape(-1, *(1,) * ndim) if bias else y

    case(name, lambda x: operator(x, *args), reference, {"x": shape})


transposed("conv_transpose2d", (2, 3, 4, 3), 5, 3)
transposed("conv_transpose2d by two", (2, 4, 3, 5), 3, 4, stride=2, padding=1, bias=False)
transposed("conv_transpose2d with gaps and edges", (2, 2, 3, 4), 3, 3, 3, 1, 2, dilation=2)
transposed("conv_transpose2d in groups", (2, 6, 3, 3), 9, 2, stride=2, groups=3)
transposed("conv_transpose1d", (3, 2, 7), 5, 3, stride=2, padding=1, output_padding=1)
transposed("conv_transpose1d in groups", (2, 4, 5), 6, 3, dilation=2, groups=2, bias=False)


def volume(
    name: str,
    shape: Sequence[int],
    out_channels: int,
    size: Sequence[int],
    stride: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    dilation: Sequence[int] = (1, 1, 1),
    groups: int = 1,
    bias: bool = True,
) -> None:
    def reference(v: Values) -> Array:
        x, weight = np.pad(v["x"], [(0, 0), (0, 0), *((p, p) for p in padding)]), v["conv3d.weight"]
        counts = [
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(x.shape[2:], size, stride, dilation, strict=True)
        ]
        y, ins, outs = (
            np.zeros((len(x), out_channels, *counts)),
            x.shape[1] // groups,
            out_channels // groups,
        )
        for g, *tap in itertools.product(range(groups), *map(range, size)):
            read = [
                slice(t * d, t * d + (c - 1) * s + 1, s)
                for t, d, c, s in zip(tap, dilation, counts, stride)
            ]
            part = x[(slice(None), slice(g * ins, (g + 1) * ins), *read)]
            own = weight[(slice(g * outs, (g + 1) * outs), slice(None), *tap)]
            y[:, g * outs : (g + 1) * outs] += np.einsum("ncdhw,oc->nodhw", part, own)
        return y + v["conv3d.bias"][:, None, None, None] if bias else y

    args = (out_channels, size, stride, padding, dilation, groups, bias)
    case(name, lambda x: ops.conv3d(x, *args), reference, {"x": shape})


volume("conv3d", (2, 2, 4, 3, 3), 3, (3, 2, 2))
volume(
    "conv3d with stride and padding",
    (2, 2, 5, 4, 3),
    3,
    (2, 3, 1),
    (2, 1, 2),
    (1, 1, 0),
    bias=False,
)
volume(
    "conv3d with dilation in groups", (2, 4, 5, 3, 3), 6, (2, 1, 2), dilation=(3, 1, 2), groups=2
)
volume("conv3d of one plane", (2, 2, 3, 3, 4), 3, (1, 3, 3), padding=(0, 1, 1))


def pooled(v: Values, reduce: str) -> Array:
    n, c, d, h, w = v["x"].shape
    return getattr(v["x"].reshape(n, c, d // 2, 2, h // 3, 3, w // 2, 2), reduce)((3, 5, 7))


for pool, reduce in ((ops.max_pool3d, "max"), (ops.avg_pool3d, "mean")):
    case(
        pool.__name__,
        lambda x, pool=pool: pool(x, (2, 3, 2)),
        partial(pooled, reduce=reduce),
        {"x": (2, 2, 4, 6, 4)},
    )
case(
    "adaptive_avg_pool3d",
    lambda x: ops.adaptive_avg_pool3d(x, (2, 2, 2)),
    partial(pooled, reduce="mean"),
    {"x": (2, 2, 4, 6, 4)},
)


# -- resizing ----------------------------------------------------------------------------------------------------------


def cubic(t: float) -> float:
    t = abs(t)
    near, far = 1.25 * t**3 - 2.25 * t**2 + 1, -0.75 * (t**3 - 5 * t**2 + 8 * t - 4)
    return near if t <= 1 else far if t < 2 else 0.0


def line(x: Array, out: int, mode: str, align: bool) -> Array:
    """The last dimension resized, point by point."""
    n = x.shape[-1]
    y = np.zeros((*x.shape[:-1], out))
    for k in range(out):
        centre = k * (n - 1) / (out - 1) if align else (k + 0.5) * n / out - 0.5
        if mode == "nearest":
            y[..., k] = x[..., k * n // out]
        elif mode == "bilinear":
            centre = max(centre, 0)
            for j in range(n):
                y[..., k] += max(0, 1 - abs(min(centre, n - 1) - j)) * x[..., j]
        else:
            for j in range(math.floor(centre) - 1, math.floor(centre) + 3):
                y[..., k] += cubic(centre - j) * x[..., min(max(j, 0), n - 1)]
    return y


for mode, align, shape, size in (
    ("nearest", False, (2, 3, 4, 5), (6, 7)),
    ("nearest", False, (1, 2, 5, 6), (3, 2)),
    ("bilinear", False, (2, 3, 4, 5), (7, 10)),
    ("bilinear", True, (1, 2, 5, 3), (3, 7)),
    ("bicubic", False, (1, 2, 5, 4), (8, 3)),
    ("bicubic", True, (1, 2, 4, 3), (3, 5)),
):

    def resize(
        x: LogicalRegion, mode: str = mode, align: bool = align, size: Sequence[int] = size
    ) -> LogicalRegion:
        return ops.interpolate(x, size, mode, align)

    def resized(
        v: Values, mode: str = mode, align: bool = align, size: Sequence[int] = size
    ) -> Array:
        columns = line(v["x"], size[1], mode, align)
        return line(columns.swapaxes(2, 3), size[0], mode, align).swapaxes(2, 3)

    case(f"interpolate, {mode}{', aligned' * align}, to {size}", resize, resized, {"x": shape})
